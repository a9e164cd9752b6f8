//! The stack a program starts with, as the Linux ABI wants it.

use minflt_addr::VirtAddr;
use minflt_mm::{Errno, Mm, Place, Prot};

use crate::arch::paging::{PAGE, USER_END};
use crate::arch::uaccess;
use crate::linux::{AT_ENTRY, AT_NULL, AT_PAGESZ};
use crate::machine::Kernel;

/// Bytes of stack a program gets.
const SIZE: u64 = 1 << 20;
/// Bytes below the stack that stay unusable, so that running off it is a fault.
/// Linux: mm/mmap.c `stack_guard_gap`.
const GUARD: u64 = 256 * PAGE;
/// The most arguments, the program's name included. Linux: init/main.c `MAX_INIT_ARGS`.
const ARGUMENTS: usize = 32;
/// Words between the stack pointer and the strings, at most: the count, the arguments and their
/// zero, the environment's zero, three pairs.
const WORDS: usize = 1 + ARGUMENTS + 1 + 1 + 6;

/// The arguments of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    list: [&'static str; ARGUMENTS],
    count: usize,
}

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

    fn list(&self) -> &[&'static str] {
        &self.list[..self.count]
    }
}

/// Maps a stack in `mm`, which is active, and fills it; returns the stack pointer.
///
/// ```text
/// low   argc | argv[0] .. argv[argc-1] | 0 | 0 (no environment) | pairs .. AT_NULL | strings  end
///       ^ the stack pointer, a multiple of 16
/// ```
pub(crate) fn build(mm: &Mm<Kernel>, args: &Args, entry: u64) -> Result<u64, Errno> {
    let args = args.list();
    let end = USER_END;
    let map = |start, len, prot| mm.mmap(Place::FixedNoReplace(VirtAddr(start)), len, prot);
    map(end - SIZE, SIZE, Prot::READ_WRITE)?;
    map(end - SIZE - GUARD, GUARD, Prot::NONE)?;

    let mut words = Words {
        list: [0; WORDS],
        len: 0,
    };
    words.push(args.len() as u64);
    let mut string = end;
    for arg in args {
        string -= arg.len() as u64 + 1;
        // The byte after the string is zero already: the stack is fresh.
        uaccess::copy_to_user(string, arg.as_bytes())?;
        words.push(string);
    }
    for word in [0, 0, AT_PAGESZ, PAGE, AT_ENTRY, entry, AT_NULL, 0] {
        words.push(word);
    }

    let stack = (string - size_of_val(words.get()) as u64) & !15;
    for (index, word) in words.get().iter().enumerate() {
        uaccess::copy_to_user(stack + 8 * index as u64, &word.to_le_bytes())?;
    }
    Ok(stack)
}

/// A list of words with a bound.
struct Words {
    list: [u64; WORDS],
    len: usize,
}

impl Words {
    fn push(&mut self, word: u64) {
        self.list[self.len] = word;
        self.len += 1;
    }

    fn get(&self) -> &[u64] {
        &self.list[..self.len]
    }
}
