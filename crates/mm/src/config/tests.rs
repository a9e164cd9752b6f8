use super::{Broken, Config, ERAS, ExchangeBy, Ladder, Lifetime, Protocol, Rss, era};

#[test]
fn every_era_is_a_legal_mix_with_a_name_of_its_own() {
    for (at, era) in ERAS.iter().enumerate() {
        assert_eq!(era.config.check(), Ok(()), "{}", era.name);
        assert!(era.config.broken.is_none());
        assert!(ERAS.iter().skip(at + 1).all(|other| other.name != era.name));
    }
}

#[test]
fn each_row_of_the_table_refuses_something_and_gives_a_reason() {
    let legal = era("spf-2017").expect("an era").config;
    let refused = [
        Config {
            ladder: Ladder::Speculative,
            ..legal
        },
        Config {
            protocol: Protocol::CompareExchange,
            ..legal
        },
        Config {
            lifetime: Lifetime::Immediate,
            ..legal
        },
        Config {
            ladder: Ladder::VmaCountMmap,
            lifetime: Lifetime::Immediate,
            ..legal
        },
        Config {
            lifetime: Lifetime::TypeStable,
            ..legal
        },
        Config {
            rss: Rss::UnderLock,
            ..legal
        },
        Config {
            exchange: ExchangeBy::Emulated,
            ..legal
        },
    ];
    assert_eq!(refused.len(), Config::illegal_mixes().count());
    for (config, row) in refused.iter().zip(Config::illegal_mixes()) {
        assert_eq!(config.check(), Err(row));
        assert!(!row.reason.is_empty() && !row.remedy.is_empty());
    }
}

#[test]
fn speculation_is_legal_with_either_grace_period_and_with_no_other_lifetime() {
    let spf = era("spf-2017").expect("an era").config;
    for (lifetime, ..) in Lifetime::ALL {
        let config = Config {
            lifetime: *lifetime,
            ..spf
        };
        let defers = matches!(lifetime, Lifetime::Srcu | Lifetime::Rcu);
        assert_eq!(config.check().is_ok(), defers, "{lifetime}");
    }
}

#[test]
fn only_its_own_negative_control_lets_the_unsound_mix_through() {
    let spf = era("spf-2017").expect("an era").config;
    let unsound = Config {
        protocol: Protocol::CompareExchange,
        ..spf
    };
    assert!(unsound.check().is_err());
    assert_eq!(
        unsound.broken(Some(Broken::SpeculativeExchange)).check(),
        Ok(())
    );
    assert!(unsound.broken(Some(Broken::BlindPopulate)).check().is_err());
}

#[test]
fn a_vma_lock_goes_with_every_protocol_and_every_lifetime_that_waits() {
    let locks = [Ladder::VmaRwsemMmap, Ladder::VmaCountMmap];
    for (ladder, (protocol, ..)) in locks.iter().flat_map(|ladder| {
        Protocol::ALL
            .iter()
            .map(move |protocol| (*ladder, protocol))
    }) {
        let with = |lifetime| Config {
            ladder,
            protocol: *protocol,
            lifetime,
            ..era("linux-6.15").expect("an era").config
        };
        assert_eq!(with(Lifetime::Srcu).check(), Ok(()));
        assert_eq!(with(Lifetime::Rcu).check(), Ok(()));
        assert!(with(Lifetime::Immediate).check().is_err());
        let type_stable = with(Lifetime::TypeStable).check();
        assert_eq!(type_stable.is_ok(), ladder == Ladder::VmaCountMmap);
    }
}

#[test]
fn names_parse_back() {
    for (choice, name, meaning) in Protocol::ALL {
        assert_eq!(Protocol::parse(name), Some(*choice));
        assert!(!meaning.is_empty());
    }
    assert_eq!(Rss::parse("exact"), None);
}
