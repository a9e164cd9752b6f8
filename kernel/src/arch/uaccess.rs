//! Accesses of the kernel to the program whose address space is active: copies, and single words.
//!
//! Each is a plain access at the program's own address: it faults, sets accessed and dirty
//! bits, and is refused exactly as the program's own access would be. `trap.rs` resolves its
//! faults, or ends the access early. With interrupts off, where a fault may not sleep, it ends it.

use core::arch::global_asm;

use minflt_mm::{Errno, FrameBytes};
use x86_64::instructions::interrupts;

use super::paging::{PAGE, USER_END};
use crate::linux::EFAULT;
use crate::machine::Kernel;

global_asm!(include_str!("smap.s"), include_str!("uaccess.s"));

/// What `user_load` returns, in two registers.
#[repr(C)]
struct Loaded {
    value: u64,
    failed: u64,
}

unsafe extern "C" {
    fn user_copy(to: *mut u8, from: *const u8, len: usize) -> usize;
    safe static user_copy_access: u8;
    safe static user_copy_failed: u8;
    fn user_load(from: *const u8) -> Loaded;
    safe static user_load_access: u8;
    safe static user_load_failed: u8;
    fn user_store(to: *mut u8, value: u64) -> u64;
    safe static user_store_access: u8;
    safe static user_store_failed: u8;
    fn user_load_u32(from: *const u8) -> Loaded;
    safe static user_load_u32_access: u8;
    safe static user_load_u32_failed: u8;
    fn user_store_u32(to: *mut u8, value: u32) -> u64;
    safe static user_store_u32_access: u8;
    safe static user_store_u32_failed: u8;
    fn user_exchange_u32(at: *mut u8, old: u32, new: u32) -> Loaded;
    safe static user_exchange_u32_access: u8;
    safe static user_exchange_u32_failed: u8;
}

/// Where an access goes on whose fault cannot be resolved, if `rip` is one of the instructions that
/// may touch a program's memory.
pub(super) fn give_up_address(rip: u64) -> Option<u64> {
    let accesses = [
        (&user_copy_access, &user_copy_failed),
        (&user_load_access, &user_load_failed),
        (&user_store_access, &user_store_failed),
        (&user_load_u32_access, &user_load_u32_failed),
        (&user_store_u32_access, &user_store_u32_failed),
        (&user_exchange_u32_access, &user_exchange_u32_failed),
    ];
    let address = |symbol: &u8| (&raw const *symbol).addr() as u64;
    let found = accesses.iter().find(|(at, _)| address(at) == rip);
    found.map(|(_, failed)| address(failed))
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

/// Copies bytes of a file to the program's memory at `to`, until a fault cannot be resolved;
/// returns how many.
pub(crate) fn copy_file_to_user(to: u64, from: &FrameBytes<'_, Kernel>) -> usize {
    let Ok(to) = user_range(to, from.len()) else {
        return 0;
    };
    // SAFETY: (1) the bytes stay where they are while they are borrowed, and are loaded by one
    // instruction, whatever others store to them; (2) as of `copy_to_user`.
    let left = unsafe { user_copy(to.cast_mut(), from.as_ptr(), from.len()) };
    from.len() - left
}

/// Copies to the program's memory at `to`, until a fault cannot be resolved; returns how many
/// bytes.
pub(crate) fn copy_some_to_user(to: u64, from: &[u8]) -> usize {
    let Ok(to) = user_range(to, from.len()) else {
        return 0;
    };
    // SAFETY: (1), (2) as of `copy_to_user`.
    let left = unsafe { user_copy(to.cast_mut(), from.as_ptr(), from.len()) };
    from.len() - left
}

/// Copies the string at `from` with its zero, if both fit into `to`; returns its length, without
/// the zero, or none if it is longer.
pub(crate) fn copy_string(to: &mut [u8], from: u64) -> Result<Option<usize>, Errno> {
    /// Bytes copied at once: strings are short, and end anywhere.
    const AT_ONCE: usize = 64;
    let mut done = 0;
    while done < to.len() {
        let at = from.checked_add(done as u64).ok_or(EFAULT)?;
        // The string may end where memory does.
        let in_page = (PAGE - at % PAGE) as usize;
        let len = AT_ONCE.min(to.len() - done).min(in_page);
        let piece = &mut to[done..done + len];
        copy_from_user(piece, at)?;
        if let Some(zero) = piece.iter().position(|byte| *byte == 0) {
            return Ok(Some(done + zero));
        }
        done += len;
    }
    Ok(None)
}

/// Copies from the program's memory at `from`, until a fault cannot be resolved; returns how many
/// bytes.
pub(crate) fn copy_some_from_user(to: &mut [u8], from: u64) -> usize {
    let Ok(from) = user_range(from, to.len()) else {
        return 0;
    };
    // SAFETY: (1), (2) as of `copy_from_user`.
    let left = unsafe { user_copy(to.as_mut_ptr(), from, to.len()) };
    to.len() - left
}

/// Loads the program's word at `from`, in one access.
pub(crate) fn load(from: u64) -> Result<u64, Errno> {
    let from = user_range(from, size_of::<u64>())?;
    // SAFETY: (1) in the user half, where loads disturb no Rust object and faults are resolved or
    // end the access.
    let Loaded { value, failed } = unsafe { user_load(from) };
    if failed == 0 { Ok(value) } else { Err(EFAULT) }
}

/// Stores the program's word at `to`, in one access.
pub(crate) fn store(to: u64, value: u64) -> Result<(), Errno> {
    let to = user_range(to, size_of::<u64>())?.cast_mut();
    // SAFETY: (1) in the user half, where no Rust object of the kernel lives and faults are
    // resolved or end the access.
    let failed = unsafe { user_store(to, value) };
    if failed == 0 { Ok(()) } else { Err(EFAULT) }
}

/// Loads the program's word of 4 bytes at `from`, in one access.
pub(crate) fn load_u32(from: u64) -> Result<u32, Errno> {
    let from = user_range(from, size_of::<u32>())?;
    // SAFETY: (1) in the user half, where loads disturb no Rust object and faults are resolved or
    // end the access.
    let Loaded { value, failed } = unsafe { user_load_u32(from) };
    if failed == 0 {
        Ok(value as u32)
    } else {
        Err(EFAULT)
    }
}

/// The same without sleeping, so that the caller may hold a lock that spins: where the word is not
/// there, that is an error.
pub(crate) fn load_u32_if_there(from: u64) -> Result<u32, Errno> {
    interrupts::without_interrupts(|| load_u32(from))
}

/// Stores the program's word of 4 bytes at `to`, in one access.
pub(crate) fn store_u32(to: u64, value: u32) -> Result<(), Errno> {
    let to = user_range(to, size_of::<u32>())?.cast_mut();
    // SAFETY: (1) in the user half, where no Rust object of the kernel lives and faults are
    // resolved or end the access.
    let failed = unsafe { user_store_u32(to, value) };
    if failed == 0 { Ok(()) } else { Err(EFAULT) }
}

/// Exchanges the program's word of 4 bytes at `at`, if it is `old`; whether it was.
pub(crate) fn exchange_u32(at: u64, old: u32, new: u32) -> Result<bool, Errno> {
    let at = user_range(at, size_of::<u32>())?.cast_mut();
    // SAFETY: (1) in the user half, where no Rust object of the kernel lives and faults are
    // resolved or end the access.
    let Loaded { value, failed } = unsafe { user_exchange_u32(at, old, new) };
    if failed == 0 {
        Ok(value == 0)
    } else {
        Err(EFAULT)
    }
}

/// A pointer to `len` bytes at `addr`, if all of them are in the user half.
fn user_range(addr: u64, len: usize) -> Result<*const u8, Errno> {
    match addr.checked_add(len as u64) {
        Some(end) if end <= USER_END => Ok(core::ptr::without_provenance(addr as usize)),
        _ => Err(EFAULT),
    }
}
