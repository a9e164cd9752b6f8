//! The races in which no page is moved, or huge.

use super::scenes::Scene;
use super::{Format, Race};
use minflt_mm::Broken;
use minflt_mm::config::ExchangeBy;

const X86: &[Format] = &[Format::X86_64];
const ALTIX: &[Format] = &[Format::Altix16K];

/// What most of them have in common.
pub(super) const USUAL: Race = Race {
    number: "",
    name: "",
    never: "",
    fix: Broken::NoRevalidate,
    shows_in: "",
    seed: 1,
    formats: X86,
    exchange: ExchangeBy::Native,
    scene: Scene::Tour,
};

/// See [`super::RACES`].
pub(super) const STAYING: &[Race] = &[
    Race {
        number: "P1",
        name: "fault-fault",
        never: "two faults below one missing table: a table or a page is lost",
        fix: Broken::BlindPopulate,
        shows_in: "atomic-pte-2004",
        scene: Scene::FaultFault,
        ..USUAL
    },
    Race {
        number: "P60",
        name: "link-link",
        never: "two faults below one missing table put theirs in under different locks",
        fix: Broken::LinksUnderOwnLock,
        shows_in: "linux-4.13",
        scene: Scene::FaultFault,
        ..USUAL
    },
    Race {
        number: "P5",
        name: "half-equal",
        never: "an exchange compares half of an entry, or another CPU reads one half exchanged",
        fix: Broken::HalfWidthExchange,
        shows_in: "atomic-pte-2004",
        formats: Format::ALL,
        scene: Scene::HalfEqual,
        ..USUAL
    },
    // What the swapper does with the lock held waits for swap; the zap holds it as well.
    Race {
        number: "P6",
        name: "emulated",
        never: "who holds the lock that emulates the exchange waits for itself in an exchange",
        fix: Broken::EmulateUnderLock,
        shows_in: "atomic-pte-2004",
        formats: Format::ALL,
        exchange: ExchangeBy::Emulated,
        scene: Scene::Emulated,
        ..USUAL
    },
    Race {
        number: "P7",
        name: "accessed-mprotect",
        never: "after mprotect returned, setting an accessed bit brings the old protection back",
        fix: Broken::StaleAccessBits,
        shows_in: "atomic-pte-2004",
        formats: ALTIX,
        scene: Scene::AccessedProtect,
        ..USUAL
    },
    Race {
        number: "P8",
        name: "rss",
        never: "a resident count below zero is shown",
        fix: Broken::RawRss,
        shows_in: "atomic-pte-2004",
        scene: Scene::Resident,
        ..USUAL
    },
    Race {
        number: "P9",
        name: "walk-free",
        never: "a fault walks into a table that munmap freed",
        fix: Broken::TablesAtOnce,
        shows_in: "spf-2017",
        scene: Scene::WalkFree,
        ..USUAL
    },
    Race {
        number: "P9-age",
        name: "age-munmap",
        never: "a walk under mmap_lock goes on in a table that munmap frees under the same lock",
        fix: Broken::AgeHoles,
        shows_in: "linux-4.13",
        seed: 2,
        scene: Scene::AgeUnmap,
        ..USUAL
    },
    Race {
        number: "P20",
        name: "around-truncate",
        never: "an entry maps a page behind the end after truncate returned",
        fix: Broken::TruncateUnmapsOnce,
        shows_in: "fault-around-2014",
        scene: Scene::AroundTruncate,
        ..USUAL
    },
    Race {
        number: "P20-make",
        name: "make-truncate",
        never: "a page is made behind the end while the file becomes shorter",
        fix: Broken::SizeBeforeLock,
        shows_in: "linux-4.13",
        scene: Scene::MakeTruncate,
        ..USUAL
    },
    Race {
        number: "P21",
        name: "around-reuse",
        never: "a page is mapped that was the file's before its frame was used again",
        fix: Broken::CachedUnchecked,
        shows_in: "fault-around-2014",
        scene: Scene::AroundReuse,
        ..USUAL
    },
    Race {
        number: "P22",
        name: "around-edges",
        never: "pages around a fault are mapped where their mapping has ended",
        fix: Broken::AroundUnclamped,
        shows_in: "fault-around-2014",
        scene: Scene::AroundEdges,
        ..USUAL
    },
    Race {
        number: "P23",
        name: "around-unready",
        never: "a page is mapped that was not read in, or whose memory is broken",
        fix: Broken::AroundTakesAll,
        shows_in: "fault-around-2014",
        scene: Scene::AroundUnready,
        ..USUAL
    },
    Race {
        number: "P23-wait",
        name: "around-waits",
        never: "who maps pages around a fault waits for one with a table's lock held",
        fix: Broken::AroundWaits,
        shows_in: "fault-around-2014",
        scene: Scene::AroundUnready,
        ..USUAL
    },
    Race {
        number: "P24",
        name: "around-copy",
        never: "a private copy is replaced by the file's page around a load's fault",
        fix: Broken::AroundReplaces,
        shows_in: "fault-around-2014",
        scene: Scene::AroundCopy,
        ..USUAL
    },
    Race {
        number: "P27",
        name: "fault-remap",
        never: "a fault of the old mapping installs a page after munmap returned",
        fix: Broken::NoRevalidate,
        shows_in: "spf-2017",
        scene: Scene::FaultRemap,
        ..USUAL
    },
    Race {
        number: "P27-detach",
        name: "fault-downgrade",
        never: "a fault locks a mapping that munmap has taken out, and puts a page in after the zap",
        fix: Broken::DetachLate,
        shows_in: "linux-6.15",
        seed: 2,
        scene: Scene::FaultReuse,
        ..USUAL
    },
    Race {
        number: "P28",
        name: "fault-mprotect",
        never: "after mprotect(NONE) returned, an entry grants a store",
        fix: Broken::ProtectWithoutSection,
        shows_in: "spf-2017",
        scene: Scene::FaultProtect,
        ..USUAL
    },
    Race {
        number: "P29",
        name: "remap-fault",
        never: "a fault puts a page in where mremap is about to move one",
        fix: Broken::RemapPublishesEarly,
        shows_in: "spf-2017",
        scene: Scene::RemapFault,
        ..USUAL
    },
    Race {
        number: "P30",
        name: "lookup-free",
        never: "a lookup without a lock reads a VMA that was freed",
        fix: Broken::NoGracePeriod,
        shows_in: "spf-2017",
        scene: Scene::FaultRemap,
        ..USUAL
    },
    Race {
        number: "P30-reuse",
        name: "fault-reused-vma",
        never: "a fault holds a VMA that has become another address space's, and takes it for its own",
        fix: Broken::NoOwnerRecheck,
        shows_in: "linux-6.15",
        scene: Scene::FaultReuse,
        ..USUAL
    },
    Race {
        number: "P30-range",
        name: "fault-split",
        never: "a fault holds a VMA that no longer covers its address, and goes on",
        fix: Broken::NoRangeRecheck,
        shows_in: "linux-6.4",
        scene: Scene::FaultSplit,
        ..USUAL
    },
    Race {
        number: "P31",
        name: "stack-stack",
        never: "two stacks grow at once, and one that is mapped is not found, or does not grow",
        fix: Broken::ExpandUnderReadLock,
        shows_in: "linux-6.4",
        scene: Scene::StackStack,
        ..USUAL
    },
    Race {
        number: "P31-insert",
        name: "lookup-insert",
        never: "a lookup without a lock misses a mapping that is there before and after",
        fix: Broken::LeafInPlace,
        shows_in: "spf-2017",
        scene: Scene::LookupBeside,
        ..USUAL
    },
    Race {
        number: "P32",
        name: "fork-fault",
        never: "a forked child lacks a store of its parent and has a later one",
        fix: Broken::ForkWithoutSections,
        shows_in: "spf-2017",
        scene: Scene::ForkFault,
        ..USUAL
    },
    Race {
        number: "P32-fresh",
        name: "fork-fresh",
        never: "a forked child lacks a page that a fault was putting in, and has a later store",
        fix: Broken::ForkLooksUnlocked,
        shows_in: "spf-2017",
        scene: Scene::ForkFresh,
        ..USUAL
    },
    Race {
        number: "P33",
        name: "map-load",
        never: "a fault finds a VMA that does not yet say what may be done there",
        fix: Broken::PublishEarly,
        shows_in: "linux-6.15",
        scene: Scene::MapLoad,
        ..USUAL
    },
    Race {
        number: "P34",
        name: "fault-anon-vma",
        never: "a fault makes a page of a mapping that has lost its anon_vma",
        fix: Broken::AnonVmaBeforeLock,
        shows_in: "linux-6.15",
        scene: Scene::RemapAnon,
        ..USUAL
    },
    Race {
        number: "P35",
        name: "fault-mbind",
        never: "a fault that goes on after mbind returned takes a page by the old policy",
        fix: Broken::ProtectWithoutSection,
        shows_in: "spf-2017",
        scene: Scene::PolicyFault,
        ..USUAL
    },
    Race {
        number: "P35-locked",
        name: "mlock-mlock",
        never: "two calls lock memory at once, and the count of locked pages lacks one of them",
        fix: Broken::LockedCountLate,
        shows_in: "linux-6.15",
        scene: Scene::LockLock,
        ..USUAL
    },
    Race {
        number: "P61",
        name: "sleep-munmap",
        never: "a CPU that is told no more keeps a translation",
        fix: Broken::LeavesUnflushed,
        shows_in: "linux-4.13",
        scene: Scene::SleepUnmap,
        ..USUAL
    },
    Race {
        number: "P36",
        name: "fault-mmap-lock",
        never: "a fault waits for mmap_lock with its VMA's lock held",
        fix: Broken::MmapLockUnderVmaLock,
        shows_in: "linux-6.15",
        scene: Scene::FaultWaits,
        ..USUAL
    },
    Race {
        number: "P37",
        name: "fault-shootdown",
        never: "a speculative fault waits for a table's lock whose holder waits for its CPU",
        fix: Broken::SpinForTableLock,
        shows_in: "spf-2017",
        scene: Scene::FaultShootdown,
        ..USUAL
    },
    Race {
        number: "P38",
        name: "fault-writers",
        never: "a fault fails again and again among writers, and never waits",
        fix: Broken::LadderWithoutEnd,
        shows_in: "linux-6.4",
        scene: Scene::FaultStarves,
        ..USUAL
    },
    Race {
        number: "P38-writer",
        name: "writer-faults",
        never: "a writer waits for a VMA while new faults go on coming in",
        fix: Broken::WriterLetsReadersIn,
        shows_in: "linux-6.15",
        scene: Scene::WriterStarves,
        ..USUAL
    },
    Race {
        number: "P39",
        name: "stack-munmap",
        never: "a stack grows into a range whose tables munmap is freeing",
        fix: Broken::UnmapUnlocked,
        shows_in: "linux-4.13",
        scene: Scene::StackUnmap,
        ..USUAL
    },
    Race {
        number: "P40",
        name: "remap-zap",
        never: "a page is freed at its new place and still reached by the old one",
        fix: Broken::RemapFlushesLate,
        shows_in: "linux-6.4",
        seed: 6,
        scene: Scene::RemapZap,
        ..USUAL
    },
    Race {
        number: "P41",
        name: "zap-zap",
        never: "a zap that found nothing returns while another CPU still reaches the page",
        fix: Broken::NoNestedFlush,
        shows_in: "linux-4.13",
        scene: Scene::ZapZap,
        ..USUAL
    },
    Race {
        number: "P43",
        name: "protect-copy",
        never: "a page that a handler protects and copies is stored to meanwhile",
        fix: Broken::ProtectWithoutFlush,
        shows_in: "linux-4.13",
        scene: Scene::ProtectCopy,
        ..USUAL
    },
    Race {
        number: "P45",
        name: "fork-pin",
        never: "fork takes a page away from somebody who has just pinned it",
        fix: Broken::PinWithoutSequence,
        shows_in: "linux-4.13",
        seed: 2004,
        scene: Scene::ForkPin,
        ..USUAL
    },
    Race {
        number: "P46",
        name: "reuse-zap",
        never: "a store reaches a page that another address space still reaches",
        fix: Broken::ReuseByMapCount,
        shows_in: "linux-4.13",
        scene: Scene::ReuseZap,
        ..USUAL
    },
    Race {
        number: "P57",
        name: "fault-zap",
        never: "a zap takes a map count below zero that the fault has not raised yet",
        fix: Broken::MapCountAfterExchange,
        shows_in: "atomic-pte-2004",
        scene: Scene::FaultZap,
        ..USUAL
    },
    // Found with store buffers only.
    Race {
        number: "commit",
        name: "charge-charge",
        never: "two mappings are admitted at once of which only one fits",
        fix: Broken::ChargeWithoutFence,
        shows_in: "linux-4.13",
        scene: Scene::ChargeCharge,
        ..USUAL
    },
    Race {
        number: "flush",
        name: "install-load",
        never: "a CPU uses a page before the caches that need telling were told what is in it",
        fix: Broken::FlushAfterInstall,
        shows_in: "atomic-pte-2004",
        formats: ALTIX,
        scene: Scene::FaultFault,
        ..USUAL
    },
    Race {
        number: "zero-page",
        name: "replace-load",
        never: "one CPU's store has returned and another still loads zero from the shared page",
        fix: Broken::ReplaceBeforeFlush,
        shows_in: "atomic-pte-2004",
        seed: 12,
        scene: Scene::ReplaceLoad,
        ..USUAL
    },
    Race {
        number: "speculative-exchange",
        name: "fault-munmap",
        never: "an entry is installed in a table that munmap freed",
        fix: Broken::SpeculativeExchange,
        shows_in: "spf-2017",
        scene: Scene::FaultUnmap,
        ..USUAL
    },
    Race {
        number: "P40-truncate",
        name: "remap-truncate",
        never: "a page that was truncated is stored to by its place before mremap",
        fix: Broken::RemapFlushesLate,
        shows_in: "linux-6.4",
        seed: 3,
        scene: Scene::RemapTruncate,
        ..USUAL
    },
    Race {
        number: "P42",
        name: "munmap-truncate",
        never: "a page that was truncated is stored to before munmap told every CPU",
        fix: Broken::FilePagesAtOnce,
        shows_in: "linux-4.13",
        seed: 2,
        scene: Scene::UnmapTruncate,
        ..USUAL
    },
    Race {
        number: "P44",
        name: "force-discard",
        never: "a forced store reaches the file of a private mapping",
        fix: Broken::ForceTrustsFault,
        shows_in: "linux-4.13",
        scene: Scene::ForceDiscard,
        ..USUAL
    },
    Race {
        number: "writeback-unmap",
        name: "munmap-write",
        never: "a store through a mapping that goes is never written",
        fix: Broken::UnlinkBeforeFlush,
        shows_in: "linux-4.13",
        scene: Scene::UnmapWrite,
        ..USUAL
    },
    Race {
        number: "writeback",
        name: "write-store",
        never: "a store while a page is written is never written",
        fix: Broken::WriteUnprotected,
        shows_in: "linux-4.13",
        scene: Scene::WriteStore,
        ..USUAL
    },
];
