//! Fixes that can be switched off, so that a test can show what they prevent.

use core::fmt;

macro_rules! broken {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// One fix, switched off.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Broken { $($(#[doc = $doc])+ $name),+ }

        impl Broken {
            /// Each, with its name and what is switched off.
            pub const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$((Self::$name, $text, concat!($($doc),+))),+];
        }

        impl fmt::Display for Broken {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$name => $text),+ })
            }
        }
    };
}

broken! {
    /// A missing table is put in without looking whether another fault was faster.
    BlindPopulate = "blind-populate",
    /// The low-level handler stores the accessed bit into a copy of the entry it read before.
    StaleAccessBits = "stale-access-bits",
    /// The resident count is shown as it is, also below zero.
    RawRss = "raw-rss",
    /// A speculative fault does not check again after it has the table's lock.
    NoRevalidate = "no-revalidate",
    /// mprotect changes flags and entries outside a sequence section.
    ProtectWithoutSection = "protect-without-section",
    /// A speculative fault spins for the table's lock, with interrupts off.
    SpinForTableLock = "spin-for-table-lock",
    /// A zap that finds nothing returns without asking whether somebody else has yet to invalidate.
    NoNestedFlush = "no-nested-flush",
    /// The page of zeros is replaced first, and the CPUs that buffer it are told afterwards.
    ReplaceBeforeFlush = "replace-before-flush",
    /// The map count is raised after the exchange that makes the page reachable, as posted.
    MapCountAfterExchange = "map-count-after-exchange",
    /// The refused mix of a speculative ladder and compare-and-exchange, let through.
    SpeculativeExchange = "speculative-exchange",
    /// Entries are exchanged by halves: one half is compared, and one is written after the other.
    HalfWidthExchange = "half-width-exchange",
    /// The exchange is emulated under the lock also where the caller holds that lock already.
    EmulateUnderLock = "emulate-under-lock",
    /// Instruction caches are flushed after the entry is there, as they were under the lock.
    FlushAfterInstall = "flush-after-install",
}
