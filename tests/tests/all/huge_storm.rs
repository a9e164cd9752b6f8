//! A file of huge pages that several processes map, share tables for, cut, truncate, move and fork
//! at the same time, on real threads, in each era that can be told apart: the oracles look on, and
//! at the end every page, table and reservation adds up.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Errno, Event, FileHandle, MapRequest, Mm, MovePageError, Place, Prot, Remap,
    RemapRequest, Reserve, Sharing, Signal, Swap, Thread, eras_of_huge_pages,
};
use minflt_tests::world::{Machine, Random, boot_on, machine};

const PAGE: u64 = 2 << 20;
const INTERVAL: u64 = 1 << 30;
/// Where all map the file, at the same place: so that tables can be shared.
const BASE: u64 = 1 << 40;
const PAGES: u64 = 8;
const POOL: u64 = 20;
const CPUS: u32 = 4;
const STEPS: u64 = 1200;

/// A process that uses the file.
struct User<'u> {
    mm: &'u Mm<Machine>,
    thread: Thread<'u, Machine>,
    file: &'u FileHandle<'u, Machine>,
}

const fn at(page: u64) -> VirtAddr {
    VirtAddr(BASE + page * PAGE)
}

impl User<'_> {
    /// The whole interval, or a few pages, for which a pool may be too small.
    fn map(&self, sharing: Sharing, len: u64, reserve: Reserve) {
        let request = MapRequest {
            reserve,
            ..MapRequest::new(Place::Fixed(at(0)), len, Prot::READ_WRITE)
        };
        let mapped = self.thread.mmap_file(&request, self.file, 0, sharing);
        let mapped = mapped.map_err(Errno::from);
        assert!(matches!(mapped, Ok(_) | Err(Errno::ENOMEM)), "{mapped:?}");
    }

    fn step(&self, random: &mut Random) {
        let (page, pages) = (random.below(PAGES), 1 + random.below(3));
        let len = pages * PAGE;
        match random.below(24) {
            0..=4 => fine(self.thread.load(at(page)).map(drop)),
            5..=8 => fine(self.thread.store(at(page), 1 + random.below(1 << 30))),
            9 | 10 => self.map(Sharing::Shared, INTERVAL, Reserve::NoReserve),
            11 => self.map(Sharing::Shared, len, Reserve::Charged),
            12 => self.map(Sharing::Private, len, Reserve::Charged),
            13 => assert_eq!(self.mm.munmap(at(page), len), Ok(())),
            14 => {
                let prot = [Prot::READ, Prot::READ_WRITE][random.below(2) as usize];
                let done = self.mm.mprotect(at(page), len, prot).map_err(Errno::from);
                assert!(matches!(done, Ok(()) | Err(Errno::ENOMEM)), "{done:?}");
            }
            15 => drop(self.mm.madvise(at(page), len, Advice::DontNeed)),
            16 => assert_eq!(self.file.truncate(random.below(PAGES) * PAGE), Ok(())),
            17 => assert_eq!(self.file.truncate(PAGES * PAGE), Ok(())),
            18 => assert_eq!(self.file.punch_hole(page * PAGE, len), Ok(())),
            19 => {
                let request = |from, to| RemapRequest {
                    old: at(from),
                    old_len: len,
                    new_len: len,
                    how: Remap::Fixed(at(to)),
                };
                let there = self.thread.mremap(&request(page, page + 1024));
                if there.is_ok() {
                    let back = self.thread.mremap(&request(page + 1024, page));
                    assert_eq!(back, Ok(at(page)));
                }
            }
            20 | 21 => {
                let moved = self.mm.move_page(at(page), random.below(2) as u32);
                assert_ne!(moved, Err(MovePageError::NoNode));
            }
            _ => {
                let child = self.mm.fork().expect("memory");
                let thread = child.thread();
                fine(thread.load(at(page)).map(drop));
                fine(thread.store(at(page), 7));
            }
        }
    }
}

/// What an access may come to.
fn fine(done: Result<(), Signal>) {
    let fine = !matches!(done, Err(Signal::OutOfMemory));
    assert!(fine, "{done:?}");
}

#[test]
fn a_storm_over_huge_pages_leaves_everything_as_it_should_be() {
    for (era, number) in eras_of_huge_pages().zip(0..) {
        let sys = boot_on::<Machine>(
            machine(CPUS, 128 << 20).with_nodes(2),
            era.config,
            Swap::None,
        );
        let (file, mms) = {
            let _first = sys.machine().enter(0);
            assert_eq!(sys.resize_huge_pool(POOL), POOL);
            let file = sys.new_huge_file(PAGES * PAGE).expect("memory");
            (
                file,
                [(); CPUS as usize].map(|()| sys.new_mm().expect("memory")),
            )
        };
        std::thread::scope(|scope| {
            for (cpu, mm) in (0..CPUS).zip(&mms) {
                let (sys, file) = (&sys, &file);
                scope.spawn(move || {
                    let _cpu = sys.machine().enter(cpu);
                    let mut random = Random(u64::from(cpu) + 100 * number);
                    let thread = mm.thread();
                    let user = User { mm, thread, file };
                    for _ in 0..STEPS {
                        user.step(&mut random);
                    }
                });
            }
        });
        let _first = sys.machine().enter(0);
        let name = era.name;
        assert_eq!(sys.machine().failed(), None, "{name}");
        for event in [
            Event::HugeFaults,
            Event::TablesShared,
            Event::TablesUnshared,
            Event::PagesMigrated,
        ] {
            assert!(sys.count_of(event) > 0, "{name}: {event}");
        }
        let alive = mms.each_ref().map(|mm| &**mm);
        sys.check_ledger(&alive)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        drop(mms);
        drop(file);
        sys.check_ledger(&[])
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let pool = sys.huge_pool();
        assert_eq!(
            (pool.total, pool.free, pool.reserved),
            (POOL, POOL, 0),
            "{name}"
        );
    }
}
