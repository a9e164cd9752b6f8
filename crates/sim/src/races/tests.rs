use super::{RACES, Race, Searched, race, search, show};
use crate::explore::Budget;
use crate::policy::Policy;
use minflt_mm::config::{Ladder, Lifetime, Protocol};
use minflt_mm::{Check, Config, ERAS, era};

fn control(race: &Race) -> Config {
    race.without_fix(era(race.shows_in).expect("an era").config)
}

/// Searches `race` with every fix in place.
fn holds_in(race: &Race, config: Config, name: &str) {
    let budget = Budget {
        schedules: 2_000,
        seed: 7,
    };
    let Searched {
        explored: found,
        looks,
    } = search(race, config, &budget);
    if let Some(failure) = found.failure {
        panic!("{} in {name}: {failure}", race.number);
    }
    assert_eq!(found.schedules, budget.schedules);
    assert!(looks[Check::Ledger as usize] >= budget.schedules);
}

#[test]
fn each_race_is_found_with_its_fix_switched_off_and_its_schedule_replays() {
    for race in RACES {
        let budget = Budget {
            schedules: 20_000,
            seed: race.seed,
        };
        let found = search(race, control(race), &budget).explored;
        let failure = found
            .failure
            .unwrap_or_else(|| panic!("{} not found", race.number));
        let again = show(
            race,
            control(race),
            Policy::Replay(failure.report.schedule.clone()),
        );
        assert_eq!(
            again.report.outcome, failure.report.outcome,
            "{}",
            race.number
        );
        eprintln!(
            "{}: schedule {}: {}",
            race.number, failure.number, failure.report.outcome
        );
    }
}

#[test]
fn no_race_is_found_in_any_era_with_every_fix_in_place() {
    for race in RACES {
        for era in ERAS {
            holds_in(race, era.config, era.name);
        }
    }
}

/// `spf-2017`, with RCU in place of SRCU.
fn speculative_rcu() -> Config {
    Config {
        lifetime: Lifetime::Rcu,
        ..era("spf-2017").expect("an era").config
    }
}

#[test]
fn no_race_is_found_where_speculation_is_protected_by_rcu() {
    for race in RACES {
        holds_in(race, speculative_rcu(), "spf-2017 with RCU");
    }
}

#[test]
fn no_race_is_found_where_vma_locks_meet_other_protocols_and_lifetimes() {
    let base = era("linux-6.15").expect("an era").config;
    let mixes = [
        (
            Ladder::VmaRwsemMmap,
            Protocol::CompareExchange,
            Lifetime::Srcu,
        ),
        (
            Ladder::VmaCountMmap,
            Protocol::CompareExchange,
            Lifetime::TypeStable,
        ),
        (Ladder::VmaCountMmap, Protocol::MmLock, Lifetime::Rcu),
    ];
    for (ladder, protocol, lifetime) in mixes {
        let config = Config {
            ladder,
            protocol,
            lifetime,
            ..base
        };
        assert_eq!(config.check(), Ok(()));
        for race in RACES {
            holds_in(race, config, &format!("{ladder} {protocol} {lifetime}"));
        }
    }
}

#[test]
fn with_rcu_the_races_of_speculation_are_found_with_their_fixes_switched_off() {
    for race in RACES.iter().filter(|race| race.shows_in == "spf-2017") {
        let budget = Budget {
            schedules: 20_000,
            seed: race.seed,
        };
        let found = search(race, race.without_fix(speculative_rcu()), &budget).explored;
        assert!(found.failure.is_some(), "{} not found", race.number);
    }
}

#[test]
fn races_are_found_by_number_or_name() {
    assert_eq!(race("p57").map(|race| race.name), Some("fault-zap"));
    assert_eq!(race("fault-zap").map(|race| race.number), Some("P57"));
    assert!(race("P99").is_none());
}
