//! The trees of an address space as one: records of a VMA in every arena that it overlaps.
//!
//! Lookups are methods of [`Held`], and see the arenas that are held. Changes go to the arenas that
//! the VMA overlaps before or after, all of which the caller holds for writing. One that reaches
//! over several arenas changes several trees, none of which may fail: nodes and arenas are ensured
//! before ([`Mm::ensure_records`]).
//!
//! Two VMAs that come into an arena from below, one in place of the other, have the same key there,
//! its first address. So what goes by a key looks whose record it is.

use crate::arenas::{Arena, Arenas};
use crate::base::attrs::VmaView;
use crate::base::error::NoMemory;
use crate::memory::arenas::Span;
use crate::mm::Mm;
use crate::space::arenas::look::Held;
use crate::space::tree::{Beside, Between, End, Found, Hole, Locked, Node, Tree};
use crate::space::vma::{Vma, VmaPtr};
use crate::system::System;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::slab::Ensured;

/// The part of a VMA that one arena has a record of.
pub(super) fn part_of(view: VmaView, addresses: VirtRange) -> VmaView {
    VmaView {
        range: view.range.intersect(addresses),
        ..view
    }
}

/// Lookups over the arenas of a span.
impl<'h, M: Mmu> Held<'h, M> {
    /// The arenas, of what is divided.
    #[inline(always)]
    fn arenas(self) -> &'h Arenas<M> {
        self.mm().its_arenas()
    }

    /// The tree of an arena.
    #[inline(always)]
    fn tree_of(self, number: u16) -> Option<Locked<'h, M>> {
        let arena = self.arenas().get(number)?;
        // SAFETY: 1: held as a part of the span.
        Some(unsafe { arena.tree.locked() })
    }

    /// The addresses of the arenas that are held: all of user space if it is not divided.
    pub(crate) fn held_addresses(self) -> VirtRange {
        let span = self.span();
        if span.is_undivided() {
            return VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end()));
        }
        let arenas = self.arenas();
        let (first, last) = (arenas.addresses(span.first), arenas.addresses(span.last));
        VirtRange::new(first.start(), last.end())
    }

    /// See [`Held::at_or_before`].
    pub(super) fn before_in_arenas(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        let span = self.span();
        let last = self.arenas().number_of(addr).min(span.last);
        let below = Span { last, ..span };
        let mut trees = self.arenas().each(below).rev();
        trees.find_map(|(number, _)| self.tree_of(number)?.at_or_before(addr))
    }

    /// See [`Held::at_or_after`].
    pub(super) fn after_in_arenas(self, addr: VirtAddr) -> Option<&'h Vma<M>> {
        let span = self.span();
        let mut at = addr;
        loop {
            let first = self.arenas().number_of(at).max(span.first);
            let above = Span { first, ..span };
            let mut trees = self.arenas().each(above);
            let found = trees.find_map(|(number, _)| self.tree_of(number)?.at_or_after(at))?;
            let range = found.view().range;
            if range.start() >= addr {
                return Some(found);
            }
            // It came in from below.
            at = range.end();
            if at.0 >= M::Paging::user_end() {
                return None;
            }
        }
    }

    /// See [`Held::found`].
    pub(super) fn found_in_arenas(self, start: VirtAddr) -> Option<Found<'h, M>> {
        let found = self.tree_of(self.arenas().number_of(start))?.found(start);
        found.filter(|found| found.vma().view().range.start() == start)
    }

    /// See [`Held::beside`]. What reaches out of the span cannot be merged with.
    pub(super) fn beside_in_arenas(self, range: VirtRange) -> Beside<'h, M> {
        let span = self.span();
        let changeable = |vma: &&'h Vma<M>| span.covers(self.arenas().span_of(vma.view().range));
        let last = range.start().0.checked_sub(1).map(VirtAddr);
        let below = last.and_then(|last| self.before_in_arenas(last));
        let below = below.filter(|vma| vma.view().range.end() == range.start());
        let above = self.after_in_arenas(range.end());
        let above = above.filter(|vma| vma.view().range.start() == range.end());
        Beside {
            below: below.filter(changeable).map(VmaPtr::from),
            above: above.filter(changeable).map(VmaPtr::from),
            between: None,
        }
    }

    /// See [`Held::around`]; up to the ends of the span where nothing is mapped, but for the last
    /// page of one arena. So the tables over that page, a way down from the root, stay. A thread
    /// that unmaps the only mapping of its arena and maps the next one there would take them out
    /// and put them in each time, with the lock of a table that serves several arenas.
    pub(super) fn around_in_arenas(self, addr: VirtAddr) -> (Option<VirtAddr>, Option<VirtAddr>) {
        let all = self.held_addresses();
        let before = self.before_in_arenas(addr);
        let floor = before.map_or(all.start(), |vma| vma.view().range.end());
        let after = self.after_in_arenas(addr);
        let end = match self.span().only() {
            Some(_) => VirtAddr(all.end().0 - M::Paging::page()),
            None => all.end(),
        };
        let ceiling = after.map_or(end, |vma| vma.view().range.start());
        (Some(floor), Some(ceiling.max(floor)))
    }

    /// See [`Held::highest_hole`]: by the gaps of its tree where it is one arena, else from mapping
    /// to mapping.
    pub(super) fn hole_in_arenas(
        self,
        len: u64,
        bottom: VirtAddr,
        top: End,
    ) -> Option<Hole<'h, M>> {
        let one = self.span().only();
        if let Some(tree) = one.and_then(|only| self.tree_of(only)) {
            return tree.highest_hole(len, bottom, top);
        }
        let mut top = top.address();
        loop {
            let below = self.before_in_arenas(VirtAddr(top.0.checked_sub(1)?));
            let range = below.map(|vma| vma.view().range);
            let floor = range.map_or(bottom, |range| range.end().max(bottom));
            if top.0.saturating_sub(floor.0) >= len {
                return Some(Hole::alone(VirtRange::new(floor, top)));
            }
            top = range?.start();
        }
    }

    /// Leaves of all trees.
    pub(super) fn leaves_in_arenas(self) -> usize {
        let trees = self.arenas().each(self.span());
        let trees = trees.filter_map(|(number, _)| self.tree_of(number));
        trees.map(Locked::leaves).sum()
    }
}

/// What the holder of an arena finds and takes out.
impl<M: Mmu> Arena<M> {
    /// What is recorded under a start.
    fn at(&self, start: VirtAddr) -> Option<&Vma<M>> {
        // SAFETY: 1: the caller holds it.
        let found = unsafe { self.tree.locked() }.found(start)?;
        Some(found.vma())
    }

    /// Takes the record under a start out, if it is such a one.
    fn take_out(
        &self,
        sys: &System<M>,
        start: VirtAddr,
        is: impl Fn(&Vma<M>) -> bool,
    ) -> Result<(), NoMemory> {
        // SAFETY: 1: the caller holds it.
        let found = unsafe { self.tree.locked() }.found(start);
        let found = found.filter(|found| is(found.vma()));
        found
            .map_or(Ok(None), |found| self.tree.remove_found(sys, found))
            .map(drop)
    }
}

/// Changes. The caller holds what they touch for writing.
impl<M: Mmu> Mm<M> {
    /// Adds a VMA that the caller has, in no tree yet: between the two that a search has found, if
    /// it has and nothing has changed since.
    ///
    /// # Errors
    /// No memory; it is in no tree then. Not where it was ensured.
    #[inline]
    pub(crate) fn insert_record(
        &self,
        vma: &Vma<M>,
        between: Option<Between<'_, M>>,
    ) -> Result<(), NoMemory> {
        let (sys, view) = (self.system(), vma.view());
        let Some(arenas) = self.divided() else {
            return self.tree.insert(sys, &view, vma, between);
        };
        let span = arenas.span_of(view.range);
        for (number, arena) in arenas.each(span) {
            let part = part_of(view, arenas.addresses(number));
            let between = between.filter(|_| span.only().is_some());
            arena.tree.insert(sys, &part, vma, between)?;
        }
        Ok(())
    }

    /// Takes a VMA out that was found before under the same hold, since when nothing has changed.
    /// Returns what is free around it then, if VMAs are on both sides of that.
    ///
    /// # Errors
    /// No memory; it is still there then. Not where it was ensured.
    #[inline]
    pub(crate) fn remove_record(&self, found: Found<'_, M>) -> Result<Option<VirtRange>, NoMemory> {
        let sys = self.system();
        let Some(arenas) = self.divided() else {
            return self.tree.remove_found(sys, found);
        };
        let span = arenas.span_of(found.vma().view().range);
        match span.only().and_then(|only| arenas.get(only)) {
            Some(arena) => arena.tree.remove_found(sys, found),
            None => self.remove_records(found.vma()).map(|()| None),
        }
    }

    /// Takes out what is recorded of a VMA, in all arenas.
    ///
    /// # Errors
    /// No memory, but not where it was ensured.
    pub(crate) fn remove_records(&self, vma: &Vma<M>) -> Result<(), NoMemory> {
        let (sys, range, arenas) = (self.system(), vma.view().range, self.its_arenas());
        for (number, arena) in arenas.each(arenas.span_of(range)) {
            let part = range.intersect(arenas.addresses(number));
            arena.take_out(sys, part.start(), |it| core::ptr::eq(it, vma))?;
        }
        Ok(())
    }

    /// What a VMA is recorded as, if arenas are to be told when that changes.
    pub(crate) fn recorded(&self, vma: &Vma<M>) -> Option<VmaView> {
        self.divided().map(|_| vma.view())
    }

    /// The record of attributes of a VMA was replaced; it was `old`, by [`Self::recorded`]. A start
    /// that moved is told by [`Self::rekey_record`].
    pub(crate) fn record_changed(&self, vma: &Vma<M>, old: Option<VmaView>) {
        let new = vma.view();
        let Some((arenas, old)) = self.divided().zip(old) else {
            return self.tree.changed(new);
        };
        if old.range.start() == new.range.start() {
            // What it takes was ensured where it takes anything.
            let _ensured = self.move_record(arenas, vma, old, new);
        }
    }

    /// Gives `vma`, which is recorded at `old`, another start; see [`Tree::rekey`].
    ///
    /// # Errors
    /// No memory. Nothing has changed then, and it does not happen where it was ensured.
    pub(crate) fn rekey_record(
        &self,
        old: VirtAddr,
        new: VirtAddr,
        vma: &Vma<M>,
    ) -> Result<(), NoMemory> {
        let Some(arenas) = self.divided() else {
            return self.tree.rekey(self.system(), old, new, vma);
        };
        let view = vma.view();
        let at = |start| VmaView {
            range: VirtRange::new(start, view.range.end()),
            ..view
        };
        self.move_record(arenas, vma, at(old), at(new))
    }

    /// Takes the records of a VMA from where it was to where it is.
    fn move_record(
        &self,
        arenas: &Arenas<M>,
        vma: &Vma<M>,
        old: VmaView,
        new: VmaView,
    ) -> Result<(), NoMemory> {
        let sys = self.system();
        let span = arenas.span_of(old.range).and(arenas.span_of(new.range));
        for (number, arena) in arenas.each(span) {
            let part = |view| part_of(view, arenas.addresses(number));
            let (old, new) = (part(old), part(new));
            if old.range.is_empty() && new.range.is_empty() {
                continue;
            }
            let (from, to) = (old.range.start(), new.range.start());
            let same = |it: &Vma<M>| core::ptr::eq(it, vma);
            if new.range.is_empty() {
                // The one that comes in place of it is there already, perhaps.
                arena.take_out(sys, from, same)?;
            } else if old.range.is_empty() {
                arena.tree.insert(sys, &new, vma, None)?;
            } else if from != to {
                // One that gives way to it, and comes in from below, is to go, and goes now.
                arena.take_out(sys, to, |it| !same(it))?;
                match arena.at(from).is_some_and(same) {
                    true => arena.tree.rekey_part(sys, from, &new, vma)?,
                    // One that grew over its start has taken its place.
                    false => arena.tree.insert(sys, &new, vma, None)?,
                }
            } else if arena.at(from).is_some_and(same) {
                arena.tree.changed(new);
            }
        }
        Ok(())
    }

    /// Makes sure that so many changes do not fail, one after the other: first removals and moves
    /// of starts, then insertions; within the arenas of `span`, of which those of `into` are made
    /// where there are none yet. See [`Tree::ensure`].
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn ensure_records(
        &self,
        span: Span,
        into: Option<VirtRange>,
        removals: u64,
        insertions: u64,
    ) -> Result<Ensured<'_, Node<M>, M>, NoMemory> {
        let sys = self.system();
        let Some(arenas) = self.divided() else {
            return self.tree.ensure(sys, removals, insertions);
        };
        if let Some(arena) = span.only().and_then(|only| arenas.get(only)) {
            return arena.tree.ensure(sys, removals, insertions);
        }
        let numbers = into.map(|range| arenas.span_of(range).numbers());
        for number in numbers.into_iter().flatten() {
            if arenas.get(number).is_none() {
                arenas.make(sys, number, true)?;
            }
        }
        let levels = arenas.each(span).map(|(_, arena)| arena.tree.levels());
        let levels = levels.max().unwrap_or(0);
        // In each arena one VMA that reaches in may go at each end of it, and come. One that is
        // empty takes a leaf.
        let full = arenas.each(span).filter(|(_, it)| !it.tree.is_empty());
        let full = full.count() as u64;
        let empty = arenas.each(span).count() as u64 - full;
        let (removals, insertions) = (removals + 2 * full, insertions + 2 * full);
        Tree::ensure_for(sys, levels, removals, insertions, empty)
    }

    /// Whether a change within these arenas may touch several trees.
    #[inline(always)]
    pub(crate) fn is_several(&self, span: Span) -> bool {
        self.divided()
            .is_some_and(|arenas| span.only().and_then(|only| arenas.get(only)).is_none())
    }

    /// The tree that a lookup without a lock looks into.
    #[inline(always)]
    pub(crate) fn tree_at(&self, addr: VirtAddr) -> Option<&Tree<M>> {
        match self.divided() {
            None => Some(&self.tree),
            Some(arenas) => Some(&arenas.get(arenas.number_of(addr))?.tree),
        }
    }

    /// Visits every VMA in order, for oracles and teardown.
    pub(crate) fn visit_vmas(&self, vmas: &mut dyn FnMut(VmaPtr<'_, M>)) {
        self.tree.visit(vmas, &mut |_| ());
        if let Some(arenas) = self.arenas() {
            // One that came in from below was the last before. It may be gone by now.
            let mut last = None;
            let mut first = |vma: VmaPtr<'_, M>| {
                if last.replace(vma.as_ptr()) != Some(vma.as_ptr()) {
                    vmas(vma);
                }
            };
            arenas.peek_each(|_, arena| arena.tree.visit(&mut first, &mut |_| ()));
        }
    }

    /// Visits every node of every tree, for oracles and teardown.
    pub(crate) fn visit_nodes(&self, nodes: &mut dyn FnMut(NonNull<Node<M>>)) {
        self.tree.visit(&mut |_| (), nodes);
        if let Some(arenas) = self.arenas() {
            arenas.peek_each(|_, arena| arena.tree.visit(&mut |_| (), nodes));
        }
    }

    /// # Errors
    /// What is wrong with a tree.
    pub(crate) fn validate_trees(&self) -> Result<(), &'static str> {
        let user = VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end()));
        let mut result = self.tree.validate(user);
        if let Some(arenas) = self.arenas() {
            arenas.peek_each(|addresses, arena| {
                result = result.and_then(|()| arena.tree.validate(addresses));
            });
            let (mut records, mut expected) = (0, 0);
            let mut count = |_: VmaPtr<'_, M>| records += 1;
            arenas.peek_each(|_, arena| arena.tree.visit(&mut count, &mut |_| ()));
            self.visit_vmas(&mut |vma| {
                let span = arenas.span_of(vma.get().peek().range);
                expected += span.numbers().count();
            });
            if arenas.divided.peek() != 0 && records != expected {
                result = Err("a VMA is not recorded in each of its arenas");
            }
        }
        result
    }
}
