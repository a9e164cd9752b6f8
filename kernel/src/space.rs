//! An address space in use: `minflt-mm`'s, active on this CPU, with the kernel's half in its root.

use core::cell::Cell;

use minflt_addr::VirtAddr;
use minflt_mm::{Errno, FaultOutcome, Mm, Signal, Thread};
use minflt_pgtable::{Exchange, Facts, Pte, Walk, X86_64, walk};
use minflt_sync::Machine;

use crate::arch::kernel_map;
use crate::arch::paging::{NO_EXECUTE, Table};
use crate::fault::Access;
use crate::machine::{self, Kernel};
use crate::task;

/// The most ranges of a program that are code.
const CODE_RANGES: usize = 4;

/// Who keeps the right to execute.
#[derive(Debug)]
enum Execution {
    /// The kernel, for these ranges: start and end of what may be executed.
    Ranges([Cell<(u64, u64)>; CODE_RANGES]),
    /// Nobody: the kernel alone accesses the memory, and executes none of it.
    Ignored,
}

/// An address space, and the running task as a thread of it.
///
/// `minflt-mm` knows loads and stores, and no right to execute. So the right is kept here, for the
/// program's code as its file says, and every other page is made not executable once its fault is
/// done. That is sound as long as the program has one thread: another one could execute the page in
/// between.
#[derive(Debug)]
pub(crate) struct Space<'m> {
    mm: &'m Mm<Kernel>,
    thread: &'m Thread<'m, Kernel>,
    root: Table,
    execution: Execution,
    /// What the last fault that was not resolved raised.
    signal: Cell<Option<Signal>>,
}

impl<'m> Space<'m> {
    /// The address space of `thread`, a program's only one.
    pub(crate) fn new(thread: &'m Thread<'m, Kernel>) -> Self {
        let ranges = [const { Cell::new((0, 0)) }; CODE_RANGES];
        Self::with(thread, Execution::Ranges(ranges))
    }

    fn with(thread: &'m Thread<'m, Kernel>, execution: Execution) -> Self {
        let mm = thread.mm();
        Self {
            mm,
            thread,
            // SAFETY: (1) the root stays a table as long as `mm`; (2) `mm` changes the entries of
            // the user's half only.
            root: unsafe { Table::new(mm.root_table().phys(X86_64::SHIFT).0) },
            execution,
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

    /// Lets the range be executed; false if there are too many ranges.
    #[must_use]
    pub(crate) fn allow_execution(&self, start: u64, end: u64) -> bool {
        let Execution::Ranges(ranges) = &self.execution else {
            return false;
        };
        let free = ranges.iter().find(|range| range.get() == (0, 0));
        free.map(|range| range.set((start, end))).is_some()
    }

    /// Resolves a fault of the program, or of an access on its behalf.
    pub(crate) fn fault(&self, addr: u64, access: Access) -> Result<(), Signal> {
        let resolved = self.resolve(addr, access);
        self.signal.set(resolved.err());
        resolved
    }

    fn resolve(&self, addr: u64, access: Access) -> Result<(), Signal> {
        match self.thread.fault(VirtAddr(addr), access.data()) {
            FaultOutcome::Done(_) if self.is_code(addr) => Ok(()),
            FaultOutcome::Done(_) => {
                self.forbid_execution(VirtAddr(addr));
                if access == Access::Execute {
                    Err(Signal::AccErr)
                } else {
                    Ok(())
                }
            }
            FaultOutcome::Signal(signal) => Err(signal),
            FaultOutcome::Oom => Err(Signal::OutOfMemory),
        }
    }

    /// Whether the page at `addr` may stay executable.
    fn is_code(&self, addr: u64) -> bool {
        let within = |range: &Cell<(u64, u64)>| range.get().0 <= addr && addr < range.get().1;
        match &self.execution {
            Execution::Ranges(ranges) => ranges.iter().any(within),
            Execution::Ignored => true,
        }
    }

    /// Takes the right to execute from the page at `addr`. The bit stays when `mm` changes the
    /// entry, and goes with it.
    fn forbid_execution(&self, addr: VirtAddr) {
        let at = self.mm.system().machine();
        // SAFETY: (1) tables are freed by calls of the program, and its one thread is in a fault.
        let walked = unsafe { walk::<Kernel>(at, self.mm.root_table(), addr) };
        let Walk::Leaf(leaf) = walked else { return };
        let change = |pte: Pte<X86_64>| {
            let without = pte.word() | NO_EXECUTE;
            (pte.is_mapped() && without != pte.word()).then(|| Pte::from_word(without))
        };
        if leaf.entry.update(Exchange::Native, change).is_ok() {
            machine::invalidate(addr);
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
    let space = Space::with(thread, Execution::Ignored);
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
