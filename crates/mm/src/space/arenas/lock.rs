//! Holds of `mmap_lock`: of the undivided address space, of one arena, or of several.
//!
//! [`super`] says why it is correct. What is new in this file is the span that a writer ends up
//! with: it takes the arenas of its range, looks whether the VMAs at the edges reach further, and
//! if so starts again with theirs as well. Each round the span grows, so there is an end; and what
//! it finds in the last one is what it holds.

use crate::arenas::Arenas;
use crate::base::config::NegativeControl;
use crate::memory::arenas::Span;
use crate::mm::Mm;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use core::cell::Cell;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::order::{ArenasLock, MmapLock};
use minflt_sync::{DowngradedGuard, Ordering, ReadGuard, WriteGuard};

/// What a call needs of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Over {
    /// All of it.
    All,
    /// What is mapped in a range, and to change it, what touches that.
    Range(VirtRange),
    /// Room in a range.
    Room(VirtRange),
}

impl Over {
    /// What is mapped at an address.
    #[inline(always)]
    pub(crate) const fn at(addr: VirtAddr) -> Self {
        Self::Range(VirtRange::new(addr, VirtAddr(addr.0.saturating_add(1))))
    }

    fn span<M: Mmu>(self, arenas: &Arenas<M>) -> Span {
        match self {
            Self::All => arenas.all(),
            Self::Range(range) | Self::Room(range) => arenas.span_of(range),
        }
    }
}

/// `mmap_lock`, held for reading.
#[must_use = "the lock is released when this is dropped"]
pub(crate) struct Reading<'m, M: Mmu> {
    mm: &'m Mm<M>,
    span: Span,
    kept: Kept<'m, M>,
}

/// By what it is held.
enum Kept<'m, M: Mmu> {
    One {
        _guard: ReadGuard<'m, MmapLock, M>,
    },
    /// The arenas of the span that there are, until the outer lock is released.
    Several {
        arenas: &'m Arenas<M>,
        _outer: ReadGuard<'m, ArenasLock, M>,
    },
}

impl<M: Mmu> Mm<M> {
    /// Takes `mmap_lock` for reading.
    ///
    /// # Context
    /// Sleeps for it, and for as many as there are arenas in what is asked for.
    #[inline]
    #[track_caller]
    pub(crate) fn read(&self, over: Over) -> Reading<'_, M> {
        if self.divided().is_none() {
            let _guard = self.mmap_lock.read();
            // Only the holder for writing divides it.
            if self.divided().is_none() {
                return Reading {
                    mm: self,
                    span: Span::UNDIVIDED,
                    kept: Kept::One { _guard },
                };
            }
        }
        self.read_arenas(over)
    }

    /// Takes `mmap_lock` for a fault at an address: for reading. The first fault of a VMA looks
    /// whether a neighbour has an anon_vma for it, also across a border.
    #[inline]
    #[track_caller]
    pub(crate) fn read_for_fault(&self, addr: VirtAddr) -> Reading<'_, M> {
        let reading = self.read(Over::at(addr));
        match reading.beyond(addr) {
            None => reading,
            Some(range) => {
                drop(reading);
                self.read(Over::Range(range))
            }
        }
    }

    /// Takes `mmap_lock` of what a VMA covers and touches, for reading, if that is one lock and
    /// needs no waiting.
    #[track_caller]
    pub(crate) fn try_read(&self, range: VirtRange) -> Option<Reading<'_, M>> {
        let mm = self;
        let (span, lock) = match self.divided() {
            None => (Span::UNDIVIDED, &self.mmap_lock),
            Some(arenas) => {
                let span = arenas.span_of(with_neighbours::<M>(range));
                (span, &arenas.get(span.only()?)?.mmap_lock)
            }
        };
        let _guard = lock.try_read()?;
        let kept = Kept::One { _guard };
        // Only the holder for writing divides it.
        let valid = !span.is_undivided() || self.divided().is_none();
        valid.then_some(Reading { mm, span, kept })
    }

    #[inline(never)]
    fn read_arenas(&self, over: Over) -> Reading<'_, M> {
        let (mm, arenas) = (self, self.its_arenas());
        let span = over.span(arenas);
        if let Some(arena) = span.only().and_then(|only| arenas.get(only)) {
            let _guard = arena.mmap_lock.read();
            let kept = Kept::One { _guard };
            return Reading { mm, span, kept };
        }
        let _outer = arenas.outer.read();
        arenas
            .each(span)
            .for_each(|(_, arena)| arena.mmap_lock.read_in_set());
        let kept = Kept::Several { arenas, _outer };
        Reading { mm, span, kept }
    }
}

impl<M: Mmu> Reading<'_, M> {
    /// The VMA at `addr` with what touches it, if it has no anon_vma and that reaches out of the
    /// span.
    #[inline]
    fn beyond(&self, addr: VirtAddr) -> Option<VirtRange> {
        if self.span.is_undivided() {
            return None;
        }
        let vma = self.held().at_or_before(addr)?;
        let range = with_neighbours::<M>(vma.view().range);
        let first = vma.anon_vma.load(Ordering::Relaxed) == 0 && range.contains(addr);
        let span = self.mm.its_arenas().span_of(range);
        (first && !self.span.covers(span)).then_some(range)
    }

    /// What it proves.
    #[inline(always)]
    pub(crate) fn held(&self) -> Held<'_, M> {
        // SAFETY: 1: taking anything out of a tree needs the locks of its VMA's arenas for writing,
        // which this excludes.
        unsafe { Held::over(self.mm, self.span) }
    }
}

impl<M: Mmu> Drop for Reading<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if let Kept::Several { arenas, .. } = self.kept {
            for (_, arena) in arenas.each(self.span) {
                // SAFETY: 1: taken when this was made; since then there are no others in the span.
                unsafe { arena.mmap_lock.end_read_in_set() };
            }
        }
    }
}

impl<M: Mmu> core::fmt::Debug for Reading<'_, M> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Reading {:?}", self.span)
    }
}

/// `mmap_lock`, taken for writing, and perhaps downgraded since.
pub(crate) struct Exclusive<'m, M: Mmu> {
    mm: &'m Mm<M>,
    span: Span,
    how: Cell<How<'m, M>>,
}

/// How it is held.
#[derive(Default)]
enum How<'m, M: Mmu> {
    Write(WriteGuard<'m, MmapLock, M>),
    /// Nothing may be changed any more.
    Read {
        _guard: DowngradedGuard<'m, MmapLock, M>,
    },
    /// The arenas of the span that there are, each for writing. They are not downgraded.
    Several {
        _arenas: Several<'m, M>,
    },
    /// For a moment, and in [`Exclusive::without`].
    #[default]
    Not,
}

/// Several arenas, held for writing until this is dropped.
struct Several<'m, M: Mmu> {
    arenas: &'m Arenas<M>,
    span: Span,
    _outer: WriteGuard<'m, ArenasLock, M>,
}

impl<'m, M: Mmu> Several<'m, M> {
    fn lock(arenas: &'m Arenas<M>, span: Span) -> Self {
        let _outer = arenas.outer.write();
        arenas
            .each(span)
            .for_each(|(_, arena)| arena.mmap_lock.write_in_set());
        Self {
            arenas,
            span,
            _outer,
        }
    }
}

impl<M: Mmu> Drop for Several<'_, M> {
    fn drop(&mut self) {
        for (_, arena) in self.arenas.each(self.span) {
            // SAFETY: 1: taken when this was made, or made by this holder with the lock taken.
            unsafe { arena.mmap_lock.end_write_in_set() };
        }
    }
}

impl<'m, M: Mmu> Exclusive<'m, M> {
    /// Takes the lock for writing, of all arenas that VMAs in what is asked for overlap.
    ///
    /// # Context
    /// Sleeps for it, and for as many as there are arenas.
    #[inline]
    pub(crate) fn lock(mm: &'m Mm<M>, over: Over) -> Self {
        if mm.divided().is_none() {
            let guard = mm.mmap_lock.write();
            if mm.divided().is_none() || mm.system().lacks(NegativeControl::DivisionUnseen) {
                return Self {
                    mm,
                    span: Span::UNDIVIDED,
                    how: Cell::new(How::Write(guard)),
                };
            }
        }
        Self::lock_arenas(mm, over)
    }

    #[inline(never)]
    fn lock_arenas(mm: &'m Mm<M>, over: Over) -> Self {
        let over = match over {
            Over::Range(range) => Over::Range(with_neighbours::<M>(range)),
            over => over,
        };
        let mut span = over.span(mm.its_arenas());
        loop {
            let locked = Self {
                mm,
                span,
                how: Cell::new(Self::take(mm, span)),
            };
            let needed = match over {
                Over::All | Over::Room(_) => span,
                _ if mm.system().lacks(NegativeControl::ReachIgnored) => span,
                Over::Range(range) => span.and(reach(locked.held(), range)),
            };
            if span.covers(needed) {
                return locked;
            }
            span = needed;
        }
    }

    /// Takes the locks of a span.
    fn take(mm: &'m Mm<M>, span: Span) -> How<'m, M> {
        let arenas = mm.its_arenas();
        match span.only().and_then(|only| arenas.get(only)) {
            Some(arena) => How::Write(arena.mmap_lock.write()),
            None => {
                let first = mm.system().lacks(NegativeControl::FirstArenaOnly);
                let span = if first { span.first_only() } else { span };
                How::Several {
                    _arenas: Several::lock(arenas, span),
                }
            }
        }
    }

    /// Takes other arenas instead. Nothing that was found before can be in use: what finds borrows
    /// this.
    pub(crate) fn relock(&mut self, over: Over) {
        drop(self.how.take());
        *self = Self::lock(self.mm, over);
    }

    /// The arenas.
    #[inline(always)]
    pub(crate) const fn span(&self) -> Span {
        self.span
    }

    /// Whether VMAs may be changed: it was not downgraded.
    pub(crate) fn writes(&self) -> bool {
        let how = self.how.take();
        let writes = matches!(how, How::Write(_) | How::Several { .. });
        self.how.set(how);
        writes
    }

    /// Lets readers in, if it is one lock.
    #[inline]
    pub(crate) fn downgrade(&self) {
        self.how.set(match self.how.take() {
            How::Write(guard) => How::Read {
                _guard: guard.downgrade(),
            },
            how => how,
        });
    }

    /// Lets the lock go while `unlocked` runs: for a control, which breaks the invariant of
    /// [`Held`].
    #[cold]
    pub(crate) fn without(&self, unlocked: impl FnOnce()) {
        drop(self.how.take());
        unlocked();
        self.how.set(match self.span.is_undivided() {
            true => How::Write(self.mm.mmap_lock.write()),
            false => Self::take(self.mm, self.span),
        });
    }

    /// Proof that the lock is held.
    #[inline(always)]
    pub(crate) const fn held(&self) -> Held<'_, M> {
        // SAFETY: 1: a guard is in `how`, but for a control and within these functions.
        unsafe { Held::over(self.mm, self.span) }
    }
}

/// A range and the addresses beside it.
fn with_neighbours<M: Mmu>(range: VirtRange) -> VirtRange {
    let most = M::Paging::user_end();
    let start = VirtAddr(range.start().0.saturating_sub(1).min(most));
    VirtRange::new(start, VirtAddr(range.end().0.saturating_add(1).min(most)))
}

/// The arenas of the VMAs at both ends of a range: those inside do not reach out of it.
fn reach<M: Mmu>(held: Held<'_, M>, range: VirtRange) -> Span {
    let arenas = held.mm().its_arenas();
    let user_end = VirtAddr(M::Paging::user_end());
    let at = |addr: VirtAddr| {
        let vma = held.at_or_before(addr.min(VirtAddr(user_end.0 - 1)))?;
        let all = Vma::view(vma).range;
        all.contains(addr).then(|| arenas.span_of(all))
    };
    let last = VirtAddr(range.end().0.saturating_sub(1)).max(range.start());
    let first = at(range.start()).unwrap_or(arenas.span_of(range));
    first.and(at(last).unwrap_or(first))
}
