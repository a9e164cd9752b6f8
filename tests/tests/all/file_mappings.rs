//! Files that are memory only, mapped: in every era, with every order of fault-around.

use minflt_addr::VirtAddr;
use minflt_mm::config::{FaultAround, FaultAroundAge};
use minflt_mm::{
    Advice, Config, ERAS, Errno, Event, FileHandle, MapRequest, MmHandle, Msync, Place, Populate,
    Prot, Remap, RemapRequest, Sharing, Signal, System, Thread, era, eras_without_migration,
};
use minflt_tests::world::{Machine, PAGE, alone, boot, page as at};

struct World<'w> {
    sys: &'w System<Machine>,
    mm: &'w MmHandle<'w, Machine>,
    thread: &'w Thread<'w, Machine>,
}

fn request(page: u64, pages: u64, prot: Prot) -> MapRequest {
    MapRequest::new(Place::Fixed(at(page)), pages * PAGE, prot)
}

impl<'w> World<'w> {
    /// A file of so many pages, whose page `i` begins with the word `100 + i`.
    fn file(&self, pages: u64) -> FileHandle<'w, Machine> {
        let file = self.sys.new_file(pages * PAGE).expect("memory");
        for page in 0..pages {
            assert_eq!(file.write_word(page * PAGE, 100 + page), Ok(()));
        }
        file
    }

    fn map(&self, page: u64, pages: u64, file: &FileHandle<'_, Machine>, sharing: Sharing) {
        let request = request(page, pages, Prot::READ_WRITE);
        let mapped = self.thread.mmap_file(&request, file, 0, sharing);
        assert_eq!(mapped, Ok(at(page)));
    }

    fn holds(&self, first: u64, words: &[u64]) {
        for (page, word) in words.iter().enumerate() {
            let found = self.thread.load(at(first + page as u64));
            assert_eq!(found, Ok(*word), "page {page}");
        }
    }

    fn count(&self, event: Event) -> u64 {
        self.sys.count_of(event)
    }
}

fn in_one(name: &str, config: Config, test: &impl Fn(&World<'_>)) {
    let sys = boot(config, 1, 16 << 20);
    alone(name, &sys, |mm| {
        test(&World {
            sys: &sys,
            mm,
            thread: &mm.thread(),
        });
    });
}

/// In each era, and in one with each way to map what is around a fault.
fn in_every_era(test: impl Fn(&World<'_>)) {
    for era in eras_without_migration() {
        in_one(era.name, era.config, &test);
    }
    let era = ERAS.last().expect("an era").config;
    for (around, name, _) in FaultAround::ALL {
        for (fault_around_age, ..) in FaultAroundAge::ALL {
            let config = Config {
                around: *around,
                fault_around_age: *fault_around_age,
                ..era
            };
            in_one(name, config, &test);
        }
    }
}

#[test]
fn a_mapping_shows_the_file() {
    in_every_era(|w| {
        let file = w.file(20);
        for (page, sharing) in [(0, Sharing::Private), (32, Sharing::Shared)] {
            w.map(page, 20, &file, sharing);
            w.holds(page, &(100..120).collect::<Vec<_>>());
        }
    });
}

/// Who speculates does not on files, and says so; the VMA's lock does for them, too.
#[test]
fn faults_on_files_go_by_the_eras_rung() {
    for (name, mode, none) in [
        ("spf-2017", Event::SpfNotSupported, Event::Speculative),
        ("linux-6.4", Event::VmaLockSuccess, Event::VmaLockRetry),
        ("linux-6.15", Event::VmaLockSuccess, Event::VmaLockRetry),
    ] {
        in_one(name, era(name).expect("an era").config, &|w| {
            let file = w.file(1);
            w.map(0, 1, &file, Sharing::Shared);
            let before = [mode, none].map(|event| w.count(event));
            w.holds(0, &[100]);
            let after = [mode, none].map(|event| w.count(event));
            assert_eq!(after, [before[0] + 1, before[1]], "{name}: {mode}, {none}");
        });
    }
}

#[test]
fn a_shared_store_is_the_files_and_a_private_one_is_not() {
    in_every_era(|w| {
        let file = w.file(4);
        w.map(0, 4, &file, Sharing::Shared);
        w.map(8, 4, &file, Sharing::Private);
        // Stored to before and after it was loaded.
        assert_eq!(w.thread.store(at(0), 7), Ok(()));
        assert_eq!(w.thread.load(at(1)), Ok(101));
        assert_eq!(w.thread.store(at(1), 8), Ok(()));
        w.holds(8, &[7, 8, 102, 103]);
        assert_eq!(w.thread.store(at(8), 9), Ok(()));
        assert_eq!(w.thread.store(at(11), 9), Ok(()));
        w.holds(0, &[7, 8, 102, 103]);
        w.holds(8, &[9, 8, 102, 9]);
        assert_eq!(file.read_word(0), Ok(Some(7)));
        assert_eq!(file.read_word(3 * PAGE), Ok(Some(103)));
        // What was copied is thrown away, and the file is there again.
        assert_eq!(w.mm.madvise(at(8), 4 * PAGE, Advice::DontNeed), Ok(()));
        w.holds(8, &[7, 8, 102, 103]);
    });
}

#[test]
fn behind_the_end_is_a_signal() {
    in_every_era(|w| {
        let file = w.file(3);
        w.map(0, 8, &file, Sharing::Shared);
        w.holds(0, &[100, 101, 102]);
        assert_eq!(w.thread.load(at(3)), Err(Signal::Bus));
        assert_eq!(w.thread.store(at(7), 1), Err(Signal::Bus));
        assert_eq!(file.truncate(5 * PAGE), Ok(()));
        assert_eq!(w.thread.load(at(4)), Ok(0));
        assert_eq!(w.thread.load(at(5)), Err(Signal::Bus));
    });
}

#[test]
fn truncation_takes_pages_and_copies_away() {
    in_every_era(|w| {
        let file = w.file(6);
        w.map(0, 6, &file, Sharing::Shared);
        w.map(8, 6, &file, Sharing::Private);
        w.holds(0, &[100, 101, 102, 103, 104, 105]);
        assert_eq!(w.thread.store(at(12), 9), Ok(()));
        assert_eq!(w.thread.store(at(8), 9), Ok(()));
        assert_eq!(w.thread.store(VirtAddr(at(2).0 + 16), 5), Ok(()));
        assert_eq!(file.truncate(2 * PAGE + 8), Ok(()));
        for page in [3, 5, 11, 12, 13] {
            assert_eq!(w.thread.load(at(page)), Err(Signal::Bus), "page {page}");
        }
        w.holds(0, &[100, 101, 102]);
        w.holds(8, &[9, 101, 102]);
        // The tail of the last page is zeros.
        assert_eq!(w.thread.load(VirtAddr(at(2).0 + 16)), Ok(0));
        assert_eq!(file.cached_pages(), 3);
        assert_eq!(file.truncate(6 * PAGE), Ok(()));
        w.holds(0, &[100, 101, 102, 0, 0, 0]);
    });
}

#[test]
fn a_hole_is_zeros_and_copies_stay() {
    in_every_era(|w| {
        let file = w.file(6);
        w.map(0, 6, &file, Sharing::Shared);
        w.map(8, 6, &file, Sharing::Private);
        w.holds(0, &[100, 101, 102, 103, 104, 105]);
        w.holds(8, &[100, 101, 102, 103, 104, 105]);
        assert_eq!(w.thread.store(at(10), 9), Ok(()));
        assert_eq!(file.punch_hole(PAGE, 3 * PAGE), Ok(()));
        w.holds(0, &[100, 0, 0, 0, 104, 105]);
        w.holds(8, &[100, 0, 9, 0, 104, 105]);
        assert_eq!(w.mm.madvise(at(4), PAGE, Advice::Remove), Ok(()));
        w.holds(8, &[100, 0, 9, 0, 0, 105]);
        let refused = w.mm.madvise(at(8), PAGE, Advice::Remove);
        assert_eq!(refused.map_err(Errno::from), Err(Errno::EACCES));
    });
}

#[test]
fn splits_merges_and_moves_stay_with_the_file() {
    in_every_era(|w| {
        let file = w.file(12);
        w.map(0, 12, &file, Sharing::Shared);
        w.holds(0, &(100..112).collect::<Vec<_>>());
        // Cut in three, and one of them moved.
        assert_eq!(w.mm.mprotect(at(4), 4 * PAGE, Prot::READ), Ok(()));
        assert_eq!(w.thread.store(at(4), 1), Err(Signal::AccErr));
        let moved = w.thread.mremap(&RemapRequest {
            old: at(4),
            old_len: 4 * PAGE,
            new_len: 4 * PAGE,
            how: Remap::Fixed(at(600)),
        });
        assert_eq!(moved, Ok(at(600)));
        assert_eq!(w.mm.munmap(at(9), PAGE), Ok(()));
        w.holds(600, &[104, 105, 106, 107]);
        w.holds(10, &[110, 111]);
        // Truncation finds every one of them.
        assert_eq!(file.truncate(6 * PAGE), Ok(()));
        w.holds(600, &[104, 105]);
        for page in [8, 10, 11, 602, 603] {
            assert_eq!(w.thread.load(at(page)), Err(Signal::Bus), "page {page}");
        }
        // Back where it was, it is one mapping again.
        let back = w.thread.mremap(&RemapRequest {
            old: at(600),
            old_len: 4 * PAGE,
            new_len: 4 * PAGE,
            how: Remap::Fixed(at(4)),
        });
        assert_eq!(back, Ok(at(4)));
        assert_eq!(w.mm.mprotect(at(4), 4 * PAGE, Prot::READ_WRITE), Ok(()));
        let mut ranges = 0;
        w.mm.for_each_mapping(|_, _| ranges += 1);
        assert_eq!(ranges, 2);
        assert_eq!(file.truncate(0), Ok(()));
        assert_eq!(w.thread.load(at(0)), Err(Signal::Bus));
    });
}

#[test]
fn a_child_shares_what_is_shared_and_copies_what_is_not() {
    in_every_era(|w| {
        let file = w.file(4);
        w.map(0, 4, &file, Sharing::Shared);
        w.map(8, 4, &file, Sharing::Private);
        w.holds(0, &[100, 101, 102, 103]);
        assert_eq!(w.thread.store(at(8), 9), Ok(()));
        let child = w.mm.fork().expect("memory");
        {
            let thread = child.thread();
            assert_eq!(thread.load(at(8)), Ok(9));
            assert_eq!(thread.store(at(8), 10), Ok(()));
            assert_eq!(thread.store(at(9), 10), Ok(()));
            assert_eq!(thread.store(at(2), 11), Ok(()));
        }
        w.holds(0, &[100, 101, 11, 103]);
        w.holds(8, &[9, 101, 11, 103]);
        // The file outlives its handle, as long as anybody maps it.
        drop(file);
        assert_eq!(child.thread().load(at(3)), Ok(103));
        assert_eq!(w.mm.munmap(at(0), 16 * PAGE), Ok(()));
        assert_eq!(child.thread().load(at(1)), Ok(101));
    });
}

#[test]
fn a_file_for_loads_is_not_stored_to() {
    in_every_era(|w| {
        let file = w.file(2);
        let reader = file.read_only();
        let map = |prot, sharing| {
            w.thread
                .mmap_file(&request(0, 2, prot), &reader, 0, sharing)
        };
        let refused = map(Prot::READ_WRITE, Sharing::Shared);
        assert_eq!(refused.map_err(Errno::from), Err(Errno::EACCES));
        assert_eq!(map(Prot::READ, Sharing::Shared), Ok(at(0)));
        let refused = w.mm.mprotect(at(0), PAGE, Prot::READ_WRITE);
        assert_eq!(refused.map_err(Errno::from), Err(Errno::EACCES));
        assert_eq!(map(Prot::READ_WRITE, Sharing::Private), Ok(at(0)));
        assert_eq!(w.thread.store(at(0), 1), Ok(()));
        assert_eq!(reader.read_word(0), Ok(Some(100)));
        let odd = w
            .thread
            .mmap_file(&request(0, 2, Prot::READ), &file, 8, Sharing::Shared);
        assert_eq!(odd.map_err(Errno::from), Err(Errno::EINVAL));
    });
}

#[test]
fn faults_are_as_many_as_windows() {
    let config = ERAS.last().expect("an era").config;
    for (around, name, _) in FaultAround::ALL {
        let config = Config {
            around: *around,
            ..config
        };
        in_one(name, config, &|w| {
            let file = w.file(1024);
            w.map(0, 1024, &file, Sharing::Shared);
            w.holds(0, &(100..1124).collect::<Vec<_>>());
            let faults = match around.order() {
                Some(order) => 1024 >> order,
                // 1, 4, 16, 64, 256, 512 pages, twice.
                None => 12,
            };
            assert_eq!(w.count(Event::PageFaults), faults, "order {name}");
            let extra = w.count(Event::FaultAroundMapped);
            assert_eq!(extra, 1024 - faults, "order {name}");
            assert_eq!(w.mm.resident_pages_sum(), 1024);
        });
    }
}

#[test]
fn what_is_cached_is_mapped_without_waiting() {
    in_every_era(|w| {
        let file = w.file(40);
        let mut request = request(0, 60, Prot::READ);
        request.populate = Populate::NonBlock;
        let before = w.count(Event::PageFaults);
        assert_eq!(
            w.thread.mmap_file(&request, &file, 0, Sharing::Private),
            Ok(at(0))
        );
        w.holds(0, &(100..140).collect::<Vec<_>>());
        assert_eq!(w.count(Event::PageFaults), before);
        assert_eq!(w.thread.load(at(40)), Err(Signal::Bus));
        assert_eq!(w.mm.msync(at(0), 60 * PAGE, Msync::SYNC), Ok(()));
    });
}

#[test]
fn neighbours_are_young_or_old() {
    for (fault_around_age, name, _) in FaultAroundAge::ALL {
        let config = Config {
            fault_around_age: *fault_around_age,
            ..ERAS.last().expect("an era").config
        };
        in_one(name, config, &|w| {
            let file = w.file(16);
            w.map(0, 16, &file, Sharing::Private);
            assert_eq!(w.thread.load(at(3)), Ok(103));
            assert_eq!(w.mm.munmap(at(0), 16 * PAGE), Ok(()));
            let unused = if *fault_around_age == FaultAroundAge::Old {
                15
            } else {
                0
            };
            assert_eq!(w.count(Event::FaultAroundUnused), unused);
        });
    }
}
