//! The known races, each a scenario that an explorer can search and a fix that can be switched off.
//!
//! A scenario is a stage (a small machine with an address space on it), a few tasks on CPUs of
//! their own, and what must be true at the end. [`search`] explores its schedules; with the fix
//! switched off it has to find the race, with the fix in place it must find nothing.

mod aba;
mod advice;
mod arenas;
mod away;
mod disk;
mod entries;
mod files;
mod forks;
mod format;
mod hints;
mod huge_age;
mod huge_moving;
mod huge_tables;
mod hugetlb;
mod lineage;
mod list;
mod masks;
mod migration;
mod names;
mod pins;
mod promises;
mod remaps;
mod runs;
mod scenes;
mod segments;
mod stacks;
mod stage;
mod stories;
mod vma_scenes;

pub use format::Format;
pub use list::RACES;
pub use stage::Shown;
pub use stories::{FIVE, SUBJECTS, Story, Subject};

use list::{About, Eras, TOUR};
use minflt_mm::config::{
    ExchangeBy, FaultAround, Protocol, Unmap, eras_of_huge_pages, eras_of_migration,
    eras_without_files, eras_without_migration,
};
use minflt_mm::{Check, Config, Era, NegativeControl};
use minflt_sim::Policy;
use minflt_sim::RunOptions;
use minflt_sim::RunReport;
use minflt_sim::{Budget, Explored, Mix, explore_mix};
use minflt_sim::{Minimized, minimize};
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
    pub fix: NegativeControl,
    /// The era in which switching the fix off shows.
    pub shows_in: &'static str,
    /// A seed of [`search`] that finds it with the fix switched off.
    pub seed: u64,
    /// The page-table formats it is staged on; [`search`] takes one after the other.
    pub formats: &'static [Format],
    /// How it exchanges entries, where the configuration leaves that open.
    exchange: ExchangeBy,
    about: About,
}

/// The race called `name`, by number or name.
#[must_use]
pub fn race(name: &str) -> Option<&'static Race> {
    RACES
        .iter()
        .find(|race| race.number.eq_ignore_ascii_case(name) || race.name == name)
}

impl Race {
    /// How many schedules of another race take as long as one of this, about: a stage for huge
    /// pages is large.
    #[must_use]
    pub const fn weight(&self) -> u64 {
        if self.is_huge() { 8 } else { 1 }
    }

    /// What went wrong, which fix, and where it comes from; `None` for the tour, which is no race.
    #[must_use]
    pub fn story(&self) -> Option<&'static Story> {
        let mut stories = SUBJECTS.iter().flat_map(|subject| subject.stories);
        stories.find(|story| story.race == self.number)
    }

    const fn is_huge(&self) -> bool {
        matches!(self.about.eras, Eras::Huge)
    }

    /// The eras that its scene can tell apart, and that have what it is about.
    #[must_use]
    pub fn eras(&self) -> Vec<&'static Era> {
        match self.about.eras {
            Eras::Huge => eras_of_huge_pages().collect(),
            Eras::Around => eras_of_migration()
                .filter(|era| era.config.around != FaultAround::Order0)
                .collect(),
            Eras::Moves => eras_of_migration().collect(),
            Eras::Files => eras_without_migration().collect(),
            Eras::Memory => eras_without_files().collect(),
        }
    }

    /// Whether its tasks move pages to another node: a search in which none was moved shows
    /// nothing.
    #[must_use]
    pub const fn moves_pages(&self) -> bool {
        self.about.movers
    }

    /// The configuration it is played in: with its own way to exchange entries, where that may be
    /// chosen, and with what the scene is about.
    #[must_use]
    pub fn staged(&self, config: Config) -> Config {
        let config = (self.about.staged)(config);
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
        let era = era.with_negative_control(Some(self.fix));
        match self.fix {
            // What the table of illegal mixes refuses.
            NegativeControl::SpeculativeExchange => era.with_protocol(Protocol::CompareExchange),
            // As Linux 4.20: no grace period keeps the table.
            NegativeControl::AgeHoles => Config {
                unmap: Unmap::Downgrade,
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
    /// Pages that its tasks moved to another node, in all schedules.
    pub moved: u64,
}

/// Explores schedules of `race` under `config` on each of its formats, with the whole budget each,
/// until one fails or the budgets are used up.
pub fn search(race: &Race, config: Config, budget: &Budget) -> Searched {
    search_mix(race, config, budget, Mix::default())
}

/// [`search`], with schedules of the kinds of `mix` only.
pub fn search_mix(race: &Race, config: Config, budget: &Budget, mix: Mix) -> Searched {
    let (first, others) = race.formats.split_first().unwrap_or((&Format::X86_64, &[]));
    let mut all = search_on(race, *first, config, budget, mix);
    for format in others {
        if all.explored.failure.is_some() {
            break;
        }
        let more = search_on(race, *format, config, budget, mix);
        all.explored.schedules += more.explored.schedules;
        all.explored.steps += more.explored.steps;
        all.explored.events += more.explored.events;
        all.explored.failure = more.explored.failure;
        all.format = *format;
        all.moved += more.moved;
        for (sum, looks) in all.looks.iter_mut().zip(more.looks) {
            *sum += looks;
        }
    }
    all
}

/// Explores schedules of `race` under `config` on one format, whether it is one of its own or not.
pub fn search_on(
    race: &Race,
    format: Format,
    config: Config,
    budget: &Budget,
    mix: Mix,
) -> Searched {
    let mut scratch = Scratch::new();
    let config = race.staged(config);
    let explored = explore_mix(budget, mix, |options| {
        format.perform(&mut scratch, race, config, options).0
    });
    Searched {
        explored,
        format,
        looks: scratch.looks,
        moved: scratch.moved,
    }
}

/// Makes a schedule of `race` short that failed under `config` on `format`. `None` if it does not
/// fail again, which would be a mistake of the engine.
#[must_use]
pub fn shortest(
    race: &Race,
    format: Format,
    config: Config,
    failed: &RunReport,
) -> Option<Minimized> {
    let mut scratch = Scratch::new();
    let config = race.staged(config);
    minimize(failed, |options| {
        format.perform(&mut scratch, race, config, options).0
    })
}

/// One task that maps, touches, protects, discards and unmaps on a system with tables of `format`;
/// oracles look, and the ledger has to add up before and after the address space ends.
#[must_use]
pub fn tour(format: Format, config: Config) -> RunReport {
    let options = RunOptions::explored(Policy::Random(1));
    let mut scratch = Scratch::new();
    format.perform(&mut scratch, &TOUR, config, &options).0
}

/// Runs one schedule of `race` on `format`, step by step.
#[must_use]
pub fn show(race: &Race, format: Format, config: Config, policy: Policy) -> Shown {
    let options = RunOptions {
        trace: true,
        ..RunOptions::explored(policy)
    };
    let mut scratch = Scratch::new();
    let config = race.staged(config);
    let (report, timeline) = format.perform(&mut scratch, race, config, &options);
    let timeline = timeline.unwrap_or_else(|| panic!("a trace was asked for"));
    Shown { report, timeline }
}
