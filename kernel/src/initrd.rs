//! The initial RAM disk: an archive of files in the format that Linux calls initramfs.
//!
//! Format: Linux's Documentation/driver-api/early-userspace/buffer-format.rst, the "newc" kind
//! without compression. Everything is read within bounds: a damaged archive is an error, whatever
//! its bytes.

use core::fmt;

/// Bytes of a header: the magic and 13 numbers of 8 hexadecimal digits.
const HEADER: usize = 110;
/// The first bytes of a header, without checksums.
const MAGIC: &[u8] = b"070701";
/// The same with checksums of the contents, which Linux does not check either.
const MAGIC_CRC: &[u8] = b"070702";
/// The name of the last entry.
const TRAILER: &str = "TRAILER!!!";
/// What headers and contents begin at a multiple of, from the start of the archive.
const ALIGN: usize = 4;

/// What is wrong with an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CpioError {
    /// No "newc" header where one has to be, at this offset.
    Magic(usize),
    /// A number of the header at this offset is not hexadecimal.
    Number(usize),
    /// The entry at this offset goes past the end of the archive.
    Truncated(usize),
    /// The name of the entry at this offset is empty, does not end in a zero byte, or is no UTF-8.
    Name(usize),
}

impl fmt::Display for CpioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic(at) => write!(f, "no cpio header (newc) at byte {at}"),
            Self::Number(at) => write!(f, "a number of the header at byte {at} is malformed"),
            Self::Truncated(at) => write!(f, "the entry at byte {at} is cut off"),
            Self::Name(at) => write!(f, "the name of the entry at byte {at} is malformed"),
        }
    }
}

/// One file, folder or node of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// Its path, without a leading slash.
    pub(crate) path: &'a str,
    /// Its type and rights, as in `st_mode`.
    pub(crate) mode: u32,
    /// Its number: two that share one are names of one file, if `links` says so.
    pub(crate) number: u32,
    /// Names that it has.
    pub(crate) links: u32,
    /// Its user and group.
    pub(crate) owner: (u32, u32),
    /// The device that it is: major and minor number.
    pub(crate) device: (u32, u32),
    /// Its contents.
    pub(crate) bytes: &'a [u8],
}

/// An archive. It iterates over its entries, and ends after the first error.
#[derive(Clone, Debug)]
pub(crate) struct Archive<'a> {
    bytes: &'a [u8],
    at: usize,
    ended: bool,
}

impl<'a> Archive<'a> {
    /// The archive in `bytes`, of which nothing was read yet.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            ended: false,
        }
    }

    /// The next entry; `None` for the trailer.
    fn read(&mut self) -> Result<Option<Entry<'a>>, CpioError> {
        let start = self.at;
        let header = self.take(start, HEADER)?;
        if !header.starts_with(MAGIC) && !header.starts_with(MAGIC_CRC) {
            return Err(CpioError::Magic(start));
        }
        let number = |index| number(header, index).ok_or(CpioError::Number(start));
        let (mode, len, name_len) = (number(1)?, number(6)?, number(11)?);
        let (inode, owner, links) = (number(0)?, (number(2)?, number(3)?), number(4)?);
        let device = (number(9)?, number(10)?);
        let name = self.take(start, name_len as usize)?;
        let name = match name.split_last() {
            Some((0, name)) => core::str::from_utf8(name).map_err(|_| CpioError::Name(start))?,
            _ => return Err(CpioError::Name(start)),
        };
        if name.is_empty() || name.contains('\0') {
            return Err(CpioError::Name(start));
        }
        if name == TRAILER {
            return Ok(None);
        }
        self.align();
        let bytes = self.take(start, len as usize)?;
        self.align();
        Ok(Some(Entry {
            path: relative(name),
            mode,
            number: inode,
            links,
            owner,
            device,
            bytes,
        }))
    }

    /// The next `len` bytes, of the entry that begins at `start`.
    fn take(&mut self, start: usize, len: usize) -> Result<&'a [u8], CpioError> {
        let end = self.at.checked_add(len);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or(CpioError::Truncated(start))?;
        self.at += len;
        Ok(bytes)
    }

    /// Skips padding. That of the last entry may be missing.
    fn align(&mut self) {
        self.at = self.at.next_multiple_of(ALIGN);
    }
}

impl<'a> Iterator for Archive<'a> {
    type Item = Result<Entry<'a>, CpioError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let entry = self.read().transpose();
        self.ended = !matches!(entry, Some(Ok(_)));
        entry
    }
}

/// The number at `index` of a header.
fn number(header: &[u8], index: usize) -> Option<u32> {
    let digits = header.get(6 + 8 * index..14 + 8 * index)?;
    digits.iter().try_fold(0, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | digit)
    })
}

/// A path as it is kept: `/bin/a`, `./bin/a` and `bin/a` are the same.
fn relative(path: &str) -> &str {
    let mut path = path;
    while let Some(rest) = path.strip_prefix('/').or_else(|| path.strip_prefix("./")) {
        path = rest;
    }
    path
}
