//! The commands, one file each.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod beside;
pub(crate) mod boot;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod curves;
mod drawing;
pub(crate) mod generated;
pub(crate) mod kernels;
pub(crate) mod lists;
pub(crate) mod machines;
pub(crate) mod postings;
mod race_list;
pub(crate) mod races;
pub(crate) mod reproduce;
pub(crate) mod sensitivity;
pub(crate) mod why;
pub(crate) mod why_files;
