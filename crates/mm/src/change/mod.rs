//! Changing mappings: who may, and how they are split, joined, cut out and given other attributes.

pub(crate) mod changed;
pub(crate) mod cut;
pub(crate) mod merge;
pub(crate) mod modify;
pub(crate) mod split;
pub(crate) mod writers;
