//! `minflt boot`: the guest's smoke program on the minflt kernel, and on a Linux where
//! `MINFLT_LINUX` names one. Skipped, with the reason, without QEMU or the kernel's target.
#![cfg(target_os = "linux")]
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BARE: &str = "x86_64-unknown-none";

/// One after the other: each boots a machine.
#[test]
fn a_program_runs_on_the_kernel_and_on_linux() {
    let Some(smoke) = smoke() else { return };
    on(&smoke, "minflt");
    the_kernel_says_what_it_is(&smoke);
    time_may_run_out(&smoke);
    match env::var_os("MINFLT_LINUX") {
        Some(_) => on(&smoke, "linux"),
        None => skipped("MINFLT_LINUX names no Linux kernel"),
    }
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

fn time_may_run_out(smoke: &Path) {
    let boot = boot(smoke, &["--timeout", "1ms"], &[]);
    assert_eq!(boot.status.code(), Some(1), "{boot:?}");
    let said = text(&boot.stderr);
    assert!(
        said.starts_with("minflt: boot: no end after 0.001 s"),
        "{said}"
    );
}

fn boot(smoke: &Path, options: &[&str], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minflt"));
    command.current_dir(root()).arg("boot").args(options);
    command.arg("--").arg(smoke).args(arguments);
    command.output().expect("minflt runs")
}

fn event(output: &Output, name: &str) -> u64 {
    let text = text(&output.stderr);
    let prefix = format!("event {name} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&prefix));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The guest's smoke program, unless something is missing.
fn smoke() -> Option<PathBuf> {
    let qemu = env::var_os("QEMU").unwrap_or_else(|| "qemu-system-x86_64".into());
    let asked = Command::new(qemu).arg("--version").output();
    if !asked.is_ok_and(|answer| answer.status.success()) {
        skipped("apt install qemu-system-x86");
        return None;
    }
    let mut rustc = Command::new("rustc");
    rustc.current_dir(root());
    let printed = rustc
        .args(["--print", "target-libdir", "--target", BARE])
        .output();
    if !printed.is_ok_and(|printed| Path::new(text(&printed.stdout).trim_end()).is_dir()) {
        skipped("rustup target add x86_64-unknown-none");
        return None;
    }
    let folder = root().join("guest");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(&folder).args(["build", "--release"]);
    cargo.arg("--target-dir").arg(folder.join("target"));
    // What this workspace's cargo was told is not meant for it.
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        if name.starts_with("CARGO") && name != "CARGO_HOME" || name == "RUSTFLAGS" {
            cargo.env_remove(name);
        }
    }
    let built = cargo.output().expect("cargo runs");
    assert!(built.status.success(), "{}", text(&built.stderr));
    Some(folder.join("target").join(BARE).join("release/smoke"))
}

/// Not by `println!`: the harness would keep it to itself.
fn skipped(why: &str) {
    writeln!(std::io::stdout(), "skipped: {why}").expect("a terminal");
}

fn root() -> &'static Path {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = cli.parent().and_then(Path::parent);
    root.expect("crates/cli lies in the repository")
}
