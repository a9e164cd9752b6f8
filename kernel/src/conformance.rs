//! Whether the kernel keeps the promises of a machine: the suite of `minflt-conformance`, on all
//! its CPUs. Loads and stores of the user are the CPU's own, through its MMU.

use core::ops::Range;

use minflt_addr::VirtAddr;
use minflt_conformance::{Bed, Broken, Outcome, Progress, RAM_BYTES, Work, examine};
use minflt_mm::{Config, Era, Signal, Thread};
use minflt_sync::SpinLock;
use minflt_sync::order::WaitLock;

use crate::arch::serial::{say, say_on};
use crate::arch::{paging, uaccess};
use crate::machine::{self, Kernel, Pc};
use crate::{crew, space};

/// The kernel's CPUs, and the RAM of each machine that the suite asks for.
///
/// # Invariants
/// The RAM is [`RAM_BYTES`] in whole frames in the direct map, which one machine at a time has.
#[derive(Debug)]
struct OnKernel {
    ram: Range<u64>,
    config: Config,
}

impl Bed for OnKernel {
    type Machine = Kernel;

    fn cpus(&self) -> u32 {
        machine::cpus()
    }

    fn machine(&self) -> Pc {
        let words = (self.ram.end - self.ram.start) as usize / size_of::<u64>();
        let base = paging::direct(self.ram.start).cast::<u64>();
        for index in 0..words {
            // SAFETY: (1) within the RAM.
            let word = unsafe { base.add(index) };
            // SAFETY: (1) by the type invariant; the machine before is over, as the suite promises.
            unsafe { word.write_volatile(0) };
        }
        // SAFETY: (1) zeroed above; nobody has it but the machines of this bed, one after another.
        unsafe { Pc::new(self.ram.clone()) }
    }

    fn run(&self, _at: &Pc, cpus: u32, work: Work<'_>) -> Result<(), Broken> {
        let first: SpinLock<_, WaitLock, Kernel> = SpinLock::new(Ok(()));
        crew::run(cpus, &|cpu| {
            let ended = work(cpu);
            space::forget();
            let mut first = first.lock();
            *first = (*first).and(ended);
        });
        *first.lock()
    }

    fn alone<R>(&self, _at: &Pc, work: impl FnOnce() -> R) -> R {
        work()
    }

    fn config(&self) -> Config {
        self.config
    }

    fn load(&self, thread: &Thread<'_, Kernel>, at: VirtAddr) -> Result<u64, Signal> {
        space::access(thread, || uaccess::load(at.0))
    }

    fn store(&self, thread: &Thread<'_, Kernel>, at: VirtAddr, value: u64) -> Result<(), Signal> {
        space::access(thread, || uaccess::store(at.0, value))
    }
}

/// Examines the kernel; true if every promise that was looked at was kept.
///
/// # Safety
/// 1. `ram` is whole frames of RAM in the direct map that nobody else uses, ever.
pub(crate) unsafe fn run(ram: Range<u64>, era: &Era) -> bool {
    if ram.end - ram.start < RAM_BYTES {
        say!("conformance: FAILED, needs {} MiB of RAM", RAM_BYTES >> 20);
        return false;
    }
    // INVARIANT: the caller's promise, and the bed's machines end before this returns.
    let bed = OnKernel {
        ram: ram.start..ram.start + RAM_BYTES,
        config: era.config,
    };
    let (mut kept, mut broken, mut skipped) = (0, 0, 0);
    let sound = examine(&bed, |progress| match progress {
        // A machine that hangs, or ends, does so in the check whose name came last.
        Progress::Begins(check) => say_on!("{}: ", check.name),
        Progress::Ended(_, Outcome::Kept) => {
            kept += 1;
            say!("kept");
        }
        Progress::Ended(_, Outcome::Broken(found)) => {
            broken += 1;
            say!("BROKEN, {found}");
        }
        Progress::Ended(check, Outcome::Skipped(why)) => {
            skipped += 1;
            say!("{}: skipped, {why}", check.name);
        }
    });
    say!("conformance: {kept} kept, {broken} broken, {skipped} skipped");
    sound
}
