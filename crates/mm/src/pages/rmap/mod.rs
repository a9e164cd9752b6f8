//! Reverse maps: from a page to the PTEs that map it.

pub(crate) mod anon_vma;
pub(crate) mod away;
mod chains;
pub(crate) mod owner;
pub(crate) mod prepare;
