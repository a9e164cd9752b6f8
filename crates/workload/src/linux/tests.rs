use super::Linux;
use crate::disturb::Disturb;
use crate::page_fault1::PageFault1;
use crate::pft::{Definition, Pft};
use crate::target::{Clear, Plan, Prot, Stop, Target, TargetError, Worker};
use minflt_addr::VirtAddr;

fn plan(threads: u32) -> Plan {
    Plan {
        threads,
        cpus: 1,
        clear: Clear::InFault,
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
        threads: None,
    };
    let outcome = test.run(&Linux::new(), &plan(2)).unwrap();
    assert!(outcome.faults >= outcome.pages);
    assert!(outcome.rates["pages_per_second"] > 0.0);
    for threads in [1, 2] {
        let test = Disturb {
            bytes: 4 << 20,
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
