//! Stack expansion: mappings that grow down to an access below them.
//!
//! # Problem
//! A fault finds no VMA at its address, but the next VMA above is a stack. Expanding it changes a
//! VMA and the tree, which a fault must not do while other faults read them: in Linux 6.1 to 6.4 a
//! stack grew under `mmap_lock` for reading, and rewrote a tree node that lockless lookups were
//! walking (CVE-2023-3269); before that it could grow into a range whose page tables munmap was
//! still freeing (CVE-2020-29369).
//!
//! # Idea
//! Expansion is a call like any other: the fault releases its locks, takes `mmap_lock` for writing,
//! looks up again, and expands the stack inside a VMA write section. Then the fault is retried.
//!
//! # Protocol
//! ```text
//! modes without mmap_lock   find no VMA at the address: fall back
//! mmap_lock, read           finds none: release
//! mmap_lock, write          look up again; check the gap and the limits; allocate everything;
//!                           a write section on the stack: the tree's key, the attributes
//! every mode                retry
//! ```
//!
//! # Why it is correct
//! A lockless lookup finds the VMA by the old key or the new one; the write section makes it notice
//! the change. The address may have been mapped, or the stack unmapped, between the two locks, so
//! the result of the first lookup is not used. An access from another address space expands a stack
//! only where it is forced, as a debugger's is.
//!
//! # Cost
//! `mmap_lock` is taken four times, with a lookup each: twice by the fault, before and after, once
//! to look up and once to change. One attribute record and a copied path of the tree.
//!
//! Linux: mm/mmap_lock.c lock_mm_and_find_vma, mm/vma.c expand_downwards, acct_stack_growth
//! (v6.18).

use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::config::NegativeControl;
use crate::base::error::NoMemory;
use crate::base::event::Event;
use crate::change::owned::NewRecord;
use crate::change::writers::Writers;
use crate::memory::commit::Pages;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
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
    /// Where the stack of the program begins: the mapping there is shown as `[stack]` by
    /// [`Mm::maps`]. A child inherits it. Linux: `mm->start_stack`, set by exec.
    pub fn set_start_stack(&self, addr: VirtAddr) {
        self.start_stack.store(addr.0, Ordering::Relaxed);
    }

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
            let guard = self.read(Over::All);
            if stack_above(guard.held(), addr)?.is_none() {
                return Ok(());
            }
        }
        if self.system().lacks(NegativeControl::ExpandUnderReadLock) {
            let guard = self.read(Over::All);
            return self.expand_locked(guard.held(), None, addr);
        }
        let writers = Writers::lock(self, Over::All);
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
        held.prepare_anon_vma_once(vma)?;
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
        let ensured = writers.map(|writers| writers.ensure_one(Some(below)));
        let _ensured = ensured
            .transpose()
            .inspect_err(|_| self.system().uncharge(more.accounted))?;
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
        self.rekey_record(old, new, vma)?;
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

/// Whether a stack that begins at `at` would violate the guard gap to the mapping below.
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
