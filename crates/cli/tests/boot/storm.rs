//! The guest's storm on several CPUs: what the director does to memory reaches all of them. With
//! the flushes of other CPUs, or the wait for them, switched off, it is seen to lose stores; so it
//! is where a CPU's own root keeps its links to tables that are freed.
//!
//! Two rounds: of all pages, and of one. `MINFLT_STORM_ROUNDS` asks for more.

use crate::guest::{boot, event, text};
use minflt_mm::eras_without_migration;
use std::env;
use std::path::Path;
use std::process::Output;

/// Eras whose locks of huge mappings differ, or of faults on them.
const HUGE: [&str; 3] = ["spf-2017", "hugetlb-vma-lock-2022", "linux-6.15"];

const ROUNDS: &str = "MINFLT_STORM_ROUNDS";
/// Seconds that one storm may take for each round.
const ROUND_S: u64 = 60;

/// For pages a GiB apart: 24 GiB are mapped.
const SPARSE: [&str; 6] = ["--era", "minflt", "--mem", "1G", "--append", "overcommit=1"];

/// Everything but forks, whose ends would leave flushes to do for address spaces that are gone.
const ONE_SPACE: [&str; 6] = ["discard", "replace", "page-out", "protect", "move", "unmap"];

pub(crate) fn all(storm: &Path) {
    let rounds = match env::var(ROUNDS) {
        Ok(rounds) => rounds.parse().expect("MINFLT_STORM_ROUNDS is a number"),
        Err(_) => 2,
    };
    for era in eras_without_migration() {
        passes(storm, era.name, "2", "1", rounds);
        passes(storm, era.name, "4", "3", rounds);
    }
    for era in HUGE {
        passes_huge(storm, era, rounds);
    }
    for touchers in ["1", "3"] {
        passes_sparse(storm, touchers, rounds);
    }
    for (control, loses) in [("late", false), ("deaf", true), ("hasty", true)] {
        with(storm, control, loses);
    }
    kept_links_are_found(storm);
}

fn passes(storm: &Path, era: &str, cpus: &str, touchers: &str, rounds: u64) {
    let options = ["--cpus", cpus, "--era", era, "--append", "swap=16"];
    let boot = loses_nothing(storm, &options, &[touchers], rounds);
    for counted in ["tlb-shootdowns", "fork-calls", "swapped-out"] {
        assert_ne!(event(&boot, counted), 0, "{era}, {counted}: {boot:?}");
    }
}

fn passes_huge(storm: &Path, era: &str, rounds: u64) {
    let options = ["--cpus", "4", "--era", era, "--append", "hugepages=64"];
    let boot = loses_nothing(storm, &options, &["2", "huge"], rounds);
    assert_ne!(event(&boot, "tlb-shootdowns"), 0, "{era}, huge: {boot:?}");
}

/// In the era whose CPUs have roots of their own, page tables come and go with the pages.
fn passes_sparse(storm: &Path, touchers: &str, rounds: u64) {
    let options = [&["--cpus", "4"], &SPARSE[..]].concat();
    let boot = loses_nothing(storm, &options, &[touchers, "sparse"], rounds);
    assert_ne!(event(&boot, "tlb-shootdowns"), 0, "sparse: {boot:?}");
}

/// The storm sees it by a store, or the kernel by its oracle.
fn kept_links_are_found(storm: &Path) {
    let options = [&["--checks", "--cpus", "2"], &SPARSE[..]].concat();
    let options = [&options[..], &["--append", "control=kept"]].concat();
    let boot = boot(storm, &options, &["1", "20", "sparse"]);
    let oracle = text(&boot.stderr).contains("has a link to it");
    assert!(found(&boot) || oracle, "{boot:?}");
    assert_ne!(boot.status.code(), Some(0), "{boot:?}");
}

/// `arguments` are the touchers, and what is done.
fn loses_nothing(storm: &Path, options: &[&str], arguments: &[&str], rounds: u64) -> Output {
    let timeout = (ROUND_S * rounds).to_string();
    let options = [&["--checks", "--timeout", &timeout], options].concat();
    let rounds = rounds.to_string();
    let arguments = [&arguments[..1], &[&rounds], &arguments[1..]].concat();
    let boot = boot(storm, &options, &arguments);
    let which = format!("{options:?}, {arguments:?}");
    assert_eq!(boot.status.code(), Some(0), "{which}: {boot:?}");
    let said = text(&boot.stdout);
    assert!(said.ends_with("no store lost\n"), "{which}: {boot:?}");
    boot
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
