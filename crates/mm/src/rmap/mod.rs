//! Reverse maps: which entries name a page.

pub(crate) mod anon_vma;
mod chains;
pub(crate) mod interval;
