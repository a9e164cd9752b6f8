//! Errors of the userfaultfd calls.

use super::{Errno, NoMemory};
use core::fmt;

/// Why a userfaultfd's call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UffdError {
    /// No whole pages, nothing mapped there, or a mode that is not to be had.
    Invalid,
    /// Another userfaultfd watches part of the range.
    Busy,
    /// The range is not watched, or not for that.
    NotWatched,
    /// There is a page already.
    Exists,
    /// Done as far as this many bytes.
    Partial(u64),
    /// There is nothing to read.
    Again,
    /// No memory.
    NoMemory,
}

impl fmt::Display for UffdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "No whole pages, nothing mapped there, or a mode not supported",
            Self::Busy => "Another userfaultfd watches part of the range",
            Self::NotWatched => "The range is not watched, or not for that",
            Self::Exists => "There is a page already",
            Self::Partial(bytes) => return write!(f, "Done for the first {bytes} bytes only"),
            Self::Again => "There is nothing to read",
            Self::NoMemory => "No memory",
        })
    }
}

impl core::error::Error for UffdError {}

impl From<NoMemory> for UffdError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl From<UffdError> for Errno {
    fn from(error: UffdError) -> Self {
        match error {
            UffdError::Invalid => Self::EINVAL,
            UffdError::Busy => Self::EBUSY,
            UffdError::NotWatched => Self::ENOENT,
            UffdError::Exists => Self::EEXIST,
            UffdError::Partial(_) | UffdError::Again => Self::EAGAIN,
            UffdError::NoMemory => Self::ENOMEM,
        }
    }
}
