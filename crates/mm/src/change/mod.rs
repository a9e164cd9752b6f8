//! Changes of VMAs: the write guard, the plan of a change, unmapping, and attribute changes.

pub(crate) mod merge;
pub(crate) mod modify;
pub(crate) mod owned;
pub(crate) mod plan;
pub(crate) mod unmap;
pub(crate) mod writers;
