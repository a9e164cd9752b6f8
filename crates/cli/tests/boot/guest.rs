//! Guest programs, and their boots.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BARE: &str = "x86_64-unknown-none";

/// Boots `program` by `minflt boot`.
pub(crate) fn boot(program: &Path, options: &[&str], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minflt"));
    command.current_dir(root()).arg("boot").args(options);
    command.arg("--").arg(program).args(arguments);
    command.output().expect("minflt runs")
}

/// How often the kernel counted an event.
pub(crate) fn event(output: &Output, name: &str) -> u64 {
    let text = text(&output.stderr);
    let prefix = format!("event {name} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&prefix));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// What was said.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The folder with the guest's programs, unless something is missing.
pub(crate) fn programs() -> Option<PathBuf> {
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
    Some(folder.join("target").join(BARE).join("release"))
}

/// Says why something does not run. Not by `println!`: the harness would keep it to itself.
pub(crate) fn skipped(why: &str) {
    writeln!(std::io::stdout(), "skipped: {why}").expect("a terminal");
}

pub(crate) fn root() -> &'static Path {
    let cli = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = cli.parent().and_then(Path::parent);
    root.expect("crates/cli lies in the repository")
}
