//! Which choices do not go together, and why.

use super::{Broken, Config, ExchangeBy, Ladder, Lifetime, Linking, Protocol, Rss, VmaLockBy};
use core::fmt;

/// An unsound or senseless mix of choices, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegal {
    /// The choices that do not go together.
    pub mix: &'static str,
    /// Why.
    pub reason: &'static str,
    /// What would be right.
    pub remedy: &'static str,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.mix, self.reason, self.remedy)
    }
}

impl core::error::Error for Illegal {}

/// One row of the table of illegal mixes.
struct Rule {
    illegal: Illegal,
    holds: fn(&Config) -> bool,
}

/// The mixes that are refused. `docs/eras.md` prints this table.
const RULES: &[Rule] = &[
    Rule {
        illegal: Illegal {
            mix: "ladder speculative",
            reason: "a speculative fault may fail for ever",
            remedy: "end the ladder with a rung that waits: speculative,mmap",
        },
        holds: |c| matches!(c.ladder, Ladder::Speculative),
    },
    Rule {
        illegal: Illegal {
            mix: "ladder speculative with protocol compare-exchange",
            reason: "the sequence check and the exchange are not one step, so munmap can free the \
                     table between them",
            remedy: "use protocol table-lock or mm-lock, whose lock is tried and then checked again",
        },
        holds: |c| c.ladder.speculates() && c.protocol == Protocol::CompareExchange,
    },
    Rule {
        illegal: Illegal {
            mix: "ladder speculative with lifetime immediate",
            reason: "a speculative lookup reads VMAs and tables that a writer may be freeing",
            remedy: "use lifetime srcu or rcu",
        },
        holds: |c| c.ladder.speculates() && c.lifetime == Lifetime::Immediate,
    },
    Rule {
        illegal: Illegal {
            mix: "ladder vma-rwsem, vma-count or vma-own with lifetime immediate",
            reason: "a fault finds a VMA before it has its lock, and reads tree nodes without one, \
                     while a writer may be freeing them",
            remedy: "use lifetime rcu or srcu, or type-stable with ladder vma-count",
        },
        holds: |c| c.ladder.vma_lock().is_some() && c.lifetime == Lifetime::Immediate,
    },
    Rule {
        illegal: Illegal {
            mix: "lifetime type-stable without ladder vma-count",
            reason: "a VMA may be used again under somebody who has just found it, and only a \
                     count that stands at 0 meanwhile keeps him out while it is filled in",
            remedy: "use ladder vma-count,mmap, or lifetime rcu",
        },
        holds: |c| {
            c.lifetime == Lifetime::TypeStable && c.ladder.vma_lock() != Some(VmaLockBy::Count)
        },
    },
    Rule {
        illegal: Illegal {
            mix: "ladder vma-own without a lock, or a lock without that ladder",
            reason: "the lock of that ladder is the embedder's, and no other ladder has it",
            remedy: "set `Config::own_lock` with it, as examples/own_lock does, and only with it",
        },
        holds: |c| (c.ladder.vma_lock() == Some(VmaLockBy::Own)) != c.own_lock.is_some(),
    },
    Rule {
        illegal: Illegal {
            mix: "rss under-lock without protocol mm-lock",
            reason: "there is no one lock under which all faults count",
            remedy: "use rss atomic, sloppy, per-thread or per-cpu",
        },
        holds: |c| c.rss == Rss::UnderLock && c.protocol != Protocol::MmLock,
    },
    Rule {
        illegal: Illegal {
            mix: "exchange emulated without protocol compare-exchange",
            reason: "only that protocol exchanges entries without holding a lock",
            remedy: "use exchange native, or protocol compare-exchange",
        },
        holds: |c| c.exchange == ExchangeBy::Emulated && c.protocol != Protocol::CompareExchange,
    },
    Rule {
        illegal: Illegal {
            mix: "linking parent-lock without protocol table-lock",
            reason: "only there a table has a lock of its own",
            remedy: "use linking mm-lock, or protocol table-lock",
        },
        holds: |c| c.linking == Linking::ParentLock && c.protocol != Protocol::TableLock,
    },
];

impl Config {
    /// Whether the choices go together.
    ///
    /// # Errors
    /// The first row of the table of illegal mixes that applies. A [`Broken`] that is about such a
    /// mix lets exactly that mix through.
    pub fn check(&self) -> Result<(), Illegal> {
        let excused = |rule: &Rule| {
            self.broken == Some(Broken::SpeculativeExchange)
                && rule.illegal.mix == "ladder speculative with protocol compare-exchange"
        };
        match RULES
            .iter()
            .find(|rule| (rule.holds)(self) && !excused(rule))
        {
            Some(rule) => Err(rule.illegal),
            None => Ok(()),
        }
    }

    /// Refused when a system of several CPUs starts on hardware that writes entries.
    pub const EMULATED_BESIDE_HARDWARE: Illegal = Illegal {
        mix: "exchange emulated on several CPUs whose hardware sets accessed and dirty bits",
        reason: "the hardware does not take the lock, so a bit it sets between the compare and \
                 the store is lost",
        remedy: "use exchange native, one CPU, or a machine whose handler sets the bits, such as \
                 altix32",
    };

    /// The table of illegal mixes.
    pub fn illegal_mixes() -> impl Iterator<Item = Illegal> {
        RULES.iter().map(|rule| rule.illegal)
    }
}
