//! The program that the kernel starts: it runs to its end, and all others end with it.

use linux_raw_sys::general as abi;
use minflt_mm::{Errno, Mm, MmHandle, System};
use minflt_sync::{Machine, Ordering, TaskId};

use super::super::ending::Ending;
use super::super::signal::{self, For, Info};
use super::super::{Birth, Start};
use super::life::start;
use super::lookup::{all, number, of};
use super::wait::{Done, Reaped, What, Whom, look_for, reap};
use super::{Meanwhile, Outcome, Seen, family};
use crate::arch::serial::say;
use crate::fs::tty;
use crate::loader::LoadError;
use crate::machine::{self, Kernel};
use crate::sched;
use crate::shared::StaticWord;
use crate::stack::Args;
use crate::task::{self, State};

/// Ends all processes, whose threads wait for each other or for nothing; false if a thread sleeps
/// for another reason. Called on the only CPU when it has nothing to do, now or ever.
pub(crate) fn end_those_that_wait() -> bool {
    let asleep = || {
        task::threads().filter(|task| task.state() == State::Asleep && task.own.leader().is_some())
    };
    if asleep().any(|task| !task.own.waits()) || asleep().next().is_none() {
        return false;
    }
    say!("minflt: all threads wait, and none can be woken: their processes end");
    for task in asleep() {
        let process = of(task);
        family(|| {
            if process.ending.get().is_none() {
                process.ending.set(Some(Ending::Forgotten));
            }
        });
        process.dying.store(1, Ordering::Relaxed);
        sched::unpark(task);
    }
    true
}

/// Ends all processes, and waits until no thread is left. The caller is no thread of one.
fn end_all() {
    loop {
        let mut any = false;
        for task in task::threads() {
            if task.is_taken() {
                any = true;
                // It may end, and have none, right now.
                if let Some(leader) = task.own.leader() {
                    let process = leader.own.process();
                    process.dying.store(1, Ordering::Relaxed);
                    process.stopped.store(0, Ordering::Relaxed);
                    signal::alert(task);
                }
            }
        }
        if !any {
            return;
        }
        Kernel::pass();
    }
}

/// The number of the task that waits for the first program, and looks after alarms meanwhile; 0
/// where there is none.
static KEEPER: StaticWord = StaticWord::new(0);

/// Has the task that looks after alarms look again.
pub(crate) fn look_at_alarms() {
    if let Some(keeper) = task::find(TaskId(KEEPER.load(Ordering::Relaxed))) {
        sched::unpark(keeper);
    }
}

/// An alarm does not come more often.
const LEAST_NS: u64 = 1_000_000;

/// Waits for the first program to end; sends alarms and looks at the terminal meanwhile.
fn keep(whom: Whom) -> Result<Reaped, Errno> {
    let me = task::current();
    let watchers = &me.own.process().watchers;
    loop {
        watchers.watch();
        if let Some((task, done)) = family(|| look_for(me, whom, What::ENDED))? {
            return Ok(reap(me, task, done, What::ENDED));
        }
        let next = ring().into_iter().chain(tty::look()).min();
        sched::park_until(next);
        // An alarm that is due at once ends no sleep.
        sched::give_way();
    }
}

/// Sends the alarms whose time has come; when the next one does.
fn ring() -> Option<u64> {
    let now = machine::now_ns();
    let mut next: Option<u64> = None;
    for task in all() {
        let [at, every] = &task.own.process().alarm;
        let mut due = at.load(Ordering::Relaxed);
        if due != 0 && due <= now {
            let again = match every.load(Ordering::Relaxed) {
                0 => 0,
                every => now.saturating_add(every.max(LEAST_NS)),
            };
            // Else it was set anew meanwhile.
            if at
                .cas(due, again, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            {
                signal::send_at_once(For::Process(task), Info::plain(abi::SIGALRM));
                due = again;
            }
        }
        if due != 0 {
            next = Some(next.map_or(due, |next| next.min(due)));
        }
    }
    next
}

/// Runs the program that the first of `args` names to its end.
pub(crate) fn run(sys: &'static System<Kernel>, args: Args, meanwhile: Meanwhile) -> Outcome {
    let failed = |errno| Outcome {
        ending: Ending::NotLoaded(LoadError::Memory(errno)),
        unbalanced: None,
        seen: Seen::default(),
    };
    let mm = match sys.new_mm() {
        Ok(mm) => mm,
        Err(error) => return failed(Errno::from(error)),
    };
    let reaped = match run_in(&mm, args, meanwhile) {
        Ok(reaped) => reaped,
        Err(errno) => return failed(errno),
    };
    end_all();
    let here: [&Mm<Kernel>; 1] = [&mm];
    let left = sys.check_ledger(&here).err();
    drop(mm);
    Outcome {
        ending: match reaped.done {
            Done::Ended(ending) => ending,
            Done::Else(_) => Ending::Forgotten,
        },
        unbalanced: left.or_else(|| sys.check_ledger(&[]).err()),
        seen: reaped.seen,
    }
}

fn run_in(
    mm: &MmHandle<'static, Kernel>,
    args: Args,
    meanwhile: Meanwhile,
) -> Result<Reaped, Errno> {
    let birth = Birth {
        mm: mm.share(),
        start: Start::Program(args),
    };
    let task = start(birth, 0, 0, None, (meanwhile, abi::SIGCHLD))?;
    let whom = Whom::Number(number(task));
    KEEPER.store(task::current().id().0, Ordering::Relaxed);
    sched::start(task);
    let reaped = keep(whom);
    KEEPER.store(0, Ordering::Relaxed);
    reaped
}
