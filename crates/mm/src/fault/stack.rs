//! Stack expansion: mappings that grow down to an access below them.
//!
//! # Problem
//! A fault finds nothing mapped, but the next mapping above is a stack. Making that longer changes
//! a VMA and the tree, which no fault may do that others run beside: in Linux 6.1 to 6.4 a stack
//! grew under `mmap_lock` for reading, and rewrote a node of the tree under the feet of lookups
//! (CVE-2023-3269); before that it could grow into a range whose tables munmap was still freeing
//! (CVE-2020-29369).
//!
//! # Idea
//! Growing is a call like another: the fault lets everything go, takes `mmap_lock` for writing,
//! looks again, and grows the stack inside a section. Then it is tried again like any fault.
//!
//! # Protocol
//! ```text
//! rungs without mmap_lock   find no VMA at the address: fall back
//! mmap_lock, read           find none: let go
//! mmap_lock, write          look again; ask the gap and the limits; get all memory;
//!                           a section on the stack: the tree's key, the record
//! every rung                again
//! ```
//!
//! # Why it is correct
//! Whoever looks without a lock finds the VMA by the old key or the new one; the section tells him
//! that it changes. The address may have been mapped, or the stack unmapped, between the two locks,
//! so what was found under the first counts for nothing. An access from another address
//! space grows something only where it is forced, as a debugger's is.
//!
//! # Cost
//! Four holds of `mmap_lock` with a lookup under each: two by the fault, before and after, one to
//! look and one to change. A record, a copied path of the tree.
//!
//! Linux: mm/mmap_lock.c lock_mm_and_find_vma, mm/vma.c expand_downwards, acct_stack_growth
//! (v6.18).

use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::config::Broken;
use crate::base::error::NoMemory;
use crate::base::event::Event;
use crate::change::owned::NewRecord;
use crate::change::writers::Writers;
use crate::memory::commit::Pages;
use crate::mm::Mm;
use crate::space::look::Held;
use crate::space::vma::Vma;
use crate::system::System;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Ordering;

/// The pages that stay free below a stack, at first (`stack_guard_gap`).
pub(crate) const DEFAULT_GUARD_GAP: u64 = 256;
/// The bytes that a stack may have, at first (`RLIMIT_STACK`).
pub(crate) const DEFAULT_LIMIT: u64 = 8 << 20;

/// The address is no stack's, or the stack may not grow so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotGrown;

impl From<NoMemory> for NotGrown {
    fn from(_: NoMemory) -> Self {
        Self
    }
}

impl<M: Mmu> System<M> {
    /// How many pages stay free between a stack and what is mapped below it, from now on; 256 at
    /// first. A mapping below that grows itself, or allows no access, may be nearer.
    pub fn set_stack_guard_gap(&self, pages: u64) {
        self.stack_guard_gap.store(pages, Ordering::Relaxed);
    }

    /// How many pages stay free below a stack.
    #[must_use]
    pub fn stack_guard_gap(&self) -> u64 {
        self.stack_guard_gap.load(Ordering::Relaxed)
    }
}

impl<M: Mmu> Mm<M> {
    /// How many bytes a stack may grow to from now on (`RLIMIT_STACK`); 8 MiB at first, `u64::MAX`
    /// for no limit. What has grown stays so.
    pub fn set_limit_stack(&self, bytes: u64) {
        self.limit_stack.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes a stack may grow to.
    #[must_use]
    pub fn limit_stack(&self) -> u64 {
        self.limit_stack.load(Ordering::Relaxed)
    }

    /// A fault found nothing mapped at `addr`: grows the stack above, if there is one.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`: for reading, then for writing.
    ///
    /// # Errors
    /// Nothing there grows, or not so far. Nothing has changed then.
    #[cold]
    #[inline(never)]
    pub(crate) fn expand_stack(&self, addr: VirtAddr) -> Result<(), NotGrown> {
        {
            // A stray access shall not keep faults out.
            let guard = self.mmap_lock.read();
            if stack_above(self.held(&guard), addr)?.is_none() {
                return Ok(());
            }
        }
        if self.system().lacks(Broken::ExpandUnderReadLock) {
            let guard = self.mmap_lock.read();
            return self.expand_locked(self.held(&guard), None, addr);
        }
        let writers = Writers::lock(self);
        self.expand_locked(writers.held(), Some(&writers), addr)
    }

    fn expand_locked(
        &self,
        held: Held<'_, M>,
        writers: Option<&Writers<'_, M>>,
        addr: VirtAddr,
    ) -> Result<(), NotGrown> {
        let Some(vma) = stack_above(held, addr)? else {
            return Ok(());
        };
        let at = addr.align_down(M::Paging::shift());
        if at < Self::user_range().start() || crowds(held, vma, at) {
            return Err(NotGrown);
        }
        self.prepare_anon_vma_once(vma)?;
        let _section = writers.map(|writers| writers.begin(vma));
        let view = vma.view();
        let grow = (view.range.start().0 - at.0) >> M::Paging::shift();
        let grown = VirtRange::new(at, view.range.end());
        let may = grow <= view.pgoff && grown.len() <= self.limit_stack() && self.may_expand(grow);
        if !may {
            return Err(NotGrown);
        }
        let below = VirtRange::new(at, view.range.start());
        let more = Pages::of::<M>(&view.of_range::<M::Paging>(below));
        self.may_lock(more.locked)?;
        self.system().charge(more.accounted)?;
        self.grow_down(vma, view.of_range::<M::Paging>(grown))
            .inspect_err(|_| self.system().uncharge(more.accounted))?;
        self.count_mapped(more);
        self.system().count(Event::StackGrown);
        M::note(format_args!("stack grows to {at}"));
        Ok(())
    }

    /// The VMA's record says `grown` from here on, and the tree its new start.
    fn grow_down(&self, vma: &Vma<M>, grown: VmaView) -> Result<(), NoMemory> {
        let record = NewRecord::new(self, grown)?;
        let (old, new) = (vma.view().range.start(), grown.range.start());
        self.tree.rekey(self.system(), old, new, vma)?;
        drop(record.publish(vma));
        Ok(())
    }
}

/// The stack that has to grow to cover `addr`; none if it is covered by now.
fn stack_above<M: Mmu>(held: Held<'_, M>, addr: VirtAddr) -> Result<Option<&Vma<M>>, NotGrown> {
    let vma = held.find(addr).ok_or(NotGrown)?;
    let view = vma.view();
    if view.range.contains(addr) {
        return Ok(None);
    }
    if view.flags.has(VmaFlags::GROWS_DOWN) {
        Ok(Some(vma))
    } else {
        Err(NotGrown)
    }
}

/// Whether a stack that begins at `at` would come too near to the mapping before it.
fn crowds<M: Mmu>(held: Held<'_, M>, vma: &Vma<M>, at: VirtAddr) -> bool {
    let last = VirtAddr(vma.view().range.start().0 - 1);
    let Some(before) = held.at_or_before(last) else {
        return false;
    };
    let VmaView {
        range, prot, flags, ..
    } = before.view();
    let gap = held
        .system()
        .stack_guard_gap()
        .saturating_mul(M::Paging::page());
    let keeps_off = !flags.has(VmaFlags::GROWS_DOWN) && prot != Prot::NONE;
    keeps_off && at.0.saturating_sub(range.end().0) < gap
}
