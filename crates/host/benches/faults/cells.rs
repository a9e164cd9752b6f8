//! What is measured, each at one number of threads, and how.

use crate::bare::Region;
use crate::figures::mix;
use core::fmt;
use minflt_addr::VirtAddr;
use minflt_host::{Host, HostInstance, HostOptions, Prefault, RamError};
use minflt_mm::{ERAS, Event, Mm, Place, Prot, Running, System, Thread};
use minflt_pgtable::X86_64;
use minflt_sync::prim::{AtomicU64, Ordering};
use minflt_sync::{Instance, Machine};

type M = Host<X86_64, false>;

const PAGE: u64 = 4096;
/// What a page table covers: threads' ranges lie this far apart, so that they share no table.
const TABLE_SPAN: u64 = 2 << 20;

/// One thing measured. Eras are numbers of [`ERAS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    /// The bare clear.
    Clear,
    /// The bare loop, by so many threads.
    Bare(u32),
    /// Faults without the clear in an era, by so many threads.
    Fault(usize, u32),
    /// Faults with the clear in an era, by one thread.
    FaultAndClear(usize),
}

impl Cell {
    /// The row's own keys, as JSON.
    pub(crate) fn json(&self) -> String {
        let (row, era, threads) = match self {
            Self::Clear => ("bare-clear", "", 1),
            Self::Bare(threads) => ("bare-loop", "", *threads),
            Self::Fault(era, threads) => ("fault-without-clear", ERAS[*era].name, *threads),
            Self::FaultAndClear(era) => ("fault-with-clear", ERAS[*era].name, 1),
        };
        format!("\"row\":\"{row}\",\"era\":\"{era}\",\"threads\":{threads}")
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clear => f.pad("bare clear"),
            Self::Bare(threads) => f.pad(&format!("bare loop, {threads} threads")),
            Self::Fault(era, threads) => {
                let era = ERAS[*era].name;
                f.pad(&format!("{era}, without the clear, {threads} threads"))
            }
            Self::FaultAndClear(era) => f.pad(&format!("{}, with the clear", ERAS[*era].name)),
        }
    }
}

/// A system of each era, and a region for the bare loops.
#[derive(Debug)]
pub(crate) struct Machines {
    systems: Vec<Running<M>>,
    bare: Region,
    /// Pages that each thread touches.
    pages: u64,
}

/// When a thread's part began and ended.
#[derive(Clone, Copy, Debug)]
struct Window {
    start: u64,
    end: u64,
    result: u64,
}

impl Machines {
    pub(crate) fn start(pages: u64) -> Result<Self, RamError> {
        let options = HostOptions {
            cpus: 2,
            // Descriptors take a 64th, tables a 512th; a few MiB are left for the rest.
            ram_bytes: (2 * pages * PAGE + pages * PAGE / 16) as usize + (8 << 20),
            prefault: Prefault::Now,
        };
        let boot = |era: &minflt_mm::Era| {
            let machine = HostInstance::new(&options)?;
            Ok(System::boot(machine, era.config).unwrap_or_else(|error| panic!("{error}")))
        };
        Ok(Self {
            systems: ERAS.iter().map(boot).collect::<Result<_, RamError>>()?,
            bare: Region::new(2 * pages)?,
            pages,
        })
    }

    pub(crate) fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![Cell::Clear, Cell::Bare(1), Cell::Bare(2)];
        for era in 0..self.systems.len() {
            cells.push(Cell::Fault(era, 1));
            cells.push(Cell::Fault(era, 2));
            cells.push(Cell::FaultAndClear(era));
        }
        cells
    }

    /// Nanoseconds a page of all threads together, and a number that depends on what was done.
    pub(crate) fn measure(&self, cell: &Cell) -> (f64, u64) {
        let pages = self.pages;
        match *cell {
            Cell::Clear => self.together(&self.systems[0], 1, |_| {
                let (start, ()) = (self.now(), self.bare.clear(0, pages));
                Window {
                    start,
                    end: self.now(),
                    result: 0,
                }
            }),
            Cell::Bare(threads) => {
                let gate = Gate::new(threads);
                self.together(&self.systems[0], threads, |cpu| {
                    gate.pass();
                    let start = self.now();
                    let result = self.bare.touch(u64::from(cpu) * pages, pages);
                    Window {
                        start,
                        end: self.now(),
                        result,
                    }
                })
            }
            Cell::Fault(era, threads) => {
                self.systems[era].clear_free_frames();
                self.faults(&self.systems[era], threads)
            }
            Cell::FaultAndClear(era) => self.faults(&self.systems[era], 1),
        }
    }

    /// First touches of a new address space's pages, each thread a range of its own.
    fn faults(&self, system: &System<M>, threads: u32) -> (f64, u64) {
        let pages = self.pages;
        let before = system.count_of(Event::AnonWrite);
        let boot = system.machine().enter(0);
        let mm = system.new_mm().expect("memory");
        let span = (pages * PAGE).next_multiple_of(TABLE_SPAN);
        let len = u64::from(threads) * span + TABLE_SPAN;
        let base = mm.mmap(Place::Any, len, Prot::ReadWrite).expect("a hole");
        let base = base.0.next_multiple_of(TABLE_SPAN);
        drop(boot);
        let gate = Gate::new(threads);
        let mm: &Mm<M> = &mm;
        let measured = self.together(system, threads, |cpu| {
            let thread = mm.thread();
            let first = base + u64::from(cpu) * span;
            gate.pass();
            let start = self.now();
            touch(&thread, first, pages);
            let end = self.now();
            Window {
                start,
                end,
                result: contents(&thread, first, pages),
            }
        });
        let faults = system.count_of(Event::AnonWrite) - before;
        assert_eq!(faults, u64::from(threads) * pages, "each page is a fault");
        measured
    }

    /// Runs `body` on CPUs 0 to `threads - 1`, each pinned to a processor.
    fn together(
        &self,
        system: &System<M>,
        threads: u32,
        body: impl Fn(u32) -> Window + Sync,
    ) -> (f64, u64) {
        let windows: Vec<Window> = std::thread::scope(|scope| {
            let body = &body;
            let start = |cpu| {
                scope.spawn(move || {
                    pin(cpu);
                    let _cpu = system.machine().enter(cpu);
                    body(cpu)
                })
            };
            let threads: Vec<_> = (0..threads).map(start).collect();
            let end = |it: std::thread::ScopedJoinHandle<'_, Window>| it.join().expect("no panic");
            threads.into_iter().map(end).collect()
        });
        let start = windows.iter().map(|it| it.start).min().unwrap_or(0);
        let end = windows.iter().map(|it| it.end).max().unwrap_or(0);
        let result = windows.iter().fold(0, |all, it| mix(all ^ it.result));
        let pages = self.pages * u64::from(threads);
        ((end - start) as f64 / pages as f64, result)
    }

    fn now(&self) -> u64 {
        self.systems[0].machine().now_ns()
    }

    /// Looks whether every frame is accounted for.
    pub(crate) fn check(&self) {
        for (system, era) in self.systems.iter().zip(ERAS) {
            let _cpu = system.machine().enter(0);
            system.drain_deferred();
            system
                .check_ledger(&[])
                .unwrap_or_else(|error| panic!("{}: {error}", era.name));
        }
    }
}

#[inline(never)]
fn touch(thread: &Thread<'_, M>, first: u64, pages: u64) {
    for page in 0..pages {
        let at = VirtAddr(first + page * PAGE);
        thread.store(at, page ^ first).expect("mapped");
    }
}

/// A number made of every 61st page's word; each is what was stored.
fn contents(thread: &Thread<'_, M>, first: u64, pages: u64) -> u64 {
    (0..pages).step_by(61).fold(0, |all, page| {
        let word = thread.load(VirtAddr(first + page * PAGE)).expect("mapped");
        assert_eq!(word, page ^ first, "a store was lost");
        mix(all ^ page)
    })
}

/// Threads that start together.
struct Gate {
    missing: AtomicU64,
}

impl Gate {
    fn new(threads: u32) -> Self {
        Self {
            missing: AtomicU64::new(u64::from(threads)),
        }
    }

    fn pass(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        while self.missing.load(Ordering::Acquire) != 0 {
            M::wait_until::<u64>(&self.missing, u64::MAX, 0);
        }
    }
}

/// Keeps the calling thread on one processor, where the host allows.
fn pin(cpu: u32) {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    // SAFETY: a set of processors is plain bits, and zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the number is below the set's size.
    unsafe { libc::CPU_SET(cpu as usize % count.min(1024), &mut set) };
    // SAFETY: reads one set, which lives here; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}
