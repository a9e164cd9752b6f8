//! Files on a disk that is slow and fails: in every era, and on real threads as in simulation.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Config, Errno, Event, FileError, FileHandle, IoError, MapRequest, Mm, MmHandle, Msync,
    MsyncError, NegativeControl, Place, Populate, Prot, Remap, RemapRequest, Sharing, Signal,
    System, Thread, eras_without_migration,
};
use minflt_pgtable::{Mmu, X86_64};
use minflt_sim::{
    Budget, MachineFile, Outcome, RunOptions, RunReport, Sim, SimInstance, Size, TaskSpec, explore,
    run,
};
use minflt_tests::disk::Disk;
use minflt_tests::world::{Machine, PAGE, alone, boot, page as at};
use std::collections::BTreeMap;

type Simulated = Sim<X86_64, true>;

/// A file of 8 pages; page `i` begins with `100 + i`.
const PAGES: u64 = 8;
const BYTES: u64 = PAGES * PAGE;

fn filled() -> Vec<(u64, u64)> {
    (0..PAGES).map(|page| (page * PAGE, 100 + page)).collect()
}

fn map<M: Mmu>(mm: &Mm<M>, first: u64, file: &FileHandle<'_, M>, sharing: Sharing) {
    let request = MapRequest::new(Place::Fixed(at(first)), BYTES, Prot::READ_WRITE);
    let mapped = mm.mmap_file(&request, file, 0, sharing);
    assert_eq!(mapped, Ok(at(first)));
}

struct World<'w> {
    sys: &'w System<Machine>,
    mm: &'w MmHandle<'w, Machine>,
    thread: &'w Thread<'w, Machine>,
    disk: &'static Disk,
    file: &'w FileHandle<'w, Machine>,
}

impl World<'_> {
    fn map(&self, first: u64, sharing: Sharing) {
        map(self.mm, first, self.file, sharing);
    }

    fn load(&self, page: u64) -> Result<u64, Signal> {
        self.thread.load(at(page))
    }

    fn store(&self, page: u64, value: u64) -> Result<(), Signal> {
        self.thread.store(at(page), value)
    }

    /// The words that the disk has at the beginning of each page.
    fn on_disk(&self) -> Vec<u64> {
        (0..PAGES).map(|page| self.disk.word(page * PAGE)).collect()
    }
}

/// Runs `test` in each era, with a file whose pages are on a disk and nowhere else.
fn in_each_era(test: impl Fn(&World<'_>)) {
    for era in eras_without_migration() {
        let sys = boot(era.config, 1, 16 << 20);
        let disk = Disk::new(BYTES, &filled());
        alone(era.name, &sys, |mm| {
            let file = sys.open_file(disk, BYTES).expect("memory");
            test(&World {
                sys: &sys,
                mm,
                thread: &mm.thread(),
                disk,
                file: &file,
            });
            sys.check_ledger(&[mm]).expect("adds up");
        });
        assert!(disk.is_released(), "{}", era.name);
    }
}

#[test]
fn a_page_is_read_once_for_all_who_map_it() {
    in_each_era(|w| {
        w.map(0, Sharing::Shared);
        w.map(16, Sharing::Private);
        assert_eq!(w.load(5), Ok(105));
        assert_eq!(w.disk.read(), [5], "in no order: nothing is read ahead");
        assert_eq!(w.load(21), Ok(105));
        assert_eq!(w.file.read_word(5 * PAGE), Ok(Some(105)));
        assert_eq!(w.disk.read(), [0; 0]);
        assert_eq!(w.sys.count_of(Event::MajorFaults), 1);
        // What follows the last page that was read is read ahead, and then is there.
        assert_eq!(w.load(6), Ok(106));
        assert_eq!(w.disk.read(), [6, 7]);
        let before = w.sys.count_of(Event::MajorFaults);
        assert_eq!(w.load(7), Ok(107));
        assert_eq!(w.sys.count_of(Event::MajorFaults), before);
        assert_eq!(w.sys.count_of(Event::ReadAhead), 1);
        assert_eq!(w.file.cached_pages(), 3);
    });
}

#[test]
fn a_page_that_cannot_be_read_is_a_signal_until_it_can() {
    in_each_era(|w| {
        w.map(0, Sharing::Shared);
        w.map(16, Sharing::Private);
        w.disk.fail_read(3);
        for _ in 0..2 {
            assert_eq!(w.load(3), Err(Signal::Bus));
            assert_eq!(w.store(3, 1), Err(Signal::Bus));
            assert_eq!(w.store(19, 1), Err(Signal::Bus));
        }
        assert_eq!(w.disk.read(), [3; 6], "it is asked for each time");
        assert_eq!(w.file.read_word(3 * PAGE), Err(FileError::Io));
        let asked = w.mm.madvise(at(2), 3 * PAGE, Advice::PopulateRead);
        assert_eq!(asked.map_err(Errno::from), Err(Errno::EFAULT));
        assert_eq!(w.load(2), Ok(102), "what came before it");
        w.disk.heal();
        assert_eq!(w.store(3, 7), Ok(()));
        assert_eq!(w.load(19), Ok(7));
        assert_eq!(w.load(8), Err(Signal::MapErr));
    });
}

#[test]
fn who_populates_passes_over_what_cannot_be_read() {
    in_each_era(|w| {
        w.disk.fail_read(2);
        let mut request = MapRequest::new(Place::Fixed(at(0)), BYTES + PAGE, Prot::READ);
        request.populate = Populate::Now;
        let mapped = w.thread.mmap_file(&request, w.file, 0, Sharing::Private);
        assert_eq!(mapped, Ok(at(0)));
        assert_eq!(w.load(1), Ok(101));
        assert_eq!(w.load(2), Err(Signal::Bus));
        assert_eq!(w.load(8), Err(Signal::Bus), "behind the end");
    });
}

#[test]
fn what_cannot_be_written_is_told_kept_and_written_later() {
    in_each_era(|w| {
        w.map(0, Sharing::Shared);
        for page in 0..4 {
            assert_eq!(w.store(page, 7 + page), Ok(()));
        }
        w.disk.fail_write(2, IoError::NoSpace);
        assert_eq!(w.file.sync(), Err(IoError::NoSpace));
        // All others are written.
        assert_eq!(w.on_disk()[..4], [7, 8, 102, 10]);
        let done = w.mm.msync(at(0), BYTES, Msync::SYNC);
        assert_eq!(done, Err(MsyncError::NoSpace));
        assert_eq!(Errno::from(MsyncError::NoSpace), Errno::ENOSPC);
        w.disk.fail_write(2, IoError::Failed);
        let done = w.mm.msync(at(0), BYTES, Msync::SYNC);
        assert_eq!(done, Err(MsyncError::Io));
        assert_eq!(
            w.mm.msync(at(0), 2 * PAGE, Msync::SYNC),
            Ok(()),
            "not asked for it"
        );
        assert_eq!((w.load(2), w.disk.word(2 * PAGE)), (Ok(9), 102));
        w.disk.heal();
        drop(w.disk.written());
        assert_eq!(w.file.sync(), Ok(()), "told already");
        assert_eq!(w.on_disk()[..4], [7, 8, 9, 10]);
        let written: Vec<_> = w.disk.written().iter().map(|page| page.index).collect();
        assert_eq!(written, [2], "the others were clean");
        assert_eq!(w.file.sync(), Ok(()));
        assert_eq!(w.disk.written(), []);
    });
}

/// A page that reclaim wrote is clean, and not yet safe: whoever syncs asks for it.
#[test]
fn a_sync_asks_for_what_was_written_to_be_kept() {
    in_each_era(|w| {
        w.map(0, Sharing::Shared);
        assert_eq!(w.store(1, 7), Ok(()));
        assert_eq!(w.mm.madvise(at(1), PAGE, Advice::PageOut), Ok(()));
        assert_eq!((w.disk.word(PAGE), w.disk.at_risk()), (7, 1));
        w.disk.fail_flush(IoError::Failed);
        let done = w.mm.msync(at(1), PAGE, Msync::SYNC);
        assert_eq!((done, w.disk.at_risk()), (Err(MsyncError::Io), 1));
        w.disk.heal();
        assert_eq!(w.mm.msync(at(1), PAGE, Msync::SYNC), Ok(()));
        assert_eq!(w.disk.at_risk(), 0, "though nothing was dirty");
        for page in 2..4 {
            assert_eq!(w.store(page, 8), Ok(()));
        }
        // What can be written is kept, whatever became of the rest.
        w.disk.fail_write(2, IoError::NoSpace);
        assert_eq!(w.file.sync(), Err(IoError::NoSpace));
        assert_eq!((w.disk.word(3 * PAGE), w.disk.at_risk()), (8, 0));
        w.disk.heal();
        assert_eq!(w.file.sync(), Ok(()));
        assert_eq!((w.disk.word(2 * PAGE), w.disk.at_risk()), (8, 0));
    });
}

#[test]
fn msync_writes_what_is_shared_and_nothing_else() {
    in_each_era(|w| {
        w.map(0, Sharing::Shared);
        w.map(16, Sharing::Private);
        assert_eq!(w.store(1, 11), Ok(()));
        assert_eq!(w.store(4, 14), Ok(()));
        assert_eq!(w.store(18, 12), Ok(()));
        let begin = Msync {
            begin: true,
            ..Msync::default()
        };
        assert_eq!(w.mm.msync(at(0), BYTES, begin), Ok(()));
        assert_eq!(w.mm.msync(at(16), BYTES, Msync::SYNC), Ok(()));
        assert_eq!(w.disk.written(), []);
        assert_eq!(w.mm.msync(at(0), 2 * PAGE, Msync::SYNC), Ok(()));
        assert_eq!(w.on_disk(), [100, 11, 102, 103, 104, 105, 106, 107]);
        // A hole is told, and what is mapped behind it is written.
        assert_eq!(w.mm.munmap(at(2), PAGE), Ok(()));
        let done = w.mm.msync(at(0), BYTES, Msync::SYNC);
        assert_eq!(done, Err(MsyncError::NoMemory));
        assert_eq!(w.on_disk()[..5], [100, 11, 102, 103, 14]);
        // A store after that is noted again.
        assert_eq!(w.store(4, 15), Ok(()));
        assert_eq!(w.file.sync(), Ok(()));
        assert_eq!(w.disk.word(4 * PAGE), 15);
        assert_eq!(w.disk.word(2 * PAGE), 102, "a copy is nobody else's");
    });
}

#[test]
fn truncation_and_holes_reach_the_disk() {
    in_each_era(|w| {
        w.map(0, Sharing::Shared);
        for page in 0..PAGES {
            let word = VirtAddr(at(page).0 + 16);
            assert_eq!(w.thread.store(word, 50 + page), Ok(()));
        }
        assert_eq!(w.file.sync(), Ok(()));
        // In the middle of page 5, which is not cached any more for all we know.
        assert_eq!(w.file.truncate(5 * PAGE + 8), Ok(()));
        assert_eq!(w.disk.bytes(), 5 * PAGE + 8);
        assert_eq!(w.load(6), Err(Signal::Bus));
        assert_eq!(w.load(5), Ok(105));
        assert_eq!(w.thread.load(VirtAddr(at(5).0 + 16)), Ok(0));
        assert_eq!(w.file.punch_hole(PAGE + 8, 2 * PAGE), Ok(()));
        let words = [(1, 0), (1, 16), (2, 0), (3, 0), (3, 16)];
        let found = words.map(|(page, offset)| w.thread.load(VirtAddr(at(page).0 + offset)));
        assert_eq!(found, [Ok(101), Ok(0), Ok(0), Ok(0), Ok(53)]);
        assert_eq!(w.file.sync(), Ok(()));
        let found = words.map(|(page, offset)| w.disk.word(page * PAGE + offset));
        assert_eq!(found, [101, 0, 0, 0, 53]);
        assert_eq!(w.file.truncate(BYTES), Ok(()));
        assert_eq!(w.load(7), Ok(0));
        assert_eq!(w.file.sync(), Ok(()));
        assert_eq!(w.on_disk(), [100, 101, 0, 0, 104, 105, 0, 0]);
    });
}

#[test]
fn what_is_dirty_when_the_last_one_goes_is_written() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 1, 16 << 20);
        let _entered = sys.machine().enter(0);
        let disk = Disk::new(BYTES, &filled());
        let file = sys.open_file(disk, BYTES).expect("memory");
        let mm = sys.new_mm().expect("memory");
        map(&mm, 0, &file, Sharing::Shared);
        drop(file);
        assert_eq!(mm.thread().store(at(6), 66), Ok(()));
        assert!(!disk.is_released());
        assert_eq!(mm.munmap(at(0), BYTES), Ok(()));
        assert!(disk.is_released(), "{}", era.name);
        assert_eq!((disk.word(6 * PAGE), disk.word(5 * PAGE)), (66, 105));
        drop(mm);
        sys.check_ledger(&[]).expect("nothing is left");
    }
}

/// Numbers that look random, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// What the words at the beginning of pages should be, and which of them a failure keeps from the
/// disk.
#[derive(Default)]
struct Model {
    words: Vec<u64>,
    fails: BTreeMap<u64, IoError>,
}

impl Model {
    /// One step at random, of what somebody who maps the file shared, and has it open, can do.
    fn step(&mut self, w: &World<'_>, random: &mut Random) {
        let page = random.below(PAGES);
        let inside = (page as usize) < self.words.len();
        match random.below(12) {
            0..=3 => {
                let value = 1 + random.below(1 << 20);
                let stored = w.store(page, value);
                assert_eq!(stored.is_ok(), inside, "page {page}: {stored:?}");
                if inside {
                    self.words[page as usize] = value;
                }
            }
            4..=5 => {
                let expected = self.words.get(page as usize).copied();
                assert_eq!(w.load(page), expected.ok_or(Signal::Bus));
            }
            6 => {
                assert_eq!(w.file.write_word(page * PAGE, 9), Ok(()));
                let longer = self.words.len().max(page as usize + 1);
                self.words.resize(longer, 0);
                self.words[page as usize] = 9;
                // As long as the words are whole pages.
                assert_eq!(w.file.truncate(longer as u64 * PAGE), Ok(()));
            }
            7 => {
                self.words.resize(page as usize, 0);
                assert_eq!(w.file.truncate(page * PAGE), Ok(()));
            }
            8 => {
                assert_eq!(w.file.punch_hole(page * PAGE, PAGE), Ok(()));
                if let Some(word) = self.words.get_mut(page as usize) {
                    *word = 0;
                }
            }
            9 => {
                w.disk.fail_write(page, IoError::Failed);
                self.fails.insert(page, IoError::Failed);
            }
            10 => {
                w.disk.heal();
                self.fails.clear();
            }
            _ => self.sync(w),
        }
    }

    /// What is told to be written is on the disk; and what is not told to be is, where it can be.
    fn sync(&self, w: &World<'_>) {
        let synced = w.file.sync();
        if self.fails.is_empty() {
            assert_eq!(synced, Ok(()));
        }
        for (word, page) in self.words.iter().zip(0..) {
            if synced.is_ok() || !self.fails.contains_key(&page) {
                assert_eq!(w.disk.word(page * PAGE), *word, "page {page}, {synced:?}");
            }
        }
    }
}

#[test]
fn nothing_that_is_told_to_be_written_is_lost() {
    in_each_era(|w| {
        w.map(0, Sharing::Shared);
        for seed in 0..8 {
            let mut random = Random(seed);
            let mut model = Model {
                words: (0..PAGES).map(|page| w.disk.word(page * PAGE)).collect(),
                ..Model::default()
            };
            assert_eq!(w.file.truncate(BYTES), Ok(()));
            for _ in 0..200 {
                model.step(w, &mut random);
            }
            w.disk.heal();
            model.fails.clear();
            model.sync(w);
        }
    });
}

/// What is on the disk of two stores, between and after which the file is synced.
fn two_syncs(config: Config) -> u64 {
    let sys = boot(config, 1, 16 << 20);
    let _entered = sys.machine().enter(0);
    let disk = Disk::new(BYTES, &filled());
    let file = sys.open_file(disk, BYTES).expect("memory");
    let mm = sys.new_mm().expect("memory");
    map(&mm, 0, &file, Sharing::Shared);
    for value in [1, 2] {
        assert_eq!(mm.thread().store(at(3), value), Ok(()));
        assert_eq!(file.sync(), Ok(()));
    }
    disk.word(3 * PAGE)
}

#[test]
fn a_store_is_lost_where_writing_back_lets_others_store_unnoticed() {
    for era in eras_without_migration() {
        assert_eq!(two_syncs(era.config), 2, "{}", era.name);
        let broken = era
            .config
            .with_negative_control(Some(NegativeControl::WriteUnprotected));
        assert_eq!(two_syncs(broken), 1, "{}", era.name);
    }
}

/// One who waits for a page holds nobody up who does not want it.
#[test]
fn others_go_on_while_one_waits_for_the_disk() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 2, 16 << 20);
        let _first = sys.machine().enter(0);
        let disk = Disk::new(BYTES, &filled());
        let file = sys.open_file(disk, BYTES).expect("memory");
        let mm = sys.new_mm().expect("memory");
        std::thread::scope(|scope| {
            map(&mm, 0, &file, Sharing::Shared);
            let thread = mm.thread();
            assert_eq!(thread.load(at(4)), Ok(104));
            disk.hold(5);
            let reader = scope.spawn(|| {
                let _second = sys.machine().enter(1);
                mm.thread().load(at(5))
            });
            disk.await_reader::<Machine>();
            // The neighbours of the one that is being read.
            assert_eq!(file.read_word(6 * PAGE), Ok(Some(106)));
            let skipped = sys.count_of(Event::FaultAroundSkipped);
            assert_eq!(thread.load(at(6)), Ok(106));
            let around = sys.count_of(Event::FaultAroundSkipped) > skipped;
            assert_eq!(around, era.config.around.order() != Some(0), "{}", era.name);
            // Calls that change the address space, that very mapping, too.
            map(&mm, 16, &file, Sharing::Private);
            assert_eq!(mm.munmap(at(0), BYTES), Ok(()));
            assert_eq!(thread.load(at(20)), Ok(104));
            disk.let_go::<Machine>();
            let found = reader.join().expect("no panic");
            assert_eq!(found, Err(Signal::MapErr), "{}", era.name);
            drop(thread);
            sys.check_ledger(&[&mm]).expect("adds up");
        });
        assert_eq!(sys.machine().failed(), None, "{}", era.name);
    }
}

#[test]
fn two_who_want_one_page_have_it_read_once_and_truncation_waits_for_both() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 4, 16 << 20);
        let _first = sys.machine().enter(0);
        let disk = Disk::new(BYTES, &filled());
        let file = sys.open_file(disk, BYTES).expect("memory");
        let mm = sys.new_mm().expect("memory");
        std::thread::scope(|scope| {
            map(&mm, 0, &file, Sharing::Shared);
            disk.hold(5);
            let load = |cpu: u32| {
                let (sys, mm) = (&sys, &mm);
                scope.spawn(move || {
                    let _cpu = sys.machine().enter(cpu);
                    mm.thread().load(at(5))
                })
            };
            let readers = [load(1), load(2)];
            disk.await_reader::<Machine>();
            let cut = scope.spawn(|| {
                let _cpu = sys.machine().enter(3);
                file.truncate(PAGE)
            });
            disk.let_go::<Machine>();
            for reader in readers {
                let found = reader.join().expect("no panic");
                assert!(matches!(found, Ok(105) | Err(Signal::Bus)), "{found:?}");
            }
            assert_eq!(cut.join().expect("no panic"), Ok(()));
            assert_eq!(disk.read(), [5], "{}", era.name);
            assert_eq!(mm.thread().load(at(5)), Err(Signal::Bus));
        });
        assert_eq!(sys.machine().failed(), None, "{}", era.name);
    }
}

/// A file on a disk that is mapped nowhere but at page `first`, closed, and dirty there.
fn last_mapped(sys: &System<Machine>, mm: &Mm<Machine>, first: u64) -> &'static Disk {
    let disk = Disk::unlocked(BYTES, &filled());
    let file = sys.open_file(disk, BYTES).expect("memory");
    map(mm, first, &file, Sharing::Shared);
    drop(file);
    for page in 0..PAGES {
        assert_eq!(mm.thread().store(at(first + page), 1 + page), Ok(()));
    }
    disk
}

/// A way to end the last mapping of a file, with what the mapping is to lie at.
type End<'e> = (&'static str, &'e dyn Fn(MmHandle<'_, Machine>));

#[test]
fn a_closed_file_is_written_with_nothing_held_whatever_ends_its_last_mapping() {
    let anon = |mm: &Mm<Machine>, first: u64, pages: u64| {
        let place = Place::Fixed(at(first));
        assert_eq!(mm.mmap(place, pages * PAGE, Prot::READ), Ok(at(first)));
    };
    let remap = |old: u64, len: u64, how| RemapRequest {
        old: at(old),
        old_len: len,
        new_len: len,
        how,
    };
    let ends: [End<'_>; 8] = [
        ("munmap", &|mm| assert_eq!(mm.munmap(at(0), BYTES), Ok(()))),
        ("munmap of more", &|mm| {
            anon(&mm, 2 * PAGES, 1);
            assert_eq!(mm.munmap(at(0), 2 * PAGES * PAGE + PAGE), Ok(()));
        }),
        ("munmap of halves", &|mm| {
            assert_eq!(mm.munmap(at(0), BYTES / 2), Ok(()));
            assert_eq!(mm.munmap(at(PAGES / 2), BYTES), Ok(()));
        }),
        ("mmap", &|mm| anon(&mm, 0, PAGES)),
        ("mmap of more", &|mm| anon(&mm, 0, 2 * PAGES)),
        ("mremap over it", &|mm| {
            anon(&mm, 2 * PAGES, PAGES);
            let request = remap(2 * PAGES, BYTES, Remap::Fixed(at(0)));
            assert_eq!(mm.thread().mremap(&request), Ok(at(0)));
        }),
        ("mremap of nothing over it", &|mm| {
            let request = remap(2 * PAGES, BYTES, Remap::Fixed(at(0)));
            assert!(mm.thread().mremap(&request).is_err());
        }),
        ("exit", &|mm| drop(mm)),
    ];
    for era in eras_without_migration() {
        for (how, end) in &ends {
            let sys = boot(era.config, 1, 16 << 20);
            let _first = sys.machine().enter(0);
            let mm = sys.new_mm().expect("memory");
            let disk = last_mapped(&sys, &mm, 0);
            end(mm);
            let words = (0..PAGES).map(|page| disk.word(page * PAGE));
            assert!(words.eq(1..=PAGES), "{}: {how}", era.name);
            assert!(disk.is_released(), "{}: {how}", era.name);
            sys.check_ledger(&[]).expect("nothing is left");
        }
        // In the heap's place, whose end moves down over it.
        let sys = boot(era.config, 1, 16 << 20);
        let _first = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        mm.set_start_brk(at(0)).expect("not used");
        assert_eq!(mm.brk(Some(at(2 * PAGES))), at(2 * PAGES));
        let disk = last_mapped(&sys, &mm, PAGES);
        assert_eq!(mm.brk(Some(at(PAGES))), at(PAGES), "{}", era.name);
        assert_eq!(disk.word(0), 1, "{}", era.name);
    }
}

/// Stores, loads and syncs beside each other on a machine in simulation; the disk is slow.
fn simulated(config: Config, options: &RunOptions<'_>) -> RunReport {
    let machine = MachineFile::shipped("explorer").expect("shipped");
    let size = Size {
        cpus: 3,
        ram_bytes: 1 << 20,
        max_tasks: 3,
    };
    let machine = SimInstance::new(&machine, size).expect("a MiB");
    let sys = System::<Simulated>::boot(machine, config).expect("boots");
    let disk = Disk::slow(3, BYTES, &filled());
    let file = sys.open_file(disk, BYTES).expect("memory");
    let mm = sys.new_mm().expect("memory");
    map(&mm, 0, &file, Sharing::Shared);
    let tasks = vec![
        TaskSpec::new(0, || {
            let thread = mm.thread();
            for (page, value) in [(1, 7), (2, 8), (1, 9)] {
                assert_eq!(thread.store(at(page), value), Ok(()));
            }
            assert_eq!(thread.load(at(1)), Ok(9));
        }),
        TaskSpec::new(1, || {
            let thread = mm.thread();
            for page in [2, 3, 1] {
                let found = thread.load(at(page)).expect("within the file");
                assert!(found == 100 + page || found < 10, "{found}");
            }
        }),
        TaskSpec::new(2, || {
            assert_eq!(file.sync(), Ok(()));
            assert_eq!(file.sync(), Ok(()));
        }),
    ];
    let mut report = run(sys.machine(), options, tasks);
    if report.outcome.is_ok() {
        let read = disk.read();
        let synced = file.sync();
        let words = [1, 2, 3].map(|page| disk.word(page * PAGE));
        let twice = (0..PAGES).any(|page| read.iter().filter(|read| **read == page).count() > 1);
        if synced.is_err() || words != [9, 8, 103] || twice {
            report.outcome =
                Outcome::Violation(format!("{synced:?}, {words:?} on the disk, read {read:?}"));
        }
    }
    report
}

#[test]
fn in_simulation_every_store_is_written_and_every_page_read_once() {
    for era in eras_without_migration() {
        let budget = Budget {
            schedules: 100,
            seed: 1,
        };
        let found = explore(&budget, |options| simulated(era.config, options));
        if let Some(failure) = found.failure {
            panic!("{}: {failure}", era.name);
        }
    }
}
