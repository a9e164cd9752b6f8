//! The files of workloads: one that all workers of a process have in common, one of each worker's
//! own.

use crate::{Common, errno};
use minflt_addr::{Pfn, VirtAddr};
use minflt_mm::{Errno, FileHandle, FileOps, IoError, MapRequest, Mm, NoMemory, Place, System};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Phase;
use minflt_workload::{Cache, CommonFile, Prot, Sharing, Stop, TargetError, file_word};

/// The file that the workers of a process have in common. A warm one is memory, with all its pages
/// there; the pages of a cold one are made by [`Made`] when they are asked for.
///
/// # Context
/// Sleeps.
///
/// # Errors
/// When the system has no memory for it.
pub(crate) fn common_file<'s, M: Mmu>(
    system: &'s System<M>,
    wanted: &CommonFile,
) -> Result<FileHandle<'s, M>, TargetError> {
    let none = |why: Errno| {
        TargetError::System(format!(
            "no memory for a file of {} bytes (errno {})",
            wanted.bytes, why.0
        ))
    };
    let no_memory = |error: NoMemory| none(error.into());
    let bytes = wanted.bytes.next_multiple_of(M::Paging::page());
    if wanted.cache == Cache::Cold {
        return system.open_file(&Made, bytes).map_err(no_memory);
    }
    let file = system.new_file(bytes).map_err(no_memory)?;
    for page in 0..bytes / M::Paging::page() {
        file.write_word(page * M::Paging::page(), file_word(page))
            .map_err(|error| none(error.into()))?;
    }
    Ok(file)
}

/// Where the pages of a cold file come from: they are made when they are read, which waits for
/// nothing, and cannot be written.
#[derive(Clone, Copy, Debug)]
pub struct Made;

impl<M: Mmu> FileOps<M> for Made {
    fn read_page(&self, at: &M::Instance, index: u64, pfn: Pfn) -> Result<(), IoError> {
        M::clear(at, pfn);
        M::user_store(at, pfn, 0, file_word(index));
        Ok(())
    }

    fn write_page(&self, _at: &M::Instance, _index: u64, _pfn: Pfn) -> Result<(), IoError> {
        Err(IoError::NoSpace)
    }
}

/// What a worker has of files.
#[derive(Debug)]
pub struct Files<'s, M: Mmu> {
    system: &'s System<M>,
    common: &'s Common<'s, M>,
    own: Option<FileHandle<'s, M>>,
}

impl<'s, M: Mmu> Files<'s, M> {
    /// Those of a worker of `system`; `common` is what all have.
    #[must_use]
    pub const fn new(system: &'s System<M>, common: &'s Common<'s, M>) -> Self {
        Self {
            system,
            common,
            own: None,
        }
    }

    /// See [`minflt_workload::Worker::map_file`].
    ///
    /// # Errors
    /// Linux's error number.
    pub fn map_own(
        &mut self,
        mm: &Mm<M>,
        len: u64,
        prot: Prot,
        sharing: Sharing,
    ) -> Result<VirtAddr, Stop> {
        let file = match self.own.take() {
            Some(file) if file.bytes() == len => file,
            _ => self.system.new_file(len).map_err(errno)?,
        };
        let mapped = map(mm, &file, prot, sharing);
        self.own = Some(file);
        mapped
    }

    /// See [`minflt_workload::Worker::map_common`].
    ///
    /// # Errors
    /// Linux's error number.
    pub fn map_common(&self, mm: &Mm<M>, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        const ENODEV: i32 = 19;
        let file = self.common.file.as_ref().ok_or(Stop::Errno(ENODEV))?;
        map(mm, file, prot, sharing)
    }

    /// See [`minflt_workload::Worker::map_huge_common`].
    ///
    /// # Errors
    /// Linux's error number.
    pub fn map_huge_common(&self, mm: &Mm<M>, prot: Prot) -> Result<VirtAddr, Stop> {
        const ENODEV: i32 = 19;
        let file = self.common.huge.as_ref().ok_or(Stop::Errno(ENODEV))?;
        map(mm, file, prot, Sharing::Shared)
    }
}

/// Maps all of a file.
fn map<M: Mmu>(
    mm: &Mm<M>,
    file: &FileHandle<'_, M>,
    prot: Prot,
    sharing: Sharing,
) -> Result<VirtAddr, Stop> {
    M::phase(Phase::Call("mmap"));
    let sharing = match sharing {
        Sharing::Private => minflt_mm::Sharing::Private,
        Sharing::Shared => minflt_mm::Sharing::Shared,
    };
    let request = MapRequest::new(Place::Any, file.bytes(), crate::own(prot));
    mm.mmap_file(&request, file, 0, sharing).map_err(errno)
}

/// Up to how many bytes a fault of the system maps around its address.
#[must_use]
pub fn fault_around_bytes<M: Mmu>(system: &System<M>) -> Option<u64> {
    let order = system.config().around.order()?;
    Some(M::Paging::page() << order)
}

/// Bytes of addresses that one table of leaf entries covers.
#[must_use]
pub fn table_bytes<P: Paging>() -> u64 {
    P::page() << P::tree()[0].bits
}
