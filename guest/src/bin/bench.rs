//! The costs of memory calls and faults, on Linux and on the minflt kernel alike.
//!
//! ```text
//! bench ops [NAME...]          each operation, or those named: `op NAME TOTAL COUNT`
//! bench rates MS THREADS...    loops on so many threads: `rate NAME THREADS OPS NS`
//! ```
//!
//! TOTAL is a difference of the time-stamp counter: instructions, where the machine counts those.
//! An operation whose system call is missing prints `op NAME unsupported ENOSYS`, and a loop
//! `rate NAME THREADS unsupported ENOSYS`.
#![no_std]
#![no_main]

#[path = "bench/ops.rs"]
mod ops;
#[path = "bench/rates.rs"]
mod rates;

use core::arch::asm;
use minflt_guest::{Args, program, say};

program!(main);

/// The status of a command line that asks for what is not there.
const USAGE: i32 = 2;

fn main(args: Args) -> i32 {
    match args.get(1) {
        Some("ops") => ops::run(args),
        Some("rates") => rates::run(args),
        _ => {
            say!("bench: ops [NAME...], or rates MS THREADS...");
            USAGE
        }
    }
}

/// The time-stamp counter, after all instructions before.
#[inline(always)]
pub(crate) fn now() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: (1) it reads a counter; (2) both results are named.
    unsafe { asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}
