//! The boot smoke: the programs to run and how each must end.

use crate::arch::serial::say;
use crate::fault::{Access, Signal};
use crate::process::{self, Ending};

/// The guest's `smoke`, built by build.rs.
static SMOKE: &[u8] = include_bytes!(env!("GUEST_SMOKE"));

/// Arguments and the ending they must lead to.
type Run = (&'static [&'static str], Ending);

const RUNS: [Run; 4] = [
    (&["smoke"], Ending::Exited(0)),
    (
        &["smoke", "write-readonly"],
        Ending::Faulted(Signal::AccessError, Access::Write),
    ),
    (
        &["smoke", "read-unmapped"],
        Ending::Faulted(Signal::MapError, Access::Read),
    ),
    (
        &["smoke", "run-data"],
        Ending::Faulted(Signal::AccessError, Access::Execute),
    ),
];

/// A run with a wrong expectation, to see that a boot can fail: `canary` on the command line.
const CANARY: Run = (&["smoke", "read-unmapped"], Ending::Exited(0));

/// Runs everything; true if each run ended as it must and left no frame behind.
pub(crate) fn run(command_line: &str) -> bool {
    let canary = command_line.split_whitespace().any(|word| word == "canary");
    let mut good = true;
    for (args, expected) in RUNS.into_iter().chain(canary.then_some(CANARY)) {
        let outcome = process::run(SMOKE, args);
        let part = args.get(1).unwrap_or(&"checks");
        say!("{part}: {}", outcome.ending);
        if outcome.ending != expected {
            say!("{part}: FAILED, must have {expected}");
            good = false;
        }
        if outcome.frames_left != 0 {
            say!("{part}: FAILED, {} frames leaked", outcome.frames_left);
            good = false;
        }
    }
    good
}
