//! Buffered standard output.

use core::fmt;

use crate::Sys;

/// The longest piece written by one system call.
const CAPACITY: usize = 128;

/// Standard output through a small buffer on the stack, flushed when dropped.
#[derive(Debug)]
pub struct Out {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl Out {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: [0; CAPACITY],
            len: 0,
        }
    }

    /// Writes one line. Output that fails is dropped: the exit status is what counts.
    pub fn line(text: fmt::Arguments<'_>) {
        let mut out = Self::new();
        let _ = fmt::write(&mut out, format_args!("{text}\n"));
    }

    /// Hands what is buffered to the kernel.
    fn flush(&mut self) {
        let mut rest = &self.bytes[..self.len];
        while !rest.is_empty() {
            match Sys::write(rest) {
                Ok(written) if written > 0 => rest = &rest[written.min(rest.len())..],
                _ => break,
            }
        }
        self.len = 0;
    }
}

impl Default for Out {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == CAPACITY {
                self.flush();
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.flush();
    }
}
