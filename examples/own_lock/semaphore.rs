//! The VMA's lock of Linux 6.4, by the four steps of a mode that an embedder brings.
//!
//! The words: [`Word::Users`] counts the faults inside and says which writer waits for them;
//! [`Word::Mark`] is [`Word::Space`] while the mapping is shut, so that one step reopens all.
//!
//! # Why it is correct
//! A fault counts itself in, then asks whether the mapping is shut. A writer says that it waits,
//! waits until nobody is counted, and shuts. So a fault that was counted in before is waited for,
//! and one that comes after finds the writer's bit, or the mark. Numbers only grow, so a mapping
//! that was reopened is not shut by an old mark.
//!
//! Linux: vma_start_read, vma_end_read, vma_start_write, vma_end_write_all
//! (include/linux/mm.h, v6.4).

use minflt_mm::{VmaLockOps, Word, Words};
use minflt_sync::Ordering;

const FAULTS: u64 = (1 << 30) - 1;
const WRITER: u64 = 1 << 30;
const TASK_SHIFT: u32 = 32;

/// The lock; and with a part of it left out, for tests that show what the part is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Semaphore {
    /// All of it.
    Whole,
    /// A writer shuts a mapping and does not wait for the faults inside.
    WaitsForNobody,
    /// A fault does not look whether the mapping is shut once it is inside.
    LooksBefore,
}

impl VmaLockOps for Semaphore {
    fn name(&self) -> &'static str {
        "semaphore"
    }

    fn try_enter(&self, words: &dyn Words) -> bool {
        if is_shut(words) {
            return false;
        }
        let mut users = words.load(Word::Users, Ordering::Relaxed);
        loop {
            if users & WRITER != 0 {
                return false;
            }
            let (ok, fail) = (Ordering::Acquire, Ordering::Relaxed);
            match words.cas(Word::Users, users, users + 1, ok, fail) {
                Ok(_) => break,
                Err(found) => users = found,
            }
        }
        if *self != Self::LooksBefore && is_shut(words) {
            self.leave(words);
            return false;
        }
        true
    }

    fn leave(&self, words: &dyn Words) {
        let users = words.add(Word::Users, u64::MAX, Ordering::Release);
        let waits = (users >> TASK_SHIFT) as u32;
        if users & FAULTS == 1 && waits != 0 {
            words.wake(waits);
        }
    }

    fn shut(&self, words: &dyn Words) {
        if is_shut(words) {
            return;
        }
        let me = u64::from(words.task()) << TASK_SHIFT | WRITER;
        words.add(Word::Users, me, Ordering::Relaxed);
        let inside = || words.load(Word::Users, Ordering::Acquire) & FAULTS != 0;
        while *self != Self::WaitsForNobody && inside() {
            words.sleep();
        }
        let now = words.load(Word::Space, Ordering::Relaxed);
        words.store(Word::Mark, now, Ordering::Relaxed);
        words.add(Word::Users, me.wrapping_neg(), Ordering::Release);
    }

    fn reopen(&self, words: &dyn Words) {
        let now = words.load(Word::Space, Ordering::Relaxed);
        words.store(Word::Space, now + 1, Ordering::Release);
    }
}

fn is_shut(words: &dyn Words) -> bool {
    let now = words.load(Word::Space, Ordering::Acquire);
    words.load(Word::Mark, Ordering::Relaxed) == now
}
