//! The known races, each a scenario that an explorer can search and a fix that can be switched off.
//!
//! A scenario is a stage (a small machine with an address space on it), a few tasks on CPUs of
//! their own, and what must be true at the end. [`search`] explores its schedules; with the fix
//! switched off it has to find the race, with the fix in place it must find nothing.

mod advice;
mod entries;
mod forks;
mod format;
mod pins;
mod remaps;
mod scenes;
mod stacks;
mod stage;
mod vma_scenes;

pub use format::Format;
pub use stage::Shown;

use crate::explore::{Budget, Explored, explore};
use crate::policy::Policy;
use crate::report::RunReport;
use crate::run::RunOptions;
use minflt_mm::config::{ExchangeBy, Protocol};
use minflt_mm::{Broken, Check, Config};
use scenes::Scene;
use stage::Scratch;

/// A known race.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    /// Its number in the list of known races.
    pub number: &'static str,
    /// A name to type.
    pub name: &'static str,
    /// What must never happen.
    pub never: &'static str,
    /// The fix whose absence brings it back.
    pub fix: Broken,
    /// The era in which switching the fix off shows.
    pub shows_in: &'static str,
    /// A seed of [`search`] that finds it with the fix switched off.
    pub seed: u64,
    /// The page-table formats it is staged on; [`search`] takes one after the other.
    pub formats: &'static [Format],
    /// How it exchanges entries, where the configuration leaves that open.
    exchange: ExchangeBy,
    scene: Scene,
}

const X86: &[Format] = &[Format::X86_64];
const ALTIX: &[Format] = &[Format::Altix16K];

/// Every race that can be checked.
pub const RACES: &[Race] = &[
    Race {
        number: "P1",
        name: "fault-fault",
        never: "two faults below one missing table: a table or a page is lost",
        fix: Broken::BlindPopulate,
        shows_in: "atomic-pte-2004",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultFault,
    },
    Race {
        number: "P5",
        name: "half-equal",
        never: "an exchange compares half of an entry, or another CPU reads one half exchanged",
        fix: Broken::HalfWidthExchange,
        shows_in: "atomic-pte-2004",
        seed: 1,
        formats: Format::ALL,
        exchange: ExchangeBy::Native,
        scene: Scene::HalfEqual,
    },
    // What the swapper does with the lock held waits for swap; the zap holds it as well.
    Race {
        number: "P6",
        name: "emulated",
        never: "who holds the lock that emulates the exchange waits for itself in an exchange",
        fix: Broken::EmulateUnderLock,
        shows_in: "atomic-pte-2004",
        seed: 1,
        formats: Format::ALL,
        exchange: ExchangeBy::Emulated,
        scene: Scene::Emulated,
    },
    Race {
        number: "P7",
        name: "accessed-mprotect",
        never: "after mprotect returned, setting an accessed bit brings the old protection back",
        fix: Broken::StaleAccessBits,
        shows_in: "atomic-pte-2004",
        seed: 1,
        formats: ALTIX,
        exchange: ExchangeBy::Native,
        scene: Scene::AccessedProtect,
    },
    Race {
        number: "P8",
        name: "rss",
        never: "a resident count below zero is shown",
        fix: Broken::RawRss,
        shows_in: "atomic-pte-2004",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::Resident,
    },
    Race {
        number: "P9",
        name: "walk-free",
        never: "a fault walks into a table that munmap freed",
        fix: Broken::TablesAtOnce,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::WalkFree,
    },
    Race {
        number: "P27",
        name: "fault-remap",
        never: "a fault of the old mapping installs a page after munmap returned",
        fix: Broken::NoRevalidate,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultRemap,
    },
    Race {
        number: "P28",
        name: "fault-mprotect",
        never: "after mprotect(NONE) returned, an entry grants a store",
        fix: Broken::ProtectWithoutSection,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultProtect,
    },
    Race {
        number: "P29",
        name: "remap-fault",
        never: "a fault puts a page in where mremap is about to move one",
        fix: Broken::RemapPublishesEarly,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::RemapFault,
    },
    Race {
        number: "P30",
        name: "lookup-free",
        never: "a lookup without a lock reads a VMA that was freed",
        fix: Broken::NoGracePeriod,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultRemap,
    },
    Race {
        number: "P30-reuse",
        name: "fault-reused-vma",
        never: "a fault holds a VMA that has become another address space's, and takes it for its own",
        fix: Broken::NoOwnerRecheck,
        shows_in: "linux-6.15",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultReuse,
    },
    Race {
        number: "P30-range",
        name: "fault-split",
        never: "a fault holds a VMA that no longer covers its address, and goes on",
        fix: Broken::NoRangeRecheck,
        shows_in: "linux-6.4",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultSplit,
    },
    Race {
        number: "P31",
        name: "stack-stack",
        never: "two stacks grow at once, and one that is mapped is not found, or does not grow",
        fix: Broken::ExpandUnderReadLock,
        shows_in: "linux-6.4",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::StackStack,
    },
    Race {
        number: "P31-insert",
        name: "lookup-insert",
        never: "a lookup without a lock misses a mapping that is there before and after",
        fix: Broken::LeafInPlace,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::LookupBeside,
    },
    Race {
        number: "P32",
        name: "fork-fault",
        never: "a forked child lacks a store of its parent and has a later one",
        fix: Broken::ForkWithoutSections,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::ForkFault,
    },
    Race {
        number: "P32-fresh",
        name: "fork-fresh",
        never: "a forked child lacks a page that a fault was putting in, and has a later store",
        fix: Broken::ForkLooksUnlocked,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::ForkFresh,
    },
    Race {
        number: "P33",
        name: "map-load",
        never: "a fault finds a VMA that does not yet say what may be done there",
        fix: Broken::PublishEarly,
        shows_in: "linux-6.15",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::MapLoad,
    },
    Race {
        number: "P34",
        name: "fault-anon-vma",
        never: "a fault makes a page of a mapping that has lost its anon_vma",
        fix: Broken::AnonVmaBeforeLock,
        shows_in: "linux-6.15",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::RemapAnon,
    },
    Race {
        number: "P35",
        name: "fault-mbind",
        never: "after mbind returned, a fault takes a page from where the old policy had it",
        fix: Broken::ProtectWithoutSection,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::PolicyFault,
    },
    Race {
        number: "P35-locked",
        name: "mlock-mlock",
        never: "two calls lock memory at once, and the count of locked pages lacks one of them",
        fix: Broken::LockedCountLate,
        shows_in: "linux-6.15",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::LockLock,
    },
    Race {
        number: "P36",
        name: "fault-mmap-lock",
        never: "a fault waits for mmap_lock with its VMA's lock held",
        fix: Broken::MmapLockUnderVmaLock,
        shows_in: "linux-6.15",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultWaits,
    },
    Race {
        number: "P37",
        name: "fault-shootdown",
        never: "a speculative fault waits for a table's lock whose holder waits for its CPU",
        fix: Broken::SpinForTableLock,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultShootdown,
    },
    Race {
        number: "P38",
        name: "fault-writers",
        never: "a fault fails again and again among writers, and never waits",
        fix: Broken::LadderWithoutEnd,
        shows_in: "linux-6.4",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultStarves,
    },
    Race {
        number: "P38-writer",
        name: "writer-faults",
        never: "a writer waits for a VMA while new faults go on coming in",
        fix: Broken::WriterLetsReadersIn,
        shows_in: "linux-6.15",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::WriterStarves,
    },
    Race {
        number: "P39",
        name: "stack-munmap",
        never: "a stack grows into a range whose tables munmap is freeing",
        fix: Broken::UnmapUnlocked,
        shows_in: "linux-4.13",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::StackUnmap,
    },
    Race {
        number: "P40",
        name: "remap-zap",
        never: "a page is freed at its new place and still reached by the old one",
        fix: Broken::RemapFlushesLate,
        shows_in: "linux-6.4",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::RemapZap,
    },
    Race {
        number: "P41",
        name: "zap-zap",
        never: "a zap that found nothing returns while another CPU still reaches the page",
        fix: Broken::NoNestedFlush,
        shows_in: "linux-4.13",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::ZapZap,
    },
    Race {
        number: "P43",
        name: "protect-copy",
        never: "a page that a handler protects and copies is stored to meanwhile",
        fix: Broken::ProtectWithoutFlush,
        shows_in: "linux-4.13",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::ProtectCopy,
    },
    Race {
        number: "P45",
        name: "fork-pin",
        never: "fork takes a page away from somebody who has just pinned it",
        fix: Broken::PinWithoutSequence,
        shows_in: "linux-4.13",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::ForkPin,
    },
    Race {
        number: "P46",
        name: "reuse-zap",
        never: "a store reaches a page that another address space still reaches",
        fix: Broken::ReuseByMapCount,
        shows_in: "linux-4.13",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::ReuseZap,
    },
    Race {
        number: "P57",
        name: "fault-zap",
        never: "a zap takes a map count below zero that the fault has not raised yet",
        fix: Broken::MapCountAfterExchange,
        shows_in: "atomic-pte-2004",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultZap,
    },
    Race {
        number: "flush",
        name: "install-load",
        never: "a CPU uses a page before the caches that need telling were told what is in it",
        fix: Broken::FlushAfterInstall,
        shows_in: "atomic-pte-2004",
        seed: 1,
        formats: ALTIX,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultFault,
    },
    Race {
        number: "zero-page",
        name: "replace-load",
        never: "one CPU's store has returned and another still loads zero from the shared page",
        fix: Broken::ReplaceBeforeFlush,
        shows_in: "atomic-pte-2004",
        seed: 12,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::ReplaceLoad,
    },
    Race {
        number: "speculative-exchange",
        name: "fault-munmap",
        never: "an entry is installed in a table that munmap freed",
        fix: Broken::SpeculativeExchange,
        shows_in: "spf-2017",
        seed: 1,
        formats: X86,
        exchange: ExchangeBy::Native,
        scene: Scene::FaultUnmap,
    },
];

/// The race called `name`, by number or name.
#[must_use]
pub fn race(name: &str) -> Option<&'static Race> {
    RACES
        .iter()
        .find(|race| race.number.eq_ignore_ascii_case(name) || race.name == name)
}

impl Race {
    /// The configuration it is played in: with its own way to exchange entries, where that may be
    /// chosen.
    #[must_use]
    pub fn staged(&self, config: Config) -> Config {
        match config.protocol {
            Protocol::CompareExchange if self.exchange == ExchangeBy::Emulated => Config {
                exchange: ExchangeBy::Emulated,
                ..config
            },
            _ => config,
        }
    }

    /// The configuration that lacks the fix, made from the era in which that shows.
    #[must_use]
    pub fn without_fix(&self, era: Config) -> Config {
        let era = era.broken(Some(self.fix));
        match self.fix {
            // What the table of illegal mixes refuses.
            Broken::SpeculativeExchange => Config {
                protocol: Protocol::CompareExchange,
                ..era
            },
            _ => era,
        }
    }
}

/// What a search came to.
#[derive(Clone, Debug)]
pub struct Searched {
    /// The schedules of all formats, and the first that failed.
    pub explored: Explored,
    /// The format of the one that failed; else the last one searched.
    pub format: Format,
    /// How often each oracle looked, by [`Check`].
    pub looks: [u64; Check::COUNT],
}

/// Explores schedules of `race` under `config` on each of its formats, with the whole budget each,
/// until one fails or the budgets are used up.
pub fn search(race: &Race, config: Config, budget: &Budget) -> Searched {
    let (first, others) = race.formats.split_first().unwrap_or((&Format::X86_64, &[]));
    let mut all = search_on(race, *first, config, budget);
    for format in others {
        if all.explored.failure.is_some() {
            break;
        }
        let more = search_on(race, *format, config, budget);
        all.explored.schedules += more.explored.schedules;
        all.explored.steps += more.explored.steps;
        all.explored.events += more.explored.events;
        all.explored.failure = more.explored.failure;
        all.format = *format;
        for (sum, looks) in all.looks.iter_mut().zip(more.looks) {
            *sum += looks;
        }
    }
    all
}

/// Explores schedules of `race` under `config` on one format, whether it is one of its own or not.
pub fn search_on(race: &Race, format: Format, config: Config, budget: &Budget) -> Searched {
    let mut scratch = Scratch::new();
    let config = race.staged(config);
    let explored = explore(budget, |options| {
        format.perform(&mut scratch, race.scene, config, options).0
    });
    Searched {
        explored,
        format,
        looks: scratch.looks,
    }
}

/// One task that maps, touches, protects, discards and unmaps on a system with tables of `format`;
/// oracles look, and the ledger has to add up before and after the address space ends.
#[must_use]
pub fn tour(format: Format, config: Config) -> RunReport {
    let options = RunOptions::explored(Policy::Random(1));
    let mut scratch = Scratch::new();
    format
        .perform(&mut scratch, Scene::Tour, config, &options)
        .0
}

/// Runs one schedule of `race` on `format`, drawn.
#[must_use]
pub fn show(race: &Race, format: Format, config: Config, policy: Policy) -> Shown {
    let options = RunOptions {
        trace: true,
        ..RunOptions::explored(policy)
    };
    let mut scratch = Scratch::new();
    let config = race.staged(config);
    let (report, drawing) = format.perform(&mut scratch, race.scene, config, &options);
    Shown { report, drawing }
}

#[cfg(test)]
mod tests;
