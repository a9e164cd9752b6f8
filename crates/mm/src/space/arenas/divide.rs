//! The division of an address space, and the arenas' beginning and end.
//!
//! An address space has what it is divided by from its creation, where that is the choice, and is
//! divided by the first mmap while there are two [`Thread`](crate::Thread)s of it: a program of one
//! thread has one tree, one lock and Linux's layout. The call holds the outer lock and `mmap_lock`
//! for writing, records every VMA in its arenas, and only then says that there are any. A call that
//! waited for `mmap_lock` looks again, and goes to the arenas. If memory runs out, the address
//! space stays as it was, and a later mmap tries again.
//!
//! A lookup without a lock may still be in the old tree: its nodes are retired, and what it finds
//! there are VMAs, whose sequence counts say whether they changed. What it does not find it looks
//! for under a lock, in the arenas.

use super::trees::part_of;
use crate::arenas::{Arena, Arenas, Division, Shelf};
use crate::base::config::AddressSpace;
use crate::base::error::NoMemory;
use crate::memory::arenas::Span;
use crate::mm::Mm;
use crate::space::arenas::look::Held;
use crate::space::tree::{Node, Tree};
use crate::system::System;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::slab::{Magazine, Pages};
use minflt_sync::{Ordering, PerCpu, Slab};

/// Memory of arenas, of all address spaces.
#[derive(Debug)]
pub(crate) struct Divisions<M: Mmu> {
    pub(crate) divisions: Slab<Arenas<M>, M>,
    pub(crate) shelves: Slab<Shelf<M>, M>,
    pub(crate) arenas: Slab<Arena<M>, M>,
}

impl<M: Mmu> Divisions<M> {
    /// Nothing yet; the slabs' magazines.
    pub(crate) fn new([division, shelf, arena]: [PerCpu<Magazine<M>, M>; 3]) -> Self {
        Self {
            divisions: Slab::new(15, division, Pages::Leave),
            shelves: Slab::new(16, shelf, Pages::Leave),
            arenas: Slab::new(17, arena, Pages::Leave),
        }
    }
}

impl<M: Mmu> System<M> {
    /// Memory of arenas. There is some where address spaces may be divided.
    pub(super) fn divided_memory(&self) -> &Divisions<M> {
        self.divisions.get(0)
    }

    /// The CPU one of whose magazines lies at a host address: for names.
    pub(crate) fn arena_magazine_at(&self, at: usize) -> Option<u32> {
        self.divisions.iter().find_map(|it| {
            let arena = it.arenas.magazine_at(at);
            arena
                .or_else(|| it.shelves.magazine_at(at))
                .or_else(|| it.divisions.magazine_at(at))
        })
    }

    /// Objects that are in use.
    pub(crate) fn arenas_in_use(&self) -> Counted {
        let mut counted = Counted::default();
        for it in self.divisions.iter() {
            counted.divisions += it.divisions.live();
            counted.shelves += it.shelves.live();
            counted.arenas += it.arenas.live();
        }
        counted
    }

    /// What an address space is divided by, where that is the choice.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new_arenas(&self) -> Result<Division<M>, NoMemory> {
        if self.config.address_space == AddressSpace::Whole {
            return Ok(Division(None));
        }
        let memory = &self.divided_memory().divisions;
        let arenas = memory.alloc(Arenas::new(self), self);
        let arenas = arenas.map_err(|_| NoMemory)?;
        Ok(Division(Some(arenas)))
    }

    /// Frees the arenas of an address space, and what they are found by.
    ///
    /// # Safety
    /// 1. They are this system's, no other thread has them, and their trees are empty or retired.
    pub(crate) unsafe fn free_arenas(&self, division: Division<M>) {
        let Division(Some(gone)) = division else {
            return;
        };
        let memory = self.divided_memory();
        // SAFETY: 1 of this function.
        let all = unsafe { gone.as_ref() };
        all.peek_each(|_, arena| {
            // SAFETY: 1, 2: 1 of this function; each is found once.
            unsafe { memory.arenas.free(NonNull::from(arena), self) };
        });
        all.peek_shelves(|_, shelf: NonNull<Shelf<M>>| {
            // SAFETY: 1, 2: 1 of this function; each is found once.
            unsafe { memory.shelves.free(shelf, self) };
        });
        // SAFETY: 1, 2: 1 of this function.
        unsafe { memory.divisions.free(gone, self) };
    }
}

/// Arenas and shelves of an address space, for the ledger.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counted {
    pub(crate) divisions: u64,
    pub(crate) shelves: u64,
    pub(crate) arenas: u64,
}

impl Counted {
    pub(crate) fn add(&mut self, other: Self) {
        self.divisions += other.divisions;
        self.shelves += other.shelves;
        self.arenas += other.arenas;
    }
}

impl<M: Mmu> Mm<M> {
    /// Whether it was divided into arenas.
    #[must_use]
    pub fn is_divided(&self) -> bool {
        self.divided().is_some()
    }

    /// A thread comes.
    pub(crate) fn thread_comes(&self) {
        if let Some(arenas) = self.arenas() {
            arenas.threads.add(1, Ordering::Relaxed);
        }
    }

    /// A thread goes.
    pub(crate) fn thread_goes(&self) {
        if let Some(arenas) = self.arenas() {
            arenas.threads.sub(1, Ordering::Relaxed);
        }
    }

    /// Divides it if it has several threads, and was not divided before.
    ///
    /// # Context
    /// Holds nothing; sleeps for `mmap_lock`.
    #[inline]
    pub(crate) fn divide_if_shared(&self) {
        if let Some(arenas) = self.arenas()
            && self.divided().is_none()
            && arenas.threads.load(Ordering::Relaxed)
                >= self.system().config.address_space.threads()
        {
            // Without memory it goes on as it was.
            let _divided = self.divide(arenas);
        }
    }

    #[cold]
    fn divide(&self, arenas: &Arenas<M>) -> Result<(), NoMemory> {
        let _outer = arenas.outer.write();
        let guard = self.mmap_lock.write();
        if self.divided().is_some() {
            return Ok(());
        }
        let mut result = Ok(());
        // SAFETY: 1: held by `guard`.
        unsafe { Held::over(self, Span::UNDIVIDED) }.each(|vma| {
            let view = vma.view();
            for number in arenas.span_of(view.range).numbers() {
                if result.is_ok() {
                    let part = part_of(view, arenas.addresses(number));
                    let arena = arenas.get(number);
                    let arena = arena.map_or_else(|| arenas.make(self.system(), number, false), Ok);
                    result = arena.and_then(|it| it.tree.insert(self.system(), &part, vma, None));
                }
            }
        });
        if result.is_err() {
            arenas.peek_each(|_, arena| self.empty(&arena.tree));
            return result;
        }
        // Before the mark: from that on others count in arenas, whose locks this does not hold.
        self.several_writers.store(1, Ordering::Relaxed);
        self.links_arenas(
            arenas,
            VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end())),
        );
        // ORDERING: Release; pairs with [divided].
        arenas.divided.store(1, Ordering::Release);
        self.empty(&self.tree);
        M::note(format_args!("mm divided into arenas"));
        drop(guard);
        Ok(())
    }

    /// Takes everything out of a tree; VMAs stay.
    fn empty(&self, tree: &Tree<M>) {
        tree.clear(&mut |node: NonNull<Node<M>>| {
            // SAFETY: 1: taken out by that, under the lock.
            unsafe { self.system().retire_node(node) };
        });
    }

    /// Where an mmap goes that may go anywhere: the arena of this CPU.
    pub(crate) fn home(&self) -> Option<VirtRange> {
        let arenas = self.divided()?;
        let home = arenas.addresses(arenas.home());
        (!home.is_empty()).then_some(home)
    }

    /// Where an mmap goes that another thread will use: an arena that is no CPU's.
    pub(crate) fn home_of_stacks(&self) -> Option<VirtRange> {
        let arenas = self.divided()?;
        let home = arenas.addresses(arenas.home_of_stacks());
        (!home.is_empty()).then_some(home)
    }

    /// Its arenas, for the ledger.
    pub(crate) fn count_arenas(&self) -> Counted {
        let mut counted = Counted::default();
        if let Some(arenas) = self.arenas() {
            counted.divisions += 1;
            arenas.peek_each(|_, _: &Arena<M>| counted.arenas += 1);
            arenas.peek_shelves(|_, _| counted.shelves += 1);
        }
        counted
    }
}
