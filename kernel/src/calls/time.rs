//! Clocks, sleeping and the alarm. All clocks but the real-time ones are one: time since the
//! machine's reset. Those add when that was, by the machine's clock of dates.

use minflt_mm::Errno;
use minflt_sync::Ordering;

use crate::arch::uaccess;
use crate::linux::{EFAULT, EINVAL, RESTART_IF_QUIET, RESTART_KNOWN};
use crate::machine;
use crate::task;
use crate::user::process::{self, Process};
use crate::watch::{self, Ended};

/// `CLOCK_REALTIME`.
const REALTIME: u64 = 0;
/// `CLOCK_MONOTONIC`.
const MONOTONIC: u64 = 1;
/// `CLOCK_PROCESS_CPUTIME_ID`, `CLOCK_THREAD_CPUTIME_ID`.
const OF_PROCESS: u64 = 2;
const OF_THREAD: u64 = 3;
/// `CLOCK_MONOTONIC_RAW`, `CLOCK_REALTIME_COARSE`, `CLOCK_MONOTONIC_COARSE`, `CLOCK_BOOTTIME`.
const OTHERS: [u64; 4] = [4, REALTIME_COARSE, 6, 7];
const REALTIME_COARSE: u64 = 5;

const NS: u64 = 1_000_000_000;

/// Nanoseconds of the `struct timespec` at `at`.
pub(super) fn read(at: u64) -> Result<u64, Errno> {
    let seconds = uaccess::load(at)?;
    let ns = uaccess::load(at.checked_add(8).ok_or(EFAULT)?)?;
    if seconds >> 63 != 0 || ns >= NS {
        return Err(EINVAL);
    }
    // Later than there will be a clock for is for ever.
    Ok(seconds.saturating_mul(NS).saturating_add(ns))
}

fn write(at: u64, ns: u64) -> Result<(), Errno> {
    uaccess::store(at, ns / NS)?;
    uaccess::store(at.checked_add(8).ok_or(EFAULT)?, ns % NS)
}

/// What a clock shows.
fn now(clock: u64) -> Result<u64, Errno> {
    match clock {
        REALTIME | REALTIME_COARSE => Ok(machine::real_ns()),
        OF_PROCESS => Ok(process::usage_of_process().ns),
        OF_THREAD => Ok(process::usage_of_thread().ns),
        MONOTONIC => Ok(machine::now_ns()),
        clock if OTHERS.contains(&clock) => Ok(machine::now_ns()),
        _ => Err(EINVAL),
    }
}

/// Nanoseconds of the `struct timeval` at `at`.
pub(super) fn read_micro(at: u64) -> Result<u64, Errno> {
    let seconds = uaccess::load(at)?;
    let micro = uaccess::load(at.checked_add(8).ok_or(EFAULT)?)?;
    if seconds >> 63 != 0 || micro >= 1_000_000 {
        return Err(EINVAL);
    }
    Ok(seconds.saturating_mul(NS).saturating_add(micro * 1000))
}

/// Stores a `struct timeval`.
pub(super) fn write_micro(at: u64, ns: u64) -> Result<(), Errno> {
    uaccess::store(at, ns / NS)?;
    uaccess::store(at.checked_add(8).ok_or(EFAULT)?, ns % NS / 1000)
}

pub(super) fn clock_gettime(clock: u64, at: u64) -> Result<u64, Errno> {
    write(at, now(clock)?)?;
    Ok(0)
}

pub(super) fn clock_getres(clock: u64, at: u64) -> Result<u64, Errno> {
    now(clock)?;
    if at != 0 {
        write(at, 1)?;
    }
    Ok(0)
}

/// The time zone is none: it is all zeros where it is asked for.
pub(super) fn gettimeofday(at: u64, zone: u64) -> Result<u64, Errno> {
    if at != 0 {
        write_micro(at, machine::real_ns())?;
    }
    if zone != 0 {
        uaccess::store(zone, 0)?;
    }
    Ok(0)
}

pub(super) fn time(at: u64) -> Result<u64, Errno> {
    let seconds = machine::real_ns() / NS;
    if at != 0 {
        uaccess::store(at, seconds)?;
    }
    Ok(seconds)
}

pub(super) fn nanosleep(time: u64, left: u64) -> Result<u64, Errno> {
    clock_nanosleep(MONOTONIC, 0, time, left)
}

/// Sleeps for the time at `time`, or until it (`TIMER_ABSTIME`). What is left when a signal comes
/// is stored at `left`, unless that is 0.
pub(super) fn clock_nanosleep(clock: u64, flags: u64, time: u64, left: u64) -> Result<u64, Errno> {
    const ABSOLUTE: u64 = 1;
    let shows = now(clock)?;
    if flags & !ABSOLUTE != 0 || clock == OF_THREAD {
        return Err(EINVAL);
    }
    let time = read(time)?;
    let begin = machine::now_ns();
    let deadline = if flags == ABSOLUTE {
        begin.saturating_add(time.saturating_sub(shows))
    } else {
        begin.saturating_add(time)
    };
    match sleep(deadline) {
        Ended::Late => Ok(0),
        Ended::Interrupted if flags == ABSOLUTE => Err(RESTART_IF_QUIET),
        Ended::Interrupted => {
            task::current().own.restart().set((deadline, left));
            tell_left(deadline, left)?;
            Err(RESTART_KNOWN)
        }
    }
}

fn tell_left(deadline: u64, left: u64) -> Result<(), Errno> {
    if left != 0 {
        write(left, deadline.saturating_sub(machine::now_ns()))?;
    }
    Ok(())
}

fn sleep(deadline: u64) -> Ended {
    let found: Result<(), Ended> = watch::wait(Some(deadline), || None);
    match found {
        Ok(()) => Ended::Late,
        Err(ended) => ended,
    }
}

/// Goes on with the sleep that a signal has interrupted which no handler was for.
pub(super) fn restart() -> Result<u64, Errno> {
    let (deadline, left) = task::current().own.restart().get();
    match sleep(deadline) {
        Ended::Late => Ok(0),
        Ended::Interrupted => {
            tell_left(deadline, left)?;
            Err(RESTART_KNOWN)
        }
    }
}

/// What is left until a process's alarm, and how often it comes then.
pub(super) fn alarm_of(process: &Process) -> (u64, u64) {
    let [at, every] = process.alarm();
    let at = at.load(Ordering::Relaxed);
    let left = if at == 0 {
        0
    } else {
        // It is to come, however late it is.
        at.saturating_sub(machine::now_ns()).max(1)
    };
    (left, every.load(Ordering::Relaxed))
}

/// Sets both; 0 is never. What they were.
pub(super) fn set_alarm(process: &Process, after: u64, every: u64) -> (u64, u64) {
    let before = alarm_of(process);
    let at = match after {
        0 => 0,
        after => machine::now_ns().saturating_add(after),
    };
    process.alarm()[1].store(every, Ordering::Relaxed);
    process.alarm()[0].store(at, Ordering::Relaxed);
    if at != 0 {
        process::look_at_alarms();
    }
    before
}
