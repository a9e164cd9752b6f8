//! Byte access to user frames, which machines load and store by words.
//!
//! Byte `k` of a word is the `k`th in memory. All bytes of one word are copied at once. Bytes of
//! the word that are not written keep their value, even if another thread stores to them
//! concurrently.

use core::ops::Range;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;

const WORD: usize = size_of::<u64>();

/// Whether the machine can copy `len` bytes from `offset` on: all can, but those whose frames keep
/// one word copy bytes of one word.
pub(crate) const fn can_copy<M: Mmu>(offset: u64, len: usize) -> bool {
    !M::ONE_WORD || (offset % WORD as u64) as usize + len <= WORD
}

/// Loads the bytes from `offset` on of a user frame, which has them.
pub(crate) fn load<M: Mmu>(at: &M::Instance, pfn: Pfn, offset: u64, to: &mut [u8]) {
    for_words(offset, to.len(), |offset, word, bytes| {
        let value = M::user_load(at, pfn, offset).to_ne_bytes();
        to[bytes].copy_from_slice(&value[word]);
    });
}

/// Stores the bytes from `offset` on of a user frame, which has them.
pub(crate) fn store<M: Mmu>(at: &M::Instance, pfn: Pfn, offset: u64, from: &[u8]) {
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
