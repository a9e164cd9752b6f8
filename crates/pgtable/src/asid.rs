//! Which address spaces' translations a CPU keeps while it runs another one.
//!
//! # Problem
//! A switch to another root drops all translations of the one before, and soon the CPU is back. A
//! tagged TLB keeps them: x86's process-context identifiers, the ASIDs of others. But a CPU that
//! runs something else does not see what becomes of the page tables meanwhile.
//!
//! # Idea
//! A few tags for each CPU, each of which belongs to one address space, or is free. The CPU stays
//! in the CPU mask of all that have a tag there, so that it is asked for their flushes. It does not
//! flush a tag that is not in use: it frees it, and leaves the mask. A tag that was free is flushed
//! when it gets an owner.
//!
//! Linux counts flushes instead: an address space has a generation, each tag the one that it has
//! seen, and a CPU compares them when it comes back (arch/x86/mm/tlb.c). It spares the interrupt
//! to a CPU that has a tag and does not run the address space, and costs an atomic increment a
//! flush. Here that CPU is interrupted once, and not again before it comes back.
//!
//! # Protocol
//! ```text
//! switch to S, interrupts off          flush of S on a CPU of its mask
//! join the mask of S                   S runs here: flush under its tag
//! S has a tag: load the root, keep     else: free its tag, leave the mask,
//! else: take a tag, load the root,       and its root, if that is loaded
//!   flush the tag
//! ```
//! A CPU with nothing to run leaves root and tag as they are (lazy TLB): to come back costs
//! nothing. A flush then finds that nothing runs, and has it leave both.
//!
//! # Why it is correct
//! *A tag with an owner has current translations only.* It was flushed when it got the owner, and
//! the CPU was in the mask by then: each PTE is read after the CPU joined. As long as it is in the
//! mask it is asked for every flush, and answers by a flush or by freeing the tag; it leaves only
//! with the latter. An initiator that finds the CPU in the mask waits for it, so a stale
//! translation is used no longer than without tags. *No freed table is walked*: hardware walks
//! below the loaded root only, and what it buffers of upper levels has the tag, too. At the end of
//! an address space all CPUs of its mask leave root and tag before the root is freed, so a tag does
//! not outlive its owner, either. Ids are unique within a system; that the next one on this memory
//! finds no tag of the last follows from the same, and a tag is its owner's with this root only.
//!
//! # Cost
//! A switch looks at each tag. A tag that is taken from another space costs its translations.
//! Without tags in hardware there is one, and the CPU must flush all with each new root: then this
//! is lazy TLB only.

use crate::mmu::SpaceId;

/// Tags of a CPU, at most. Linux: `TLB_NR_DYN_ASIDS`, also 6: more are not worth the search.
pub const ASIDS: usize = 6;

/// What a switch has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Switch {
    /// Nothing: the root is loaded.
    Stays,
    /// Load the root with this tag, and keep the tag's translations.
    Keep(usize),
    /// Load the root with this tag, and drop the tag's translations.
    Flush(usize),
}

/// The owner of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Owner {
    space: SpaceId,
    root: u64,
}

/// The tags of one CPU, which alone uses this, with interrupts off.
///
/// # Invariants
/// No two tags have the same owner. `current` names one that has an owner.
#[derive(Debug)]
pub struct Asids {
    owners: [Option<Owner>; ASIDS],
    /// Tags that there are.
    len: usize,
    /// The tag of the root that is loaded; none while that is of no address space.
    current: Option<usize>,
    /// The tag that is taken next where none is free.
    next: usize,
}

impl Asids {
    /// One tag, which is no tag in hardware: each switch flushes.
    #[must_use]
    pub const fn one() -> Self {
        // INVARIANT: no tag has an owner.
        Self {
            owners: [None; ASIDS],
            len: 1,
            current: None,
            next: 0,
        }
    }

    /// As many as there may be.
    #[must_use]
    pub const fn several() -> Self {
        // INVARIANT: as above.
        Self {
            len: ASIDS,
            ..Self::one()
        }
    }

    /// Switches to `space` with this root. The CPU is in its mask, and does at once what it is told
    /// to.
    #[inline]
    pub fn switch(&mut self, space: SpaceId, root: u64) -> Switch {
        let owner = Some(Owner { space, root });
        if let Some(current) = self.current
            && self.owners[current] == owner
        {
            return Switch::Stays;
        }
        // One that has the id, and another root, would be a second owner of it.
        self.forget(space, Some(root));
        let tags = &self.owners[..self.len];
        if let Some(asid) = tags.iter().position(|it| *it == owner) {
            self.current = Some(asid);
            return Switch::Keep(asid);
        }
        let asid = match tags.iter().position(Option::is_none) {
            Some(free) => free,
            None => self.next,
        };
        self.next = (asid + 1) % self.len;
        self.owners[asid] = owner;
        self.current = Some(asid);
        Switch::Flush(asid)
    }

    /// Whether the root of `space` is loaded.
    #[inline]
    #[must_use]
    pub fn is_current(&self, space: SpaceId) -> bool {
        self.current().is_some_and(|current| current.space == space)
    }

    /// The CPU leaves the mask of `space`: it has no tag any more. Whether its root is loaded, and
    /// is to be left at once.
    #[must_use]
    pub fn leave(&mut self, space: SpaceId) -> bool {
        let was_current = self.is_current(space);
        if was_current {
            self.current = None;
        }
        self.forget(space, None);
        was_current
    }

    /// A flush of `space`, whose root is not loaded: what its tag has is not to be used any more.
    pub fn forget_dormant(&mut self, space: SpaceId) {
        debug_assert!(!self.is_current(space), "what is loaded is flushed");
        self.forget(space, None);
    }

    /// A flush of everything: the tags that are not loaded have no owner any more.
    pub fn forget_all_dormant(&mut self) {
        for asid in 0..self.len {
            if self.current != Some(asid) {
                self.owners[asid] = None;
            }
        }
    }

    /// A flush of everything while nothing runs: the root is left, and its tag has no owner.
    pub fn leave_current(&mut self) {
        if let Some(asid) = self.current.take() {
            self.owners[asid] = None;
        }
    }

    fn current(&self) -> Option<Owner> {
        self.current.and_then(|asid| self.owners[asid])
    }

    /// Frees the tag of `space`, unless it has the root `but`.
    fn forget(&mut self, space: SpaceId, but: Option<u64>) {
        for owner in &mut self.owners[..self.len] {
            if owner.is_some_and(|it| it.space == space && but != Some(it.root)) {
                *owner = None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
