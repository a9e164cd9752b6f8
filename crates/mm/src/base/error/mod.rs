//! Error types of all calls, and the one table that maps them to Linux's error numbers.

/// An error of calls, whose text is what its variant's documentation says.
macro_rules! call_error {
    (
        $(#[doc = $about:literal])+
        pub enum $name:ident { $($(#[doc = $doc:literal])+ $variant:ident),+ $(,)? }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[doc = $doc])+ $variant),+ }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let text = match self {
                    $(Self::$variant => concat!($($doc),+),)+
                };
                f.write_str(text.trim().trim_end_matches('.'))
            }
        }

        impl core::error::Error for $name {}
    };
}

mod boot;
mod errno;
mod shm;
mod uffd;

pub use boot::BootError;
pub use errno::Errno;
pub use shm::{ShmatError, ShmctlError, ShmdtError, ShmgetError};
pub use uffd::UffdError;

use crate::base::file::IoError;
use core::fmt;

/// No frame, or no object, could be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no memory")
    }
}

impl core::error::Error for NoMemory {}

call_error! {
    /// Why mmap failed.
    pub enum MmapError {
        /// The length is 0, or an address is not a multiple of the page size.
        Invalid,
        /// No hole of that length, or no memory for the VMA.
        NoMemory,
        /// `MAP_FIXED_NOREPLACE` over something mapped.
        Exists,
        /// The place asked for lies outside user space.
        OutOfRange,
        /// More would be mapped than the address space may (`RLIMIT_AS`).
        Limit,
        /// More would be promised than the system may (`vm.overcommit_memory`).
        Overcommit,
        /// More would be locked than may be (`RLIMIT_MEMLOCK`).
        LockLimit,
        /// Nothing may be locked (`RLIMIT_MEMLOCK` is 0).
        NotPermitted,
        /// A shared mapping that can be stored to, of a file that was opened for loads.
        Access,
        /// The mapping would reach further than page numbers do.
        Overflow,
    }
}

call_error! {
    /// Why a call about a file failed.
    pub enum FileError {
        /// An offset is not a multiple of 8, a length is 0, or bytes of more than one word on a
        /// machine whose frames keep one; or the file is of huge pages, which are mapped only.
        Invalid,
        /// No memory for a page.
        NoMemory,
        /// The device failed, or the page's memory is broken.
        Io,
        /// There is no room on the device.
        NoSpace,
        /// The file would be larger than a file may be.
        TooLarge,
        /// The handle is for loads only.
        ReadOnly,
    }
}

impl From<NoMemory> for FileError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl From<IoError> for FileError {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Failed => Self::Io,
            IoError::NoSpace => Self::NoSpace,
        }
    }
}

call_error! {
    /// Why msync failed.
    pub enum MsyncError {
        /// The address is not a multiple of the page size, or the call shall both wait and not.
        Invalid,
        /// Part of the range is not mapped; the rest was done.
        NoMemory,
        /// A mapping is locked, and shall be invalidated.
        Busy,
        /// What was stored could not be written. It is kept, and will be tried again.
        Io,
        /// The same, for there is no room where the file is.
        NoSpace,
    }
}

call_error! {
    /// Why munmap failed.
    pub enum MunmapError {
        /// The length is 0, the address is not a multiple of the page size, or the range is not
        /// user's.
        Invalid,
        /// No memory to split a VMA.
        NoMemory,
    }
}

call_error! {
    /// Why mprotect failed.
    pub enum MprotectError {
        /// The address is not a multiple of the page size, or the range wraps.
        Invalid,
        /// Part of the range is not mapped, or no memory to split a VMA.
        NoMemory,
        /// What becomes writable would promise more than the system may.
        Overcommit,
        /// A shared mapping of a file that was opened for loads shall become writable.
        Access,
    }
}

call_error! {
    /// Why mremap failed.
    pub enum MremapError {
        /// An address is not a multiple of the page size, a length is 0 that may not be, the new
        /// place lies outside user space or overlaps the old one, or a mapping that stays shall
        /// change its length.
        Invalid,
        /// Part of what is to move or grow is not mapped, or is more than one mapping.
        Fault,
        /// No room to grow, no hole to move to, or no memory, or too many mappings.
        NoMemory,
        /// More would be mapped than the address space may (`RLIMIT_AS`).
        Limit,
        /// More would be promised than the system may (`vm.overcommit_memory`).
        Overcommit,
        /// More would be locked than may be (`RLIMIT_MEMLOCK`).
        LockLimit,
        /// The new place lies below what may be mapped.
        NotPermitted,
    }
}

impl From<NoMemory> for MremapError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

call_error! {
    /// Why madvise failed.
    pub enum MadviseError {
        /// The address is not a multiple of the page size, the range wraps, or a mapping is not of
        /// the kind that the advice is for (it is locked, or does not allow the access).
        Invalid,
        /// Part of the range is not mapped (the rest was done, but of populating what lies before),
        /// or a page to populate cannot be had.
        NoMemory,
        /// No memory to split a mapping.
        Again,
        /// The mapping's file shall lose what it has, and the mapping is private, or its file was
        /// opened for loads.
        Access,
        /// A page to populate lies behind the end of its file, or could not be read.
        Fault,
        /// The file's device failed.
        Io,
    }
}

call_error! {
    /// Why locking or unlocking memory failed.
    pub enum MlockError {
        /// The range wraps, or the flags say nothing that can be done.
        Invalid,
        /// Part of the range is not mapped, or allows no access, or lies behind the end of its
        /// file, or more would be locked than may be (`RLIMIT_MEMLOCK`), or there is no memory to
        /// split a mapping.
        NoMemory,
        /// All is locked, but not every page could be had.
        Again,
        /// Nothing may be locked (`RLIMIT_MEMLOCK` is 0).
        NotPermitted,
    }
}

call_error! {
    /// Why a call about memory policies failed.
    pub enum MempolicyError {
        /// The address is not a multiple of the page size, the range wraps, the way to choose does
        /// not go with the set of nodes, or none of these is there.
        Invalid,
        /// No memory to split a mapping.
        NoMemory,
        /// Part of the range is not mapped (of all of it, for the default policy), or the page
        /// cannot be had.
        Fault,
        /// A page is on another node, and may not be.
        Misplaced,
    }
}

call_error! {
    /// Why a page was not moved to another node. It is where it was.
    pub enum MovePageError {
        /// Nothing is mapped there, or the shared zero page.
        Fault,
        /// There is no page now.
        NotThere,
        /// The page has other references, or is locked or isolated.
        Busy,
        /// There is no memory on that node.
        NoMemory,
        /// Others map the page too, and only pages of one's own were to be moved.
        Shared,
        /// There is no such node.
        NoNode,
    }
}

call_error! {
    /// Why mincore failed.
    pub enum MincoreError {
        /// The address is not a multiple of the page size.
        Invalid,
        /// Part of the range is not mapped, or lies outside user space.
        NoMemory,
        /// There is no room for the answer.
        Fault,
    }
}

call_error! {
    /// Why a page of another address space cannot be used.
    pub enum RemoteError {
        /// Nothing is mapped there, the mapping does not allow the access, or a pin for loads is
        /// stored through.
        Fault,
        /// No memory for the page.
        NoMemory,
        /// No word of the pinned page.
        Invalid,
    }
}

call_error! {
    /// Why the heap's start cannot be set.
    pub enum HeapError {
        /// The break was moved already.
        Used,
        /// The place lies outside user space.
        OutOfRange,
    }
}

impl From<NoMemory> for Errno {
    fn from(_: NoMemory) -> Self {
        Self::ENOMEM
    }
}

impl From<MmapError> for Errno {
    fn from(error: MmapError) -> Self {
        match error {
            MmapError::Invalid => Self::EINVAL,
            MmapError::NoMemory
            | MmapError::OutOfRange
            | MmapError::Limit
            | MmapError::Overcommit => Self::ENOMEM,
            MmapError::LockLimit => Self::EAGAIN,
            MmapError::NotPermitted => Self::EPERM,
            MmapError::Exists => Self::EEXIST,
            MmapError::Access => Self::EACCES,
            MmapError::Overflow => Self::EOVERFLOW,
        }
    }
}

impl From<FileError> for Errno {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Invalid => Self::EINVAL,
            FileError::NoMemory => Self::ENOMEM,
            FileError::Io => Self::EIO,
            FileError::NoSpace => Self::ENOSPC,
            FileError::TooLarge => Self::EFBIG,
            FileError::ReadOnly => Self::EBADF,
        }
    }
}

impl From<IoError> for Errno {
    fn from(error: IoError) -> Self {
        FileError::from(error).into()
    }
}

impl From<IoError> for MsyncError {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Failed => Self::Io,
            IoError::NoSpace => Self::NoSpace,
        }
    }
}

impl From<MsyncError> for Errno {
    fn from(error: MsyncError) -> Self {
        match error {
            MsyncError::Invalid => Self::EINVAL,
            MsyncError::NoMemory => Self::ENOMEM,
            MsyncError::Busy => Self::EBUSY,
            MsyncError::Io => Self::EIO,
            MsyncError::NoSpace => Self::ENOSPC,
        }
    }
}

impl From<MunmapError> for Errno {
    fn from(error: MunmapError) -> Self {
        match error {
            MunmapError::Invalid => Self::EINVAL,
            MunmapError::NoMemory => Self::ENOMEM,
        }
    }
}

impl From<MprotectError> for Errno {
    fn from(error: MprotectError) -> Self {
        match error {
            MprotectError::Invalid => Self::EINVAL,
            MprotectError::NoMemory | MprotectError::Overcommit => Self::ENOMEM,
            MprotectError::Access => Self::EACCES,
        }
    }
}

impl From<MremapError> for Errno {
    fn from(error: MremapError) -> Self {
        match error {
            MremapError::Invalid => Self::EINVAL,
            MremapError::Fault => Self::EFAULT,
            MremapError::NoMemory | MremapError::Limit | MremapError::Overcommit => Self::ENOMEM,
            MremapError::LockLimit => Self::EAGAIN,
            MremapError::NotPermitted => Self::EPERM,
        }
    }
}

impl From<MadviseError> for Errno {
    fn from(error: MadviseError) -> Self {
        match error {
            MadviseError::Invalid => Self::EINVAL,
            MadviseError::NoMemory => Self::ENOMEM,
            MadviseError::Again => Self::EAGAIN,
            MadviseError::Access => Self::EACCES,
            MadviseError::Fault => Self::EFAULT,
            MadviseError::Io => Self::EIO,
        }
    }
}

impl From<MlockError> for Errno {
    fn from(error: MlockError) -> Self {
        match error {
            MlockError::Invalid => Self::EINVAL,
            MlockError::NoMemory => Self::ENOMEM,
            MlockError::Again => Self::EAGAIN,
            MlockError::NotPermitted => Self::EPERM,
        }
    }
}

impl From<MempolicyError> for Errno {
    fn from(error: MempolicyError) -> Self {
        match error {
            MempolicyError::Invalid => Self::EINVAL,
            MempolicyError::NoMemory => Self::ENOMEM,
            MempolicyError::Fault => Self::EFAULT,
            MempolicyError::Misplaced => Self::EIO,
        }
    }
}

impl From<MovePageError> for Errno {
    fn from(error: MovePageError) -> Self {
        match error {
            MovePageError::Fault => Self::EFAULT,
            MovePageError::NotThere => Self::ENOENT,
            MovePageError::Busy => Self::EBUSY,
            MovePageError::NoMemory => Self::ENOMEM,
            MovePageError::Shared => Self::EACCES,
            MovePageError::NoNode => Self::ENODEV,
        }
    }
}

impl From<MincoreError> for Errno {
    fn from(error: MincoreError) -> Self {
        match error {
            MincoreError::Invalid => Self::EINVAL,
            MincoreError::NoMemory => Self::ENOMEM,
            MincoreError::Fault => Self::EFAULT,
        }
    }
}

impl From<RemoteError> for Errno {
    fn from(error: RemoteError) -> Self {
        match error {
            RemoteError::Fault => Self::EFAULT,
            RemoteError::NoMemory => Self::ENOMEM,
            RemoteError::Invalid => Self::EINVAL,
        }
    }
}

impl From<HeapError> for Errno {
    fn from(_: HeapError) -> Self {
        Self::EINVAL
    }
}
