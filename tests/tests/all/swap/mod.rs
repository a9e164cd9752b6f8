//! Swap and reclaim: what goes out comes back as it was, and programs larger than memory run.

#![expect(
    clippy::disallowed_types,
    reason = "the device is no part of the machine"
)]

mod sim;

use minflt_addr::{Pfn, VirtAddr};
use minflt_mm::{
    Advice, BootError, Config, Event, IoError, MadviseError, MapRequest, Mm, Place, Prot, Remap,
    RemapRequest, Sharing, Signal, Swap, SwapDevice, System, era, eras_of_migration,
};
use minflt_pgtable::{Access, Mmu, Paging};
use minflt_tests::disk::Disk;
use minflt_tests::world::{Machine, PAGE, boot_on, machine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A device of words that fails where it is told to.
#[derive(Debug, Default)]
struct Slots {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    words: BTreeMap<u64, BTreeMap<u64, u64>>,
    fails_write: bool,
    fails_read: BTreeSet<u64>,
    fails_all_reads: bool,
}

impl Slots {
    fn new() -> &'static Self {
        Box::leak(Box::new(Self::default()))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Mmu> SwapDevice<M> for Slots {
    fn read_slot(&self, at: &M::Instance, slot: u64, pfn: Pfn) -> Result<(), IoError> {
        let state = self.state();
        if state.fails_all_reads || state.fails_read.contains(&slot) {
            return Err(IoError::Failed);
        }
        M::clear(at, pfn);
        for (offset, word) in &state.words[&slot] {
            M::user_store(at, pfn, *offset, *word);
        }
        Ok(())
    }

    fn write_slot(&self, at: &M::Instance, slot: u64, pfn: Pfn) -> Result<(), IoError> {
        let mut state = self.state();
        if state.fails_write {
            return Err(IoError::Failed);
        }
        let words = (0..M::Paging::page()).step_by(8);
        let words = words.map(|offset| (offset, M::user_load(at, pfn, offset)));
        let words = words.filter(|(_, word)| *word != 0).collect();
        state.words.insert(slot, words);
        Ok(())
    }
}

#[test]
fn memory_that_is_too_small_for_its_slots_says_how_much_would_do() {
    for nodes in [1, 2, 4] {
        let boot = |ram_bytes: u64| {
            let machine = machine(4, ram_bytes as usize);
            let swap = Swap::Memory { pages: 1024 };
            System::<Machine>::boot_with_swap(machine.with_nodes(nodes), newest(), swap)
        };
        let refused = boot(4 << 20).err();
        let Some(BootError::TooSmall { has, needs }) = refused else {
            panic!("4 MiB of slots in 4 MiB: {refused:?}");
        };
        assert!(needs > has, "{nodes} nodes: {needs} of {has}");
        assert!(boot(needs).is_ok(), "{nodes} nodes: {needs} would not do");
    }
}

fn newest() -> Config {
    era("linux-6.15").expect("an era").config
}

fn map<M: Mmu>(mm: &Mm<M>, pages: u64) -> VirtAddr {
    let at = mm.mmap(Place::Any, pages * PAGE, Prot::READ_WRITE);
    at.expect("a hole")
}

fn page(at: VirtAddr, n: u64) -> VirtAddr {
    VirtAddr(at.0 + n * PAGE)
}

fn out<M: Mmu>(mm: &Mm<M>, at: VirtAddr, pages: u64) {
    assert_eq!(mm.madvise(at, pages * PAGE, Advice::PageOut), Ok(()));
}

#[test]
fn what_goes_out_comes_back_as_it_was() {
    for era in eras_of_migration() {
        let sys = boot_on::<Machine>(machine(1, 8 << 20), era.config, Swap::Memory { pages: 32 });
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let at = map(&mm, 9);
        for n in 0..8 {
            assert_eq!(mm.thread().store(page(at, n), 100 + n), Ok(()));
        }
        // The zero page has nowhere to go.
        assert_eq!(mm.thread().load(page(at, 8)), Ok(0));
        out(&mm, at, 9);
        let name = era.name;
        assert_eq!(sys.count_of(Event::SwapOut), 8, "{name}");
        let ledger = sys.check_ledger(&[&mm]).expect(name);
        assert_eq!((ledger.anon, ledger.swapped), (0, 8), "{name}");
        let mut core = [9; 9];
        mm.mincore(at, 9 * PAGE, &mut core).expect("mapped");
        assert_eq!(core, [0, 0, 0, 0, 0, 0, 0, 0, 1], "{name}");
        for n in 0..4 {
            assert_eq!(mm.thread().load(page(at, n)), Ok(100 + n), "{name}");
            assert_eq!(
                mm.thread().store(page(at, n + 4), 200 + n),
                Ok(()),
                "{name}"
            );
        }
        assert_eq!(sys.count_of(Event::SwapIn), 8, "{name}");
        assert_eq!(sys.count_of(Event::MajorFaults), 8, "{name}");
        for n in 0..4 {
            assert_eq!(mm.thread().store(page(at, n), 300 + n), Ok(()), "{name}");
            assert_eq!(mm.thread().load(page(at, n)), Ok(300 + n), "{name}");
            assert_eq!(mm.thread().load(page(at, n + 4)), Ok(200 + n), "{name}");
        }
        let ledger = sys.check_ledger(&[&mm]).expect(name);
        assert_eq!((ledger.anon, ledger.swapped), (8, 0), "{name}");
        assert_eq!(sys.count_of(Event::Cow), 0, "{name}: all its own");
    }
}

/// What is swapped out shows as such, and counts for nobody else.
#[test]
fn swapped_pages_are_told() {
    let sys = boot_on::<Machine>(machine(1, 8 << 20), newest(), Swap::Memory { pages: 32 });
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let at = map(&mm, 4);
    for n in 0..4 {
        assert_eq!(mm.thread().store(page(at, n), 1), Ok(()));
    }
    out(&mm, at, 3);
    let (mut status, mut smaps) = (String::new(), String::new());
    mm.status(&mut status).expect("a string");
    mm.smaps(&mut smaps).expect("a string");
    assert!(status.contains("VmSwap:\t      12 kB"), "{status}");
    assert!(smaps.contains("Swap:                 12 kB"), "{smaps}");
    assert!(smaps.contains("SwapPss:              12 kB"), "{smaps}");
    let child = mm.fork().expect("memory");
    let mut smaps = String::new();
    mm.smaps(&mut smaps).expect("a string");
    assert!(smaps.contains("SwapPss:               6 kB"), "{smaps}");
    drop(child);
    assert_eq!(sys.swap_used(), 3);
}

#[test]
fn a_family_shares_slots_and_has_copies_afterwards() {
    for era in eras_of_migration() {
        let name = era.name;
        let sys = boot_on::<Machine>(machine(1, 8 << 20), era.config, Swap::Memory { pages: 32 });
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let at = map(&mm, 2);
        assert_eq!(mm.thread().store(at, 7), Ok(()));
        assert_eq!(mm.thread().store(page(at, 1), 8), Ok(()));
        out(&mm, at, 1);
        // One page is forked as a slot; one goes out while two map it.
        let child = mm.fork().expect("memory");
        assert_eq!(sys.swap_used(), 1, "{name}");
        sys.check_ledger(&[&mm, &child]).expect(name);
        assert_eq!(child.thread().store(at, 17), Ok(()), "{name}");
        assert_eq!(mm.thread().load(at), Ok(7), "{name}");
        assert_eq!(sys.swap_used(), 0, "{name}");
        let grandchild = child.fork().expect("memory");
        drop(child);
        assert_eq!(grandchild.thread().load(at), Ok(17), "{name}");
        assert_eq!(grandchild.thread().load(page(at, 1)), Ok(8), "{name}");
        sys.check_ledger(&[&mm, &grandchild]).expect(name);
        out(&grandchild, at, 1);
        assert_eq!(sys.swap_used(), 1, "{name}");
        drop(grandchild);
        assert_eq!(sys.swap_used(), 0, "{name}: given back at exit");
        out(&mm, at, 2);
        assert_eq!(sys.swap_used(), 2, "{name}");
        assert_eq!(mm.munmap(at, PAGE), Ok(()));
        let gone = mm.madvise(page(at, 1), PAGE, Advice::DontNeed);
        assert_eq!((gone, sys.swap_used()), (Ok(()), 0), "{name}");
        assert_eq!(mm.thread().load(page(at, 1)), Ok(0), "{name}");
        sys.check_ledger(&[&mm]).expect(name);
    }
}

/// Calls that move, protect and lock find pages that are in slots.
#[test]
fn calls_find_what_is_swapped_out() {
    let sys = boot_on::<Machine>(machine(1, 8 << 20), newest(), Swap::Memory { pages: 32 });
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let at = map(&mm, 4);
    let thread = mm.thread();
    for n in 0..4 {
        assert_eq!(thread.store(page(at, n), 40 + n), Ok(()));
    }
    out(&mm, at, 4);
    assert_eq!(mm.mprotect(at, PAGE, Prot::READ), Ok(()));
    assert_eq!(thread.load(at), Ok(40));
    assert_eq!(thread.store(at, 1), Err(Signal::AccErr));
    assert_eq!(mm.mprotect(at, PAGE, Prot::READ_WRITE), Ok(()));
    assert_eq!(thread.store(at, 41), Ok(()));
    let to = map(&mm, 8);
    let moved = RemapRequest {
        old: page(at, 1),
        old_len: PAGE,
        new_len: PAGE,
        how: Remap::Fixed(page(to, 4)),
    };
    assert_eq!(thread.mremap(&moved), Ok(page(to, 4)));
    assert_eq!(thread.load(page(to, 4)), Ok(41));
    assert_eq!(thread.mlock(page(at, 2), 2 * PAGE), Ok(()));
    assert_eq!(sys.swap_used(), 0, "locking brings it in");
    let refused = mm.madvise(page(at, 2), 2 * PAGE, Advice::PageOut);
    assert_eq!(refused, Err(MadviseError::Invalid));
    sys.check_ledger(&[&mm]).expect("adds up");
}

/// A device that fails loses no page that it was not given, and the touch of one that it has lost
/// is a signal.
#[test]
fn a_device_that_fails_costs_nobody_else() {
    let device = Slots::new();
    let sys = boot_on::<Machine>(
        machine(1, 8 << 20),
        newest(),
        Swap::Device { device, pages: 16 },
    );
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let at = map(&mm, 3);
    let thread = mm.thread();
    for n in 0..3 {
        assert_eq!(thread.store(page(at, n), 50 + n), Ok(()));
    }
    device.state().fails_write = true;
    let child = mm.fork().expect("memory");
    out(&mm, at, 3);
    drop(child);
    out(&mm, at, 3);
    assert_eq!(sys.count_of(Event::SwapPutBack), 3);
    assert_eq!((sys.count_of(Event::SwapOut), sys.swap_used()), (0, 0));
    sys.check_ledger(&[&mm]).expect("adds up");
    for n in 0..3 {
        assert_eq!(thread.load(page(at, n)), Ok(50 + n));
        assert_eq!(thread.store(page(at, n), 60 + n), Ok(()));
    }
    device.state().fails_write = false;
    out(&mm, at, 3);
    assert_eq!(sys.swap_used(), 3);
    device.state().fails_all_reads = true;
    assert_eq!(thread.load(at), Err(Signal::Bus));
    assert_eq!(thread.store(at, 1), Err(Signal::Bus));
    device.state().fails_all_reads = false;
    assert_eq!(thread.load(at), Ok(60), "asked for again");
    sys.check_ledger(&[&mm]).expect("adds up");
}

#[test]
fn a_device_that_is_full_keeps_what_it_has() {
    let device = Slots::new();
    let sys = boot_on::<Machine>(
        machine(1, 8 << 20),
        newest(),
        Swap::Device { device, pages: 5 },
    );
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let at = map(&mm, 8);
    let thread = mm.thread();
    for round in 0..4 {
        for n in 0..8 {
            assert_eq!(thread.store(page(at, n), 8 * round + n), Ok(()));
        }
        out(&mm, at, 8);
        assert_eq!(sys.swap_used(), 5);
        for n in 0..8 {
            assert_eq!(thread.load(page(at, n)), Ok(8 * round + n));
        }
        sys.check_ledger(&[&mm]).expect("adds up");
    }
}

/// A page that somebody has pinned stays where it is.
#[test]
fn a_pinned_page_stays() {
    let sys = boot_on::<Machine>(machine(1, 8 << 20), newest(), Swap::Memory { pages: 32 });
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let at = map(&mm, 2);
    let thread = mm.thread();
    assert_eq!(thread.store(at, 1), Ok(()));
    assert_eq!(thread.store(page(at, 1), 1), Ok(()));
    let pin = mm.pin(at, Access::Write).expect("there");
    out(&mm, at, 2);
    assert_eq!(sys.swap_used(), 1);
    assert_eq!(pin.store(0, 5), Ok(()));
    assert_eq!(thread.load(at), Ok(5));
    drop(pin);
    out(&mm, at, 1);
    assert_eq!((sys.swap_used(), thread.load(at)), (2, Ok(5)));
}

/// Pages of a file give way, dirty ones after they were written; what is only memory does not.
#[test]
fn pages_of_files_give_way() {
    let disk = Disk::new(64 * PAGE, &[(0, 3), (9 * PAGE, 4)]);
    let sys = boot_on::<Machine>(machine(1, 8 << 20), newest(), Swap::None);
    let _cpu = sys.machine().enter(0);
    let file = sys.open_file(disk, 64 * PAGE).expect("memory");
    let mm = sys.new_mm().expect("memory");
    let request = MapRequest::new(Place::Any, 64 * PAGE, Prot::READ_WRITE);
    let at = mm.mmap_file(&request, &file, 0, Sharing::Shared);
    let at = at.expect("a hole");
    mm.madvise(at, 64 * PAGE, Advice::Random).expect("mapped");
    let thread = mm.thread();
    assert_eq!(thread.load(at), Ok(3));
    assert_eq!(thread.store(page(at, 5), 77), Ok(()));
    let hold = mm.pin(page(at, 9), Access::Read).expect("there");
    assert_eq!(file.cached_pages(), 3);
    out(&mm, at, 64);
    assert_eq!(file.cached_pages(), 1, "somebody has one");
    assert_eq!(hold.load(0), Ok(4));
    drop(hold);
    assert_eq!(disk.word(5 * PAGE), 77, "written first");
    assert_eq!(thread.load(page(at, 5)), Ok(77));
    sys.check_ledger(&[&mm]).expect("adds up");
}

/// Stores its number to each page of `pages`, again and again, and finds it there each time.
fn sweep<M: Mmu>(mm: &Mm<M>, at: VirtAddr, pages: u64, sweeps: u64, tag: u64) {
    let thread = mm.thread();
    for sweep in 0..sweeps {
        for n in 0..pages {
            let word = tag << 32 | sweep << 16 | n;
            if sweep > 0 {
                let before = tag << 32 | (sweep - 1) << 16 | n;
                assert_eq!(
                    thread.load(page(at, n)),
                    Ok(before),
                    "page {n}, sweep {sweep}"
                );
            }
            assert_eq!(thread.store(page(at, n), word), Ok(()), "page {n}");
        }
    }
    for n in 0..pages {
        let last = tag << 32 | (sweeps - 1) << 16 | n;
        assert_eq!(thread.load(page(at, n)), Ok(last));
    }
}

/// What is stored to a file larger than memory is in the file, and comes back from there.
#[test]
fn a_file_larger_than_memory_is_used_by_two_threads() {
    const PAGES: u64 = 2048;
    let disk = Disk::new(PAGES * PAGE, &[]);
    let sys = boot_on::<Machine>(machine(2, 4 << 20), newest(), Swap::None);
    let (mm, file) = {
        let _cpu = sys.machine().enter(0);
        let file = sys.open_file(disk, PAGES * PAGE).expect("memory");
        (sys.new_mm().expect("memory"), file)
    };
    let half = PAGES / 2;
    // Before memory is full: a call does not wait for pages of files to go.
    let places = {
        let _cpu = sys.machine().enter(0);
        let request = MapRequest::new(Place::Any, half * PAGE, Prot::READ_WRITE);
        let map = |n| mm.mmap_file(&request, &file, n * half * PAGE, Sharing::Shared);
        [0, 1].map(|n| map(n).expect("a hole"))
    };
    std::thread::scope(|scope| {
        for (cpu, at) in (0..).zip(places) {
            let (sys, mm) = (&sys, &mm);
            scope.spawn(move || {
                let _cpu = sys.machine().enter(cpu);
                sweep(mm, at, half, 2, u64::from(cpu));
            });
        }
    });
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.machine().failed(), None);
    assert!(sys.count_of(Event::ReclaimStolen) > PAGES);
    sys.check_ledger(&[&mm]).expect("adds up");
    file.sync().expect("a disk that works");
    for n in 0..PAGES {
        let (tag, n_of_half) = (n / half, n % half);
        assert_eq!(disk.word(n * PAGE), tag << 32 | 1 << 16 | n_of_half);
    }
    drop((mm, file));
    sys.check_ledger(&[]).expect("adds up");
}

#[test]
fn a_program_four_times_its_memory_ends_on_two_threads() {
    const RAM: usize = 4 << 20;
    for era in eras_of_migration() {
        let pages = 4 * RAM as u64 / PAGE;
        let swap = Swap::Memory { pages };
        let sys = boot_on::<Machine>(machine(2, RAM + 4 * RAM), era.config, swap);
        let mm = {
            let _cpu = sys.machine().enter(0);
            sys.new_mm().expect("memory")
        };
        std::thread::scope(|scope| {
            for cpu in 0..2 {
                let (sys, mm) = (&sys, &mm);
                scope.spawn(move || {
                    let _cpu = sys.machine().enter(cpu);
                    let at = map(mm, pages / 2);
                    sweep(mm, at, pages / 2, 2, u64::from(cpu));
                });
            }
        });
        let _cpu = sys.machine().enter(0);
        assert_eq!(sys.machine().failed(), None);
        let ledger = sys.check_ledger(&[&mm]).expect(era.name);
        assert!(ledger.swapped >= pages / 2, "{}: {ledger:?}", era.name);
        drop(mm);
        let ledger = sys.check_ledger(&[]).expect(era.name);
        assert_eq!((ledger.anon, ledger.swapped), (0, 0), "{}", era.name);
    }
}
