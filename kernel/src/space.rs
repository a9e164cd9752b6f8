//! An address space in use: `minflt-mm`'s, active on this CPU, with the kernel's half in its root.

use core::cell::Cell;

use minflt_addr::VirtAddr;
use minflt_mm::{Errno, FaultOutcome, Mm, Signal, Thread};
use minflt_pgtable::{Access, Facts, X86_64};
use minflt_sync::Machine;

use crate::arch::kernel_map;
use crate::arch::paging::Table;
use crate::machine::Kernel;
use crate::task;

/// An address space, and the running task as a thread of it.
#[derive(Debug)]
pub(crate) struct Space<'m> {
    mm: &'m Mm<Kernel>,
    thread: &'m Thread<'m, Kernel>,
    root: Table,
    /// What the last fault that was not resolved raised.
    signal: Cell<Option<Signal>>,
}

impl<'m> Space<'m> {
    /// The address space of `thread`.
    pub(crate) fn new(thread: &'m Thread<'m, Kernel>) -> Self {
        let mm = thread.mm();
        Self {
            mm,
            thread,
            // SAFETY: (1) the root stays a table as long as `mm`; (2) `mm` changes the entries of
            // the user's half only.
            root: unsafe { Table::new(mm.root_table().phys(X86_64::SHIFT).0) },
            signal: Cell::new(None),
        }
    }

    /// The address space.
    pub(crate) const fn mm(&self) -> &'m Mm<Kernel> {
        self.mm
    }

    /// Runs `work` with this address space active, and finds it for the faults meanwhile.
    pub(crate) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        self.activate();
        let result = task::current().with_space(self, work);
        leave();
        result
    }

    /// Makes the address space the active one of this CPU, which joins the CPUs that `mm`
    /// interrupts before it can fill a translation.
    fn activate(&self) {
        self.root.share_kernel_half(kernel_map::root());
        let irq = Kernel::irq_save();
        self.mm.activate();
        task::current().swept().set(false);
        // SAFETY: (1) the root has the kernel's half, and `mm` maps below it what is the program's.
        unsafe { self.root.activate() };
        task::current().root().set(self.root.phys());
        Kernel::irq_restore(irq);
    }

    /// Resolves a fault of the program, or of an access on its behalf.
    pub(crate) fn fault(&self, addr: u64, access: Access) -> Result<(), Signal> {
        let resolved = self.resolve(addr, access);
        self.signal.set(resolved.err());
        resolved
    }

    fn resolve(&self, addr: u64, access: Access) -> Result<(), Signal> {
        match self.thread.fault(VirtAddr(addr), access) {
            FaultOutcome::Done(_) => Ok(()),
            FaultOutcome::Signal(signal) => Err(signal),
            FaultOutcome::Oom => Err(Signal::OutOfMemory),
        }
    }
}

/// Runs `access`, which loads or stores at addresses of the program, in the address space of
/// `thread`: any number of tasks may be threads of one.
///
/// The first address space that the task accesses so stays active on its CPU until [`forget`]: its
/// translations are kept, as they are while a program runs. It must not end before that. Another
/// one is active during the access only.
///
/// # Context
/// Caller: a task outside of [`Space::enter`], with interrupts on. Sleeps.
pub(crate) fn access<T>(
    thread: &Thread<'_, Kernel>,
    access: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Signal> {
    let space = Space::new(thread);
    let (task, root) = (task::current(), space.root.phys());
    if task.kept().get() == 0 {
        task.kept().set(root);
    }
    // `mm` may have found another address space loaded here and taken this CPU off its mask, after
    // it flushed everything. What the CPU filled from the root since is stale: it is loaded again.
    let irq = Kernel::irq_save();
    let stays = task.root().get() == root && !task.swept().get();
    if stays {
        space.mm.activate();
    }
    Kernel::irq_restore(irq);
    if !stays {
        space.activate();
    }
    let result = task.with_space(&space, access);
    if task.kept().get() != root {
        leave();
    }
    // Without a fault there was no signal: the address is none of a program's.
    result.map_err(|_| space.signal.get().unwrap_or(Signal::MapErr))
}

/// Ends what [`access`] keeps active on this CPU.
pub(crate) fn forget() {
    task::current().kept().set(0);
    leave();
}

/// Makes the kernel's own root the active one of this CPU, which has no translations of any address
/// space then. `mm` goes on interrupting it until it is found idle.
fn leave() {
    let irq = Kernel::irq_save();
    // SAFETY: (1) the kernel's own root.
    unsafe { kernel_map::root().activate() };
    task::current().root().set(0);
    Kernel::irq_restore(irq);
}
