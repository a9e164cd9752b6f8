//! What happens in each race.
//!
//! Tasks are numbered by CPU. What is set up before them runs alone: pages touched and discarded
//! again leave their tables and their VMA's anon_vma behind, so that a speculative fault gets as
//! far as it can.

use super::advice;
use super::entries;
use super::files;
use super::forks;
use super::hugetlb::{self, Huge};
use super::lineage::{self, Lineage};
use super::masks;
use super::migration::{self, Moving};
use super::pins;
use super::promises;
use super::remaps;
use super::segments;
use super::stacks;
use super::stage::{Checked, Script, Stage};
use super::vma_scenes;
use core::cell::Cell;
use minflt_addr::VirtRange;
use minflt_mm::{Advice, Place, Prot, Signal, Thread};
use minflt_pgtable::Paging;
use minflt_sync::Machine;
use std::rc::Rc;

/// A race's scenario.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scene {
    FaultFault,
    AccessedProtect,
    Resident,
    FaultRemap,
    FaultProtect,
    FaultShootdown,
    ZapZap,
    FaultZap,
    FaultUnmap,
    ReplaceLoad,
    ForkFault,
    ForkFresh,
    ReuseZap,
    WalkFree,
    AgeUnmap,
    FaultReuse,
    FaultSplit,
    LookupBeside,
    MapLoad,
    FaultWaits,
    FaultStarves,
    WriterStarves,
    StackStack,
    RemapFault,
    RemapAnon,
    RemapZap,
    StackUnmap,
    ProtectCopy,
    ForkPin,
    PolicyFault,
    LockLock,
    SleepUnmap,
    ChargeCharge,
    AttachRemove,
    HalfEqual,
    Emulated,
    AroundTruncate,
    MakeTruncate,
    AroundReuse,
    AroundEdges,
    AroundUnready,
    AroundCopy,
    RemapTruncate,
    UnmapTruncate,
    ForceDiscard,
    UnmapWrite,
    WriteStore,
    Moving(Moving),
    Lineage(Lineage),
    Huge(Huge),
    Tour,
}

impl Scene {
    /// Whether faults in it are on files: eras that differ in these only are one to the others.
    pub(super) const fn maps_files(self) -> bool {
        matches!(
            self,
            Self::AroundCopy
                | Self::AroundEdges
                | Self::AroundReuse
                | Self::AroundTruncate
                | Self::AroundUnready
                | Self::ForceDiscard
                | Self::MakeTruncate
                | Self::RemapTruncate
                | Self::UnmapTruncate
                | Self::UnmapWrite
                | Self::WriteStore
        )
    }

    /// Whether pages are moved in it: eras that differ in that only are one to the others.
    pub(super) const fn moves_pages(self) -> bool {
        matches!(self, Self::Moving(_) | Self::Lineage(_))
    }

    /// Whether its tasks move pages from node to node.
    pub(super) const fn has_movers(self) -> bool {
        match self {
            Self::Moving(scene) => !scene.swaps(),
            Self::Lineage(scene) => !matches!(scene, Lineage::Refused),
            Self::Huge(scene) => scene.moves(),
            _ => false,
        }
    }

    /// Whether pages go in it beside faults that map what is around them.
    pub(super) const fn maps_around(self) -> bool {
        matches!(self, Self::Moving(Moving::AroundOut | Moving::Unused))
    }

    /// Whether its pages are huge: most eras are one to the others.
    pub(super) const fn is_huge(self) -> bool {
        matches!(self, Self::Huge(_))
    }

    /// Pages of its swap device.
    pub(super) const fn swap_pages(self) -> u64 {
        match self {
            Self::Moving(scene) if scene.swaps() => 16,
            _ => 0,
        }
    }

    /// Frames of each of its machine's nodes, where not the usual.
    pub(super) fn frames<P: Paging>(self) -> Option<u64> {
        match self {
            Self::Moving(scene) => scene.frames(),
            Self::Huge(_) if hugetlb::is_played::<P>() => Some(hugetlb::FRAMES),
            _ => None,
        }
    }

    /// Memory nodes of its machine; the last CPU is of the last one.
    pub(super) const fn nodes(self) -> u32 {
        match self {
            Self::Moving(scene) if scene.swaps() => 1,
            Self::PolicyFault | Self::Moving(_) | Self::Lineage(_) => 2,
            Self::Huge(scene) if scene.moves() => 2,
            _ => 1,
        }
    }
}

/// Writes the scenario out on a stage.
pub(super) fn script<'s, P: Paging>(scene: Scene, stage: &Stage<'s, P>) -> Script<'s> {
    let stage = Rc::new(Stage {
        sys: stage.sys,
        mm: stage.mm,
    });
    match scene {
        Scene::FaultFault => fault_fault(&stage),
        Scene::AccessedProtect => accessed_protect(&stage),
        Scene::Resident => resident(&stage),
        Scene::FaultRemap => fault_remap(&stage),
        Scene::FaultProtect => fault_protect(&stage),
        Scene::FaultShootdown => fault_shootdown(&stage),
        Scene::ZapZap => zap_zap(&stage),
        Scene::FaultZap => fault_zap(&stage),
        Scene::FaultUnmap => fault_unmap(&stage),
        Scene::ReplaceLoad => entries::replace_load(&stage),
        Scene::ForkFault => forks::fork_fault(&stage, forks::First::Touched),
        Scene::ForkFresh => forks::fork_fault(&stage, forks::First::Fresh),
        Scene::ReuseZap => forks::reuse_zap(&stage),
        Scene::WalkFree => vma_scenes::walk_free(&stage),
        Scene::AgeUnmap => vma_scenes::age_unmap(&stage),
        Scene::FaultReuse => vma_scenes::fault_reuse(&stage),
        Scene::FaultSplit => vma_scenes::fault_split(&stage),
        Scene::LookupBeside => vma_scenes::lookup_beside(&stage),
        Scene::MapLoad => vma_scenes::map_load(&stage),
        Scene::FaultWaits => vma_scenes::fault_waits(&stage),
        Scene::FaultStarves => vma_scenes::fault_starves(&stage),
        Scene::WriterStarves => vma_scenes::writer_starves(&stage),
        Scene::StackUnmap => stacks::stack_unmap(&stage),
        Scene::ProtectCopy => pins::protect_copy(&stage),
        Scene::ForkPin => pins::fork_pin(&stage),
        Scene::StackStack => stacks::stack_stack(&stage),
        Scene::RemapFault => remaps::remap_fault(&stage),
        Scene::RemapAnon => remaps::remap_anon(&stage),
        Scene::RemapZap => remaps::remap_zap(&stage),
        Scene::PolicyFault => advice::policy_fault(&stage),
        Scene::LockLock => advice::lock_lock(&stage),
        Scene::SleepUnmap => masks::sleep_unmap(&stage),
        Scene::ChargeCharge => promises::charge_charge(&stage),
        Scene::AttachRemove => segments::attach_remove(&stage),
        Scene::HalfEqual => entries::half_equal(&stage),
        Scene::Emulated => entries::emulated(&stage),
        Scene::AroundTruncate => files::around_truncate(&stage),
        Scene::MakeTruncate => files::make_truncate(&stage),
        Scene::AroundReuse => files::around_reuse(&stage),
        Scene::AroundEdges => files::around_edges(&stage),
        Scene::AroundUnready => files::around_unready(&stage),
        Scene::AroundCopy => files::around_copy(&stage),
        Scene::RemapTruncate => files::remap_truncate(&stage),
        Scene::UnmapTruncate => files::unmap_truncate(&stage),
        Scene::ForceDiscard => files::force_discard(&stage),
        Scene::UnmapWrite => files::unmap_write(&stage),
        Scene::WriteStore => files::write_store(&stage),
        Scene::Moving(scene) => migration::script(scene, &stage),
        Scene::Lineage(scene) => lineage::script(scene, &stage),
        Scene::Huge(scene) => hugetlb::script(scene, &stage),
        Scene::Tour => entries::tour(&stage),
    }
}

pub(super) type S<'s, P> = Rc<Stage<'s, P>>;

pub(super) fn tasks<'s>(
    bodies: Vec<Box<dyn FnOnce() + 's>>,
    at_end: impl FnOnce() -> Result<(), String> + 's,
) -> Script<'s> {
    Script {
        tasks: bodies,
        at_end: Box::new(at_end),
    }
}

/// The word at page `n` must be `expected`.
pub(super) fn expect<P: Paging>(
    stage: &Stage<'_, P>,
    thread: &Thread<'_, Checked<P>>,
    n: u64,
    expected: Result<u64, Signal>,
) {
    let found = thread.load(stage.page(n));
    if found != expected {
        Checked::<P>::violation(format_args!(
            "contents: page {n} holds {found:?}, not {expected:?}"
        ));
    }
}

/// Touches a page and throws it away again: its tables and its anon_vma stay.
pub(super) fn warm<P: Paging>(stage: &Stage<'_, P>, n: u64) {
    let thread = stage.thread();
    let stored = thread.store(stage.page(n), 99);
    let discarded = stage.mm.madvise(stage.page(n), P::page(), Advice::DontNeed);
    assert!(stored.is_ok() && discarded.is_ok(), "alone, and mapped");
}

/// P1: two faults in one empty table, at different pages and then at the same.
fn fault_fault<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 3);
    let body = |n: u64| -> Box<dyn FnOnce() + 's> {
        let stage = Rc::clone(stage);
        Box::new(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(n), n + 1);
            expect(&stage, &thread, n, stored.map(|()| n + 1));
            let shared = thread.store(stage.page(2), 7);
            expect(&stage, &thread, 2, shared.map(|()| 7));
        })
    };
    tasks(vec![body(0), body(1)], || Ok(()))
}

/// P7: the low-level handler sets an accessed bit while mprotect takes the store permission away.
fn accessed_protect<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    {
        let thread = stage.thread();
        assert!(thread.store(stage.page(0), 5).is_ok(), "alone, and mapped");
    }
    stage.mm.age(VirtRange::new(stage.page(0), stage.page(1)));
    let user = Rc::clone(stage);
    let caller = Rc::clone(stage);
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || expect(&user, &user.thread(), 0, Ok(5))),
        Box::new(move || {
            let done = caller.mm.mprotect(caller.page(0), P::page(), Prot::READ);
            assert!(done.is_ok(), "mapped");
            // Nothing may store from here on.
            let thread = caller.thread();
            if thread.store(caller.page(0), 6) != Err(Signal::AccErr) {
                Checked::<P>::violation(format_args!(
                    "protection: a store succeeded after mprotect(READ) returned"
                ));
            }
        }),
    ];
    tasks(bodies, || Ok(()))
}

/// P8: counts come and go without a lock; afterwards all is unmapped.
fn resident<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 4);
    {
        let thread = stage.thread();
        for n in 0..2 {
            assert!(thread.store(stage.page(n), 1).is_ok(), "alone, and mapped");
        }
    }
    let faulter = Rc::clone(stage);
    let zapper = Rc::clone(stage);
    let looker = Rc::clone(stage);
    let last = Rc::clone(stage);
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let thread = faulter.thread();
            for n in 2..4 {
                assert!(thread.store(faulter.page(n), 1).is_ok(), "mapped");
            }
        }),
        Box::new(move || {
            let done = zapper
                .mm
                .madvise(zapper.page(0), 2 * P::page(), Advice::DontNeed);
            assert!(done.is_ok(), "mapped");
        }),
        Box::new(move || shown_is_sane::<P>(&looker)),
    ];
    tasks(bodies, move || {
        let unmapped = last.mm.munmap(last.page(0), 4 * P::page());
        assert!(unmapped.is_ok(), "mapped");
        let shown = last.mm.resident_pages();
        if shown < 0 {
            return Err(format!("resident count: {shown} is shown"));
        }
        Ok(())
    })
}

fn shown_is_sane<P: Paging>(stage: &Stage<'_, P>) {
    let shown = stage.mm.resident_pages();
    if shown < 0 {
        Checked::<P>::violation(format_args!("resident count: {shown} is shown"));
    }
}

/// P27: munmap and a new, read-only mapping of the same address, beside a fault on the old one.
fn fault_remap<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    stage.map(1, 2);
    warm(stage, 0);
    let keeper = stage.thread();
    assert!(keeper.store(stage.page(1), 3).is_ok(), "alone, and mapped");
    drop(keeper);
    let caller = Rc::clone(stage);
    let user = Rc::clone(stage);
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let thread = caller.thread();
            let at = caller.page(0);
            assert!(caller.mm.munmap(at, P::page()).is_ok(), "mapped");
            let mapped = caller.mm.mmap(Place::Fixed(at), P::page(), Prot::READ);
            assert_eq!(mapped, Ok(at));
            // Nobody can ever have stored to the new mapping.
            expect(&caller, &thread, 0, Ok(0));
            expect(&caller, &thread, 0, Ok(0));
        }),
        Box::new(move || {
            let thread = user.thread();
            // Before the unmapping it succeeds; afterwards it is a signal.
            let stored = thread.store(user.page(0), 5);
            assert!(
                stored != Err(Signal::OutOfMemory),
                "the stage is large enough"
            );
        }),
    ];
    tasks(bodies, || Ok(()))
}

/// P28: mprotect(NONE) beside a store fault.
fn fault_protect<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let caller = Rc::clone(stage);
    let user = Rc::clone(stage);
    let returned = Rc::new(Cell::new(0));
    let seen = Rc::clone(&returned);
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let done = caller.mm.mprotect(caller.page(0), P::page(), Prot::NONE);
            assert!(done.is_ok(), "mapped");
            returned.set(1);
        }),
        Box::new(move || {
            let thread = user.thread();
            for _ in 0..2 {
                let before = seen.get();
                let stored = thread.store(user.page(0), 5);
                if before == 1 && stored.is_ok() {
                    Checked::<P>::violation(format_args!(
                        "protection: a store that began after mprotect(NONE) returned succeeded"
                    ));
                }
            }
        }),
    ];
    tasks(bodies, || Ok(()))
}

/// P37: a store replaces the page of zeros, holding the table's lock until all CPUs have forgotten
/// it, beside a fault on the next page of the table.
fn fault_shootdown<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 2);
    warm(stage, 1);
    {
        let thread = stage.thread();
        assert_eq!(thread.load(stage.page(0)), Ok(0));
    }
    let body = |n: u64| -> Box<dyn FnOnce() + 's> {
        let stage = Rc::clone(stage);
        Box::new(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(n), n + 1);
            expect(&stage, &thread, n, stored.map(|()| n + 1));
        })
    };
    tasks(vec![body(0), body(1)], || Ok(()))
}

/// P41: two discards of one page, and a third CPU that buffers its translation.
fn zap_zap<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let user = Rc::clone(stage);
    let discard = || -> Box<dyn FnOnce() + 's> {
        let stage = Rc::clone(stage);
        Box::new(move || {
            let done = stage.mm.madvise(stage.page(0), P::page(), Advice::DontNeed);
            assert!(done.is_ok(), "mapped");
        })
    };
    let store: Box<dyn FnOnce() + 's> = Box::new(move || {
        let thread = user.thread();
        for value in 1..3 {
            assert!(thread.store(user.page(0), value).is_ok(), "mapped");
        }
    });
    tasks(vec![discard(), discard(), store], || Ok(()))
}

/// P57: a store fault beside a discard of the same page.
fn fault_zap<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let user = Rc::clone(stage);
    let caller = Rc::clone(stage);
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let thread = user.thread();
            assert!(thread.store(user.page(0), 5).is_ok(), "mapped");
        }),
        Box::new(move || {
            let done = caller
                .mm
                .madvise(caller.page(0), P::page(), Advice::DontNeed);
            assert!(done.is_ok(), "mapped");
        }),
    ];
    tasks(bodies, || Ok(()))
}

/// The refused mix: a store fault beside an munmap that frees the table.
fn fault_unmap<'s, P: Paging>(stage: &S<'s, P>) -> Script<'s> {
    stage.map(0, 1);
    warm(stage, 0);
    let user = Rc::clone(stage);
    let caller = Rc::clone(stage);
    let bodies: Vec<Box<dyn FnOnce() + 's>> = vec![
        Box::new(move || {
            let thread = user.thread();
            let stored = thread.store(user.page(0), 5);
            assert!(
                stored != Err(Signal::OutOfMemory),
                "the stage is large enough"
            );
        }),
        Box::new(move || {
            assert!(
                caller.mm.munmap(caller.page(0), P::page()).is_ok(),
                "mapped"
            );
            let thread = caller.thread();
            expect(&caller, &thread, 0, Err(Signal::MapErr));
        }),
    ];
    tasks(bodies, || Ok(()))
}
