//! What a step came to, and what the address space looked like afterwards.

use crate::step::{FILE, Step};
use crate::window::{HUGE, HUGE_START, PAGE, PAGES, START, Window, page_of};
use core::fmt;
use minflt_spec::Flags;

/// What a step returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// A value, and what the call wrote beside it.
    Done(u64, [u64; 2]),
    /// An error number.
    Errno(i32),
    /// `SIGSEGV` with this code, or another signal (its number times 256).
    Signal(i32),
}

/// `SEGV_MAPERR`.
pub const MAPERR: i32 = 1;
/// `SEGV_ACCERR`.
pub const ACCERR: i32 = 2;
/// `SIGBUS`, `BUS_ADRERR`.
pub const ADRERR: i32 = 7 << 8 | 2;

impl Outcome {
    /// A call that returned a number.
    #[must_use]
    pub const fn done(value: u64) -> Self {
        Self::Done(value, [0; 2])
    }

    /// What it was, without values: `ok`, or the name of the error.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Done(..) => "ok".to_owned(),
            Self::Errno(errno) => errno_name(*errno),
            Self::Signal(MAPERR) => "SEGV_MAPERR".to_owned(),
            Self::Signal(ACCERR) => "SEGV_ACCERR".to_owned(),
            Self::Signal(ADRERR) => "BUS_ADRERR".to_owned(),
            Self::Signal(code) => format!("signal {code}"),
        }
    }
}

fn errno_name(errno: i32) -> String {
    let names = [
        (1, "EPERM"),
        (2, "ENOENT"),
        (5, "EIO"),
        (9, "EBADF"),
        (11, "EAGAIN"),
        (12, "ENOMEM"),
        (13, "EACCES"),
        (14, "EFAULT"),
        (16, "EBUSY"),
        (17, "EEXIST"),
        (22, "EINVAL"),
        (27, "EFBIG"),
        (28, "ENOSPC"),
        (95, "EOPNOTSUPP"),
    ];
    let named = names.iter().find(|(number, _)| *number == errno);
    named.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(value, [0, 0]) => write!(f, "{value:#x}"),
            Self::Done(value, [low, high]) => write!(f, "{value:#x} {high:x}:{low:x}"),
            _ => f.write_str(&self.word()),
        }
    }
}

/// A line of the maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapLine {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Read, write, execute, shared: bits 0, 1, 2, 3.
    pub rights: u64,
    /// Of what: 0 for private anonymous memory, 1 and 2 for the files, 3 for shared anonymous
    /// memory and huge pages without a file, 4 for the file of huge pages.
    pub of: u64,
    /// The offset in the file, in bytes.
    pub offset: u64,
}

/// [`MapLine::of`] of shared anonymous memory.
pub const SHARED_ANONYMOUS: u64 = crate::files::FILES as u64 + 1;
/// [`MapLine::of`] of the file of huge pages.
pub const HUGE_FILE: u64 = SHARED_ANONYMOUS + 1;

impl fmt::Display for MapLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |bit, letter| if self.rights & bit != 0 { letter } else { '-' };
        if Window::Huge.has(self.start) {
            let page = |addr| (addr - HUGE_START) / HUGE;
            write!(f, "@h{}..@h{} ", page(self.start), page(self.end))?;
        } else {
            write!(f, "@{}..@{} ", page_of(self.start), page_of(self.end))?;
        }
        write!(f, "{}{}{}", letter(1, 'r'), letter(2, 'w'), letter(4, 'x'))?;
        let shared = if self.rights & 8 != 0 { 's' } else { 'p' };
        write!(f, "{shared}")?;
        match self.of {
            0 => Ok(()),
            HUGE_FILE => write!(f, " huge+{:#x}", self.offset),
            SHARED_ANONYMOUS => write!(f, " anonymous+{:#x}", self.offset),
            file => {
                let (name, _) = FILE.names[file as usize - 1];
                write!(f, " {name}+{:#x}", self.offset)
            }
        }
    }
}

/// What the window looks like.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Snapshot {
    /// Its mappings.
    pub maps: Vec<MapLine>,
    /// Which pages of private memory are present: a bit each. None where the subject cannot tell.
    pub present: Option<[u64; 2]>,
    /// Their words that are not zero, by twice the page, and one more for the second half.
    pub words: Vec<(u64, u64)>,
    /// The words of pages that are the files': in the model of all, else of those that are present.
    pub of_files: Vec<(u64, u64)>,
    /// The files, where the subject was asked.
    pub files: Option<Vec<FileShot>>,
    /// Huge pages that are free, and those of them that are reserved.
    pub pool: Option<[u64; 2]>,
    /// The mappings' flags as `smaps` prints them, where the subject was asked.
    pub flags: Option<Vec<String>>,
}

/// What a file holds.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct FileShot {
    /// How long it is.
    pub bytes: u64,
    /// Its words, up to its end; two for each page. Of a file of huge pages those that are not
    /// zero, each behind its place.
    pub words: Vec<u64>,
}

/// What a step came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// What it returned.
    pub outcome: Outcome,
    /// What the window looks like.
    pub after: Snapshot,
}

/// Pages as bits.
#[must_use]
pub fn bits(pages: impl IntoIterator<Item = u64>) -> [u64; 2] {
    let mut set = [0; 2];
    for page in pages.into_iter().filter(|page| *page < PAGES) {
        set[page as usize / 64] |= 1 << (page % 64);
    }
    set
}

/// Two records that differ, or one that lacks what the other has: in words.
#[must_use]
pub fn difference(expected: &Record, found: &Record) -> Option<String> {
    if expected.outcome != found.outcome {
        return Some(format!("{} instead of {}", found.outcome, expected.outcome));
    }
    let (before, after) = (&expected.after, &found.after);
    if before.maps != after.maps {
        let list = |maps: &[MapLine]| {
            let lines: Vec<String> = maps.iter().map(ToString::to_string).collect();
            lines.join(", ")
        };
        let (found, expected) = (list(&after.maps), list(&before.maps));
        return Some(format!("maps [{found}] instead of [{expected}]"));
    }
    if let (Some(expected), Some(found)) = (before.present, after.present)
        && expected != found
    {
        let which = |word: usize| {
            let differ = expected[word] ^ found[word];
            (0..64)
                .filter(move |bit| differ >> bit & 1 != 0)
                .map(move |bit| (word, bit))
        };
        let pages: Vec<String> = (0..2)
            .flat_map(which)
            .map(|(word, bit)| {
                let has = found[word] >> bit & 1 != 0;
                let page = word * 64 + bit;
                format!("@{page} {}", if has { "present" } else { "absent" })
            })
            .collect();
        return Some(format!("pages: {}", pages.join(", ")));
    }
    if before.pool != after.pool {
        let (found, expected) = (after.pool, before.pool);
        return Some(format!(
            "huge pages [free, reserved] {found:?} instead of {expected:?}"
        ));
    }
    if before.words != after.words {
        return Some(format!(
            "contents {:x?} instead of {:x?}",
            after.words, before.words
        ));
    }
    // Which pages of files are there hangs on what was near; but what is there must be right.
    let wrong = |seen: &&(u64, u64)| before.of_files.binary_search(seen).is_err();
    if let Some((at, word)) = after.of_files.iter().find(wrong) {
        let (page, half) = (at / 2, at % 2);
        return Some(format!("page @{page} of a file, half {half}: {word:#x}"));
    }
    if let (Some(expected), Some(found)) = (&before.files, &after.files)
        && expected != found
    {
        return Some(format!("files {found:x?} instead of {expected:x?}"));
    }
    match (&before.flags, &after.flags) {
        (Some(expected), Some(found)) if expected != found => {
            Some(format!("flags {found:?} instead of {expected:?}"))
        }
        _ => None,
    }
}

/// What runs steps: each case in a fresh address space with an empty window.
pub trait Subject {
    /// What to call it.
    fn name(&self) -> String;

    /// Whether it runs cases of huge pages.
    fn has_huge_pages(&self) -> bool {
        true
    }

    /// Runs all steps; a record for each.
    ///
    /// # Errors
    /// When the subject broke down, in words, with the records it had made.
    fn run(&mut self, steps: &[Step]) -> Result<Vec<Record>, (String, usize)>;
}

/// The address of a page of the window.
#[must_use]
pub const fn addr_of(page: u64) -> u64 {
    START + page * PAGE
}

/// The flags that the model knows, of each mapping of the window, out of the
/// text of `smaps`.
pub(crate) fn smaps_flags(smaps: &str, window: Window) -> Vec<String> {
    let mut inside = false;
    let mut flags = Vec::new();
    for line in smaps.lines() {
        if let Some(set) = line.strip_prefix("VmFlags:") {
            if inside {
                let has = |letters: &str| set.split_whitespace().any(|word| word == letters);
                let known = Flags::LETTERS.iter().map(|(_, letters)| *letters);
                let known: Vec<&str> = known.filter(|letters| has(letters)).collect();
                flags.push(known.join(" "));
            }
        } else if let Some((start, rest)) = line.split_once('-')
            && let Ok(start) = u64::from_str_radix(start, 16)
            && rest.contains(' ')
        {
            inside = window.has(start);
        }
    }
    flags
}
