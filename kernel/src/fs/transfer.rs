//! Bytes on their way between a file and memory: a program's, or the kernel's.

use minflt_mm::{Errno, FrameBytes};

use crate::arch::uaccess;
use crate::linux::EFAULT;
use crate::machine::Kernel;
use crate::user;

/// Where a file's bytes come from, or go to.
pub(crate) enum Memory<'m> {
    /// A program's, from this address on.
    Program(u64),
    /// The kernel's.
    Kernel(&'m mut [u8]),
}

/// How far bytes have come.
pub(crate) struct Transfer<'m> {
    memory: Memory<'m>,
    done: u64,
    /// Whether a fault could not be resolved.
    failed: bool,
}

impl<'m> Transfer<'m> {
    /// With the program's memory at `addr`.
    pub(crate) const fn with_program(addr: u64) -> Self {
        Self::new(Memory::Program(addr))
    }

    /// With the kernel's.
    pub(crate) const fn with_kernel(bytes: &'m mut [u8]) -> Self {
        Self::new(Memory::Kernel(bytes))
    }

    const fn new(memory: Memory<'m>) -> Self {
        Self {
            memory,
            done: 0,
            failed: false,
        }
    }

    /// Moves the next `len` bytes, by `program` or by `kernel`; how many were moved. None where the
    /// process has begun to end, but for the first.
    fn next(
        &mut self,
        len: usize,
        program: impl FnOnce(u64) -> usize,
        kernel: impl FnOnce(&mut [u8]),
    ) -> usize {
        if self.done > 0 && !user::may_go_on() {
            return 0;
        }
        let moved = match &mut self.memory {
            Memory::Program(addr) => addr.checked_add(self.done).map_or(0, program),
            Memory::Kernel(bytes) => {
                let rest = &mut bytes[self.done as usize..];
                let len = len.min(rest.len());
                kernel(&mut rest[..len]);
                len
            }
        };
        self.failed |= moved < len;
        self.done += moved as u64;
        moved
    }

    /// Moves bytes to memory; how many.
    pub(crate) fn give(&mut self, bytes: &[u8]) -> usize {
        let program = |to| uaccess::copy_some_to_user(to, bytes);
        let kernel = |to: &mut [u8]| to.copy_from_slice(&bytes[..to.len()]);
        self.next(bytes.len(), program, kernel)
    }

    /// Moves bytes of a file to memory; how many.
    pub(crate) fn give_frame(&mut self, bytes: &FrameBytes<'_, Kernel>) -> usize {
        let program = |to| uaccess::copy_file_to_user(to, bytes);
        self.next(bytes.len(), program, |to| bytes.copy_to(to))
    }

    /// Moves bytes from memory; how many.
    pub(crate) fn take(&mut self, room: &mut [u8]) -> usize {
        let len = room.len();
        // Both want the room, and one gets it.
        let room = core::cell::RefCell::new(room);
        let program = |from| uaccess::copy_some_from_user(&mut room.borrow_mut(), from);
        let kernel = |from: &mut [u8]| room.borrow_mut()[..from.len()].copy_from_slice(from);
        self.next(len, program, kernel)
    }

    /// What the call returns that moved `moved` bytes: what was moved before a fault counts.
    pub(crate) fn result(&self, moved: u64) -> Result<u64, Errno> {
        if moved == 0 && self.failed {
            Err(EFAULT)
        } else {
            Ok(moved)
        }
    }
}
