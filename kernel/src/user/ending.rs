//! How a program ends.

use core::fmt;

use linux_raw_sys::general as abi;
use minflt_mm::Signal as Fault;
use minflt_pgtable::Access;

use crate::loader::LoadError;
use crate::user::signal::Info;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// By itself, with a status.
    Exited(i32),
    /// By a page fault that could not be resolved.
    Faulted(Fault, Access),
    /// By another exception.
    Exception(u64),
    /// By a signal that was sent.
    Killed(u32),
    /// With all others, as each waited for another one.
    Forgotten,
    /// Before it began.
    NotLoaded(LoadError),
}

/// The names of signals by their numbers; those without one are real-time signals.
const NAMES: [&str; 32] = [
    "SIGRT",
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// A signal of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signal {
    /// Its number.
    number: u32,
    /// Its name.
    pub(crate) name: &'static str,
}

impl Signal {
    const ILL: Self = Self::numbered(abi::SIGILL);
    const TRAP: Self = Self::numbered(abi::SIGTRAP);
    const BUS: Self = Self::numbered(abi::SIGBUS);
    const FPE: Self = Self::numbered(abi::SIGFPE);
    const KILL: Self = Self::numbered(abi::SIGKILL);
    const SEGV: Self = Self::numbered(abi::SIGSEGV);

    const fn numbered(number: u32) -> Self {
        Self {
            number,
            name: NAMES[if number < NAMES.len() as u32 {
                number as usize
            } else {
                0
            }],
        }
    }
}

impl Ending {
    /// The signal that ends a program so; SIGKILL where Linux would not have begun it. Of
    /// exceptions, Linux: arch/x86/kernel/traps.c (v6.12).
    pub(crate) const fn signal(self) -> Signal {
        match self {
            Self::Faulted(Fault::MapErr | Fault::AccErr, _) => Signal::SEGV,
            Self::Faulted(Fault::Bus | Fault::Misaligned, _) => Signal::BUS,
            Self::Killed(number) => Signal::numbered(number),
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

    /// What the signal of a fault or an exception tells, whose address is `addr`; `None` where no
    /// handler can help. Linux: arch/x86/kernel/traps.c, mm/fault.c.
    pub(crate) fn info(self, addr: u64) -> Option<Info> {
        /// `SEGV_MAPERR`, `SEGV_ACCERR`; `BUS_ADRALN`, `BUS_ADRERR`.
        const NOTHING_THERE: i32 = 1;
        const FORBIDDEN: i32 = 2;
        /// `ILL_ILLOPN`, `FPE_INTDIV`, `FPE_FLTINV`, `TRAP_TRACE`.
        const OPERAND: i32 = 2;
        const BY_ZERO: i32 = 1;
        const INVALID: i32 = 7;
        const TRACE: i32 = 2;
        let number = self.signal().number;
        let code = match self {
            Self::Faulted(Fault::MapErr | Fault::Misaligned, _) => NOTHING_THERE,
            Self::Faulted(Fault::AccErr | Fault::Bus, _) => FORBIDDEN,
            Self::Exception(0) => BY_ZERO,
            Self::Exception(1) => TRACE,
            Self::Exception(6) => OPERAND,
            Self::Exception(16 | 19) => INVALID,
            Self::Exception(17) => NOTHING_THERE,
            Self::Exception(_) => return Some(Info::plain(number)),
            _ => return None,
        };
        Some(Info::at(number, code, addr))
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
            Self::Killed(number) => write!(f, "killed by {}", Signal::numbered(*number).name),
            Self::Forgotten => write!(f, "killed: all waited"),
            Self::NotLoaded(error) => write!(f, "not loaded: {error:?}"),
        }
    }
}
