//! The stale-translation oracle.
//!
//! At each use of a cached translation: the frame must not have been freed since the TLB fill. At
//! the end of a call that revokes access: no cached translation may allow more than the page tables
//! now do. Calls that hold `mmap_lock` for writing check while they still hold it, and check all
//! translations. A discard runs concurrently with others, so it checks those cached *before it
//! began*: for later ones a fault may have mapped the page again, and another discard may be
//! unmapping it. The check needs a stopped world, so it runs in simulation only.

use crate::base::check::Check;
use crate::memory::frame::Use;
use crate::mm::Mm;
use crate::system::System;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Access, BeforeInstall, Grant, Mmu, Paging, Translation};
use minflt_sync::Instance;

/// A buffered translation is being used.
#[inline(always)]
pub(crate) fn translation_live<M: Mmu>(
    sys: &System<M>,
    hit: &Translation,
    addr: VirtAddr,
    access: Access,
) {
    if M::CHECKED {
        sys.looked(Check::Translation);
        if sys.frames.get(hit.pfn).generation() != hit.generation {
            M::violation(format_args!(
                "stale translation: {access:?} at {addr} hits frame {}, which was freed since",
                hit.pfn
            ));
        }
    }
}

/// The hardware is about to use a translation to `pfn`: where the format says so, the caches must
/// have seen what was written to the frame before an entry named it.
#[inline(always)]
pub(crate) fn contents_flushed<M: Mmu>(sys: &System<M>, pfn: Pfn) {
    if M::Paging::caps().before_install == BeforeInstall::FlushCaches {
        let frame = sys.frames.get(pfn);
        if frame.used_as() == Use::Anon && !frame.is_flushed() {
            M::violation(format_args!(
                "caches: frame {pfn} is used before its cache lines were flushed"
            ));
        }
    }
}

/// A call over `range` that began at `since` is about to return.
#[inline(always)]
pub(crate) fn translations_agree<M: Mmu>(mm: &Mm<M>, range: VirtRange, since: u64) {
    if M::CHECKED && M::STOPS_THE_WORLD {
        check_all(mm, range, since);
    }
}

/// The same for a call that holds `mmap_lock` for writing and changes VMAs that stay mapped: a
/// reverse-map walk of a file may be changing PTEs concurrently, before its flush. Checks only
/// where there is no such walk.
#[inline(always)]
pub(crate) fn translations_agree_alone<M: Mmu>(mm: &Mm<M>, range: VirtRange) {
    if M::CHECKED && M::STOPS_THE_WORLD && !mm.peek_flushes_pending() {
        check_all(mm, range, u64::MAX);
    }
}

fn check_all<M: Mmu>(mm: &Mm<M>, range: VirtRange, since: u64) {
    let sys = mm.system();
    sys.looked(Check::Invalidation);
    for cpu in 0..sys.at.cpus() {
        let Some(tlb) = M::tlb(&sys.at, cpu) else {
            continue;
        };
        for old in tlb.iter() {
            let addr = VirtAddr(old.page << M::Paging::shift());
            if old.space != mm.space || !range.contains(addr) || old.filled >= since {
                continue;
            }
            let now = mm.peek_entry(addr);
            let needs = if old.rights.writable {
                Grant::Write
            } else {
                Grant::Read
            };
            let serves = |access| old.rights.serve::<M::Paging>(access);
            let fetches = serves(Access::Execute) && !now.is_exec();
            let loads = serves(Access::Read) && !now.is_loadable();
            let rights = fetches || loads || now.grant() < needs;
            if !now.is_present() || now.pfn() != old.pfn || rights {
                M::violation(format_args!(
                    "stale translation: the call on {range} returns while CPU {cpu} still \
                     caches frame {} at {addr}; the PTE is {now:?}",
                    old.pfn
                ));
            }
        }
    }
}
