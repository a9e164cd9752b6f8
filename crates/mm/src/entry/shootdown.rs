//! TLB shootdown: flushes translations on all CPUs.
//!
//! # Problem
//! A changed PTE has no effect on a CPU whose TLB still holds the old translation.
//!
//! # Idea
//! Each CPU has a mailbox of ranges to flush. The initiator posts to every CPU that may cache
//! translations of the address space, sends them an interrupt, and waits until each has
//! acknowledged.
//!
//! # Protocol
//! ```text
//! initiator I                         target T
//! change entries
//! pending[I] = number of targets
//! for each T: lock mailbox[T],
//!   add range and I, unlock
//! send_ipi(targets)                   interrupt: lock mailbox[T], take all, unlock
//! wait until pending[I] == 0            flush the ranges
//!   (acknowledging its own)             for each initiator: pending -= 1
//! ```
//! A full list of ranges becomes a full TLB flush of all address spaces.
//!
//! The CPU mask of the address space holds the CPUs that may cache its translations. A CPU joins
//! before it walks the page tables ([`Mm::activate`]), and stays in the mask while it idles or runs
//! another address space: it may switch back soon. The first shootdown that interrupts it in that
//! state flushes the whole address space and removes it from the mask, so it is interrupted only
//! once. Linux: switch_mm and leave_mm (lazy TLB, v4.13).
//!
//! Hardware may have the root loaded still, and translations under a tag that is not in use
//! ([`Asids`](minflt_pgtable::Asids)): it leaves both with the mask ([`Mmu::leave_space`]). At the
//! end of an address space all CPUs of the mask do so before a table is freed.
//!
//! ## Arenas
//! With `--cpu-masks arenas`, a divided address space has a mask for each arena as well, and a
//! flush interrupts the CPUs that are in the masks of its arenas *and* in that of the address
//! space. A CPU that is not in the mask of an arena does not walk there; it takes a fault, which
//! joins. A CPU that left the address space stays in those masks: so it never has to find the
//! arenas that it is in. It is not interrupted meanwhile, and may be needlessly when it comes back.
//! A thread that came from another CPU has left that one in the mask of its arena. So a CPU that
//! was asked for some flushes of one arena in a row flushes all of it, and leaves its mask; if it
//! uses the arena still, that costs it a fault. A flush of more than a few arenas asks all CPUs of
//! the address space.
//!
//! Hardware that walks by itself needs a root for each CPU ([`super::linked`]); where a machine has
//! none, a system starts with `space`. In the simulator the fault of a CPU's first access is
//! modelled, and the memory of such tables is not.
//!
//! A CPU may have buffered anything before the division. So the call that divides first makes CPUs
//! join arenas as they walk, then flushes everything on all CPUs, and only then marks the address
//! space as divided. A walk before the interrupt is flushed by it; one after it sees that CPUs
//! join.
//!
//! ## Broadcasts
//! Where the machine can broadcast TLB invalidations (POWER's `tlbie`, Itanium's `ptc.ga`), it
//! does where any other CPU may cache the range, and no CPU is interrupted.
//!
//! # Why it is correct
//! A CPU changes only its own bit of the mask, with interrupts disabled. It leaves the mask in its
//! interrupt handler, when its TLB holds no translation of the address space; before it fills one
//! again it rejoins, with a full fence before it reads a PTE: so the initiator finds it in the
//! mask, or it finds the PTE changed. The address space that it loaded last is in a word of its
//! own: if that is another one, it rejoins. The first flush of a dying address space finds no
//! thread of it that could, and with it the CPU that flushes leaves, too: it may be another one by
//! the next.
//!
//! With masks of arenas the same holds of both masks: a CPU joins that of the address space, and
//! then that of the arena, before it reads an entry. If the flush misses it in either, its join
//! came later than the change, and it reads the changed entry.
//!
//! The mailbox lock orders the post before the take. A target that takes between the post and the
//! interrupt flushes early, which is harmless. An initiator waits with interrupts enabled, so two
//! initiators acknowledge each other. Posting runs with interrupts disabled, because the handler
//! takes a lock of the same class.
//!
//! # Cost
//! Per call, one interrupt for each CPU that runs the address space, and one for each CPU that is
//! in the mask but no longer runs it; for each a lock and a cache-line transfer each way. With
//! masks of arenas, a fault for each CPU and arena that it uses, and no interrupt for a range that
//! no other CPU has used.

use crate::arenas::Arenas;
use crate::base::config::{CpuMasks, NegativeControl};
use crate::base::event::Event;
use crate::entry::mailbox::{Everything, Posted, Range};
use crate::mm::Mm;
use crate::system::System;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::Mmu;
use minflt_pgtable::Paging;
use minflt_sync::lockdep::waits_for_cpus;
use minflt_sync::{Cost, CpuMask, Instance, Ordering, this_cpu};

/// What [`System`]'s `loaded` says of an arena: its number and 1, or 0; the address space is above.
const ARENA_BITS: u32 = 16;
/// After so many flushes of one arena in a row a CPU leaves its mask: less than a fault for each
/// interrupt where it goes on using it.
const PATIENCE: u64 = 8;

/// Flushes the translations of `range` in `mm` on every CPU; returns when all have acknowledged.
pub(crate) fn flush<M: Mmu>(sys: &System<M>, mm: &Mm<M>, range: VirtRange) {
    waits_for_cpus::<M>();
    let me = this_cpu::<M>();
    // ORDERING: fence SeqCst; pairs with [mm-cpumask]: entries were changed before the mask is
    // read.
    M::fence(Ordering::SeqCst);
    let mut others = CpuMask::empty();
    let (here, any) = may_cache(sys, mm, range, me, &mut others);
    if here {
        mm.forget(range);
    }
    if any {
        ask(sys, mm, range, me, &others);
    }
}

/// The first flush of `mm` as it dies, of `all` of it: all CPUs leave it.
pub(crate) fn flush_last<M: Mmu>(sys: &System<M>, mm: &Mm<M>, all: VirtRange) {
    M::leave_space(&sys.at, mm.space);
    flush(sys, mm, all);
}

/// The same where nothing was mapped. A CPU that ran a thread may have the root loaded.
pub(crate) fn leave_last<M: Mmu>(sys: &System<M>, mm: &Mm<M>, all: VirtRange) {
    waits_for_cpus::<M>();
    M::leave_space(&sys.at, mm.space);
    let me = this_cpu::<M>();
    let mut others = CpuMask::empty();
    let (_, any) = mm.cpus.split(me, sys.at.cpus(), &mut others);
    if any {
        ask(sys, mm, all, me, &others);
    }
}

/// Flushes the translations of `range` in `mm` on this CPU, the only one that may cache any.
pub(crate) fn flush_here<M: Mmu>(sys: &System<M>, mm: &Mm<M>, range: VirtRange) {
    let me = this_cpu::<M>();
    let (here, _) = may_cache(sys, mm, range, me, &mut CpuMask::empty());
    if here {
        mm.forget(range);
    }
}

/// Adds those but for `me` that may cache translations of `range` to `others`; whether `me` may,
/// and whether others do. A full fence stands before.
#[inline(always)]
fn may_cache<M: Mmu>(
    sys: &System<M>,
    mm: &Mm<M>,
    range: VirtRange,
    me: u32,
    others: &mut CpuMask,
) -> (bool, bool) {
    let cpus = sys.at.cpus();
    let Some(parts) = mm.masks_of(range) else {
        return mm.cpus.split(me, cpus, others);
    };
    let (mut here, mut any) = (false, false);
    for part in parts {
        let of_part = part.cpus.split(me, cpus, others);
        here |= of_part.0;
        any |= of_part.1;
    }
    // The ones that left the address space have nothing of it, and stay in the masks of arenas.
    (here, any && mm.cpus.retain(cpus, others))
}

/// Sends the flush to `others`, and waits for their acknowledgements.
#[cold]
#[inline(never)]
fn ask<M: Mmu>(sys: &System<M>, mm: &Mm<M>, range: VirtRange, me: u32, others: &CpuMask) {
    if M::broadcasts(&sys.at) {
        sys.count(Event::Broadcasts);
        M::flush_everywhere(&sys.at, mm.space, range);
        return;
    }
    let pending = &sys.cpus.get(me).mailbox.pending;
    let targets = others.iter().count() as u64;
    sys.count(Event::Shootdowns);
    sys.count_n(Event::ShootdownTargets, targets);
    pending.store(targets, Ordering::Relaxed);
    let irq = M::irq_save();
    for cpu in others.iter() {
        let mut posted = sys.cpus.get(cpu).mailbox.posted.lock();
        let posted = &mut *posted;
        match posted.ranges.get_mut(posted.len) {
            Some(slot) => {
                *slot = Range { mm, range };
                posted.len += 1;
            }
            None => posted.everything = Everything::Yes,
        }
        posted.from.insert(me);
    }
    M::send_ipi(&sys.at, others);
    M::irq_restore(irq);
    M::await_cpus(
        &sys.at,
        others,
        // ORDERING: Acquire; pairs with [shootdown-done].
        || pending.load(Ordering::Acquire) == 0,
        || pending.wait_until(u64::MAX, 0),
    );
}

impl<M: Mmu> Mm<M> {
    /// The calling CPU is about to walk the tables as its hardware does: it joins the CPU mask, if
    /// it has left it or was never there.
    ///
    /// Linux: switch_mm.
    ///
    /// # Context
    /// Interrupts are off, until the walk and what it buffers are done.
    #[inline(always)]
    pub fn activate(&self) {
        let loaded = &self.system().cpus.this().loaded;
        if loaded.get() >> ARENA_BITS != self.space.0 {
            self.joins();
        }
    }

    #[cold]
    #[inline(never)]
    fn joins(&self) {
        let me = this_cpu::<M>();
        self.cpus.insert(me);
        let loaded = &self.system().cpus.this().loaded;
        loaded.set(self.space.0 << ARENA_BITS);
    }

    /// The same, before a walk to `addr`; whether the CPU is in the mask of that arena as well. If
    /// not, it does not walk, and takes a fault.
    ///
    /// # Context
    /// As for [`Self::activate`].
    #[inline(always)]
    pub(super) fn enters(&self, addr: VirtAddr) -> bool {
        if self.system().config.cpu_masks == CpuMasks::Space {
            self.activate();
            return true;
        }
        self.enters_arena(addr)
    }

    #[inline]
    fn enters_arena(&self, addr: VirtAddr) -> bool {
        let Some(arenas) = self.linked_arenas() else {
            self.activate();
            return true;
        };
        let number = arenas.number_of(addr);
        let loaded = &self.system().cpus.this().loaded;
        let key = self.arena_key(number);
        if loaded.get() == key {
            return true;
        }
        self.activate();
        if self.system().lacks(NegativeControl::JoinsAfterWalk) {
            return true;
        }
        let me = this_cpu::<M>();
        let linked = arenas
            .get(number)
            .is_some_and(|arena| arena.part.cpus.contains(me));
        if linked {
            loaded.set(key);
        }
        linked
    }

    /// What names an arena in [`System`]'s `loaded` and `asked`.
    #[inline(always)]
    const fn arena_key(&self, number: u16) -> u64 {
        (self.space.0 << ARENA_BITS) + number as u64 + 1
    }

    /// The calling CPU joins the mask of the arena of `addr`, if there is one, because it is about
    /// to use it.
    ///
    /// # Context
    /// Any.
    #[inline(always)]
    pub(crate) fn joins_arena(&self, addr: VirtAddr) {
        if self.system().config.cpu_masks == CpuMasks::Space {
            return;
        }
        if let Some(arenas) = self.linked_arenas()
            && let Some(arena) = arenas.get(arenas.number_of(addr))
        {
            arena.part.cpus.insert(this_cpu::<M>());
        }
    }

    /// The arenas, if CPUs that walk are in their masks.
    #[inline(always)]
    pub(super) fn linked_arenas(&self) -> Option<&Arenas<M>> {
        let arenas = self.arenas()?;
        // A CPU that sees it too late is flushed, after what it walks now.
        (arenas.linking.load(Ordering::Relaxed) != 0).then_some(arenas)
    }

    /// From now on CPUs join the masks of the arenas where they walk; when this returns, none has a
    /// translation from before.
    ///
    /// # Context
    /// Holds what keeps others from doing the same. Waits for CPUs.
    pub(crate) fn links_arenas(&self, arenas: &Arenas<M>, all: VirtRange) {
        let sys = self.system();
        if sys.config.cpu_masks == CpuMasks::Space {
            return;
        }
        arenas.linking.store(1, Ordering::Relaxed);
        if !sys.lacks(NegativeControl::DivisionUnflushed) {
            flush(sys, self, all);
        }
    }

    /// Flushes all translations of the address space on the calling CPU and removes it from the CPU
    /// mask, because it will run something else for long. It rejoins when it runs the address space
    /// again.
    ///
    /// Linux: leave_mm.
    ///
    /// # Context
    /// Interrupts are off, and the caller is not walking page tables.
    pub fn deactivate(&self) {
        M::leave_space(&self.system().at, self.space);
        self.forget(VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end())));
        self.leave();
    }

    fn leave(&self) {
        let sys = self.system();
        self.cpus.remove(this_cpu::<M>());
        let loaded = &sys.cpus.this().loaded;
        if loaded.get() >> ARENA_BITS == self.space.0 {
            loaded.set(0);
        }
        sys.count(Event::LeftMasks);
    }

    fn forget(&self, range: VirtRange) {
        M::charge(Cost::Invalidate {
            pages: range.pages(M::Paging::shift()),
        });
        M::flush_local(&self.system().at, self.space, range);
    }

    /// Another CPU has asked this one to flush `range`. If it was for the same arena as some times
    /// before, the CPU flushes all of that and leaves its mask, and the answer is true. Where it
    /// leaves, and why that is right, is as for the mask of the address space.
    ///
    /// # Context
    /// In the handler of interrupts, so not within a walk.
    #[inline]
    fn leaves_arena(&self, range: VirtRange) -> bool {
        self.system().config.cpu_masks == CpuMasks::Arenas && self.is_asked_again(range)
    }

    fn is_asked_again(&self, range: VirtRange) -> bool {
        let sys = self.system();
        let Some(arenas) = self.linked_arenas() else {
            return false;
        };
        let span = arenas.span_of(range);
        let Some(arena) = span.only().and_then(|number| arenas.get(number)) else {
            return false;
        };
        let patience = if M::defers_little(&sys.at) {
            2
        } else {
            PATIENCE
        };
        let key = self.arena_key(span.first) * PATIENCE;
        let asked = &sys.cpus.this().asked;
        let times = asked
            .get()
            .checked_sub(key)
            .filter(|times| *times < PATIENCE);
        let times = times.unwrap_or(0) + 1;
        if times < patience {
            asked.set(key + times);
            return false;
        }
        asked.set(0);
        let all = if sys.lacks(NegativeControl::ArenaLeftUnflushed) {
            range
        } else {
            arenas.addresses(span.first)
        };
        self.forget(all);
        arena.part.cpus.remove(this_cpu::<M>());
        sys.cpus.this().loaded.set(self.space.0 << ARENA_BITS);
        sys.count(Event::LeftMasks);
        true
    }

    /// Flushes `range` on this CPU, as an initiator requested.
    fn answer(&self, range: VirtRange) {
        let sys = self.system();
        let loaded = sys.cpus.this().loaded.get() >> ARENA_BITS;
        let runs = M::runs(&sys.at, self.space) && loaded == self.space.0;
        // A walk that waits for no acknowledgement is not overtaken endlessly in explored
        // schedules.
        if runs || sys.lacks(NegativeControl::WalkStartsOver) {
            if !self.leaves_arena(range) {
                self.forget(range);
            }
        } else if sys.lacks(NegativeControl::LeavesUnflushed) {
            self.forget(range);
            self.leave();
        } else {
            self.deactivate();
        }
    }
}

/// The interrupt handler: flushes the ranges posted to this CPU, and reports its RCU state. An
/// interrupt does not say which of the two it was sent for; doing the other one costs little.
///
/// # Safety
/// 1. `arg` is the system.
pub(crate) unsafe fn handle<M: Mmu>(arg: *const ()) {
    // SAFETY: 1 of this function: boot hands it over, and takes the handler back first.
    let sys = unsafe { &*arg.cast::<System<M>>() };
    sys.answer_grace_period();
    let posted = {
        let mut mailbox = sys.cpus.this().mailbox.posted.lock();
        core::mem::replace(&mut *mailbox, Posted::empty())
    };
    if posted.everything == Everything::Yes {
        M::charge(Cost::Invalidate { pages: u64::MAX });
        M::flush_everything(&sys.at);
    } else {
        for Range { mm, range } in &posted.ranges[..posted.len] {
            // SAFETY: the initiator keeps its address space until this CPU has answered, below.
            unsafe { &**mm }.answer(*range);
        }
    }
    for initiator in posted.from.iter() {
        // ORDERING: Release; pairs with [shootdown-done].
        sys.cpus
            .get(initiator)
            .mailbox
            .pending
            .sub(1, Ordering::Release);
    }
}
