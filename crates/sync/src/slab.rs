//! Typed slabs: the allocator of all objects of the memory manager.
//!
//! # Problem
//! The library owns no heap: allocation must be able to fail as a value, must place objects the
//! same way in every simulated run, and must keep freed memory of some types type-stable, because
//! lockless readers may still read it. The pages of a burst of objects must be freed after it.
//!
//! # Idea
//! A slab of `T` divides pages into slots. Each CPU keeps a small stack of free slots; excess slots
//! return to their pages, and a page all of whose slots are free is freed (`slab::pages`).
//!
//! # Protocol
//! A free slot holds the next free slot's address in its first 8 bytes. A CPU's own stack is
//! touched by its CPU only; the pages under their lock, a batch of slots at a time. Pages are given
//! back once it is released. Where a CPU keeps many slots, it takes all of a fresh page, without
//! the lock, unless a hint says that there are slots under it.
//!
//! # Why it is correct
//! A slot is in exactly one stack or in use, and a page with all its slots in its own stack has
//! none in use. A page taken whole is as one whose slots were taken one by one: in no list until
//! the first comes back. The hint may be old: then a page is taken in vain, or the lock.
//!
//! Type stability: a slab with [`Pages::Stay`] frees no page, and
//! [`PageSource::slab_page_back`] may let a page wait for readers. The bytes that readers of a
//! freed object may still read, [`SlabObject::KEPT`], are written neither at free nor at reuse;
//! only the owner sets them, atomically.
//!
//! # Cost
//! Usually a pop or push on a line of this CPU; one lock per [`BATCH`] objects beyond that, and a
//! line of the page for each of them. What a CPU keeps is 32 slots, or what [`Slab::keeping`] says;
//! with more, a load of a shared line for each fresh page.
//!
//! Linux: mm/slub.c (a list of free objects in each page; empty pages go back but for
//! `min_partial` of them), with the magazines of Bonwick's vmem paper in front.

mod owned;
mod pages;
mod source;

use crate::atomic::Atomic;
use crate::counter::Counter;
use crate::lockdep::order::SlabLock;
use crate::machine::Machine;
use crate::percpu::PerCpu;
use crate::plain::Plain;
use crate::prim::Ordering;
use crate::spin::{SpinGuard, SpinLock};
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::panic::Location;
use core::ptr::{NonNull, with_exposed_provenance_mut};
pub use owned::Owned;
use pages::{Chain, Fresh, Partial, Stack, slot_bytes};
pub use source::{PageSource, SpentPage};

/// Slots moved between a CPU and the shared stack at once.
pub const BATCH: u32 = 16;

/// Slots that a CPU keeps, of a slab that is not told to keep more.
const FEW: u16 = 2 * BATCH as u16;

/// Bytes at the end of a slab's page that are no slots.
pub const FOOT: usize = size_of::<pages::Foot>();

/// What freed memory is filled with where the machine is checked: even, so that no sequence count
/// refuses it, and no address and no frame number of any machine.
pub const POISON: u8 = 0xfe;

/// Bytes at the start of a free slot that name the next one. Whoever frees an object answers for
/// readers whom that could hurt.
const LINK: Range<usize> = 0..8;

/// A type that can live in a slab.
pub trait SlabObject: Sized {
    /// Bytes that outlive the object: zero in a fresh slot, then whatever they were set to, since
    /// readers without a lock may look at them at any time. [`Slab::alloc`] leaves them.
    const KEPT: Kept = Kept::NOTHING;
}

/// Bytes of a type, by their offsets, that its slab neither writes nor poisons.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    start: usize,
    end: usize,
}

impl Kept {
    /// None.
    pub const NOTHING: Self = Self { start: 0, end: 0 };

    /// The bytes from `start` up to `end`.
    ///
    /// # Safety
    /// 1. They lie within the type, behind its first 8 bytes, and are whole fields.
    /// 2. Zeros are a value for them, and what they are set to after that, for the next object.
    #[must_use]
    pub const unsafe fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    const fn len(self) -> usize {
        self.end - self.start
    }
}

/// A slab of objects of type `T`.
pub struct Slab<T, M: Machine> {
    cpus: PerCpu<Magazine<M>, M>,
    shared: SpinLock<Partial<T>, SlabLock, M>,
    /// Whether there are slots under the lock: a hint, of a slab of which CPUs keep many.
    some: Atomic<u32, M>,
    number: u8,
    pages: Pages,
    /// Slots that a CPU keeps at most. Immutable.
    keeps: u16,
    object: PhantomData<fn() -> T>,
}

/// The free slots of one CPU.
#[derive(Debug)]
pub struct Magazine<M: Machine> {
    /// Guarded by: being this CPU's.
    stack: Plain<Stack, M>,
    /// Whether what is asked for was ensured. Guarded by: being this CPU's.
    ensured: Plain<bool, M>,
    /// Objects made here, less those given back here: with those of the other CPUs, the living.
    live: Counter,
}

/// Whether a slab gives pages back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Yes, when none of their objects is in use.
    Leave,
    /// No: readers may read freed objects at any time.
    Stay,
}

impl<M: Machine> Magazine<M> {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self {
            stack: Plain::new(Stack::empty()),
            ensured: Plain::new(false),
            live: Counter::new(),
        }
    }
}

impl<M: Machine> Default for Magazine<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: SlabObject, M: Machine> Slab<T, M> {
    /// The CPU whose own stack lies at a host address: for names.
    #[must_use]
    pub fn magazine_at(&self, at: usize) -> Option<u32> {
        self.cpus.find(at).map(|(cpu, _)| cpu)
    }

    /// Bytes from one slot to the next.
    pub const SLOT: usize = slot_bytes::<T>();

    /// The bytes that come and go with an object.
    const OWN: [Range<usize>; 2] = [0..T::KEPT.start, T::KEPT.end..size_of::<T>()];

    /// A slab without pages.
    #[must_use]
    pub fn new(number: u8, cpus: PerCpu<Magazine<M>, M>, pages: Pages) -> Self {
        Self {
            cpus,
            shared: SpinLock::new(Partial::new(0)),
            some: Atomic::new(0),
            number,
            pages,
            keeps: FEW,
            object: PhantomData,
        }
    }

    /// The same, of which a CPU keeps up to `slots` free ones for itself, or 32 if those are more:
    /// where it frees many at once, and needs as many again. It has pages of `bytes` bytes.
    #[must_use]
    pub fn keeping(self, (slots, bytes): (u16, usize)) -> Self {
        Self {
            shared: SpinLock::new(Partial::new(bytes)),
            keeps: self.keeps.max(slots),
            ..self
        }
    }

    /// Whether CPUs keep many slots, and take whole pages.
    const fn keeps_many(&self) -> bool {
        self.keeps > FEW
    }

    /// Places `value` in a slot, but for [`SlabObject::KEPT`]; gives it back when memory is short.
    ///
    /// # Errors
    /// `value`, when neither a free slot nor a page is left.
    #[track_caller]
    pub fn alloc(&self, value: T, pages: &impl PageSource) -> Result<NonNull<T>, T> {
        if self.may_refuse() && pages.refuses(Location::caller()) {
            return Err(value);
        }
        let Some(slot) = self.slot(pages) else {
            return Err(value);
        };
        let object = slot.cast::<T>();
        M::before(
            slot.as_ptr(),
            size_of::<T>(),
            crate::machine::Kind::PlainWrite,
        );
        if T::KEPT.len() == 0 {
            // SAFETY: the slot is free, of a `T`'s size and alignment, and now the caller's.
            unsafe { object.write(value) };
        } else {
            let value = ManuallyDrop::new(value);
            let from = (&raw const value).cast::<u8>();
            for part in Self::OWN {
                // SAFETY: within the value.
                let from = unsafe { from.add(part.start) };
                // SAFETY: within the slot.
                let to = unsafe { slot.as_ptr().add(part.start) };
                // SAFETY: the slot is the caller's but for the bytes kept, which are not in `OWN`.
                unsafe { to.copy_from_nonoverlapping(from, part.len()) };
            }
        }
        Ok(object)
    }

    /// Places a copy of `*from` in a slot, byte for byte; `None` when memory is short.
    ///
    /// # Safety
    /// 1. `from` is a `T` that is not written meanwhile, and a bytewise copy of it is sound.
    #[track_caller]
    pub unsafe fn alloc_copy(
        &self,
        from: NonNull<T>,
        pages: &impl PageSource,
    ) -> Option<NonNull<T>> {
        if self.may_refuse() && pages.refuses(Location::caller()) {
            return None;
        }
        let object = self.slot(pages)?.cast::<T>();
        M::before(
            object.as_ptr().cast(),
            size_of::<T>(),
            crate::machine::Kind::PlainWrite,
        );
        M::copied(from.as_ptr().cast(), size_of::<T>());
        // SAFETY: the slot is free, of a `T`'s size and alignment, and now the caller's; 1 of this
        // function.
        unsafe { object.copy_from_nonoverlapping(from, 1) };
        Some(object)
    }

    /// Objects that are in use, for oracles. Only while nothing else runs.
    pub fn live(&self) -> u64 {
        let counts = self.cpus.iter().map(|cpu| cpu.live.get());
        counts.fold(0, u64::wrapping_add)
    }

    /// Frees a slot, and pages that are no longer needed. The object is not dropped.
    ///
    /// # Safety
    /// 1. `object` came from this slab's [`Slab::alloc`] and is given back once.
    /// 2. Nobody uses it any more, but for readers of what is kept ([`SlabObject::KEPT`]), and
    ///    those whom overwriting its first 8 bytes cannot hurt.
    pub unsafe fn free(&self, object: NonNull<T>, pages: &impl PageSource) {
        // The object may have been found by a reference; the slot is the page's.
        let slot = with_exposed_provenance_mut::<u8>(object.addr().get());
        M::before(slot, 8, crate::machine::Kind::PlainWrite);
        self.cpus.this().live.add(u64::MAX);
        if M::CHECKED {
            M::freed(slot, size_of::<T>());
            if Self::is_free(slot) {
                M::violation(format_args!("double free of a slab object"));
            }
            // Whoever still reads it follows a pointer that leads nowhere.
            for part in Self::OWN {
                // SAFETY: within the slot.
                let at = unsafe { slot.add(part.start) };
                // SAFETY: 1 and 2 of this function: the slot is free, except for the bytes kept.
                unsafe { at.write_bytes(POISON, part.len()) };
            }
        }
        // SAFETY: 1: the CPU's own stack, and a task does not leave its CPU within this function.
        let stack = unsafe { self.cpus.this().stack.get_mut() };
        // SAFETY: 1: 1 and 2 of this function.
        unsafe { stack.push(slot) };
        if stack.len > u32::from(self.keeps) {
            let left_over = self.share_some(stack);
            self.pages_back(left_over, pages);
        }
    }

    /// Gives the pages of a chain back. No lock of the slab is held.
    #[cold]
    fn pages_back(&self, mut left_over: Chain<T>, pages: &impl PageSource) {
        while let Some(page) = left_over.next() {
            pages.slab_page_back(self.number, page);
        }
    }

    /// Whether the slot is filled as [`Self::free`] leaves it, where the machine is checked. Of an
    /// object of few bytes that cannot be told: they may happen to be those.
    fn is_free(slot: *mut u8) -> bool {
        let mut own = Self::OWN.into_iter().flatten();
        size_of::<T>() - T::KEPT.len() >= 16 + 8
            && own.all(|at| {
                if LINK.contains(&at) {
                    return true;
                }
                // SAFETY: within the slot.
                let at = unsafe { slot.add(at) };
                // SAFETY: the slot is free, except for the bytes kept.
                unsafe { at.read() == POISON }
            })
    }

    fn slot(&self, pages: &impl PageSource) -> Option<NonNull<u8>> {
        let slot = self.free_slot(pages)?;
        self.cpus.this().live.add(1);
        Some(slot)
    }

    #[inline]
    fn free_slot(&self, pages: &impl PageSource) -> Option<NonNull<u8>> {
        // SAFETY: 1: the CPU's own stack, and a task does not leave its CPU within this function.
        let stack = unsafe { self.cpus.this().stack.get_mut() };
        if let Some(slot) = stack.pop() {
            return Some(slot);
        }
        self.fill(stack, pages);
        stack.pop()
    }

    /// Puts some slots, if there are any, on this CPU's stack.
    fn fill(&self, stack: &mut Stack, pages: &impl PageSource) {
        // ORDERING: Relaxed; a hint.
        let alone = self.keeps_many() && self.some.load(Ordering::Relaxed) == 0;
        if !alone && self.take_some(stack, None) {
            return;
        }
        let Some(page) = pages.slab_page(self.number) else {
            if alone {
                self.take_some(stack, None);
            }
            return;
        };
        // SAFETY: 1: a fresh page, without other users.
        let fresh = unsafe { Fresh::<T>::new(page) };
        if self.keeps_many() {
            fresh.take_all(stack);
        } else {
            self.take_some(stack, Some(fresh));
        }
    }

    /// Says whether there are slots under the lock, which the caller has.
    fn hint(&self, shared: &SpinGuard<'_, Partial<T>, SlabLock, M>) {
        if !self.keeps_many() {
            return;
        }
        let some = u32::from(!shared.is_empty());
        // ORDERING: Relaxed, here and below; a hint, written under the lock.
        if self.some.load(Ordering::Relaxed) != some {
            self.some.store(some, Ordering::Relaxed);
        }
    }

    /// Takes some slots of pages, of which `fresh` is one more; says whether there were any.
    fn take_some(&self, stack: &mut Stack, fresh: Option<Fresh<T>>) -> bool {
        let had = stack.len;
        let mut shared = self.shared.lock();
        if let Some(fresh) = fresh {
            shared.add(fresh);
        }
        for _ in 0..BATCH {
            let Some(slot) = shared.take::<M>() else {
                break;
            };
            // SAFETY: 1: just taken out of its page.
            unsafe { stack.push(slot.as_ptr()) };
        }
        self.hint(&shared);
        stack.len > had
    }

    /// Ensures that `n` allocations in a row succeed: fetches the slots that this CPU lacks. Valid
    /// until the guard is dropped, which must be before the caller sleeps; slots that are left then
    /// become available to all CPUs again.
    #[track_caller]
    pub fn ensure(&self, n: u32, pages: &impl PageSource) -> Option<Ensured<'_, T, M>> {
        if M::CHECKED && pages.refuses(Location::caller()) {
            return None;
        }
        let mine = self.cpus.this();
        // SAFETY: 1: the CPU's own stack, and a task does not leave its CPU within this function.
        let stack = unsafe { mine.stack.get_mut() };
        while stack.len < n {
            let had = stack.len;
            self.fill(stack, pages);
            if stack.len == had {
                self.give_back(stack);
                return None;
            }
        }
        // SAFETY: 1: as above.
        unsafe { *mine.ensured.get_mut() = true };
        Some(Ensured {
            slab: self,
            of: mine,
        })
    }

    /// Leaves no more on a CPU's stack than [`Slab::free`] does.
    fn give_back(&self, stack: &mut Stack) {
        while stack.len > u32::from(self.keeps) {
            let left_over = self.share_some(stack);
            // Pages go back when something is freed.
            if !left_over.is_empty() {
                let mut shared = self.shared.lock();
                shared.keep(left_over);
                self.hint(&shared);
            }
        }
    }

    /// Moves some slots of a CPU's stack to where every CPU finds them; returns the pages that
    /// nothing of is in use, but for a few.
    fn share_some(&self, stack: &mut Stack) -> Chain<T> {
        let mut shared = self.shared.lock();
        for _ in 0..BATCH {
            if let Some(slot) = stack.pop() {
                // SAFETY: 1: just taken out of the other stack.
                unsafe { shared.put::<M>(slot) };
            }
        }
        let left_over = match self.pages {
            Pages::Leave => shared.left_over(),
            Pages::Stay => Chain::EMPTY,
        };
        self.hint(&shared);
        left_over
    }

    /// Whether a test may refuse what is asked for.
    fn may_refuse(&self) -> bool {
        // SAFETY: 1: the CPU's own, and a task does not leave its CPU within this function.
        M::CHECKED && !unsafe { *self.cpus.this().ensured.get_mut() }
    }
}

/// Objects of a slab that were ensured.
#[must_use = "good until dropped"]
#[derive(Debug)]
pub struct Ensured<'s, T: SlabObject, M: Machine> {
    slab: &'s Slab<T, M>,
    of: &'s Magazine<M>,
}

impl<T: SlabObject, M: Machine> Drop for Ensured<'_, T, M> {
    fn drop(&mut self) {
        // SAFETY: 1: the caller has not left its CPU.
        unsafe { *self.of.ensured.get_mut() = false };
        // SAFETY: 1: the CPU's own stack, and a task does not leave its CPU within this function.
        let stack = unsafe { self.slab.cpus.this().stack.get_mut() };
        self.slab.give_back(stack);
    }
}

impl<T, M: Machine> fmt::Debug for Slab<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slab {}", self.number)
    }
}
