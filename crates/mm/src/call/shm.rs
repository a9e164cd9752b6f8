//! System V shared memory: shmget, shmat, shmdt, shmctl.
//!
//! Segments and their attach counts are in [`crate::pages::file::segments`]; here are the calls.
//! Attaching is mmap of the segment's file, with other rules for the address; detaching is munmap
//! of what is left of that mapping. A hugetlb segment is aligned to its page size; `SHM_RND` rounds
//! to small pages in any case.
//!
//! Linux: ipc/shm.c (v6.18).

use super::mmap::{MapRequest, Part};
use super::munmap::unmap;
use super::place::Place;
use crate::base::attrs::{Prot, VmaView};
use crate::base::error::{MmapError, ShmatError, ShmctlError, ShmdtError, ShmgetError};
use crate::base::file::FileKey;
use crate::change::writers::{Afterwards, Writers};
use crate::memory::commit::Reserve;
use crate::memory::lifetime::as_call;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::pages::file::{FileAccess, Sharing, pages_of};
use crate::pages::segments::{NewSegment, ShmId, ShmKey, ShmPages, ShmStatus};
use crate::space::arenas::lock::Over;
use crate::space::vma::Vma;
use crate::system::System;
use minflt_addr::VirtAddr;
use minflt_pgtable::{Mmu, Paging};

/// Whether shmget makes a segment. With [`ShmKey::PRIVATE`] it always does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShmCreate {
    /// No.
    No,
    /// If there is none with the key (`IPC_CREAT`).
    IfMissing,
    /// Yes, and it is an error if there is one (`IPC_CREAT | IPC_EXCL`).
    Exclusive,
}

/// Which segment is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmRequest {
    /// Its key.
    pub key: ShmKey,
    /// Bytes: the size of a new one, the least of one that is there.
    pub bytes: u64,
    /// Whether to make one.
    pub create: ShmCreate,
    /// Nine bits: the rights that a new one gives, those asked for of one that is there. There are
    /// no users here: all are the owner.
    pub mode: u16,
    /// Whether the pages of a new one are promised at once (not with `SHM_NORESERVE`).
    pub reserve: Reserve,
    /// What the pages of a new one are.
    pub pages: ShmPages,
}

impl ShmRequest {
    /// A new segment without a key, for its owner.
    #[must_use]
    pub const fn private(bytes: u64) -> Self {
        Self {
            key: ShmKey::PRIVATE,
            bytes,
            create: ShmCreate::No,
            mode: 0o600,
            reserve: Reserve::Charged,
            pages: ShmPages::Small,
        }
    }

    /// The same, of huge pages.
    #[must_use]
    pub const fn private_huge(bytes: u64) -> Self {
        Self {
            pages: ShmPages::Huge,
            ..Self::private(bytes)
        }
    }
}

/// Where a segment is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShmPlace {
    /// Anywhere.
    Any,
    /// Here, and only where nothing is mapped; 0 is anywhere.
    Free(VirtAddr),
    /// Here, in place of whatever is mapped (`SHM_REMAP`).
    Over(VirtAddr),
}

/// Whether an address that is within a page is taken for the page's (`SHM_RND`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShmRound {
    /// It is an error.
    No,
    /// It is.
    Down,
}

/// How a segment is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmAttach {
    /// Where.
    pub place: ShmPlace,
    /// Whether the address may be within a page.
    pub round: ShmRound,
    /// What may be done there. Loads may in any case; without stores (`SHM_RDONLY`) the attached
    /// segment can never be stored to.
    pub prot: Prot,
}

impl ShmAttach {
    /// For loads and stores.
    #[must_use]
    pub const fn new(place: ShmPlace) -> Self {
        Self {
            place,
            round: ShmRound::No,
            prot: Prot::READ_WRITE,
        }
    }

    /// The same, for loads only.
    #[must_use]
    pub const fn read_only(place: ShmPlace) -> Self {
        Self {
            prot: Prot::READ,
            ..Self::new(place)
        }
    }

    /// Where, in mmap's words.
    fn place<P: Paging>(&self) -> Result<Place, ShmatError> {
        let (at, over) = match self.place {
            ShmPlace::Any | ShmPlace::Free(VirtAddr(0)) => return Ok(Place::Any),
            ShmPlace::Free(at) => (at, false),
            ShmPlace::Over(at) => (at, true),
        };
        let down = at.align_down(P::shift());
        if (down != at && self.round == ShmRound::No) || (over && down.0 == 0) {
            return Err(ShmatError::Invalid);
        }
        Ok(if over {
            Place::Fixed(down)
        } else {
            Place::FixedNoReplace(down)
        })
    }

    /// The rights that it takes: the owner's, the group's and others'. Linux: `acc_mode`.
    const fn rights(&self) -> u16 {
        let write = if self.prot.has(Prot::WRITE) { 0o222 } else { 0 };
        let execute = if self.prot.has(Prot::EXEC) { 0o111 } else { 0 };
        0o444 | write | execute
    }
}

impl<M: Mmu> Mm<M> {
    /// The number of the segment with a key, or of a new one.
    ///
    /// # Context
    /// Sleeps for the table of segments.
    ///
    /// # Errors
    /// See [`ShmgetError`]. Nothing has changed then.
    ///
    /// Linux: ipcget.
    pub fn shmget(&self, request: &ShmRequest) -> Result<ShmId, ShmgetError> {
        let sys = self.system();
        as_call(sys, || {
            sys.with_memory(|| {
                let table = sys.segments();
                let private = request.key == ShmKey::PRIVATE;
                let found = (!private).then(|| table.named(request.key)).flatten();
                let Some(segment) = found else {
                    if !private && request.create == ShmCreate::No {
                        return Err(ShmgetError::NotFound);
                    }
                    return table.add(&NewSegment {
                        key: request.key,
                        bytes: request.bytes,
                        mode: request.mode & 0o777,
                        reserve: request.reserve,
                        pages: request.pages,
                        creator: self.space(),
                    });
                };
                if request.create == ShmCreate::Exclusive {
                    Err(ShmgetError::Exists)
                } else if segment.bytes() < request.bytes {
                    Err(ShmgetError::Invalid)
                } else if segment.denies(request.mode & 0o777) {
                    Err(ShmgetError::Access)
                } else {
                    Ok(segment.id())
                }
            })
        })
    }

    /// Attaches a segment: maps all of it, shared; returns the address. A removed segment can be
    /// attached as long as its attach count is above 0.
    ///
    /// # Context
    /// Sleeps for the table of segments, then for `mmap_lock`, which it takes for writing, and
    /// then, to populate a locked mapping, for reading. If the segment was removed and could not be
    /// mapped, it may be freed.
    ///
    /// # Errors
    /// See [`ShmatError`]. Nothing has changed then.
    ///
    /// Linux: do_shmat.
    pub fn shmat(&self, id: ShmId, attach: &ShmAttach) -> Result<VirtAddr, ShmatError> {
        let share = Share::default();
        let attached = as_call(self.system(), || {
            let attach = || self.attach(&share, id, attach);
            self.system().with_memory(attach)
        });
        self.rss.sync(&share);
        attached
    }

    fn attach(&self, share: &Share, id: ShmId, attach: &ShmAttach) -> Result<VirtAddr, ShmatError> {
        let place = attach.place::<M::Paging>()?;
        let access = match attach.prot.has(Prot::WRITE) {
            true => FileAccess::ReadWrite,
            false => FileAccess::Read,
        };
        let held = {
            let table = self.system().segments();
            let segment = table.numbered(id).ok_or(ShmatError::Invalid)?;
            if segment.denies(attach.rights()) {
                return Err(ShmatError::Access);
            }
            // As for Linux's `shm_nattch`: until there is a mapping that counts.
            table.hold(segment, access)
        };
        // Of huge pages all of the last one, too.
        let bytes = held.file.cache().size();
        if let Place::FixedNoReplace(at) = place
            && at.0.checked_add(bytes).is_none()
        {
            return Err(ShmatError::Invalid);
        }
        let prot = attach.prot.with(Prot::READ);
        let request = MapRequest::new(place, bytes, prot);
        let part = Part {
            file: &held.file,
            offset: 0,
            sharing: Sharing::Shared,
        };
        let mapped = self.map_populated(share, &request, Some(&part));
        mapped.map_err(|error| match error {
            MmapError::Exists => ShmatError::Invalid,
            error => ShmatError::Mmap(error),
        })
    }

    /// Detaches the segment attached at `addr`: unmaps all remaining parts of that mapping.
    ///
    /// # Context
    /// As [`Mm::munmap`]. A removed segment is freed with its last mapping.
    ///
    /// # Errors
    /// See [`ShmdtError`].
    ///
    /// Linux: ksys_shmdt.
    pub fn shmdt(&self, addr: VirtAddr) -> Result<(), ShmdtError> {
        as_call(self.system(), || {
            self.system().with_memory(|| {
                if !addr.is_aligned(M::Paging::shift()) {
                    return Err(ShmdtError::Invalid);
                }
                let writers = Writers::lock(self, Over::All);
                let mut attached: Option<(FileKey, VirtAddr)> = None;
                let mut at = addr;
                while let Some(view) = writers.held().find(at).map(Vma::view) {
                    at = view.range.end();
                    // Nothing of it can lie further up.
                    if attached.is_some_and(|(_, end)| at > end) {
                        break;
                    }
                    let other = attached.is_some_and(|(file, _)| file != view.file);
                    let Some(bytes) = attached_bytes::<M>(addr, &view).filter(|_| !other) else {
                        continue;
                    };
                    attached = Some((view.file, VirtAddr(addr.0.saturating_add(bytes))));
                    unmap(&writers, view.range, Afterwards::Writes)?;
                }
                M::note(format_args!("shmdt {addr} returns"));
                attached.map(|_| ()).ok_or(ShmdtError::Invalid)
            })
        })
    }
}

/// The size of a mapping's segment, in whole pages, if it was attached at `addr`: judged by its
/// page numbers, which no longer fit where the mapping was moved.
fn attached_bytes<M: Mmu>(addr: VirtAddr, view: &VmaView) -> Option<u64> {
    let cache = view.cache::<M>().filter(|cache| cache.counts_mappings())?;
    let from = view.range.start().0.checked_sub(addr.0)?;
    (from >> M::Paging::shift() == view.pgoff)
        .then(|| pages_of::<M>(cache.size()) << M::Paging::shift())
}

impl<M: Mmu> System<M> {
    /// What a segment is (shmctl with `IPC_STAT`).
    ///
    /// # Context
    /// Sleeps for the table of segments.
    ///
    /// # Errors
    /// See [`ShmctlError`].
    pub fn shmctl_stat(&self, id: ShmId) -> Result<ShmStatus, ShmctlError> {
        as_call(self, || {
            let table = self.segments();
            let segment = table.numbered(id).ok_or(ShmctlError::Invalid)?;
            if segment.denies(0o444) {
                return Err(ShmctlError::Access);
            }
            Ok(segment.status(&table))
        })
    }

    /// Removes a segment (shmctl with `IPC_RMID`): its key is free at once, and it is freed at the
    /// last detach.
    ///
    /// # Context
    /// Sleeps for the table of segments, and for locks of its pages.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn shmctl_remove(&self, id: ShmId) -> Result<(), ShmctlError> {
        as_call(self, || {
            let table = self.segments();
            table.remove(id).then_some(()).ok_or(ShmctlError::Invalid)
        })
    }
}
