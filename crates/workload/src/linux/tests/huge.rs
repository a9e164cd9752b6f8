//! Huge pages on real Linux. Where too few are free these tests say so and do nothing, unless
//! `MINFLT_HUGE_PAGES=required`, which `.ci/run` sets once it has reserved some.

use super::plan;
use crate::hugetlb::{Hugetlb, Programs};
use crate::linux::Linux;
use crate::target::{
    HugePages, Inherited, Pages, Plan, Populate, Prot, Spaces, Stop, Target, TargetError,
};
use crate::usemem::{MappedBy, Usemem};
use crate::{Feature, Outcome, Worker};
use minflt_addr::VirtAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Huge pages that a test of these may use; they run one after another.
const PAGES: u64 = 16;

/// The pool, for one test.
fn pool() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn huge() -> u64 {
    Linux::new().huge_page_size().unwrap_or(2 << 20)
}

/// Bytes of so many huge pages.
fn bytes(pages: u64) -> u64 {
    assert!(pages <= PAGES);
    pages * huge()
}

/// What a run gave; `None` where there were too few huge pages and that is allowed here.
fn ran<T>(result: Result<T, TargetError>) -> Option<T> {
    match result {
        Err(TargetError::Unsupported(why)) => {
            let required = std::env::var("MINFLT_HUGE_PAGES").is_ok_and(|it| it == "required");
            assert!(!required, "huge pages are required here, but {why}");
            println!("skipped: {why}");
            None
        }
        other => Some(other.unwrap()),
    }
}

fn run(test: &Hugetlb, instances: u32) -> Option<Outcome> {
    ran(test.run(&Linux::new(), &plan(instances)))
}

#[test]
fn the_three_programs_run() {
    let _pool = pool();
    for programs in [Programs::Fault, Programs::Fork, Programs::Both] {
        let test = Hugetlb {
            bytes: bytes(8) - 5,
            until_ns: 50_000_000,
            ..Hugetlb::new(programs)
        };
        for instances in [1, 2] {
            let Some(outcome) = run(&test, instances) else {
                return;
            };
            assert_eq!(outcome.workers.len(), test.workers(instances) as usize);
            for worker in &outcome.workers {
                assert!(worker.ops > 0, "{worker:?}");
                let ns = worker.end_ns - worker.start_ns;
                assert!((50_000_000..5_000_000_000).contains(&ns), "{worker:?}");
            }
            assert!(outcome.checks["contents"] > 0);
            if programs == Programs::Fault {
                assert!(outcome.faults >= outcome.pages, "{outcome:?}");
            }
        }
    }
}

#[test]
fn usemem_copies_what_its_processes_inherit() {
    let _pool = pool();
    for mapped_by in [MappedBy::First, MappedBy::Workers] {
        for (pages, spaces) in [
            (Pages::Huge, Spaces::Own),
            (Pages::Huge, Spaces::Shared),
            (Pages::Base, Spaces::Own),
        ] {
            let test = Usemem {
                bytes: bytes(3) + 4096,
                mapped_by,
                pages,
                spaces,
                populate: Populate::Now,
                rounds: 2,
                ..Usemem::default()
            };
            let Some(outcome) = ran(test.run(&Linux::new(), &plan(2))) else {
                return;
            };
            let used = 2 * test.bytes;
            assert!(outcome.workers.iter().all(|worker| worker.ops == used));
            assert!(outcome.checks["contents"] >= 2 * 4);
            // Processes copy what they inherit, all of which is mapped and write-protected.
            if mapped_by == MappedBy::First && spaces == Spaces::Own {
                assert!(outcome.faults >= outcome.pages, "{outcome:?}");
            }
        }
    }
}

#[test]
fn the_huge_file_is_one_for_all_and_private_memory_is_not() {
    let _pool = pool();
    let page = huge();
    let plan = Plan {
        spaces: Spaces::Own,
        huge: Some(HugePages {
            count: 2 + 3,
            file_bytes: Some(2 * page),
        }),
        inherited: Some(Inherited {
            bytes: page,
            pages: Pages::Huge,
            populate: Populate::Now,
        }),
        ..plan(2)
    };
    let report = Linux::new().process(&plan, |w| {
        let file = w.map_huge_common(Prot::ReadWrite)?;
        let last = VirtAddr(file.0 + 2 * page - 8);
        let own = w.inherited()?;
        w.store(own, 5 + u64::from(w.index()))?;
        w.barrier();
        if w.index() == 0 {
            w.store(last, 9)?;
        }
        w.barrier();
        assert_eq!(w.load(last)?, 9);
        assert_eq!(w.load(own)?, 5 + u64::from(w.index()));
        w.unmap(file, 2 * page)
    });
    let Some(_report) = ran(report) else { return };
    let without = Linux::new().process(&super::plan(1), |w| {
        w.map_huge_common(Prot::Read).map(|_| ())
    });
    let why = Stop::Errno(libc::ENODEV);
    assert_eq!(
        without.unwrap_err(),
        TargetError::Stopped { worker: 0, why }
    );
}

#[test]
fn more_than_there_are_are_refused_with_the_command_that_makes_more() {
    let linux = Linux::new();
    if let Some(why) = linux.lacks(Feature::HugePages) {
        println!("skipped: {why}");
        return;
    }
    let test = Hugetlb {
        bytes: 1 << 46,
        ..Hugetlb::new(Programs::Fault)
    };
    let words = test.run(&linux, &plan(1)).unwrap_err().to_string();
    let count = (1 << 46) / huge();
    assert!(
        words.contains(&format!("the run needs {count} huge pages, and ")),
        "{words}"
    );
}
