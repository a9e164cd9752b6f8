//! Programs that nobody here compiled for this kernel: Debian's busybox with a script, a program of
//! POSIX threads, and one of Rust's library and rayon. What they print is what they print on Linux.

use crate::guest::{boot, root, skipped, text};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One that takes locks to fault, one that speculates, one that scales.
const ERAS: [&str; 3] = ["linux-6.15", "spf-2017", "minflt"];

/// The busybox whose output on Linux 6.12 is in `programs/busybox.out`: Debian 12's busybox-static
/// 1:1.35.0-4+deb12u1+b1.
const SHA_256: &str = "3d9f2889d6782537624a4e1a10e68a2ddd53e0ee8bac02676f27308f42ec6bf6";

/// All of them. Each is skipped, with the reason, where what it needs is missing.
pub(crate) fn all() {
    busybox();
    let folder = programs();
    if let Some(threads) = compile(&folder.join("pthreads.c")) {
        as_here(&threads);
    }
    if let Some(parallel) = build(&folder.join("parallel")) {
        as_here(&parallel);
    }
}

fn programs() -> PathBuf {
    root().join("tests/programs")
}

/// A static busybox, if there is one.
fn find_busybox() -> Option<PathBuf> {
    let named = env::var_os("MINFLT_BUSYBOX").map(PathBuf::from);
    let usual = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    let found = named.into_iter().chain(usual).find(|path| path.is_file())?;
    let bytes = fs::read(&found).ok()?;
    // A dynamic one names its interpreter in its first page.
    let first = &bytes[..bytes.len().min(4096)];
    let dynamic = first.windows(7).any(|part| part == b"ld-linu");
    (!dynamic).then_some(found)
}

/// The script's output is that of Linux: of one that boots beside, and of the one that was kept.
fn busybox() {
    let Some(busybox) = find_busybox() else {
        skipped("apt install busybox-static");
        return;
    };
    let printed = Command::new("sha256sum").arg(&busybox).output();
    let printed = text(&printed.expect("runs").stdout);
    let sum = printed.split_whitespace().next().unwrap_or("").to_owned();
    println!("busybox: {sum}");
    let script = programs().join("busybox.sh");
    let script = script.to_str().expect("UTF-8");
    let lines = fs::read_to_string(script).expect("there").lines().count();
    assert!(lines >= 150, "{lines}");
    let run = |options: &[&str]| {
        let mut all = vec!["--cpus", "2", "--add", script];
        all.extend(options);
        let boot = boot(&busybox, &all, &["sh", "/busybox.sh"]);
        assert_eq!(boot.status.code(), Some(0), "{options:?}: {boot:?}");
        text(&boot.stdout)
    };
    let mut expected = None;
    if sum == SHA_256 {
        let kept = fs::read_to_string(programs().join("busybox.out"));
        expected = Some(kept.expect("there"));
    }
    if env::var_os("MINFLT_LINUX").is_some() {
        let linux = run(&["--kernel", "linux"]);
        if let Some(kept) = &expected {
            assert_eq!(&linux, kept, "Linux, and what was kept of Linux 6.12");
        }
        expected = Some(linux);
    }
    let Some(expected) = expected else {
        skipped("another busybox than was kept, and MINFLT_LINUX names no Linux kernel");
        return;
    };
    for era in ERAS {
        let got = run(&["--checks", "--era", era]);
        let differs = got
            .lines()
            .zip(expected.lines())
            .find(|(got, want)| got != want);
        assert_eq!(differs, None, "{era}");
        assert_eq!(got, expected, "{era}");
    }
}

/// Compiles a program of C, statically, if there is a compiler with such a library.
fn compile(source: &Path) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pthreads");
    let mut compiler = Command::new("cc");
    compiler.args(["-static", "-O2", "-pthread", "-o"]);
    let done = compiler.arg(&program).arg(source).output();
    if !done.is_ok_and(|done| done.status.success()) {
        skipped("cc -static needs a C library to link with: apt install gcc libc6-dev");
        return None;
    }
    Some(program)
}

/// Builds a program of Rust, statically, if that can be done here.
fn build(package: &Path) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("parallel");
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in env::vars_os() {
        let Some(name) = name.to_str() else { continue };
        if name.starts_with("CARGO") && name != "CARGO_HOME" || name == "RUSTFLAGS" {
            cargo.env_remove(name);
        }
    }
    let triple = "x86_64-unknown-linux-gnu";
    cargo
        .current_dir(package)
        .args(["build", "--release", "--locked"]);
    cargo
        .args(["--target", triple, "--target-dir"])
        .arg(&target);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let done = cargo.output().expect("cargo runs");
    if !done.status.success() {
        let errors = text(&done.stderr);
        let why = errors.lines().find(|line| line.starts_with("error"));
        skipped(why.unwrap_or("cargo cannot build a static program for x86_64-unknown-linux-gnu"));
        return None;
    }
    Some(target.join(triple).join("release/parallel"))
}

/// The program prints the same on this Linux and on the kernel, on four CPUs.
fn as_here(program: &Path) {
    let here = Command::new(program).output().expect("runs");
    assert_eq!(here.status.code(), Some(0), "{here:?}");
    for era in ERAS {
        let boot = boot(program, &["--checks", "--cpus", "4", "--era", era], &[]);
        assert_eq!(boot.status.code(), Some(0), "{era}: {boot:?}");
        assert_eq!(text(&boot.stdout), text(&here.stdout), "{era}");
    }
}
