//! What the gates consist of.

use crate::commits;
use crate::fuzz;
use crate::step::Step;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Preemptions of a task that the model checker tries in one run. Most mistakes need no more than
/// two, and the time grows steeply with each; the soak tries three.
pub(crate) const LOOM_PREEMPTIONS_CI: u32 = 2;
const LOOM_PREEMPTIONS_SOAK: u32 = 3;

/// Schedules explored for each race and era in a soak; the tests explore 2,000.
const SOAK_SCHEDULES: u32 = 100_000;

/// Steps that the model, the host's Linux and every era must agree about in a soak; the tests run
/// 20,000.
const SOAK_STEPS: u32 = 1_000_000;

/// Tree Borrows are the rules that allow a field's pointer to lead to the whole object; the clock
/// and the number of CPUs are the host's.
const MIRIFLAGS: &str = "-Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-disable-isolation";

/// Seeds of Miri, each of which runs the threads of a test in another order: in the gate, and in a
/// soak.
const MIRI_SEEDS_CI: u32 = 3;
const MIRI_SEEDS_SOAK: u32 = 64;

/// Seconds that each fuzz target runs for in a soak, from what earlier soaks found.
const SOAK_FUZZ_S: u32 = 300;

/// Seconds that programs make system calls at random on the kernel in a soak; the tests take 30.
const SOAK_KERNEL_S: u32 = 2 * 3600;

/// Rounds of the guest's storm in a soak, in each era on 2 and on 4 CPUs; the tests make 2.
const SOAK_STORM_ROUNDS: u32 = 60;

/// Crates that embedders use: they must build without an operating system, and from their packages.
const LIBRARY: &str =
    "-p minflt-addr -p minflt-sync -p minflt-pgtable -p minflt-mm -p minflt-conformance";

/// The gate before a commit: quick complaints first.
pub(crate) fn gate(root: &Path) -> Vec<Step> {
    let mut steps = vec![
        Step::cargo("fmt", root, "fmt --all --check"),
        Step::cargo("tidy", root, "run --quiet --package xtask -- tidy"),
        Step::cargo("commits", root, "run --quiet --package xtask -- commits").only_if(
            || commits::has_history(root),
            "the history back to the rule of subjects is not here",
        ),
        Step::cargo(
            "clippy",
            root,
            "clippy --workspace --all-targets -- -D warnings",
        ),
        Step::cargo("doc", root, "doc --workspace --no-deps")
            .with_env("RUSTDOCFLAGS", "-Dwarnings"),
        Step::cargo(
            "bare",
            root,
            &format!("build --target x86_64-unknown-none {LIBRARY}"),
        ),
        // Each is built from what its package holds, with the packages of those it stands on.
        Step::cargo(
            "package",
            root,
            &format!("package --allow-dirty --quiet {LIBRARY}"),
        ),
        Step::cargo("examples", root, "build --workspace --examples"),
        // Small, and without verdicts: that they run.
        Step::cargo("benches", root, "test --package minflt-host --benches"),
        Step::cargo("door", root, "test --package minflt-tests --test door"),
        loom(root, LOOM_PREEMPTIONS_CI),
        apart(root, "guest", "guest-fmt", "fmt --check"),
        apart(
            root,
            "guest",
            "guest-clippy",
            "clippy --release -- -D warnings",
        ),
        apart(root, "kernel", "kernel-fmt", "fmt --check"),
        apart(
            root,
            "kernel",
            "kernel-clippy",
            "clippy --release -- -D warnings",
        ),
        apart(root, "kernel", "kernel-build", "build --release"),
        apart(root, PARALLEL, "parallel-fmt", "fmt --check"),
        apart(root, PARALLEL, "parallel-clippy", "clippy -- -D warnings"),
        apart(root, "peers", "peers-fmt", "fmt --check"),
        apart(
            root,
            "peers",
            "peers-clippy",
            "clippy --benches -- -D warnings",
        ),
        apart(root, "peers", "peers", "test --benches"),
    ];
    steps.push(page(root));
    steps.extend(miri(root));
    steps.push(fuzz::step(root, ""));
    steps.extend(deny(root));
    steps
}

/// Opens the page that `reproduce` wrote last in a browser.
fn page(root: &Path) -> Step {
    let page = root.join("results/report.html");
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".into());
    let step = Step::cargo("page", root.join("tests/page"), "");
    let argv = ["node", "page.mjs", "../../results/report.html"];
    Step {
        argv: argv.map(str::to_owned).into(),
        ..step
    }
    .only_if(|| page.is_file(), "no page; `minflt reproduce` writes one")
    .only_if(
        || Path::new(&chromium).is_file(),
        "no browser (apt-get install chromium)",
    )
    .only_if(
        || root.join("tests/page/node_modules").is_dir(),
        "no playwright (cd tests/page && npm ci)",
    )
}

/// A step of a package that is built apart from the workspace.
fn apart(root: &Path, folder: &str, name: &'static str, args: &str) -> Step {
    let dir = root.join(folder);
    let here = dir.join("Cargo.toml").is_file();
    Step::cargo(name, dir, args).only_if(|| here, &format!("there is no {folder}/Cargo.toml"))
}

/// Long explorations, by hand before an issue is closed. `extra` goes to `minflt check`.
pub(crate) fn soak(root: &Path, extra: &[String]) -> Vec<Step> {
    let check = format!("run --release -p minflt -- check --all --schedules {SOAK_SCHEDULES}");
    let differential =
        format!("run --release -p minflt-differential -- --steps {SOAK_STEPS} --seed 1");
    let mut steps = vec![
        Step::cargo("check", root, &check).with_args(extra),
        Step::cargo("differential", root, &differential),
        Step::cargo(
            "moving",
            root,
            "run --release -p minflt-tests --example moving",
        ),
        loom(root, LOOM_PREEMPTIONS_SOAK),
        Step::cargo("weaken", root, "run --quiet --package xtask -- weaken").only_if(
            || has_model_tests(root),
            "there is no crates/sync/tests/model_*.rs",
        ),
    ];
    steps.extend(miri_soak(root));
    steps.push(sanitized(root, "tsan", "thread"));
    steps.push(sanitized(root, "asan", "address"));
    steps.push(fuzz::step(root, &format!("--seconds {SOAK_FUZZ_S}")));
    steps.push(
        Step::cargo(
            "kernel",
            root,
            "test --release -p minflt --test fuzz -- --nocapture",
        )
        .with_env("MINFLT_FUZZ_SECONDS", SOAK_KERNEL_S.to_string()),
    );
    steps.push(
        Step::cargo(
            "storm",
            root,
            "test --release -p minflt --test boot -- --nocapture",
        )
        .with_env("MINFLT_STORM_ROUNDS", SOAK_STORM_ROUNDS.to_string()),
    );
    steps.extend(advisories(root));
    steps
}

/// Tests on the host's machine that say little or nothing interpreted: what they compare with is
/// the host's Linux, its files, its memory or its caches. One fills a memory byte by byte, which
/// takes more than an hour.
const NOT_INTERPRETED: &str = "--skip tests::linux --skip tests::file --skip ram::tests \
                               --skip probe::tests --skip worker \
                               --skip a_write_that_runs_out_of_memory_is_short";

/// What the gate has time for: primitives on threads, and the shortest life of an address space.
const INTERPRETED_CI: &str = "cpumask gather tlb tests::grace tests::locks tests::memory \
                              tests::order tests::rcu tests::slab wait_table \
                              a_split_vma_is_merged_and_freed_at_once";

/// Tests of threads that are quick enough for several seeds in the gate; locks and slabs take
/// minutes a seed, and wait for a soak.
const OF_THREADS_CI: &str = "tests::rcu tests::grace tests::wait_table tests::interrupts";

/// Tests of threads, which one seed runs in one order.
const OF_THREADS: &str = "tests::locks tests::slab tests::rcu tests::grace tests::wait_table \
                          tests::interrupts threads_fault_while_another_unmaps";

/// The packages with raw pointers, and the machine that `mm` runs on.
const WITH_POINTERS: &str = "-p minflt-sync -p minflt-pgtable -p minflt-host --lib";

/// The tests of the crates with raw pointers, interpreted, with rounds as few as that asks for:
/// each access is checked against the rules of aliasing, initialized memory and data races.
///
/// `mm` makes pointers of integers, so strict provenance cannot be asked for.
pub(crate) fn miri(root: &Path) -> [Step; 2] {
    let once = format!("+nightly miri test {WITH_POINTERS} -- {INTERPRETED_CI}");
    let threads = format!("+nightly miri test -p minflt-host --lib -- {OF_THREADS_CI}");
    [
        interpreted(root, "miri", &once, ""),
        interpreted(root, "miri-seeds", &threads, &seeds(MIRI_SEEDS_CI)),
    ]
}

/// The same with every reclamation scheme, huge pages and storms; and tests of threads in more
/// orders.
fn miri_soak(root: &Path) -> [Step; 2] {
    let all = format!("+nightly miri test {WITH_POINTERS} -- {NOT_INTERPRETED}");
    let threads = format!("+nightly miri test -p minflt-host --lib -- {OF_THREADS}");
    [
        interpreted(root, "miri-all", &all, ""),
        interpreted(root, "miri-seeds", &threads, &seeds(MIRI_SEEDS_SOAK)),
    ]
}

/// The flag that runs each test with `count` seeds.
fn seeds(count: u32) -> String {
    format!(" -Zmiri-many-seeds=1..{}", count + 1)
}

/// The tests of the host's machine, storms among them, under a sanitizer of LLVM's; `core` and
/// `std` are built with it, or it would not see what they do.
///
/// One test compares what Linux has memory for, of which a sanitizer's shadow takes a part. Leaks
/// are not asked for: the tests' files live as long as the process, and the ledger of each system
/// says what of its memory is lost.
fn sanitized(root: &Path, name: &'static str, sanitizer: &str) -> Step {
    let args = "+nightly test -Zbuild-std --target x86_64-unknown-linux-gnu --release \
                -p minflt-host --lib -- --skip the_heuristic_refuses_what_linux_refuses";
    let mut step = Step::cargo(name, root, args);
    step.argv[0] = "cargo".to_owned();
    step.with_env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        .with_env("ASAN_OPTIONS", "detect_leaks=0")
        .with_env(
            "CARGO_TARGET_DIR",
            target_dir(root).join(name).display().to_string(),
        )
        .only_if(
            has_std_source,
            "no nightly with the sources of std is installed (rustup component add --toolchain \
             nightly rust-src)",
        )
}

/// Whether a nightly can build the standard library.
fn has_std_source() -> bool {
    let mut rustc = Command::new("rustc");
    let printed = rustc.args(["+nightly", "--print", "sysroot"]).output();
    printed.is_ok_and(|printed| {
        let sysroot = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
        printed.status.success() && Path::new(&sysroot).join("lib/rustlib/src/rust").is_dir()
    })
}

/// A step in which Miri interprets.
fn interpreted(root: &Path, name: &'static str, args: &str, more: &str) -> Step {
    let mut step = Step::cargo(name, root, args);
    // Only rustup's proxy takes `+toolchain`; the cargo that runs us is the real one.
    step.argv[0] = "cargo".to_owned();
    step.with_env("MIRIFLAGS", format!("{MIRIFLAGS}{more}"))
        .only_if(
            || works(&["+nightly", "miri", "--version"]),
            "no nightly with Miri is installed",
        )
}

/// The model tests build everything with `--cfg loom`, so they get a target folder of their own.
fn loom(root: &Path, preemptions: u32) -> Step {
    let bound = std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| preemptions.to_string());
    Step::cargo(
        "loom",
        root,
        "test -p minflt-sync --release --no-fail-fast --test model_*",
    )
    .with_env("RUSTFLAGS", "--cfg loom")
    .with_env("LOOM_MAX_PREEMPTIONS", bound)
    .with_env(
        "CARGO_TARGET_DIR",
        target_dir(root).join("loom").display().to_string(),
    )
    .only_if(
        || has_model_tests(root),
        "there is no crates/sync/tests/model_*.rs",
    )
}

/// The boot tests' program of Rust's library and rayon.
const PARALLEL: &str = "tests/programs/parallel";

/// The packages with a lock file, and what the steps about each are called.
const LOCKED: [(&str, &str, &str); 6] = [
    ("", "deny", "advise"),
    ("kernel", "kernel-deny", "kernel-advise"),
    ("guest", "guest-deny", "guest-advise"),
    ("fuzz", "fuzz-deny", "fuzz-advise"),
    ("peers", "peers-deny", "peers-advise"),
    (PARALLEL, "parallel-deny", "parallel-advise"),
];

/// Licences, duplicates and sources of what each lock file has. The advisory database lives on
/// GitHub and is not asked here: a gate must not fail because of what was published overnight.
pub(crate) fn deny(root: &Path) -> Vec<Step> {
    let step = |(folder, name, _)| deny_of(root, folder, name, "licenses bans sources");
    LOCKED.into_iter().map(step).collect()
}

/// What is known against anything that a lock file has: vulnerabilities, yanked and unmaintained
/// releases.
pub(crate) fn advisories(root: &Path) -> Vec<Step> {
    let reached = reaches_advisories();
    let why = "the advisory database, on GitHub, cannot be reached from here";
    let step =
        |(folder, _, name)| deny_of(root, folder, name, "advisories").only_if(|| reached, why);
    LOCKED.into_iter().map(step).collect()
}

/// One `deny.toml`, the workspace's, is for all: cargo-deny looks for it in the folders above a
/// manifest.
fn deny_of(root: &Path, folder: &str, name: &'static str, checks: &str) -> Step {
    let manifest = root.join(folder).join("Cargo.toml");
    let args = format!(
        "deny --manifest-path {} check {checks}",
        Path::new(folder).join("Cargo.toml").display()
    );
    Step::cargo(name, root, &args)
        .only_if(|| manifest.is_file(), "there is no such package")
        .only_if(
            || works(&["deny", "--version"]),
            "cargo-deny is not installed (cargo install cargo-deny --locked)",
        )
}

/// Whether the database that cargo-deny fetches answers.
fn reaches_advisories() -> bool {
    let mut command = Command::new("git");
    command
        .args(["ls-remote", "--quiet"])
        .args(["https://github.com/RustSec/advisory-db", "HEAD"])
        .env("GIT_TERMINAL_PROMPT", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn has_model_tests(root: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(root.join("crates/sync/tests")) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        name.to_str()
            .is_some_and(|name| name.starts_with("model_") && name.ends_with(".rs"))
    })
}

/// Where cargo builds when it is run from `root`.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Whether `cargo ARGS` exists here and succeeds.
fn works(args: &[&str]) -> bool {
    let mut command = Command::new("cargo");
    command
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::{gate, soak};
    use std::path::Path;

    #[test]
    fn the_gate_holds_every_check_the_docs_promise() {
        let names: Vec<&str> = gate(Path::new("/nowhere"))
            .iter()
            .map(|step| step.name)
            .collect();
        for name in [
            "fmt",
            "clippy",
            "tidy",
            "commits",
            "doc",
            "bare",
            "package",
            "loom",
            "examples",
            "miri",
            "deny",
            "kernel-deny",
            "guest-deny",
            "fuzz-deny",
            "peers-deny",
            "fuzz",
        ] {
            assert!(names.contains(&name), "{name} is missing from {names:?}");
        }
    }

    #[test]
    fn what_does_not_exist_is_skipped_with_a_reason() {
        let gate = gate(Path::new("/nowhere"));
        let loom = gate.iter().find(|step| step.name == "loom").unwrap();
        assert!(loom.skip.as_deref().unwrap().contains("model_*.rs"));
        let kernel = gate
            .iter()
            .find(|step| step.name == "kernel-build")
            .unwrap();
        assert!(kernel.skip.is_some());
    }

    #[test]
    fn a_soak_passes_its_arguments_on() {
        let steps = soak(
            Path::new("/nowhere"),
            &["--seed".to_owned(), "7".to_owned()],
        );
        assert!(
            steps[0]
                .argv
                .ends_with(&["100000".into(), "--seed".into(), "7".into()])
        );
    }

    #[test]
    fn a_soak_weakens_orderings_and_models_deeper() {
        let steps = soak(Path::new("/nowhere"), &[]);
        let names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        assert!(names.contains(&"weaken"), "{names:?}");
        let loom = steps.iter().find(|step| step.name == "loom").unwrap();
        let bound = loom
            .env
            .iter()
            .find(|(key, _)| *key == "LOOM_MAX_PREEMPTIONS");
        // Set from outside, it holds for both.
        if std::env::var_os("LOOM_MAX_PREEMPTIONS").is_none() {
            assert_eq!(bound.unwrap().1, "3");
        }
    }
}
