//! The files of a case in `mm`: one in memory, one on a file of the host.

use super::request::{PUNCH, shares};
use super::{Machine, number};
use crate::files::{BYTES, FILES, HALF, nameless, nameless_in, pages};
use crate::record::{FileShot, Outcome};
use crate::window::PAGE;
use minflt_host::HostFile;
use minflt_mm::{Errno, FileError, FileHandle, FileOps, MapRequest, MmapError, System, Thread};
use minflt_pgtable::Paging;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Where files of the host lie in its memory: a case begins with an empty one, and a disk takes
/// longer for that than for all of its steps.
const MEMORY: &str = "/dev/shm";

/// The host's file.
#[derive(Debug)]
pub(super) struct Disk {
    file: File,
    ops: &'static HostFile,
}

impl Disk {
    /// Makes one, for as long as the program runs.
    pub(super) fn new() -> std::io::Result<Self> {
        let [file, _] = nameless_in(Path::new(MEMORY)).or_else(|_| nameless())?;
        let ops = HostFile::new(file.try_clone()?)?;
        let ops = Box::leak(Box::new(ops));
        Ok(Self { file, ops })
    }

    /// Makes it what it is when a case begins.
    fn reset<P: Paging>(&self) -> std::io::Result<()> {
        self.file.set_len(0)?;
        for (index, words) in pages(1) {
            for (word, at) in words.into_iter().zip([0, HALF]) {
                let bytes = word.to_le_bytes();
                self.file.write_all_at(&bytes, index * PAGE + at)?;
            }
        }
        let resized = FileOps::<Machine<P>>::resize(self.ops, BYTES[1]);
        resized.map_err(|_| std::io::ErrorKind::Other.into())
    }
}

/// The files, by the arguments of steps: open for both, and then for reading only.
pub(super) struct Files<'s, P: Paging>([FileHandle<'s, Machine<P>>; 2 * FILES]);

impl<'s, P: Paging> Files<'s, P> {
    pub(super) fn open(system: &'s System<Machine<P>>, disk: &Disk) -> Result<Self, String> {
        disk.reset::<P>().map_err(|error| error.to_string())?;
        let no_memory = |_| "no memory for a file".to_owned();
        let memory = system.new_file(BYTES[0]).map_err(no_memory)?;
        for (index, words) in pages(0) {
            for (word, at) in words.into_iter().zip([0, HALF]) {
                let written = memory.write_word(index * PAGE + at, word);
                written.map_err(|error| format!("{error:?}"))?;
            }
        }
        let host = system.open_file(disk.ops, BYTES[1]).map_err(no_memory)?;
        let (first, second) = (memory.read_only(), host.read_only());
        Ok(Self([memory, host, first, second]))
    }

    fn of(&self, arg: u64) -> &FileHandle<'s, Machine<P>> {
        &self.0[arg as usize % (2 * FILES)]
    }

    /// Which file the maps show by this number.
    pub(super) fn which(&self, number: u64) -> u64 {
        let files = self.0.iter().take(FILES);
        let at = files
            .map(FileHandle::number)
            .position(|file| file == number);
        if number == 0 {
            return 0;
        }
        at.unwrap_or(FILES) as u64 + 1
    }

    /// What they hold.
    pub(super) fn shots(&self) -> Result<Vec<FileShot>, String> {
        let mut shots = Vec::new();
        for file in self.0.iter().take(FILES) {
            let bytes = file.bytes();
            let count = 2 * bytes.div_ceil(PAGE);
            let word = |at: u64| {
                let word = file.read_word(at * HALF);
                word.map(|word| word.unwrap_or_default())
            };
            let words: Result<Vec<u64>, FileError> = (0..count).map(word).collect();
            let words = words.map_err(|error| format!("a file cannot be read: {error:?}"))?;
            shots.push(FileShot { bytes, words });
        }
        Ok(shots)
    }

    /// mmap of part of a file.
    pub(super) fn map(
        &self,
        thread: &Thread<'_, Machine<P>>,
        request: &MapRequest,
        [flags, file, offset]: [u64; 3],
    ) -> Outcome {
        let Some(sharing) = shares(flags) else {
            return Outcome::Errno(Errno::EINVAL.0);
        };
        let mapped = thread.mmap_file(request, self.of(file), offset, sharing);
        number(mapped.map(|at| at.0))
    }

    /// ftruncate; what is negative or not for writing is refused where the numbers are.
    pub(super) fn truncate(&self, file: u64, bytes: u64) -> Outcome {
        let truncated = match self.of(file).truncate(bytes) {
            Err(FileError::ReadOnly | FileError::TooLarge) => Err(FileError::Invalid),
            other => other,
        };
        number(truncated.map(|()| 0))
    }

    /// fallocate; what is negative is refused where the numbers are.
    pub(super) fn allocate(&self, file: u64, mode: u64, offset: u64, len: u64) -> Outcome {
        let most = i64::MAX as u64;
        if offset > most || len > most || len == 0 {
            return Outcome::Errno(Errno::EINVAL.0);
        }
        let file = self.of(file);
        let done = match mode {
            PUNCH => file.punch_hole(offset, len),
            _ => file.allocate(offset, len),
        };
        number(done.map(|()| 0))
    }

    /// pread of a word.
    pub(super) fn read(&self, file: u64, offset: u64) -> Outcome {
        let file = self.of(file);
        match file.read_word(offset) {
            Ok(word) => {
                let bytes = file.bytes().saturating_sub(offset).min(8);
                Outcome::Done(bytes, [word.unwrap_or_default(), 0])
            }
            Err(error) => Outcome::Errno(Errno::from(error).0),
        }
    }

    /// pwrite of a word.
    pub(super) fn write(&self, file: u64, offset: u64, word: u64) -> Outcome {
        number(self.of(file).write_word(offset, word).map(|()| 8))
    }
}

/// mmap of shared anonymous memory: a file that nobody else knows.
pub(super) fn map_shared<P: Paging>(
    thread: &Thread<'_, Machine<P>>,
    request: &MapRequest,
    len: u64,
) -> Outcome {
    let bytes = len.checked_add(PAGE - 1).map_or(0, |len| len & !(PAGE - 1));
    let system = thread.mm().system();
    // What is too long for a file is too long for an address space.
    let mapped = match system.new_file(bytes.min(1 << 48)) {
        Ok(file) => thread.mmap_file(request, &file, 0, minflt_mm::Sharing::Shared),
        Err(_) => Err(MmapError::NoMemory),
    };
    number(mapped.map(|at| at.0))
}
