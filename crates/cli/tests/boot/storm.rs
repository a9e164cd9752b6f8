//! The guest's storm on several CPUs: what the director does to memory reaches all of them. With
//! the flushes of other CPUs, or the wait for them, switched off, it is seen to lose stores.

use crate::guest::{boot, event, text};
use minflt_mm::eras_without_migration;
use std::path::Path;
use std::process::Output;

/// Everything but forks, whose ends would leave flushes to do for address spaces that are gone.
const ONE_SPACE: [&str; 6] = ["discard", "replace", "page-out", "protect", "move", "unmap"];

pub(crate) fn all(storm: &Path) {
    for era in eras_without_migration() {
        passes(storm, era.name, "2", &["1", "4"]);
    }
    passes(storm, "spf-2017", "4", &["3", "2"]);
    passes(storm, "linux-6.15", "4", &["3", "2"]);
    for (control, loses) in [("late", false), ("deaf", true), ("hasty", true)] {
        with(storm, control, loses);
    }
}

fn passes(storm: &Path, era: &str, cpus: &str, arguments: &[&str]) {
    let options = [
        "--checks", "--cpus", cpus, "--era", era, "--append", "swap=16",
    ];
    let boot = boot(storm, &options, arguments);
    assert_eq!(boot.status.code(), Some(0), "{era}, {cpus} CPUs: {boot:?}");
    assert!(
        text(&boot.stdout).ends_with("no store lost\n"),
        "{era}, {cpus} CPUs: {boot:?}"
    );
    for counted in ["tlb-shootdowns", "fork-calls", "swapped-out"] {
        assert_ne!(event(&boot, counted), 0, "{era}, {counted}: {boot:?}");
    }
}

/// A promise is broken, or kept with difficulty.
fn with(storm: &Path, control: &str, loses: bool) {
    let control = format!("control={control}");
    let options = ["--checks", "--cpus", "2", "--append", &control];
    let arguments = ["1", "20"].into_iter().chain(ONE_SPACE);
    let boot = boot(storm, &options, &arguments.collect::<Vec<_>>());
    assert_eq!(found(&boot), loses, "{control}: {boot:?}");
    assert_eq!(boot.status.code() == Some(0), !loses, "{control}: {boot:?}");
}

/// Whether the storm saw that a store was lost, or went where it must not.
fn found(boot: &Output) -> bool {
    let said = text(&boot.stdout);
    [
        "a store is lost",
        "reached other memory",
        "a store went through",
    ]
    .iter()
    .any(|what| said.contains(what))
}
