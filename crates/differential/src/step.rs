//! A step: one call or access, as a short line of text that can be replayed.
//!
//! ```text
//! mmap @12 3p READ|WRITE PRIVATE|ANONYMOUS|FIXED
//! store @13 7
//! fork 2
//! load @13
//! mmap_file @4 2p READ SHARED|FIXED disk 1p
//! ```
//!
//! `@12` is page 12 of the window, `@12+0x8` lies within it, `3p` is three pages; other addresses
//! and lengths are in hexadecimal. `@h3` and `2h` are the same of the window of huge pages. The
//! files are those of [`crate::files`].

mod names;

use crate::window::{HUGE, HUGE_END, HUGE_START, PAGE, PAGES, START};
use core::fmt;
use core::str::FromStr;
use minflt_spec::abi::PROT_EXEC;
pub use names::*;

/// Arguments of the call with the most.
pub const ARGS: usize = 6;

/// What is called or done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "Linux's names say it")]
#[repr(u8)]
pub enum Call {
    Mmap,
    Munmap,
    Mprotect,
    Mremap,
    Madvise,
    Mlock,
    Mlock2,
    Munlock,
    Mlockall,
    Munlockall,
    Mincore,
    Brk,
    Mbind,
    SetMempolicy,
    GetMempolicy,
    /// `RLIMIT_MEMLOCK`, in bytes.
    LimitMemlock,
    /// `RLIMIT_AS`: pages beside what the process has anyway.
    LimitAs,
    Load,
    Store,
    /// Reads as another process does (`process_vm_readv`).
    RemoteRead,
    /// Writes as another process does (`process_vm_writev`).
    RemoteWrite,
    /// Reads as a debugger does (`/proc/pid/mem`).
    ForcedRead,
    /// Writes as a debugger does (`/proc/pid/mem`).
    ForcedWrite,
    /// Forks; so many of the steps that follow are the child's, which exits then.
    Fork,
    /// mmap of a file: also which, and from where on.
    MmapFile,
    Msync,
    Ftruncate,
    Fallocate,
    Pread,
    Pwrite,
    /// The one userfaultfd of a case (`UFFDIO_REGISTER`, and so on): who touches what it watches
    /// gets a signal.
    UffdRegister,
    UffdUnregister,
    UffdCopy,
    UffdZeropage,
    UffdWriteprotect,
    /// mmap of huge pages (`MAP_HUGETLB`).
    HugeMmap,
    /// mmap of the file of huge pages: also from where on.
    HugeMmapFile,
    HugeFtruncate,
    HugeFallocate,
    HugePread,
}

/// A call with its arguments; those it does not have are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What.
    pub call: Call,
    /// With what.
    pub args: [u64; ARGS],
}

/// What an argument is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An address.
    Addr,
    /// A length in bytes.
    Len,
    /// A number.
    Number,
    /// A set of these names.
    Set(&'static Names),
    /// One of these names.
    One(&'static Names),
}

use Kind::{Addr, Len, Number, One, Set};

/// Every call, with the name it has in text and the kinds of its arguments.
pub const CALLS: &[(Call, &str, &[Kind])] = &[
    (Call::Mmap, "mmap", &[Addr, Len, Set(&PROT), Set(&MAP)]),
    (Call::Munmap, "munmap", &[Addr, Len]),
    (Call::Mprotect, "mprotect", &[Addr, Len, Set(&PROT)]),
    (Call::Mremap, "mremap", &[Addr, Len, Len, Set(&REMAP), Addr]),
    (Call::Madvise, "madvise", &[Addr, Len, One(&ADVICE)]),
    (Call::Mlock, "mlock", &[Addr, Len]),
    (Call::Mlock2, "mlock2", &[Addr, Len, Set(&LOCK2)]),
    (Call::Munlock, "munlock", &[Addr, Len]),
    (Call::Mlockall, "mlockall", &[Set(&LOCKALL)]),
    (Call::Munlockall, "munlockall", &[]),
    (Call::Mincore, "mincore", &[Addr, Len]),
    (Call::Brk, "brk", &[Addr]),
    (
        Call::Mbind,
        "mbind",
        &[Addr, Len, One(&MODE), Number, Set(&BIND)],
    ),
    (Call::SetMempolicy, "set_mempolicy", &[One(&MODE), Number]),
    (Call::GetMempolicy, "get_mempolicy", &[Addr, Set(&GET)]),
    (Call::LimitMemlock, "limit_memlock", &[Len]),
    (Call::LimitAs, "limit_as", &[Number]),
    (Call::Load, "load", &[Addr]),
    (Call::Store, "store", &[Addr, Number]),
    (Call::RemoteRead, "remote_read", &[Addr, Len]),
    (Call::RemoteWrite, "remote_write", &[Addr, Len, Number]),
    (Call::ForcedRead, "forced_read", &[Addr]),
    (Call::ForcedWrite, "forced_write", &[Addr, Number]),
    (Call::Fork, "fork", &[Number]),
    (
        Call::MmapFile,
        "mmap_file",
        &[Addr, Len, Set(&PROT), Set(&MAP), One(&FILE), Len],
    ),
    (Call::Msync, "msync", &[Addr, Len, Set(&SYNC)]),
    (Call::Ftruncate, "ftruncate", &[One(&FILE), Len]),
    (
        Call::Fallocate,
        "fallocate",
        &[One(&FILE), Set(&FALLOC), Len, Len],
    ),
    (Call::Pread, "pread", &[One(&FILE), Len]),
    (Call::Pwrite, "pwrite", &[One(&FILE), Len, Number]),
    (
        Call::UffdRegister,
        "uffd_register",
        &[Addr, Len, Set(&WATCH)],
    ),
    (Call::UffdUnregister, "uffd_unregister", &[Addr, Len]),
    (
        Call::UffdCopy,
        "uffd_copy",
        &[Addr, Len, Number, Set(&COPY)],
    ),
    (
        Call::UffdZeropage,
        "uffd_zeropage",
        &[Addr, Len, Set(&ZEROPAGE)],
    ),
    (
        Call::UffdWriteprotect,
        "uffd_writeprotect",
        &[Addr, Len, Set(&WRITEPROTECT)],
    ),
    (
        Call::HugeMmap,
        "huge_mmap",
        &[Addr, Len, Set(&PROT), Set(&MAP)],
    ),
    (
        Call::HugeMmapFile,
        "huge_mmap_file",
        &[Addr, Len, Set(&PROT), Set(&MAP), Len],
    ),
    (Call::HugeFtruncate, "huge_ftruncate", &[Len]),
    (
        Call::HugeFallocate,
        "huge_fallocate",
        &[Set(&FALLOC), Len, Len],
    ),
    (Call::HugePread, "huge_pread", &[Len]),
];

impl Call {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        CALLS[self as usize].1
    }

    /// What its arguments are.
    #[must_use]
    pub fn kinds(self) -> &'static [Kind] {
        CALLS[self as usize].2
    }

    /// Whether it is told the userfaultfd, which is the first process's.
    #[must_use]
    pub fn is_of_userfaultfd(self) -> bool {
        (Self::UffdRegister as u8..=Self::UffdWriteprotect as u8).contains(&(self as u8))
    }

    /// Whether it is of huge pages, whatever its arguments.
    #[must_use]
    pub const fn is_of_huge_pages(self) -> bool {
        self as u8 >= Self::HugeMmap as u8
    }

    /// The call with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        let index = usize::try_from(number).ok()?;
        CALLS.get(index).map(|(call, ..)| *call)
    }
}

impl Step {
    /// A call with these arguments; those it does not have are left out.
    #[must_use]
    pub fn new(call: Call, given: &[u64]) -> Self {
        let mut args = [0; ARGS];
        for (arg, given) in args.iter_mut().zip(given).take(call.kinds().len()) {
            *arg = *given;
        }
        Self { call, args }
    }

    /// Whether it is of huge pages: by its call, or an address of it.
    #[must_use]
    pub fn is_of_huge_pages(&self) -> bool {
        let mut at = self.call.kinds().iter().zip(self.args);
        let in_window = |(kind, arg): (&Kind, u64)| {
            matches!(kind, Addr) && (HUGE_START..=HUGE_END).contains(&arg)
        };
        self.call.is_of_huge_pages() || at.any(in_window)
    }

    /// Whether it asks for `PROT_EXEC` alone, for pages that are not huge.
    #[must_use]
    pub fn is_exec_alone(&self) -> bool {
        let asks = matches!(self.call, Call::Mmap | Call::MmapFile | Call::Mprotect);
        asks && self.args[2] & 7 == PROT_EXEC && !self.is_of_huge_pages()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.call.name())?;
        for (kind, arg) in self.call.kinds().iter().zip(self.args) {
            f.write_str(" ")?;
            match kind {
                Addr => show_addr(f, arg),
                Len if arg != 0 && arg.is_multiple_of(HUGE) && arg < 1 << 40 => {
                    write!(f, "{}h", arg / HUGE)
                }
                Len if arg != 0 && arg.is_multiple_of(PAGE) && arg < 1 << 40 => {
                    write!(f, "{}p", arg / PAGE)
                }
                Len => write!(f, "{arg:#x}"),
                Number => write!(f, "{arg}"),
                Set(set) => show_set(f, set.names, arg),
                One(one) => match one.names.iter().find(|(_, value)| *value == arg) {
                    Some((name, _)) => f.write_str(name),
                    None => write!(f, "{arg:#x}"),
                },
            }?;
        }
        Ok(())
    }
}

fn show_addr(f: &mut fmt::Formatter<'_>, addr: u64) -> fmt::Result {
    if (HUGE_START..=HUGE_END).contains(&addr) {
        let offset = addr - HUGE_START;
        return match offset % HUGE {
            0 => write!(f, "@h{}", offset / HUGE),
            within => write!(f, "@h{}+{within:#x}", offset / HUGE),
        };
    }
    let offset = addr.wrapping_sub(START);
    if offset > PAGES * PAGE {
        return write!(f, "{addr:#x}");
    }
    match offset % PAGE {
        0 => write!(f, "@{}", offset / PAGE),
        within => write!(f, "@{}+{within:#x}", offset / PAGE),
    }
}

fn show_set(f: &mut fmt::Formatter<'_>, names: &[(&str, u64)], set: u64) -> fmt::Result {
    let mut rest = set;
    let mut first = true;
    for (name, bit) in names {
        if set & bit != 0 {
            let bar = if first { "" } else { "|" };
            write!(f, "{bar}{name}")?;
            first = false;
            rest &= !bit;
        }
    }
    match (first, rest) {
        (false, 0) => Ok(()),
        (true, rest) => write!(f, "{rest:#x}"),
        (false, rest) => write!(f, "|{rest:#x}"),
    }
}

/// A line that is no step, and what is wrong with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotAStep(pub String);

impl fmt::Display for NotAStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for NotAStep {}

impl FromStr for Step {
    type Err = NotAStep;

    fn from_str(line: &str) -> Result<Self, NotAStep> {
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let known = CALLS.iter().find(|(_, known, _)| *known == name);
        let (call, _, kinds) = known.ok_or_else(|| NotAStep(format!("no call `{name}`")))?;
        let mut args = [0; ARGS];
        for (arg, kind) in args.iter_mut().zip(*kinds) {
            let word = words.next();
            let word = word.ok_or_else(|| NotAStep(format!("`{line}` lacks arguments")))?;
            let value = match kind {
                Addr => read_addr(word),
                Len => match (word.strip_suffix('p'), word.strip_suffix('h')) {
                    (Some(pages), _) => number(pages).map(|pages| pages * PAGE),
                    (_, Some(pages)) => number(pages).map(|pages| pages * HUGE),
                    _ => number(word),
                },
                Number => number(word),
                Set(set) => word.split('|').try_fold(0, |sum, part| {
                    let named = set.names.iter().find(|(name, _)| *name == part);
                    Some(sum | named.map_or_else(|| number(part), |(_, bit)| Some(*bit))?)
                }),
                One(one) => {
                    let named = one.names.iter().find(|(name, _)| *name == word);
                    named.map_or_else(|| number(word), |(_, value)| Some(*value))
                }
            };
            *arg = value.ok_or_else(|| NotAStep(format!("`{word}` in `{line}`")))?;
        }
        Ok(Self { call: *call, args })
    }
}

fn read_addr(word: &str) -> Option<u64> {
    let Some(place) = word.strip_prefix('@') else {
        return number(word);
    };
    if let Some(place) = place.strip_prefix('h') {
        let (page, within) = place.split_once('+').unwrap_or((place, "0"));
        return Some(HUGE_START + number(page)? * HUGE + number(within)?);
    }
    let (page, within) = place.split_once('+').unwrap_or((place, "0"));
    Some(START + number(page)? * PAGE + number(within)?)
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

/// The steps of a text, a line each; lines that are empty or begin with `#` are left out.
///
/// # Errors
/// The first line that is no step.
pub fn read_steps(text: &str) -> Result<Vec<Step>, NotAStep> {
    let lines = text.lines().map(str::trim);
    let steps = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    steps.map(str::parse).collect()
}

/// The text of some steps, a line each.
#[must_use]
pub fn show_steps(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("{step}\n")).collect()
}
