//! The generated parts of `docs/validation.md`.

pub(super) mod fits;
pub(super) mod locks;
