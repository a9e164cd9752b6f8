//! The list of a slab's pages with free slots (partial pages).
//!
//! # Idea
//! A page ends in a [`Foot`], which has the stack of its free slots. Pages some of whose slots are
//! free are in a list, from whose head slots are taken; those all of whose slots are free in
//! another, from which the first list is fed, and which gives pages back.
//!
//! # Why it is correct
//! All under the slab's lock, but for fresh pages, which nobody else has, and those on their way
//! back, which are in no list.

use super::{SlabObject, SpentPage};
use crate::callback::Callback;
use crate::machine::{Kind, Machine};
use core::marker::PhantomData;
use core::ptr::{NonNull, null_mut};

/// Pages without objects that a slab keeps for the next ones.
const SPARE: u32 = 2;

/// Bytes from one slot of a `T` to the next.
pub(super) const fn slot_bytes<T>() -> usize {
    let size = if size_of::<T>() < 8 {
        8
    } else {
        size_of::<T>()
    };
    let align = if align_of::<T>() < 8 {
        8
    } else {
        align_of::<T>()
    };
    size.next_multiple_of(align)
}

/// A stack of free slots, linked through the slots.
#[derive(Debug)]
pub(super) struct Stack {
    top: *mut u8,
    pub(super) len: u32,
}

// SAFETY: the slots belong to the stack.
unsafe impl Send for Stack {}

impl Stack {
    pub(super) const fn empty() -> Self {
        Self {
            top: null_mut(),
            len: 0,
        }
    }

    /// # Safety
    /// 1. `slot` is a free slot and in no stack.
    pub(super) unsafe fn push(&mut self, slot: *mut u8) {
        // SAFETY: 1 of this function: nobody's; slots are of 8 bytes or more, and aligned to 8.
        unsafe { slot.cast::<*mut u8>().write(self.top) };
        self.top = slot;
        self.len += 1;
    }

    pub(super) fn pop(&mut self) -> Option<NonNull<u8>> {
        let slot = NonNull::new(self.top)?;
        // SAFETY: `push` wrote it, and nobody has had the slot since.
        self.top = unsafe { slot.as_ptr().cast::<*mut u8>().read() };
        self.len -= 1;
        Some(slot)
    }
}

/// The last bytes of a page.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Foot {
    next: *mut Foot,
    prev: *mut Foot,
    free: Stack,
    /// For a page that waits for readers on its way back.
    callback: Callback,
}

/// A page that is in no list yet, with all its slots in its stack.
#[derive(Debug)]
pub(super) struct Fresh<T> {
    foot: NonNull<Foot>,
    bytes: usize,
    object: PhantomData<fn() -> T>,
}

impl<T: SlabObject> Fresh<T> {
    /// # Safety
    /// 1. Nobody else has the page, which is aligned to its size.
    pub(super) unsafe fn new(page: NonNull<[u8]>) -> Self {
        let (base, bytes) = (page.cast::<u8>(), page.len());
        base.as_ptr().expose_provenance();
        if T::KEPT.len() > 0 {
            // SAFETY: 1 of this function.
            unsafe { base.write_bytes(0, bytes) };
        }
        let mut free = Stack::empty();
        for at in (0..slots::<T>(bytes)).rev() {
            // SAFETY: the slot lies within the page.
            let slot = unsafe { base.add(at as usize * slot_bytes::<T>()) };
            // SAFETY: 1: fresh memory, aligned as pages are.
            unsafe { free.push(slot.as_ptr()) };
        }
        // SAFETY: within the page, behind the last slot.
        let foot = unsafe { base.add(bytes - size_of::<Foot>()) }.cast::<Foot>();
        let value = Foot {
            next: null_mut(),
            prev: null_mut(),
            free,
            callback: Callback::new(),
        };
        // SAFETY: as above; a page's end is aligned to 8, and so is the size of a foot.
        unsafe { foot.write(value) };
        Self {
            foot,
            bytes,
            object: PhantomData,
        }
    }
}

impl<T> Fresh<T> {
    /// Puts all its slots on a stack. The page is in no list, as one all of whose slots are taken.
    pub(super) fn take_all(mut self, stack: &mut Stack) {
        // SAFETY: nobody else has the page.
        let foot = unsafe { self.foot.as_mut() };
        while let Some(slot) = foot.free.pop() {
            // SAFETY: 1: just taken out of its page.
            unsafe { stack.push(slot.as_ptr()) };
        }
    }
}

/// Slots of a `T` in a page of so many bytes.
const fn slots<T>(bytes: usize) -> u32 {
    ((bytes - size_of::<Foot>()) / slot_bytes::<T>()) as u32
}

/// The pages of a slab that have free slots. Guarded by: the lock around it.
#[derive(Debug)]
pub(super) struct Partial<T> {
    /// Pages with some free slots, but not all.
    some: *mut Foot,
    /// Pages with all.
    all: *mut Foot,
    spare: u32,
    /// The size of a page; 0 before it is known.
    bytes: usize,
    object: PhantomData<fn() -> T>,
}

// SAFETY: the pages and their free slots belong to the slab.
unsafe impl<T> Send for Partial<T> {}

impl<T: SlabObject> Partial<T> {
    /// Without pages, which will have so many bytes, or as many as the first that is added.
    pub(super) const fn new(bytes: usize) -> Self {
        Self {
            some: null_mut(),
            all: null_mut(),
            spare: 0,
            bytes,
            object: PhantomData,
        }
    }

    /// Whether there is no free slot.
    pub(super) const fn is_empty(&self) -> bool {
        self.some.is_null() && self.all.is_null()
    }

    /// One more page.
    pub(super) fn add(&mut self, fresh: Fresh<T>) {
        self.bytes = fresh.bytes;
        self.set_aside(fresh.foot.as_ptr());
    }

    /// A free slot.
    pub(super) fn take<M: Machine>(&mut self) -> Option<NonNull<u8>> {
        if self.some.is_null() {
            let page = NonNull::new(self.all)?.as_ptr();
            // SAFETY: pages in a list are the slab's, and end in a foot.
            self.all = unsafe { (*page).next };
            self.spare -= 1;
            self.link(page);
        }
        let page = self.some;
        M::before(page.cast(), size_of::<Foot>(), Kind::PlainWrite);
        // SAFETY: as above.
        let free = unsafe { &mut (*page).free };
        let slot = free.pop();
        if free.len == 0 {
            self.unlink(page);
        }
        slot
    }

    /// Takes a slot back.
    ///
    /// # Safety
    /// 1. `slot` is a free slot of a page of this slab, and in no stack.
    pub(super) unsafe fn put<M: Machine>(&mut self, slot: NonNull<u8>) {
        let end = (slot.as_ptr().addr() | (self.bytes - 1)) + 1;
        let page = slot.as_ptr().with_addr(end - size_of::<Foot>());
        let page = page.cast::<Foot>();
        M::before(page.cast(), size_of::<Foot>(), Kind::PlainWrite);
        // SAFETY: 1 of this function: where its page has its foot.
        let free = unsafe { &mut (*page).free };
        // SAFETY: 1: 1 of this function.
        unsafe { free.push(slot.as_ptr()) };
        let (len, all) = (free.len, slots::<T>(self.bytes));
        if len == 1 && all > 1 {
            self.link(page);
        } else if len == all {
            if all > 1 {
                self.unlink(page);
            }
            self.set_aside(page);
        }
    }

    /// The pages without objects that are more than a slab keeps: in no list any more.
    pub(super) fn left_over(&mut self) -> Chain<T> {
        let mut left_over = Chain::EMPTY;
        while self.spare > SPARE {
            let page = self.all;
            // SAFETY: pages in a list are the slab's, and end in a foot.
            self.all = unsafe { (*page).next };
            self.spare -= 1;
            // SAFETY: as above.
            unsafe { (*page).next = left_over.first };
            left_over.first = page;
            left_over.bytes = self.bytes;
        }
        left_over
    }

    /// Keeps what was left over.
    pub(super) fn keep(&mut self, mut left_over: Chain<T>) {
        while let Some(page) = left_over.pop() {
            self.set_aside(page.as_ptr());
        }
    }

    /// Into the list of pages without objects.
    fn set_aside(&mut self, page: *mut Foot) {
        // SAFETY: pages in a list are the slab's, and end in a foot.
        unsafe { (*page).next = self.all };
        self.all = page;
        self.spare += 1;
    }

    /// Into the list of pages with some free slots.
    fn link(&mut self, page: *mut Foot) {
        let next = core::mem::replace(&mut self.some, page);
        // SAFETY: as above, here and below.
        let foot = unsafe { &mut *page };
        (foot.next, foot.prev) = (next, null_mut());
        if !next.is_null() {
            // SAFETY: as above.
            unsafe { (*next).prev = page };
        }
    }

    fn unlink(&mut self, page: *mut Foot) {
        // SAFETY: as above, here and below.
        let foot = unsafe { &*page };
        let (next, prev) = (foot.next, foot.prev);
        if prev.is_null() {
            self.some = next;
        } else {
            // SAFETY: as above.
            unsafe { (*prev).next = next };
        }
        if !next.is_null() {
            // SAFETY: as above.
            unsafe { (*next).prev = prev };
        }
    }
}

/// Pages on their way back.
#[must_use]
#[derive(Debug)]
pub(super) struct Chain<T> {
    first: *mut Foot,
    bytes: usize,
    object: PhantomData<fn() -> T>,
}

impl<T> Chain<T> {
    pub(super) const EMPTY: Self = Self {
        first: null_mut(),
        bytes: 0,
        object: PhantomData,
    };

    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    fn pop(&mut self) -> Option<NonNull<Foot>> {
        let page = NonNull::new(self.first)?;
        // SAFETY: pages in the chain are the slab's, and end in a foot.
        self.first = unsafe { (*page.as_ptr()).next };
        Some(page)
    }

    /// The next page.
    pub(super) fn next(&mut self) -> Option<SpentPage> {
        let foot = self.pop()?;
        // SAFETY: as above; the foot ends where the page does.
        let base = unsafe { foot.byte_sub(self.bytes - size_of::<Foot>()) }.cast();
        // SAFETY: as above; the foot outlives the callback's wait.
        let callback = unsafe { foot.byte_add(core::mem::offset_of!(Foot, callback)) };
        let callback = callback.cast();
        Some(SpentPage { base, callback })
    }
}
