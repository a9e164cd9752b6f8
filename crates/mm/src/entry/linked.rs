//! Roots of a CPU's own, for hardware that walks by itself.
//!
//! # Problem
//! A CPU is in the mask of an arena only if its first access there is a fault. Software that walks
//! looks into the mask first; hardware that walks from the root of the address space does not.
//!
//! # Idea
//! Each CPU walks from a root of its own, with upper tables of its own, which lead to the tables
//! that map at most 1 GiB on x86-64: those are shared. A CPU has no link to the tables of an arena
//! where it was never, so there it takes a fault. ([`Mmu::OWN_ROOTS`])
//!
//! # Protocol
//! ```text
//! fault, resolved; interrupts off      zap of the arena
//! join the arena's mask                unlink table T from the address space's upper table
//! read the upper entry: T              read the mask; ask its CPUs to flush T's span
//! link T                               handler: drop the links for the span, flush, acknowledge
//! interrupts on                        grace period; T is free
//! ```
//! A CPU walks from the address space's root until that is divided. The division flushes all CPUs
//! ([`super::shootdown`]), and there each one goes over to its own root, which is empty then.
//!
//! # Why it is correct
//! - *No freed table is linked.* The CPU joins before it reads the entry, and has interrupts off
//!   until it has linked. So the zap finds it in the mask, and the interrupt comes after the link
//!   and drops it; or the entry was empty by the time it was read.
//! - A link is dropped by each flush of the table's whole span, and no table goes without one.
//! - *Accessed and dirty bits are not split*: a CPU's own tables have no entry that maps a page.
//!   That is why they end above the largest size of huge pages that is in use.
//!
//! # Cost
//! A fault for each CPU and span of such a table, a table for each CPU and span of an upper one. A
//! process that is undivided has none of it.
//!
//! RadixVM (EuroSys 2013) has all tables for each CPU, and finds the ones to interrupt page by
//! page.

use crate::base::config::CpuMasks;
use crate::mm::Mm;
use minflt_addr::VirtAddr;
use minflt_pgtable::{Mmu, Paging};

impl<M: Mmu> Mm<M> {
    /// Whether a CPU that runs this address space is to walk from a root of its own. Once it is, it
    /// stays so.
    ///
    /// # Context
    /// Interrupts are off, and the CPU has joined ([`Self::activate`]): if it finds false, a flush
    /// of everything comes when that changes.
    #[inline(always)]
    #[must_use]
    pub fn has_own_roots(&self) -> bool {
        M::OWN_ROOTS
            && self.system().config.cpu_masks == CpuMasks::Arenas
            && self.linked_arenas().is_some()
    }

    /// The calling CPU joins the mask of the arena of `addr`; then the value of the entry that
    /// leads to the table of level 1 for `addr`. None if there is no such table.
    ///
    /// # Context
    /// Interrupts are off, until the CPU has linked that table in its own ones. The address space
    /// is loaded.
    #[must_use]
    pub fn upper_entry(&self, addr: VirtAddr) -> Option<u64> {
        self.joins_arena(addr);
        let hold = self.as_hardware(addr)?;
        let tables = hold.tables();
        let mut table = self.root;
        for level in (2..M::Paging::levels()).rev() {
            let entry = tables.table(table, level).entry_for(addr, level).load();
            if !entry.is_table_at(level) {
                return None;
            }
            if level == 2 {
                return Some(entry.raw());
            }
            table = entry.pfn();
        }
        None
    }
}
