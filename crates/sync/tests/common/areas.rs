//! Memory for a model: aligned, and freed at its end.

use core::alloc::Layout;
use core::ptr::NonNull;
use minflt_sync::percpu::APART;

/// Some bytes, aligned to [`APART`] or more, that begin as zeros.
#[derive(Debug)]
pub(crate) struct Areas {
    base: NonNull<u8>,
    layout: Layout,
}

impl Areas {
    /// So many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        Self::aligned(bytes, APART)
    }

    /// So many bytes, aligned to `align`, a power of two.
    pub(crate) fn aligned(bytes: usize, align: usize) -> Self {
        let layout = Layout::from_size_align(bytes, align).unwrap();
        // SAFETY: of more than no bytes.
        let base = unsafe { std::alloc::alloc_zeroed(layout) };
        Self {
            base: NonNull::new(base).unwrap(),
            layout,
        }
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Areas {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) };
    }
}
