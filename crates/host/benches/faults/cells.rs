//! What is measured, each at one number of threads, and how.

use crate::bare::Region;
use crate::common::figures::mix;
use crate::common::machine::{M, machine};
use minflt_addr::VirtAddr;
use minflt_host::RamError;
use minflt_mm::{Era, Event, MmHandle, Overcommit, Place, Prot, Running, System, Thread};
use minflt_sync::prim::{AtomicU64, Ordering};
use minflt_sync::{Instance, Machine};

const PAGE: u64 = 4096;
/// What a page table covers: threads' ranges lie this far apart, so that they share no table.
const TABLE_SPAN: u64 = 2 << 20;
/// Pages that are cleared or faulted in before it is the other's turn: a few 100 us, within which
/// other users of the memory do not come or go.
const TURN: u64 = 1 << 10;

/// What the fault calls: `Mmu::clear`, on a region like that of the bare clear.
const MACHINES_CLEAR: &str = "machine's clear, alone";

/// One thing measured, beside the era of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cell {
    pub(crate) era: &'static str,
    /// The era's number among those measured.
    at: usize,
    pub(crate) what: What,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// The bare clear, faults with the clear and the machine's own clear, one thread.
    Clears,
    /// A loop without a system, so many threads.
    Touch(u32),
    /// Faults without the clear, so many threads in one address space.
    Fault(u32),
    /// The same by two threads, each in a system of its own.
    Apart,
}

impl Cell {
    /// All cells; those of an era that are compared with each other are neighbours.
    pub(crate) fn all(eras: &[&Era]) -> Vec<Self> {
        let beside = |(at, era): (usize, &&Era)| {
            let era = era.name;
            let what = [
                What::Clears,
                What::Fault(1),
                What::Fault(2),
                What::Apart,
                What::Touch(1),
                What::Touch(2),
            ];
            what.map(|what| Self { era, at, what })
        };
        eras.iter().enumerate().flat_map(beside).collect()
    }

    /// The names of what is measured, and the number of threads.
    pub(crate) const fn rows(self) -> (&'static [&'static str], u32) {
        match self.what {
            What::Clears => (&["bare clear", "fault with the clear", MACHINES_CLEAR], 1),
            What::Touch(threads) => (&["loop without a system"], threads),
            What::Fault(threads) => (&["fault without the clear"], threads),
            What::Apart => (&["fault in systems of their own"], 2),
        }
    }
}

/// Nanoseconds a page of all threads together, one number a row, and a number that depends on what
/// was done.
pub(crate) type Measured = (Vec<f64>, u64);

/// Two systems of each era, and a region for what needs none.
#[derive(Debug)]
pub(crate) struct Machines {
    systems: Vec<[Running<M>; 2]>,
    bare: Region,
    /// Pages that each thread touches.
    pages: u64,
}

/// What a thread saw of its part.
#[derive(Clone, Copy, Debug)]
struct Seen {
    start: u64,
    end: u64,
    /// Pages that all threads had done at `end`.
    done: u64,
    result: u64,
}

impl Machines {
    pub(crate) fn start(eras: &[&Era], pages: u64) -> Result<Self, RamError> {
        let boot = |era: &Era, threads: u64| {
            // Descriptors take a 64th, tables a 512th; a few MiB are left for the rest.
            let machine = machine(2, (threads * pages * PAGE / 32 * 33) as usize + (8 << 20))?;
            Ok(System::boot(machine, era.config).unwrap_or_else(|error| panic!("{error}")))
        };
        let both = |era: &&Era| Ok([boot(era, 2)?, boot(era, 1)?]);
        Ok(Self {
            systems: eras.iter().map(both).collect::<Result<_, RamError>>()?,
            bare: Region::new(2 * pages)?,
            pages,
        })
    }

    /// Measures one cell. One thread is measured on each CPU in turn, as two run on both: the
    /// processors of a virtual machine are not alike.
    pub(crate) fn measure(&self, cell: Cell) -> Measured {
        let systems = &self.systems[cell.at];
        let on = |cpus: &[u32]| {
            if matches!(cell.what, What::Fault(_) | What::Apart) {
                systems.iter().for_each(|system| system.clear_free_frames());
            }
            match cell.what {
                What::Clears => self.clears(&systems[0], cpus[0]),
                What::Touch(_) => self.without_system(&systems[0], cpus),
                What::Fault(_) => self.faults([&systems[0], &systems[0]], cpus),
                What::Apart => self.faults([&systems[0], &systems[1]], cpus),
            }
        };
        if cell.rows().1 == 2 {
            return on(&[0, 1]);
        }
        let ((one, result), (other, again)) = (on(&[0]), on(&[1]));
        let both = one.iter().zip(&other);
        let means = both.map(|(one, other)| f64::midpoint(*one, *other));
        (means.collect(), mix(result ^ again))
    }

    /// The bare clear, first touches with the clear and the machine's clear, by turns of [`TURN`]
    /// pages.
    fn clears(&self, system: &System<M>, cpu: u32) -> Measured {
        let (mm, base) = space(system, self.pages * PAGE);
        let mut ns = [0; 3];
        let result = std::thread::scope(|scope| {
            let run = || {
                pin(cpu);
                let _cpu = system.machine().enter(cpu);
                let mm = mm;
                let thread = mm.thread();
                for turn in (0..self.pages).step_by(TURN as usize) {
                    let start = self.now();
                    self.bare.clear(turn, TURN);
                    let between = self.now();
                    touch(&thread, base + turn * PAGE, TURN, |_| ());
                    let end = self.now();
                    self.bare.machines_clear(self.pages + turn, TURN);
                    ns[0] += between - start;
                    ns[1] += end - between;
                    ns[2] += self.now() - end;
                }
                contents(&thread, base, self.pages, TURN)
            };
            scope.spawn(run).join().expect("no panic")
        });
        (ns.map(|ns| ns as f64 / self.pages as f64).to_vec(), result)
    }

    fn without_system(&self, system: &System<M>, cpus: &[u32]) -> Measured {
        let pages = self.pages;
        self.together([system, system], cpus, |cpu, race| {
            let first = u64::from(cpu) * pages;
            let touch = |progress: &dyn Fn(u64)| self.bare.touch(first, pages, progress);
            race.run(self, cpu, touch, |result| result)
        })
    }

    /// First touches of a new address space's pages, each thread a range of its own; CPU `c` in the
    /// system number `c`.
    fn faults(&self, systems: [&System<M>; 2], cpus: &[u32]) -> Measured {
        let pages = self.pages;
        let count = |system: &System<M>| system.count_of(Event::AnonWrite);
        let before = systems.map(count);
        let one = core::ptr::eq(systems[0], systems[1]);
        let span = (pages * PAGE).next_multiple_of(TABLE_SPAN);
        let spaces = systems.map(|system| space(system, span));
        let measured = self.together(systems, cpus, |cpu, race| {
            let (mm, base) = &spaces[if one { 0 } else { cpu as usize }];
            let thread = mm.thread();
            let first = base + u64::from(cpu) * span;
            let touch = |progress: &dyn Fn(u64)| touch(&thread, first, pages, progress);
            race.run(self, cpu, touch, |()| {
                contents(&thread, first, pages, pages)
            })
        });
        let mut faults = count(systems[0]) - before[0];
        if !one {
            faults += count(systems[1]) - before[1];
        }
        assert_eq!(faults, cpus.len() as u64 * pages, "each page is a fault");
        for ((mm, _), system) in spaces.into_iter().zip(systems) {
            let _cpu = system.machine().enter(0);
            drop(mm);
        }
        measured
    }

    /// Runs `body` on each of `cpus`, pinned to a processor. What counts is what was done until the
    /// first of them was ready: after that the others have the machine to themselves.
    fn together(
        &self,
        systems: [&System<M>; 2],
        cpus: &[u32],
        body: impl Fn(u32, &Race) -> Seen + Sync,
    ) -> Measured {
        let race = Race::new(cpus.len() as u64);
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let (race, body) = (&race, &body);
            let start = |cpu: &u32| {
                let cpu = *cpu;
                scope.spawn(move || {
                    pin(cpu);
                    let _cpu = systems[cpu as usize].machine().enter(cpu);
                    body(cpu, race)
                })
            };
            let threads: Vec<_> = cpus.iter().map(start).collect();
            let end = |it: std::thread::ScopedJoinHandle<'_, Seen>| it.join().expect("no panic");
            threads.into_iter().map(end).collect()
        });
        let start = seen.iter().map(|it| it.start).min().unwrap_or(0);
        let first = seen.iter().min_by_key(|it| it.end).expect("a thread");
        let result = seen.iter().fold(0, |all, it| mix(all ^ it.result));
        (vec![(first.end - start) as f64 / first.done as f64], result)
    }

    fn now(&self) -> u64 {
        self.systems[0][0].machine().now_ns()
    }

    /// Looks whether every frame is accounted for.
    pub(crate) fn check(&self) {
        for systems in &self.systems {
            for system in systems {
                let _cpu = system.machine().enter(0);
                let ledger = system.check_ledger(&[]);
                ledger.unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}

/// An address space with room for two ranges of `span` bytes, which start with a table of their
/// own.
fn space(system: &System<M>, span: u64) -> (MmHandle<'_, M>, u64) {
    let _cpu = system.machine().enter(0);
    // A third of the addresses is touched.
    system.set_overcommit(Overcommit::Always);
    let mm = system.new_mm().expect("memory");
    let base = mm.mmap(Place::Any, 3 * span, Prot::READ_WRITE);
    let base = base.expect("a hole").0.next_multiple_of(TABLE_SPAN);
    (mm, base)
}

/// Threads that start together and tell how far they are.
struct Race {
    missing: AtomicU64,
    done: [Done; 2],
}

/// Pages that one CPU has done, on a line of its own.
#[repr(align(128))]
struct Done(AtomicU64);

impl Race {
    const fn new(threads: u64) -> Self {
        Self {
            missing: AtomicU64::new(threads),
            done: [const { Done(AtomicU64::new(0)) }; 2],
        }
    }

    /// Waits for the others and measures `work`, which says from time to time how many pages it has
    /// done; then, outside the window, has its result checked.
    fn run<T>(
        &self,
        machines: &Machines,
        cpu: u32,
        work: impl FnOnce(&dyn Fn(u64)) -> T,
        check: impl FnOnce(T) -> u64,
    ) -> Seen {
        let own = &self.done[cpu as usize].0;
        let progress = |pages| own.store(pages, Ordering::Relaxed);
        self.missing.fetch_sub(1, Ordering::AcqRel);
        while self.missing.load(Ordering::Acquire) != 0 {
            M::wait_until::<u64>(&self.missing, u64::MAX, 0);
        }
        let start = machines.now();
        let made = work(&progress);
        let end = machines.now();
        progress(machines.pages);
        let done = self
            .done
            .iter()
            .map(|it| it.0.load(Ordering::Relaxed))
            .sum();
        let result = check(made);
        Seen {
            start,
            end,
            done,
            result,
        }
    }
}

#[inline(never)]
fn touch(thread: &Thread<'_, M>, first: u64, pages: u64, progress: impl Fn(u64)) {
    for page in 0..pages {
        if page.is_multiple_of(64) {
            progress(page);
        }
        let at = VirtAddr(first + page * PAGE);
        thread.store(at, page ^ first).expect("mapped");
    }
}

/// A number made of every 61st page's word; each is what [`touch`] stored, `turn` pages a call.
fn contents(thread: &Thread<'_, M>, first: u64, pages: u64, turn: u64) -> u64 {
    (0..pages).step_by(61).fold(0, |all, page| {
        let word = thread.load(VirtAddr(first + page * PAGE)).expect("mapped");
        let from = first + page / turn * turn * PAGE;
        assert_eq!(word, (page % turn) ^ from, "a store was lost");
        mix(all ^ page)
    })
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
