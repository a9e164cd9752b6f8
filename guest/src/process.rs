//! Processes: fork, exec, the end of a child.

use core::ffi::CStr;
use core::fmt;

use crate::sys::call;
use crate::{Args, Errno, Sys};

const FORK: u64 = 57;
const EXECVE: u64 = 59;
const WAIT4: u64 = 61;
const MKDIR: u64 = 83;
const GETRUSAGE: u64 = 98;
const SETSID: u64 = 112;
const MOUNT: u64 = 165;
const REBOOT: u64 = 169;

const REBOOT_MAGIC: [u64; 2] = [0xfee1_dead, 0x2812_1969];
const REBOOT_POWER_OFF: u64 = 0x4321_fedc;

/// What the minflt kernel's own programs find in their environment.
const ENVIRONMENT: [&CStr; 3] = [
    c"HOME=/",
    c"TERM=linux",
    c"PATH=/sbin:/usr/sbin:/bin:/usr/bin",
];

/// Which side of a fork this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new process.
    Child,
    /// The caller, and the number of its child.
    Parent(u64),
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with a status.
    Exited(u64),
    /// By a signal.
    Signalled(u64),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit {status}"),
            Self::Signalled(number) => match signal_name(*number) {
                Some(name) => write!(f, "signal {name}"),
                None => write!(f, "signal {number}"),
            },
        }
    }
}

/// What the kernel counted of a process that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Faults without I/O.
    pub minor_faults: u64,
    /// Faults with I/O.
    pub major_faults: u64,
}

/// What is done with processes.
#[derive(Clone, Copy, Debug)]
pub struct Process;

impl Process {
    /// Makes a copy of this process, in which the calling thread goes on alone.
    pub fn fork() -> Result<Forked, Errno> {
        // SAFETY: (1) the child gets memory of its own, so neither sees a change of the other.
        let child = unsafe { call(FORK, [0; 6]) }?;
        Ok(match child {
            0 => Forked::Child,
            child => Forked::Parent(child),
        })
    }

    /// Waits until a child has ended: the one of that number, or any.
    pub fn wait(child: Option<u64>) -> Result<(u64, Ended, Usage), Errno> {
        // `struct rusage`: two times of two words each, then 14 words.
        let mut status = 0_u32;
        let mut usage = [0_u64; 18];
        let status_at = (&raw mut status).expose_provenance() as u64;
        let usage_at = (&raw mut usage).expose_provenance() as u64;
        let which = child.unwrap_or(u64::MAX);
        // SAFETY: (1) the kernel stores into `status` and `usage`, which are exposed.
        let ended = unsafe { call(WAIT4, [which, status_at, 0, usage_at, 0, 0]) }?;
        // SAFETY: (1) it lives, and is read once the kernel has stored it.
        let status = unsafe { (&raw const status).read_volatile() };
        // SAFETY: (1) as above.
        let usage = unsafe { (&raw const usage).read_volatile() };
        let how = match u64::from(status) & 0x7f {
            0 => Ended::Exited(u64::from(status) >> 8 & 0xff),
            signal => Ended::Signalled(signal),
        };
        let usage = Usage {
            minor_faults: usage[8],
            major_faults: usage[9],
        };
        Ok((ended, how, usage))
    }

    /// Faults without I/O of this process so far.
    pub fn minor_faults() -> Result<u64, Errno> {
        // `struct rusage`, as above.
        let mut usage = [0_u64; 18];
        let at = (&raw mut usage).expose_provenance() as u64;
        // SAFETY: (1) the kernel stores into `usage`, which is exposed.
        unsafe { call(GETRUSAGE, [0, at, 0, 0, 0, 0]) }?;
        // SAFETY: (1) it lives, and is read once the kernel has stored it.
        Ok(unsafe { (&raw const usage).read_volatile() }[8])
    }

    /// Mounts a file system of that kind over a folder.
    pub fn mount(kind: &CStr, folder: &CStr) -> Result<(), Errno> {
        let kind = kind.as_ptr().expose_provenance() as u64;
        let folder = folder.as_ptr().expose_provenance() as u64;
        // SAFETY: (1) the kernel reads two strings that end in a zero byte.
        unsafe { call(MOUNT, [kind, folder, kind, 0, 0, 0]) }.map(drop)
    }

    /// Makes a folder that all may use.
    pub fn make_folder(path: &CStr) -> Result<(), Errno> {
        let path = path.as_ptr().expose_provenance() as u64;
        // SAFETY: (1) the kernel reads a string that ends in a zero byte.
        unsafe { call(MKDIR, [path, 0o777, 0, 0, 0, 0]) }.map(drop)
    }

    /// Begins a session.
    pub fn begin_session() -> Result<(), Errno> {
        // SAFETY: (1) it touches no memory.
        unsafe { call(SETSID, [0; 6]) }.map(drop)
    }

    /// Becomes the program that argument `first` names, with the arguments from there on and the
    /// environment that the minflt kernel gives. Returns only if that fails.
    pub fn exec(args: Args, first: usize) -> Errno {
        let (Some(path), Some(argv)) = (args.get(first), args.addr(first)) else {
            return Errno::EINVAL;
        };
        let strings = ENVIRONMENT.map(|string| string.as_ptr().expose_provenance() as u64);
        let environment = [strings[0], strings[1], strings[2], 0];
        let environment = (&raw const environment).expose_provenance() as u64;
        let path = path.as_ptr().expose_provenance() as u64;
        // SAFETY: (1) it replaces the program, or fails and changes nothing; an argument ends in a
        // zero byte, and the list of them in a zero word.
        match unsafe { call(EXECVE, [path, argv, environment, 0, 0, 0]) } {
            Ok(_) => Errno::EINVAL,
            Err(error) => error,
        }
    }

    /// Switches the machine off; only root can. Returns if that fails.
    pub fn power_off() -> Errno {
        let [first, second] = REBOOT_MAGIC;
        // SAFETY: (1) it ends everything, or changes nothing.
        match unsafe { call(REBOOT, [first, second, REBOOT_POWER_OFF, 0, 0, 0]) } {
            Ok(_) => Errno::EINVAL,
            Err(error) => error,
        }
    }

    /// Starts a child that calls `work` and exits with what that returns; waits for its end.
    pub fn child(work: impl FnOnce() -> i32) -> Result<Ended, Errno> {
        match Self::fork()? {
            Forked::Child => Sys::exit(work()),
            Forked::Parent(child) => Self::wait(Some(child)).map(|(_, ended, _)| ended),
        }
    }
}

/// The name of a signal that ends programs.
const fn signal_name(number: u64) -> Option<&'static str> {
    Some(match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}
