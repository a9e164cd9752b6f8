//! What a file and a mapping know of huge pages: which are reserved, whose they are, and the
//! mapping's lock.

pub(crate) mod lock;
pub(crate) mod own;
pub(crate) mod reserve;
