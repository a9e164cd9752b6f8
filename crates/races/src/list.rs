//! Every race that can be checked, each in one place: what it is called, what happens in it, the
//! fix that it lacks, and what must never be.

use super::stage::{Script, Stage};
use super::{Format, Race};
use super::{
    aba, advice, arenas, away, entries, files, forks, hints, huge_age, huge_moving, huge_tables,
    hugetlb, lineage, masks, migration, pins, promises, remaps, runs, scenes, segments, stacks,
    vma_scenes,
};
use minflt_mm::config::{
    AddressSpace, AnonVmaPreparation, Balancing, CpuMasks, ExchangeBy, FaultAroundAge, Linking,
    Zones,
};
use minflt_mm::{Config, NegativeControl};
use minflt_pgtable::Paging;

const X86: &[Format] = &[Format::X86_64];
const ALTIX: &[Format] = &[Format::Altix16K];

/// What eras have to differ in for a scene to tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Eras {
    Memory,
    Files,
    Moves,
    /// Pages go beside faults that map what is around them.
    Around,
    Huge,
}

/// What a scene has on its stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) eras: Eras,
    /// Whether its tasks move pages from node to node.
    pub(super) movers: bool,
    pub(super) swap_pages: u64,
    /// Memory nodes of its machine; the last CPU is of the last one.
    pub(super) nodes: u32,
    /// Frames of each node, where not the usual.
    pub(super) frames: Option<u64>,
    /// The configuration that it is about, made from another.
    pub(super) staged: fn(Config) -> Config,
}

const MEMORY: About = About {
    eras: Eras::Memory,
    movers: false,
    swap_pages: 0,
    nodes: 1,
    frames: None,
    staged: |config| config,
};

const FILES: About = About {
    eras: Eras::Files,
    ..MEMORY
};

/// Speculative faults put tables in.
const LINKERS: About = About {
    staged: |config| match config.fallback_order.speculates() {
        true => Config {
            linking: Linking::EveryParent,
            ..config
        },
        false => config,
    },
    ..MEMORY
};

/// One fault allocates an anon_vma, in every lock mode.
const PREPARERS: About = About {
    staged: |config| Config {
        anon_vma_preparation: AnonVmaPreparation::OneFault,
        ..config
    },
    ..MEMORY
};

/// An address space in arenas, small ones.
const ARENAS: About = About {
    staged: |config| in_arenas(config, AddressSpace::ArenasSmall),
    ..MEMORY
};

/// The same, once it has two threads.
const DIVIDED: About = About {
    staged: |config| in_arenas(config, AddressSpace::Arenas),
    ..MEMORY
};

/// The same, where one of several first faults allocates an anon_vma.
const DIVIDED_PREPARERS: About = About {
    staged: |config| Config {
        anon_vma_preparation: AnonVmaPreparation::OneFault,
        ..in_arenas(config, AddressSpace::Arenas)
    },
    ..MEMORY
};

/// An address space in small arenas, which know their CPUs.
const MASKS: About = About {
    staged: |config| with_masks(in_arenas(config, AddressSpace::ArenasSmall)),
    ..MEMORY
};

/// The same, once it has two threads.
const DIVIDED_MASKS: About = About {
    staged: |config| with_masks(in_arenas(config, AddressSpace::Arenas)),
    ..MEMORY
};

const fn with_masks(config: Config) -> Config {
    match config.address_space {
        AddressSpace::Whole => config,
        AddressSpace::Arenas | AddressSpace::ArenasSmall => Config {
            cpu_masks: CpuMasks::Arenas,
            ..config
        },
    }
}

const fn in_arenas(config: Config, address_space: AddressSpace) -> Config {
    match config.fallback_order.vma_lock() {
        None => Config {
            address_space,
            ..config
        },
        Some(_) => config,
    }
}

/// CPUs keep runs of frames; lists are short, as memory may be full.
const RUNS: About = About {
    swap_pages: 16,
    staged: |config| Config {
        zones: Zones::PerCpuGroup,
        ..config
    },
    ..MEMORY
};

const NODES: About = About { nodes: 2, ..MEMORY };

const LINKS: About = About {
    eras: Eras::Moves,
    ..NODES
};

const MOVES: About = About {
    movers: true,
    ..LINKS
};

const HINT: About = About {
    staged: |config| Config {
        balancing: Balancing::On,
        ..config
    },
    ..MOVES
};

const SWAPS: About = About {
    eras: Eras::Moves,
    swap_pages: 16,
    ..MEMORY
};

const AROUND: About = About {
    eras: Eras::Around,
    ..SWAPS
};

const UNUSED: About = About {
    frames: Some(away::FRAMES),
    staged: |config| Config {
        fault_around_age: FaultAroundAge::Old,
        ..config
    },
    ..AROUND
};

const HUGE: About = About {
    eras: Eras::Huge,
    frames: Some(hugetlb::FRAMES),
    ..MEMORY
};

const HUGE_MOVES: About = About {
    movers: true,
    nodes: 2,
    ..HUGE
};

/// No race: one task that does a bit of everything, and what most races have in common.
pub(super) const TOUR: Race = Race {
    number: "tour",
    name: "",
    never: "",
    fix: NegativeControl::NoRevalidate,
    shows_in: "",
    seed: 1,
    formats: X86,
    exchange: ExchangeBy::Native,
    about: MEMORY,
};

/// A race is a number, a name, the function that writes it out on a stage, the fix, the era in
/// which switching that off shows, what differs from [`TOUR`], and what must never happen.
macro_rules! races {
    ($($number:literal, $name:literal, $script:path $([$arg:expr])?, $fix:ident, $shows_in:literal
        $(, $field:ident: $value:expr)* => $never:literal;)+) => {
        /// Every race that can be checked.
        pub const RACES: &[Race] = &[$(Race {
            number: $number,
            name: $name,
            never: $never,
            fix: NegativeControl::$fix,
            shows_in: $shows_in,
            $($field: $value,)*
            ..TOUR
        }),+];

        /// Writes the race called `number` out on a stage.
        pub(super) fn script<'s, P: Paging>(number: &str, stage: Stage<'s, P>) -> Script<'s> {
            match number {
                $($number => $script(stage $(, $arg)?),)+
                _ => entries::tour(stage),
            }
        }
    };
}

races! {
    "P1", "fault-fault", scenes::fault_fault, BlindPopulate, "atomic-pte-2004" =>
        "two faults below one missing table: a table or a page is lost";
    "P60", "link-link", scenes::fault_fault, LinksUnderOwnLock, "linux-4.13" =>
        "two faults below one missing table put theirs in under different locks";
    "P5", "half-equal", entries::half_equal, HalfWidthExchange, "atomic-pte-2004",
        formats: Format::ALL =>
        "an exchange compares half of an entry, or another CPU reads one half exchanged";
    // What the swapper does with the lock held waits for swap; the zap holds it as well.
    "P6", "emulated", entries::emulated, EmulateUnderLock, "atomic-pte-2004", formats: Format::ALL,
        exchange: ExchangeBy::Emulated =>
        "who holds the lock that emulates the exchange waits for itself in an exchange";
    "P7", "accessed-mprotect", scenes::accessed_protect, StaleAccessBits, "atomic-pte-2004",
        formats: ALTIX =>
        "after mprotect returned, setting an accessed bit brings the old protection back";
    "P8", "rss", scenes::resident, RawRss, "atomic-pte-2004" =>
        "a resident count below zero is shown";
    "P9", "walk-free", vma_scenes::walk_free, TablesAtOnce, "spf-2017" =>
        "a fault walks into a table that munmap freed";
    "P63", "link-munmap", vma_scenes::link_unmap, LinksUnchecked, "spf-2017", about: LINKERS =>
        "a fault without a lock puts a table in below one that munmap freed";
    "P63-lock", "link-munmap-lock", vma_scenes::link_unmap, FreesUnlocked, "spf-2017",
        about: LINKERS => "munmap overlooks a table that a fault is putting in, and it is lost";
    "P64", "prepare-munmap", vma_scenes::prepare_unmap, PreparesUnchecked, "spf-2017",
        about: PREPARERS => "a fault without a lock gives an anon_vma to a VMA that munmap removed";
    "P64-twice", "prepare-prepare", scenes::fault_fault, PreparesTwice, "spf-2017",
        about: PREPARERS, seed: 2 =>
        "two first faults each give their VMA an anon_vma, and one is lost";
    "P65", "arenas-overlap", arenas::overlapping, FirstArenaOnly, "spf-2017", about: ARENAS =>
        "two calls with an arena in common change its tree, and a mapping is lost";
    "P66", "arena-border", arenas::border, ReachIgnored, "spf-2017", about: ARENAS =>
        "two calls in different arenas change one mapping that lies in both";
    "P67", "arena-division", arenas::division, DivisionUnseen, "spf-2017", about: DIVIDED =>
        "a call looks for what it unmaps where nothing is found any more";
    "P68", "arena-join", arenas::joining, JoinsAfterWalk, "spf-2017", about: MASKS =>
        "munmap overlooks a CPU that is about to buffer what it unmaps";
    "P69", "arena-division-flush", arenas::division_flush, DivisionUnflushed, "spf-2017",
        about: DIVIDED_MASKS =>
        "a CPU uses what it buffered before the division, and munmap does not know of it";
    "P70", "arena-discards", arenas::discards, OtherFlushIgnored, "spf-2017", about: MASKS =>
        "a discard that found nothing returns while another CPU still reaches the page";
    "P71", "arena-division-prepare", arenas::division_prepare, PreparesUndivided, "spf-2017",
        about: DIVIDED_PREPARERS =>
        "two first faults each give their VMA an anon_vma, under the locks of before and after";
    "P72", "arena-leave", arenas::leaving, ArenaLeftUnflushed, "spf-2017", about: MASKS =>
        "a CPU that has left an arena's mask keeps a translation of it";
    "P73", "run-drain", runs::draining, RunGivenFirst, "linux-4.13", about: RUNS =>
        "a run of free frames is given back to a zone, and its CPU hands it out as well";
    "P9-age", "age-munmap", vma_scenes::age_unmap, AgeHoles, "linux-4.13", seed: 2 =>
        "a walk under mmap_lock goes on in a table that munmap frees under the same lock";
    "P20", "around-truncate", files::around_truncate, TruncateUnmapsOnce, "fault-around-2014",
        about: FILES => "an entry maps a page behind the end after truncate returned";
    "P20-make", "make-truncate", files::make_truncate, SizeBeforeLock, "linux-4.13", about: FILES =>
        "a page is made behind the end while the file becomes shorter";
    "P21", "around-reuse", files::around_reuse, CachedUnchecked, "fault-around-2014",
        about: FILES => "a page is mapped that was the file's before its frame was used again";
    "P22", "around-edges", files::around_edges, AroundUnclamped, "fault-around-2014",
        about: FILES => "pages around a fault are mapped where their mapping has ended";
    "P23", "around-unready", files::around_unready, AroundTakesAll, "fault-around-2014",
        about: FILES => "a page is mapped that was not read in, or whose memory is broken";
    "P23-wait", "around-waits", files::around_unready, AroundWaits, "fault-around-2014",
        about: FILES => "who maps pages around a fault waits for one with a table's lock held";
    "P24", "around-copy", files::around_copy, AroundReplaces, "fault-around-2014", about: FILES =>
        "a private copy is replaced by the file's page around a load's fault";
    "P27", "fault-remap", scenes::fault_remap, NoRevalidate, "spf-2017" =>
        "a fault of the old mapping installs a page after munmap returned";
    "P27-detach", "fault-downgrade", vma_scenes::fault_reuse, DetachLate, "linux-6.15", seed: 2 =>
        "a fault locks a mapping that munmap has taken out, and puts a page in after the zap";
    "P28", "fault-mprotect", scenes::fault_protect, ProtectWithoutSection, "spf-2017" =>
        "after mprotect(NONE) returned, an entry grants a store";
    "P62", "fetch-mprotect", scenes::fetch_protect, FetchWithoutFlush, "linux-4.13" =>
        "a CPU fetches from a page after mprotect took the right to";
    "P29", "remap-fault", remaps::remap_fault, RemapPublishesEarly, "spf-2017" =>
        "a fault puts a page in where mremap is about to move one";
    "P30", "lookup-free", scenes::fault_remap, NoGracePeriod, "spf-2017" =>
        "a lookup without a lock reads a VMA that was freed";
    "P30-reuse", "fault-reused-vma", vma_scenes::fault_reuse, NoOwnerRecheck, "linux-6.15" =>
        "a fault holds a VMA that has become another address space's, and takes it for its own";
    "P30-range", "fault-split", vma_scenes::fault_split, NoRangeRecheck, "linux-6.4" =>
        "a fault holds a VMA that no longer covers its address, and goes on";
    "P31", "stack-stack", stacks::stack_stack, ExpandUnderReadLock, "linux-6.4" =>
        "two stacks grow at once, and one that is mapped is not found, or does not grow";
    "P31-insert", "lookup-insert", vma_scenes::lookup_beside, LeafInPlace, "spf-2017" =>
        "a lookup without a lock misses a mapping that is there before and after";
    "P32", "fork-fault", forks::fork_fault[forks::First::Touched], ForkWithoutSections,
        "spf-2017" => "a forked child lacks a store of its parent and has a later one";
    "P32-fresh", "fork-fresh", forks::fork_fault[forks::First::Fresh], ForkLooksUnlocked,
        "spf-2017" =>
        "a forked child lacks a page that a fault was putting in, and has a later store";
    "P33", "map-load", vma_scenes::map_load, PublishEarly, "linux-6.15" =>
        "a fault finds a VMA that does not yet say what may be done there";
    "P34", "fault-anon-vma", remaps::remap_anon, AnonVmaBeforeLock, "linux-6.15" =>
        "a fault makes a page of a mapping that has lost its anon_vma";
    "P35", "fault-mbind", advice::policy_fault, ProtectWithoutSection, "spf-2017", about: NODES =>
        "a fault that goes on after mbind returned takes a page by the old policy";
    "P35-locked", "mlock-mlock", advice::lock_lock, LockedCountLate, "linux-6.15" =>
        "two calls lock memory at once, and the count of locked pages lacks one of them";
    "P61", "sleep-munmap", masks::sleep_unmap, LeavesUnflushed, "linux-4.13" =>
        "a CPU that is told no more keeps a translation";
    "P36", "fault-mmap-lock", vma_scenes::fault_waits, MmapLockUnderVmaLock, "linux-6.15" =>
        "a fault waits for mmap_lock with its VMA's lock held";
    "P37", "fault-shootdown", scenes::fault_shootdown, SpinForTableLock, "spf-2017" =>
        "a speculative fault waits for a table's lock whose holder waits for its CPU";
    "P38", "fault-writers", vma_scenes::fault_starves, FallbackWithoutEnd, "linux-6.4" =>
        "a fault fails again and again among writers, and never waits";
    "P38-writer", "writer-faults", vma_scenes::writer_starves, WriterLetsReadersIn, "linux-6.15" =>
        "a writer waits for a VMA while new faults go on coming in";
    "P39", "stack-munmap", stacks::stack_unmap, UnmapUnlocked, "linux-4.13" =>
        "a stack grows into a range whose tables munmap is freeing";
    "P40", "remap-zap", remaps::remap_zap, RemapFlushesLate, "linux-6.4", seed: 6 =>
        "a page is freed at its new place and still reached by the old one";
    "P41", "zap-zap", scenes::zap_zap, NoNestedFlush, "linux-4.13" =>
        "a zap that found nothing returns while another CPU still reaches the page";
    "P43", "protect-copy", pins::protect_copy, ProtectWithoutFlush, "linux-4.13" =>
        "a page that a handler protects and copies is stored to meanwhile";
    "P45", "fork-pin", pins::fork_pin, PinWithoutSequence, "linux-4.13", seed: 2004 =>
        "fork takes a page away from somebody who has just pinned it";
    "P46", "reuse-zap", forks::reuse_zap, ReuseByMapCount, "linux-4.13" =>
        "a store reaches a page that another address space still reaches";
    "P57", "fault-zap", scenes::fault_zap, MapCountAfterExchange, "atomic-pte-2004" =>
        "a zap takes a map count below zero that the fault has not raised yet";
    // Found with store buffers only.
    "commit", "charge-charge", promises::charge_charge, ChargeWithoutFence, "linux-4.13" =>
        "two mappings are admitted at once of which only one fits";
    "flush", "install-load", scenes::fault_fault, FlushAfterInstall, "atomic-pte-2004",
        formats: ALTIX =>
        "a CPU uses a page before the caches that need telling were told what is in it";
    "zero-page", "replace-load", entries::replace_load, ReplaceBeforeFlush, "atomic-pte-2004",
        seed: 12 =>
        "one CPU's store has returned and another still loads zero from the shared page";
    "speculative-exchange", "fault-munmap", scenes::fault_unmap, SpeculativeExchange, "spf-2017" =>
        "an entry is installed in a table that munmap freed";
    "P40-truncate", "remap-truncate", files::remap_truncate, RemapFlushesLate, "linux-6.4",
        about: FILES, seed: 3 =>
        "a page that was truncated is stored to by its place before mremap";
    "P42", "munmap-truncate", files::unmap_truncate, FilePagesAtOnce, "linux-4.13", about: FILES,
        seed: 5 => "a page that was truncated is stored to before munmap told every CPU";
    "P44", "force-discard", files::force_discard, ForceTrustsFault, "linux-4.13", about: FILES =>
        "a forced store reaches the file of a private mapping";
    "writeback-unmap", "munmap-write", files::unmap_write, UnlinkBeforeFlush, "linux-4.13",
        about: FILES => "a store through a mapping that goes is never written";
    "writeback", "write-store", files::write_store, WriteUnprotected, "linux-4.13", about: FILES =>
        "a store while a page is written is never written";
    "P2", "swap-fault", away::out, SwapInTwoSteps, "atomic-pte-2004", about: SWAPS =>
        "a fault fills an entry whose page is on its way out";
    "P3", "swap-store", away::out, SwapForgetsDirty, "linux-4.13", about: SWAPS =>
        "a store that comes before a page's entry goes is not in what is written";
    "P4", "swap-install", away::out_fault, FoundBeforeCounted, "atomic-pte-2004", about: SWAPS =>
        "a page goes out before the fault that makes it has counted its entry";
    "P6-swap", "swap-emulated", away::out, EmulateUnderLock, "atomic-pte-2004", about: SWAPS,
        formats: Format::ALL, exchange: ExchangeBy::Emulated =>
        "swap-out, with the lock held that emulates the exchange, waits for itself";
    "P10", "migrate-child", migration::child, RmapUnlocked, "linux-4.13", about: MOVES =>
        "a walk of the reverse map comes to a span that a child's exit frees, or misses one";
    "P11", "migrate-fault", migration::first_fault, RmapUnlocked, "linux-4.13", about: MOVES =>
        "a walk of the reverse map misses a page beside a neighbour's first fault";
    "P12", "migrate-remap", migration::remap, RemapUnlocked, "linux-4.13", about: MOVES =>
        "mremap takes an entry past a walk that puts entries back";
    "P13", "migrate-fork", migration::fork, ForkLeavesMoving, "linux-4.13", about: MOVES =>
        "a child gets an entry that grants stores, or that nobody puts back";
    "P13-order", "fork-order", migration::fork, ChildFirst, "linux-4.13", about: MOVES =>
        "an entry is copied to a child that the walk has been to already";
    "P14", "migrate-mprotect", migration::protect, MoveKeepsGrant, "linux-4.13", about: MOVES =>
        "a page that was moved grants stores that mprotect took away meanwhile";
    "P15", "migrate-store", migration::store, CopyBeforeFlush, "linux-4.13", about: MOVES =>
        "a store reaches the old page after that was copied";
    "idle-move", "migrate-idle", migration::store, MoveCountsItself, "linux-4.13", about: MOVES =>
        "a page that nobody else uses is not moved";
    "P58", "aba-exclusive", aba::exclusive, ExclusiveBeforeLock, "linux-4.13", about: MOVES =>
        "a store takes a page for its own that was moved away and back, and that a child has";
    "P16", "find-recycled", lineage::recycled, HoldsFreedAnonVma, "linux-4.13", about: MOVES =>
        "who comes from a page gets an anon_vma that is free, and frees it again";
    "P17", "reuse-anon-vma", lineage::reused, ChildrenAndOwners, "linux-4.13", about: MOVES =>
        "a mapping has a page whose anon_vma it is not chained to, by two forks' reuse";
    "P17-merge", "merge-moved", lineage::inherited, MergeForgetsChain, "linux-4.13", about: MOVES =>
        "a mapping takes pages over that mremap brings, and not their anon_vma";
    "P18", "merge-refused", lineage::refused, MergeWithoutSection, "linux-6.15", about: LINKS =>
        "a fault makes a page by a link to an anon_vma that is then taken back";
    "P25", "around-swap", away::around_out, AroundForgetsAway, "linux-4.13", about: AROUND =>
        "the file's page is mapped over a private copy that was swapped out";
    "P26", "around-unused", away::unused, FaultAroundYoung, "linux-4.13", about: UNUSED =>
        "a page that was used goes while one stays that was mapped around and never used";
    "hint", "hint-discard", hints::hint, HintPutsBack, "linux-4.13", about: HINT =>
        "a hinting fault puts back what it read of an entry whose page has gone";
    "watch-move", "migrate-watched", migration::watched, WatchSkipsMoving, "linux-4.13",
        about: MOVES => "a page grants stores again that a handler protected while it was moved";
    "P45-move", "migrate-pin-fork", migration::pin_fork, SwapSharesPinned, "linux-4.13",
        about: MOVES => "fork shares a page that is pinned, since it is just being moved";
    "pin-move", "migrate-pin", migration::pin, MoveUncounted, "linux-4.13", about: MOVES =>
        "a page is moved that somebody has pinned";
    "write-move", "migrate-write", migration::written, MoveForgetsDirty, "linux-4.13",
        about: MOVES => "a page of a file that was moved is never written";
    "hole-move", "migrate-hole", migration::hole, TruncateUnmapsOnce, "linux-4.13", about: MOVES =>
        "a page that is being moved stays mapped where a hole was made of it";
    "shm-remove", "attach-remove", segments::attach_remove, AttachUncounted, "linux-4.13" =>
        "a segment goes that somebody has attached";
    "P47", "huge-unshare", hugetlb::unshare, HugeUnlocked, "linux-5.19", about: HUGE =>
        "a fault writes to a table that was shared, and was taken away by a hole";
    "P48", "huge-leave", hugetlb::leave, UnshareWithoutFlush, "hugetlb-vma-lock-2022",
        about: HUGE => "a page is reached by way of a table that was left, after it was freed";
    "P49", "huge-looked", hugetlb::looked, SharersByReferences, "hugetlb-vma-lock-2022",
        about: HUGE => "a table is taken for a shared one while somebody only looks at it";
    "P50", "huge-split", hugetlb::cut[true], SplitSharesAgain, "linux-6.4", about: HUGE =>
        "a mapping is cut, and shares the table of the interval of the cut again meanwhile";
    "P50-beside", "huge-split-beside", hugetlb::cut[false], CutStillShared, "hugetlb-vma-lock-2022",
        about: HUGE =>
        "a mapping is cut, and another comes to share the table of the interval meanwhile";
    "P51", "huge-fork", hugetlb::fork, LinkBeforeLock, "hugetlb-vma-lock-2022", about: HUGE =>
        "who comes by the file finds a child's mapping before its lock";
    "P52", "huge-discard", hugetlb::discard, DiscardUnlocked, "hugetlb-vma-lock-2022",
        about: HUGE => "a store gets a signal whose page is on its way back to the pool";
    "P53", "huge-segment", segments::attach_split, SplitNamesLock, "hugetlb-vma-lock-2022",
        about: HUGE => "two mappings have one lock, which goes with one of them";
    "P54", "huge-truncate", hugetlb::truncate, CutSkipsAbsent, "hugetlb-vma-lock-2022",
        about: HUGE => "a page is behind the end after a cut, or counted as reserved";
    "P54-size", "huge-size", hugetlb::truncate, SizeBeforeMutex, "hugetlb-vma-lock-2022",
        about: HUGE => "a fault makes a page behind the end, which it looked at too early";
    "P54-hole", "huge-hole", hugetlb::hole, HoleUnreservesLate, "hugetlb-vma-lock-2022",
        about: HUGE => "a fault takes a page for reserved whose reservation goes with a hole";
    "P54-map", "huge-map", hugetlb::map, ReserveBesideCut, "hugetlb-vma-lock-2022", about: HUGE =>
        "a mapping is told that pages are reserved which a cut takes back";
    "P55", "huge-last", hugetlb::last, FaultsAtOnce, "hugetlb-vma-lock-2022", about: HUGE =>
        "two want the last page for one place, and one gets a signal";
    "P56", "huge-walk", hugetlb::unshare, WalkUnlocked, "hugetlb-vma-lock-2022", about: HUGE =>
        "a walk cannot have a mapping's lock, and takes its table away";
    "P59", "huge-age", huge_age::beside_hole, AgesShared, "hugetlb-vma-lock-2022", about: HUGE =>
        "a walk under mmap_lock alone is in a table that was shared, and that another freed";
    "huge-again", "huge-livelock", hugetlb::unshare, WalkStartsOver, "linux-6.15", about: HUGE =>
        "a hole takes a page from two mappings in turn, which share a table, for ever";
    "huge-gone", "munmap-share", huge_tables::gone, GoneStillShares, "hugetlb-vma-lock-2022",
        about: HUGE => "a table is shared that munmap is about to free";
    "huge-over", "mmap-share", huge_tables::over, LinkBeforeTables, "hugetlb-vma-lock-2022",
        about: HUGE => "a table is shared that has tables of smaller pages still, which mmap frees";
    "huge-make", "make-share", huge_tables::make, BlindShare, "atomic-pte-2004", about: HUGE =>
        "a table that a fault has put in is replaced by one to share";
    "huge-move", "huge-move-fault", huge_moving::beside_fault, HugeMoveBesideFaults,
        "hugetlb-vma-lock-2022", about: HUGE_MOVES =>
        "a fault maps a huge page that is being moved";
    "huge-move-table", "huge-move-shared", huge_moving::by_one_table, HugeMoveTellsOne,
        "hugetlb-vma-lock-2022", about: HUGE_MOVES =>
        "a store to a huge page is lost that was moved by way of a table others have, too";
    "huge-move-fork", "huge-fork-move", huge_moving::beside_fork, ForkSkipsMoving,
        "hugetlb-vma-lock-2022", about: HUGE_MOVES =>
        "a child lacks a huge page that was being moved when it was forked";
    "huge-move-edge", "huge-move-discard", huge_moving::beside_discard, DiscardRoundsUp,
        "hugetlb-vma-lock-2022", about: HUGE_MOVES =>
        "MADV_DONTNEED discards the huge page in which its range ends";
    "P46-huge", "huge-reuse", hugetlb::reuse, ReuseByMapCount, "hugetlb-vma-lock-2022",
        about: HUGE => "a store reaches a huge page that another address space still reaches";
}
