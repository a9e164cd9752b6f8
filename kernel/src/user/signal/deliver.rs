//! What a thread does about the signals that are to come, on its way back to the program.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use super::{Action, DEFAULT, For, IGNORE, Info, Set, frame, send, take_next};
use crate::arch::trap::UserContext;
use crate::linux;
use crate::task;
use crate::user::ending::Ending;
use crate::user::process::{self, Process};

/// A call that a signal has ended early, and how it begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The call's number.
    pub(crate) number: u64,
    /// What it would return.
    pub(crate) how: Errno,
}

/// `restart_syscall`, which goes on with a call that knows how.
const RESTART: u64 = 219;
/// Bytes of the instruction that makes a call.
const SYSCALL_BYTES: u64 = 2;

/// Handles all that is to come and is not held back; how the process ends, if it does by that.
pub(crate) fn deliver(
    process: &Process,
    context: &mut UserContext,
    cut: Option<Cut>,
) -> Option<Ending> {
    let own = task::current().own.signals();
    let mut cut = cut;
    loop {
        // ORDERING: SeqCst; pairs with [kernel-signal].
        own.attention.swap(0, minflt_sync::Ordering::SeqCst);
        if process.is_dying() {
            return None;
        }
        if process.stays_stopped() {
            continue;
        }
        let continues = process.continues();
        let Some(info) = take_next() else { break };
        let number = info.number;
        let action = process.signals().action(number);
        match action.handler {
            IGNORE => {}
            DEFAULT if Set::QUIET.has(number) => {}
            DEFAULT if Set::STOPS.has(number) => {
                // What a terminal sends is nothing to those that no shell would wake again.
                if number == abi::SIGSTOP || !process::is_orphaned(process) {
                    process.stop(number, continues);
                }
            }
            DEFAULT => return Some(Ending::Killed(number)),
            _ => {
                if let Some(cut) = cut.take() {
                    end_call(context, cut, action);
                }
                if let Err(ending) = handle(process, context, action, info) {
                    return Some(ending);
                }
            }
        }
    }
    if let Some(cut) = cut {
        again(context, cut);
    }
    if let Some(mask) = own.take_saved() {
        own.set_mask(mask);
    }
    None
}

/// The call returns, or begins again after the handler.
fn end_call(context: &mut UserContext, cut: Cut, action: Action) {
    let restarts = action.flags & u64::from(abi::SA_RESTART) != 0;
    if cut.how == linux::RESTART_ALWAYS || cut.how == linux::RESTART_IF_ASKED && restarts {
        context.repeat_call(cut.number, SYSCALL_BYTES);
    } else {
        context.set_result(linux::failed(linux::EINTR));
    }
}

/// The call begins again: nothing was handled.
fn again(context: &mut UserContext, cut: Cut) {
    let number = if cut.how == linux::RESTART_KNOWN {
        RESTART
    } else {
        cut.number
    };
    context.repeat_call(number, SYSCALL_BYTES);
}

/// Has the program go on in its handler.
fn handle(
    process: &Process,
    context: &mut UserContext,
    action: Action,
    info: Info,
) -> Result<(), Ending> {
    let own = task::current().own.signals();
    let mask = own.mask();
    let before = own.take_saved().unwrap_or(mask);
    let has_restorer = action.flags & u64::from(abi::SA_RESTORER) != 0;
    if !has_restorer || frame::push(context, action, info, before).is_err() {
        return Err(Ending::Killed(abi::SIGSEGV));
    }
    let mut held = mask.with(action.mask);
    if action.flags & u64::from(abi::SA_NODEFER) == 0 {
        held = held.with(Set::one(info.number));
    }
    if action.flags & u64::from(abi::SA_RESETHAND) != 0 {
        let _before = process.signals().set_action(
            process,
            info.number,
            Action {
                handler: DEFAULT,
                ..action
            },
        );
    }
    own.set_mask(held);
    Ok(())
}

/// The program's own instruction raises a signal, which cannot be held back or ignored: the thread
/// is to handle it next. How the process ends, if it does by that.
pub(crate) fn force(process: &Process, info: Info, otherwise: Ending) -> Option<Ending> {
    let me = task::current();
    let own = me.own.signals();
    let action = process.signals().action(info.number);
    if matches!(action.handler, DEFAULT | IGNORE) || own.mask().has(info.number) {
        return Some(otherwise);
    }
    match send(For::Thread(me), info) {
        Ok(()) => None,
        Err(_) => Some(otherwise),
    }
}

/// Goes back from a handler, as `rt_sigreturn`. How the process ends, if there is no frame.
pub(crate) fn return_from_handler(context: &mut UserContext) -> Result<(), Ending> {
    match frame::pop(context) {
        Ok(mask) => {
            task::current().own.signals().set_mask(mask);
            Ok(())
        }
        Err(_) => Err(Ending::Killed(abi::SIGSEGV)),
    }
}
