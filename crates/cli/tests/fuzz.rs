//! System calls at random on the minflt kernel (`guest/src/bin/fuzz.rs`): about half a minute with
//! fixed seeds, or with fresh ones as long as `MINFLT_FUZZ_SECONDS` says. Skipped, with the reason,
//! without QEMU or the kernel's target.
#![cfg(target_os = "linux")]
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

#[path = "boot/guest.rs"]
mod guest;

use core::time::Duration;
use guest::{boot, event, programs, text};
use minflt_mm::eras_without_migration;
use std::env;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// How long to go on, in seconds.
const SECONDS: &str = "MINFLT_FUZZ_SECONDS";

/// A machine, and what it promises.
#[derive(Clone, Copy, Debug)]
struct Machine {
    cpus: &'static str,
    mem: &'static str,
    /// Words for the kernel's command line.
    options: &'static [&'static str],
}

const fn machine(
    cpus: &'static str,
    mem: &'static str,
    options: &'static [&'static str],
) -> Machine {
    Machine { cpus, mem, options }
}

const PLENTY: Machine = machine("2", "64M", &[]);
const LITTLE: Machine = machine("2", "32M", &["overcommit=1"]);

/// The machines of a long run.
const MACHINES: [Machine; 7] = [
    PLENTY,
    LITTLE,
    machine("1", "16M", &["overcommit=1"]),
    machine("4", "64M", &[]),
    machine("1", "48M", &["swap=16"]),
    machine("4", "48M", &["overcommit=1", "swap=8"]),
    machine("2", "64M", &["overcommit=2", "swap=16"]),
];

/// No program can crash the kernel, or hang it, or have it lose a frame.
#[test]
fn the_kernel_stays_up_whatever_programs_do() {
    let Some(programs) = programs() else { return };
    let fuzz = programs.join("fuzz");
    match env::var(SECONDS) {
        Ok(seconds) => {
            let seconds = seconds.parse().expect("MINFLT_FUZZ_SECONDS is a number");
            for_long(&fuzz, Duration::from_secs(seconds));
        }
        Err(_) => {
            stays_up(&fuzz, PLENTY, "spf-2017", 1, 100);
            stays_up(&fuzz, LITTLE, "spf-2017", 2, 100);
            stays_up(&fuzz, PLENTY, "linux-6.15", 3, 100);
            stays_up(&fuzz, LITTLE, "linux-6.15", 4, 100);
        }
    }
}

/// Each machine in each era in turn, with seeds that no run had before.
#[expect(
    clippy::disallowed_methods,
    reason = "it runs for as long as was asked for, by the host's clock"
)]
fn for_long(fuzz: &Path, time: Duration) {
    let begun = Instant::now();
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut seed = since.expect("a clock that is set").as_secs() << 16;
    loop {
        for machine in MACHINES {
            for era in eras_without_migration() {
                if begun.elapsed() >= time {
                    return;
                }
                stays_up(fuzz, machine, era.name, seed, 400);
                seed += 1;
            }
        }
    }
}

fn stays_up(fuzz: &Path, machine: Machine, era: &str, seed: u64, rounds: u64) {
    let Machine { cpus, mem, options } = machine;
    let mut arguments = vec!["--cpus", cpus, "--mem", mem, "--era", era];
    arguments.extend(["--timeout", "300", "--log"]);
    for option in options {
        arguments.extend(["--append", option]);
    }
    let numbers = [seed, rounds, 1 + seed % 5].map(|number| number.to_string());
    let words: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let boot = boot(fuzz, &arguments, &words);
    let (said, log) = (text(&boot.stdout), text(&boot.stderr));
    let tail: Vec<&str> = log.lines().rev().take(40).collect();
    let what = format!(
        "minflt boot {} -- fuzz {}",
        arguments.join(" "),
        words.join(" ")
    );
    let tail: String = tail
        .into_iter()
        .rev()
        .map(|line| format!("{line}\n"))
        .collect();
    match boot.status.code() {
        Some(0) => assert!(said.contains(", done: "), "{what}:\n{said}{tail}"),
        // Where the parent itself needs a page and there is none, it is the one that ends.
        Some(137) if !options.is_empty() => {}
        status => panic!("{what}: {status:?}\n{said}{tail}"),
    }
    assert_ne!(event(&boot, "fork-calls"), 0, "{what}:\n{tail}");
}
