//! A process: one program, from its file to its end.

use core::fmt;

use minflt_mm::{Errno, Mm, Signal, System, Unbalanced};
use minflt_pgtable::Access;

use crate::arch::serial::say;
use crate::arch::trap::{Trap, UserContext};
use crate::calls::{self, Reply};
use crate::loader::{self, LoadError};
use crate::machine::Kernel;
use crate::space::Space;
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

/// What the kernel does to a program while it runs, which the program must not notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// Nothing.
    Nothing,
    /// After each system call it clears every accessed bit, for the CPU to set again.
    Age,
    /// Whenever the program goes on after a call or a fault, it is interrupted at once.
    Interrupt,
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// How the program ended.
    pub(crate) ending: Ending,
    /// What does not add up, in the address space as the program left it or after it was gone.
    pub(crate) unbalanced: Option<Unbalanced>,
    /// What was seen while it ran.
    pub(crate) seen: Seen,
}

/// What the kernel counts while a program runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Accessed bits that were found set by [`Meanwhile::Age`].
    pub(crate) young: u64,
    /// Calls and faults of the program, the one that ended it included.
    pub(crate) traps: u64,
    /// Interrupts that came while it ran, and not the kernel for it.
    pub(crate) interrupts: u64,
}

/// Runs the program in `image` with `args` (the name first) to its end.
pub(crate) fn run(
    sys: &System<Kernel>,
    image: &[u8],
    args: &[&str],
    meanwhile: Meanwhile,
) -> Outcome {
    let mut seen = Seen::default();
    let (ending, left) = match sys.new_mm() {
        Ok(mm) => {
            let ending = in_space(&mm, |space| match start(space, image, args) {
                Ok(mut context) => live(space, &mut context, meanwhile, &mut seen),
                Err(error) => Ending::NotLoaded(error),
            });
            (ending, sys.check_ledger(&[&mm]).err())
        }
        Err(error) => (
            Ending::NotLoaded(LoadError::Memory(Errno::from(error))),
            None,
        ),
    };
    Outcome {
        ending,
        unbalanced: left.or_else(|| sys.check_ledger(&[]).err()),
        seen,
    }
}

/// Runs `work` as the thread of `mm`, which is no longer active afterwards.
fn in_space<R>(mm: &Mm<Kernel>, work: impl FnOnce(&Space<'_>) -> R) -> R {
    let thread = mm.thread();
    let space = Space::new(&thread);
    space.enter(|| work(&space))
}

/// Makes what is in the address space.
fn start(space: &Space<'_>, image: &[u8], args: &[&str]) -> Result<UserContext, LoadError> {
    let entry = loader::load(space, image)?;
    let stack = stack::build(space.mm(), args, entry)?;
    Ok(UserContext::new(entry, stack))
}

/// Runs the program until it ends.
fn live(
    space: &Space<'_>,
    context: &mut UserContext,
    meanwhile: Meanwhile,
    seen: &mut Seen,
) -> Ending {
    let mut interrupted = false;
    loop {
        let trap = if meanwhile == Meanwhile::Interrupt && !interrupted {
            context.run_interrupted()
        } else {
            context.run()
        };
        interrupted = matches!(trap, Trap::Interrupt);
        seen.interrupts += u64::from(interrupted);
        seen.traps += u64::from(!interrupted);
        match trap {
            Trap::Syscall(number, args) => {
                match calls::call(space.mm(), number, args) {
                    Reply::Return(value) => context.set_result(value),
                    Reply::Exit(status) => return Ending::Exited(status),
                }
                if meanwhile == Meanwhile::Age {
                    seen.young += space.mm().age(Mm::<Kernel>::user_range());
                }
            }
            Trap::PageFault(addr, access) => {
                if let Err(signal) = space.fault(addr, access) {
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
            Trap::Interrupt => {}
        }
    }
}
