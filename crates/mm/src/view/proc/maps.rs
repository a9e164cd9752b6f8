//! `maps`: a line for each mapping.

use super::Line;
use super::names::{FileId, FileNames, Padded};
use crate::base::attrs::VmaFlags;
use crate::mm::Mm;
use core::fmt::{self, Write};
use minflt_pgtable::Mmu;

/// The column before which a name does not begin.
const NAME_AT: usize = 73;

impl<M: Mmu> Mm<M> {
    /// Writes the text of `/proc/PID/maps`: a line for each mapping.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading and lets go before `out` is called: a
    /// slow reader keeps nobody waiting. What changes meanwhile may show twice or not at all; what
    /// stays shows once.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn maps(&self, out: &mut impl Write) -> fmt::Result {
        self.maps_with(&(), out)
    }

    /// The same, with files named by `names`; by [`Mm::maps`] they have no names, and are of no
    /// device.
    ///
    /// # Context
    /// As [`Mm::maps`]. `names` is called with nothing held.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn maps_with(&self, names: &impl FileNames, out: &mut impl Write) -> fmt::Result {
        self.each_line(|line| write_line(out, &line, names))
    }
}

/// Range, rights, then offset, device and inode of the file, of which anonymous memory has none,
/// and the name.
pub(super) fn write_line(out: &mut impl Write, line: &Line, names: &impl FileNames) -> fmt::Result {
    let range = line.view.range;
    let FileId {
        device: (major, minor),
        inode,
    } = match line.file {
        0 => FileId {
            device: (0, 0),
            inode: 0,
        },
        number => names.id(number),
    };
    let mut counted = Counted { out, columns: 0 };
    write!(
        counted,
        "{:08x}-{:08x} {}{} {:08x} {major:02x}:{minor:02x} {inode} ",
        range.start().0,
        range.end().0,
        line.view.prot,
        if line.view.flags.has(VmaFlags::SHARED) {
            's'
        } else {
            'p'
        },
        line.offset,
    )?;
    let mut name = Padded {
        pad: NAME_AT.saturating_sub(counted.columns),
        out: counted.out,
    };
    match line.file {
        0 => name.write_str(line.name.text())?,
        number => names.path(number, &mut name)?,
    }
    out.write_char('\n')
}

/// Counts what was written, which is ASCII.
struct Counted<'o, W> {
    out: &'o mut W,
    columns: usize,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.columns += text.len();
        self.out.write_str(text)
    }
}
