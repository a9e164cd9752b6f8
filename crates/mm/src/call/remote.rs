//! Reads and writes the memory of another address space, as a debugger does.
//!
//! The bytes of a page are copied with only a reference to the page held: a write holds it by a
//! pin, so that a concurrent fork does not share it ([`super::pin`]).
//!
//! Linux: mm/process_vm_access.c; forced, mm/memory.c access_remote_vm (v6.12).

use crate::base::error::RemoteError;
use crate::fault::remote::Force;
use crate::fault::remote::{Held, HeldPage};
use crate::memory::frame::{PIN, Use};
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use minflt_addr::VirtAddr;
use minflt_pgtable::{Access, Mmu, Paging};

impl<M: Mmu> Mm<M> {
    /// Loads `to.len()` bytes from `addr` on; returns how many were loaded before the first that
    /// cannot be. The caller may be any thread; bytes of one word are loaded at once.
    ///
    /// # Context
    /// Holds nothing. Sleeps for `mmap_lock`, which it takes for reading, page by page.
    ///
    /// # Errors
    /// Not even the first byte can be loaded: see [`RemoteError`].
    pub fn remote_read(
        &self,
        addr: VirtAddr,
        to: &mut [u8],
        force: Force,
    ) -> Result<usize, RemoteError> {
        let sys = self.system();
        let mut left = to;
        self.each_page(addr, left.len(), |at, len| {
            let page = self.hold_page(at, Access::Read, force, Held::Reference)?;
            let (part, rest) = core::mem::take(&mut left).split_at_mut(len);
            left = rest;
            let offset = at.page_offset(M::Paging::shift());
            M::read_bytes(&sys.at, page.pfn, offset, part);
            self.put_page(page, 1);
            Ok(())
        })
    }

    /// Stores the bytes of `from` from `addr` on; returns how many could be stored before one that
    /// could not. Bytes of one word are stored at once, and the word's others stay.
    ///
    /// # Context
    /// As [`Mm::remote_read`].
    ///
    /// # Errors
    /// Not even the first byte can be stored: see [`RemoteError`].
    pub fn remote_write(
        &self,
        addr: VirtAddr,
        from: &[u8],
        force: Force,
    ) -> Result<usize, RemoteError> {
        let sys = self.system();
        let mut left = from;
        self.each_page(addr, left.len(), |at, len| {
            let page = self.hold_page(at, Access::Write, force, Held::Pin)?;
            let (part, rest) = left.split_at(len);
            left = rest;
            let offset = at.page_offset(M::Paging::shift());
            M::write_bytes(&sys.at, page.pfn, offset, part);
            let frame = sys.frames.get(page.first);
            if frame.used_as() == Use::File {
                // Linux: access_remote_vm, set_page_dirty_lock.
                frame.set_stored();
            }
            self.put_page(page, PIN);
            Ok(())
        })
    }

    /// Calls `one` with each page's part of `len` bytes from `addr` on, until one fails.
    fn each_page(
        &self,
        addr: VirtAddr,
        len: usize,
        mut one: impl FnMut(VirtAddr, usize) -> Result<(), RemoteError>,
    ) -> Result<usize, RemoteError> {
        as_call(self.system(), || {
            let mut done = 0;
            while done < len {
                // Nothing is mapped where addresses end.
                let at = addr.0.checked_add(done as u64).map(VirtAddr);
                let part = at.map(|at| {
                    let in_page = M::Paging::page() - at.page_offset(M::Paging::shift());
                    (at, (len - done).min(in_page as usize))
                });
                let result = match part {
                    Some((at, part)) => {
                        let result = self.system().with_memory(|| one(at, part));
                        result.map(|()| part)
                    }
                    None => Err(RemoteError::Fault),
                };
                match result {
                    Ok(part) => done += part,
                    // Linux says that there is no memory as it says that there is no mapping.
                    Err(_) if done == 0 => return Err(RemoteError::Fault),
                    Err(_) => break,
                }
            }
            Ok(done)
        })
    }

    /// Drops the references to a held page. The shared zero page is not counted.
    pub(super) fn put_page(&self, page: HeldPage, references: u32) {
        let sys = self.system();
        if page.first != sys.zero_page {
            sys.frames.put_many(page.first, references);
        }
    }
}
