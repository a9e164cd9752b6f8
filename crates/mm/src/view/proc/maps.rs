//! `maps`: a line for each mapping.

use super::{Line, Name};
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
        self.each_line(|line| write_line(out, &line))
    }
}

/// Range, rights, then offset, device and inode of the file, of which anonymous memory has none,
/// and the name. A file has no name here, and is of no device; its inode is its number.
pub(super) fn write_line(out: &mut impl Write, line: &Line) -> fmt::Result {
    let range = line.view.range;
    let mut counted = Counted { out, columns: 0 };
    write!(
        counted,
        "{:08x}-{:08x} {}{} {:08x} 00:00 {} ",
        range.start().0,
        range.end().0,
        line.view.prot,
        if line.view.flags.has(VmaFlags::SHARED) {
            's'
        } else {
            'p'
        },
        line.offset,
        line.file,
    )?;
    if line.name != Name::Nothing {
        for _ in counted.columns..NAME_AT {
            counted.write_char(' ')?;
        }
        counted.write_str(line.name.text())?;
    }
    counted.write_char('\n')
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
