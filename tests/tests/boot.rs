//! The kernel under QEMU: real page tables, real faults, every era; whether it keeps the promises
//! of a machine, on one CPU and on several; and its guest program on Linux.
//!
//! The kernel judges itself by its exit status; what is asserted here is what it says it counted.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_mm::{ERAS, Era, eras_without_migration};
use std::collections::BTreeMap;
use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::PoisonError;

/// Pages that each complete run of the guest's `smoke` writes. The kernel's smoke has three.
const PAGES: u64 = 600;
/// What `run.sh` gives a boot before it ends it. CPUs of QEMU may be more than those of the host.
const TIMEOUT_SECONDS: &str = "120";
/// What a kernel says of its machine that checks locks.
const CHECKED: &str = ", locks checked";
const BARE: &str = "x86_64-unknown-none";

/// Boots run one after the other, so that a slow host is not slower still.
#[expect(
    clippy::disallowed_types,
    reason = "it keeps tests apart, which no machine runs"
)]
static BOOTS: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn the_kernel_boots_in_every_era() {
    let _one = BOOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kernel) = Kernel::build(Checks::On) else {
        return;
    };
    for era in eras_without_migration() {
        for cpus in [1, 2] {
            passes(&kernel, era, cpus);
        }
    }
    a_wrong_expectation_fails(&kernel);
    an_unknown_era_fails(&kernel);
    little_memory_is_no_violation(&kernel);
    memory_above_a_hole_is_used(&kernel);
}

/// The suite for machines: real interrupts, real shootdowns, translations of real TLBs.
#[test]
fn the_kernel_is_a_sound_machine() {
    let _one = BOOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kernel) = Kernel::build(Checks::On) else {
        return;
    };
    for (cpus, kept) in [(1, 12), (2, 35), (4, 37)] {
        let boot = kernel.boot_on(cpus, "conformance", "256M");
        assert_eq!(boot.status, Some(0), "{cpus} CPUs: {}", boot.text);
        let skipped = 37 - kept;
        let counts = format!("conformance: {kept} kept, 0 broken, {skipped} skipped");
        assert!(
            boot.lines().any(|line| line == counts),
            "{cpus} CPUs: {}",
            boot.text
        );
    }
    the_suite_sees_a_lost_flush(&kernel);
    some_options_exclude_each_other(&kernel);
}

/// As it is built for speed: it runs, and does not say that it checks what it does not.
#[test]
fn a_kernel_without_checks_boots_and_refuses_to_check() {
    let _one = BOOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(kernel) = Kernel::build(Checks::Off) else {
        return;
    };
    let boot = kernel.boot("", "256M");
    assert_eq!(boot.status, Some(0), "{}", boot.text);
    assert!(!boot.text.contains(CHECKED), "{}", boot.text);
    assert!(boot.balances(), "{}", boot.text);
    let boot = kernel.boot("minflt.check=1", "256M");
    assert_eq!(boot.status, Some(1), "{}", boot.text);
    assert!(boot.text.contains("--features checks"), "{}", boot.text);
    assert_eq!(boot.lines().count(), 3, "{}", boot.text);
}

/// CPUs that acknowledge the flushes of others, and do none.
fn the_suite_sees_a_lost_flush(kernel: &Kernel) {
    let boot = kernel.boot_on(2, "conformance control=deaf", "256M");
    assert_eq!(boot.status, Some(1), "{}", boot.text);
    let outcome = |check: &str| {
        let line = boot.lines().find_map(|line| line.strip_prefix(check));
        line.and_then(|line| line.strip_prefix(": ")).unwrap_or("")
    };
    for check in ["munmap-elsewhere", "fork-elsewhere"] {
        assert!(outcome(check).starts_with("BROKEN"), "{}", boot.text);
    }
    // It flushes what it changes itself, and is interrupted as it must be.
    for check in ["own-flush", "ipi-in-wait", "ipi-in-park", "ipi-deferred"] {
        assert_eq!(outcome(check), "kept", "{}", boot.text);
    }
}

fn some_options_exclude_each_other(kernel: &Kernel) {
    for options in [
        "control=deaf",
        "conformance canary",
        "conformance overcommit=1",
    ] {
        let boot = kernel.boot(options, "256M");
        assert_eq!(boot.status, Some(1), "{options}: {}", boot.text);
        assert_eq!(boot.lines().count(), 3, "{options}: {}", boot.text);
    }
}

/// The same program and the same endings, as Linux has them.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn linux_ends_the_smoke_alike() {
    use std::os::unix::process::ExitStatusExt;

    const SIGSEGV: i32 = 11;
    if !has_bare_target() {
        return;
    }
    build("guest", &[]);
    let smoke = root().join("guest/target").join(BARE).join("release/smoke");
    let run = |args: &[&str]| {
        Command::new(&smoke)
            .args(args)
            .output()
            .expect("runs")
            .status
    };
    assert_eq!(run(&[]).code(), Some(0));
    for part in ["write-readonly", "read-unmapped", "run-data", "run-revoked"] {
        assert_eq!(run(&[part]).signal(), Some(SIGSEGV), "{part}");
    }
}

fn passes(kernel: &Kernel, era: &Era, cpus: u32) {
    let name = era.name;
    let boot = kernel.boot_on(cpus, &format!("era={name} minflt.check=1"), "256M");
    assert!(boot.text.contains(CHECKED), "{name}: {}", boot.text);
    assert_eq!(boot.status, Some(0), "{name}: {}", boot.text);
    assert!(
        boot.text.contains(&format!("minflt: era {name}: ")),
        "{}",
        boot.text
    );
    assert!(
        boot.text.contains(&format!("minflt: machine: {cpus} CPU")),
        "{}",
        boot.text
    );
    assert!(!boot.text.contains("FAILED"), "{name}: {}", boot.text);
    // Linux sends the same signals: see `linux_ends_the_smoke_alike`.
    let endings = [
        "checks: exited with 0",
        "checks, aged: exited with 0",
        "checks, interrupted: exited with 0",
        "write-readonly: SIGSEGV (SEGV_ACCERR)",
        "read-unmapped: SIGSEGV (SEGV_MAPERR)",
        "run-data: SIGSEGV (SEGV_ACCERR)",
        "run-revoked: SIGSEGV (SEGV_ACCERR)",
    ];
    for ending in endings {
        assert!(
            boot.lines().any(|line| line == ending),
            "{name}: no \"{ending}\""
        );
    }

    let event = |event: &str| boot.events.get(event).copied().unwrap_or(0);
    let faults = event("page-faults");
    assert!(faults >= 3 * PAGES, "{name}: {faults} faults");
    assert!(
        event("anon-write-faults") + event("zero-page-cow-faults") >= 3 * PAGES,
        "{name}"
    );
    // Two pages of each program are written before it runs: where its data end, and its stack. The
    // CPU took no fault for them.
    let written = 2 * endings.len() as u64;
    assert_eq!(
        event("minor-faults") + event("signals"),
        faults + written,
        "{name}: all had an outcome"
    );
    assert!(event("signals") >= 3, "{name}");
    assert_eq!(event("out-of-memory"), 0, "{name}");
    // On several a program goes to another one now and then, and its flushes reach the one before.
    if cpus == 1 {
        assert_eq!(event("tlb-shootdowns"), 0, "{name}");
    }

    let speculated = event("speculative-faults");
    if era.config.fallback_order.speculates() {
        let tried = speculated + event("speculative-faults-failed") + event("spf-access");
        assert_eq!(
            tried, faults,
            "{name}: every fault was tried without the lock first"
        );
        assert!(speculated > faults / 2, "{name}: {speculated} of {faults}");
    } else {
        assert_eq!(speculated, 0, "{name}");
        let spf = boot.events.keys().find(|event| event.starts_with("spf-"));
        assert_eq!(spf, None, "{name}");
    }

    // Each of six processes as it ended and after it was gone; and once at the end.
    assert!(boot.checks["ledger"] >= 12, "{name}: {:?}", boot.checks);
    assert!(boot.checks["tables"] >= 6, "{name}: {:?}", boot.checks);
    assert!(boot.balances(), "{name}: {}", boot.text);
    // The hardware's own bits were at work while contents, counts and entries held.
    assert!(boot.accessed_bits() > PAGES, "{name}: {}", boot.text);
}

fn a_wrong_expectation_fails(kernel: &Kernel) {
    let boot = kernel.boot("canary", "256M");
    assert_eq!(boot.status, Some(1), "{}", boot.text);
    let failed: Vec<&str> = boot
        .lines()
        .filter(|line| line.contains("FAILED"))
        .collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    assert_eq!(failed[0], "canary: FAILED, must have exited with 0");
    assert!(
        failed[1].starts_with("minflt: boot smoke FAILED"),
        "{failed:?}"
    );
}

fn an_unknown_era_fails(kernel: &Kernel) {
    let boot = kernel.boot("era=linux-1.0", "256M");
    assert_eq!(boot.status, Some(1), "{}", boot.text);
    assert!(
        boot.text.contains("unknown era \"linux-1.0\"; eras are:"),
        "{}",
        boot.text
    );
    for era in ERAS {
        assert!(boot.text.contains(era.name), "{}", boot.text);
    }
}

/// Where everything may be promised, the program dies of it; the machine does not, and every frame
/// comes back. Where not, mmap refuses what there is not.
fn little_memory_is_no_violation(kernel: &Kernel) {
    let boot = kernel.boot("", "5M");
    assert_eq!(boot.status, Some(1), "{}", boot.text);
    assert!(boot.text.contains("mmap: errno 12"), "{}", boot.text);
    assert!(boot.balances(), "{}", boot.text);
    let boot = kernel.boot("overcommit=1", "5M");
    assert_eq!(boot.status, Some(1), "{}", boot.text);
    assert!(
        boot.text.contains("checks: killed: out of memory"),
        "{}",
        boot.text
    );
    assert!(boot.events["out-of-memory"] >= 1, "{:?}", boot.events);
    assert!(
        boot.text.contains("run-data: SIGSEGV (SEGV_ACCERR)"),
        "{}",
        boot.text
    );
    assert!(boot.balances(), "{}", boot.text);
}

/// The machine has 2 GiB below its hole, and 1 GiB from 4 GiB on.
fn memory_above_a_hole_is_used(kernel: &Kernel) {
    let boot = kernel.boot("", "3G");
    assert_eq!(boot.status, Some(0), "{}", boot.text);
    assert!(boot.balances(), "{}", boot.text);
    let hole = boot.lines().find(|line| line.starts_with("minflt: hole: "));
    let to_4_gib = hole.is_some_and(|hole| hole.ends_with(" to 0x100000000"));
    assert!(to_4_gib, "{}", boot.text);
    let large = boot.lines().find_map(|line| {
        let (mib, highest) = line
            .strip_prefix("memory: ")?
            .split_once(" MiB in large runs, up to frame ")?;
        Some((mib.parse::<u64>().ok()?, highest.parse::<u64>().ok()?))
    });
    // The last run ends where memory does.
    let (mib, highest) = large.expect("a line about all frames");
    assert!(mib > 2900, "{}", boot.text);
    assert_eq!(highest, ((5 << 30) - (4 << 20)) >> 12, "{}", boot.text);
}

/// Whether the kernel is built with the feature `checks`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checks {
    On,
    Off,
}

/// The built image, which the next build replaces.
struct Kernel {
    image: PathBuf,
}

/// What a boot said.
struct Boot {
    status: Option<i32>,
    text: String,
    events: BTreeMap<String, u64>,
    checks: BTreeMap<String, u64>,
}

impl Kernel {
    /// Builds the kernel with its guest, unless there is no QEMU to run it.
    fn build(checks: Checks) -> Option<Self> {
        let qemu = env::var_os("QEMU").unwrap_or_else(|| "qemu-system-x86_64".into());
        let asked = Command::new(qemu).arg("--version").output();
        if !asked.is_ok_and(|answer| answer.status.success()) {
            // Not by `println!`: the harness would keep it to itself.
            writeln!(std::io::stdout(), "skipped: apt install qemu-system-x86")
                .expect("a terminal");
            return None;
        }
        if !has_bare_target() {
            return None;
        }
        let features: &[&str] = match checks {
            Checks::On => &["--features", "checks"],
            Checks::Off => &[],
        };
        build("kernel", features);
        let image = root()
            .join("kernel/target")
            .join(BARE)
            .join("release/minflt-kernel");
        Some(Self { image })
    }

    fn boot(&self, command_line: &str, ram: &str) -> Boot {
        self.boot_on(1, command_line, ram)
    }

    fn boot_on(&self, cpus: u32, command_line: &str, ram: &str) -> Boot {
        let output = Command::new(root().join("kernel/run.sh"))
            .arg(&self.image)
            .args(command_line.split_whitespace())
            .env("MINFLT_TIMEOUT", TIMEOUT_SECONDS)
            .env("MINFLT_RAM", ram)
            .env("MINFLT_CPUS", cpus.to_string())
            .output()
            .expect("kernel/run.sh runs");
        Boot::read(&output)
    }
}

impl Boot {
    fn read(output: &Output) -> Self {
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        let counts = |kind: &str| {
            let count = |line: &str| {
                let (name, count) = line.strip_prefix(kind)?.split_once(' ')?;
                Some((name.to_owned(), count.parse().ok()?))
            };
            text.lines().filter_map(count).collect()
        };
        Self {
            status: output.status.code(),
            events: counts("event "),
            checks: counts("check "),
            text,
        }
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.text.lines()
    }

    /// Whether the ledger's line adds up, with nothing left of any process.
    fn balances(&self) -> bool {
        let Some(line) = self.lines().find_map(|line| line.strip_prefix("ledger: ")) else {
            return false;
        };
        let words = line.split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let [total, free, reserved, slab, tables, anon] = numbers[..] else {
            return false;
        };
        total == free + reserved + slab && tables == 0 && anon == 0
    }

    /// Accessed bits that the CPU set, not the kernel.
    fn accessed_bits(&self) -> u64 {
        let prefix = "checks, aged: the CPU set at least ";
        let line = self.lines().find_map(|line| line.strip_prefix(prefix));
        let count = line.and_then(|line| line.split(' ').next());
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

/// Builds a package outside the workspace, in its own folder and with its own settings.
fn build(package: &str, options: &[&str]) {
    let folder = root().join(package);
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .current_dir(&folder)
        .args(["build", "--release", "--target-dir"]);
    cargo.arg(folder.join("target")).args(options);
    // What this workspace's cargo was told (flags, wrappers, target folder) is not meant for it.
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let inherited = text.starts_with("CARGO") && text != "CARGO_HOME"
            || text.starts_with("RUSTC")
            || text == "RUSTFLAGS";
        if inherited {
            cargo.env_remove(&name);
        }
    }
    let output = cargo.output().expect("cargo runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "building {package} failed:\n{errors}"
    );
}

/// Whether there is a standard library for the kernel's target; says how to get it if not.
fn has_bare_target() -> bool {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let printed = Command::new(rustc)
        .current_dir(root())
        .args(["--print", "target-libdir", "--target", BARE])
        .output();
    let folder = printed.ok().and_then(|printed| {
        let text = String::from_utf8(printed.stdout).ok()?;
        Some(PathBuf::from(text.trim_end()))
    });
    let there = folder.is_some_and(|folder| folder.is_dir());
    if !there {
        writeln!(std::io::stdout(), "skipped: rustup target add {BARE}").expect("a terminal");
    }
    there
}

fn root() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("tests/ lies in the repository")
}
