//! Oracles: what must be true, looked at while the system runs and when it is quiet.
//!
//! Each look is counted, so that a result can say how often it was checked.

mod chains;
pub(crate) mod controls;
mod huge;
mod ledger;
mod refusal;
mod translation;
mod unbalanced;

pub(crate) use refusal::Refusals;
pub use refusal::Refuse;
pub(crate) use translation::{
    contents_flushed, translation_live, translations_agree, translations_agree_alone,
};
pub use unbalanced::{Ledger, Unbalanced};

use crate::frame::Use;
use crate::system::System;
use minflt_addr::Pfn;
use minflt_pgtable::Mmu;

macro_rules! checks {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// An oracle.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Check { $($(#[doc = $doc])+ $name),+ }

        impl Check {
            /// Every oracle.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

checks! {
    /// Every frame is free or accounted for; counts equal a full walk.
    Ledger = "ledger",
    /// A buffered translation that was used led to a live frame.
    Translation = "translation",
    /// After a call that unmaps or protects, no CPU buffers what the call took away.
    Invalidation = "invalidation",
    /// Each entry lies in a mapping and grants no more than it allows.
    Tables = "tables",
    /// The table that a fault or a call has just read an entry of was not freed.
    Walk = "walk",
}

/// A fault or a call has just read an entry of table `pfn`.
#[inline(always)]
pub(crate) fn is_table<M: Mmu>(sys: &System<M>, pfn: Pfn) {
    if M::CHECKED {
        sys.looked(Check::Walk);
        let used = sys.frames.get(pfn).used_as();
        if used != Use::Table {
            M::violation(format_args!(
                "a walk ends in frame {pfn}: {used:?}, no table"
            ));
        }
    }
}
