//! The files that steps use, and what they hold when a case begins.
//!
//! | name | what |
//! |---|---|
//! | `tmpfs` | a file in memory (`memfd_create`) |
//! | `disk` | a file without a name in the system's temporary directory; of `mm`, in its memory |
//! | `tmpfs-readonly`, `disk-readonly` | the same, opened for reading only |

pub use minflt_spec::HALF;
use minflt_spec::{Opened, Space, Words};
use std::fs::{File, OpenOptions, remove_file};
use std::io;
use std::path::Path;

/// Huge pages that the file of such is long at first; none of them is there.
pub const HUGE_PAGES: u64 = 4;
/// How many files there are.
pub const FILES: usize = 2;
/// No step makes a file longer.
pub const PAGES: u64 = 16;
/// How long each is at first, in bytes: one ends within the second half of a page.
pub const BYTES: [u64; FILES] = [6 * 4096, 4 * 4096 + HALF + 0x80];
/// The page of each that nothing was written to.
const HOLE: u64 = 2;

/// The file behind an argument of a step.
#[must_use]
pub const fn opened(arg: u64) -> Opened {
    Opened {
        file: (arg % 2) as usize,
        writable: arg % 4 < 2,
    }
}

/// The pages of a file that are written at first, with their words.
pub fn pages(file: usize) -> impl Iterator<Item = (u64, Words)> {
    let last = BYTES[file].div_ceil(4096);
    let word = move |index: u64, half| (file as u64 + 1) << 40 | index << 8 | half;
    let written = (0..last).filter(|index| *index != HOLE);
    written.map(move |index| (index, [word(index, 1), word(index, 2)]))
}

/// Gives a model the files.
pub fn add(space: &mut Space) {
    for (file, bytes) in BYTES.into_iter().enumerate() {
        space.add_file(bytes, pages(file));
    }
}

/// A file without a name in the system's temporary directory: open for both, and for reading.
///
/// # Errors
/// Those of the system.
pub fn nameless() -> io::Result<[File; 2]> {
    nameless_in(&std::env::temp_dir())
}

/// A file without a name in `folder`: open for both, and for reading.
///
/// # Errors
/// Those of the system.
pub fn nameless_in(folder: &Path) -> io::Result<[File; 2]> {
    for number in 0.. {
        let name = format!("minflt-differential-{}-{number}", std::process::id());
        let path = folder.join(name);
        let mut options = OpenOptions::new();
        match options.read(true).write(true).create_new(true).open(&path) {
            Ok(file) => {
                let again = File::open(&path);
                remove_file(&path)?;
                return Ok([file, again?]);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}
