//! The kernel and the guest programs, built from this repository.

use crate::error::{Error, failed, usage};
use crate::out::complain;
use crate::scratch::Scratch;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::env;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of kernel and guest.
const BARE: &str = "x86_64-unknown-none";

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

/// The folder that holds `kernel/` and `guest/`: one that this program runs in or was built in.
fn root() -> Result<PathBuf, Error> {
    let here = env::current_dir().ok();
    let program = env::current_exe().ok();
    let is_root = |folder: &&Path| {
        folder.join("kernel/linker.ld").is_file() && folder.join("guest/Cargo.toml").is_file()
    };
    let mut folders = here
        .iter()
        .chain(&program)
        .flat_map(|path| path.ancestors());
    folders.find(is_root).map(Path::to_owned).ok_or_else(|| {
        usage(
            "boot: the sources of the kernel are not here; run from minflt's repository, or give an \
             image by --kernel IMAGE",
        )
    })
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
    let folder = root()?.join(package);
    has_target(&folder)?;
    if io::stderr().is_terminal() {
        complain(format_args!("minflt: building {}", folder.display()));
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
    let status = scratch.run(&mut cargo, None).map_err(no_rust)?;
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

/// Refuses to go on without the core library of the bare target.
fn has_target(folder: &Path) -> Result<(), Error> {
    let mut rustc = tool("rustc", folder);
    rustc.args(["--print", "target-libdir", "--target", BARE]);
    let printed = rustc.output().map_err(no_rust)?;
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    if Path::new(text.trim_end()).is_dir() {
        return Ok(());
    }
    Err(usage(format!(
        "boot: the kernel's target is not installed; `rustup target add {BARE}` installs it"
    )))
}

fn no_rust(error: io::Error) -> Error {
    usage(format!(
        "boot: cannot run Rust's tools to build the kernel: {error}; install rustup from \
         https://rustup.rs, or give an image by --kernel IMAGE"
    ))
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
