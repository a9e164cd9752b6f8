//! The boot smoke: the programs to run and how each must end.

use minflt_mm::{Check, Event, Signal, System};
use minflt_pgtable::Access;

use crate::arch::serial::say;
use crate::arch::smp;
use crate::fs::{self, unpack};
use crate::machine::Kernel;
use crate::stack::Args;
use crate::task;
use crate::user::ending::Ending;
use crate::user::process::{self, Meanwhile, Outcome};

/// The guest's `smoke`, built by build.rs.
static SMOKE: &[u8] = include_bytes!(env!("GUEST_SMOKE"));

/// One run and the ending it must lead to.
#[derive(Clone, Copy)]
struct Run {
    name: &'static str,
    args: &'static [&'static str],
    meanwhile: Meanwhile,
    ending: Ending,
}

const RUNS: [Run; 7] = [
    Run {
        name: "checks",
        args: &["smoke"],
        meanwhile: Meanwhile::Nothing,
        ending: Ending::Exited(0),
    },
    Run {
        name: "checks, aged",
        args: &["smoke"],
        meanwhile: Meanwhile::Age,
        ending: Ending::Exited(0),
    },
    Run {
        name: "checks, interrupted",
        args: &["smoke"],
        meanwhile: Meanwhile::Interrupt,
        ending: Ending::Exited(0),
    },
    Run {
        name: "write-readonly",
        args: &["smoke", "write-readonly"],
        meanwhile: Meanwhile::Nothing,
        ending: Ending::Faulted(Signal::AccErr, Access::Write),
    },
    Run {
        name: "read-unmapped",
        args: &["smoke", "read-unmapped"],
        meanwhile: Meanwhile::Nothing,
        ending: Ending::Faulted(Signal::MapErr, Access::Read),
    },
    Run {
        name: "run-data",
        args: &["smoke", "run-data"],
        meanwhile: Meanwhile::Nothing,
        ending: Ending::Faulted(Signal::AccErr, Access::Execute),
    },
    Run {
        name: "run-revoked",
        args: &["smoke", "run-revoked"],
        meanwhile: Meanwhile::Nothing,
        ending: Ending::Faulted(Signal::AccErr, Access::Execute),
    },
];

/// A run with a wrong expectation, to see that a boot can fail.
const CANARY: Run = Run {
    name: "canary",
    args: &["smoke", "read-unmapped"],
    meanwhile: Meanwhile::Nothing,
    ending: Ending::Exited(0),
};

/// Runs everything; true if each run ended as it must and every frame was accounted for.
pub(crate) fn run(sys: &'static System<Kernel>, canary: bool) -> bool {
    if unpack::carry("smoke", SMOKE).is_err() {
        say!("smoke: FAILED, there is no memory for it");
        return false;
    }
    let mut good = true;
    for run in RUNS.into_iter().chain(canary.then_some(CANARY)) {
        if run.meanwhile == Meanwhile::Interrupt && !smp::can_interrupt() {
            say!("{}: skipped, needs a local APIC", run.name);
            continue;
        }
        good &= one(sys, run);
    }
    print_counts(sys);
    good & balances(sys)
}

fn one(sys: &'static System<Kernel>, run: Run) -> bool {
    let Run { name, .. } = run;
    let faults = sys.count_of(Event::PageFaults);
    let Some(args) = Args::new(run.args.iter().copied()) else {
        say!("{name}: FAILED, too many arguments");
        return false;
    };
    let Outcome {
        ending,
        unbalanced,
        seen,
    } = process::run(sys, args, run.meanwhile);
    say!("{name}: {ending}");
    let mut good = ending == run.ending;
    if !good {
        say!("{name}: FAILED, must have {}", run.ending);
    }
    if let Some(unbalanced) = unbalanced {
        say!("{name}: FAILED, {unbalanced}");
        good = false;
    }
    if run.meanwhile == Meanwhile::Age {
        // A fault leaves at most one page young; whatever is above that, the CPU marked.
        let faults = sys.count_of(Event::PageFaults) - faults;
        let marked = seen.young.saturating_sub(faults);
        say!("{name}: the CPU set at least {marked} accessed bits");
        if marked == 0 {
            say!("{name}: FAILED, the CPU set no accessed bit");
            good = false;
        }
    }
    if run.meanwhile == Meanwhile::Interrupt {
        say!("{name}: {} interrupts in user mode", seen.interrupts);
        // All of them here; where one takes its time on the way, the program may trap before.
        if seen.interrupts < seen.traps / 2 {
            say!("{name}: FAILED, for {} calls and faults", seen.traps);
            good = false;
        }
    }
    good
}

/// Prints what was counted, by the names of `minflt-mm`.
pub(crate) fn print_counts(sys: &System<Kernel>) {
    for event in Event::ALL {
        let count = sys.count_of(*event);
        if count > 0 {
            say!("event {event} {count}");
        }
    }
    for check in Check::ALL {
        let looks = sys.looks_of(*check);
        if looks > 0 {
            say!("check {} {looks}", check.name());
        }
    }
}

/// Whether every frame is accounted for now that every process is gone, and with its stacks.
pub(crate) fn balances(sys: &System<Kernel>) -> bool {
    task::give_back_stacks(sys);
    fs::forget();
    match sys.check_ledger(&[]) {
        Ok(ledger) if ledger.kernel != 0 => {
            say!(
                "ledger: FAILED, {} frames of the kernel's own are left",
                ledger.kernel
            );
            false
        }
        Ok(ledger) => {
            say!(
                "ledger: {} frames: {} free, {} reserved, {} of slabs, {} tables, {} anonymous",
                ledger.total - ledger.absent,
                ledger.free,
                ledger.reserved,
                ledger.slab,
                ledger.tables,
                ledger.anon
            );
            true
        }
        Err(unbalanced) => {
            say!("ledger: FAILED, {unbalanced}");
            false
        }
    }
}
