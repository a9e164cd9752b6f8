//! How a program ends.

use core::fmt;

use minflt_mm::Signal as Fault;
use minflt_pgtable::Access;

use crate::loader::LoadError;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with a status.
    Exited(i32),
    /// By a page fault that could not be resolved.
    Faulted(Fault, Access),
    /// By another exception.
    Exception(u64),
    /// With all others, as each waited for another one.
    Forgotten,
    /// Before it began.
    NotLoaded(LoadError),
}

/// A signal of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    /// Its number.
    number: u32,
    /// Its name.
    pub(crate) name: &'static str,
}

impl Signal {
    const ILL: Self = Self::new(4, "SIGILL");
    const TRAP: Self = Self::new(5, "SIGTRAP");
    const BUS: Self = Self::new(7, "SIGBUS");
    const FPE: Self = Self::new(8, "SIGFPE");
    const KILL: Self = Self::new(9, "SIGKILL");
    const SEGV: Self = Self::new(11, "SIGSEGV");

    const fn new(number: u32, name: &'static str) -> Self {
        Self { number, name }
    }
}

impl Ending {
    /// The signal that ends a program so; SIGKILL where Linux would not have begun it. Of
    /// exceptions, Linux: arch/x86/kernel/traps.c (v6.12).
    pub(crate) const fn signal(self) -> Signal {
        match self {
            Self::Faulted(Fault::MapErr | Fault::AccErr, _) => Signal::SEGV,
            Self::Faulted(Fault::Bus | Fault::Misaligned, _) => Signal::BUS,
            Self::Faulted(Fault::OutOfMemory, _)
            | Self::Forgotten
            | Self::NotLoaded(_)
            | Self::Exited(_) => Signal::KILL,
            Self::Exception(vector) => match vector {
                0 | 16 | 19 => Signal::FPE,
                1 | 3 => Signal::TRAP,
                6 => Signal::ILL,
                11 | 12 | 17 => Signal::BUS,
                _ => Signal::SEGV,
            },
        }
    }

    /// What a parent's `wait4` is told: a status in the second byte, or a signal's number in the
    /// first.
    pub(crate) const fn wait_status(self) -> u32 {
        match self {
            Self::Exited(status) => (status as u32 & 0xff) << 8,
            _ => self.signal().number,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with {status}"),
            Self::Faulted(Fault::MapErr, _) => write!(f, "SIGSEGV (SEGV_MAPERR)"),
            Self::Faulted(Fault::AccErr, _) => write!(f, "SIGSEGV (SEGV_ACCERR)"),
            Self::Faulted(Fault::Bus, _) => write!(f, "SIGBUS (BUS_ADRERR)"),
            Self::Faulted(Fault::Misaligned, _) => write!(f, "SIGBUS (BUS_ADRALN)"),
            Self::Faulted(Fault::OutOfMemory, _) => write!(f, "killed: out of memory"),
            Self::Exception(vector) => write!(f, "killed by exception {vector}"),
            Self::Forgotten => write!(f, "killed: all waited"),
            Self::NotLoaded(error) => write!(f, "not loaded: {error:?}"),
        }
    }
}
