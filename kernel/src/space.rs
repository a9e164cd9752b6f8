//! An address space in use: `minflt-mm`'s, loaded on the CPU that the task has, with the kernel's
//! half in its root.

use core::cell::Cell;

use minflt_addr::VirtAddr;
use minflt_mm::{Errno, FaultOutcome, Mm, MmHandle, Signal, System, Thread};
use minflt_pgtable::{Access, Facts, X86_64};
use minflt_sync::Machine;

use crate::machine::Kernel;
use crate::mmu;
use crate::task;

/// An address space, and the running task as a thread of it.
#[derive(Debug)]
pub(crate) struct Space<'m> {
    mm: &'m Mm<Kernel>,
    thread: &'m Thread<'m, Kernel>,
    /// Its handle, where others may have theirs of it: a program's.
    handle: Option<&'m MmHandle<'static, Kernel>>,
    /// What the last fault that was not resolved raised.
    signal: Cell<Option<Signal>>,
}

impl<'m> Space<'m> {
    /// The address space of `thread`.
    pub(crate) const fn new(thread: &'m Thread<'m, Kernel>) -> Self {
        Self {
            mm: thread.mm(),
            thread,
            handle: None,
            signal: Cell::new(None),
        }
    }

    /// The same for a thread of a program.
    pub(crate) const fn of_program(
        thread: &'m Thread<'m, Kernel>,
        handle: &'m MmHandle<'static, Kernel>,
    ) -> Self {
        Self {
            mm: thread.mm(),
            thread,
            handle: Some(handle),
            signal: Cell::new(None),
        }
    }

    /// The handle of a program's address space.
    pub(crate) fn handle(&self) -> &'m MmHandle<'static, Kernel> {
        match self.handle {
            Some(handle) => handle,
            None => panic!("a call of no program"),
        }
    }

    /// The running task as its thread.
    pub(crate) const fn thread(&self) -> &'m Thread<'m, Kernel> {
        self.thread
    }

    /// The system that it belongs to.
    pub(crate) fn system(&self) -> &'m System<Kernel> {
        self.mm.system()
    }

    /// The address space.
    pub(crate) const fn mm(&self) -> &'m Mm<Kernel> {
        self.mm
    }

    /// Runs `work` with this address space loaded wherever the task runs, and finds it for the
    /// faults meanwhile.
    pub(crate) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        let task = task::current();
        load(Some(self.mm));
        let result = task.with_space(self, work);
        load(None);
        result
    }

    /// Resolves a fault of the program, or of an access on its behalf.
    pub(crate) fn fault(&self, addr: u64, access: Access) -> Result<(), Signal> {
        let resolved = self.resolve(addr, access);
        self.signal.set(resolved.err());
        resolved
    }

    fn resolve(&self, addr: u64, access: Access) -> Result<(), Signal> {
        match self.thread.fault(VirtAddr(addr), access) {
            FaultOutcome::Done(_) => {
                mmu::link(self.mm, addr);
                Ok(())
            }
            FaultOutcome::Signal(signal) => Err(signal),
            FaultOutcome::Oom => Err(Signal::OutOfMemory),
        }
    }
}

/// Runs `access`, which loads or stores at addresses of the program, in the address space of
/// `thread`: any number of tasks may be threads of one.
///
/// The first address space that the task accesses so stays loaded while it runs until [`forget`]:
/// its translations are kept, as they are while a program runs. It must not end before that.
/// Another one is loaded during the access only.
///
/// # Context
/// Caller: a task outside of [`Space::enter`], with interrupts on. Sleeps.
pub(crate) fn access<T>(
    thread: &Thread<'_, Kernel>,
    access: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Signal> {
    let space = Space::new(thread);
    let task = task::current();
    let kept = task.kept();
    let first = !kept.get();
    if first {
        kept.set(true);
    }
    let root = space.mm.root_table().phys(X86_64::SHIFT).0;
    let keeps = first || task.root() == root;
    // Each time: a flush may have had this CPU leave it, since another one was in use here.
    load(Some(space.mm));
    let result = task.with_space(&space, access);
    if !keeps {
        load(None);
    }
    // Without a fault there was no signal: the address is none of a program's.
    result.map_err(|_| space.signal.get().unwrap_or(Signal::MapErr))
}

/// Ends what [`access`] keeps loaded.
pub(crate) fn forget() {
    task::current().kept().set(false);
    load(None);
}

/// Makes `mm` what is loaded wherever the running task runs; `None`: it uses none, and what is
/// loaded stays. `mm` goes on interrupting a CPU that it was loaded on until it finds that nothing
/// uses it there: then the CPU leaves it.
fn load(mm: Option<&Mm<Kernel>>) {
    let irq = Kernel::irq_save();
    task::current().set_active(mm);
    if let Some(mm) = mm {
        mmu::load(mm);
    }
    Kernel::irq_restore(irq);
}
