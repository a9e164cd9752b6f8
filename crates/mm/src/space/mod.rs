//! The address space: VMAs, their tree and their locks.

pub(crate) mod arenas;
pub(crate) mod own_lock;
pub(crate) mod tree;
pub(crate) mod vma;
pub(crate) mod vma_lock;
