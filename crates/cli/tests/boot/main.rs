//! `minflt boot`: the guest's smoke program on the minflt kernel, and on a Linux where
//! `MINFLT_LINUX` names one; its calls, and its storm, in every era; programs of others. Skipped,
//! with the reason, without QEMU or the kernel's target.
#![cfg(target_os = "linux")]
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

mod guest;
mod storm;
mod unmodified;

use guest::{boot, event, programs, skipped, text};
use std::env;
use std::path::Path;
use std::process::Command;

/// One after the other: each boots a machine.
#[test]
fn programs_run_on_the_kernel_and_on_linux() {
    let Some(programs) = programs() else { return };
    storm::all(&programs.join("storm"));
    threads_in_arenas_of_their_own_do_not_interrupt_each_other(&programs.join("bench"));
    calls_are_as_on_linux(&programs.join("calls"));
    unmodified::all();
    let smoke = programs.join("smoke");
    on(&smoke, "minflt");
    the_kernel_says_what_it_is(&smoke);
    time_may_run_out(&smoke);
    a_wait_without_an_end_is_ended(&smoke);
    match env::var_os("MINFLT_LINUX") {
        Some(_) => on(&smoke, "linux"),
        None => skipped("MINFLT_LINUX names no Linux kernel"),
    }
}

/// Two threads on two CPUs that each map, touch and unmap. A thread that moves to the other CPU may
/// be interrupted for where it comes from a few times.
fn threads_in_arenas_of_their_own_do_not_interrupt_each_other(bench: &Path) {
    let asked = |era| {
        let boot = boot(
            bench,
            &["--cpus", "2", "--era", era],
            &["rates", "100", "2"],
        );
        assert_eq!(boot.status.code(), Some(0), "{era}: {boot:?}");
        event(&boot, "tlb-shootdown-targets")
    };
    let (linux, own) = (asked("linux-6.15"), asked("minflt"));
    assert!(own < linux / 4, "linux-6.15: {linux}, minflt: {own}");
}

/// The program's own checks, on this Linux and on the kernel.
fn calls_are_as_on_linux(calls: &Path) {
    let here = Command::new(calls).output().expect("runs");
    assert_eq!(here.status.code(), Some(0), "{here:?}");
    for cpus in ["1", "2"] {
        let boot = boot(calls, &["--checks", "--cpus", cpus], &[]);
        assert_eq!(boot.status.code(), Some(0), "{boot:?}");
        assert_eq!(text(&boot.stdout), "calls: all are right\n");
    }
    let huge = boot(calls, &["--checks", "--append", "hugepages=4"], &["huge"]);
    assert_eq!(huge.status.code(), Some(0), "{huge:?}");
    let none = boot(calls, &["--checks"], &["huge"]);
    assert_eq!(none.status.code(), Some(101), "{none:?}");
}

/// The same output, statuses and signals on either kernel.
fn on(smoke: &Path, kernel: &str) {
    let checks = boot(smoke, &["--kernel", kernel], &[]);
    assert_eq!(checks.status.code(), Some(0), "{kernel}: {checks:?}");
    assert_eq!(
        text(&checks.stdout),
        "smoke: 600 pages written, verified, discarded, protected and unmapped\n",
        "{kernel}"
    );
    let faults = event(&checks, "minor-faults");
    assert!(faults > 600, "{kernel}: {faults}");
    // Arguments arrive whole, and the status is the program's.
    let unknown = boot(smoke, &["--kernel", kernel], &["no  such", ""]);
    assert_eq!(unknown.status.code(), Some(2), "{kernel}: {unknown:?}");
    assert_eq!(
        text(&unknown.stdout),
        "smoke: no such part: no  such\n",
        "{kernel}"
    );
    let killed = boot(smoke, &["--kernel", kernel], &["read-unmapped"]);
    assert_eq!(killed.status.code(), Some(128 + 11), "{kernel}: {killed:?}");
    assert!(
        text(&killed.stderr).ends_with("minflt: /smoke: ended by SIGSEGV\n"),
        "{kernel}: {killed:?}"
    );
}

fn the_kernel_says_what_it_is(smoke: &Path) {
    let options = ["--log", "--icount", "--era", "linux-4.13", "--mem", "64M"];
    let boot = boot(smoke, &options, &[]);
    assert_eq!(boot.status.code(), Some(0), "{boot:?}");
    let said = text(&boot.stderr);
    for words in [
        "minflt: era linux-4.13: ",
        "minflt: machine: 1 CPU, 6",
        "ledger: ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!text(&boot.stdout).contains("minflt:"), "{boot:?}");
    assert_eq!(event(&boot, "speculative-faults"), 0, "{said}");
}

/// On one CPU the kernel sees that all sleep, and nobody will wake one.
fn a_wait_without_an_end_is_ended(smoke: &Path) {
    let boot = boot(smoke, &["--log"], &["wait-for-nobody"]);
    assert_eq!(boot.status.code(), Some(128 + 9), "{boot:?}");
    let said = text(&boot.stderr);
    let why = "minflt: all threads wait, and none can be woken: their processes end\n";
    assert!(said.contains(why), "{said}");
}

fn time_may_run_out(smoke: &Path) {
    let boot = boot(smoke, &["--timeout", "1ms"], &[]);
    assert_eq!(boot.status.code(), Some(1), "{boot:?}");
    let said = text(&boot.stderr);
    assert!(
        said.starts_with("minflt: boot: no end after 0.001 s"),
        "{said}"
    );
}
