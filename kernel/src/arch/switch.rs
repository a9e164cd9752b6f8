//! Changing stacks: the only way from one task to another on a CPU.

use core::arch::global_asm;
use core::ptr;

global_asm!(include_str!("switch.s"));

unsafe extern "C" {
    fn switch_stacks(save: *mut u64, to: u64);
    safe static first_step: u8;
}

/// Words that `switch_stacks` takes from a stack: the registers that a function keeps, and where it
/// returns to.
const WORDS: usize = 7;

/// Prepares the stack that ends at `top` for its first task: the first switch to the pointer
/// returned calls `task_main`.
///
/// # Safety
/// 1. The bytes below `top` are mapped, and nobody else has them. 2. `top` is a multiple of 16.
pub(crate) unsafe fn prepare(top: u64) -> u64 {
    // Where `first_step` begins, the pointer is a multiple of 16.
    let start = top - 16 - (WORDS * size_of::<u64>()) as u64;
    let at = ptr::with_exposed_provenance_mut::<[u64; WORDS]>(start as usize);
    let mut words = [0; WORDS];
    words[WORDS - 1] = (&raw const first_step).addr() as u64;
    // SAFETY: (1) below `top`; (2) a multiple of 8.
    unsafe { at.write(words) };
    start
}

/// Leaves the running stack, whose pointer goes to `save`, for the one at `to`. Returns when
/// another task switches back, maybe on another CPU.
///
/// # Safety
/// 1. `to` came from [`prepare`] or was saved here, and nobody has switched to it since.
/// 2. Interrupts are off.
pub(crate) unsafe fn switch(save: *mut u64, to: u64) {
    // SAFETY: (1), (2) of this function: what is popped is what was pushed.
    unsafe { switch_stacks(save, to) };
}
