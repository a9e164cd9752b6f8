//! Objects of the kernel that come and go while programs run: files, their names, pipes, signals.
//!
//! # Problem
//! They are shared and their number is only known at run time; where memory is out, the call that
//! needs one has to fail, and nothing else.
//!
//! # Idea
//! A pool for each type, which grows by frames of `minflt-mm`. An object is made once, when its
//! frame comes, and is used again and again; what it held is dropped when its last reference is.
//! So a reference is valid for ever, and only its user's own mistake can make it another object's.
//! Linux: slab caches with `SLAB_TYPESAFE_BY_RCU`, whose objects may be reused while one looks.
//!
//! # Cost
//! A lock that spins and two exchanges for an object; frames stay until the last program has ended.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;

use minflt_addr::Pfn;
use minflt_mm::{Errno, Gfp};
use minflt_sync::{Atomic, Ordering};
use x86_64::instructions::interrupts;

use crate::arch::paging::{self, PAGE};
use crate::machine::Kernel;
use crate::shared::Flag;

/// What pools hold.
pub(crate) trait Pooled: Sync + Sized + 'static {
    /// A fresh one.
    fn new() -> Self;

    /// The pool of all.
    fn pool() -> &'static Pool<Self>;

    /// Its last reference is gone: it drops what it holds, and may sleep.
    fn clean(&self);
}

/// A place for an object.
struct Slot<T> {
    value: T,
    /// References; 0 while it is free.
    references: Atomic<u32, Kernel>,
    /// The next free one. Guarded by: the pool's lock.
    next: Cell<Option<NonNull<Slot<T>>>>,
}

/// The free objects of a type.
pub(crate) struct Pool<T: 'static> {
    lock: Flag,
    /// Guarded by: `lock`.
    state: UnsafeCell<Free<T>>,
}

struct Free<T: 'static> {
    first: Option<NonNull<Slot<T>>>,
    /// The frame that came last; the first word of each is the frame before it, plus 1.
    frames: u64,
    used: u64,
}

/// What a frame of a pool begins with: the number of the one before, plus 1.
const HEAD: usize = 64;

// SAFETY: (1) the state is touched under its lock only, and objects are made to be shared.
unsafe impl<T: Sync> Sync for Pool<T> {}

impl<T: Pooled> Pool<T> {
    /// How many fit into a frame.
    const IN_FRAME: usize = (PAGE as usize - HEAD) / size_of::<Slot<T>>();

    /// No objects yet.
    pub(crate) const fn new() -> Self {
        assert!(Self::IN_FRAME > 0, "an object fits into a frame");
        assert!(align_of::<Slot<T>>() <= HEAD, "and is aligned there");
        Self {
            lock: Flag::new(),
            state: UnsafeCell::new(Free {
                first: None,
                frames: 0,
                used: 0,
            }),
        }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Free<T>) -> R) -> R {
        interrupts::without_interrupts(|| {
            self.lock.take();
            // SAFETY: (1) the lock is held.
            let result = work(unsafe { &mut *self.state.get() });
            self.lock.release();
            result
        })
    }

    /// Takes an object, with one reference. Sleeps where memory is short.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn take(&'static self) -> Result<Ref<T>, Errno> {
        loop {
            let taken = self.with(|free| {
                let slot = free.first?;
                // SAFETY: (1) slots stay, see `grow`.
                free.first = unsafe { slot.as_ref() }.next.take();
                free.used += 1;
                Some(slot)
            });
            if let Some(slot) = taken {
                // SAFETY: (1) as above.
                let slot = unsafe { slot.as_ref() };
                // ORDERING: Acquire of what was done with it before; pairs with [kernel-pool].
                let left = slot.references.load(Ordering::Acquire);
                assert_eq!(left, 0, "a free object of a pool is used");
                slot.references.store(1, Ordering::Relaxed);
                return Ok(Ref(slot));
            }
            self.grow()?;
        }
    }

    /// How many are used.
    pub(crate) fn used(&'static self) -> u64 {
        self.with(|free| free.used)
    }

    /// Makes the objects of another frame.
    fn grow(&'static self) -> Result<(), Errno> {
        let sys = crate::system().ok_or(Errno::ENOMEM)?;
        let frame = sys.alloc_pages(0, Gfp::Kernel)?;
        let pfn = frame.into_raw();
        let base = paging::direct(pfn.0 * PAGE);
        for index in 0..Self::IN_FRAME {
            let slot = Slot {
                value: T::new(),
                references: Atomic::new(0),
                next: Cell::new(None),
            };
            // SAFETY: (1) within the frame.
            let at = unsafe { base.add(HEAD + index * size_of::<Slot<T>>()) };
            let at = at.cast::<Slot<T>>();
            // SAFETY: (1) the frame is this pool's from now on, and `new` checked the alignment.
            unsafe { at.write(slot) };
            // SAFETY: (1) within the direct map, so it is not null.
            let slot = unsafe { NonNull::new_unchecked(at) };
            self.with(|free| Self::put(free, slot));
        }
        self.with(|free| {
            // SAFETY: (1) the frame's first word is in front of its slots.
            unsafe { base.cast::<u64>().write(free.frames) };
            free.frames = pfn.0 + 1;
        });
        Ok(())
    }

    fn put(free: &mut Free<T>, slot: NonNull<Slot<T>>) {
        // SAFETY: (1) slots stay, see `grow`.
        unsafe { slot.as_ref() }.next.set(free.first);
        free.first = Some(slot);
    }

    /// Gives the frames back, for the last account of memory: no program is left. How many objects
    /// are still used, which is a leak, and leaves the frames where they are.
    pub(crate) fn forget(&'static self) -> u64 {
        let Some(sys) = crate::system() else { return 0 };
        let mut frames = self.with(|free| {
            if free.used == 0 {
                free.first = None;
                core::mem::take(&mut free.frames)
            } else {
                0
            }
        });
        while let Some(pfn) = frames.checked_sub(1) {
            // SAFETY: (1) `grow` wrote it.
            frames = unsafe { paging::direct(pfn * PAGE).cast::<u64>().read() };
            // SAFETY: (1) `grow` took it, and it is in the list once; (2) no object of it is used.
            unsafe { sys.free_pages(Pfn(pfn)) };
        }
        self.with(|free| free.used)
    }
}

/// A counted reference to an object of a pool.
pub(crate) struct Ref<T: Pooled>(&'static Slot<T>);

// SAFETY: (1) what it refers to is made to be shared.
unsafe impl<T: Pooled> Send for Ref<T> {}
// SAFETY: (1) as above.
unsafe impl<T: Pooled> Sync for Ref<T> {}

impl<T: Pooled> Ref<T> {
    /// Another one.
    pub(crate) fn share(&self) -> Self {
        // ORDERING: Relaxed: the caller has one.
        self.0.references.add(1, Ordering::Relaxed);
        Self(self.0)
    }

    /// Whether both are of the same object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }

    /// A number that no other object of the type has.
    pub(crate) fn address(&self) -> u64 {
        core::ptr::from_ref(self.0).addr() as u64
    }
}

impl<T: Pooled> Deref for Ref<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Pooled> Drop for Ref<T> {
    fn drop(&mut self) {
        // ORDERING: AcqRel: what each did with it comes before it is cleaned; pairs with
        // [kernel-pool].
        if self.0.references.sub(1, Ordering::AcqRel) == 1 {
            self.0.value.clean();
            let slot = NonNull::from(self.0);
            T::pool().with(|free| {
                free.used -= 1;
                Pool::put(free, slot);
            });
        }
    }
}

impl<T: Pooled> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "object {:#x}", self.address())
    }
}
