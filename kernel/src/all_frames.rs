//! Whether the machine's memory is there: runs of frames from every range keep what is stored.

use minflt_addr::Pfn;
use minflt_mm::{Gfp, MAX_PAGE_ORDER, System};
use minflt_pgtable::Mmu;

use crate::arch::serial::say;
use crate::machine::Kernel;

/// The words of a run's first frame that this uses.
const NAME: u64 = 0;
const NEXT: u64 = 8;

/// Takes all runs of the largest size, each of which names itself and the one before; then looks
/// whether they still do, and frees them. True if they do.
pub(crate) fn check(sys: &System<Kernel>) -> bool {
    let at = sys.machine();
    let (mut last, mut runs, mut highest) = (Pfn(0), 0_u64, Pfn(0));
    while let Ok(run) = sys.alloc_pages(MAX_PAGE_ORDER, Gfp::NoWait) {
        let first = run.into_raw();
        Kernel::user_store(at, first, NAME, !first.0);
        Kernel::user_store(at, first, NEXT, last.0);
        (last, runs, highest) = (first, runs + 1, highest.max(first));
    }
    let mut wrong = 0_u64;
    while last != Pfn(0) {
        wrong += u64::from(Kernel::user_load(at, last, NAME) != !last.0);
        let next = Pfn(Kernel::user_load(at, last, NEXT));
        // SAFETY: (1) `into_raw` gave it, and each is in the list once. (2) read for the last time
        // above.
        unsafe { sys.free_pages(last) };
        last = next;
    }
    let mib = (runs << MAX_PAGE_ORDER) >> 8;
    say!("memory: {mib} MiB in large runs, up to frame {highest}");
    if wrong != 0 {
        say!("memory: FAILED, {wrong} runs hold what others stored");
    }
    wrong == 0
}
