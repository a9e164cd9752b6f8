//! Files and terminals.

use core::ffi::CStr;
use core::fmt;

use crate::Errno;
use crate::sys::call;

const WRITE: u64 = 1;
const MMAP: u64 = 9;
const CLOSE: u64 = 3;
const IOCTL: u64 = 16;
const DUP2: u64 = 33;
const OPENAT: u64 = 257;

const AT_FDCWD: u64 = 100_u64.wrapping_neg();
const O_RDWR: u64 = 2;
const O_NOCTTY: u64 = 0o400;
const PROT_READ: u64 = 1;
const MAP_PRIVATE: u64 = 2;
const TCGETS: u64 = 0x5401;
const TCSETS: u64 = 0x5402;
const TCSBRK: u64 = 0x5409;
/// Of `struct termios`: output is changed on its way.
const OPOST: u32 = 1;

/// A file that is open, until the program ends.
#[derive(Debug)]
pub struct File(u64);

impl File {
    /// Opens a file to read it, or a device to write to it.
    pub fn open(path: &CStr, mode: Mode) -> Result<Self, Errno> {
        let mode = O_NOCTTY
            | match mode {
                Mode::Read => 0,
                Mode::ReadWrite => O_RDWR,
            };
        let path = path.as_ptr().expose_provenance() as u64;
        // SAFETY: (1) the kernel only reads the path.
        unsafe { call(OPENAT, [AT_FDCWD, path, mode, 0, 0, 0]) }.map(Self)
    }

    /// Maps its first `len` bytes privately, to be read.
    pub fn map(&self, len: u64) -> Result<u64, Errno> {
        // SAFETY: (1) without MAP_FIXED a mapping replaces nothing.
        unsafe { call(MMAP, [0, len, PROT_READ, MAP_PRIVATE, self.0, 0]) }
    }

    /// Closes it. What is mapped stays.
    pub fn close(self) -> Result<(), Errno> {
        // SAFETY: (1) descriptors are no memory.
        unsafe { call(CLOSE, [self.0, 0, 0, 0, 0, 0]) }.map(|_| ())
    }

    /// Writes all bytes.
    pub fn write(&self, bytes: &[u8]) -> Result<(), Errno> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = rest.as_ptr().expose_provenance() as u64;
            // SAFETY: (1) the kernel only reads them.
            let done = unsafe { call(WRITE, [self.0, at, rest.len() as u64, 0, 0, 0]) }?;
            rest = rest.get(done as usize..).unwrap_or_default();
        }
        Ok(())
    }

    /// Becomes standard input, output and error as well.
    pub fn become_standard(&self) -> Result<(), Errno> {
        for standard in 0..3 {
            // SAFETY: (1) descriptors are no memory.
            unsafe { call(DUP2, [self.0, standard, 0, 0, 0, 0]) }?;
        }
        Ok(())
    }

    /// Has a terminal pass on what is written as it is.
    pub fn set_raw(&self) -> Result<(), Errno> {
        // `struct termios`: four words of flags, of which the second is that of output; 20 bytes.
        let mut settings = [0_u32; 9];
        let at = (&raw mut settings).expose_provenance() as u64;
        // SAFETY: (1) the kernel stores into `settings`, which is exposed.
        unsafe { self.control(TCGETS, at) }?;
        // SAFETY: (1) it lives, and is read once the kernel has stored it.
        let mut changed = unsafe { (&raw const settings).read_volatile() };
        changed[1] &= !OPOST;
        let at = (&raw const changed).expose_provenance() as u64;
        // SAFETY: (1) the kernel only reads `changed`.
        unsafe { self.control(TCSETS, at) }
    }

    /// Waits until a terminal has sent what was written.
    pub fn drain(&self) -> Result<(), Errno> {
        // SAFETY: (1) the argument is a number.
        unsafe { self.control(TCSBRK, 1) }
    }

    /// `ioctl`.
    ///
    /// # Safety
    /// 1. What the request does to the program's memory breaks no object that it still uses.
    unsafe fn control(&self, request: u64, argument: u64) -> Result<(), Errno> {
        // SAFETY: (1) the caller's promise.
        unsafe { call(IOCTL, [self.0, request, argument, 0, 0, 0]) }.map(|_| ())
    }
}

impl fmt::Write for File {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading.
    Read,
    /// Both.
    ReadWrite,
}
