//! Byte access to user frames by words: what machines do that have no faster way.
//!
//! Byte `k` of a word is the `k`th in memory. All bytes of one word are copied at once. Bytes of
//! the word that are not written keep their value, even if another thread stores to them
//! concurrently.

use crate::mmu::Mmu;
use core::ops::Range;
use minflt_addr::Pfn;

const WORD: usize = size_of::<u64>();

/// Loads the bytes from `offset` on of a user frame, word by word: [`Mmu::read_bytes`].
pub fn read_by_words<M: Mmu>(at: &M::Instance, pfn: Pfn, offset: u64, to: &mut [u8]) {
    for_words(offset, to.len(), |offset, word, bytes| {
        let value = M::user_load(at, pfn, offset).to_ne_bytes();
        to[bytes].copy_from_slice(&value[word]);
    });
}

/// Stores the bytes from `offset` on of a user frame, word by word: [`Mmu::write_bytes`].
pub fn write_by_words<M: Mmu>(at: &M::Instance, pfn: Pfn, offset: u64, from: &[u8]) {
    for_words(offset, from.len(), |offset, word, bytes| {
        let (mut value, mut mask) = ([0; WORD], [0; WORD]);
        value[word.clone()].copy_from_slice(&from[bytes]);
        mask[word].fill(u8::MAX);
        let (value, mask) = (u64::from_ne_bytes(value), u64::from_ne_bytes(mask));
        if mask == u64::MAX {
            M::user_store(at, pfn, offset, value);
        } else {
            M::user_merge(at, pfn, offset, value, mask);
        }
    });
}

/// Splits `len` bytes from `offset` on: the bytes before the first whole word, and those in whole
/// words. What is left lies in one word.
#[must_use]
pub fn whole_words(offset: u64, len: usize) -> (usize, usize) {
    let head = (offset.next_multiple_of(WORD as u64) - offset) as usize;
    let head = head.min(len);
    (head, (len - head) / WORD * WORD)
}

/// Calls `one` for each word of `len` bytes from `offset` on: with the word's offset, which bytes
/// of it, and which of the `len`.
fn for_words(offset: u64, len: usize, mut one: impl FnMut(u64, Range<usize>, Range<usize>)) {
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let first = (at % WORD as u64) as usize;
        let bytes = (len - done).min(WORD - first);
        one(at - first as u64, first..first + bytes, done..done + bytes);
        done += bytes;
    }
}
