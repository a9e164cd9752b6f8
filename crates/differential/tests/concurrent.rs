//! Threads of one address space at once, on real threads and in explored schedules: some order of
//! their steps explains what each page held.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use core::cell::{Cell, RefCell};
use core::mem::ManuallyDrop;
use minflt_addr::VirtAddr;
use minflt_differential::history::{Did, Event, State, explain};
use minflt_differential::random::Random;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::config::{AddressSpace, Unmap};
use minflt_mm::{
    Advice, Config, NegativeControl, Place, Prot, Signal, System, Thread, era,
    eras_without_migration,
};
use minflt_pgtable::{Mmu, X86_64};
use minflt_sim::{
    Budget, Explored, MachineFile, Outcome, RunOptions, Sim, SimInstance, Size, TaskSpec, explore,
    run,
};
use minflt_sync::{Atomic, Ordering};
use std::collections::BTreeSet;
use std::sync::Barrier;

type Real = Host<X86_64, true>;
type Virtual<const CHECKED: bool> = Sim<X86_64, CHECKED>;

const PAGE: u64 = 4096;
/// Two tables meet in the middle of it.
const BASE: u64 = (1 << 30) - 4 * PAGE;
const PAGES: u64 = 8;
const RW: u64 = 3;

/// Where a thread's steps go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ranges {
    /// Each has pages of its own; the mappings are common all the same.
    Disjoint,
    /// All use the same few pages.
    Overlapping,
}

/// What a thread is about to do to some pages.
#[derive(Clone, Copy, Debug)]
enum Op {
    Store(u64, u64),
    Load(u64),
    Discard(u64, u64),
    Map(u64, u64, u64),
    Unmap(u64, u64),
    Protect(u64, u64, u64),
}

/// The steps of thread `who` of `threads`.
fn ops(random: &mut Random, who: u64, threads: u64, count: u64, ranges: Ranges) -> Vec<Op> {
    let (low, high) = match ranges {
        Ranges::Disjoint => (who * PAGES / threads, (who + 1) * PAGES / threads),
        Ranges::Overlapping => (2, 6),
    };
    let mut draw = |count: u64| {
        let page = low + random.below(high - low);
        let len = 1 + random.below(high - page);
        let rights = random.pick(&[0, 1, RW, RW]);
        match random.below(16) {
            0..5 => Op::Store(page, (who + 1) << 32 | count),
            5..10 => Op::Load(page),
            10..12 => Op::Discard(page, len),
            12 => Op::Map(page, len, RW),
            13 => Op::Unmap(page, len),
            _ => Op::Protect(page, len, rights),
        }
    };
    (0..count).map(&mut draw).collect()
}

fn prot(rights: u64) -> Prot {
    Prot::from_bits(rights as u32)
}

/// Does it; for each page it was done to, what came of it.
fn perform<M: Mmu>(thread: &Thread<'_, M>, op: Op) -> Vec<(u64, Did)> {
    let at = |page: u64| VirtAddr(BASE + page * PAGE);
    let mm = thread.mm();
    let each = |page: u64, len: u64, did: Did| (page..page + len).map(|page| (page, did)).collect();
    match op {
        Op::Store(page, word) => {
            let did = match thread.store(at(page), word) {
                Ok(()) => Did::Stored(word),
                Err(Signal::AccErr) => Did::StoreRefused,
                Err(_) => Did::FoundNothing,
            };
            vec![(page, did)]
        }
        Op::Load(page) => {
            let did = match thread.load(at(page)) {
                Ok(word) => Did::Loaded(word),
                Err(Signal::AccErr) => Did::LoadRefused,
                Err(_) => Did::FoundNothing,
            };
            vec![(page, did)]
        }
        Op::Discard(page, len) => {
            // A hole is an error, and the rest has been done.
            let _hole = mm.madvise(at(page), len * PAGE, Advice::DontNeed);
            each(page, len, Did::Discarded)
        }
        Op::Map(page, len, rights) => {
            let mapped = mm.mmap(Place::Fixed(at(page)), len * PAGE, prot(rights));
            mapped.expect("memory");
            each(page, len, Did::Mapped(rights))
        }
        Op::Unmap(page, len) => {
            mm.munmap(at(page), len * PAGE).expect("memory");
            each(page, len, Did::Unmapped)
        }
        Op::Protect(page, len, rights) => {
            let did = match mm.mprotect(at(page), len * PAGE, prot(rights)) {
                Ok(()) => Did::Protected(rights),
                Err(_) => Did::MaybeProtected(rights),
            };
            each(page, len, did)
        }
    }
}

/// Does all of them; `clock` gives moments that differ.
fn history<M: Mmu>(thread: &Thread<'_, M>, ops: &[Op], clock: impl Fn() -> u64) -> Vec<Event> {
    let mut events = Vec::new();
    for op in ops {
        let from = clock();
        let done = perform(thread, *op);
        let to = clock();
        let event = |(page, did)| Event {
            page,
            from,
            to,
            did,
        };
        events.extend(done.into_iter().map(event));
    }
    events
}

/// What each page may hold.
type Pages = Vec<BTreeSet<State>>;

fn fresh() -> Pages {
    vec![BTreeSet::from([State::Mapped(RW, 0)]); PAGES as usize]
}

/// What a page may hold after events, of what it may hold before.
type Explain = fn(&BTreeSet<State>, &[Event]) -> BTreeSet<State>;

/// What each page may hold after `events`, or the page that none explains.
fn explained(before: &Pages, events: &[Event], by: Explain) -> Result<Pages, String> {
    let mut after = Vec::new();
    for (page, before) in (0..).zip(before) {
        let here: Vec<Event> = events.iter().filter(|e| e.page == page).copied().collect();
        let ends = by(before, &here);
        if ends.is_empty() {
            return Err(format!("page {page}: no order of {here:?} from {before:?}"));
        }
        after.push(ends);
    }
    Ok(after)
}

const THREADS: u64 = 3;
const ROUNDS: u64 = 60;
/// Steps of a thread between two rests.
const ROUND: u64 = 8;

/// What a page may hold after `events` under a munmap that downgrades `mmap_lock`, which is no
/// single step: the mapping leaves the tree first, the TLBs are flushed last. Meanwhile a fault
/// finds nothing and a discard finds a hole, while another thread still loads by its TLB, as under
/// Linux since 4.20. So beside an munmap a fault that finds nothing orders nothing, and a discard
/// may have done nothing.
fn explain_downgraded(before: &BTreeSet<State>, events: &[Event]) -> BTreeSet<State> {
    let beside = |it: &Event| {
        let mut unmaps = events.iter().filter(|other| other.did == Did::Unmapped);
        unmaps.any(|other| other.from <= it.to && it.from <= other.to)
    };
    let orders = |it: &&Event| it.did != Did::FoundNothing || !beside(it);
    let events: Vec<Event> = events.iter().filter(orders).copied().collect();
    let is_optional = |it: &&Event| it.did == Did::Discarded && beside(it);
    let optional: Vec<Event> = events.iter().filter(is_optional).copied().collect();
    let mut ends = BTreeSet::new();
    for done in 0..1_u32 << optional.len() {
        let skipped = |it: &Event| {
            let at = optional.iter().position(|other| other == it);
            at.is_some_and(|at| done >> at & 1 == 0)
        };
        let some: Vec<Event> = events.iter().filter(|it| !skipped(it)).copied().collect();
        ends.extend(explain(before, &some));
    }
    ends
}

const fn by_the_calls_of(config: &Config) -> Explain {
    match config.unmap {
        Unmap::Downgrade => explain_downgraded,
        Unmap::Exclusive => explain,
    }
}

/// Threads that really run beside each other, round by round.
fn on_real_threads(config: Config, seed: u64, ranges: Ranges) -> Result<(), String> {
    let options = HostOptions {
        cpus: THREADS as u32 + 1,
        ram_bytes: 16 << 20,
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).expect("memory");
    let sys = System::<Real>::boot(machine, config).expect("boots");
    let mut main = Some(sys.machine().enter(THREADS as u32));
    let mm = sys.new_mm().expect("memory");
    let place = Place::Fixed(VirtAddr(BASE));
    mm.mmap(place, PAGES * PAGE, Prot::READ_WRITE)
        .expect("free");
    // While this thread waits for the others it is on no CPU: one that answers no interrupt would
    // hold up every grace period, and a writer that is throttled waits for one.
    main.take();
    let now = Atomic::<u64, Real>::new(0);
    let rest = Barrier::new(THREADS as usize);
    let histories: Vec<Vec<Vec<Event>>> = std::thread::scope(|scope| {
        let run = |who: u64| {
            let (sys, mm, now, rest) = (&sys, &mm, &now, &rest);
            scope.spawn(move || {
                let mut random = Random::new(seed << 8 | who);
                let mut round = |_| {
                    // On no CPU: one that rests would not forget translations when told to.
                    rest.wait();
                    let _cpu = sys.machine().enter(who as u32);
                    let thread = mm.thread();
                    let ops = ops(&mut random, who, THREADS, ROUND, ranges);
                    history(&thread, &ops, || now.add(1, Ordering::SeqCst))
                };
                (0..ROUNDS).map(&mut round).collect()
            })
        };
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        threads.into_iter().map(join).collect()
    });
    let _cpu = main.insert(sys.machine().enter(THREADS as u32));
    let mut pages = fresh();
    for round in 0..ROUNDS as usize {
        let events = histories.iter().flat_map(|rounds| &rounds[round]);
        let events: Vec<Event> = events.copied().collect();
        let by = by_the_calls_of(&config);
        pages = explained(&pages, &events, by).map_err(|why| format!("round {round}: {why}"))?;
    }
    let thread = mm.thread();
    for (page, states) in (0..).zip(&pages) {
        let last = perform(&thread, Op::Load(page));
        let event = Event {
            page,
            from: 0,
            to: 1,
            did: last[0].1,
        };
        if explain(states, &[event]).is_empty() {
            return Err(format!("page {page}: {event:?} at the end of {states:?}"));
        }
    }
    sys.check_ledger(&[&mm])
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Each era, and one in arenas of 4 pages, which meet in the middle of the pages that are used:
/// with an munmap that is one step, and with one that is not.
fn configs() -> impl Iterator<Item = (&'static str, Config)> {
    let in_arenas = Config {
        address_space: AddressSpace::ArenasSmall,
        ..era("minflt").expect("an era").config
    };
    let in_one_step = Config {
        unmap: Unmap::Exclusive,
        ..in_arenas
    };
    let eras = eras_without_migration().map(|era| (era.name, era.config));
    eras.chain([
        ("minflt in small arenas", in_arenas),
        ("minflt in small arenas, munmap in one step", in_one_step),
    ])
}

#[test]
fn real_threads_have_an_order() {
    for (name, config) in configs() {
        for (seed, ranges) in [(1, Ranges::Disjoint), (2, Ranges::Overlapping)] {
            for seed in [seed, seed + 10] {
                on_real_threads(config, seed, ranges)
                    .unwrap_or_else(|why| panic!("{name}, {ranges:?}: {why}"));
            }
        }
    }
}

/// Two or three tasks under many schedules.
fn explored<const CHECKED: bool>(
    config: Config,
    budget: &Budget,
    tasks_of: impl Fn(&mut Random) -> Vec<Vec<Op>>,
) -> Explored {
    let file = MachineFile::shipped("explorer").expect("shipped");
    let draws = Cell::new(0);
    explore(budget, |options: &RunOptions<'_>| {
        let size = Size {
            cpus: 3,
            ram_bytes: 352 * PAGE,
            max_tasks: 3,
        };
        let machine = SimInstance::new(&file, size).expect("memory");
        let sys = System::<Virtual<CHECKED>>::boot(machine, config).expect("boots");
        let mm = sys.new_mm().expect("memory");
        let place = Place::Fixed(VirtAddr(BASE));
        mm.mmap(place, PAGES * PAGE, Prot::READ_WRITE)
            .expect("free");
        draws.set(draws.get() + 1);
        let mut random = Random::new(budget.seed << 20 | draws.get());
        let tasks_ops = tasks_of(&mut random);
        let now = Cell::new(0);
        let clock = || now.replace(now.get() + 1);
        let events = RefCell::new(Vec::new());
        let mut tasks: Vec<TaskSpec<'_>> = Vec::new();
        for (cpu, ops) in (0..).zip(&tasks_ops) {
            let (mm, clock, events) = (&mm, &clock, &events);
            let body = move || {
                let done = history(&mm.thread(), ops, clock);
                events.borrow_mut().extend(done);
            };
            tasks.push(TaskSpec {
                cpu,
                body: Box::new(body),
            });
        }
        let mut report = run(sys.machine(), options, tasks);
        if !report.outcome.is_ok() {
            // Locks may be held for ever: the memory goes with the machine.
            let _never_dropped = ManuallyDrop::new(mm);
            return report;
        }
        let ledger = sys.check_ledger(&[&mm]).map_err(|error| error.to_string());
        let judged = explained(&fresh(), &events.borrow(), by_the_calls_of(&config));
        if let Err(text) = judged.map(drop).and(ledger.map(drop)) {
            report.outcome = Outcome::Violation(text);
        }
        report
    })
}

#[test]
fn explored_schedules_have_an_order() {
    for (name, config) in configs() {
        for (seed, ranges) in [(1, Ranges::Disjoint), (2, Ranges::Overlapping)] {
            let budget = Budget {
                schedules: 600,
                seed,
            };
            let tasks = |random: &mut Random| {
                let task = |who| ops(random, who, 3, 5, ranges);
                (0..3).map(task).collect()
            };
            let found = explored::<true>(config, &budget, tasks);
            if let Some(failure) = found.failure {
                panic!("{name}, {ranges:?}: {failure}");
            }
        }
    }
}

/// The control: two throw a page away at once, and the one that finds nothing there does not wait
/// for the other's invalidation, so that it reads again what is gone. No oracle is asked but the
/// history.
#[test]
fn a_translation_that_stays_has_no_order() {
    let tasks = |_: &mut Random| {
        let discard = |who: u64| {
            let word = (who + 1) << 32;
            vec![
                Op::Store(2, word),
                Op::Discard(2, 1),
                Op::Load(2),
                Op::Load(2),
            ]
        };
        vec![discard(0), discard(1)]
    };
    let budget = Budget {
        schedules: 20_000,
        seed: 1,
    };
    let config = era("linux-4.13").expect("there").config;
    let broken = Config {
        negative_control: Some(NegativeControl::NoNestedFlush),
        ..config
    };
    let found = explored::<false>(broken, &budget, tasks);
    let failure = found.failure.expect("a history without an order");
    let outcome = failure.report.outcome.to_string();
    assert!(outcome.contains("no order"), "{outcome}");
    let fewer = Budget {
        schedules: 2000,
        ..budget
    };
    assert!(explored::<false>(config, &fewer, tasks).failure.is_none());
}
