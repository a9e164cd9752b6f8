//! The backing store of a file.

use crate::base::file::IoError;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;

/// What a file is on: a file or device of the host, a server, a test's memory. Linux: the part of
/// `address_space_operations` and `vm_operations_struct` that is about pages.
///
/// What `fault` and `map_pages` do with the pages is the same for all files
/// ([`PageCache`](crate::FileHandle)); `maps_around` says whether `map_pages` may be used.
pub trait FileOps<M: Mmu>: Send + Sync {
    /// Fills frame `pfn` with page `index` of the file, what lies behind the file's end with zeros.
    ///
    /// # Context
    /// The frame is locked and nobody else's. May sleep. Called without `mmap_lock`.
    ///
    /// # Errors
    /// The page is not what the file has. It is asked for again by the next who wants it.
    fn read_page(&self, at: &M::Instance, index: u64, pfn: Pfn) -> Result<(), IoError>;

    /// Writes page `index` from frame `pfn`.
    ///
    /// # Context
    /// Others may store to the page meanwhile: then it is written again. May sleep.
    ///
    /// # Errors
    /// The page stays dirty, and whoever syncs the file next is told.
    fn write_page(&self, at: &M::Instance, index: u64, pfn: Pfn) -> Result<(), IoError>;

    /// All that was written before is to outlast a crash when this returns.
    ///
    /// # Context
    /// Comes after the pages that a sync wrote, and also where it had none to write. May sleep.
    ///
    /// # Errors
    /// Something is not there for good. Whoever syncs now is told; the pages are not written again.
    fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }

    /// The file has another size: shorter, and what lies behind it is gone for good; or longer, and
    /// what comes is zeros.
    ///
    /// # Context
    /// May sleep.
    ///
    /// # Errors
    /// The file stays as it was.
    fn resize(&self, bytes: u64) -> Result<(), IoError> {
        let _kept = bytes;
        Ok(())
    }

    /// Whether fault-around may map pages of this file that are cached.
    fn maps_around(&self) -> bool {
        true
    }

    /// Nobody uses the file any more: called once, last of all.
    fn release(&self) {}
}
