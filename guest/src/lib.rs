//! What a program needs to run on the Linux ABI without a libc: a start, system calls, output.
//!
//! The programs are in `src/bin`. Each is a static executable that behaves the same on Linux and
//! inside the minflt kernel, so one run on the host tells what the right answer is.
#![no_std]

mod file;
mod mapping;
mod out;
mod process;
mod raw;
mod start;
mod sys;
mod thread;

pub use file::{File, Mode};
pub use mapping::{GIB, HUGE_PAGE, Mapping, PAGE};
pub use out::Out;
pub use process::{Ended, Forked, Process, Usage};
pub use raw::{Odd, Raw, Then};
pub use start::{Args, start};
pub use sys::{Advice, Errno, Pages, Prot, Sys};
pub use thread::{Counter, Thread, Word, together};

use core::fmt::Write;

/// The status of a program that panicked.
const PANIC_STATUS: i32 = 101;

/// Writes a line to standard output.
#[macro_export]
macro_rules! say {
    ($($arg:tt)*) => { $crate::Out::line(format_args!($($arg)*)) };
}

/// Makes `$main` (a `fn(Args) -> i32`) the program: its entry and its panic handler.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        /// The entry point: the kernel jumps here with the arguments at the stack pointer.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn _start() -> ! {
            core::arch::naked_asm!(
                "xor ebp, ebp",
                "mov rdi, rsp",
                "and rsp, -16",
                "call {entry}",
                "ud2",
                entry = sym entry,
            )
        }

        extern "C" fn entry(stack: *const u64) -> ! {
            // SAFETY: (1) `_start` passes the stack pointer the kernel set at exec, unchanged.
            unsafe { $crate::start(stack, $main) }
        }

        #[panic_handler]
        fn on_panic(info: &core::panic::PanicInfo<'_>) -> ! {
            $crate::die(info)
        }
    };
}

/// Reports a panic and ends the program.
pub fn die(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut out = Out::new();
    // Nothing is left to do if even this cannot be written.
    let _ = writeln!(out, "{info}");
    drop(out);
    Sys::exit(PANIC_STATUS)
}
