//! Identifiers of files that all floors use.

use core::fmt;

/// Which file a mapping is of: its name within the system, 0 for anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FileKey(u64);

impl FileKey {
    /// Anonymous memory.
    pub const NONE: Self = Self(0);

    /// The file whose cache lies at an address.
    pub(crate) const fn of(address: u64) -> Self {
        Self(address)
    }

    /// That address.
    pub(crate) const fn address(self) -> u64 {
        self.0
    }

    /// Whether it names a file.
    #[inline(always)]
    #[must_use]
    pub const fn is_file(self) -> bool {
        self.0 != 0
    }
}

impl fmt::Debug for FileKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_file() { "file" } else { "no file" })
    }
}

/// Why a page could not be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoError {
    /// The device failed.
    Failed,
    /// There is no room on the device.
    NoSpace,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "the device failed",
            Self::NoSpace => "no room on the device",
        })
    }
}

impl core::error::Error for IoError {}
