//! How a program ends.

use core::fmt;

use minflt_mm::Signal;
use minflt_pgtable::Access;

use crate::loader::LoadError;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with a status.
    Exited(i32),
    /// By a page fault that could not be resolved.
    Faulted(Signal, Access),
    /// By another exception.
    Exception(u64),
    /// Before it began.
    NotLoaded(LoadError),
}

impl Ending {
    /// What a parent's `wait4` is told: a status in the second byte, or a signal's number in the
    /// first.
    pub(crate) const fn wait_status(self) -> u32 {
        const SIGILL: u32 = 4;
        const SIGTRAP: u32 = 5;
        const SIGBUS: u32 = 7;
        const SIGFPE: u32 = 8;
        const SIGKILL: u32 = 9;
        const SIGSEGV: u32 = 11;
        match self {
            Self::Exited(status) => (status as u32 & 0xff) << 8,
            Self::Faulted(Signal::MapErr | Signal::AccErr, _) => SIGSEGV,
            Self::Faulted(Signal::Bus | Signal::Misaligned, _) => SIGBUS,
            Self::Faulted(Signal::OutOfMemory, _) | Self::NotLoaded(_) => SIGKILL,
            Self::Exception(vector) => match vector {
                0 | 16 | 19 => SIGFPE,
                1 | 3 => SIGTRAP,
                6 => SIGILL,
                17 => SIGBUS,
                _ => SIGSEGV,
            },
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with {status}"),
            Self::Faulted(Signal::MapErr, _) => write!(f, "SIGSEGV (SEGV_MAPERR)"),
            Self::Faulted(Signal::AccErr, _) => write!(f, "SIGSEGV (SEGV_ACCERR)"),
            Self::Faulted(Signal::Bus, _) => write!(f, "SIGBUS (BUS_ADRERR)"),
            Self::Faulted(Signal::Misaligned, _) => write!(f, "SIGBUS (BUS_ADRALN)"),
            Self::Faulted(Signal::OutOfMemory, _) => write!(f, "killed: out of memory"),
            Self::Exception(vector) => write!(f, "killed by exception {vector}"),
            Self::NotLoaded(error) => write!(f, "not loaded: {error:?}"),
        }
    }
}
