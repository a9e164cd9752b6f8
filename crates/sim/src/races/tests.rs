use super::{RACES, Race, Searched, race, search, show};
use crate::explore::Budget;
use crate::policy::Policy;
use minflt_mm::config::{Ladder, Lifetime, Protocol, Rss};
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
    assert!(looks[Check::Ledger as usize] >= budget.schedules);
    assert_eq!(found.schedules, budget.schedules);
    if let Some(failure) = found.failure {
        panic!("{} in {name}: {failure}", race.number);
    }
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
fn races_are_found_by_number_or_name() {
    assert_eq!(race("p57").map(|race| race.name), Some("fault-zap"));
    assert_eq!(race("fault-zap").map(|race| race.number), Some("P57"));
    assert!(race("P99").is_none());
}

#[test]
fn no_resident_count_is_shown_below_zero_or_left_wrong_in_any_form() {
    let race = race("P8").expect("a race");
    for era in ERAS {
        let forms = Rss::ALL.iter().map(|(rss, ..)| Config {
            rss: *rss,
            ..era.config
        });
        for config in forms.filter(|config| config.check().is_ok()) {
            let budget = Budget {
                schedules: 500,
                seed: 11,
            };
            let found = search(race, config, &budget).explored;
            if let Some(failure) = found.failure {
                panic!("{config:?}: {failure}");
            }
        }
    }
}
