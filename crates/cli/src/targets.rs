//! Runs a workload on a target.

use crate::choice::{Named, spell};
use crate::error::{Error, usage};
use crate::words::{did_you_mean, distinct};
use minflt_host::HostTarget;
use minflt_mm::{BootError, Illegal};
use minflt_sim::machine_file::SHIPPED;
use minflt_sim::{MachineFile, SimTarget, Size};
use minflt_workload::{Outcome, Plan, Target, TargetError, Workload, linux::Linux};

/// RAM of a host system, unless `--ram` says otherwise.
pub(crate) const HOST_RAM: u64 = 1 << 30;

/// Where a workload can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum On {
    /// Real threads over the software MMU.
    Host,
    /// Virtual time.
    Sim,
    /// Real system calls.
    Linux,
}

impl On {
    /// The targets named in a list.
    pub(crate) fn list(list: &str) -> Result<Vec<Self>, Error> {
        let one = |word: &str| match word {
            "host" => Ok(Self::Host),
            "sim" => Ok(Self::Sim),
            "linux" => Ok(Self::Linux),
            "kernel" | "linux-vm" => Err(usage(format!(
                "--on {word}: runs kernel-ops and kernel-rates only; use host, sim or linux"
            ))),
            _ => Err(usage(format!(
                "--on: unknown target `{word}`; targets are host, sim, linux{}",
                did_you_mean(word, ["host", "sim", "linux"])
            ))),
        };
        distinct("--on", list)?;
        list.split(',').map(one).collect()
    }

    /// The name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Sim => "sim",
            Self::Linux => "linux",
        }
    }
}

/// The machine that sim models, by name or path; `option` is what named it.
pub(crate) fn machine(option: &str, name: &str) -> Result<MachineFile, Error> {
    MachineFile::find(name).map_err(|error| {
        let known = SHIPPED.iter().map(|(name, _)| *name);
        // What is wrong in a line of a file is not its name.
        let meant = match error.line {
            None => did_you_mean(name, known),
            Some(_) => String::new(),
        };
        usage(format!("{option}: {error}{meant}"))
    })
}

/// Refuses a workload whose pages do not fit into the memory there is, a swap device included.
pub(crate) fn fits(
    workload: &Workload,
    threads: u32,
    page_size: u64,
    (ram, swap): (u64, u64),
) -> Result<(), Error> {
    let needed = workload.bytes_needed(threads, page_size);
    // A sixteenth for tables, descriptors and what CPUs keep in hand.
    if needed + needed / 16 <= ram + swap {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.next_multiple_of(1 << 20);
    let into = match swap {
        0 => format!("--ram {}", spell(ram)),
        swap => format!("--ram {} and --swap {}", spell(ram), spell(swap)),
    };
    let missing = needed + needed / 16 - ram;
    Err(usage(format!(
        "the workload's {} of pages do not fit into {into}; use a smaller size, at least --ram {}, \
         or at least --swap {}",
        spell(mib(needed)),
        spell(mib(needed + needed / 16 - swap)),
        spell(mib(missing))
    )))
}

/// A host system for `cpus` threads, counted as of as many memory nodes as the workload is about.
pub(crate) fn host(
    named: &Named,
    workload: &Workload,
    cpus: u32,
    ram: u64,
    swap: u64,
) -> Result<HostTarget<false>, Error> {
    let bytes = |bytes, option| {
        usize::try_from(bytes)
            .map_err(|_| usage(format!("{option}: exceeds this host's address space")))
    };
    let (ram, swap) = (bytes(ram, "--ram")?, bytes(swap, "--swap")?);
    let nodes = workload.nodes();
    let start = HostTarget::start_with_swap(named.config, cpus, ram, nodes, swap);
    start.map_err(|error| match error {
        minflt_host::StartError::Boot(BootError::Illegal(illegal)) => refused(named, illegal),
        error => usage(format!("--ram: {error}")),
    })
}

/// A simulated system on a machine of the file's size, but for its memory.
pub(crate) fn sim(named: &Named, file: &MachineFile, ram: u64) -> Result<SimTarget, Error> {
    let size = Size {
        ram_bytes: ram,
        ..Size::of(file)
    };
    sim_sized(named, file, size)
}

/// A simulated system on a machine of another size.
pub(crate) fn sim_sized(named: &Named, file: &MachineFile, size: Size) -> Result<SimTarget, Error> {
    sim_with_swap(named, file, size, 0)
}

/// The same with a swap device.
pub(crate) fn sim_with_swap(
    named: &Named,
    file: &MachineFile,
    size: Size,
    swap: u64,
) -> Result<SimTarget, Error> {
    use minflt_sim::StartError::{Boot, Other, PageSize};
    let start = SimTarget::start_with_swap(file, named.config, size, swap);
    start.map_err(|error| match error {
        Boot(BootError::Illegal(illegal)) => refused(named, illegal),
        Boot(BootError::TooManyNodes(_)) | PageSize(_) | Other(_) => usage(format!(
            "--machine: {} with {} CPUs: {error}",
            file.name, size.cpus
        )),
        error if swap > 0 => usage(format!("--ram and --swap: {error}")),
        error => usage(format!("--ram: {error}")),
    })
}

fn refused(named: &Named, illegal: Illegal) -> Error {
    usage(format!("{}: refused: {illegal}", named.name))
}

/// Runs on the machine this program runs on.
pub(crate) fn linux(workload: &Workload, plan: &Plan) -> Result<Outcome, Error> {
    on(&Linux::new(), workload, plan)
}

/// Runs a workload on a target that is there.
pub(crate) fn on<T: Target>(
    target: &T,
    workload: &Workload,
    plan: &Plan,
) -> Result<Outcome, Error> {
    workload.run(target, plan).map_err(|error| match error {
        TargetError::Unsupported(text) => Error::Usage(text),
        other => Error::Failed(format!(
            "{} on {}: {other}",
            workload.info().name,
            target.name()
        )),
    })
}
