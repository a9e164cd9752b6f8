//! Where the pages of a slab come from, and go to.

use crate::callback::Callback;
use core::panic::Location;
use core::ptr::NonNull;

/// A page none of whose objects is in use, on its way back: made once for each time that a slab
/// has got the page.
#[derive(Debug)]
pub struct SpentPage {
    pub(super) base: NonNull<u8>,
    pub(super) callback: NonNull<Callback>,
}

impl SpentPage {
    /// Where it begins.
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// A callback that lies in the page, which can wait for readers that may still look at some of
    /// its objects.
    #[must_use]
    pub const fn callback(&self) -> NonNull<Callback> {
        self.callback
    }
}

/// Where a slab gets its pages.
pub trait PageSource {
    /// One page for slab number `slab`, aligned to its size, a power of two, with its provenance
    /// exposed; `None` when memory is short.
    fn slab_page(&self, slab: u8) -> Option<NonNull<[u8]>>;

    /// Takes a page back that came from [`PageSource::slab_page`] for slab number `slab`.
    fn slab_page_back(&self, slab: u8, page: SpentPage);

    /// Whether the object at `at` lies in a page that slab number `slab` has from here.
    fn has(&self, slab: u8, at: NonNull<u8>) -> bool;

    /// Whether an object asked for at `site` shall be refused, though there may be memory. Asked
    /// only where runs are checked, for tests.
    fn refuses(&self, site: &'static Location<'static>) -> bool {
        let _ = site;
        false
    }
}
