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
//! lock of each; a VMA that reaches over several takes a record in each. An arena takes 256 bytes
//! and a leaf of its tree, when it is first used.
//!
//! Ideas: per-core address allocators of sv6 and RadixVM (Clements et al., EuroSys 2013).
//!
//! [`Held::around`]: crate::space::arenas::look::Held::around
//! [`ArenasLock`]: minflt_sync::order::ArenasLock

pub(crate) mod divide;
pub(crate) mod lock;
pub(crate) mod look;
pub(crate) mod trees;

use crate::base::config::AddressSpace;
use crate::base::error::NoMemory;
use crate::mm::Mm;
use crate::space::tree::Tree;
use crate::system::System;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::order::{ArenasLock, MmapLock};
use minflt_sync::slab::SlabObject;
use minflt_sync::{Apart, Atomic, Ordering, RwSem};

/// Arenas of an address space at most, as a power of two: four times as many as the largest machine
/// has CPUs, since programs, heaps, libraries and stacks lie in others than their mappings.
const COUNT_SHIFT: u32 = 12;
/// Pointers of a node of the directory, as a power of two.
const FAN_SHIFT: u32 = COUNT_SHIFT / 2;
const FAN: usize = 1 << FAN_SHIFT;

/// What an address space has once for each arena.
#[repr(C)]
pub(crate) struct Arena<M: Mmu> {
    tree: Tree<M>,
    written: Apart,
    /// Guards the tree and the attributes of VMAs that are recorded there.
    mmap_lock: RwSem<MmapLock, M>,
}

/// The arenas of an address space: a directory of two levels.
#[repr(C)]
pub(crate) struct Arenas<M: Mmu> {
    /// Whether there are any. Written once, under the outer lock and the `mmap_lock` of the
    /// undivided one.
    divided: Atomic<u32, M>,
    /// Immutable.
    geometry: Geometry,
    /// Shelves, 0 for none. Written under the outer lock.
    shelves: [Atomic<u64, M>; FAN],
    written: Apart,
    /// Held by those that hold several arenas; for writing, by those that make one.
    outer: RwSem<ArenasLock, M>,
    /// [`Thread`](crate::Thread)s there are.
    threads: Atomic<u64, M>,
}

/// The arenas of an address space, if it may be divided.
#[derive(Clone, Copy)]
pub(crate) struct Division<M: Mmu>(Option<NonNull<Arenas<M>>>);

// SAFETY: what it names is shared by the threads of an address space: atomics, and trees that their
// locks guard.
unsafe impl<M: Mmu> Send for Division<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for Division<M> {}

/// Arenas side by side, 0 for none. Written under the outer lock.
#[repr(C)]
pub(crate) struct Shelf<M: Mmu> {
    arenas: [Atomic<u64, M>; FAN],
}

impl<M: Mmu> SlabObject for Arena<M> {}
impl<M: Mmu> SlabObject for Arenas<M> {}
impl<M: Mmu> SlabObject for Shelf<M> {}

/// Arenas from one to another; or the undivided address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    first: u16,
    last: u16,
}

/// How an address space is divided: into regions, each of arenas side by side. The last arena of a
/// region reaches up to the second of the next one, the first one of all down to 0.
#[derive(Clone, Copy, Debug)]
struct Geometry {
    /// An arena has 2 to the power of this bytes.
    shift: u32,
    /// Where regions begin, and how many arenas they have besides the first.
    regions: [(u64, u16); 2],
}

impl Geometry {
    /// An arena is no less than what one table of leaf entries maps, so that CPUs in different ones
    /// do not contend for the table's lock; but for tests, whose arenas of 4 pages lie where races
    /// and random steps map.
    fn of<M: Mmu>(choice: AddressSpace) -> Self {
        let bits = u64::BITS - (M::Paging::user_end() - 1).leading_zeros();
        let table = M::Paging::shift() + M::Paging::tree()[0].bits;
        match choice {
            AddressSpace::Whole | AddressSpace::Arenas => Self {
                shift: bits.saturating_sub(COUNT_SHIFT).max(table),
                regions: [(0, (1 << COUNT_SHIFT) - 1), (0, 0)],
            },
            AddressSpace::ArenasSmall => {
                let shift = M::Paging::shift() + 2;
                let around = |middle: u64| (middle - (16 << shift), 31);
                Self {
                    shift,
                    regions: [around(1 << 30), around(1 << (bits - 1))],
                }
            }
        }
    }

    /// The last number.
    const fn last(&self) -> u16 {
        self.regions[0].1 + self.regions[1].1
    }

    /// The number of the arena that an address is in.
    #[inline(always)]
    fn number_of(&self, addr: VirtAddr) -> u16 {
        let [low, high] = self.regions.map(|(base, more)| {
            let number = addr.0.saturating_sub(base) >> self.shift;
            number.min(u64::from(more)) as u16
        });
        low + high
    }

    /// Where an arena starts.
    #[inline(always)]
    fn start_of(&self, number: u16) -> u64 {
        let [(low, more), (high, _)] = self.regions;
        match number {
            0 => 0,
            number if number <= more => low + (u64::from(number) << self.shift),
            number => high + (u64::from(number - more) << self.shift),
        }
    }
}

impl Span {
    /// What is not divided.
    pub(crate) const UNDIVIDED: Self = Self { first: 1, last: 0 };

    /// Whether it is that.
    #[inline(always)]
    pub(crate) const fn is_undivided(self) -> bool {
        self.first > self.last
    }

    /// Only the first, for a control.
    const fn first_only(self) -> Self {
        let first = self.first;
        Self { first, last: first }
    }

    /// The arena, if it is one.
    #[inline(always)]
    const fn only(self) -> Option<u16> {
        if self.first == self.last {
            Some(self.first)
        } else {
            None
        }
    }

    const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    fn and(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }

    fn numbers(self) -> impl DoubleEndedIterator<Item = u16> {
        self.first..=self.last
    }
}

impl<M: Mmu> Arenas<M> {
    /// Undivided.
    fn new(sys: &System<M>) -> Self {
        Self {
            divided: Atomic::new(0),
            geometry: Geometry::of::<M>(sys.config.address_space),
            shelves: core::array::from_fn(|_| Atomic::new(0)),
            written: Apart,
            outer: RwSem::new(sys.config.sleeping_locks.of_semaphore()),
            threads: Atomic::new(0),
        }
    }

    /// The number of the arena that an address is in.
    #[inline(always)]
    fn number_of(&self, addr: VirtAddr) -> u16 {
        self.geometry.number_of(addr)
    }

    /// The addresses of an arena.
    #[inline(always)]
    fn addresses(&self, number: u16) -> VirtRange {
        let (geometry, end) = (&self.geometry, M::Paging::user_end());
        let next = match number == geometry.last() {
            true => end,
            false => geometry.start_of(number + 1).min(end),
        };
        VirtRange::new(VirtAddr(geometry.start_of(number).min(end)), VirtAddr(next))
    }

    /// All of them.
    const fn all(&self) -> Span {
        let (first, last) = (0, self.geometry.last());
        Span { first, last }
    }

    /// The arenas of a range, of at least one address.
    fn span_of(&self, range: VirtRange) -> Span {
        let last = range.end().0.saturating_sub(1).max(range.start().0);
        Span {
            first: self.number_of(range.start()),
            last: self.number_of(VirtAddr(last)),
        }
    }

    /// The arena of that number, if there is one.
    #[inline(always)]
    fn get(&self, number: u16) -> Option<&Arena<M>> {
        let (shelf, place) = split(number);
        // ORDERING: Acquire; pairs with [arena-made].
        let shelf = self.shelves[shelf].load(Ordering::Acquire) as *const Shelf<M>;
        // SAFETY: shelves that are put in stay until the address space goes.
        let shelf = unsafe { shelf.as_ref() }?;
        // ORDERING: Acquire; pairs with [arena-made].
        let arena = shelf.arenas[place].load(Ordering::Acquire) as *const Arena<M>;
        // SAFETY: as for shelves.
        unsafe { arena.as_ref() }
    }

    /// The arenas of a span that there are, with their numbers, in order.
    fn each(&self, span: Span) -> impl DoubleEndedIterator<Item = (u16, &Arena<M>)> {
        let numbers = span.numbers();
        numbers.filter_map(|number| Some((number, self.get(number)?)))
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
        }
        Ok(made)
    }

    /// The same as [`Self::each`] for oracles and teardown, while nothing runs.
    fn peek_each(&self, mut visit: impl FnMut(VirtRange, &Arena<M>)) {
        self.peek_shelves(|number, shelf| {
            // SAFETY: shelves that are put in stay until the address space goes.
            let shelf = unsafe { shelf.as_ref() };
            for (place, arena) in (0u16..).zip(&shelf.arenas) {
                // SAFETY: as above.
                if let Some(arena) = unsafe { (arena.peek() as *const Arena<M>).as_ref() } {
                    visit(self.addresses(number + place), arena);
                }
            }
        });
    }

    /// Calls `visit` with each shelf, and the number of its first arena.
    fn peek_shelves(&self, mut visit: impl FnMut(u16, NonNull<Shelf<M>>)) {
        for (number, shelf) in (0u16..).step_by(FAN).zip(&self.shelves) {
            if let Some(shelf) = NonNull::new(shelf.peek() as *mut Shelf<M>) {
                visit(number, shelf);
            }
        }
    }
}

/// Where in the directory an arena is.
#[inline(always)]
const fn split(number: u16) -> (usize, usize) {
    let number = number as usize;
    (number >> FAN_SHIFT, number & (FAN - 1))
}

impl<M: Mmu> Mm<M> {
    /// The arenas, once it is divided.
    #[inline(always)]
    pub(crate) fn divided(&self) -> Option<&Arenas<M>> {
        let arenas = self.arenas()?;
        // ORDERING: Acquire; pairs with [divided].
        (arenas.divided.load(Ordering::Acquire) != 0).then_some(arenas)
    }

    /// The span of all of it, where nothing divides it.
    pub(crate) fn whole(&self) -> Span {
        self.divided().map_or(Span::UNDIVIDED, Arenas::all)
    }

    /// The arenas of what is divided.
    #[inline(always)]
    fn its_arenas(&self) -> &Arenas<M> {
        match self.arenas() {
            Some(arenas) => arenas,
            None => unreachable!("what is divided has arenas"),
        }
    }

    /// What it is divided by, where that is the choice.
    #[inline(always)]
    fn arenas(&self) -> Option<&Arenas<M>> {
        let Division(arenas) = &self.arenas;
        // SAFETY: allocated with the address space, and freed with it.
        arenas.as_ref().map(|arenas| unsafe { arenas.as_ref() })
    }
}

impl<M: Mmu> Arena<M> {
    /// Start offsets of its fields, ascending: for names.
    pub(crate) const fn fields() -> [(usize, &'static str); 2] {
        [(0, "tree"), (offset_of!(Self, mmap_lock), "mmap_lock")]
    }
}

impl<M: Mmu> Arenas<M> {
    /// Start offsets of its fields, ascending: for names.
    pub(crate) const fn fields() -> [(usize, &'static str); 3] {
        [
            (0, "shelves"),
            (offset_of!(Self, outer), "outer lock"),
            (offset_of!(Self, threads), "threads"),
        ]
    }
}
