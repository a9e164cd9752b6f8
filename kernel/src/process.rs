//! A process: one program, from its file to its end.

use core::fmt;

use crate::arch::serial::say;
use crate::arch::trap::{Trap, UserContext};
use crate::bringup;
use crate::calls::{self, Reply};
use crate::fault::{self, Access, Signal};
use crate::loader::{self, LoadError};
use crate::stack;

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

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with {status}"),
            Self::Faulted(Signal::MapError, _) => write!(f, "SIGSEGV (SEGV_MAPERR)"),
            Self::Faulted(Signal::AccessError, _) => write!(f, "SIGSEGV (SEGV_ACCERR)"),
            Self::Faulted(Signal::OutOfMemory, _) => write!(f, "killed: out of memory"),
            Self::Exception(vector) => write!(f, "killed by exception {vector}"),
            Self::NotLoaded(error) => write!(f, "not loaded: {error:?}"),
        }
    }
}

/// What a run left behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// How the program ended.
    pub(crate) ending: Ending,
    /// Frames still in use after its address space was freed: none, if nothing leaks.
    pub(crate) frames_left: u64,
}

/// Runs the program in `image` with `args` (the name first) to its end.
pub(crate) fn run(image: &[u8], args: &[&str]) -> Outcome {
    let ending = match start(image, args) {
        Ok(mut context) => live(&mut context),
        Err(error) => Ending::NotLoaded(error),
    };
    Outcome {
        ending,
        frames_left: bringup::leave(),
    }
}

/// Makes the address space and everything in it.
fn start(image: &[u8], args: &[&str]) -> Result<UserContext, LoadError> {
    bringup::enter()?;
    let entry = loader::load(image)?;
    let stack = stack::build(args, entry)?;
    Ok(UserContext::new(entry, stack))
}

/// Runs the program until it ends.
fn live(context: &mut UserContext) -> Ending {
    loop {
        match context.run() {
            Trap::Syscall(number, args) => match calls::call(number, args) {
                Reply::Return(value) => context.set_result(value),
                Reply::Exit(status) => return Ending::Exited(status),
            },
            Trap::PageFault(addr, access) => {
                if let Err(signal) = fault::resolve(addr, access) {
                    say!("fault at {addr:#x}, ip {:#x}, {access:?}", context.rip());
                    return Ending::Faulted(signal, access);
                }
            }
            Trap::Exception(vector, error) => {
                say!(
                    "exception {vector}, ip {:#x}, error code {error:#x}",
                    context.rip()
                );
                return Ending::Exception(vector);
            }
        }
    }
}
