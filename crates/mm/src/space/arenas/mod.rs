//! Arenas: an address space as an array of small ones.
//!
//! # Problem
//! One `mmap_lock` and one tree of VMAs admit one mmap, munmap or mprotect at a time, however many
//! CPUs the process runs on and however far apart in the address space they work.
//!
//! # Idea
//! User space is divided into *arenas* of equal size, a power of two, so that an address names its
//! arena by a shift. Each has a tree of VMAs and an `mmap_lock` of its own. A call locks the arenas
//! that its range covers; an mmap that may go anywhere goes to the arena of the calling CPU. So
//! threads on different CPUs write no line in common.
//!
//! A VMA is *one* VMA wherever it lies: it is recorded in each arena that it overlaps, under its
//! start or, where it came in from below, the arena's. So what is mapped, shown, counted and merged
//! is the same as with one tree, and a lookup is one descent in one arena.
//!
//! ```text
//! arena        3           4           5
//!        | [A]  [B===|===========|=====] [C]|
//! tree 3   A, B       tree 4  B    tree 5  B, C
//! ```
//!
//! # Protocol
//! - An address space begins *undivided*: its one tree and lock are in [`Mm`](crate::mm::Mm), as in
//!   Linux, and the layout is Linux's. It is divided once, by the first mmap after it has two
//!   threads ([`divide`]), and stays so.
//! - A call that is content with one arena takes the lock of that. One that covers several, or all,
//!   takes the *outer* lock ([`ArenasLock`]) and then those of all arenas there are in its span
//!   ([`lock`]). Arenas are made under the outer lock held for writing, so none comes into a span
//!   that is held.
//! - A call that changes a VMA holds all arenas that this VMA overlaps: if it finds one that
//!   reaches out of its span, it releases what it has and takes the larger span. A neighbour in
//!   front of or behind its range that it could merge with counts as well; but an mmap that may go
//!   anywhere leaves one alone that reaches out of the arena.
//! - A fault needs the arena of its address, for reading; the first one of a VMA, whose neighbour
//!   in another arena may have an anon_vma for it, that arena as well.
//!
//! # Why it is correct
//! A call that changes a VMA or takes it out of a tree holds, for writing, the lock of every arena
//! that has a record of it. So the holder of one arena's lock, in either mode, finds the VMAs that
//! cover addresses of this arena unchanged as long as it holds it, as under one `mmap_lock`. Two
//! calls whose ranges overlap have an arena in common, and exclude each other. A holder of one
//! arena's lock waits for no other and not for the outer one. Writers of several come one after the
//! other; readers of several take them in ascending order, so the one that is furthest waits for
//! holders of one arena only: there is no cycle.
//!
//! Page tables that serve more than one arena are freed at exit only, unless a call holds all that
//! they serve: what is free around a range is looked for inside the span ([`Held::around`]). So
//! there are tables below holes, and a table that goes takes all below it ([`crate::entry::zap`]).
//!
//! A lookup without a lock finds a VMA by one tree or by another, or not at all while a change of
//! several trees is under way, or the division; it falls back to the lock then, as wherever it
//! finds nothing.
//!
//! # Cost
//! Two loads of lines that do not change, to find a tree. A call over several arenas takes the
//! lock of each; a VMA that reaches over several takes a record in each. An arena takes some
//! hundred bytes, of which 256 are its CPU mask, and a leaf of its tree, when it is first used.
//!
//! Counts of mappings are kept by the arenas' CPUs ([`crate::memory::sizes`]), flushes to come and
//! masks of CPUs by the arenas ([`crate::entry::part`]).
//!
//! Ideas: per-core address allocators of sv6 and RadixVM (Clements et al., EuroSys 2013).
//!
//! [`Held::around`]: crate::space::arenas::look::Held::around
//! [`ArenasLock`]: minflt_sync::order::ArenasLock

pub(crate) mod divide;
pub(crate) mod lock;
pub(crate) mod look;
pub(crate) mod trees;

use crate::arenas::{Arena, Arenas, Shelf};
use crate::base::error::NoMemory;
use crate::entry::part::Part;
use crate::memory::arenas::{Geometry, split};
use crate::memory::sizes::Counts;
use crate::space::tree::Tree;
use crate::system::System;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::{Apart, Atomic, Ordering, RwSem};

impl<M: Mmu> Arenas<M> {
    /// Undivided.
    fn new(sys: &System<M>) -> Self {
        Self {
            divided: Atomic::new(0),
            linking: Atomic::new(0),
            made: Atomic::new(0),
            geometry: Geometry::of::<M>(sys.config.address_space),
            shelves: core::array::from_fn(|_| Atomic::new(0)),
            written: Apart,
            outer: RwSem::new(sys.config.sleeping_locks.of_semaphore()),
            threads: Atomic::new(0),
        }
    }

    /// Makes an arena; its lock is taken for writing, as one of a set, if the caller holds several.
    ///
    /// # Context
    /// The outer lock is held for writing.
    ///
    /// # Errors
    /// No memory.
    fn make(&self, sys: &System<M>, number: u16, locked: bool) -> Result<&Arena<M>, NoMemory> {
        let (shelf, place) = split(number);
        let memory = sys.divided_memory();
        let shelves = &self.shelves[shelf];
        let mut shelf = NonNull::new(shelves.load(Ordering::Relaxed) as *mut Shelf<M>);
        if shelf.is_none() {
            let empty = Shelf {
                arenas: core::array::from_fn(|_| Atomic::new(0)),
            };
            let new = memory.shelves.alloc(empty, sys).map_err(|_| NoMemory)?;
            // ORDERING: Release; pairs with [arena-made].
            shelves.store(new.as_ptr() as u64, Ordering::Release);
            shelf = Some(new);
        }
        let arena = Arena {
            tree: Tree::new(),
            written: Apart,
            mmap_lock: RwSem::new(sys.config.sleeping_locks.of_semaphore()),
            counts: Counts::new(),
            part: Part::new(),
        };
        let arena = memory.arenas.alloc(arena, sys).map_err(|_| NoMemory)?;
        // SAFETY: allocated just now, and there until the address space goes.
        let made = unsafe { arena.as_ref() };
        if locked {
            made.mmap_lock.write_in_set();
        }
        if let Some(shelf) = shelf {
            // SAFETY: shelves that are put in stay until the address space goes.
            let place = unsafe { &shelf.as_ref().arenas[place] };
            // ORDERING: Release; pairs with [arena-made].
            place.store(arena.as_ptr() as u64, Ordering::Release);
            let made = self.made.load(Ordering::Relaxed);
            self.made.store(made + 1, Ordering::Relaxed);
        }
        Ok(made)
    }
}
