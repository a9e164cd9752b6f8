//! Waiting for a word in memory that processes share.

use core::ptr;
use core::sync::atomic::AtomicU64;

/// Sleeps while the half of `word` that comes first in memory is `half`; may return early.
pub(in crate::linux) fn wait(word: &AtomicU64, half: u32) {
    let forever = ptr::null::<libc::timespec>();
    // SAFETY: 1. The word outlives the call, which only reads it; no timeout is given.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            half,
            forever,
        )
    };
}

/// Wakes all who sleep at `word`.
pub(in crate::linux) fn wake_all(word: &AtomicU64) {
    // SAFETY: 1. The word is only an address to this call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
