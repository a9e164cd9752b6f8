//! Arrays in a machine's memory.

use core::fmt;
use core::ptr::NonNull;

/// Objects next to each other, which their users share.
pub struct Array<T> {
    base: NonNull<T>,
    len: u64,
}

// SAFETY: hands out shared references only, to a `T` that may be shared.
unsafe impl<T: Sync> Send for Array<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Array<T> {}

impl<T> Array<T> {
    /// # Safety
    /// 1. `base` is aligned, and has `len` valid objects, which outlive the array.
    /// 2. Nobody else has a reference to them that is not shared.
    #[must_use]
    pub const unsafe fn new(base: NonNull<T>, len: u64) -> Self {
        Self { base, len }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The object number `index`.
    #[inline(always)]
    #[must_use]
    pub const fn get(&self, index: u64) -> Option<&T> {
        if index >= self.len {
            return None;
        }
        // SAFETY: within the array, by 1 of `new`.
        let at = unsafe { self.base.add(index as usize) };
        // SAFETY: 1 and 2 of `new`.
        Some(unsafe { at.as_ref() })
    }

    /// The number of the object that lies at a host address, or that this is within.
    #[must_use]
    pub fn find(&self, at: usize) -> Option<u64> {
        let offset = at.checked_sub(self.base.as_ptr() as usize)?;
        let index = (offset / size_of::<T>()) as u64;
        (index < self.len).then_some(index)
    }

    /// Where it begins.
    #[must_use]
    pub const fn base(&self) -> *const T {
        self.base.as_ptr()
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({})", self.len)
    }
}
