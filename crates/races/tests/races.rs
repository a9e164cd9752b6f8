//! Each known race: found where its fix is switched off, and nowhere else.

#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_mm::config::{
    AddressSpace, AnonVmaPreparation, CpuMasks, ExchangeBy, FallbackOrder, Linking, Protocol,
    Reclamation, Rss, Unmap, eras_without_files,
};
use minflt_mm::{Check, Config, ERAS, NegativeControl, era};
use minflt_races::{Format, RACES, Race, Searched, race, search, search_on, shortest, show, tour};
use minflt_sim::{Budget, Mix, Policy};
use std::thread;

fn control(race: &Race) -> Config {
    race.without_fix(era(race.shows_in).expect("an era").config)
}

/// Searches `race` with every fix in place.
fn holds_in(race: &Race, config: Config, name: &str) {
    let budget = Budget {
        // Several formats share what one alone would get.
        schedules: 2_000 / race.formats.len() as u64 / race.weight(),
        seed: 7,
    };
    let Searched {
        explored: found,
        looks,
        format,
        moved,
    } = search(race, config, &budget);
    if let Some(failure) = found.failure {
        panic!("{} in {name} on {}: {failure}", race.number, format.id());
    }
    let all = budget.schedules * race.formats.len() as u64;
    assert_eq!(found.schedules, all);
    assert!(looks[Check::Ledger as usize] >= all);
    // Who moves nothing has no race, and none of its mistakes is found.
    let (number, moves) = (race.number, race.moves_pages());
    assert!(!moves || moved > 0, "{number} in {name}: no page was moved");
}

#[test]
fn each_race_is_found_with_its_fix_switched_off_and_its_schedule_replays_and_is_made_short() {
    for race in RACES {
        for format in race.formats {
            let budget = Budget {
                schedules: 20_000,
                seed: race.seed,
            };
            let found = search_on(race, *format, control(race), &budget, Mix::default()).explored;
            let failure = found
                .failure
                .unwrap_or_else(|| panic!("{} not found on {}", race.number, format.id()));
            let policy = Policy::Replay(failure.report.schedule.clone());
            let again = show(race, *format, control(race), policy);
            assert_eq!(
                again.report.outcome,
                failure.report.outcome,
                "{} on {}",
                race.number,
                format.id()
            );
            // Whatever the race has done to memory, no other schedule of it may end the search.
            let short = shortest(race, *format, control(race), &failure.report);
            assert!(short.is_some(), "{} on {}", race.number, format.id());
            eprintln!(
                "{} on {}: schedule {}: {}",
                race.number,
                format.id(),
                failure.number,
                failure.report.outcome
            );
        }
    }
}

/// What review found in 2004 were two mistakes: each has to be found by itself.
#[test]
fn both_mistakes_of_half_width_are_found() {
    let race = race("P5").expect("a race");
    for format in race.formats {
        let mut found = [false; 2];
        for seed in 1..200 {
            let budget = Budget {
                schedules: 200,
                seed,
            };
            let explored =
                search_on(race, *format, control(race), &budget, Mix::default()).explored;
            let text = explored
                .failure
                .map(|failure| failure.report.outcome.to_string());
            let said = |what| text.as_ref().is_some_and(|text| text.contains(what));
            found[0] |= said("two exchanges from one value");
            found[1] |= said("which no task wrote");
            if found == [true; 2] {
                break;
            }
        }
        assert_eq!(found, [true; 2], "{}", format.id());
    }
}

/// Half of the suite's time: as many races at a time as there are CPUs.
#[test]
fn no_race_is_found_in_any_era_with_every_fix_in_place() {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let search_share = |first: usize| {
        for race in RACES.iter().skip(first).step_by(cpus) {
            for era in race.eras() {
                holds_in(race, era.config, era.name);
            }
        }
    };
    thread::scope(|scope| {
        for first in 0..cpus {
            scope.spawn(move || search_share(first));
        }
    });
}

/// What is found on one format only would be a mistake of that format.
#[test]
fn every_race_is_clean_on_every_format_native_and_emulated() {
    let exchanges: Vec<_> = ERAS
        .iter()
        .map(|era| era.config)
        .filter(|config| config.protocol == Protocol::CompareExchange)
        .collect();
    assert!(!exchanges.is_empty());
    for race in RACES {
        for format in Format::ALL {
            for config in &exchanges {
                for exchange in [ExchangeBy::Native, ExchangeBy::Emulated] {
                    let config = Config {
                        exchange,
                        ..*config
                    };
                    let budget = Budget {
                        schedules: 40 / race.weight(),
                        seed: 3,
                    };
                    let found = search_on(race, *format, config, &budget, Mix::default()).explored;
                    if let Some(failure) = found.failure {
                        let (race, format) = (race.number, format.id());
                        panic!("{race} on {format}, {exchange}: {failure}");
                    }
                }
            }
        }
    }
}

/// `spf-2017`, with RCU in place of SRCU, and with an munmap that downgrades.
fn speculative_rcu() -> Config {
    Config {
        linking: Linking::EveryParent,
        anon_vma_preparation: AnonVmaPreparation::OneFault,
        reclamation: Reclamation::Rcu,
        unmap: Unmap::Downgrade,
        ..era("spf-2017").expect("an era").config
    }
}

#[test]
fn no_race_is_found_where_speculation_is_protected_by_rcu_and_puts_tables_in() {
    for race in RACES {
        holds_in(
            race,
            Config {
                address_space: AddressSpace::ArenasSmall,
                cpu_masks: CpuMasks::Arenas,
                ..speculative_rcu()
            },
            "spf-2017 with RCU, every-parent and one-fault",
        );
    }
}

#[test]
fn no_race_is_found_where_vma_locks_meet_other_protocols_and_lifetimes() {
    let base = era("linux-6.15").expect("an era").config;
    let mixes = [
        (
            FallbackOrder::VmaRwsemMmap,
            Protocol::CompareExchange,
            Reclamation::Srcu,
        ),
        (
            FallbackOrder::VmaCountMmap,
            Protocol::CompareExchange,
            Reclamation::TypeStable,
        ),
        (
            FallbackOrder::VmaCountMmap,
            Protocol::MmLock,
            Reclamation::Rcu,
        ),
    ];
    for (fallback_order, protocol, reclamation) in mixes {
        let config = Config {
            fallback_order,
            reclamation,
            ..base.with_protocol(protocol)
        };
        assert_eq!(config.check(), Ok(()));
        for race in RACES {
            let name = format!("{fallback_order} {protocol} {reclamation}");
            holds_in(race, config, &name);
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
fn the_tour_passes_on_every_format_in_every_era_native_and_emulated() {
    for format in Format::ALL {
        for era in eras_without_files() {
            let native = tour(*format, era.config);
            assert!(
                native.outcome.is_ok(),
                "{} {}: {}",
                format.id(),
                era.name,
                native.outcome
            );
            if era.config.protocol == Protocol::CompareExchange {
                let emulated = Config {
                    exchange: ExchangeBy::Emulated,
                    ..era.config
                };
                let report = tour(*format, emulated);
                assert!(
                    report.outcome.is_ok(),
                    "{}: {}",
                    format.id(),
                    report.outcome
                );
                let broken =
                    emulated.with_negative_control(Some(NegativeControl::EmulateUnderLock));
                assert!(!tour(*format, broken).outcome.is_ok(), "{}", format.id());
            }
        }
    }
}

#[test]
fn races_and_formats_are_found_by_name() {
    assert_eq!(race("p57").map(|race| race.name), Some("fault-zap"));
    assert_eq!(race("fault-zap").map(|race| race.number), Some("P57"));
    assert!(race("P99").is_none());
    for format in Format::ALL {
        assert_eq!(Format::parse(format.id()), Some(*format));
    }
    assert!(Format::parse("vax").is_none());
}

#[test]
fn no_resident_count_is_shown_below_zero_or_left_wrong_in_any_form() {
    let race = race("P8").expect("a race");
    for era in eras_without_files() {
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
