//! The stack a program starts with, as the Linux ABI wants it.
//!
//! ```text
//! low   argc | argv.. | 0 | envp.. | 0 | pairs .. AT_NULL | random | strings | path | 0   end
//!       ^ the stack pointer, a multiple of 16
//! ```
//! It is written into a new address space, page by page, over a buffer.
//!
//! All of the stack that there may be is mapped from the start; Linux lets it grow, so that its
//! mapping shows what was used.

use linux_raw_sys::auxvec::{
    AT_BASE, AT_CLKTCK, AT_EGID, AT_ENTRY, AT_EUID, AT_EXECFN, AT_FLAGS, AT_GID, AT_HWCAP, AT_NULL,
    AT_PAGESZ, AT_PHDR, AT_PHENT, AT_PHNUM, AT_RANDOM, AT_SECURE, AT_UID,
};
use minflt_addr::VirtAddr;
use minflt_mm::{Errno, Force, MapRequest, Mm, Place, Prot, Reserve};

use crate::arch::paging::{PAGE, USER_END};
use crate::arch::uaccess;
use crate::fs::device;
use crate::fs::path::Buffer;
use crate::linux::{E2BIG, EFAULT, EINTR};
use crate::loader::{Loaded, SEGMENT};
use crate::machine::Kernel;
use crate::user;
use crate::user::creds::Creds;

/// Bytes of stack a program gets. Linux: `_STK_LIM`.
const SIZE: u64 = 8 << 20;
/// Bytes below the stack that stay unusable, so that running off it is a fault.
/// Linux: mm/mmap.c `stack_guard_gap`.
const GUARD: u64 = 256 * PAGE;
/// The most bytes of arguments and environment, with the words that point to them. Linux: a quarter
/// of the stack.
const MOST_BYTES: u64 = SIZE / 4;
/// The most bytes of one string. Linux: `MAX_ARG_STRLEN`.
const MOST_OF_STRING: u64 = 32 * PAGE;
/// The most arguments that the kernel's command line has. Linux: init/main.c `MAX_INIT_ARGS`.
const ARGUMENTS: usize = 32;

/// The arguments of the program that the kernel starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    list: [&'static str; ARGUMENTS],
    count: usize,
}

/// The environment of the program that the kernel starts, as Linux gives it to its own.
const ENVIRONMENT: [&str; 3] = ["HOME=/", "TERM=linux", "PATH=/sbin:/usr/sbin:/bin:/usr/bin"];

impl Args {
    /// The most there may be.
    pub(crate) const MOST: usize = ARGUMENTS;

    /// These, or `None` if they are too many.
    pub(crate) fn new(args: impl IntoIterator<Item = &'static str>) -> Option<Self> {
        let mut list = [""; ARGUMENTS];
        let mut count = 0;
        for arg in args {
            *list.get_mut(count)? = arg;
            count += 1;
        }
        Some(Self { list, count })
    }

    /// The first: the program's path.
    pub(crate) const fn path(&self) -> &'static str {
        self.list[0]
    }
}

/// Where strings come from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Strings<'s> {
    /// The kernel's.
    Kernel(&'s [&'s str]),
    /// A list of pointers in the caller's memory that ends with 0; 0 is an empty one.
    Program(u64),
    /// A script's: what stands for its name, and then the caller's but for its name.
    Script(&'s [&'s [u8]], u64),
}

impl Strings<'_> {
    /// How many there are.
    fn count(self) -> Result<u64, Errno> {
        let of_program = |at: u64| {
            let mut count = 0;
            while at != 0 && uaccess::load(word(at, count)?)? != 0 {
                count += 1;
                if 8 * count > MOST_BYTES {
                    return Err(E2BIG);
                }
            }
            Ok(count)
        };
        match self {
            Self::Kernel(list) => Ok(list.len() as u64),
            Self::Program(at) => of_program(at),
            Self::Script(list, at) => Ok(list.len() as u64 + of_program(at)?.saturating_sub(1)),
        }
    }

    /// Copies string `index` to where it ends before `end`, with its zero; where it begins.
    fn put(self, index: u64, stack: &mut Writer<'_>, end: u64) -> Result<u64, Errno> {
        match self {
            Self::Kernel(list) => stack.put_string(list[index as usize].as_bytes(), end),
            Self::Program(at) => stack.put_from_program(uaccess::load(word(at, index)?)?, end),
            Self::Script(list, at) => match list.get(index as usize) {
                Some(bytes) => stack.put_string(bytes, end),
                None => {
                    let index = index - list.len() as u64 + 1;
                    stack.put_from_program(uaccess::load(word(at, index)?)?, end)
                }
            },
        }
    }
}

fn word(at: u64, index: u64) -> Result<u64, Errno> {
    at.checked_add(8 * index).ok_or(EFAULT)
}

/// A stack that is being written.
struct Writer<'m> {
    mm: &'m Mm<Kernel>,
    buffer: Buffer,
    /// Nothing is to be written below.
    lowest: u64,
}

impl Writer<'_> {
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        if at < self.lowest {
            return Err(E2BIG);
        }
        match self.mm.remote_write(VirtAddr(at), bytes, Force::No) {
            Ok(written) if written == bytes.len() => Ok(()),
            _ => Err(Errno::ENOMEM),
        }
    }

    /// The byte behind is zero already: the stack is fresh.
    fn put_string(&self, bytes: &[u8], end: u64) -> Result<u64, Errno> {
        let start = end - bytes.len() as u64 - 1;
        self.write(start, bytes)?;
        Ok(start)
    }

    fn put_from_program(&mut self, from: u64, end: u64) -> Result<u64, Errno> {
        // Short ones, which most are, are copied once.
        let first = uaccess::copy_string(self.buffer.bytes(), from)?;
        if let Some(len) = first {
            let start = end - len as u64 - 1;
            if start < self.lowest {
                return Err(E2BIG);
            }
            let bytes = &self.buffer.bytes()[..len];
            return match self.mm.remote_write(VirtAddr(start), bytes, Force::No) {
                Ok(written) if written == len => Ok(start),
                _ if len == 0 => Ok(start),
                _ => Err(Errno::ENOMEM),
            };
        }
        let mut len = PAGE;
        loop {
            match uaccess::copy_string(self.buffer.bytes(), from.checked_add(len).ok_or(EFAULT)?)? {
                Some(rest) => {
                    len += rest as u64;
                    break;
                }
                None => len += PAGE,
            }
            if len > MOST_OF_STRING {
                return Err(E2BIG);
            }
        }
        let start = end - len - 1;
        let mut done = 0;
        while done < len {
            let part = (len - done).min(PAGE);
            if start < self.lowest {
                return Err(E2BIG);
            }
            let bytes = &mut self.buffer.bytes()[..part as usize];
            uaccess::copy_from_user(bytes, from + done)?;
            let written = self
                .mm
                .remote_write(VirtAddr(start + done), bytes, Force::No);
            if written != Ok(part as usize) {
                return Err(Errno::ENOMEM);
            }
            done += part;
        }
        Ok(start)
    }
}

/// Where the parts of a stack are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Built {
    /// The stack pointer.
    pub(crate) pointer: u64,
    /// The strings of the arguments.
    pub(crate) arguments: [u64; 2],
    /// Those of the environment.
    pub(crate) environment: [u64; 2],
}

/// Words that are written upwards, a page at a time.
struct Words<'w, 'm> {
    stack: &'w mut Writer<'m>,
    room: [u8; 512],
    len: usize,
    at: u64,
}

impl Words<'_, '_> {
    fn push(&mut self, word: u64) -> Result<(), Errno> {
        self.room[self.len..self.len + 8].copy_from_slice(&word.to_le_bytes());
        self.len += 8;
        if self.len == self.room.len() {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.stack.write(self.at, &self.room[..self.len])?;
        self.at += self.len as u64;
        self.len = 0;
        Ok(())
    }
}

/// Maps a stack in `mm`, a new address space, and fills it.
pub(crate) fn build(
    mm: &Mm<Kernel>,
    path: &[u8],
    arguments: Strings<'_>,
    environment: Strings<'_>,
    loaded: Loaded,
    creds: Creds,
) -> Result<Built, Errno> {
    let end = USER_END;
    let mut request = MapRequest::new(
        Place::FixedNoReplace(VirtAddr(end - SIZE)),
        SIZE,
        Prot::READ_WRITE,
    );
    request.reserve = Reserve::NoReserve;
    mm.mmap_as(&request)?;
    let guard = Place::FixedNoReplace(VirtAddr(end - SIZE - GUARD));
    mm.mmap(guard, GUARD, Prot::NONE)?;

    let (count, variables) = (arguments.count()?, environment.count()?);
    // The pointers, and the pairs.
    let words = 8 * (count + variables + 64);
    let lowest = (end - MOST_BYTES).checked_add(words).filter(|at| *at < end);
    let mut stack = Writer {
        mm,
        buffer: Buffer::new()?,
        lowest: lowest.ok_or(E2BIG)?,
    };
    // The last word stays zero.
    let path_at = stack.put_string(path, end - 8)?;
    // The strings come first, and then, below them, the words that point to them: so how long the
    // strings are is to be known. They are walked downwards, and once more for the pointers.
    let mut at = path_at;
    let environment_end = at;
    for index in (0..variables).rev() {
        at = environment.put(index, &mut stack, at)?;
        check_goes_on()?;
    }
    let arguments_end = at;
    for index in (0..count).rev() {
        at = arguments.put(index, &mut stack, at)?;
        check_goes_on()?;
    }
    let strings = at;
    let mut random = [0; 16];
    device::random(&mut random);
    let random_at = (strings - 16) & !15;
    stack.lowest = end - SIZE;
    stack.write(random_at, &random)?;

    let pairs = pairs(path_at, random_at, loaded, creds);
    let words = 1 + count + 1 + variables + 1 + 2 * pairs.len() as u64;
    let pointer = (random_at - 8 * words) & !15;
    let mut words = Words {
        stack: &mut stack,
        room: [0; 512],
        len: 0,
        at: pointer,
    };
    words.push(count)?;
    let mut at = strings;
    for of in [count, variables] {
        for _ in 0..of {
            words.push(at)?;
            at = string_end(mm, at)?;
            check_goes_on()?;
        }
        words.push(0)?;
    }
    for (what, value) in pairs {
        words.push(u64::from(what))?;
        words.push(value)?;
    }
    words.flush()?;
    Ok(Built {
        pointer,
        arguments: [strings, arguments_end],
        environment: [arguments_end, environment_end],
    })
}

/// What the program is told besides: the auxiliary vector.
fn pairs(path: u64, random: u64, loaded: Loaded, creds: Creds) -> [(u32, u64); 17] {
    [
        (AT_HWCAP, u64::from(core::arch::x86_64::__cpuid(1).edx)),
        (AT_PAGESZ, PAGE),
        (AT_CLKTCK, 100),
        (AT_PHDR, loaded.segments.0),
        (AT_PHENT, SEGMENT as u64),
        (AT_PHNUM, loaded.segments.1),
        (AT_BASE, 0),
        (AT_FLAGS, 0),
        (AT_ENTRY, loaded.entry),
        (AT_UID, u64::from(creds.real_uid)),
        (AT_EUID, u64::from(creds.uid)),
        (AT_GID, u64::from(creds.real_gid)),
        (AT_EGID, u64::from(creds.gid)),
        (
            AT_SECURE,
            u64::from(creds.uid != creds.real_uid || creds.gid != creds.real_gid),
        ),
        (AT_RANDOM, random),
        (AT_EXECFN, path),
        (AT_NULL, 0),
    ]
}

/// Others get their turn between two of many arguments; an error if the process ends.
fn check_goes_on() -> Result<(), Errno> {
    if user::may_go_on() {
        Ok(())
    } else {
        Err(EINTR)
    }
}

/// Where the string at `at` ends, behind its zero.
fn string_end(mm: &Mm<Kernel>, at: u64) -> Result<u64, Errno> {
    let mut at = at;
    loop {
        let mut bytes = [0; 64];
        let part = bytes.len().min((USER_END - at) as usize);
        let read = mm.remote_read(VirtAddr(at), &mut bytes[..part], Force::No);
        let read = read.map_err(|_| Errno::ENOMEM)?;
        match bytes[..read].iter().position(|byte| *byte == 0) {
            Some(len) => return Ok(at + len as u64 + 1),
            None => at += read as u64,
        }
    }
}

impl Args {
    /// As strings, with the environment.
    pub(crate) fn strings(&self) -> (Strings<'_>, Strings<'static>) {
        (
            Strings::Kernel(&self.list[..self.count]),
            Strings::Kernel(&ENVIRONMENT),
        )
    }
}
