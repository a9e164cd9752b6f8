//! Which byte copies a machine can make.

use minflt_pgtable::Mmu;

const WORD: usize = size_of::<u64>();

/// Whether the machine can copy `len` bytes from `offset` on: all can, but those whose frames keep
/// one word copy bytes of one word.
pub(crate) const fn can_copy<M: Mmu>(offset: u64, len: usize) -> bool {
    !M::ONE_WORD || (offset % WORD as u64) as usize + len <= WORD
}
