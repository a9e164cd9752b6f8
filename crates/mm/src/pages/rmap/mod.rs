//! Reverse maps: which entries name a page.

pub(crate) mod anon_vma;
pub(crate) mod away;
mod chains;
pub(crate) mod owner;
