//! The NUMA scan: makes PTEs `PROT_NONE`, so that the next access takes a hinting fault.
//!
//! The address space is gone through bit by bit, around and around; the place where the next scan
//! begins is the address space's. How often, follows from what the last one found: if nobody
//! faulted, or nearly all faults came from the pages' own nodes, the time to the next scan doubles;
//! else it halves.
//!
//! Linux: task_tick_numa, task_numa_work, which goes by tasks since v3.13 and weighs private and
//! shared faults; update_task_scan_period.

use super::NumaKnobs;
use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::event::Event;
use crate::base::policy::Policy;
use crate::entry::zap::Zap;
use crate::memory::frame::Use;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::system::System;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Grant, Mmu, Paging, Pte, span_of};
use minflt_sync::{Atomic, Ordering};

/// Pages that a scan may look at, for each that it may change. Linux: task_numa_work.
const LOOKS: u64 = 8;
/// Hinting faults of ten that have to be on their page's node for scans to become rarer.
const ENOUGH_LOCAL: u64 = 7;

/// What an address space has of balancing. Hints, all of it: nothing is guarded by anything, and
/// an update that is lost costs a scan too many or too few.
#[derive(Debug)]
pub(crate) struct Balance<M: Mmu> {
    /// When the next scan is due; 0 before the first timer interrupt. Who exchanges it scans.
    next_scan_ns: Atomic<u64, M>,
    /// Time between two scans; 0 before the first.
    period_ns: Atomic<u64, M>,
    /// Where the next scan begins.
    offset: Atomic<u64, M>,
    /// How often a scan has come to the end of the address space.
    rounds: Atomic<u64, M>,
    /// Hinting faults since the last scan.
    hinted: Atomic<u64, M>,
    /// Those of them that came from the page's own node.
    local: Atomic<u64, M>,
}

impl<M: Mmu> Balance<M> {
    pub(crate) fn new() -> Self {
        Self {
            next_scan_ns: Atomic::new(0),
            period_ns: Atomic::new(0),
            offset: Atomic::new(0),
            rounds: Atomic::new(0),
            hinted: Atomic::new(0),
            local: Atomic::new(0),
        }
    }

    /// There was a hinting fault.
    pub(crate) fn hinted(&self) {
        self.hinted.add(1, Ordering::Relaxed);
    }

    /// It came from the node of its page.
    pub(crate) fn hinted_here(&self) {
        self.local.add(1, Ordering::Relaxed);
    }

    /// Whether a scan is due, and the caller's: of all who ask, one at a time.
    pub(crate) fn wins(&self, knobs: &NumaKnobs, now_ns: u64) -> bool {
        let due = self.next_scan_ns.load(Ordering::Relaxed);
        if now_ns < due {
            return false;
        }
        let (first, period) = match due {
            0 => (true, knobs.scan_period_min_ns),
            _ => (false, self.next_period(knobs)),
        };
        let wait = if first { knobs.scan_delay_ns } else { period };
        let next = now_ns.saturating_add(wait).max(1);
        let won = self
            .next_scan_ns
            .cas(due, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if won {
            self.period_ns.store(period, Ordering::Relaxed);
            self.hinted.store(0, Ordering::Relaxed);
            self.local.store(0, Ordering::Relaxed);
        }
        won && !first
    }

    /// How long to wait after this scan.
    fn next_period(&self, knobs: &NumaKnobs) -> u64 {
        let now = self.period_ns.load(Ordering::Relaxed);
        let hinted = self.hinted.load(Ordering::Relaxed);
        let local = self.local.load(Ordering::Relaxed);
        let settled = local * 10 >= hinted * ENOUGH_LOCAL;
        let next = if settled {
            now.saturating_mul(2)
        } else {
            now / 2
        };
        let most = knobs.scan_period_max_ns.max(knobs.scan_period_min_ns);
        next.clamp(knobs.scan_period_min_ns, most)
    }
}

impl<M: Mmu> Mm<M> {
    /// How often scans have gone through the whole address space (`numa_scan_seq`).
    #[must_use]
    pub fn numa_rounds(&self) -> u64 {
        self.balance.rounds.load(Ordering::Relaxed)
    }

    /// Makes the next `most` pages fault; returns how many are made to.
    pub(crate) fn scan(&self, most: u64) -> u64 {
        let (sys, balance) = (self.system(), &self.balance);
        let mut at = VirtAddr(balance.offset.load(Ordering::Relaxed));
        let (mut changed, mut looks) = (0, most.saturating_mul(LOOKS));
        let guard = self.read(Over::All);
        let held = guard.held();
        if held.find(at).is_none() {
            at = VirtAddr(0);
        }
        let mut zap = Zap::begin(held.tables(), Self::user_range());
        let mut ended = true;
        while let Some(view) = held.find(at).map(|vma| vma.view()) {
            if changed >= most || looks == 0 {
                ended = false;
                break;
            }
            let from = at.max(view.range.start());
            let part = span_of::<M::Paging>(from, 1).intersect(view.range);
            let part = VirtRange::new(from, part.end());
            if !is_balanced(&view) {
                at = view.range.end();
                continue;
            }
            changed += zap.change(part, |pte| hinting(sys, pte));
            looks = looks.saturating_sub(part.len() >> M::Paging::shift());
            at = part.end();
        }
        zap.finish();
        drop(guard);
        if ended {
            at = VirtAddr(0);
            balance.rounds.add(1, Ordering::Relaxed);
        }
        balance.offset.store(at.0, Ordering::Relaxed);
        sys.count_n(Event::NumaPteUpdates, changed);
        changed
    }
}

/// Whether pages of a mapping may follow their users: none for which somebody has said where they
/// are to be, none that nobody may use, none of files but copies of their own, and no huge ones,
/// whose tables others may free ([`Held::each_unshared`](crate::space::arenas::look::Held)).
///
/// Linux: vma_policy_mof, vma_migratable; task_numa_work passes libraries over.
fn is_balanced(view: &VmaView) -> bool {
    let copies = !view.flags.has(VmaFlags::SHARED) && view.prot.has(Prot::WRITE);
    !view.is_huge()
        && view.prot.grant() != Grant::Nothing
        && view.policy == Policy::DEFAULT
        && (copies || !view.file.is_file())
}

/// The hinting entry for a mapped one, where its page is anonymous and mapped once. Under the lock
/// of its table, so that the frame is the entry's; that somebody else maps it a moment later is
/// fork's affair, which copies the entry as it is.
fn hinting<M: Mmu>(sys: &System<M>, pte: Pte<M::Paging>) -> Option<Pte<M::Paging>> {
    if !pte.is_present() || pte.is_zero_page() {
        return None;
    }
    let frame = sys.frames.get(pte.pfn());
    let own = frame.used_as() == Use::Anon && frame.maps.load(Ordering::Relaxed) == 1;
    own.then(|| pte.with_grant(Grant::Nothing))
}
