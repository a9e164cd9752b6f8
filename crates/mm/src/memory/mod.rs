//! Memory: frames, their allocation, commit charge, and reclamation of unlinked objects.

pub(crate) mod alloc;
pub(crate) mod arenas;
pub(crate) mod commit;
pub(crate) mod counted;
pub(crate) mod frame;
pub(crate) mod lifetime;
pub(crate) mod locks;
pub(crate) mod percpu_counter;
pub(crate) mod rss;
pub(crate) mod sizes;
mod slab;
pub(crate) mod swap;
