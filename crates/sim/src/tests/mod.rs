//! The engine, and `sync`'s locks under its schedules.

mod buffer;
mod bytes;
mod carry;
mod contention;
mod engine;
mod interrupts;
mod machine_file;
mod minimize;
mod old_cpus;
mod rcu;
mod rwsem;
mod seqcount;
mod srcu;
mod time;
mod wait_table;
mod wake;
mod why;

use crate::{MachineFile, Outcome, RunOptions, RunReport, Sim, SimInstance, Size, TaskSpec, run};
use core::cell::Cell;
use minflt_pgtable::X86_64;
use minflt_sync::{Instance, Machine};

/// The machine that the tests run on.
pub(super) type M = Sim<X86_64>;

/// A machine, and objects placed in its memory one after the other.
pub(super) struct Bed {
    pub(super) at: SimInstance,
    used: Cell<usize>,
}

impl Bed {
    pub(super) fn on(machine: &str, cpus: u32) -> Self {
        Self::of(&MachineFile::shipped(machine).unwrap(), cpus)
    }

    pub(super) fn of(file: &MachineFile, cpus: u32) -> Self {
        let size = Size {
            cpus,
            ram_bytes: 1 << 20,
            max_tasks: 16,
        };
        Self {
            at: SimInstance::new(file, size).unwrap(),
            used: Cell::new(0),
        }
    }

    pub(super) fn explorer(cpus: u32) -> Self {
        Self::on("explorer", cpus)
    }

    /// Forgets all objects.
    ///
    /// # Safety
    /// 1. No object is used any more.
    pub(super) unsafe fn reset(&self) {
        // SAFETY: 1 of this function; nothing lies beyond what is used.
        unsafe { self.at.reset(self.used.get()) };
        self.used.set(0);
    }

    /// Places `value` on lines of its own.
    pub(super) fn place<T>(&self, value: T) -> &T {
        let from = self.used.get().next_multiple_of(align_of::<T>().max(128));
        assert!(
            from + size_of::<T>() <= self.at.ram().bytes,
            "the bed is full"
        );
        self.used.set(from + size_of::<T>());
        // SAFETY: within the memory, as just checked.
        let slot = unsafe { self.at.ram().base.add(from) }.cast::<T>();
        // SAFETY: aligned, fresh, and nobody else's.
        unsafe { slot.write(value) };
        // SAFETY: just written; shared from now on.
        unsafe { &*slot }
    }

    pub(super) fn run(&self, options: &RunOptions<'_>, tasks: Vec<TaskSpec<'_>>) -> RunReport {
        run(&self.at, options, tasks)
    }
}

/// Turns the report of a run that went well into a violation, if `wrong`.
pub(super) fn judge(mut report: RunReport, wrong: bool, what: &str) -> RunReport {
    if report.outcome.is_ok() && wrong {
        report.outcome = Outcome::Violation(what.to_owned());
    }
    report
}

/// The CPU of the caller.
pub(super) fn cpu() -> u32 {
    // SAFETY: duty 1 of `Machine`.
    unsafe { &*M::cx() }.cpu.get()
}
