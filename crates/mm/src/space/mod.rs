//! The space: mappings, their tree, their locks, and who may change them.

pub(crate) mod look;
pub(crate) mod own_lock;
pub(crate) mod retire;
pub(crate) mod tree;
pub(crate) mod vma;
pub(crate) mod vma_lock;
pub(crate) mod vma_ptr;
