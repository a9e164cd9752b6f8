//! Copying between the kernel and the program whose address space is active.
//!
//! The copy is a plain access at the program's own address: it faults, sets accessed and dirty
//! bits, and is refused exactly as the program's own access would be. `trap.rs` resolves its
//! faults, or ends the copy early.

use core::arch::global_asm;

use minflt_mm::Errno;

use super::paging::USER_END;
use crate::linux::EFAULT;

global_asm!(include_str!("uaccess.s"));

unsafe extern "C" {
    fn user_copy(to: *mut u8, from: *const u8, len: usize) -> usize;
    safe static user_copy_access: u8;
    safe static user_copy_done: u8;
}

/// The address of the instruction that may fault.
pub(super) fn access_address() -> u64 {
    (&raw const user_copy_access).addr() as u64
}

/// Where it continues if its fault cannot be resolved.
pub(super) fn give_up_address() -> u64 {
    (&raw const user_copy_done).addr() as u64
}

/// Copies from the program's memory at `from`.
pub(crate) fn copy_from_user(to: &mut [u8], from: u64) -> Result<(), Errno> {
    let from = user_range(from, to.len())?;
    // SAFETY: (1) `to` is valid for writes; (2) `from` lies in the user half, where loads disturb
    // no Rust object and faults are resolved or end the copy.
    let left = unsafe { user_copy(to.as_mut_ptr(), from, to.len()) };
    if left == 0 { Ok(()) } else { Err(EFAULT) }
}

/// Copies to the program's memory at `to`.
pub(crate) fn copy_to_user(to: u64, from: &[u8]) -> Result<(), Errno> {
    let to = user_range(to, from.len())?.cast_mut();
    // SAFETY: (1) `from` is valid for reads; (2) `to` lies in the user half, where no Rust object
    // of the kernel lives and faults are resolved or end the copy.
    let left = unsafe { user_copy(to, from.as_ptr(), from.len()) };
    if left == 0 { Ok(()) } else { Err(EFAULT) }
}

/// A pointer to `len` bytes at `addr`, if all of them are in the user half.
fn user_range(addr: u64, len: usize) -> Result<*const u8, Errno> {
    match addr.checked_add(len as u64) {
        Some(end) if end <= USER_END => Ok(core::ptr::without_provenance(addr as usize)),
        _ => Err(EFAULT),
    }
}
