//! From an address to its arena.
//!
//! How an address space is divided, and the directory of its arenas: two levels, put in under the
//! outer lock, read without one, and there until the address space goes. [`crate::space::arenas`]
//! says what arenas are.

use crate::arenas::{Arena, Arenas, Division, Shelf};
use crate::base::config::AddressSpace;
use crate::mm::Mm;
use core::ptr::NonNull;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Ordering, this_cpu};

/// Arenas of an address space at most, as a power of two: four times as many as the largest machine
/// has CPUs, since programs, heaps, libraries and stacks lie in others than their mappings.
const COUNT_SHIFT: u32 = 12;
/// Pointers of a node of the directory, as a power of two.
const FAN_SHIFT: u32 = COUNT_SHIFT / 2;
pub(crate) const FAN: usize = 1 << FAN_SHIFT;

/// Arenas from one to another; or the undivided address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

/// How an address space is divided: into regions, each of arenas side by side. The last arena of a
/// region reaches up to the second of the next one, the first one of all down to 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// An arena has 2 to the power of this bytes.
    shift: u32,
    /// Where regions begin, and how many arenas they have besides the first.
    regions: [(u64, u16); 2],
}

impl Geometry {
    /// An arena is no less than what one table of leaf entries maps, so that CPUs in different ones
    /// do not contend for the table's lock; but for tests, whose arenas of 4 pages lie where races
    /// and random steps map.
    pub(crate) fn of<M: Mmu>(choice: AddressSpace) -> Self {
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
    pub(crate) const fn last(&self) -> u16 {
        self.regions[0].1 + self.regions[1].1
    }

    /// The number of the arena that an address is in.
    #[inline(always)]
    pub(crate) fn number_of(&self, addr: VirtAddr) -> u16 {
        let [low, high] = self.regions.map(|(base, more)| {
            let number = addr.0.saturating_sub(base) >> self.shift;
            number.min(u64::from(more)) as u16
        });
        low + high
    }

    /// Where an arena starts.
    #[inline(always)]
    pub(crate) fn start_of(&self, number: u16) -> u64 {
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
    pub(crate) const fn first_only(self) -> Self {
        let first = self.first;
        Self { first, last: first }
    }

    /// The arena, if it is one.
    #[inline(always)]
    pub(crate) const fn only(self) -> Option<u16> {
        if self.first == self.last {
            Some(self.first)
        } else {
            None
        }
    }

    pub(crate) const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }

    pub(crate) fn numbers(self) -> impl DoubleEndedIterator<Item = u16> {
        self.first..=self.last
    }
}

impl<M: Mmu> Arenas<M> {
    /// The number of the arena that an address is in.
    #[inline(always)]
    pub(crate) fn number_of(&self, addr: VirtAddr) -> u16 {
        self.geometry.number_of(addr)
    }

    /// Where the calling CPU maps what may go anywhere, counted downwards from three quarters of
    /// user space, away from programs and their heaps, and from libraries and stacks.
    #[inline(always)]
    pub(crate) fn home(&self) -> u16 {
        let from = u32::from(self.first_home());
        from.saturating_sub(this_cpu::<M>()) as u16
    }

    /// Where the first CPU does.
    const fn first_home(&self) -> u16 {
        (self.geometry.last() as u32 * 3 / 4) as u16
    }

    /// What goes anywhere but there, above.
    pub(crate) const fn home_of_stacks(&self) -> u16 {
        self.first_home() + 1
    }

    /// How many there are.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Whether it has several threads.
    pub(crate) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::Relaxed) > 1
    }

    /// The addresses of an arena.
    #[inline(always)]
    pub(crate) fn addresses(&self, number: u16) -> VirtRange {
        let (geometry, end) = (&self.geometry, M::Paging::user_end());
        let next = match number == geometry.last() {
            true => end,
            false => geometry.start_of(number + 1).min(end),
        };
        VirtRange::new(VirtAddr(geometry.start_of(number).min(end)), VirtAddr(next))
    }

    /// All of them.
    pub(crate) const fn all(&self) -> Span {
        let (first, last) = (0, self.geometry.last());
        Span { first, last }
    }

    /// The arenas of a range, of at least one address.
    pub(crate) fn span_of(&self, range: VirtRange) -> Span {
        let last = range.end().0.saturating_sub(1).max(range.start().0);
        Span {
            first: self.number_of(range.start()),
            last: self.number_of(VirtAddr(last)),
        }
    }

    /// The arena of that number, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self, number: u16) -> Option<&Arena<M>> {
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
    pub(crate) fn each(&self, span: Span) -> impl DoubleEndedIterator<Item = (u16, &Arena<M>)> {
        let numbers = span.numbers();
        numbers.filter_map(|number| Some((number, self.get(number)?)))
    }

    /// The same as [`Self::each`] for oracles and teardown, while nothing runs.
    pub(crate) fn peek_each(&self, mut visit: impl FnMut(VirtRange, &Arena<M>)) {
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
    pub(crate) fn peek_shelves(&self, mut visit: impl FnMut(u16, NonNull<Shelf<M>>)) {
        for (number, shelf) in (0u16..).step_by(FAN).zip(&self.shelves) {
            if let Some(shelf) = NonNull::new(shelf.peek() as *mut Shelf<M>) {
                visit(number, shelf);
            }
        }
    }
}

/// Where in the directory an arena is.
#[inline(always)]
pub(crate) const fn split(number: u16) -> (usize, usize) {
    let number = number as usize;
    (number >> FAN_SHIFT, number & (FAN - 1))
}

impl<M: Mmu> Mm<M> {
    /// Calls `visit` with each arena, once it is divided; for oracles.
    pub(crate) fn peek_each_arena(&self, visit: impl FnMut(VirtRange, &Arena<M>)) {
        if let Some(arenas) = self.arenas().filter(|arenas| arenas.divided.peek() != 0) {
            arenas.peek_each(visit);
        }
    }

    /// Whether an entry of the table of level `level` over `span` may lead to a table below a hole:
    /// one for several arenas stays when what it serves in one of them goes, and those over an
    /// arena's last page when all in it goes.
    pub(crate) fn may_have_tables_below_holes(&self, level: u32, span: VirtRange) -> bool {
        let arena = |arenas: &Arenas<M>| 1 << arenas.geometry.shift;
        let has_last = |arena: u64| span.len() > arena || span.end().0.is_multiple_of(arena);
        self.has_several_writers() && level > 0 && self.arenas().map(arena).is_some_and(has_last)
    }

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
    pub(crate) fn its_arenas(&self) -> &Arenas<M> {
        match self.arenas() {
            Some(arenas) => arenas,
            None => unreachable!("what is divided has arenas"),
        }
    }

    /// What it is divided by, where that is the choice.
    #[inline(always)]
    pub(crate) fn arenas(&self) -> Option<&Arenas<M>> {
        let Division(arenas) = &self.arenas;
        // SAFETY: allocated with the address space, and freed with it.
        arenas.as_ref().map(|arenas| unsafe { arenas.as_ref() })
    }
}
