mod files;
#[expect(
    clippy::disallowed_types,
    reason = "the tests are threads of this program, and nothing explores them"
)]
mod huge;

use super::Linux;
use crate::brk1::Brk1;
use crate::disturb::Disturb;
use crate::ebizzy::{Apart, Ebizzy, Sizes, Until, Work};
use crate::fork1::Fork1;
use crate::kernbench::{Kernbench, Warmth};
use crate::load::Load;
use crate::mmap::{Backing, Mmap};
use crate::numa_mem::NumaMem;
use crate::page_fault1::PageFault1;
use crate::pft::{Definition, Pft};
use crate::target::{Clear, Plan, Prot, Sharing, Spaces, Stop, Target, TargetError, Worker};
use minflt_addr::VirtAddr;

fn plan(threads: u32) -> Plan {
    Plan::new(threads, 1)
}

/// A plan of so many processes.
fn own(processes: u32) -> Plan {
    Plan {
        spaces: Spaces::Own,
        ..plan(processes)
    }
}

/// What a body that only does `body` in thread 0 makes of the process.
fn fails(threads: u32, body: impl Fn() -> Result<(), Stop> + Sync) -> TargetError {
    Linux::new()
        .process(&plan(threads), |w| {
            if w.index() == 0 {
                body()?;
            }
            // The others wait here for a thread that never comes.
            w.barrier();
            Ok(())
        })
        .unwrap_err()
}

#[test]
fn pft_faults_at_least_once_a_page() {
    for definition in [Definition::Process, Definition::Workers] {
        let pft = Pft {
            bytes: 4 << 20,
            repetitions: 2,
            definition,
            ..Pft::default()
        };
        let outcome = pft.run(&Linux::new(), &plan(2)).unwrap();
        let pages = 2 * (4 << 20) / Linux::new().page_size();
        assert_eq!(outcome.pages, pages);
        assert!(
            outcome.events["minor-faults"] >= pages,
            "{:?}",
            outcome.events
        );
        assert!(
            outcome.faults >= pages,
            "huge pages? {} faults",
            outcome.faults
        );
        assert_eq!(outcome.workers.len(), 4);
        assert!(
            outcome
                .workers
                .iter()
                .all(|worker| worker.faults >= pages / 4)
        );
        assert!(outcome.wall_ns > 0 && outcome.checks["contents"] > 0);
    }
}

#[test]
fn windows_count_the_faults_within_only() {
    let report = Linux::new()
        .process(&plan(2), |w| {
            let len = 64 * w.page_size();
            let page = w.page_size();
            let (before, within) = (w.map(len, Prot::ReadWrite)?, w.map(len, Prot::ReadWrite)?);
            let touch = |w: &mut super::LinuxWorker<'_>, at: VirtAddr| {
                (0..64).try_for_each(|i| w.store(VirtAddr(at.0 + i * page), 1))
            };
            touch(w, before)?;
            w.window_open();
            touch(w, within)?;
            w.window_close();
            w.ops(u64::from(w.index()) + 5);
            w.unmap(before, len)
        })
        .unwrap();
    for (worker, ops) in report.workers.iter().zip([5, 6]) {
        // The window's own calls may touch a page or two of the stack for the first time.
        assert!((64..80).contains(&worker.faults), "{worker:?}");
        assert_eq!(worker.ops, ops);
        assert!(worker.end_ns > worker.start_ns);
        assert!(worker.user_ns + worker.system_ns > 0);
    }
    assert!(report.events["page-faults"] >= 2 * 128);
    assert_eq!(report.faults, report.events["page-faults"]);
    assert!(report.events["threads-pinned"] <= 2);
}

#[test]
fn the_other_workloads_run() {
    let test = PageFault1 {
        bytes: 1 << 20,
        rounds: 2,
        warm_up: 0,
        threads: None,
    };
    let outcome = test.run(&Linux::new(), &plan(2)).unwrap();
    assert!(outcome.faults >= outcome.pages);
    assert!(outcome.rates["pages_per_second"] > 0.0);
    for spaces in [Spaces::Shared, Spaces::Own] {
        let mut mmap = Mmap::new(Backing::File);
        mmap.tasks.rounds = 3;
        mmap.tasks.spaces = spaces;
        let outcome = mmap.run(&Linux::new(), &plan(2)).unwrap();
        assert_eq!(outcome.checks["contents"], 2 * (9 + 8 + 4));
        let mut brk = Brk1::default();
        brk.tasks.rounds = 3;
        brk.tasks.spaces = spaces;
        let outcome = brk.run(&Linux::new(), &plan(2)).unwrap();
        assert!(outcome.workers.iter().all(|worker| worker.ops == 6));
        let mut fork = Fork1::default();
        fork.tasks.rounds = 3;
        fork.tasks.spaces = spaces;
        let outcome = fork.run(&Linux::new(), &plan(2)).unwrap();
        assert!(outcome.rates["forks_per_second"] > 0.0);
    }
    for threads in [1, 3] {
        let load = Load {
            bytes: 4 << 20,
            ..Load::default()
        };
        let outcome = load.run(&Linux::new(), &plan(threads)).unwrap();
        assert!(outcome.faults >= outcome.pages);
    }
    for (threads, apart) in [(1, true), (2, true), (2, false)] {
        let test = Disturb {
            bytes: 4 << 20,
            apart,
            ..Disturb::default()
        };
        let outcome = test.run(&Linux::new(), &plan(threads)).unwrap();
        assert!(outcome.faults >= outcome.pages);
        assert_eq!(
            outcome.rates.contains_key("rounds_per_second"),
            threads == 2
        );
    }
}

#[test]
fn ebizzy_touches_or_copies_and_searches() {
    for work in [Work::Touch, Work::Halves, Work::Linear] {
        let test = Ebizzy {
            work,
            apart: Apart::Both,
            sizes: Sizes::Random,
            chunk_bytes: 64 << 10,
            until: Until::Records(20),
            ..Ebizzy::default()
        };
        let outcome = test.run(&Linux::new(), &plan(2)).unwrap();
        assert!(outcome.workers.iter().all(|worker| worker.ops == 20));
        assert!(outcome.workers.iter().all(|worker| worker.faults >= 20));
    }
    let ns = 20_000_000;
    let test = Ebizzy {
        work: Work::Touch,
        until: Until::Elapsed(ns),
        ..Ebizzy::default()
    };
    let outcome = test.run(&Linux::new(), &plan(1)).unwrap();
    assert!(outcome.wall_ns >= ns && outcome.rates["records_per_second"] > 0.0);
}

#[test]
fn numa_mem_finds_in_real_memory_what_it_stored_last() {
    for (line, bytes) in [
        ("-t 2 -T 64K -l 3 -zZ0", 3 * 64),
        ("-t 2 -T 64K -P 32K -L 16K -G 16K -l 2", 2 * 128),
        ("-p 2 -T 64K -P 32K -L 16K -G 16K -l 2", 2 * 128),
    ] {
        let args: Vec<_> = line.split(' ').map(str::to_owned).collect();
        let test = NumaMem::parse(&args).unwrap();
        let outcome = test.run(&Linux::new(), &plan(2)).unwrap();
        let ops = outcome.workers.iter().map(|worker| worker.ops);
        assert_eq!(ops.collect::<Vec<_>>(), [bytes << 10; 2], "{line}");
        assert_eq!(outcome.checks["contents"], 2 * (16 + 8), "{line}");
    }
}

#[test]
fn kernbench_compiles_every_unit_in_a_child() {
    let test = Kernbench {
        runs: 2,
        units: Some(6),
        unit_bytes: 512 << 10,
        half: Some(1),
        warmth: Warmth::Cold,
        ..Kernbench::default()
    };
    let outcome = test.run(&Linux::new(), &plan(2)).unwrap();
    let units: u64 = outcome.workers.iter().map(|worker| worker.ops).sum();
    assert_eq!(units, 3 * 2 * 6);
    assert!(outcome.faults >= outcome.pages);
    assert!(outcome.sleeps > 0);
}

#[test]
fn mapping_calls_do_what_they_say() {
    let report = Linux::new().process(&plan(1), |w| {
        let len = 4 * w.page_size();
        let at = w.map(len, Prot::ReadWrite)?;
        w.store(at, 7)?;
        w.protect(at, len, Prot::Read)?;
        assert_eq!(w.load(at)?, 7);
        w.protect(at, len, Prot::ReadWrite)?;
        w.discard(at, len)?;
        assert_eq!(w.load(at)?, 0);
        w.compute(1000);
        let before = w.now_ns();
        w.compute(1000);
        assert!(w.now_ns() >= before + 1000);
        assert_eq!(
            w.unmap(VirtAddr(at.0 + 1), len),
            Err(Stop::Errno(libc::EINVAL))
        );
        w.unmap(at, len)
    });
    assert!(report.is_ok(), "{report:?}");
}

#[test]
fn the_mailbox_carries_values_between_threads() {
    let report = Linux::new().process(&plan(3), |w| {
        w.post(w.index() as usize, 40 + u64::from(w.index()));
        w.barrier();
        let seen = [w.read(0), w.read(1), w.read(2), w.read(7)];
        if seen == [40, 41, 42, 0] {
            Ok(())
        } else {
            Err(Stop::Errno(1))
        }
    });
    assert!(report.is_ok(), "{report:?}");
}

#[test]
fn a_body_that_stops_is_reported_with_its_thread() {
    assert_eq!(
        fails(3, || Err(Stop::Errno(5))),
        TargetError::Stopped {
            worker: 0,
            why: Stop::Errno(5)
        }
    );
    let contents = Stop::Contents(VirtAddr(0x1000), 1, 2);
    assert_eq!(
        fails(1, || Err(contents)),
        TargetError::Stopped {
            worker: 0,
            why: contents
        }
    );
}

#[test]
fn a_signal_is_named() {
    let error = Linux::new()
        .process(&plan(2), |w| match w.index() {
            // In the page at 0, where nothing is mapped.
            0 => w.store(VirtAddr(8), 1),
            _ => {
                w.barrier();
                Ok(())
            }
        })
        .unwrap_err();
    assert!(error.to_string().contains("SIGSEGV (signal 11)"), "{error}");
}

#[test]
fn a_panic_stays_in_the_child() {
    for threads in [1, 2] {
        let error = fails(threads, || panic!("no {}", "luck"));
        let words = "linux: thread 0 panicked: no luck".to_owned();
        assert_eq!(error, TargetError::System(words));
    }
    let error = fails(1, || panic!("none"));
    assert!(error.to_string().ends_with("panicked: none"), "{error}");
}

#[test]
fn plans_it_cannot_run_are_refused_with_what_is_right() {
    let linux = Linux::new();
    let refused = |plan: &Plan| match linux.process(plan, |_| Ok(())) {
        Err(TargetError::Unsupported(words)) => words,
        other => panic!("{other:?}"),
    };
    let words = refused(&Plan {
        cpus: linux.cpus() + 1,
        ..plan(1)
    });
    assert!(
        words.contains(&format!("--cpus 1 to {}", linux.cpus())),
        "{words}"
    );
    let words = refused(&Plan {
        clear: Clear::Beforehand,
        ..plan(1)
    });
    assert!(words.contains("host or sim"), "{words}");
    assert!(refused(&plan(0)).contains("at least 1 thread"));
    assert!(refused(&Plan { cpus: 0, ..plan(1) }).contains("--cpus"));
}

#[test]
fn workers_with_spaces_of_their_own_meet_and_share_the_mailbox_only() {
    let report = Linux::new()
        .process(&own(3), |w| {
            let at = w.map(w.page_size(), Prot::ReadWrite)?;
            w.store(at, u64::from(w.index()) + 1)?;
            let claimed = w.claim(5);
            w.post(w.index() as usize, at.0);
            w.barrier();
            // All were forked from one process, so the kernel gives all the same address.
            if claimed > 2 || w.read(5) != 3 || w.read(0) != w.read(2) {
                return Err(Stop::Errno(1));
            }
            let there = VirtAddr(w.read(0));
            let found = w.load(there)?;
            w.window_open();
            w.window_close();
            w.ops(found);
            w.checked(crate::target::Oracle::Contents, 1);
            Ok(())
        })
        .unwrap();
    let ops: Vec<_> = report.workers.iter().map(|worker| worker.ops).collect();
    assert_eq!(ops, [1, 2, 3]);
    assert_eq!(report.checks["contents"], 3);
    assert!(report.workers.iter().all(|worker| worker.end_ns > 0));
    assert!(report.sleeps > 0 && report.faults > 0);
}

#[test]
fn a_process_that_stops_or_dies_ends_the_others() {
    let stopped = |plan: &Plan, how: fn(&mut super::LinuxWorker<'_>) -> Result<(), Stop>| {
        let body = |w: &mut super::LinuxWorker<'_>| {
            if w.index() == 1 {
                how(w)?;
            }
            w.barrier();
            Ok(())
        };
        Linux::new().process(plan, body).unwrap_err()
    };
    let why = Stop::Errno(5);
    let expected = TargetError::Stopped { worker: 1, why };
    assert_eq!(stopped(&own(3), |_| Err(Stop::Errno(5))), expected);
    let words = stopped(&own(3), |_| panic!("no luck")).to_string();
    assert_eq!(words, "linux: thread 1 panicked: no luck");
    let words = stopped(&own(3), |w| w.store(VirtAddr(8), 1)).to_string();
    assert_eq!(words, "linux: process 1 was killed by SIGSEGV (signal 11)");
    // The same in a child of the worker.
    for plan in [own(2), plan(2)] {
        assert_eq!(
            stopped(&plan, |w| w.fork(|_| Err(Stop::Errno(5)))),
            expected
        );
        let words = stopped(&plan, |w| w.fork(|_| panic!("no luck"))).to_string();
        assert_eq!(words, "linux: thread 1 panicked: no luck");
        let why = Stop::Signal(libc::SIGSEGV);
        let killed = stopped(&plan, |w| w.fork(|child| child.store(VirtAddr(8), 1)));
        assert_eq!(killed, TargetError::Stopped { worker: 1, why });
    }
}

#[test]
fn a_forked_child_has_its_own_memory_and_counts_for_its_parent() {
    for plan in [plan(2), own(2)] {
        let report = Linux::new()
            .process(&plan, |w| {
                let page = w.page_size();
                let at = w.map(128 * page, Prot::ReadWrite)?;
                (0..128).try_for_each(|i| w.store(VirtAddr(at.0 + i * page), 7))?;
                w.barrier();
                w.window_open();
                w.fork(|child| {
                    for i in 0..128 {
                        let at = VirtAddr(at.0 + i * page);
                        assert_eq!(child.load(at)?, 7);
                        child.store(at, 8)?;
                    }
                    child.ops(40);
                    child.checked(crate::target::Oracle::Contents, 128);
                    Ok(())
                })?;
                w.window_close();
                w.ops(2);
                assert_eq!(w.load(at)?, 7);
                Ok(())
            })
            .unwrap();
        for worker in &report.workers {
            assert_eq!(worker.ops, 42);
            assert!(worker.faults >= 128, "{worker:?}");
        }
        assert_eq!(report.checks["contents"], 256);
    }
}

#[test]
fn the_break_and_a_file_can_be_used() {
    let report = Linux::new().process(&own(2), |w| {
        let page = w.page_size();
        let end = w.brk(None);
        let up = VirtAddr(end.0.next_multiple_of(page) + page);
        assert_eq!(w.brk(Some(up)), up);
        w.store(VirtAddr(up.0 - page), 7)?;
        assert_eq!(w.brk(Some(end)), end);
        assert_eq!(w.brk(Some(VirtAddr(1 << 60))), end);
        for _ in 0..2 {
            let at = w.map_file(4 * page, Prot::ReadWrite, Sharing::Private)?;
            assert_eq!(w.load(at)?, 0);
            w.store(at, 7)?;
            w.unmap(at, 4 * page)?;
        }
        let at = w.map_file(page, Prot::Read, Sharing::Private)?;
        w.unmap(at, page)
    });
    assert!(report.is_ok(), "{report:?}");
}
