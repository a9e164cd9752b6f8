//! The eras: named configurations. No other code knows their names.

use super::{
    AddressSpace, AnonRmap, AnonVmaPreparation, Balancing, Config, CpuMasks, ExchangeBy,
    FallbackOrder, FaultAround, FaultAroundAge, Hugetlb, Linking, Prefetch, Protocol, Reclamation,
    Rss, SleepingLocks, Unmap, Zones,
};

/// A generation of page-fault synchronization.
#[derive(Clone, Copy, Debug)]
pub struct Era {
    /// The name, as in `--era`.
    pub name: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// The idea, in a line.
    pub idea: &'static str,
    /// Its choices.
    pub config: Config,
}

const fn config(
    fallback_order: FallbackOrder,
    protocol: Protocol,
    reclamation: Reclamation,
    rss: Rss,
) -> Config {
    Config {
        fallback_order,
        protocol,
        linking: Linking::MmLock,
        exchange: ExchangeBy::Native,
        reclamation,
        rss,
        sleeping_locks: SleepingLocks::Grant,
        unmap: Unmap::Exclusive,
        address_space: AddressSpace::Whole,
        cpu_masks: CpuMasks::Space,
        around: FaultAround::Order0,
        fault_around_age: FaultAroundAge::Young,
        anon_rmap: AnonRmap::Exclusive,
        anon_vma_preparation: AnonVmaPreparation::EachFault,
        balancing: Balancing::Off,
        hugetlb: Hugetlb::IMmap,
        prefetch: Prefetch::Nothing,
        zones: Zones::PerNode,
        own_lock: None,
        negative_control: None,
    }
}

/// The same since Linux 3.14: reverse-map walks take the lock for reading (3.8), writers steal
/// sleeping locks (3.10), and page tables are linked under the parent table's lock (3.13).
const fn since_2014(config: Config) -> Config {
    Config {
        sleeping_locks: SleepingLocks::Steal,
        anon_rmap: AnonRmap::Shared,
        linking: Linking::ParentLock,
        ..config
    }
}

/// The same with NUMA balancing.
const fn balancing(config: Config) -> Config {
    Config {
        balancing: Balancing::On,
        ..config
    }
}

/// The same since Linux 3.15: a fault on a file maps 16 pages.
const fn around(config: Config) -> Config {
    Config {
        around: FaultAround::Order4,
        ..since_2014(config)
    }
}

/// The same since Linux 3.16: writers spin for sleeping locks.
const fn spinning(config: Config) -> Config {
    Config {
        sleeping_locks: SleepingLocks::Spin,
        ..around(config)
    }
}

/// What Linux 3.7, 3.14 and 4.13 have in common.
const SPLIT_LOCKS: Config = config(
    FallbackOrder::Mmap,
    Protocol::TableLock,
    Reclamation::Immediate,
    Rss::PerThread,
);

/// The same since Linux 4.20, whose munmap downgrades `mmap_lock`, and 5.11, with hand-off of
/// sleeping locks (5.3).
const fn downgrading(config: Config) -> Config {
    Config {
        sleeping_locks: SleepingLocks::HandOff,
        unmap: Unmap::Downgrade,
        ..around(config)
    }
}

/// The same since Linux 6.1: hugetlb mappings have VMA locks.
const fn huge_locks(config: Config) -> Config {
    Config {
        hugetlb: Hugetlb::VmaLock,
        ..config
    }
}

/// Every era, oldest first.
pub const ERAS: &[Era] = &[
    Era {
        name: "linux-2.6.10",
        source: "Linux 2.6.10 (2004)",
        idea: "one page_table_lock per address space, taken twice in an anonymous fault",
        config: config(
            FallbackOrder::Mmap,
            Protocol::MmLock,
            Reclamation::Immediate,
            Rss::UnderLock,
        ),
    },
    Era {
        name: "atomic-pte-2004",
        source: "C. Lameter, page fault scalability patches V11 and V12 (2004)",
        idea: "empty PTEs are filled by compare-and-exchange, without the lock; sloppy rss",
        config: config(
            FallbackOrder::Mmap,
            Protocol::CompareExchange,
            Reclamation::Immediate,
            Rss::Sloppy,
        ),
    },
    Era {
        name: "linux-3.7",
        source: "Linux 3.7 (2012); split locks since 2.6.15, H. Dickins (2005)",
        idea: "one lock per page table; a reverse-map walk locks an anon_vma's root exclusively",
        config: SPLIT_LOCKS,
    },
    Era {
        name: "numa-balancing-2012",
        source: "I. Molnar and P. Zijlstra, NUMA balancing as it stood before the posting (2012)",
        idea: "hinting faults migrate pages to the accessing node, under the exclusive lock",
        config: balancing(SPLIT_LOCKS),
    },
    Era {
        name: "anon-vma-2012",
        source: "I. Molnar, migration without the anon_vma lock (2012), where that is safe",
        idea: "the same, but without the lock for a page that provably has a single mapping",
        config: Config {
            anon_rmap: AnonRmap::Skipped,
            ..balancing(SPLIT_LOCKS)
        },
    },
    Era {
        name: "linux-3.14",
        source: "Linux 3.14 (2014); split locks since 2.6.15, H. Dickins (2005)",
        idea: "one lock per page table; every fault read-locks mmap_lock, and maps one page",
        config: since_2014(SPLIT_LOCKS),
    },
    Era {
        name: "fault-around-2014",
        source: "K. A. Shutemov, map_pages and fault-around, v3 (2014)",
        idea: "a read fault on a file maps up to 16 cached pages around it",
        config: around(SPLIT_LOCKS),
    },
    Era {
        name: "linux-4.13",
        source: "Linux 4.13 (2017)",
        idea: "one lock per page table; every fault read-locks mmap_lock; fault-around",
        config: spinning(SPLIT_LOCKS),
    },
    Era {
        name: "spf-2017",
        source: "L. Dufour and P. Zijlstra, speculative page faults, RFC v6 (2017)",
        idea: "no mmap_lock: SRCU lookup, sequence count, trylock and revalidation, else fallback",
        config: spinning(config(
            FallbackOrder::SpeculativeMmap,
            Protocol::TableLock,
            Reclamation::Srcu,
            Rss::PerThread,
        )),
    },
    Era {
        name: "linux-5.19",
        source: "Linux 5.19 (2022)",
        idea: "munmap downgrades mmap_lock; a hugetlb fault holds the lock of the file's \
               mappings throughout",
        config: downgrading(SPLIT_LOCKS),
    },
    Era {
        name: "hugetlb-vma-lock-2022",
        source: "M. Kravetz, hugetlb: use new vma_lock for pmd sharing synchronization (2022)",
        idea: "a lock in each hugetlb mapping keeps its shared page tables alive",
        config: huge_locks(downgrading(SPLIT_LOCKS)),
    },
    Era {
        name: "linux-6.4",
        source: "Linux 6.4 (2023); per-VMA locks, S. Baghdasaryan",
        idea: "a lock in each VMA, trylocked after an RCU lookup; writers unlock with mmap_lock",
        config: huge_locks(downgrading(config(
            FallbackOrder::VmaRwsemMmap,
            Protocol::TableLock,
            Reclamation::Rcu,
            Rss::PerCpu,
        ))),
    },
    Era {
        name: "linux-6.15",
        source: "Linux 6.15 (2025); per-VMA locks by reference count, S. Baghdasaryan",
        idea: "the VMA lock is a reference count; the memory of a VMA is reused at once",
        config: huge_locks(downgrading(config(
            FallbackOrder::VmaCountMmap,
            Protocol::TableLock,
            Reclamation::TypeStable,
            Rss::PerCpu,
        ))),
    },
    Era {
        name: "minflt",
        source: "this project (2026)",
        idea: "an arena for each CPU: faults without a lock, calls that lock and flush only arenas",
        config: Config {
            linking: Linking::EveryParent,
            address_space: AddressSpace::Arenas,
            cpu_masks: CpuMasks::Arenas,
            anon_vma_preparation: AnonVmaPreparation::OneFault,
            zones: Zones::PerCpuGroup,
            ..huge_locks(downgrading(config(
                FallbackOrder::SpeculativeMmap,
                Protocol::TableLock,
                Reclamation::RcuBatched,
                Rss::PerCpu,
            )))
        },
    },
];

/// The eras that differ for anonymous memory without migration: of those otherwise equal, the
/// newest.
pub fn eras_without_files() -> impl Iterator<Item = &'static Era> {
    newest_by(|config| config.without_files().without_migration())
}

/// The eras that differ without migration: of those otherwise equal, the newest.
pub fn eras_without_migration() -> impl Iterator<Item = &'static Era> {
    newest_by(Config::without_migration)
}

/// The eras that differ for migration: of those that differ in file faults only, the newest.
pub fn eras_of_migration() -> impl Iterator<Item = &'static Era> {
    newest_by(Config::without_files)
}

/// The eras that differ for hugetlb: of those that differ in other faults or in migration only, the
/// newest.
pub fn eras_of_huge_pages() -> impl Iterator<Item = &'static Era> {
    newest_by(|config| Config {
        hugetlb: config.hugetlb,
        ..config.without_files().without_migration()
    })
}

/// The newest era of each kind.
fn newest_by(kind: fn(Config) -> Config) -> impl Iterator<Item = &'static Era> {
    let newest = move |at: usize| {
        let newer = ERAS[at + 1..].iter();
        let mut newer = newer.map(|era| kind(era.config));
        newer.all(|it| it != kind(ERAS[at].config))
    };
    (0..ERAS.len())
        .filter(move |at| newest(*at))
        .map(|at| &ERAS[at])
}

/// The era called `name`; `best` is this project's own.
#[must_use]
pub fn era(name: &str) -> Option<&'static Era> {
    let name = if name == "best" { "minflt" } else { name };
    ERAS.iter().find(|era| era.name == name)
}
