//! The conformance suite on the machines that there are, and on some that break one promise each.

#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

mod beds;
mod faulty;

use beds::{OnHost, OnSim};
use faulty::{Defect, Faulty};
use minflt_conformance::{Bed, Check, Level, Outcome, Progress, examine};
use minflt_host::Host;
use minflt_mm::era;
use minflt_pgtable::{Aarch64K16, X86_64};
use minflt_sim::Sim;
use std::collections::BTreeSet;

/// The checks that failed, by name, each with what it found; those that ran, by number.
fn failed<B: Bed>(bed: &B) -> (Vec<(&'static str, String)>, usize) {
    let (mut failed, mut ran) = (Vec::new(), 0);
    let all_kept = examine(bed, |progress| match progress {
        Progress::Ended(check, Outcome::Broken(found)) => {
            ran += 1;
            failed.push((check.name, found.to_string()));
        }
        Progress::Ended(_, Outcome::Kept) => ran += 1,
        Progress::Ended(..) | Progress::Begins(_) => {}
    });
    assert_eq!(all_kept, failed.is_empty());
    (failed, ran)
}

fn keeps_all<B: Bed>(name: &str, bed: &B) {
    let (failed, ran) = failed(bed);
    assert_eq!(failed, [], "{name}");
    assert_eq!(ran, Check::<B>::all().count(), "{name}: none is skipped");
}

#[test]
fn real_threads_conform() {
    for name in ["linux-2.6.10", "spf-2017", "linux-6.15"] {
        let config = era(name).expect("an era").config;
        keeps_all(name, &OnHost::<Host<X86_64, true>>::new(4, config));
    }
}

#[test]
fn simulated_machines_conform() {
    let config = era("linux-6.15").expect("an era").config;
    keeps_all("x86-64", &OnSim::<Sim<X86_64>>::new(4, config));
    keeps_all("16 KiB pages", &OnSim::<Sim<Aarch64K16>>::new(4, config));
}

#[test]
fn a_machine_of_one_cpu_is_examined_as_far_as_it_goes() {
    let config = era("linux-6.15").expect("an era").config;
    let bed = OnHost::<Host<X86_64, true>>::new(1, config);
    let (failed, ran) = failed(&bed);
    assert_eq!(failed, []);
    let alone = |check: &&Check<_>| check.cpus == 1;
    let of_one = Check::<OnHost<Host<X86_64, true>>>::all().map(|(_, check)| check);
    assert_eq!(ran, of_one.filter(alone).count());
}

/// Each defect, and checks that see it.
const SEEN: &[(Defect, &[&str])] = &[
    (Defect::RmwLoses, &["rmw-atomic"]),
    (Defect::OldIsNew, &["rmw-values"]),
    (Defect::CasLoses, &["cas-atomic"]),
    (Defect::TakeOpen, &["take"]),
    (Defect::AddLocalLost, &["add-local"]),
    (Defect::ContextOwn, &["context"]),
    (Defect::NobodyRuns, &["is-running"]),
    (Defect::IrqNotCounted, &["irq-state", "ipi-deferred"]),
    (Defect::IrqAlwaysOn, &["irq-state"]),
    (Defect::ParkEmpty, &["park-sleeps", "ipi-in-park"]),
    (Defect::ParkUntilDeaf, &["park-until"]),
    (Defect::UnparkLoses, &["park-token", "park-wakes"]),
    (Defect::IpiLost, &["ipi-in-pass", "ipi-to-whom"]),
    (Defect::IpiToAll, &["ipi-to-whom"]),
    (Defect::WaitDeaf, &["ipi-in-wait", "ipi-in-take"]),
    (Defect::StoreBeside, &["words"]),
    (Defect::TopMissing, &["ranges"]),
    (Defect::ClearShort, &["clear"]),
    (Defect::CopyShort, &["copy"]),
    (Defect::MergeLoses, &["merge"]),
    (Defect::BytesShort, &["bytes"]),
    (Defect::BytesWide, &["bytes-beside"]),
    (
        Defect::FlushLost,
        &[
            "own-flush",
            "munmap-elsewhere",
            "mprotect-elsewhere",
            "discard-elsewhere",
            "fork-elsewhere",
            "storm",
        ],
    ),
    (Defect::FlushShort, &["own-flush"]),
];

/// Checks that no defect here is seen by: orders that this processor does not show, an early end of
/// a wait, which is allowed, and what belongs to the host's instance.
const UNSEEN: &[&str] = &["message", "fence", "wait-until", "clock", "layout", "nodes"];

#[test]
fn each_defect_is_seen() {
    let bed = OnHost::<Faulty>::new(4, era("linux-6.15").expect("an era").config);
    for (defect, names) in SEEN {
        for name in *names {
            let found = Check::all().find(|(_, check)| check.name == *name);
            let (_, check) = found.expect("a check of that name");
            let examined = faulty::with(*defect, || check.run(&bed));
            assert!(examined.is_err(), "{name} does not see {defect:?}");
        }
    }
}

#[test]
fn each_check_can_fail_or_is_known_not_to_have() {
    let seen = SEEN.iter().flat_map(|(_, names)| *names);
    let named: BTreeSet<&str> = seen.chain(UNSEEN).copied().collect();
    let all: BTreeSet<&str> = Check::<OnHost<Faulty>>::all()
        .map(|(_, it)| it.name)
        .collect();
    assert_eq!(named, all);
}

/// What stands on a broken level is not looked at.
#[test]
fn above_a_broken_level_nothing_is_examined() {
    let config = era("linux-6.15").expect("an era").config;
    let bed = OnHost::<Faulty>::new(4, config);
    let (failed, ran) = faulty::with(Defect::ClearShort, || failed(&bed));
    assert_eq!(failed.len(), 1, "{failed:?}");
    let below = Check::<OnHost<Host<X86_64, true>>>::all();
    assert_eq!(
        ran,
        below.filter(|(level, _)| *level < Level::System).count()
    );
}

#[test]
fn a_machine_passed_through_conforms() {
    let config = era("linux-6.15").expect("an era").config;
    let bed = OnHost::<Faulty>::new(4, config);
    faulty::with(Defect::None, || keeps_all("passed through", &bed));
}
