//! An address space in use: `minflt-mm`'s, active on this CPU, with the kernel's half in its root.

use core::cell::Cell;

use minflt_addr::VirtAddr;
use minflt_mm::{FaultOutcome, Mm, Signal, Thread};
use minflt_pgtable::{Exchange, Facts, Pte, Walk, X86_64, walk};

use crate::arch::kernel_map;
use crate::arch::paging::{NO_EXECUTE, Table};
use crate::fault::Access;
use crate::machine::{self, Kernel};
use crate::task;

/// The most ranges of a program that are code.
const CODE_RANGES: usize = 4;

/// An address space, and the running task as its one thread.
///
/// `minflt-mm` knows loads and stores, and no right to execute. So the right is kept here, for the
/// program's code as its file says, and every other page is made not executable once its fault is
/// done. That is sound as long as one CPU runs: another one could execute the page in between.
#[derive(Debug)]
pub(crate) struct Space<'m> {
    mm: &'m Mm<Kernel>,
    thread: Thread<'m, Kernel>,
    root: Table,
    /// Start and end of what may be executed.
    code: [Cell<(u64, u64)>; CODE_RANGES],
}

impl<'m> Space<'m> {
    /// The caller becomes a thread of `mm`, whose root gets the kernel's half.
    pub(crate) fn new(mm: &'m Mm<Kernel>) -> Self {
        // SAFETY: (1) the root stays a table as long as `mm`; (2) `mm` changes the entries of the
        // user's half only.
        let root = unsafe { Table::new(mm.root_table().phys(X86_64::SHIFT).0) };
        root.share_kernel_half(kernel_map::root());
        Self {
            mm,
            thread: mm.thread(),
            root,
            code: [const { Cell::new((0, 0)) }; CODE_RANGES],
        }
    }

    /// The address space.
    pub(crate) const fn mm(&self) -> &'m Mm<Kernel> {
        self.mm
    }

    /// Runs `work` with this address space active, and finds it for the faults meanwhile.
    pub(crate) fn enter<R>(&self, work: impl FnOnce() -> R) -> R {
        // SAFETY: (1) the root has the kernel's half, and `mm` maps below it what is the program's.
        unsafe { self.root.activate() };
        let result = task::current().with_space(self, work);
        // SAFETY: (1) the kernel's own root.
        unsafe { kernel_map::root().activate() };
        result
    }

    /// Lets the range be executed; false if there are too many ranges.
    #[must_use]
    pub(crate) fn allow_execution(&self, start: u64, end: u64) -> bool {
        let free = self.code.iter().find(|range| range.get() == (0, 0));
        free.map(|range| range.set((start, end))).is_some()
    }

    /// Resolves a fault of the program, or of a copy on its behalf.
    pub(crate) fn fault(&self, addr: u64, access: Access) -> Result<(), Signal> {
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

    fn is_code(&self, addr: u64) -> bool {
        let within = |range: &Cell<(u64, u64)>| range.get().0 <= addr && addr < range.get().1;
        self.code.iter().any(within)
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
