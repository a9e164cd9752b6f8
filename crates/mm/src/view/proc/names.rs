//! Names of files, which the embedding kernel knows.

use core::fmt::{self, Write};

/// What `maps` shows of a file beside its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId {
    /// The device that it is on: major and minor number.
    pub device: (u32, u32),
    /// Its number there.
    pub inode: u64,
}

/// Names the files of mappings in [`Mm::maps_with`](crate::Mm::maps_with) and
/// [`Mm::smaps_with`](crate::Mm::smaps_with). Files are named by their number
/// ([`FileHandle::number`](crate::FileHandle::number)), which no other file of the system has or
/// had; the file may be closed by the time that its name is asked for.
///
/// Called with nothing held: it may sleep.
pub trait FileNames {
    /// Writes the path of file `number`, or nothing where it has none. Line feeds come out as
    /// `\012`, as in Linux.
    ///
    /// # Errors
    /// Those of `out`.
    fn path(&self, number: u64, out: &mut dyn Write) -> fmt::Result;

    /// The device and the inode of file `number`: if not said otherwise device 0:0, and the number.
    fn id(&self, number: u64) -> FileId {
        FileId {
            device: (0, 0),
            inode: number,
        }
    }
}

/// No file has a name.
impl FileNames for () {
    fn path(&self, _number: u64, _out: &mut dyn Write) -> fmt::Result {
        Ok(())
    }
}

/// Writes a name behind `pad` spaces, if there is one.
pub(super) struct Padded<'o, W> {
    pub(super) out: &'o mut W,
    pub(super) pad: usize,
}

impl<W: Write> Write for Padded<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.is_empty() {
            return Ok(());
        }
        for _ in 0..core::mem::take(&mut self.pad) {
            self.out.write_char(' ')?;
        }
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.out.write_str("\\012")?;
            }
            self.out.write_str(line)?;
        }
        Ok(())
    }
}
