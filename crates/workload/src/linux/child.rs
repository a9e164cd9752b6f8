//! The forked child: starts workers, runs bodies, publishes results, exits.

use super::area::{Area, Failure};
use super::sys;
use super::sys::process::Exit;
use super::worker::LinuxWorker;
use crate::target::{Inherited, Stop};
use core::any::Any;
use core::panic::AssertUnwindSafe;
use minflt_addr::VirtAddr;
use std::os::fd::OwnedFd;
use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::Once;
use std::thread::Builder;

/// Bytes of a thread's stack; little, so that a plan may have thousands of threads.
const STACK: usize = 256 << 10;
/// The child's exit code once it noted a failure.
pub(super) const FAILED: i32 = 1;

/// What the child is to run.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub(super) area: &'a Area,
    pub(super) threads: u32,
    pub(super) page_size: u64,
    /// The file that all workers have in common, and its length.
    pub(super) file: Option<(u64, &'a OwnedFd)>,
    /// That of huge pages.
    pub(super) huge: Option<(u64, &'a OwnedFd)>,
    /// The memory that the workers are to find mapped.
    pub(super) inherits: Option<Inherited>,
    /// The CPUs that the workers are bound to in turn; none, to leave them alone.
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

/// Returns where the memory is that the workers inherit.
fn prepare(job: &Job<'_>) -> Option<VirtAddr> {
    sys::process::die_with_parent();
    if let Err(errno) = sys::process::no_huge_pages() {
        leave(job.area, 0, &Failure::HugePages(errno));
    }
    let Inherited {
        bytes,
        pages,
        populate,
    } = job.inherits?;
    match sys::memory::map_private(bytes, pages, populate) {
        Ok(at) => Some(VirtAddr(at)),
        Err(errno) => leave(job.area, 0, &Failure::Stop(Stop::Errno(errno))),
    }
}

/// Runs the job in threads of the child and returns its exit code; a failure leaves the process at
/// once.
pub(super) fn threads<F>(job: &Job<'_>, body: &F) -> i32
where
    F: for<'w> Fn(&mut LinuxWorker<'w>) -> Result<(), Stop> + Sync,
{
    let inherited = prepare(job);
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(job.threads as usize);
        for index in 0..job.threads {
            let thread = Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || {
                    if let Err(failure) = work(job, inherited, index, body) {
                        leave(job.area, index, &failure);
                    }
                });
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

/// Runs the job in children of the child and returns its exit code; a failure of one ends the
/// others.
pub(super) fn processes<F>(job: &Job<'_>, body: &F) -> i32
where
    F: for<'w> Fn(&mut LinuxWorker<'w>) -> Result<(), Stop> + Sync,
{
    let inherited = prepare(job);
    let mut running = Vec::with_capacity(job.threads as usize);
    for index in 0..job.threads {
        match sys::process::fork(|| process(job, inherited, index, body)) {
            Ok(pid) => running.push((pid, index)),
            Err(errno) => {
                let _first = job.area.fail(index, &Failure::Process(errno));
                return end(&running);
            }
        }
    }
    while let Ok((pid, ended)) = sys::process::wait_any() {
        let Some(at) = running.iter().position(|(running, _)| *running == pid) else {
            continue;
        };
        let (_, index) = running.swap_remove(at);
        match ended.exit {
            Exit::Code(0) => {}
            // The worker has said why.
            Exit::Code(_) => return end(&running),
            Exit::Signal(signal) => {
                let _first = job.area.fail(index, &Failure::Killed(signal));
                return end(&running);
            }
        }
    }
    if running.is_empty() { 0 } else { FAILED }
}

/// Ends the workers that still run.
fn end(running: &[(libc::pid_t, u32)]) -> i32 {
    for (pid, _) in running {
        sys::process::kill(*pid);
    }
    for (pid, _) in running {
        let _ended = sys::process::wait(*pid);
    }
    FAILED
}

/// A worker that is a process; returns its exit code.
fn process<F>(job: &Job<'_>, inherited: Option<VirtAddr>, index: u32, body: &F) -> i32
where
    F: for<'w> Fn(&mut LinuxWorker<'w>) -> Result<(), Stop> + Sync,
{
    sys::process::die_with_parent();
    match work(job, inherited, index, body) {
        Ok(()) => 0,
        Err(failure) => {
            let _first = job.area.fail(index, &failure);
            FAILED
        }
    }
}

fn work<F>(job: &Job<'_>, inherited: Option<VirtAddr>, index: u32, body: &F) -> Result<(), Failure>
where
    F: for<'w> Fn(&mut LinuxWorker<'w>) -> Result<(), Stop> + Sync,
{
    let turn = (index as usize).checked_rem(job.pins.len());
    if let Some(&cpu) = turn.and_then(|turn| job.pins.get(turn))
        && sys::process::pin(cpu).is_ok()
    {
        job.area.add_pinned();
    }
    let mut worker = LinuxWorker::new(job, inherited, index);
    outcome(|| body(&mut worker))?;
    worker.publish();
    Ok(())
}

/// What a body came to.
pub(super) fn outcome(body: impl FnOnce() -> Result<(), Stop>) -> Result<(), Failure> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(done) => done.map_err(Failure::Stop),
        Err(payload) => Err(Failure::Panic(panic_words(payload.as_ref()).to_owned())),
    }
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
