//! Clocks and sleeping. All clocks are one: time since the machine's reset. There is no wall clock,
//! so that the real-time one begins in 1970 with it.

use minflt_mm::Errno;

use super::Caller;
use crate::arch::uaccess;
use crate::linux::{EFAULT, EINTR, EINVAL};
use crate::machine;
use crate::user;

/// `CLOCK_REALTIME`.
const REALTIME: u64 = 0;
/// `CLOCK_MONOTONIC`.
const MONOTONIC: u64 = 1;
/// `CLOCK_MONOTONIC_RAW`, the two coarse ones, and `CLOCK_BOOTTIME`.
const OTHERS: [u64; 4] = [4, 5, 6, 7];

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

fn check(clock: u64) -> Result<(), Errno> {
    if matches!(clock, REALTIME | MONOTONIC) || OTHERS.contains(&clock) {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

pub(super) fn clock_gettime(clock: u64, at: u64) -> Result<u64, Errno> {
    check(clock)?;
    write(at, machine::now_ns())?;
    Ok(0)
}

pub(super) fn clock_getres(clock: u64, at: u64) -> Result<u64, Errno> {
    check(clock)?;
    if at != 0 {
        write(at, 1)?;
    }
    Ok(0)
}

pub(super) fn nanosleep(caller: &Caller<'_, '_>, time: u64, left: u64) -> Result<u64, Errno> {
    clock_nanosleep(caller, MONOTONIC, 0, time, left)
}

/// Sleeps for the time at `time`, or until it (`TIMER_ABSTIME`). Nothing but the process's end
/// interrupts it, so nothing is ever stored at `_left`.
pub(super) fn clock_nanosleep(
    caller: &Caller<'_, '_>,
    clock: u64,
    flags: u64,
    time: u64,
    _left: u64,
) -> Result<u64, Errno> {
    const ABSOLUTE: u64 = 1;
    check(clock)?;
    if flags & !ABSOLUTE != 0 {
        return Err(EINVAL);
    }
    let time = read(time)?;
    let deadline = if flags == ABSOLUTE {
        time
    } else {
        machine::now_ns().saturating_add(time)
    };
    while machine::now_ns() < deadline {
        if caller.process.is_dying() {
            return Err(EINTR);
        }
        user::park_until(Some(deadline));
    }
    Ok(0)
}
