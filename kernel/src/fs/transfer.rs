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

/// Where the next bytes are.
enum Next<'n> {
    /// In a program's memory, at this address.
    Program(u64),
    /// In the kernel's.
    Kernel(&'n mut [u8]),
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

    /// Where the next bytes are. None where the process has begun to end, but for the first.
    fn next(&mut self) -> Option<Next<'_>> {
        if self.done > 0 && !user::may_go_on() {
            return None;
        }
        Some(match &mut self.memory {
            Memory::Program(addr) => Next::Program(addr.checked_add(self.done)?),
            Memory::Kernel(bytes) => Next::Kernel(&mut bytes[self.done as usize..]),
        })
    }

    /// Counts that `moved` bytes of `len` were moved.
    const fn count(&mut self, moved: usize, len: usize) -> usize {
        self.failed |= moved < len;
        self.done += moved as u64;
        moved
    }

    /// Moves bytes to memory; how many.
    pub(crate) fn give(&mut self, bytes: &[u8]) -> usize {
        let moved = match self.next() {
            Some(Next::Program(to)) => uaccess::copy_some_to_user(to, bytes),
            Some(Next::Kernel(room)) => {
                let len = bytes.len().min(room.len());
                room[..len].copy_from_slice(&bytes[..len]);
                len
            }
            None => 0,
        };
        self.count(moved, bytes.len())
    }

    /// Moves bytes of a file to memory; how many.
    pub(crate) fn give_frame(&mut self, bytes: &FrameBytes<'_, Kernel>) -> usize {
        let moved = match self.next() {
            Some(Next::Program(to)) => uaccess::copy_file_to_user(to, bytes),
            Some(Next::Kernel(room)) => {
                let len = bytes.len().min(room.len());
                bytes.copy_to(&mut room[..len]);
                len
            }
            None => 0,
        };
        self.count(moved, bytes.len())
    }

    /// Moves bytes from memory; how many.
    pub(crate) fn take(&mut self, room: &mut [u8]) -> usize {
        let moved = match self.next() {
            Some(Next::Program(from)) => uaccess::copy_some_from_user(room, from),
            Some(Next::Kernel(bytes)) => {
                let len = room.len().min(bytes.len());
                room[..len].copy_from_slice(&bytes[..len]);
                len
            }
            None => 0,
        };
        self.count(moved, room.len())
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
