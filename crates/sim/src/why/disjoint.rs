//! Counts the shared cache lines written by independent faults: each CPU faults in
//! a range of its own, below a table of its own, in one address space.

use super::{SharedRow, WhyOptions, Window, Windows};
use crate::instance::{SimInstance, Size};
use crate::machine::Sim;
use crate::machine_file::MachineFile;
use crate::report::Outcome;
use crate::run::{RunOptions, TaskSpec, run};
use crate::target::name;
use minflt_addr::VirtAddr;
use minflt_mm::{Config, Place, Prot, System};
use minflt_pgtable::{Facts, X86_64};

/// Pages that one table maps: each CPU's range.
const PAGES: u64 = 512;
/// Faults before those that count: tables and lists are there after them.
const WARM: u64 = 64;
/// The machine: 16 CPUs of one node.
const MACHINE: &str = "kvm16";

/// How the ranges are mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ranges {
    /// All in one mapping.
    OneMapping,
    /// Each in a mapping of its own.
    OwnMappings,
}

/// What faults in ranges of their own wrote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disjoint {
    /// Faults.
    pub faults: u64,
    /// Writes to lines that more than one CPU touched.
    pub writes: u64,
    /// The same, each line counted once a fault.
    pub lines: u64,
    /// Which lines those are.
    pub rows: Vec<SharedRow>,
}

/// Faults of `cpus` CPUs (at most 16) in ranges of their own.
///
/// # Errors
/// What went wrong, in words: none with a legal configuration.
pub fn disjoint(config: Config, cpus: u32, ranges: Ranges) -> Result<Disjoint, String> {
    let file = MachineFile::shipped(MACHINE).map_err(|error| error.to_string())?;
    let size = Size {
        cpus,
        ram_bytes: 128 << 20,
        max_tasks: cpus,
    };
    let machine = SimInstance::new(&file, size).map_err(|error| error.to_string())?;
    machine.set_timed();
    let sys = System::<Sim<X86_64>>::boot(machine, config).map_err(|error| error.to_string())?;
    let mm = sys.new_mm().map_err(|_| "no memory".to_owned())?;
    let span = PAGES * X86_64::PAGE;
    let whole = mm.mmap(Place::Any, (u64::from(cpus) + 1) * span, Prot::READ_WRITE);
    let whole = whole.map_err(|_| "no memory".to_owned())?;
    let first = |cpu: u32| whole.0.next_multiple_of(span) + u64::from(cpu) * span;
    if ranges == Ranges::OwnMappings {
        // Of other rights, or neighbours would be one.
        let prot = Prot::READ_WRITE.with(Prot::EXEC);
        for cpu in (0..cpus).step_by(2) {
            let mapped = mm.mmap(Place::Fixed(VirtAddr(first(cpu))), span, prot);
            mapped.map_err(|_| "no memory".to_owned())?;
        }
    }
    let task = |cpu: u32| {
        let mm = &mm;
        TaskSpec::new(cpu, move || {
            let thread = mm.thread();
            for page in 0..PAGES {
                if page == WARM {
                    Sim::<X86_64>::window(Window::Opens);
                }
                let at = VirtAddr(first(cpu) + page * X86_64::PAGE);
                if thread.store(at, page).is_err() {
                    return;
                }
            }
            Sim::<X86_64>::window(Window::Closes);
        })
    };
    let names = |offset| name(&sys, offset);
    let options = RunOptions {
        why: Some(WhyOptions {
            names: &names,
            windows: Windows::Opened,
            free: None,
            samples: 0,
        }),
        ..RunOptions::virtual_time()
    };
    let ran = run(sys.machine(), &options, (0..cpus).map(task).collect());
    match (ran.outcome, ran.why) {
        (Outcome::Ok, Some(why)) => Ok(Disjoint {
            faults: u64::from(cpus) * (PAGES - WARM),
            writes: why.shared_writes,
            lines: why.shared_written,
            rows: why.shared,
        }),
        (outcome, _) => Err(outcome.to_string()),
    }
}
