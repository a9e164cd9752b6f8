//! `cargo xtask fuzz`: the fuzz targets, built and run without cargo-fuzz.
//!
//! What cargo-fuzz adds is flags for the compiler and arguments for libFuzzer. Here they are few:
//! no address sanitizer, since the memory that `mm` manages is one mapping of the host in which it
//! sees nothing, and the other targets have no unsafe code; no traced comparisons, since seeds have
//! all keywords; and inputs are not weighted by how rare is what they reach, which takes two thirds
//! of the time where a run takes 0.2 ms.

use crate::step::{Step, run_all};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The targets, as `fuzz/fuzz_targets` has them.
const TARGETS: [&str; 8] = [
    "calls",
    "experiment_files",
    "fit_files",
    "lock_files",
    "machine_files",
    "rows",
    "schedules",
    "steps",
];

/// Seconds that each target runs for where none are asked for: all of them within a minute.
const SECONDS_EACH: u32 = 6;
/// Seconds that one input may take.
const TIMEOUT_S: u32 = 20;

/// What runs here is what is built for: with `--target`, build scripts are not instrumented.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Counters of edges, as libFuzzer reads them.
const FLAGS: &str = "-Cpasses=sancov-module \
                     -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table \
                     --cfg fuzzing";

/// Which targets to run, and for how long.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Plan {
    targets: Vec<&'static str>,
    /// Seconds each, where what is found is to be kept; else a few, from the committed corpus.
    seconds: Option<u32>,
}

impl Plan {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            targets: Vec::new(),
            seconds: None,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--seconds" {
                let seconds = args.next().and_then(|text| text.parse().ok());
                let seconds = seconds.filter(|seconds| *seconds > 0);
                plan.seconds = Some(seconds.ok_or("--seconds: give a whole number from 1 on")?);
                continue;
            }
            let known = TARGETS.iter().find(|target| **target == *arg);
            let all = || {
                format!(
                    "no target is called `{arg}`; there are {}",
                    TARGETS.join(", ")
                )
            };
            plan.targets.push(known.ok_or_else(all)?);
        }
        if plan.targets.is_empty() {
            plan.targets = TARGETS.to_vec();
        }
        Ok(plan)
    }
}

/// Why the targets cannot be built here, if they cannot.
pub(crate) fn lacking() -> Option<&'static str> {
    let works = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !works("cargo", &["+nightly", "--version"]) {
        return Some("no nightly compiler (rustup toolchain install nightly)");
    }
    let cxx = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    if !works(&cxx, &["--version"]) {
        return Some("no C++ compiler, which libFuzzer is built with (apt-get install g++)");
    }
    None
}

/// The step of the gate; with `args` that of a soak.
pub(crate) fn step(root: &Path, args: &str) -> Step {
    let command = format!("run --quiet --package xtask -- fuzz {args}");
    let step = Step::cargo("fuzz", root, &command);
    let step = step.only_if(
        || root.join("fuzz/Cargo.toml").is_file(),
        "there is no fuzz/Cargo.toml",
    );
    match lacking() {
        Some(why) => step.only_if(|| false, why),
        None => step,
    }
}

/// Builds all targets and runs those named, or all.
pub(crate) fn run(root: &Path, args: &[String]) -> ExitCode {
    let plan = match Plan::parse(args) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("xtask: fuzz: {why}");
            return ExitCode::from(2);
        }
    };
    if let Some(why) = lacking() {
        println!("skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let built = run_all(&[build(root)]);
    if built != ExitCode::SUCCESS {
        return built;
    }
    let steps: io::Result<Vec<Step>> = plan
        .targets
        .iter()
        .map(|target| target_step(&root.join("fuzz"), target, plan.seconds))
        .collect();
    match steps {
        Ok(steps) => run_all(&steps),
        Err(error) => {
            eprintln!("xtask: fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &Path) -> Step {
    let args = format!("+nightly build --release --target {TRIPLE} --target-dir target");
    let mut step = Step::cargo("build", root.join("fuzz"), &args);
    // Only rustup's proxy takes `+toolchain`; the cargo that runs us is the real one.
    step.argv[0] = "cargo".to_owned();
    step.with_env("RUSTFLAGS", FLAGS)
}

/// Runs one target. Its corpus is read where it lies; what is found goes to `found`, if it is kept.
fn target_step(fuzz: &Path, target: &'static str, seconds: Option<u32>) -> io::Result<Step> {
    let artifacts = fuzz.join("artifacts").join(target);
    fs::create_dir_all(&artifacts)?;
    let corpus = fuzz.join("corpus").join(target);
    let mut step = Step::cargo(target, fuzz, "");
    step.argv = vec![
        program(fuzz, target).display().to_string(),
        format!("-artifact_prefix={}/", artifacts.display()),
        format!("-timeout={TIMEOUT_S}"),
        "-entropic=0".to_owned(),
        "-print_final_stats=1".to_owned(),
        format!("-max_total_time={}", seconds.unwrap_or(SECONDS_EACH)),
    ];
    match seconds {
        Some(_) => {
            let found = fuzz.join("found").join(target);
            fs::create_dir_all(&found)?;
            let folders = [found, corpus].map(|folder| folder.display().to_string());
            step.argv.extend(folders);
        }
        // Where nothing is kept, all machines begin alike.
        None => step.argv.extend([
            "-seed=1".to_owned(),
            "-verbosity=0".to_owned(),
            format!("-seed_inputs={}", files(&corpus)?.join(",")),
        ]),
    }
    Ok(step)
}

/// Where a target is built.
fn program(fuzz: &Path, target: &str) -> PathBuf {
    fuzz.join("target")
        .join(TRIPLE)
        .join("release")
        .join(target)
}

/// The paths of a folder's files, in order.
fn files(folder: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path().display().to_string());
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{Plan, TARGETS};
    use std::fs;
    use std::path::Path;

    fn parse(args: &[&str]) -> Result<Plan, String> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Plan::parse(&args)
    }

    #[test]
    fn targets_and_seconds_are_read_and_others_refused() {
        let all = parse(&[]).unwrap();
        assert_eq!((all.targets.as_slice(), all.seconds), (&TARGETS[..], None));
        let one = parse(&["steps", "--seconds", "60"]).unwrap();
        assert_eq!((one.targets, one.seconds), (vec!["steps"], Some(60)));
        assert!(parse(&["stops"]).unwrap_err().contains("machine_files"));
        for seconds in [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"]] {
            assert!(parse(seconds).unwrap_err().contains("--seconds"));
        }
    }

    #[test]
    fn every_target_of_the_folder_is_run() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let entries = fs::read_dir(root.join("fuzz/fuzz_targets")).unwrap();
        let mut found: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        assert_eq!(found, TARGETS.map(|target| format!("{target}.rs")));
    }
}
