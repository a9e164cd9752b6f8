//! Changes of VMAs: the write guard, splits, merges, unmapping and attribute changes.

pub(crate) mod changed;
pub(crate) mod cut;
pub(crate) mod merge;
pub(crate) mod modify;
pub(crate) mod split;
pub(crate) mod writers;
