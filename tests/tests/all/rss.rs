//! Each form of the resident count keeps the error it promises: on real threads, and in explored
//! schedules. The controls show that each bound can be seen to break.

use core::cell::Cell;
use core::mem::ManuallyDrop;
use minflt_addr::VirtAddr;
use minflt_mm::config::Rss;
use minflt_mm::{
    Advice, Config, Mm, NegativeControl, Place, Prot, RSS_BATCH, System, Thread, era,
    eras_without_migration,
};
use minflt_pgtable::{Mmu, X86_64};
use minflt_sim::{
    Budget, Explored, MachineFile, Outcome, RunOptions, RunReport, Sim, SimInstance, Size,
    TaskSpec, explore, run,
};
use minflt_sync::{Atomic, Ordering};
use minflt_tests::world::{Machine, PAGE, boot};
use std::sync::Barrier;

type Virtual = Sim<X86_64, true>;

/// CPUs that fault; one more looks.
const FAULTING: u32 = 3;
/// More accesses than the tasks of a schedule make beside one that waits.
const LONG: u32 = 20_000;

/// Every era with every form that goes with it.
fn forms() -> impl Iterator<Item = Config> {
    eras_without_migration()
        .flat_map(|era| {
            let with = |(rss, ..): &(Rss, _, _)| Config {
                rss: *rss,
                ..era.config
            };
            Rss::ALL.iter().map(with)
        })
        .filter(|config| config.check().is_ok())
}

/// `rss` in the newest era that it goes with.
fn with(rss: Rss) -> Config {
    let newest = forms().filter(|config| config.rss == rss).last();
    newest.expect("each form goes with some era")
}

/// The error that is too much, where `cpus` CPUs fault by a thread each on a machine of `all`.
fn too_much(rss: Rss, cpus: u32, all: u32) -> i64 {
    let part = match rss {
        Rss::UnderLock | Rss::Atomic => return 1,
        Rss::Sloppy => return i64::MAX,
        Rss::PerThread => RSS_BATCH,
        Rss::PerCpu => (2 * all).max(32),
    };
    i64::from(part) * i64::from(cpus)
}

fn map<M: Mmu>(mm: &Mm<M>, pages: u64) -> VirtAddr {
    mm.mmap(Place::Any, pages * PAGE, Prot::READ_WRITE)
        .expect("a hole")
}

fn touch<M: Mmu>(thread: &Thread<'_, M>, at: VirtAddr, pages: core::ops::Range<u64>) {
    for page in pages {
        let stored = thread.store(VirtAddr(at.0 + page * PAGE), page + 1);
        assert_eq!(stored, Ok(()));
    }
}

/// The largest error seen when all threads have touched so many pages and stand still.
fn error_at_steps(config: Config) -> i64 {
    const STEPS: [u64; 10] = [1, 31, 32, 33, 60, 63, 64, 65, 100, 130];
    let sys = boot(config, FAULTING + 1, 32 << 20);
    let looker = sys.machine().enter(FAULTING);
    let mm = sys.new_mm().expect("memory");
    let places: Vec<_> = (0..FAULTING).map(|_| map(&mm, 130)).collect();
    let barrier = Barrier::new(FAULTING as usize + 1);
    let mut largest = 0;
    std::thread::scope(|scope| {
        for (cpu, at) in (0..).zip(&places) {
            let (mm, sys, barrier) = (&mm, &sys, &barrier);
            scope.spawn(move || {
                let _cpu = sys.machine().enter(cpu);
                let thread = mm.thread();
                let mut done = 0;
                for step in STEPS {
                    touch(&thread, *at, done..step);
                    done = step;
                    barrier.wait();
                    barrier.wait();
                }
            });
        }
        for step in STEPS {
            barrier.wait();
            let error = mm.resident_pages() - step as i64 * i64::from(FAULTING);
            largest = largest.max(error.abs());
            barrier.wait();
        }
    });
    let ledger = sys.check_ledger(&[&mm]).expect("adds up");
    assert_eq!(ledger.anon, 130 * u64::from(FAULTING));
    drop(mm);
    drop(looker);
    largest
}

#[test]
fn a_count_that_stands_still_is_off_by_less_than_its_bound() {
    for config in forms().filter(|config| config.rss != Rss::Sloppy) {
        let (error, bound) = (
            error_at_steps(config),
            too_much(config.rss, FAULTING, FAULTING + 1),
        );
        assert!(error < bound, "{config:?}: {error} of {bound}");
        // A batched form that is never off is not batched.
        assert_eq!(error > 0, bound > 1, "{config:?}");
    }
}

#[test]
fn a_batch_twice_as_large_is_seen_to_break_the_bound() {
    for rss in [Rss::PerThread, Rss::PerCpu] {
        let config = with(rss).with_negative_control(Some(NegativeControl::LateRss));
        let error = error_at_steps(config);
        assert!(error >= too_much(rss, FAULTING, FAULTING + 1), "{config:?}");
    }
}

/// What threads have begun and ended: pages up, pages down.
struct Progress {
    begun: [Atomic<u64, Machine>; 2],
    ended: [Atomic<u64, Machine>; 2],
}

const UP: usize = 0;
const DOWN: usize = 1;

impl Progress {
    fn new() -> Self {
        let zeros = || [(); 2].map(|()| Atomic::new(0));
        Self {
            begun: zeros(),
            ended: zeros(),
        }
    }

    fn step(&self, way: usize, pages: u64, body: impl FnOnce()) {
        self.begun[way].add(pages, Ordering::SeqCst);
        body();
        self.ended[way].add(pages, Ordering::SeqCst);
    }

    /// How far `shown` lies outside of what the count can have been when it was read.
    fn outside(&self, shown: impl FnOnce() -> i64) -> i64 {
        let read = |counts: &[Atomic<u64, Machine>; 2], way: usize| {
            counts[way].load(Ordering::SeqCst) as i64
        };
        let (up, down) = (read(&self.ended, UP), read(&self.ended, DOWN));
        let shown = shown();
        let (least, most) = (up - read(&self.begun, DOWN), read(&self.begun, UP) - down);
        (least - shown).max(shown - most).max(0)
    }
}

#[test]
fn a_moving_count_is_off_by_less_than_its_bound_whenever_one_looks() {
    for config in forms().filter(|config| config.rss != Rss::Sloppy) {
        let sys = boot(config, FAULTING + 1, 32 << 20);
        let looker = sys.machine().enter(FAULTING);
        let mm = sys.new_mm().expect("memory");
        let progress = Progress::new();
        let running = Atomic::<u64, Machine>::new(u64::from(FAULTING));
        std::thread::scope(|scope| {
            for cpu in 0..FAULTING {
                let (mm, sys, progress, running) = (&mm, &sys, &progress, &running);
                scope.spawn(move || {
                    let _cpu = sys.machine().enter(cpu);
                    let thread = mm.thread();
                    let at = map(mm, 40);
                    for _round in 0..30 {
                        for page in 0..40 {
                            progress.step(UP, 1, || touch(&thread, at, page..page + 1));
                        }
                        progress.step(DOWN, 40, || {
                            let done = mm.madvise(at, 40 * PAGE, Advice::DontNeed);
                            done.expect("mapped");
                        });
                    }
                    running.sub(1, Ordering::SeqCst);
                });
            }
            let bound = too_much(config.rss, FAULTING + 1, FAULTING + 1);
            let mut most = 0;
            while running.load(Ordering::SeqCst) > 0 {
                most = most.max(progress.outside(|| mm.resident_pages()));
            }
            assert!(most < bound, "{config:?}: {most} of {bound}");
        });
        assert_eq!(mm.resident_pages_sum(), 0, "{config:?}");
        sys.check_ledger(&[&mm])
            .unwrap_or_else(|e| panic!("{config:?}: {e}"));
        drop(mm);
        drop(looker);
    }
}

#[test]
fn an_address_space_without_a_slot_counts_atomically_and_slots_come_back_empty() {
    let sys = boot(with(Rss::PerCpu), FAULTING + 1, 32 << 20);
    let cpu = sys.machine().enter(0);
    let mut spaces: Vec<_> = (0..20).map(|_| sys.new_mm().expect("memory")).collect();
    let with_slot = spaces.iter().filter(|mm| mm.counts_per_cpu()).count();
    assert_eq!(with_slot, 16, "32 MiB have one piece of slots");
    for mm in &spaces {
        touch(&mm.thread(), map(mm, 5), 0..5);
        let shown = if mm.counts_per_cpu() { 0 } else { 5 };
        assert_eq!((mm.resident_pages(), mm.resident_pages_sum()), (shown, 5));
    }
    drop(cpu);
    // They end on another CPU: its parts go below zero, and the sum is nothing.
    let _cpu = sys.machine().enter(1);
    spaces.drain(3..12);
    let again: Vec<_> = (0..9).map(|_| sys.new_mm().expect("memory")).collect();
    for mm in &again {
        assert!(mm.counts_per_cpu());
        assert_eq!(mm.resident_pages_sum(), 0);
        touch(&mm.thread(), map(mm, 2), 0..2);
        assert_eq!(mm.resident_pages_sum(), 2);
    }
    let alive: Vec<_> = spaces.iter().chain(&again).map(|mm| &**mm).collect();
    sys.check_ledger(&alive).expect("adds up");
    // Address spaces are torn down by a CPU.
    drop((again, spaces));
}

/// Runs `body` on CPUs 0 and 1 of a small machine under many schedules; a third CPU runs `look`.
/// `judge` has the last word on a schedule that went well: the true count, the address space.
fn explored(
    config: Config,
    schedules: u64,
    body: impl Fn(&Thread<'_, Virtual>, VirtAddr, &[Cell<i64>; 3]),
    look: impl Fn(&Mm<Virtual>, &[Cell<i64>; 3]) -> Result<(), String>,
    judge: impl Fn(&Mm<Virtual>, i64) -> Result<(), String>,
) -> Explored {
    let file = MachineFile::shipped("explorer").expect("shipped");
    let budget = Budget { schedules, seed: 3 };
    explore(&budget, |options: &RunOptions<'_>| -> RunReport {
        let size = Size {
            cpus: 3,
            ram_bytes: 352 * PAGE,
            max_tasks: 3,
        };
        let machine = SimInstance::new(&file, size).expect("memory");
        let sys = System::<Virtual>::boot(machine, config).expect("boots");
        let mm = sys.new_mm().expect("memory");
        let places = [map(&mm, 128), map(&mm, 128)];
        // Pages begun, pages ended, looks ended.
        let counts = [const { Cell::new(0) }; 3];
        let wrong = Cell::new(None);
        let mut tasks: Vec<TaskSpec<'_>> = Vec::new();
        for (cpu, at) in (0..).zip(places) {
            let (mm, counts, body) = (&mm, &counts, &body);
            let task = move || body(&mm.thread(), at, counts);
            tasks.push(TaskSpec {
                cpu,
                body: Box::new(task),
            });
        }
        let looks = || {
            if let Err(text) = look(&mm, &counts) {
                wrong.set(Some(text));
            }
        };
        tasks.push(TaskSpec {
            cpu: 2,
            body: Box::new(looks),
        });
        let mut report = run(sys.machine(), options, tasks);
        if report.outcome.is_ok() {
            let ledger = sys.check_ledger(&[&mm]).map_err(|e| e.to_string());
            let judged = ledger.and_then(|ledger| judge(&mm, ledger.anon as i64));
            let text = wrong.take().map_or(judged, Err);
            if let Err(text) = text {
                report.outcome = Outcome::Violation(text);
            }
        } else {
            // Locks may be held for ever: the memory goes with the machine.
            let _never_dropped = ManuallyDrop::new(mm);
        }
        report
    })
}

/// Both CPUs touch `pages` pages and stay; the third looks for an error of `bound` or more until it
/// has seen them all, or for long.
fn bound_in_schedules(config: Config, pages: u64, bound: i64) -> Explored {
    explored(
        config,
        60,
        |thread, at, [begun, ended, seen]| {
            for page in 0..pages {
                begun.set(begun.get() + 1);
                touch(thread, at, page..page + 1);
                ended.set(ended.get() + 1);
            }
            // What it reads here is nothing; it lets the others go on.
            let wait = || seen.get() == 0 && thread.mm().resident_pages() >= 0;
            let _waited = (0..LONG).all(|_| wait());
        },
        |mm, [begun, ended, seen]| {
            let mut before = 0;
            let mut looks = 0;
            while before < 2 * pages as i64 && looks < LONG {
                looks += 1;
                before = ended.get();
                let shown = mm.resident_pages();
                let error = (before - shown).max(shown - begun.get());
                if error >= bound {
                    return Err(format!("{shown} is shown, {before} are there"));
                }
            }
            seen.set(1);
            Ok(())
        },
        |mm, true_count| {
            let sum = mm.resident_pages_sum();
            if sum == true_count {
                Ok(())
            } else {
                Err(format!("the sum is {sum}, {true_count} are there"))
            }
        },
    )
}

#[test]
fn bounds_hold_in_every_schedule_and_a_larger_batch_breaks_them_in_some() {
    for (rss, pages) in [(Rss::Atomic, 10), (Rss::PerThread, 70), (Rss::PerCpu, 40)] {
        // Only two CPUs count, so the error is even smaller than on all CPUs.
        let bound = too_much(rss, 2, 3);
        let found = bound_in_schedules(with(rss), pages, bound);
        assert_eq!(found.failure, None, "{rss}");
        if bound > 1 {
            let late = with(rss).with_negative_control(Some(NegativeControl::LateRss));
            let found = bound_in_schedules(late, pages, bound);
            let failure = found.failure.expect("a batch twice as large is seen");
            assert!(failure.report.outcome.to_string().contains("is shown"));
        }
    }
}

/// Both CPUs touch two pages; at the end the number shown, without batches, is the true one.
fn exact_at_the_end(config: Config, schedules: u64) -> Explored {
    explored(
        config,
        schedules,
        |thread, at, _| touch(thread, at, 0..2),
        |mm, _| match mm.resident_pages() {
            0.. => Ok(()),
            shown => Err(format!("{shown} is shown")),
        },
        |mm, true_count| match mm.resident_pages_sum() {
            sum if sum == true_count => Ok(()),
            sum => Err(format!("lost: the sum is {sum}, {true_count} are there")),
        },
    )
}

#[test]
fn every_form_but_the_sloppy_one_is_exact_when_all_is_quiet_in_every_schedule() {
    for config in forms().filter(|config| config.rss != Rss::Sloppy) {
        let found = exact_at_the_end(config, 200);
        assert_eq!(found.failure, None, "{config:?}");
        assert_eq!(found.schedules, 200);
    }
}

#[test]
fn some_schedule_loses_an_update_of_the_sloppy_form() {
    let config = era("atomic-pte-2004").expect("an era").config;
    assert_eq!(config.rss, Rss::Sloppy);
    let found = exact_at_the_end(config, 2000);
    let failure = found.failure.expect("an update is lost");
    assert!(failure.report.outcome.to_string().contains("lost"));
}
