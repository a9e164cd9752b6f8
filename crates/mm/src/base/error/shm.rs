//! Errors of the System V shared memory calls.

use super::{Errno, MmapError, NoMemory};
use core::fmt;

call_error! {
    /// Why shmget failed.
    pub enum ShmgetError {
        /// The size is 0 or more than a segment may have, or more than the one that is there has.
        Invalid,
        /// There is none with this key, and none shall be made.
        NotFound,
        /// There is one with this key, and one shall be made in any case.
        Exists,
        /// There is one with this key, which does not give the rights asked for.
        Access,
        /// There are as many segments, or as many pages in them, as may be.
        NoSpace,
        /// No memory for the segment, or more would be promised than the system may.
        NoMemory,
    }
}

impl From<NoMemory> for ShmgetError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

/// Why shmat failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShmatError {
    /// There is no such segment, the address is not a multiple of the page size, or something is
    /// mapped there, or no address is given for what shall be replaced.
    Invalid,
    /// The segment does not give the rights asked for.
    Access,
    /// It could not be mapped: why.
    Mmap(MmapError),
}

impl fmt::Display for ShmatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid => f.write_str(
                "There is no such segment, the address is not a multiple of the page size, or \
                 something is mapped there",
            ),
            Self::Access => f.write_str("The segment does not give the rights asked for"),
            Self::Mmap(why) => write!(f, "The segment could not be mapped: {why}"),
        }
    }
}

impl core::error::Error for ShmatError {}

call_error! {
    /// Why shmdt failed.
    pub enum ShmdtError {
        /// The address is not a multiple of the page size, or no segment is attached there.
        Invalid,
        /// No memory to take a mapping out. Of one that is in parts some may be detached; trying
        /// again detaches the rest.
        NoMemory,
    }
}

impl From<NoMemory> for ShmdtError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

call_error! {
    /// Why shmctl failed.
    pub enum ShmctlError {
        /// There is no such segment.
        Invalid,
        /// The segment does not give the right to look at it.
        Access,
    }
}

impl From<ShmgetError> for Errno {
    fn from(error: ShmgetError) -> Self {
        match error {
            ShmgetError::Invalid => Self::EINVAL,
            ShmgetError::NotFound => Self::ENOENT,
            ShmgetError::Exists => Self::EEXIST,
            ShmgetError::Access => Self::EACCES,
            ShmgetError::NoSpace => Self::ENOSPC,
            ShmgetError::NoMemory => Self::ENOMEM,
        }
    }
}

impl From<ShmatError> for Errno {
    fn from(error: ShmatError) -> Self {
        match error {
            ShmatError::Invalid => Self::EINVAL,
            ShmatError::Access => Self::EACCES,
            ShmatError::Mmap(error) => error.into(),
        }
    }
}

impl From<ShmdtError> for Errno {
    fn from(error: ShmdtError) -> Self {
        match error {
            ShmdtError::Invalid => Self::EINVAL,
            ShmdtError::NoMemory => Self::ENOMEM,
        }
    }
}

impl From<ShmctlError> for Errno {
    fn from(error: ShmctlError) -> Self {
        match error {
            ShmctlError::Invalid => Self::EINVAL,
            ShmctlError::Access => Self::EACCES,
        }
    }
}
