//! Files that are files, or block devices, of the host.
//!
//! A page is read into its frame at once, which is nobody else's then. It is written from a copy,
//! made a word at a time, since others may store to it meanwhile. While the host reads or writes
//! the calling thread is away from its CPU, whose interrupts are served by their senders.
//!
//! What is written has reached the host, and the host's device when the file is flushed, as every
//! sync does.

use crate::context::with_current;
use crate::machine::Host;
use core::slice;
use minflt_addr::Pfn;
use minflt_mm::{FileOps, IoError};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::prim::AtomicU64;
use minflt_sync::{Machine, Ordering, lockdep};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

/// Bytes copied at a time: the smallest page there is.
const CHUNK: usize = 4096;

/// A file of the host, or a block device, to be the pages of a file of a [`Host`] system.
#[derive(Debug)]
pub struct HostFile {
    file: File,
    /// Bytes. Written by: `resize`, which the system calls one at a time.
    bytes: AtomicU64,
}

impl HostFile {
    /// Takes `file` as it is. Nobody else shall change its length.
    ///
    /// # Errors
    /// The host does not say how long it is: it is no file and no block device.
    pub fn new(mut file: File) -> io::Result<Self> {
        // A device's metadata do not say.
        let bytes = file.seek(SeekFrom::End(0))?;
        Ok(Self::of(file, bytes))
    }

    pub(crate) const fn of(file: File, bytes: u64) -> Self {
        Self {
            file,
            bytes: AtomicU64::new(bytes),
        }
    }

    /// Bytes that it has now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reads from `offset` on; what the host does not have is zeros.
    fn read(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let rest = &mut into[done..];
            match self.file.read_at(rest, offset + done as u64) {
                Ok(0) => {
                    rest.fill(0);
                    break;
                }
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<P: Paging, const CHECKED: bool> FileOps<Host<P, CHECKED>> for HostFile {
    fn read_page(
        &self,
        at: &<Host<P, CHECKED> as Machine>::Instance,
        index: u64,
        pfn: Pfn,
    ) -> Result<(), IoError> {
        let page = Host::<P, CHECKED>::frame_ptr(at, pfn);
        // SAFETY: a whole frame of the machine's memory, which is the caller's alone until it says
        // that the page is there.
        let page = unsafe { slice::from_raw_parts_mut(page, P::page() as usize) };
        lockdep::might_sleep::<Host<P, CHECKED>>();
        with_current(|here| here.away(|| self.read(page, index << P::shift()))).map_err(because)
    }

    fn write_page(
        &self,
        at: &<Host<P, CHECKED> as Machine>::Instance,
        index: u64,
        pfn: Pfn,
    ) -> Result<(), IoError> {
        lockdep::might_sleep::<Host<P, CHECKED>>();
        let start = index << P::shift();
        let len = self.bytes().saturating_sub(start).min(P::page());
        let mut copy = [0; CHUNK];
        for from in (0..len).step_by(CHUNK) {
            for (word, bytes) in copy.chunks_exact_mut(8).enumerate() {
                let offset = from + 8 * word as u64;
                let value = Host::<P, CHECKED>::user_load(at, pfn, offset);
                bytes.copy_from_slice(&value.to_ne_bytes());
            }
            let bytes = &copy[..CHUNK.min((len - from) as usize)];
            let write = || self.file.write_all_at(bytes, start + from);
            with_current(|here| here.away(write)).map_err(because)?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), IoError> {
        lockdep::might_sleep::<Host<P, CHECKED>>();
        with_current(|here| here.away(|| self.file.sync_data())).map_err(because)
    }

    fn resize(&self, bytes: u64) -> Result<(), IoError> {
        with_current(|here| here.away(|| self.file.set_len(bytes))).map_err(because)?;
        self.bytes.store(bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// What the host's refusal means.
fn because(error: io::Error) -> IoError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => IoError::NoSpace,
        _ => IoError::Failed,
    }
}
