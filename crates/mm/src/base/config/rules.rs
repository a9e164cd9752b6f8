//! Combinations of choices that are refused, and why.

use super::{
    AddressSpace, Config, CpuMasks, ExchangeBy, FallbackOrder, Linking, NegativeControl, Protocol,
    Reclamation, Rss, VmaLockBy,
};
use core::fmt;

/// An unsound or pointless combination of choices, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Illegal {
    /// The conflicting choices.
    pub mix: &'static str,
    /// Why.
    pub reason: &'static str,
    /// What to configure instead.
    pub remedy: &'static str,
}

impl fmt::Display for Illegal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.mix, self.reason, self.remedy)
    }
}

impl core::error::Error for Illegal {}

/// One row of the table of illegal combinations.
struct Rule {
    illegal: Illegal,
    holds: fn(&Config) -> bool,
}

/// The refused combinations. `docs/eras.md` prints this table.
const RULES: &[Rule] = &[
    Rule {
        illegal: Illegal {
            mix: "fallback-order speculative",
            reason: "a speculative fault may retry without end",
            remedy: "end the fallback order with a lock mode that blocks: speculative,mmap",
        },
        holds: |c| matches!(c.fallback_order, FallbackOrder::Speculative),
    },
    Rule {
        illegal: Illegal {
            mix: "fallback-order speculative with protocol compare-exchange",
            reason: "the sequence check and the exchange are not atomic, so munmap can free the \
                     page table between them",
            remedy: "use protocol table-lock or mm-lock: the fault trylocks and then revalidates",
        },
        holds: |c| c.fallback_order.speculates() && c.protocol == Protocol::CompareExchange,
    },
    Rule {
        illegal: Illegal {
            mix: "fallback-order speculative with reclamation immediate",
            reason: "a speculative lookup reads VMAs and page tables that a writer may be freeing",
            remedy: "use reclamation srcu or rcu",
        },
        holds: |c| c.fallback_order.speculates() && c.reclamation == Reclamation::Immediate,
    },
    Rule {
        illegal: Illegal {
            mix: "fallback-order vma-rwsem, vma-count or vma-own with reclamation immediate",
            reason: "a fault looks up a VMA, and reads tree nodes, without a lock, \
                     while a writer may be freeing them",
            remedy: "use reclamation rcu or srcu, or type-stable with fallback-order vma-count",
        },
        holds: |c| c.fallback_order.vma_lock().is_some() && c.reclamation == Reclamation::Immediate,
    },
    Rule {
        illegal: Illegal {
            mix: "reclamation type-stable without fallback-order vma-count",
            reason: "a VMA may be reused after a reader has found it, and only a reference count \
                     of 0 keeps that reader out while the new VMA is initialised",
            remedy: "use fallback-order vma-count,mmap, or reclamation rcu",
        },
        holds: |c| {
            c.reclamation == Reclamation::TypeStable
                && c.fallback_order.vma_lock() != Some(VmaLockBy::Count)
        },
    },
    Rule {
        illegal: Illegal {
            mix: "fallback-order vma-own without a lock, or a lock without that order",
            reason: "only that fallback order uses a lock from the embedder, and it requires one",
            remedy: "set `Config::own_lock` with that fallback order only, as examples/own_lock does",
        },
        holds: |c| (c.fallback_order.vma_lock() == Some(VmaLockBy::Own)) != c.own_lock.is_some(),
    },
    Rule {
        illegal: Illegal {
            mix: "rss under-lock without protocol mm-lock",
            reason: "no single lock covers the counter updates of all faults",
            remedy: "use rss atomic, sloppy, per-thread or per-cpu",
        },
        holds: |c| c.rss == Rss::UnderLock && c.protocol != Protocol::MmLock,
    },
    Rule {
        illegal: Illegal {
            mix: "exchange emulated without protocol compare-exchange",
            reason: "only that protocol exchanges PTEs without holding a lock",
            remedy: "use exchange native, or protocol compare-exchange",
        },
        holds: |c| c.exchange == ExchangeBy::Emulated && c.protocol != Protocol::CompareExchange,
    },
    Rule {
        illegal: Illegal {
            mix: "linking parent-lock or every-parent without protocol table-lock",
            reason: "only that protocol has a lock per page table",
            remedy: "use linking mm-lock, or protocol table-lock",
        },
        holds: |c| c.linking != Linking::MmLock && c.protocol != Protocol::TableLock,
    },
    Rule {
        illegal: Illegal {
            mix: "linking every-parent without fallback-order speculative",
            reason: "only speculative faults put tables in where others may be freeing some, and \
                     munmap pays for it",
            remedy: "use linking parent-lock, or fallback-order speculative,mmap",
        },
        holds: |c| c.linking == Linking::EveryParent && !c.fallback_order.speculates(),
    },
    Rule {
        illegal: Illegal {
            mix: "address-space arenas or arenas-small with fallback-order vma-rwsem, vma-count or vma-own",
            reason: "writers release all VMA locks of an address space in one step, and so those \
                     of a writer in another arena",
            remedy: "use address-space whole, or fallback-order speculative,mmap",
        },
        holds: |c| c.address_space != AddressSpace::Whole && c.fallback_order.vma_lock().is_some(),
    },
    Rule {
        illegal: Illegal {
            mix: "cpu-masks arenas with address-space whole",
            reason: "there are no arenas",
            remedy: "use address-space arenas, or cpu-masks space",
        },
        holds: |c| c.cpu_masks == CpuMasks::Arenas && c.address_space == AddressSpace::Whole,
    },
];

impl Config {
    /// Checks that the combination of choices is sound.
    ///
    /// # Errors
    /// The first row that applies. A negative control ([`NegativeControl`]) for such a combination
    /// admits exactly that one.
    pub fn check(&self) -> Result<(), Illegal> {
        let excused = |rule: &Rule| {
            self.negative_control == Some(NegativeControl::SpeculativeExchange)
                && rule.illegal.mix == "fallback-order speculative with protocol compare-exchange"
        };
        match RULES
            .iter()
            .find(|rule| (rule.holds)(self) && !excused(rule))
        {
            Some(rule) => Err(rule.illegal),
            None => Ok(()),
        }
    }

    /// Refused at boot on several CPUs whose hardware writes PTEs.
    pub const EMULATED_BESIDE_HARDWARE: Illegal = Illegal {
        mix: "exchange emulated on several CPUs whose hardware sets accessed and dirty bits",
        reason: "the hardware does not take the lock, so an accessed or dirty bit that it sets \
                 between the compare and the store is lost",
        remedy: "use exchange native, one CPU, or a machine that sets these bits in software, such \
                 as altix32",
    };

    /// The table of illegal combinations.
    pub fn illegal_mixes() -> impl Iterator<Item = Illegal> {
        RULES.iter().map(|rule| rule.illegal)
    }
}
