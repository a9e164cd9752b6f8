//! The file that all workers have in common.

use super::sys::memory;
use crate::contents::file_word;
use crate::target::{Cache, CommonFile};
use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

/// Makes it: in memory where it is to be warm, else on the disk of the temporary directory,
/// written out and dropped from the page cache as far as the kernel does so when asked. A
/// temporary directory in memory has no disk.
///
/// # Errors
/// The system's error number.
pub(super) fn make(wanted: &CommonFile, page_size: u64) -> Result<OwnedFd, i32> {
    let pages = wanted.bytes.div_ceil(page_size);
    let file = match wanted.cache {
        Cache::Warm => memory::file(pages * page_size).map(File::from)?,
        Cache::Cold => unnamed().map_err(|error| number(&error))?,
    };
    write(&file, pages, page_size, wanted.cache).map_err(|error| number(&error))?;
    let file = OwnedFd::from(file);
    if wanted.cache == Cache::Cold {
        memory::forget(&file)?;
    }
    Ok(file)
}

fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// A file of the temporary directory, without a name.
fn unnamed() -> io::Result<File> {
    let name = format!("minflt-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    remove_file(&path)?;
    Ok(file)
}

/// A page of a file in memory is there once a word of it is written; on a disk all of it is.
fn write(file: &File, pages: u64, page_size: u64, cache: Cache) -> io::Result<()> {
    let len = match cache {
        Cache::Warm => 8,
        Cache::Cold => page_size as usize,
    };
    let mut bytes = vec![0; len];
    for page in 0..pages {
        bytes[..8].copy_from_slice(&file_word(page).to_ne_bytes());
        file.write_all_at(&bytes, page * page_size)?;
    }
    match cache {
        Cache::Warm => Ok(()),
        Cache::Cold => file.sync_all(),
    }
}

/// What `fault_around_bytes` of the kernel is, where this user may know.
pub(super) fn around_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/kernel/debug/fault_around_bytes").ok()?;
    text.trim().parse().ok()
}
