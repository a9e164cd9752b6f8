//! A file that several threads map, store to, cut, write back and map anew at the same time, on
//! real threads, in every era: the oracles look on, and at the end everything adds up.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Check, Errno, Event, FileHandle, Force, MapRequest, Mm, Msync, Place, Prot, Remap,
    RemapRequest, Sharing, Signal, Thread, eras_without_migration,
};
use minflt_tests::disk::Disk;
use minflt_tests::world::{Machine, Random, boot};

const PAGE: u64 = 4096;
const PAGES: u64 = 24;
const BYTES: u64 = PAGES * PAGE;
const CPUS: u32 = 4;
const STEPS: u64 = 600;

/// One of those who use the file: each has the file at a place of its own.
struct User<'u> {
    mm: &'u Mm<Machine>,
    thread: Thread<'u, Machine>,
    file: &'u FileHandle<'u, Machine>,
    base: u64,
}

impl User<'_> {
    fn at(&self, page: u64) -> VirtAddr {
        VirtAddr(self.base + page * PAGE)
    }

    fn map(&self, sharing: Sharing) {
        let request = MapRequest::new(Place::Fixed(self.at(0)), BYTES, Prot::READ_WRITE);
        let mapped = self.thread.mmap_file(&request, self.file, 0, sharing);
        assert_eq!(mapped, Ok(self.at(0)));
    }

    fn step(&self, random: &mut Random) {
        let (page, pages) = (random.below(PAGES), 1 + random.below(4));
        let pages = pages.min(PAGES - page);
        let (at, len) = (self.at(page), pages * PAGE);
        match random.below(24) {
            0..=6 => fine(self.thread.load(at).map(drop)),
            7..=12 => fine(self.thread.store(at, 1 + random.below(1 << 30))),
            13 => self.map(Sharing::Shared),
            14 => self.map(Sharing::Private),
            15 => assert_eq!(self.mm.munmap(at, len), Ok(())),
            16 => {
                let prot = [Prot::READ, Prot::READ_WRITE][random.below(2) as usize];
                let done = self.mm.mprotect(at, len, prot).map_err(Errno::from);
                assert!(matches!(done, Ok(()) | Err(Errno::ENOMEM)), "{done:?}");
            }
            17 => drop(self.mm.madvise(at, len, Advice::DontNeed)),
            18 => {
                let done = self.file.truncate(random.below(BYTES + 1));
                assert_eq!(done, Ok(()));
            }
            19 => assert_eq!(self.file.truncate(BYTES), Ok(())),
            20 => assert_eq!(self.file.punch_hole(page * PAGE + 8, len), Ok(())),
            21 => assert_eq!(self.file.sync(), Ok(())),
            22 => drop(self.mm.msync(at, len, Msync::SYNC)),
            _ => self.rarely(random, page, pages),
        }
    }

    fn rarely(&self, random: &mut Random, page: u64, pages: u64) {
        match random.below(4) {
            // There and back, as far as it is mapped.
            0 => {
                let request = |from, to| RemapRequest {
                    old: self.at(from),
                    old_len: pages * PAGE,
                    new_len: pages * PAGE,
                    how: Remap::Fixed(self.at(to)),
                };
                if self.thread.mremap(&request(page, page + 2 * PAGES)).is_ok() {
                    let back = self.thread.mremap(&request(page + 2 * PAGES, page));
                    assert_eq!(back, Ok(self.at(page)));
                }
            }
            1 => {
                let child = self.mm.fork().expect("memory");
                let thread = child.thread();
                fine(thread.load(self.at(page)).map(drop));
                fine(thread.store(self.at(page), 7));
            }
            // Of a shared mapping it is an error.
            2 => drop(self.mm.remote_write(self.at(page), &[9; 16], Force::Yes)),
            _ => drop(self.file.write_word(page * PAGE, 5)),
        }
    }
}

/// What an access may come to.
fn fine(done: Result<(), Signal>) {
    let fine = !matches!(done, Err(Signal::OutOfMemory));
    assert!(fine, "{done:?}");
}

#[test]
fn a_storm_over_one_file_leaves_everything_as_it_should_be() {
    for (era, number) in eras_without_migration().zip(0..) {
        let sys = boot(era.config, CPUS, 16 << 20);
        let disk = Disk::slow(1, BYTES, &[]);
        let (file, mm) = {
            let _first = sys.machine().enter(0);
            let file = sys.open_file(disk, BYTES).expect("memory");
            (file, sys.new_mm().expect("memory"))
        };
        std::thread::scope(|scope| {
            for cpu in 0..CPUS {
                let (sys, mm, file) = (&sys, &mm, &file);
                scope.spawn(move || {
                    let _cpu = sys.machine().enter(cpu);
                    let user = User {
                        mm,
                        thread: mm.thread(),
                        file,
                        base: (1 << 30) + u64::from(cpu) * 4 * BYTES,
                    };
                    let mut random = Random(100 * number + u64::from(cpu));
                    user.map(Sharing::Shared);
                    for _ in 0..STEPS {
                        user.step(&mut random);
                    }
                });
            }
        });
        let name = era.name;
        assert_eq!(sys.machine().failed(), None, "{name}");
        let _first = sys.machine().enter(0);
        sys.check_ledger(&[&mm])
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(file.sync(), Ok(()));
        for page in 0..PAGES {
            let held = file.read_word(page * PAGE).expect("reads").unwrap_or(0);
            assert_eq!(disk.word(page * PAGE), held, "{name}: page {page}");
        }
        assert!(sys.count_of(Event::PagesWritten) > 0 && sys.looks_of(Check::Translation) > 0);
        drop((file, mm));
        let left = sys.check_ledger(&[]);
        let left = left.unwrap_or_else(|error| panic!("{name}, gone: {error}"));
        assert_eq!((left.anon, left.file, left.tables), (0, 0, 0), "{name}");
    }
}
