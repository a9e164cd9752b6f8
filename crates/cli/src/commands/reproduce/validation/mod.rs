//! The generated parts of `docs/validation.md`.

pub(super) mod locks;
