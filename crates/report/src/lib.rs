//! Results and published figures: records of runs, the postings' tables as data, the checks of
//! their arithmetic, and the texts, markdown and HTML they are shown in.
//!
//! Nothing here runs a workload; nothing here knows an era or a machine by name. A new published
//! table is a change of `data/postings/` alone.
#![forbid(unsafe_code)]

pub mod compare;
pub mod docs;
pub mod page;
pub mod picture;

pub mod published;
pub mod run;
pub mod status;
pub mod steps;
pub mod table;
pub mod verify;

pub use docs::replace_generated;
pub use page::{Report, Section};
pub use picture::Picture;

pub use published::{Posting, PublishedTable, postings};
pub use run::{Run, Timing};
pub use status::Status;
pub use table::{Cell, Column, Table};
pub use verify::{Check, Outcome, verify};
