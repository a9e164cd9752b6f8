//! The system calls, each behind a safe function; the only `unsafe` of this crate.

pub(super) mod clock;
pub(super) mod futex;
pub(super) mod memory;
pub(super) mod process;

use std::io;

/// The error number of the system call that just failed in this thread.
fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// An error number in words.
pub(super) fn error_words(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

/// What a system call that returns 0 or -1 said.
fn zero_or_errno(returned: libc::c_int) -> Result<(), i32> {
    if returned == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}
