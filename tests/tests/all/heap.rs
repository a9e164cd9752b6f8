//! brk and `MAP_POPULATE` on real threads: Linux's meaning, in every era and on both formats.

use minflt_addr::{VirtAddr, VirtRange};
use minflt_host::{Host, HostInstance};
use minflt_mm::{
    Advice, Event, HeapError, MapRequest, Mm, Overcommit, Place, Populate, Prot, Signal, Swap,
    System, eras_without_migration,
};
use minflt_pgtable::{Altix16K, Mmu, Paging, X86_64};
use minflt_tests::world::{alone, boot_on, machine};

/// Runs `body` in every era on both formats, in an address space of its own, with the ledger.
fn everywhere(
    x86: impl Fn(&'static str, &Mm<Host<X86_64, true>>),
    altix: impl Fn(&'static str, &Mm<Host<Altix16K, true>>),
) {
    for era in eras_without_migration() {
        let sys = boot_on::<Host<X86_64, true>>(machine(2, 32 << 20), era.config, Swap::None);
        alone(era.name, &sys, |mm| x86(era.name, mm));
        let sys = boot_on::<Host<Altix16K, true>>(machine(2, 32 << 20), era.config, Swap::None);
        alone(era.name, &sys, |mm| altix(era.name, mm));
    }
}

fn mappings<M: Mmu>(mm: &Mm<M>) -> Vec<VirtRange> {
    let mut ranges = Vec::new();
    mm.for_each_mapping(|range, _| ranges.push(range));
    ranges
}

fn grow_and_shrink<M: Mmu<Instance = HostInstance>>(era: &str, mm: &Mm<M>) {
    let page = M::Paging::page();
    let thread = mm.thread();
    let start = mm.brk(None);
    let at = |bytes: u64| VirtAddr(start.0 + bytes);
    assert!(start.is_aligned(M::Paging::shift()) && mappings(mm).is_empty());
    // The byte is kept; pages are mapped.
    assert_eq!(mm.brk(Some(at(5))), at(5), "{era}");
    assert_eq!(mappings(mm), [VirtRange::new(start, at(page))]);
    assert_eq!(thread.store(start, 7), Ok(()));
    assert_eq!(thread.load(at(page)), Err(Signal::MapErr));
    assert_eq!(mm.brk(Some(at(page))), at(page), "within the page: no call");
    // Growing extends the mapping and keeps what it holds.
    assert_eq!(mm.brk(Some(at(3 * page + 1))), at(3 * page + 1));
    assert_eq!(mappings(mm), [VirtRange::new(start, at(4 * page))]);
    assert_eq!(thread.load(start), Ok(7));
    assert_eq!(thread.store(at(3 * page), 9), Ok(()));
    // Shrinking takes whole pages away, and they come back as zeros.
    assert_eq!(mm.brk(Some(at(3 * page))), at(3 * page));
    assert_eq!(thread.load(at(3 * page)), Err(Signal::MapErr));
    assert_eq!(mm.brk(Some(at(4 * page))), at(4 * page));
    assert_eq!(thread.load(at(3 * page)), Ok(0));
    assert_eq!(mm.brk(Some(start)), start);
    assert!(mappings(mm).is_empty());
    assert_eq!(mm.brk(None), start);
    assert!(mm.system().count_of(Event::Brk) >= 7);
}

#[test]
fn the_break_is_a_byte_and_the_heap_is_pages() {
    everywhere(grow_and_shrink, grow_and_shrink);
}

fn refusals<M: Mmu<Instance = HostInstance>>(era: &str, mm: &Mm<M>) {
    let page = M::Paging::page();
    let start = mm.brk(None);
    let at = |pages: u64| VirtAddr(start.0 + pages * page);
    assert_eq!(mm.brk(Some(VirtAddr(start.0 - 1))), start, "{era}: below");
    assert_eq!(mm.brk(Some(VirtAddr(0))), start);
    assert_eq!(
        mm.brk(Some(VirtAddr(M::Paging::user_end()))),
        start,
        "{era}"
    );
    assert_eq!(mm.brk(Some(VirtAddr(u64::MAX))), start, "{era}: wraps");
    // One page before another mapping stays free.
    mm.mmap(Place::FixedNoReplace(at(4)), page, Prot::READ)
        .expect("free");
    assert_eq!(mm.brk(Some(at(5))), start, "{era}: over a mapping");
    assert_eq!(mm.brk(Some(at(4))), start, "{era}: up to a mapping");
    assert_eq!(mm.brk(Some(VirtAddr(at(3).0 + 1))), start, "{era}");
    assert_eq!(mm.brk(Some(at(3))), at(3), "{era}: with a gap");
    // What was unmapped behind brk's back cannot be given back by it.
    mm.munmap(at(2), page).expect("mapped");
    assert_eq!(mm.brk(Some(at(2))), at(3), "{era}");
    assert_eq!(mm.brk(Some(at(1))), at(1), "{era}: part is mapped");
    assert_eq!(
        mappings(mm),
        [VirtRange::new(start, at(1)), VirtRange::new(at(4), at(5))]
    );
}

#[test]
fn brk_refuses_what_linux_refuses_and_then_changes_nothing() {
    everywhere(refusals, refusals);
}

fn a_changed_heap<M: Mmu<Instance = HostInstance>>(era: &str, mm: &Mm<M>) {
    let page = M::Paging::page();
    let start = VirtAddr(64 << 20);
    let at = |pages: u64| VirtAddr(start.0 + pages * page);
    assert_eq!(
        mm.set_start_brk(VirtAddr(u64::MAX)),
        Err(HeapError::OutOfRange)
    );
    // A program's data ends within a page, and the heap begins there.
    mm.mmap(Place::FixedNoReplace(at(0)), page, Prot::READ_WRITE)
        .expect("free");
    let data_end = VirtAddr(start.0 + page - 8);
    mm.set_start_brk(data_end).expect("unused");
    assert_eq!(mm.brk(None), data_end);
    assert_eq!(mm.brk(Some(at(2))), at(2), "{era}");
    assert_eq!(mm.set_start_brk(start), Err(HeapError::Used));
    // A heap whose protection was changed is not extended: another mapping begins.
    mm.mprotect(at(1), page, Prot::READ).expect("mapped");
    assert_eq!(mm.brk(Some(at(3))), at(3));
    let thread = mm.thread();
    assert_eq!(thread.store(at(1), 1), Err(Signal::AccErr));
    assert_eq!(thread.store(at(2), 1), Ok(()));
    mm.madvise(at(0), 3 * page, Advice::DontNeed)
        .expect("mapped");
    assert_eq!(mm.brk(Some(at(1))), at(1), "{era}: both go");
    assert_eq!(thread.load(at(1)), Err(Signal::MapErr));
}

#[test]
fn the_heap_starts_where_exec_says() {
    everywhere(a_changed_heap, a_changed_heap);
}

/// One thread moves the break up and down while others store below and above it.
fn storm<M: Mmu<Instance = HostInstance>>(era: &str, sys: &System<M>) {
    let page = M::Paging::page();
    let boot = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let start = mm.brk(None);
    let at = |pages: u64| VirtAddr(start.0 + pages * page);
    assert_eq!(mm.brk(Some(at(4))), at(4));
    drop(boot);
    std::thread::scope(|scope| {
        let mm = &mm;
        scope.spawn(move || {
            let _cpu = sys.machine().enter(0);
            for round in 0..200u64 {
                let end = at(4 + round % 7);
                assert_eq!(mm.brk(Some(end)), end, "{era}");
            }
            assert_eq!(mm.brk(Some(at(4))), at(4));
        });
        scope.spawn(move || {
            let _cpu = sys.machine().enter(1);
            let thread = mm.thread();
            for round in 0..400u64 {
                let below = at(round % 4);
                assert_eq!(thread.store(below, round + 1), Ok(()), "{era}");
                assert_eq!(thread.load(below), Ok(round + 1), "{era}");
                let above = thread.store(at(4 + round % 7), round);
                assert!(matches!(above, Ok(()) | Err(Signal::MapErr)), "{era}");
            }
        });
    });
    let _cpu = sys.machine().enter(0);
    assert_eq!(mappings(&mm), [VirtRange::new(start, at(4))], "{era}");
    sys.check_ledger(&[&mm])
        .unwrap_or_else(|e| panic!("{era}: {e}"));
    drop(mm);
}

#[test]
fn the_heap_grows_and_shrinks_beside_faults_in_every_era() {
    for era in eras_without_migration() {
        storm(
            era.name,
            &*boot_on::<Host<X86_64, true>>(machine(2, 32 << 20), era.config, Swap::None),
        );
        storm(
            era.name,
            &*boot_on::<Host<Altix16K, true>>(machine(2, 32 << 20), era.config, Swap::None),
        );
    }
}

fn populated<M: Mmu<Instance = HostInstance>>(era: &str, mm: &Mm<M>) {
    let (sys, page_bytes) = (mm.system(), M::Paging::page());
    let thread = mm.thread();
    let populate = |pages: u64, prot| MapRequest {
        populate: Populate::Now,
        ..MapRequest::new(Place::Any, pages * page_bytes, prot)
    };
    let at = thread.mmap(&populate(6, Prot::READ_WRITE)).expect("a hole");
    assert_eq!(sys.count_of(Event::AnonWrite), 6, "{era}: as by stores");
    assert_eq!(sys.count_of(Event::MinorFaults), 6);
    for page in 0..6 {
        thread
            .store(VirtAddr(at.0 + page * page_bytes), 1)
            .expect("mapped");
    }
    assert_eq!(sys.count_of(Event::PageFaults), 0, "{era}: none is left");
    let read = thread.mmap(&populate(3, Prot::READ)).expect("a hole");
    assert_eq!(sys.count_of(Event::AnonRead), 3, "{era}: as by loads");
    assert_eq!(thread.load(read), Ok(0));
    thread.mmap(&populate(3, Prot::NONE)).expect("a hole");
    assert_eq!(sys.count_of(Event::Populated), 9);
    assert_eq!(sys.count_of(Event::PageFaults), 0, "{era}");
    // What does not fit into memory is left out, and the call succeeds.
    sys.set_overcommit(Overcommit::Always);
    let frames = sys.total_frames();
    let huge = thread.mmap(&populate(frames, Prot::READ_WRITE));
    let huge = huge.expect("populating may fail, mapping does not");
    assert!(sys.count_of(Event::Populated) > frames / 2, "{era}");
    assert_eq!(sys.count_of(Event::Signals), 0);
    assert_eq!(thread.store(huge, 5), Ok(()));
    let last = VirtAddr(huge.0 + (frames - 1) * page_bytes);
    assert_eq!(thread.store(last, 5), Err(Signal::OutOfMemory), "{era}");
    mm.munmap(huge, frames * page_bytes).expect("mapped");
}

#[test]
fn populating_faults_every_page_in_and_counts_minor_faults_only() {
    everywhere(populated, populated);
}
