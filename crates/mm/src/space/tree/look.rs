//! Tree lookups with and without `mmap_lock`, and writers' searches.

use super::{Body, FANOUT, HOLE, Mapping, Node, Tree, by_word, read, vma};
use crate::base::attrs::VmaView;
use crate::space::vma::Vma;
use crate::space::vma_ptr::VmaPtr;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_sync::Ordering;

impl<M: Mmu> Tree<M> {
    /// The last VMA that starts at or before `addr`.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`, or a read section of the reclamation scheme's domain, as
    ///    long as `'a`.
    #[inline]
    pub(crate) unsafe fn at_or_before<'a>(&self, addr: VirtAddr) -> Option<&'a Vma<M>> {
        // SAFETY: 1: 1 of this function.
        let found = unsafe { self.ptr_at_or_before(addr) };
        // SAFETY: 1 of this function: VMAs outlive the nodes that name them.
        found.map(|found| unsafe { found.as_ref() })
    }

    /// The same where it may be freed meanwhile, and be another by now, as under `type-stable`: a
    /// reference would say that nobody writes it.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`, or a read section of the reclamation scheme's domain.
    #[inline(always)]
    pub(crate) unsafe fn ptr_at_or_before(&self, addr: VirtAddr) -> Option<NonNull<Vma<M>>> {
        // ORDERING: Acquire; pairs with [tree-slot].
        let mut node = self.root.load(Ordering::Acquire);
        if node == 0 {
            return None;
        }
        loop {
            M::prefetch(node as *const u8, size_of::<Body<M>>());
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            let at_most = body.at_most(addr.0);
            let slot = body.found(at_most.saturating_sub(1));
            if body.level == 0 {
                if at_most > 0 && slot != 0 {
                    return NonNull::new(slot as *mut Vma<M>);
                }
                let mut before = (0..at_most).rev().map(|slot| body.found(slot));
                return match before.find(|slot| *slot != 0) {
                    Some(slot) => NonNull::new(slot as *mut Vma<M>),
                    // SAFETY: 1: 1 of this function.
                    None => unsafe { self.before_hole(addr) },
                };
            }
            node = slot;
        }
    }

    /// The same where no key of the leaf that is at most `addr` leads anywhere.
    ///
    /// # Safety
    /// 1. As for [`Tree::at_or_before`].
    #[cold]
    #[inline(never)]
    unsafe fn before_hole(&self, addr: VirtAddr) -> Option<NonNull<Vma<M>>> {
        /// # Safety
        /// 1. As for [`Tree::at_or_before`], of a node of the tree.
        unsafe fn down<M: Mmu>(node: u64, addr: u64) -> Option<NonNull<Vma<M>>> {
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            let at_most = body.at_most(addr);
            if body.level == 0 {
                let mut found = (0..at_most).rev().map(|slot| body.found(slot));
                return found.find_map(|slot| NonNull::new(slot as *mut Vma<M>));
            }
            // The first leaf may have none; the next one has.
            let mut children = (0..at_most.max(1)).rev().map(|slot| body.found(slot));
            // SAFETY: 1: 1 of this function.
            children.find_map(|child| unsafe { down(child, addr) })
        }
        // ORDERING: Acquire; pairs with [tree-slot].
        let root = self.root.load(Ordering::Acquire);
        if root == 0 {
            return None;
        }
        // SAFETY: 1: 1 of this function.
        unsafe { down(root, addr.0) }
    }

    /// What is mapped at `addr`, mostly without a look at the VMA.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline]
    pub(crate) unsafe fn mapping(&self, addr: VirtAddr) -> Option<Mapping> {
        let mut node = self.root.load(Ordering::Relaxed);
        if node == 0 {
            return None;
        }
        loop {
            M::prefetch(node as *const u8, core::mem::offset_of!(Body<M>, slots));
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            let at_most = body.at_most(addr.0);
            let slot = at_most.saturating_sub(1);
            if body.level > 0 {
                node = body.held(slot);
                continue;
            }
            // SAFETY: 1: 1 of this function.
            let word = unsafe { body.words() }[slot];
            let found = by_word::<M::Paging>(body.keys[slot], word);
            if at_most == 0 || found.is_none() || M::CHECKED {
                // SAFETY: 1: 1 of this function.
                return unsafe { self.mapping_of_vma(addr, found.filter(|_| at_most > 0)) };
            }
            return found.filter(|it| it.range.contains(addr));
        }
    }

    /// The same by the VMA, which has to say what the leaf said, if it said anything.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[cold]
    #[inline(never)]
    unsafe fn mapping_of_vma(&self, addr: VirtAddr, said: Option<Mapping>) -> Option<Mapping> {
        // SAFETY: 1: 1 of this function.
        let VmaView { range, prot, .. } = unsafe { self.at_or_before(addr) }?.view();
        let now = Mapping { range, prot };
        if said.is_some_and(|said| said != now) {
            M::violation(format_args!(
                "stale range in the VMA tree: {said:?} instead of {now:?}"
            ));
        }
        range.contains(addr).then_some(now)
    }

    /// The first VMA that starts at or after `addr`.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`, as long as `'a`.
    pub(crate) unsafe fn at_or_after<'a>(&self, addr: VirtAddr) -> Option<&'a Vma<M>> {
        let mut node = self.root.load(Ordering::Relaxed);
        // The subtree right of the path, nearest to the leaf.
        let mut right = 0;
        while node != 0 {
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            if body.level == 0 {
                let below = addr.0.checked_sub(1).map_or(0, |last| body.at_most(last));
                // SAFETY: 1: 1 of this function.
                let found = (below..body.used()).find(|slot| unsafe { body.lives(*slot) });
                if let Some(slot) = found {
                    // SAFETY: 1 of this function.
                    return Some(unsafe { vma(body.held(slot)) });
                }
                break;
            }
            let slot = body.slot_for(addr.0);
            if slot + 1 < body.used() {
                right = body.held(slot + 1);
            }
            node = body.held(slot);
        }
        // SAFETY: 1: 1 of this function.
        let (leaf, slot) = unsafe { first::<M>(right) }?;
        // SAFETY: 1 of this function.
        Some(unsafe { vma(leaf.held(slot)) })
    }

    /// The leaf and the slot of the key `start`, if there is one: a VMA's or a hole.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`, as long as `'a`.
    #[inline]
    pub(super) unsafe fn slot_of<'a>(&self, start: u64) -> Option<(&'a Body<M>, usize)> {
        let mut node = self.root.load(Ordering::Relaxed);
        while node != 0 {
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            let slot = body.slot_for(start);
            if body.level == 0 {
                return (body.keys[slot] == start).then_some((body, slot));
            }
            node = body.held(slot);
        }
        None
    }

    /// What is not mapped when the VMA in `slot` of `leaf` goes, if VMAs are on both sides: where
    /// the one before starts, and what is free.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline]
    pub(super) unsafe fn gap_around(
        &self,
        leaf: &Body<M>,
        slot: usize,
    ) -> Option<(u64, VirtRange)> {
        // SAFETY: 1: 1 of this function, here and below.
        let words = unsafe { leaf.words() };
        let lives = |slot: &usize| words[*slot] != HOLE;
        let (start, end) = match (0..slot).rev().find(lives) {
            // SAFETY: 1.
            Some(before) => (leaf.keys[before], unsafe { leaf.end_of(before) }),
            None => {
                let last = VirtAddr(leaf.keys[slot].checked_sub(1)?);
                // SAFETY: 1.
                let before = unsafe { self.before_hole(last) }?;
                // SAFETY: 1 of this function: VMAs outlive the nodes that name them.
                let range = unsafe { before.as_ref() }.view().range;
                (range.start().0, range.end().0)
            }
        };
        // SAFETY: 1.
        let next = unsafe { self.next_start(leaf, slot) }?;
        // Of those that a merge is about to take out, another covers it already.
        let free = VirtRange::new(VirtAddr(end.min(next)), VirtAddr(next));
        Some((start, free))
    }

    /// Where the first VMA behind the key in `slot` of `leaf` starts.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline]
    pub(super) unsafe fn next_start(&self, leaf: &Body<M>, slot: usize) -> Option<u64> {
        // SAFETY: 1: 1 of this function.
        let words = unsafe { leaf.words() };
        if let Some(next) = (slot + 1..FANOUT).find(|slot| words[*slot] != HOLE) {
            return Some(leaf.keys[next]);
        }
        // SAFETY: 1: 1 of this function.
        let next = unsafe { self.at_or_after(VirtAddr(leaf.keys[slot] + 1)) };
        next.map(|next| next.view().range.start().0)
    }

    /// How many leaves there are.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    pub(crate) unsafe fn leaves(&self) -> usize {
        /// # Safety
        /// 1. As for [`Tree::leaves`], of a node of the tree.
        unsafe fn below<M: Mmu>(node: u64) -> usize {
            // SAFETY: 1: 1 of this function.
            let body = unsafe { read::<M>(node) };
            match body.level {
                0 => 1,
                // SAFETY: 1: 1 of this function.
                _ => (0..body.used())
                    .map(|slot| unsafe { below::<M>(body.held(slot)) })
                    .sum(),
            }
        }
        match self.root.load(Ordering::Relaxed) {
            0 => 0,
            // SAFETY: 1: 1 of this function.
            root => unsafe { below::<M>(root) },
        }
    }

    /// Visits every VMA in order, without the door, for oracles and teardown; then every node.
    pub(crate) fn visit(
        &self,
        vmas: &mut dyn FnMut(VmaPtr<'_, M>),
        nodes: &mut dyn FnMut(NonNull<Node<M>>),
    ) {
        fn down<M: Mmu>(
            node: u64,
            vmas: &mut dyn FnMut(VmaPtr<'_, M>),
            nodes: &mut dyn FnMut(NonNull<Node<M>>),
        ) {
            let Some(node) = NonNull::new(node as *mut Node<M>) else {
                return;
            };
            // SAFETY: called while nobody changes the tree.
            let body = &unsafe { node.as_ref() }.body;
            for slot in &body.slots[..body.used()] {
                match slot.peek() {
                    0 => {}
                    // SAFETY: a leaf names VMAs.
                    slot if body.level == 0 => vmas(unsafe { vma(slot) }.into()),
                    slot => down(slot, vmas, nodes),
                }
            }
            nodes(node);
        }
        down(self.root.peek(), vmas, nodes);
    }
}

impl<M: Mmu> Body<M> {
    /// Whether the key in `slot` of a leaf leads to a VMA.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline(always)]
    pub(super) unsafe fn lives(&self, slot: usize) -> bool {
        // SAFETY: 1: 1 of this function.
        let words = unsafe { self.words() };
        words[slot] != HOLE
    }

    /// The VMAs of a leaf.
    ///
    /// # Safety
    /// 1. The caller holds `mmap_lock`.
    #[inline]
    pub(super) unsafe fn living(&self) -> usize {
        // SAFETY: 1: 1 of this function.
        let words = unsafe { self.words() };
        words
            .iter()
            .map(|word| u32::from(*word != HOLE))
            .sum::<u32>() as usize
    }
}

impl<M: Mmu> Tree<M> {
    /// The root, if there is one, without the door, for oracles while nothing runs.
    pub(super) fn peek_root(&self) -> Option<&Body<M>> {
        let root = NonNull::new(self.root.peek() as *mut Node<M>)?;
        // SAFETY: nodes are freed by writers, and nothing runs.
        Some(&unsafe { root.as_ref() }.body)
    }
}

/// What a node says, without the door, for oracles while nothing runs.
impl<M: Mmu> Body<M> {
    /// The child in `slot` of an inner node.
    pub(super) fn peek_child(&self, slot: usize) -> &Self {
        // SAFETY: an inner node names nodes, which are freed by writers, and nothing runs.
        unsafe { &(*(self.slots[slot].peek() as *const Node<M>)).body }
    }

    /// The VMA in `slot` of a leaf, which is no hole.
    pub(super) fn peek_vma(&self, slot: usize) -> &Vma<M> {
        // SAFETY: a leaf names VMAs, which are freed by writers, and nothing runs.
        unsafe { vma(self.slots[slot].peek()) }
    }

    /// The word of a slot.
    pub(super) fn peek_word(&self, slot: usize) -> u32 {
        // SAFETY: words are written by writers, and nothing runs.
        unsafe { (*self.words.get())[slot] }
    }
}

/// The leaf and the slot of the first VMA below `node`, which may be 0.
///
/// # Safety
/// 1. The caller holds `mmap_lock`, as long as `'a`.
pub(super) unsafe fn first<'a, M: Mmu>(mut node: u64) -> Option<(&'a Body<M>, usize)> {
    while node != 0 {
        // SAFETY: 1: 1 of this function.
        let body = unsafe { read::<M>(node) };
        if body.level == 0 {
            // SAFETY: 1: 1 of this function.
            let slot = (0..FANOUT).find(|slot| unsafe { body.lives(*slot) })?;
            return Some((body, slot));
        }
        node = body.held(0);
    }
    None
}

/// The leaf and the slot of the last VMA below `node`, which may be 0.
///
/// # Safety
/// 1. The caller holds `mmap_lock`, as long as `'a`.
pub(super) unsafe fn last<'a, M: Mmu>(mut node: u64) -> Option<(&'a Body<M>, usize)> {
    while node != 0 {
        // SAFETY: 1: 1 of this function.
        let body = unsafe { read::<M>(node) };
        if body.level == 0 {
            // SAFETY: 1: 1 of this function.
            let slot = (0..FANOUT)
                .rev()
                .find(|slot| unsafe { body.lives(*slot) })?;
            return Some((body, slot));
        }
        node = body.held(body.used() - 1);
    }
    None
}
