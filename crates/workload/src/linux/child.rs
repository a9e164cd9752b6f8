//! What the forked child does: start the threads, run the bodies, publish, leave.

use super::area::{Area, Failure};
use super::sys;
use super::worker::LinuxWorker;
use crate::target::Stop;
use core::any::Any;
use core::panic::AssertUnwindSafe;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::{Barrier, Once};
use std::thread::Builder;

/// Bytes of a thread's stack; little, so that a plan may have thousands of threads.
const STACK: usize = 256 << 10;
/// The child's exit code once it noted a failure.
const FAILED: i32 = 1;

/// What the child is to run.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) area: &'a Area,
    pub(super) threads: u32,
    pub(super) page_size: u64,
    /// The CPUs that the threads are bound to in turn; none, to leave them alone.
    pub(super) pins: &'a [usize],
}

/// Wraps the panic hook of this program, once, by one that says nothing in children: printing takes
/// locks that another thread of the parent may have held at the fork. (So does setting a hook, so
/// the child cannot do it for itself; calling one only reads.)
pub(super) fn silence_panics() {
    static WRAPPED: Once = Once::new();
    WRAPPED.call_once(|| {
        let parent = std::process::id();
        let hook = take_hook();
        set_hook(Box::new(move |info| {
            if std::process::id() == parent {
                hook(info);
            }
        }));
    });
}

/// Runs the job in the child and returns its exit code; a failure leaves the process at once.
pub(super) fn run<F>(job: &Job<'_>, body: &F) -> i32
where
    F: for<'w> Fn(&mut LinuxWorker<'w>) -> Result<(), Stop> + Sync,
{
    sys::process::die_with_parent();
    if let Err(errno) = sys::process::no_huge_pages() {
        leave(job.area, 0, &Failure::HugePages(errno));
    }
    // Made here: a barrier that the parent made would be a copy, too, but with the parent's state.
    let barrier = Barrier::new(job.threads as usize);
    let barrier = &barrier;
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(job.threads as usize);
        for index in 0..job.threads {
            let thread = Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || thread(job, index, barrier, body));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or(0);
                    leave(job.area, index, &Failure::Thread(errno));
                }
            }
        }
        let joined = threads.into_iter().all(|thread| thread.join().is_ok());
        if joined { 0 } else { FAILED }
    })
}

fn thread<F>(job: &Job<'_>, index: u32, barrier: &Barrier, body: &F)
where
    F: for<'w> Fn(&mut LinuxWorker<'w>) -> Result<(), Stop> + Sync,
{
    let turn = (index as usize).checked_rem(job.pins.len());
    if let Some(&cpu) = turn.and_then(|turn| job.pins.get(turn))
        && sys::process::pin(cpu).is_ok()
    {
        job.area.add_pinned();
    }
    let mut worker = LinuxWorker::new(job, index, barrier);
    let failure = match catch_unwind(AssertUnwindSafe(|| body(&mut worker))) {
        Ok(Ok(())) => return worker.publish(),
        Ok(Err(stop)) => Failure::Stop(stop),
        Err(payload) => Failure::Panic(panic_words(payload.as_ref()).to_owned()),
    };
    leave(job.area, index, &failure);
}

fn panic_words(payload: &(dyn Any + Send)) -> &str {
    if let Some(words) = payload.downcast_ref::<&str>() {
        words
    } else if let Some(words) = payload.downcast_ref::<String>() {
        words
    } else {
        "without words"
    }
}

/// Notes the failure and ends the process, whatever its other threads wait for.
fn leave(area: &Area, thread: u32, failure: &Failure) -> ! {
    if area.fail(thread, failure) {
        sys::process::exit(FAILED);
    }
    // Another thread is about to end the process; it must be able to write its words first.
    loop {
        std::thread::park();
    }
}
