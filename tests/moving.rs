//! Pages that move from node to node without pause, while threads store to them, fork, remap and
//! discard: no store may be lost. On real threads.
//!
//! One thread moves every page by a call. Where balancing is on, the storing threads' timers make
//! pages fault as well, and a page that its storer, on the node of its own, finds elsewhere twice
//! running comes back to it.

#![expect(
    clippy::disallowed_types,
    reason = "what the threads agree on is no part of the machine"
)]

use crate::world::{BASE, Machine, PAGE, boot_on, machine, page};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use minflt_addr::VirtAddr;
use minflt_mm::config::Balancing;
use minflt_mm::{
    Advice, Config, Errno, Event, MmHandle, MovePageError, NumaKnobs, Place, Prot, Remap,
    RemapRequest, Swap,
};

/// Each storing thread has as many pages.
const PAGES: u64 = 16;
const STORERS: u64 = 2;
const NODES: u32 = 2;
/// The storers' pages, then those of the thread that remaps.
const ALL: u64 = (STORERS + 1) * PAGES;

/// What happened.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Stores, each loaded again.
    pub stores: u64,
    /// Pages that were moved.
    pub moved: u64,
    /// Those that hinting faults moved.
    pub followed: u64,
    /// Pages that could not be.
    pub failed: u64,
    /// Faults that waited for a page that was being moved.
    pub waits: u64,
    /// Forks whose child found all that had been stored.
    pub forks: u64,
}

/// Each of the others does its work at least so often.
const ROUNDS: u64 = 2;
/// Stores of a thread between two timer interrupts.
const TICK: u64 = 128;
/// So many times the stores asked for are enough for a page to follow its user.
const PATIENCE: u64 = 1000;

/// Storing threads are on nodes of their own; the others have the CPUs between.
const fn cpu_of(thread: u64) -> u32 {
    let nodes = NODES as u64;
    ((thread % STORERS) * nodes + thread / STORERS) as u32
}

/// Scans of everything whenever a timer interrupt comes.
fn knobs() -> NumaKnobs {
    NumaKnobs {
        scan_delay_ns: 0,
        scan_period_min_ns: 1,
        scan_period_max_ns: 1,
        rate_bytes: u64::MAX,
        ..NumaKnobs::default()
    }
}

/// Stores at least `stores` words under `config`, half of them by each of two threads.
///
/// # Panics
/// If a store is lost, anything does not add up at the end, or no page followed its user where
/// balancing is on.
#[must_use]
pub fn run(config: Config, stores: u64) -> Moved {
    let machine = machine(STORERS as u32 + 2, 16 << 20).with_nodes(NODES);
    let sys = boot_on::<Machine>(machine, config, Swap::None);
    sys.set_numa_knobs(knobs());
    let balances = config.balancing == Balancing::On;
    let followed = || sys.count_of(Event::NumaPagesMigrated);
    let first = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap_or_else(|e| panic!("{e:?}"));
    let mapped = mm.mmap(Place::Fixed(page(0)), ALL * PAGE, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(page(0)));
    drop(first);
    let (left, stored) = (AtomicU64::new(STORERS), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let rounds = [AtomicU64::new(0), AtomicU64::new(0)];
    let clock = AtomicU64::new(1);
    std::thread::scope(|scope| {
        for storer in 0..STORERS {
            let (sys, mm, left, done) = (&sys, &mm, &left, &done);
            let (rounds, stored, clock) = (&rounds, &stored, &clock);
            scope.spawn(move || {
                let _cpu = sys.machine().enter(cpu_of(storer));
                let (mut number, own) = (0, stores / STORERS);
                let enough = |count: &AtomicU64| count.load(Ordering::Relaxed) >= ROUNDS;
                let more = || {
                    number += 1;
                    let waits = balances && number <= own * PATIENCE && followed() == 0;
                    let more = number <= own || waits || !rounds.iter().all(enough);
                    more.then_some(number)
                };
                stored.fetch_add(store(mm, storer * PAGES, clock, more), Ordering::Relaxed);
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    done.store(true, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| {
            let _cpu = sys.machine().enter(cpu_of(STORERS));
            migrate(&mm, &done, &rounds[0]);
        });
        scope.spawn(|| {
            let _cpu = sys.machine().enter(cpu_of(STORERS + 1));
            disturb(&mm, &done, &rounds[1]);
        });
    });
    let last = sys.machine().enter(0);
    sys.check_ledger(&[&mm]).unwrap_or_else(|e| panic!("{e}"));
    drop(mm);
    drop(last);
    let count = |event| sys.count_of(event);
    assert_eq!(followed() > 0, balances, "pages that followed their users");
    Moved {
        stores: stored.load(Ordering::Relaxed),
        moved: count(Event::PagesMigrated),
        followed: followed(),
        failed: count(Event::MigrationsFailed),
        waits: count(Event::MigrationWaits),
        forks: rounds[1].load(Ordering::Relaxed),
    }
}

/// Each store has a number of its own, and is found again before the page's next one. Returns how
/// many there were.
fn store(
    mm: &MmHandle<'_, Machine>,
    first: u64,
    clock: &AtomicU64,
    next: impl FnMut() -> Option<u64>,
) -> u64 {
    let thread = mm.thread();
    let mut last = [0; PAGES as usize];
    let mut stores = 0_u64;
    for number in core::iter::from_fn(next) {
        let n = number % PAGES;
        let (at, last) = (page(first + n), &mut last[n as usize]);
        assert_eq!(thread.load(at), Ok(*last), "store {last} of page {n}");
        assert_eq!(thread.store(at, number), Ok(()));
        *last = number;
        stores += 1;
        if stores.is_multiple_of(TICK) {
            thread.tick(clock.fetch_add(2, Ordering::Relaxed));
        }
    }
    for (n, last) in (0..).zip(last) {
        assert_eq!(thread.load(page(first + n)), Ok(last), "at the end");
    }
    stores
}

/// All pages, from node to node, until the others are done.
fn migrate(mm: &MmHandle<'_, Machine>, done: &AtomicBool, rounds: &AtomicU64) {
    let mut node = 0;
    while !done.load(Ordering::Relaxed) {
        for n in 0..ALL {
            match mm.move_page(page(n), node) {
                // Nothing was stored there yet; a child has it pinned down for a moment; both
                // places of one that is being remapped.
                Ok(())
                | Err(MovePageError::NotThere | MovePageError::Busy | MovePageError::Fault) => {}
                Err(why) => panic!("page {n} to node {node}: {why:?}"),
            }
        }
        node = (node + 1) % NODES;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Forks, remaps and discards meanwhile.
fn disturb(mm: &MmHandle<'_, Machine>, done: &AtomicBool, counted: &AtomicU64) {
    let thread = mm.thread();
    let own = STORERS * PAGES;
    let mut rounds = 0;
    while !done.load(Ordering::Relaxed) {
        rounds += 1;
        for n in 0..PAGES {
            assert_eq!(thread.store(page(own + n), rounds + n), Ok(()));
        }
        let child = mm.fork().unwrap_or_else(|e| panic!("{e:?}"));
        {
            let thread = child.thread();
            for n in 0..PAGES {
                assert_eq!(thread.load(page(own + n)), Ok(rounds + n), "in the child");
                assert_eq!(thread.store(page(own + n), 1), Ok(()));
            }
            // Anybody's page may be moved through the child, too.
            let _moved = child.move_page(page(rounds % ALL), (rounds % 2) as u32);
        }
        let to = VirtAddr(BASE << 1);
        for (old, new) in [(page(own), to), (to, page(own))] {
            let request = RemapRequest {
                old,
                old_len: PAGES * PAGE,
                new_len: PAGES * PAGE,
                how: Remap::Fixed(new),
            };
            assert_eq!(thread.mremap(&request), Ok(new));
        }
        drop(child);
        for n in 0..PAGES {
            assert_eq!(thread.load(page(own + n)), Ok(rounds + n), "after mremap");
        }
        let half = PAGES / 2;
        let discarded = mm.madvise(page(own), half * PAGE, Advice::DontNeed);
        assert_eq!(discarded.map_err(Errno::from), Ok(()));
        assert_eq!(thread.load(page(own)), Ok(0), "discarded");
        counted.store(rounds, Ordering::Relaxed);
    }
}
