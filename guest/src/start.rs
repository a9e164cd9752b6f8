//! The stack a program finds: argument count, arguments, environment, auxiliary vector.

use core::ffi::{CStr, c_char};
use core::ptr;

use crate::Sys;

/// `AT_PAGESZ`: the auxiliary-vector key of the page size.
const AT_PAGESZ: u64 = 6;
/// `AT_NULL`: the end of the auxiliary vector.
const AT_NULL: u64 = 0;

/// The arguments and the auxiliary vector of the running program.
///
/// # Invariants
/// `stack` is the stack pointer at exec, laid out as the Linux ABI says, and nothing writes there.
#[derive(Clone, Copy, Debug)]
pub struct Args {
    stack: *const u64,
}

impl Args {
    /// The number of arguments, the program's name included.
    #[must_use]
    pub fn count(self) -> usize {
        self.word(0) as usize
    }

    /// The argument at `index`, or `None` past the end or if it is not UTF-8.
    #[must_use]
    pub fn get(self, index: usize) -> Option<&'static str> {
        if index >= self.count() {
            return None;
        }
        let text = ptr::with_exposed_provenance::<c_char>(self.word(1 + index) as usize);
        // SAFETY: (1) by the type invariant the word is the address of a string that ends in a
        // zero byte and lives, unwritten, as long as the program.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_str().ok()
    }

    /// The address of the list of arguments from `index` on, which a zero word ends; `None` past
    /// its end.
    #[must_use]
    pub fn addr(self, index: usize) -> Option<u64> {
        let at = self.stack.expose_provenance() + (1 + index) * size_of::<u64>();
        (index < self.count()).then_some(at as u64)
    }

    /// The page size the kernel told, or `None` if it told none.
    #[must_use]
    pub fn page_size(self) -> Option<u64> {
        self.auxiliary(AT_PAGESZ)
    }

    /// The auxiliary vector's value for `key`.
    fn auxiliary(self, key: u64) -> Option<u64> {
        // The environment begins after the arguments and their zero; the vector, after its zero.
        let mut at = 2 + self.count();
        while self.word(at) != 0 {
            at += 1;
        }
        at += 1;
        loop {
            match self.word(at) {
                AT_NULL => return None,
                found if found == key => return Some(self.word(at + 1)),
                _ => at += 2,
            }
        }
    }

    /// The word at `index` above the first stack pointer.
    fn word(self, index: usize) -> u64 {
        // SAFETY: (1) callers stay within the words the ABI places at `stack`, see the invariant.
        let at = unsafe { self.stack.add(index) };
        // SAFETY: (1) as above: the word is initialised; (2) words on the stack are aligned.
        unsafe { at.read() }
    }
}

/// Runs `main` and exits with its result.
///
/// # Safety
/// 1. `stack` is the stack pointer the kernel set at exec, and nothing was written above it.
pub unsafe fn start(stack: *const u64, main: fn(Args) -> i32) -> ! {
    // INVARIANT: (1) the caller's promise.
    Sys::exit(main(Args { stack }))
}
