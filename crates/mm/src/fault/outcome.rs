//! Outcomes of a fault, and the events that count them.

use crate::base::config::LockMode;
use crate::base::event::Event;
use crate::system::CpuArea;
use core::fmt;
use minflt_pgtable::Mmu;

/// What came of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultOutcome {
    /// The access can be tried again.
    Done(Done),
    /// The access is an error.
    Signal(Signal),
    /// There is no memory.
    Oom,
}

/// How a fault was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Done {
    /// How the fault was resolved.
    pub kind: Kind,
    /// Whether it was done without `mmap_lock`.
    pub by: LockMode,
}

/// How a fault was resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Install a frame of zeros.
    AnonWrite,
    /// Install the shared zero page.
    AnonRead,
    /// Replace the shared zero page by a frame.
    ZeroPageCow,
    /// Made a page writable that has no other user.
    Reuse,
    /// Replace a page that others may share by a copy.
    Cow,
    /// Map a page of a file for loads.
    FileRead,
    /// Map a page of a file and those around it for loads.
    FileAround,
    /// Map a page of a shared file for stores.
    FileWrite,
    /// Make a page of a shared file writable.
    FileShared,
    /// Map a copy of a page of a private file.
    FileCopy,
    /// Map a huge page.
    Huge,
    /// Map a page that was swapped out.
    SwapIn,
    /// Restored the permissions that a NUMA scan removed.
    NumaHint,
    /// Nothing: another thread was faster, or only flags were missing.
    Spurious,
}

/// The signal that an access raises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Nothing is mapped there (SIGSEGV, SEGV_MAPERR).
    MapErr,
    /// The mapping does not allow the access (SIGSEGV, SEGV_ACCERR).
    AccErr,
    /// The file ends before the page, or it could not be read (SIGBUS, BUS_ADRERR).
    Bus,
    /// The address is not aligned to the access's size, on a machine that requires it (SIGBUS,
    /// BUS_ADRALN).
    Misaligned,
    /// There was no memory for the page (Linux kills a process for it; an embedder decides).
    OutOfMemory,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MapErr => "SIGSEGV: nothing is mapped there",
            Self::AccErr => "SIGSEGV: the mapping does not allow the access",
            Self::Bus => "SIGBUS: the file ends before the page, or it could not be read",
            Self::Misaligned => "SIGBUS: the address is no multiple of the access's size",
            Self::OutOfMemory => "there is no memory for the page",
        })
    }
}

impl core::error::Error for Signal {}

impl Done {
    #[inline(always)]
    pub(super) fn count<M: Mmu>(self, here: &CpuArea<M>) {
        here.count(self.kind.event());
        match self.by {
            LockMode::Speculative => here.count(Event::Speculative),
            LockMode::VmaLock => here.count(Event::VmaLockSuccess),
            LockMode::Mmap => {}
        }
    }
}

impl Kind {
    /// Whether one more frame is mapped.
    pub(super) const fn maps_a_frame(self) -> bool {
        matches!(
            self,
            Self::AnonWrite
                | Self::ZeroPageCow
                | Self::FileRead
                | Self::FileWrite
                | Self::FileCopy
                | Self::SwapIn
        )
    }

    /// Whether a frame was taken for it.
    pub(super) const fn takes_a_frame(self) -> bool {
        matches!(
            self,
            Self::AnonWrite | Self::ZeroPageCow | Self::Cow | Self::FileCopy
        )
    }

    pub(super) const fn event(self) -> Event {
        match self {
            Self::AnonWrite => Event::AnonWrite,
            Self::AnonRead => Event::AnonRead,
            Self::ZeroPageCow => Event::ZeroPageCow,
            Self::Reuse => Event::Reuse,
            Self::Cow => Event::Cow,
            Self::FileRead => Event::FileRead,
            Self::FileAround => Event::FileAround,
            Self::FileWrite => Event::FileWrite,
            Self::FileShared => Event::FileShared,
            Self::FileCopy => Event::FileCopy,
            Self::Huge => Event::HugeFaults,
            Self::SwapIn => Event::SwapIn,
            Self::NumaHint => Event::NumaHintFaults,
            Self::Spurious => Event::Spurious,
        }
    }
}
