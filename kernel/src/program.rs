//! `rdinit=`: one program of the initial RAM disk, and records of how it ended.
//!
//! The records are lines of the kernel's log, for `minflt boot` and scripts:
//!
//! ```text
//! exit STATUS      the program exited
//! signal NAME      it was killed by a signal
//! failed TEXT      it was not started
//! event NAME N     minflt-mm counted N of them
//! check NAME N     a check was made N times
//! ```

use core::iter;

use minflt_mm::System;

use crate::arch::serial::say;
use crate::linux::ENOENT;
use crate::loader::LoadError;
use crate::machine::Kernel;
use crate::smoke::{balances, print_counts};
use crate::stack::Args;
use crate::user::ending::Ending;
use crate::user::process::{self, Meanwhile};
use crate::words::Words;

/// Runs the program at `path`, with the words of `rest` as its further arguments; true if it was
/// started and every frame was accounted for.
pub(crate) fn run(sys: &'static System<Kernel>, path: &'static str, rest: &'static str) -> bool {
    let words = iter::once(path).chain(Words::of(rest));
    let Some(args) = Args::new(words) else {
        say!("failed more than {} arguments", Args::MOST);
        return false;
    };
    let outcome = process::run(sys, args, Meanwhile::Nothing);
    let mut good = record(path, outcome.ending);
    print_counts(sys);
    if let Some(unbalanced) = outcome.unbalanced {
        say!("ledger: FAILED, {unbalanced}");
        good = false;
    }
    good & balances(sys)
}

/// Says how a program ended; false if it never began.
fn record(path: &str, ending: Ending) -> bool {
    match ending {
        Ending::Exited(status) => say!("exit {status}"),
        Ending::NotLoaded(error) => {
            say!("failed {path} cannot be loaded: {}", reason(error));
            return false;
        }
        _ => say!("signal {}", ending.signal().name),
    }
    true
}

const fn reason(error: LoadError) -> &'static str {
    match error {
        LoadError::Malformed => "it is no ELF file, or a damaged one",
        LoadError::Unsupported => "only static x86-64 programs are supported",
        LoadError::Missing(ENOENT) => "there is no such file",
        LoadError::Missing(_) => "it is no file that may be executed",
        LoadError::Memory(_) => "there is not enough memory, or its segments overlap",
    }
}
