//! Who is killed where memory is out. Linux: mm/oom_kill.c.

use minflt_sync::Ordering;

use super::process;
use crate::task::Task;

/// How much of a reason there is to kill the process whose first task is `task`: the thousandths of
/// all memory that it has, and what it, or whoever started it, has added to that.
pub(crate) fn score(task: &Task) -> i64 {
    let process = task.own.process();
    let Some(sys) = crate::system() else { return 0 };
    let (all, _) = sys.memory_pages();
    let resident = process.mm().map_or(0, |mm| mm.resident_pages_sum().max(0));
    let bias = i64::from(process.oom_bias().load(Ordering::Relaxed)) - 1000;
    resident * 1000 / (all.max(1) as i64) + bias
}

/// The process that is to be killed: the one with most reason, of those that may be.
#[expect(dead_code, reason = "the next step")]
pub(crate) fn victim() -> Option<&'static Task> {
    let may_be = |task: &&'static Task| task.own.process().oom_bias().load(Ordering::Relaxed) > 0;
    process::all().filter(may_be).max_by_key(|task| score(task))
}
