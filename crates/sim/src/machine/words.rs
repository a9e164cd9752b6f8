//! Accesses to words, for machines of every format alike.
//!
//! They are functions of their own, and not parts of each access of each format: those are many
//! thousands, and compiling them takes longer than calling.

use crate::here;
use crate::sched::{Handed, Peek};
use crate::spin::Wait;
use crate::world::World;
use minflt_sync::{Kind, Ordering, Rmw, Word};

/// After an access of kind `kind` to the word at `p`.
#[inline]
pub(super) fn done<W: Word>(watched: bool, p: &W::Prim, old: W, new: W) {
    if watched && let Some(world) = here::here() {
        world.wrote(core::ptr::from_ref(p).cast(), old.wide(), new.wide());
    }
}

/// Before an access of kind `kind` to the word at `p`; whether [`done`] is to be called.
#[inline]
pub(super) fn touch<W: Word>(p: &W::Prim, kind: Kind) -> bool {
    here::here()
        .is_some_and(|world| world.access(core::ptr::from_ref(p).cast(), size_of::<W>(), kind))
}

/// How the scheduler looks at the word at `p`.
pub(super) fn peek_at<W: Word>(p: &W::Prim) -> Peek {
    let at = core::ptr::from_ref(p);
    if size_of::<W>() == 4 {
        Peek::U32(at.cast())
    } else {
        Peek::U64(at.cast())
    }
}

/// The run that the caller is in, if stores may be held back in it.
#[inline]
pub(super) fn buffered<'a>() -> Option<&'a World<'a>> {
    here::here().filter(|world| world.buffers)
}

/// The word at `p` as the caller sees it, where that is not what memory holds.
#[inline]
pub(super) fn held<W: Word>(p: &W::Prim) -> Option<W> {
    let value = buffered()?.held(peek_at::<W>(p))?;
    Some(W::narrow(value))
}

/// Whether a store that was just announced is held back.
#[inline]
pub(super) fn holds<W: Word>(p: &W::Prim, value: W, order: Ordering) -> bool {
    buffered().is_some_and(|world| world.holds(peek_at::<W>(p), value.wide(), order))
}

/// What the caller's CPU holds back reaches memory.
#[inline]
pub(super) fn drain() {
    if let Some(world) = here::here() {
        world.drain();
    }
}

pub(super) fn peek<W: Word>(p: &W::Prim) -> W {
    W::load(p, Ordering::Relaxed)
}

/// [`minflt_sync::Machine::before`].
#[inline(never)]
pub(super) fn before(at: *const u8, len: usize, kind: Kind) {
    if let Some(world) = here::here() {
        world.access(at, len, kind);
    }
    if kind == Kind::PlainWrite {
        drain_within(at, len);
    }
}

/// These bytes become something else, or are copied, and that is no access.
#[inline]
pub(super) fn drain_within(at: *const u8, len: usize) {
    if let Some(world) = buffered() {
        world.drain_within(at, len);
    }
}

/// [`minflt_sync::Machine::load`].
#[inline(never)]
pub(super) fn load<W: Word>(p: &W::Prim, order: Ordering) -> W {
    let watched = touch::<W>(p, Kind::Load);
    let value = held::<W>(p).unwrap_or_else(|| W::load(p, order));
    done::<W>(watched, p, value, value);
    value
}

/// [`minflt_sync::Machine::store`].
#[inline(never)]
pub(super) fn store<W: Word>(p: &W::Prim, value: W, order: Ordering) {
    let watched = touch::<W>(p, Kind::Store);
    if holds::<W>(p, value, order) {
        return;
    }
    let old = if watched { peek::<W>(p) } else { value };
    W::store(p, value, order);
    done::<W>(watched, p, old, value);
}

/// [`minflt_sync::Machine::rmw`].
#[inline(never)]
pub(super) fn rmw<W: Word>(p: &W::Prim, op: Rmw, value: W, order: Ordering) -> W {
    let watched = touch::<W>(p, Kind::Rmw);
    drain();
    let old = W::rmw(p, op, value, order);
    if watched {
        done::<W>(watched, p, old, peek::<W>(p));
    }
    old
}

/// [`minflt_sync::Machine::cas`].
#[inline(never)]
pub(super) fn cas<W: Word>(
    p: &W::Prim,
    old: W,
    new: W,
    ok: Ordering,
    fail: Ordering,
) -> Result<W, W> {
    let watched = touch::<W>(p, Kind::Rmw);
    drain();
    let result = W::cas(p, old, new, ok, fail);
    match result {
        Ok(found) => done::<W>(watched, p, found, new),
        // Nothing changed, so nobody who spins on the line has to look.
        Err(found) => done::<W>(watched, p, found, found),
    }
    result
}

/// [`minflt_sync::Machine::add_local`]: one load and one store. Nothing interrupts a simulated
/// context between them, and it keeps its CPU.
#[inline(never)]
pub(super) fn add_local<W: Word>(p: &W::Prim, value: W, order: Ordering) {
    let watched = touch::<W>(p, Kind::Rmw);
    let old = held::<W>(p).unwrap_or_else(|| peek::<W>(p));
    let new = W::narrow(old.wide().wrapping_add(value.wide()));
    if holds::<W>(p, new, order) {
        return;
    }
    W::store(p, new, order);
    done::<W>(watched, p, old, new);
}

/// [`minflt_sync::Machine::wait_until`]; where the word becomes `takes` then, that may have been
/// done.
pub(super) fn wait<W: Word>(p: &W::Prim, mask: W, eq: W, takes: Option<W>) -> Handed {
    let Some(world) = here::here() else {
        let value = peek::<W>(p).wide();
        assert_eq!(
            value & mask.wide(),
            eq.wide(),
            "outside a run there is nobody to wait for"
        );
        return Handed::Nothing;
    };
    while load::<W>(p, Ordering::Relaxed).wide() & mask.wide() != eq.wide() {
        if world.is_lost() {
            let forced = peek::<W>(p).wide() & !mask.wide() | eq.wide();
            W::store(p, W::narrow(forced), Ordering::Relaxed);
            return Handed::Nothing;
        }
        let handed = world.spin(Wait {
            peek: peek_at::<W>(p),
            mask: mask.wide(),
            eq: eq.wide(),
            takes: takes.map(Word::wide),
        });
        if handed != Handed::Nothing {
            return handed;
        }
    }
    Handed::Nothing
}

/// [`minflt_sync::Machine::take`].
#[inline(never)]
pub(super) fn take<W: Word>(p: &W::Prim, free: W, taken: W, ok: Ordering) {
    debug_assert_ne!(free.wide(), taken.wide(), "nothing is taken");
    while cas::<W>(p, free, taken, ok, Ordering::Relaxed).is_err() {
        let all = W::narrow(u64::MAX);
        if wait::<W>(p, all, free, Some(taken)) == Handed::Taken {
            return;
        }
    }
}
