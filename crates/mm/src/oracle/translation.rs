//! The stale-translation oracle.
//!
//! At each use of a buffered translation: the frame must not have been freed since it was buffered.
//! At the end of a call that takes access away: no buffered translation may allow more than the
//! tables do now. Calls that hold `mmap_lock` for writing look while they still do, at all
//! translations. A discard runs beside others, so it looks at those buffered *before it began*: of
//! later ones a fault may have put the page back, and another discard may be taking it out again.
//! It needs the world stopped, so it is made in simulation only.

use crate::mm::Mm;
use crate::oracle::Check;
use crate::system::System;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Access, Grant, Mmu, Paging, Pte, Table, Translation, index_of};
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
                "stale translation: {access:?} at {addr} reaches frame {}, freed since",
                hit.pfn
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

fn check_all<M: Mmu>(mm: &Mm<M>, range: VirtRange, since: u64) {
    let sys = mm.system();
    sys.looked(Check::Invalidation);
    for cpu in 0..sys.at.cpus() {
        let Some(tlb) = M::tlb(&sys.at, cpu) else {
            continue;
        };
        for old in tlb.iter() {
            let addr = VirtAddr(old.page << M::Paging::SHIFT);
            if old.space != mm.space || !range.contains(addr) || old.filled >= since {
                continue;
            }
            let now = peek_entry(mm, addr);
            let needs = if old.writable {
                Grant::Write
            } else {
                Grant::Read
            };
            if !now.is_present() || now.pfn() != old.pfn || now.grant() < needs {
                M::violation(format_args!(
                    "stale translation: the call over {range} returns while CPU {cpu} still \
                     reaches frame {} at {addr}; the entry is {now:?}",
                    old.pfn
                ));
            }
        }
    }
}

/// The leaf entry for `addr` as it stands, without the door; none where a table is missing.
pub(crate) fn peek_entry<M: Mmu>(mm: &Mm<M>, addr: VirtAddr) -> Pte<M::Paging> {
    let at = &mm.system().at;
    let mut table = mm.root;
    for level in (0..M::Paging::LEVELS).rev() {
        // SAFETY: 1: nothing runs while an oracle looks.
        let entry = unsafe { Table::<M>::at(at, table) };
        let value = entry.entry(index_of::<M::Paging>(addr, level)).peek();
        if level == 0 || value.is_none() {
            return value;
        }
        table = value.pfn();
    }
    Pte::NONE
}
