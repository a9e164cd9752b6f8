//! The files on Linux: one in memory, one on a disk.

use super::huge::Huge;
use super::sys;
use crate::files::{BYTES, FILES, HALF, PAGES, nameless, pages};
use crate::record::HUGE_FILE;
use crate::window::{PAGE, START};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// The open files, in the order of the arguments of steps; they end with this value.
#[derive(Debug)]
pub(super) struct Files([OwnedFd; 2 * FILES]);

impl Files {
    /// Opens them.
    pub(super) fn open() -> io::Result<Self> {
        let memory = sys::memory_file().map_err(io::Error::from_raw_os_error)?;
        let again = File::open(format!("/proc/self/fd/{}", memory.as_raw_fd()))?;
        let [disk, read] = nameless()?;
        Ok(Self([memory, disk.into(), again.into(), read.into()]))
    }

    /// Their numbers, which forked processes have, too.
    pub(super) fn numbers(&self) -> Numbers {
        let Self(files) = self;
        Numbers {
            fds: core::array::from_fn(|at| files[at].as_raw_fd()),
            found: [[0; 3]; FILES],
            huge: None,
        }
    }
}

/// The files in a process of the child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    fds: [i32; 2 * FILES],
    /// Device and inode of each, as mappings of it show them.
    found: [[u64; 3]; FILES],
    pub(super) huge: Option<Huge>,
}

impl Numbers {
    /// The file that a step names.
    pub(super) fn of(&self, arg: u64) -> i32 {
        self.fds[arg as usize % (2 * FILES)]
    }

    /// What a mapping is of: 0 for nothing, the files from 1 on, and behind these whatever else.
    pub(super) fn which(&self, file: [u64; 3]) -> u64 {
        if file == [0; 3] {
            return 0;
        }
        if self.huge.is_some_and(|huge| huge.inode == file[2]) {
            return HUGE_FILE;
        }
        let at = self.found.iter().position(|found| *found == file);
        at.unwrap_or(FILES) as u64 + 1
    }

    /// Learns how mappings of the files look, and that they can do all that steps ask for.
    pub(super) fn learn(&mut self, maps: i32) -> Result<(), i32> {
        self.reset()?;
        for file in 0..FILES {
            let fd = self.fds[file] as u64;
            let (all, shared) = (7, libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE);
            let shared = u64::from(shared.cast_unsigned());
            sys::call(libc::SYS_mmap, [START, PAGE, all, shared, fd, 0])?;
            self.found[file] = sys::mapping_at(maps, START)?.file;
            sys::call(libc::SYS_munmap, [START, PAGE, 0, 0, 0, 0])?;
            sys::call(libc::SYS_fallocate, [fd, 3, 0, PAGE, 0, 0])?;
            sys::call(libc::SYS_fallocate, [fd, 0, 0, PAGE, 0, 0])?;
        }
        Ok(())
    }

    /// Makes the files what they are when a case begins.
    pub(super) fn reset(&self) -> Result<(), i32> {
        for (file, bytes) in BYTES.into_iter().enumerate() {
            let fd = self.fds[file];
            truncate(fd, 0)?;
            for (index, words) in pages(file) {
                for (word, at) in words.into_iter().zip([0, HALF]) {
                    let _bytes = sys::write_at(fd, &word.to_le_bytes(), index * PAGE + at)?;
                }
            }
            truncate(fd, bytes)?;
        }
        Ok(())
    }

    /// What a file holds: hands out its length, and its words one after the other.
    pub(super) fn read(&self, file: usize, mut put: impl FnMut(u64)) {
        let fd = self.fds[file];
        let end = libc::SEEK_END as u64;
        let bytes = sys::call(libc::SYS_lseek, [fd as u64, 0, end, 0, 0, 0]);
        let bytes = bytes.unwrap_or(u64::MAX);
        let count = bytes.div_ceil(PAGE).min(PAGES);
        put(bytes);
        put(2 * count);
        for place in 0..2 * count {
            let mut word = [0; 8];
            let read = sys::read_at(fd, &mut word, place * HALF);
            put(read.map_or(u64::MAX, |_| u64::from_le_bytes(word)));
        }
    }
}

fn truncate(fd: i32, bytes: u64) -> Result<(), i32> {
    sys::call(libc::SYS_ftruncate, [fd as u64, bytes, 0, 0, 0, 0]).map(drop)
}
