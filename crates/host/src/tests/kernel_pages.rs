//! Frames that the embedding kernel has for itself.

use super::{M, boot, machine, on_all_cpus, words_of};
use core::panic::AssertUnwindSafe;
use minflt_addr::{Pfn, VirtAddr};
use minflt_mm::{
    Event, Gfp, KernelPages, MAX_PAGE_ORDER, NoMemory, Place, Prot, Swap, System, era,
};
use minflt_pgtable::Mmu;

const PAGE: u64 = 4096;

fn kernel_frames(sys: &System<M>) -> u64 {
    sys.check_ledger(&[]).unwrap().kernel
}

/// The frames of a run.
pub(super) fn frames(pages: &KernelPages<'_, M>) -> impl Iterator<Item = Pfn> + use<> {
    (pages.first().0..pages.first().0 + (1 << pages.order())).map(Pfn)
}

/// A word of a frame that says which it is.
fn mark(pfn: Pfn) -> u64 {
    pfn.0 << 32 | 0xabcd
}

#[test]
fn runs_are_aligned_contiguous_and_counted() {
    let sys = boot(1, "best");
    let _cpu = sys.machine().enter(0);
    let free = || sys.check_ledger(&[]).unwrap().free;
    let before = free();
    let runs: Vec<_> = (0..=MAX_PAGE_ORDER)
        .map(|order| sys.alloc_pages(order, Gfp::Kernel).unwrap())
        .collect();
    let mut all = Vec::new();
    for (order, run) in (0..).zip(&runs) {
        assert_eq!(run.order(), order);
        assert_eq!(run.first().0 % (1 << order), 0, "aligned to its size");
        for pfn in frames(run) {
            let offset = (pfn.0 - run.first().0) * PAGE;
            let there = run.as_ptr().wrapping_add(offset as usize);
            assert_eq!(M::frame_ptr(sys.machine(), pfn), there);
            M::user_store(sys.machine(), pfn, 8, mark(pfn));
            all.push(pfn);
        }
    }
    assert_eq!(kernel_frames(&sys), (2 << MAX_PAGE_ORDER) - 1);
    // Nobody else has them.
    let mm = sys.new_mm().unwrap();
    let at = mm.mmap(Place::Any, 512 * PAGE, Prot::READ_WRITE).unwrap();
    for page in 0..512 {
        mm.thread().store(VirtAddr(at.0 + page * PAGE), 1).unwrap();
    }
    drop(mm);
    for pfn in all {
        assert_eq!(M::user_load(sys.machine(), pfn, 8), mark(pfn));
    }
    drop(runs);
    assert_eq!(kernel_frames(&sys), 0);
    // Slabs and the CPU's list keep some of what the address space took.
    assert!(free() + 64 > before);
    let refused = sys.alloc_pages(MAX_PAGE_ORDER + 1, Gfp::Kernel);
    assert_eq!(refused.err(), Some(NoMemory));
    assert_eq!(sys.alloc_pages(u32::MAX, Gfp::NoWait).err(), Some(NoMemory));
}

/// The control: what is not freed shows, until it is.
#[test]
fn the_ledger_shows_a_leak() {
    let sys = boot(1, "best");
    let _cpu = sys.machine().enter(0);
    let raw = [0, 2].map(|order| sys.alloc_pages(order, Gfp::Kernel).unwrap().into_raw());
    assert_eq!(kernel_frames(&sys), 5);
    for (first, left) in raw.into_iter().zip([4, 0]) {
        // SAFETY: 1: from `into_raw`, once. 2: never used.
        unsafe { sys.free_pages(first) };
        assert_eq!(kernel_frames(&sys), left);
    }
}

#[test]
fn a_frame_that_is_not_the_kernels_is_not_freed() {
    for freed in [true, false] {
        let sys = boot(1, "best");
        let _cpu = sys.machine().enter(0);
        let first = sys.alloc_pages(1, Gfp::Kernel).unwrap().into_raw();
        let wrong = if freed {
            // SAFETY: 1: from `into_raw`, once. 2: never used.
            unsafe { sys.free_pages(first) };
            first
        } else {
            Pfn(first.0 + 1)
        };
        let said = words_of(AssertUnwindSafe(|| {
            // SAFETY: none: the check under test ends the machine before anything is freed.
            unsafe { sys.free_pages(wrong) }
        }));
        assert!(said.contains("freed by the kernel, but used as"), "{said}");
    }
}

/// Memory full of pages that can be swapped out is memory for the kernel, if it may wait.
#[test]
fn an_allocation_reclaims_if_it_may() {
    let config = era("linux-6.15").unwrap().config;
    let swap = Swap::Memory { pages: 512 };
    let sys = System::<M>::boot_with_swap(machine(1), config, swap).unwrap();
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let len = sys.check_ledger(&[&mm]).unwrap().free;
    let at = mm.mmap(Place::Any, len * PAGE, Prot::READ_WRITE).unwrap();
    let page = |n| VirtAddr(at.0 + n * PAGE);
    let thread = mm.thread();
    // Until something had to go.
    let swapped = || sys.count_of(Event::SwapOut);
    let mut touched = 0;
    while swapped() == 0 {
        thread.store(page(touched), touched).unwrap();
        touched += 1;
    }
    let (mut at_once, before) = (Vec::new(), swapped());
    while let Ok(one) = sys.alloc_pages(0, Gfp::NoWait) {
        at_once.push(one);
    }
    assert_eq!(swapped(), before, "nothing is reclaimed where nobody waits");
    let waited = [(); 100].map(|()| sys.alloc_pages(0, Gfp::Kernel).unwrap());
    assert!(swapped() > before);
    for n in 0..touched {
        assert_eq!(thread.load(page(n)), Ok(n), "swapped out and in again");
    }
    let ledger = sys.check_ledger(&[&mm]).unwrap();
    assert_eq!(ledger.kernel, 100 + at_once.len() as u64);
    drop((at_once, waited));
    assert_eq!(sys.check_ledger(&[&mm]).unwrap().kernel, 0);
}

/// The kernel does not get the frames that reclaim needs: with all it can have, pages still go out.
#[test]
fn an_allocation_leaves_reclaim_what_it_needs() {
    let config = era("linux-6.15").unwrap().config;
    let swap = Swap::Memory { pages: 512 };
    let sys = System::<M>::boot_with_swap(machine(1), config, swap).unwrap();
    let _cpu = sys.machine().enter(0);
    let mut all = Vec::new();
    for order in (0..=MAX_PAGE_ORDER).rev() {
        while let Ok(run) = sys.alloc_pages(order, Gfp::Kernel) {
            all.push(run);
        }
    }
    let left = sys.check_ledger(&[]).unwrap().free;
    assert!(left >= 8, "{left} frames");
    drop(all);
    assert_eq!(kernel_frames(&sys), 0);
}

/// CPUs that free what others allocated.
#[test]
fn frames_are_freed_on_other_cpus() {
    let sys = boot(4, "best");
    let queues = [const { std::sync::Mutex::new(Vec::new()) }; 4];
    on_all_cpus(sys.machine(), |cpu| {
        for round in 0..super::rounds(4000) {
            let order = (round % 3) as u32;
            let run = sys.alloc_pages(order, Gfp::Kernel).unwrap();
            M::user_store(sys.machine(), run.first(), 0, mark(run.first()));
            let mut next = queues[(cpu as usize + 1) % 4].lock().unwrap();
            // One that runs ahead frees its own.
            if next.len() < 32 {
                next.push(run);
            }
            drop(next);
            let mine = queues[cpu as usize].lock().unwrap().pop();
            if let Some(run) = mine {
                let word = M::user_load(sys.machine(), run.first(), 0);
                assert_eq!(word, mark(run.first()));
            }
        }
    });
    let _cpu = sys.machine().enter(0);
    let left: Vec<_> = queues.map(|queue| queue.into_inner().unwrap()).into();
    let frames: u64 = left.iter().flatten().map(|run| 1 << run.order()).sum();
    assert_eq!(kernel_frames(&sys), frames);
    drop(left);
    assert_eq!(kernel_frames(&sys), 0);
}
