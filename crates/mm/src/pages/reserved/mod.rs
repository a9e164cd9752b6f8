//! Hugetlb state of a file and of a mapping: the reservations, their owner, and the mapping's lock.

pub(crate) mod lock;
pub(crate) mod own;
pub(crate) mod reserve;
