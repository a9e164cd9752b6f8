//! `rdinit=`: one program of the initial RAM disk, and records of how it ended.
//!
//! The records are lines of the kernel's log, for whoever started the machine:
//!
//! ```text
//! exit STATUS      the program exited
//! signal NAME      it was killed by a signal
//! failed TEXT      it was not started
//! event NAME N     minflt-mm counted N of them
//! check NAME N     a check was made N times
//! ```

use minflt_mm::{Signal, System};

use crate::arch::serial::say;
use crate::initrd::Archive;
use crate::loader::LoadError;
use crate::machine::Kernel;
use crate::process::{self, Ending, Meanwhile};
use crate::smoke::{balances, print_counts};
use crate::words::Words;

/// The most arguments, the program's name included. Linux: init/main.c `MAX_INIT_ARGS`.
const ARGUMENTS: usize = 32;

/// Runs the program at `path` in the archive `initrd`, with the words of `rest` as its further
/// arguments; true if it was started and every frame was accounted for.
pub(crate) fn run(sys: &System<Kernel>, initrd: &[u8], path: &str, rest: &str) -> bool {
    if initrd.is_empty() {
        say!("failed there is no initial RAM disk to take {path} from");
        return false;
    }
    let file = match Archive::new(initrd).file(path) {
        Ok(Some(file)) => file,
        Ok(None) => {
            say!("failed the initial RAM disk has no file {path}");
            return false;
        }
        Err(error) => {
            say!("failed the initial RAM disk: {error}");
            return false;
        }
    };
    let mut args = [path; ARGUMENTS];
    let mut count = 1;
    for word in Words::of(rest) {
        let Some(slot) = args.get_mut(count) else {
            say!("failed more than {ARGUMENTS} arguments");
            return false;
        };
        *slot = word;
        count += 1;
    }
    let outcome = process::run(sys, file.bytes, &args[..count], Meanwhile::Nothing);
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
        Ending::Faulted(signal, _) => say!("signal {}", of_fault(signal)),
        Ending::Exception(vector) => say!("signal {}", of_exception(vector)),
        Ending::NotLoaded(error) => {
            say!("failed {path} cannot be loaded: {}", reason(error));
            return false;
        }
    }
    true
}

/// The signal of a page fault.
const fn of_fault(signal: Signal) -> &'static str {
    match signal {
        Signal::MapErr | Signal::AccErr => "SIGSEGV",
        Signal::Bus | Signal::Misaligned => "SIGBUS",
        Signal::OutOfMemory => "SIGKILL",
    }
}

/// The signal of an exception. Linux: arch/x86/kernel/traps.c (v6.12).
const fn of_exception(vector: u64) -> &'static str {
    match vector {
        0 | 16 | 19 => "SIGFPE",
        1 | 3 => "SIGTRAP",
        6 => "SIGILL",
        11 | 12 | 17 => "SIGBUS",
        _ => "SIGSEGV",
    }
}

const fn reason(error: LoadError) -> &'static str {
    match error {
        LoadError::Malformed => "it is no ELF file, or a damaged one",
        LoadError::Unsupported => {
            "only static x86-64 programs that are linked at fixed addresses (ET_EXEC) are supported"
        }
        LoadError::Memory(_) => "there is not enough memory, or its segments overlap",
    }
}
