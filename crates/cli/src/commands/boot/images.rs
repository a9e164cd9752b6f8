//! The kernel and the guest programs, built from this repository.

use crate::error::{Error, failed, usage};
use crate::scratch::Scratch;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of kernel and guest.
const BARE: &str = "x86_64-unknown-none";

/// What is said where there are no sources.
const NO_SOURCES: &str = "the sources of the kernel are not here; run from minflt's repository";

/// Whether the kernel checks the order of locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Locks {
    /// It does.
    Checked,
    /// It does not.
    Unchecked,
}

/// Builds the kernel; returns its image.
pub(crate) fn kernel(scratch: &Scratch, locks: Locks) -> Result<PathBuf, Error> {
    let features = match locks {
        Locks::Checked => "checks",
        Locks::Unchecked => "",
    };
    take(build(scratch, "kernel", features)?, "minflt-kernel")
}

/// Builds the guest programs, and returns the one of this name.
pub(crate) fn guest(scratch: &Scratch, name: &str) -> Result<PathBuf, Error> {
    take(build(scratch, "guest", "")?, name)
}

fn take(mut built: BTreeMap<String, PathBuf>, name: &str) -> Result<PathBuf, Error> {
    let missing = || failed("boot")(&format!("cargo built no {name}"));
    built.remove(name).ok_or_else(missing)
}

/// Why nothing can be built here, if so, and how to change that.
pub(crate) fn missing() -> Option<String> {
    let Some(root) = root() else {
        return Some(NO_SOURCES.into());
    };
    match has_target(&root.join("kernel")) {
        Ok(true) => None,
        Ok(false) => Some(no_target()),
        Err(error) => Some(no_rust(&error)),
    }
}

/// The folder that holds `kernel/` and `guest/`: one that this program runs in or was built in.
fn root() -> Option<PathBuf> {
    let here = env::current_dir().ok();
    let program = env::current_exe().ok();
    let is_root = |folder: &&Path| {
        folder.join("kernel/linker.ld").is_file() && folder.join("guest/Cargo.toml").is_file()
    };
    let mut folders = here
        .iter()
        .chain(&program)
        .flat_map(|path| path.ancestors());
    folders.find(is_root).map(Path::to_owned)
}

/// One line of cargo's messages, as far as it is of use here.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds a package outside the workspace, with its own settings; returns its programs.
fn build(
    scratch: &Scratch,
    package: &str,
    features: &str,
) -> Result<BTreeMap<String, PathBuf>, Error> {
    let or_image = |why: &str| usage(format!("boot: {why}, or give an image by --kernel IMAGE"));
    let no_cargo = |error| or_image(&no_rust(&error));
    let root = root().ok_or_else(|| or_image(NO_SOURCES))?;
    let folder = root.join(package);
    if !has_target(&folder).map_err(no_cargo)? {
        return Err(usage(format!("boot: {}", no_target())));
    }
    let mut cargo = tool("cargo", &folder);
    cargo.args([
        "build",
        "--release",
        "--locked",
        "--message-format=json-render-diagnostics",
    ]);
    if !features.is_empty() {
        cargo.args(["--features", features]);
    }
    cargo.stdout(scratch.output("messages")?);
    cargo.stderr(scratch.output("errors")?);
    let status = scratch.run(&mut cargo, None).map_err(no_cargo)?;
    if status.is_none_or(|status| !status.success()) {
        let errors = scratch.text("errors");
        let first = errors.lines().find(|line| line.starts_with("error"));
        let first = first.unwrap_or("cargo gives no reason");
        return Err(Error::Failed(format!(
            "boot: {first}; see `cd {} && cargo build --release`",
            folder.display()
        )));
    }
    let messages = scratch.text("messages");
    let messages = messages.lines().filter_map(|line| {
        let message: Message = serde_json::from_str(line).ok()?;
        Some((message.target?.name, message.executable?))
    });
    Ok(messages.collect())
}

/// Whether the core library of the bare target is there.
fn has_target(folder: &Path) -> io::Result<bool> {
    let mut rustc = tool("rustc", folder);
    rustc.args(["--print", "target-libdir", "--target", BARE]);
    let printed = rustc.output()?;
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    Ok(Path::new(text.trim_end()).is_dir())
}

fn no_target() -> String {
    format!("the kernel's target is not installed; `rustup target add {BARE}` installs it")
}

fn no_rust(error: &io::Error) -> String {
    format!(
        "cannot run Rust's tools to build the kernel: {error}; install rustup from \
         https://rustup.rs"
    )
}

/// A tool of Rust, without what a cargo that runs this program told it: that is not meant for
/// other packages.
fn tool(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(name);
    command.current_dir(folder);
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let kept =
            matches!(text, "CARGO_HOME" | "CARGO_TARGET_DIR") || text.starts_with("CARGO_NET");
        if !kept && (text.starts_with("CARGO") || text.starts_with("RUSTC") || text == "RUSTFLAGS")
        {
            command.env_remove(&name);
        }
    }
    command
}
