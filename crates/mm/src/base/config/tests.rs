use super::{
    AddressSpace, AnonRmap, AnonVmaPreparation, Balancing, Config, CpuMasks, ERAS, Era, ExchangeBy,
    FallbackOrder, Linking, NegativeControl, Prefetch, Protocol, Reclamation, Rss, SleepingLocks,
    Zones, era, eras_of_huge_pages, eras_of_migration, eras_without_files, eras_without_migration,
};
use minflt_sync::Succession;

#[test]
fn every_era_is_a_legal_mix_with_a_name_of_its_own() {
    for (at, era) in ERAS.iter().enumerate() {
        assert_eq!(era.config.check(), Ok(()), "{}", era.name);
        assert!(era.config.negative_control.is_none());
        assert!(ERAS.iter().skip(at + 1).all(|other| other.name != era.name));
    }
}

/// Linux has neither, and published figures are Linux's.
#[test]
fn no_era_of_linux_has_the_choices_for_many_cpus() {
    let (own, linux) = ERAS.split_last().expect("eras");
    assert_eq!(own.name, "minflt");
    for era in linux {
        let Config {
            anon_vma_preparation,
            zones,
            linking,
            ..
        } = era.config;
        assert_eq!(anon_vma_preparation, AnonVmaPreparation::EachFault);
        assert_eq!(zones, Zones::PerNode);
        assert_ne!(linking, Linking::EveryParent);
    }
}

#[test]
fn each_row_of_the_table_refuses_something_and_gives_a_reason() {
    let legal = era("spf-2017").expect("an era").config;
    let refused = [
        Config {
            fallback_order: FallbackOrder::Speculative,
            ..legal
        },
        Config {
            protocol: Protocol::CompareExchange,
            ..legal
        },
        Config {
            reclamation: Reclamation::Immediate,
            ..legal
        },
        Config {
            fallback_order: FallbackOrder::VmaCountMmap,
            reclamation: Reclamation::Immediate,
            ..legal
        },
        Config {
            reclamation: Reclamation::TypeStable,
            ..legal
        },
        Config {
            fallback_order: FallbackOrder::VmaOwnMmap,
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
        Config {
            protocol: Protocol::MmLock,
            ..legal
        },
        Config {
            linking: Linking::EveryParent,
            fallback_order: FallbackOrder::Mmap,
            ..legal
        },
        Config {
            address_space: AddressSpace::Arenas,
            fallback_order: FallbackOrder::VmaCountMmap,
            reclamation: Reclamation::Rcu,
            ..legal
        },
        Config {
            cpu_masks: CpuMasks::Arenas,
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
    for (reclamation, ..) in Reclamation::ALL {
        let config = Config {
            reclamation: *reclamation,
            ..spf
        };
        let defers = matches!(
            reclamation,
            Reclamation::Srcu | Reclamation::Rcu | Reclamation::RcuBatched
        );
        assert_eq!(config.check().is_ok(), defers, "{reclamation}");
    }
}

#[test]
fn only_its_own_negative_control_lets_the_unsound_mix_through() {
    let spf = era("spf-2017").expect("an era").config;
    let unsound = spf.with_protocol(Protocol::CompareExchange);
    assert!(unsound.check().is_err());
    assert_eq!(
        unsound
            .with_negative_control(Some(NegativeControl::SpeculativeExchange))
            .check(),
        Ok(())
    );
    assert!(
        unsound
            .with_negative_control(Some(NegativeControl::BlindPopulate))
            .check()
            .is_err()
    );
}

#[test]
fn a_vma_lock_goes_with_every_protocol_and_every_lifetime_that_waits() {
    let locks = [FallbackOrder::VmaRwsemMmap, FallbackOrder::VmaCountMmap];
    for (fallback_order, (protocol, ..)) in locks.iter().flat_map(|fallback_order| {
        Protocol::ALL
            .iter()
            .map(move |protocol| (*fallback_order, protocol))
    }) {
        let with = |reclamation| Config {
            fallback_order,
            reclamation,
            ..era("linux-6.15")
                .expect("an era")
                .config
                .with_protocol(*protocol)
        };
        assert_eq!(with(Reclamation::Srcu).check(), Ok(()));
        assert_eq!(with(Reclamation::Rcu).check(), Ok(()));
        assert!(with(Reclamation::Immediate).check().is_err());
        let type_stable = with(Reclamation::TypeStable).check();
        assert_eq!(
            type_stable.is_ok(),
            fallback_order == FallbackOrder::VmaCountMmap
        );
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

/// What a test runs in that does not ask a choice stands for what it leaves out.
#[test]
fn eras_that_cannot_be_told_apart_are_run_once() {
    let names = |era: &'static Era| era.name;
    let plain = [
        "linux-2.6.10",
        "atomic-pte-2004",
        "anon-vma-2012",
        "fault-around-2014",
        "linux-4.13",
        "spf-2017",
        "hugetlb-vma-lock-2022",
        "linux-6.4",
        "linux-6.15",
        "minflt",
    ];
    assert!(eras_without_files().map(names).eq(plain));
    let files = || eras_without_migration().map(names);
    assert!(plain.iter().all(|name| files().any(|it| it == *name)));
    assert_eq!(
        files().count(),
        plain.len() + 1,
        "one that maps single pages"
    );
    let moving = || eras_of_migration().map(names);
    let of_2012 = ["linux-3.7", "numa-balancing-2012"];
    let mut all = plain.iter().chain(&of_2012);
    assert!(all.all(|name| moving().any(|it| it == *name)));
    assert_eq!(moving().count(), plain.len() + of_2012.len());
    let locks = plain.iter().flat_map(|name| match *name {
        "hugetlb-vma-lock-2022" => ["linux-5.19", "hugetlb-vma-lock-2022"].as_slice(),
        _ => core::slice::from_ref(name),
    });
    assert!(eras_of_huge_pages().map(names).eq(locks.copied()));
}

/// A prefetch would be compared with none, not one way to synchronize with another.
#[test]
fn eras_differ_in_nothing_that_is_no_synchronization() {
    for era in ERAS {
        assert_eq!(era.config.prefetch, Prefetch::Nothing, "{}", era.name);
    }
}

#[test]
fn the_three_of_2012_differ_in_the_reverse_maps_lock_and_in_balancing_only() {
    let config = |name| era(name).expect("an era").config;
    let before = config("linux-3.7");
    assert_eq!(before.anon_rmap, AnonRmap::Exclusive);
    assert_eq!(before.balancing, Balancing::Off);
    let balancing = config("numa-balancing-2012");
    assert_eq!(balancing.anon_rmap, AnonRmap::Exclusive);
    assert_eq!(balancing.balancing, Balancing::On);
    let posted = config("anon-vma-2012");
    assert_eq!(posted.anon_rmap, AnonRmap::Skipped);
    assert_eq!(posted.balancing, Balancing::On);
    let after = config("linux-3.14");
    assert_eq!(after.anon_rmap, AnonRmap::Shared);
    assert_eq!(after.linking, Linking::ParentLock);
    assert_eq!(after.sleeping_locks, SleepingLocks::Steal);
    let before_2014 = Config {
        linking: Linking::MmLock,
        sleeping_locks: SleepingLocks::Grant,
        ..after
    };
    for other in [balancing, posted, before_2014] {
        assert_eq!(other.without_migration(), before);
    }
}

/// By the release that each era is of.
#[test]
fn sleeping_locks_are_those_of_the_eras_release() {
    for (name, lock, i_mmap) in [
        ("linux-2.6.10", Succession::Grant, Succession::Spin),
        ("atomic-pte-2004", Succession::Grant, Succession::Spin),
        ("linux-3.7", Succession::Grant, Succession::Spin),
        ("anon-vma-2012", Succession::Grant, Succession::Spin),
        ("linux-3.14", Succession::Steal, Succession::Spin),
        ("fault-around-2014", Succession::Steal, Succession::Spin),
        ("linux-4.13", Succession::Spin, Succession::Spin),
        ("spf-2017", Succession::Spin, Succession::Spin),
        ("linux-5.19", Succession::HandOff, Succession::HandOff),
        (
            "hugetlb-vma-lock-2022",
            Succession::HandOff,
            Succession::HandOff,
        ),
        ("linux-6.15", Succession::HandOff, Succession::HandOff),
    ] {
        let locks = era(name).expect("an era").config.sleeping_locks;
        assert_eq!((locks.of_semaphore(), locks.of_mutex()), (lock, i_mmap));
    }
    let anon_vma = |name| era(name).expect("an era").config.anon_vma_lock();
    assert_eq!(anon_vma("linux-3.7"), Succession::Spin, "a mutex");
    assert_eq!(anon_vma("linux-3.14"), Succession::Steal, "a semaphore");
}
