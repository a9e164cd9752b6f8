//! A page fault, in phases.
//!
//! ```text
//! stabilise   a lock mode           -> what it proves, and what it permits
//! prepare     tables, anon_vma, a zeroed frame; no PTE is locked
//! open        lock held x protocol  -> a `Slot`: PTE lock, trylock and recheck, or nothing
//! commit      one update of the PTE; the loser of a race frees its frame
//! finish      rss, references, events
//! ```
//! [`modes`] has a function for each lock mode, which dispatches by mapping to [`anon`], [`file`]
//! or [`hugetlb`]. For a file, *prepare* also locks the page, and *commit* may install several PTEs
//! ([`around`]).
//!
//! Only *modes*, *stabilise* and the loop here, which counts by lock mode, know which mode runs.
//! All other code asks what the mode permits ([`stabilise::Can`]). A mode that cannot proceed
//! returns a reason ([`Why`]), which is counted, and the fault tries the next one; the last mode
//! may sleep.

mod anon;
mod around;
mod file;
mod hugetlb;
mod modes;
mod numa;
mod outcome;
mod prepare;
pub(crate) mod remote;
mod remote_huge;
mod stabilise;
pub(crate) mod stack;
mod swap;
pub(crate) mod userfault;

use crate::base::config::{Config, LockMode, NegativeControl};
use crate::base::event::Event;
use crate::base::policy::NodeMask;
use crate::base::why::Why;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::pages::reclaim::Shortage;
use core::cell::Cell;
use file::Wanted;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{Access, Leaf, Mmu, NonPresent, Pte};
use minflt_sync::Phase;
use stabilise::Stable;
use swap::{Away, Brought};

pub use outcome::{Done, FaultOutcome, Kind, Signal};

/// Why an attempt ended without success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    Retry(Why),
    Signal(Signal),
    Oom,
    /// The fault is queued for a userfaultfd handler, which wakes the thread.
    Userfault,
    /// A page must be read in, with no lock held.
    PageIn,
    /// The page is migrating from this frame; the fault waits with no lock held.
    Moving(Pfn),
}

impl From<Why> for Stop {
    fn from(why: Why) -> Self {
        Self::Retry(why)
    }
}

/// One fault.
pub(crate) struct Fault<'m, M: Mmu> {
    mm: &'m Mm<M>,
    share: &'m Share,
    addr: VirtAddr,
    /// What was tried.
    tried: Access,
    /// The same as a load or a store: to fetch is to load, once that is allowed.
    access: Access,
    /// The fault filled a frame in a way that prefetches the next frame's lines.
    filled: Cell<bool>,
    /// The descriptors of the pages around were asked for.
    asked: Cell<bool>,
    /// What has to be read in, if anything.
    wanted: Cell<Option<Wanted<M>>>,
    /// What has to be read from a swap device, or waited for.
    away: Cell<Option<Away>>,
    /// What was read from there.
    brought: Cell<Option<Brought<'m, M>>>,
    /// The nodes that a frame asked for must be of, if not any.
    within: Cell<Option<NodeMask>>,
}

impl<M: Mmu> Mm<M> {
    /// Handles a fault of the calling thread.
    ///
    /// # Context
    /// From user mode; holds nothing. May sleep for `mmap_lock`, unless a mode before it succeeds.
    pub(crate) fn handle_fault(
        &self,
        share: &Share,
        addr: VirtAddr,
        access: Access,
    ) -> FaultOutcome {
        let sys = self.system();
        // A thread keeps its CPU.
        let here = sys.here();
        here.count(Event::PageFaults);
        let fault = Fault::new(self, share, addr, access);
        let mut waited = false;
        let mut shortage = None;
        for mode in sys.config.fallback_order.modes() {
            let mut again = tries_of::<M>(&sys.config);
            loop {
                match fault.attempt(*mode) {
                    Ok(kind) => {
                        here.count(if waited {
                            Event::MajorFaults
                        } else {
                            Event::MinorFaults
                        });
                        let done = Done { kind, by: *mode };
                        done.count(here);
                        return FaultOutcome::Done(done);
                    }
                    Err(Stop::Retry(why)) => {
                        if *mode == LockMode::Speculative {
                            sys.count(Event::SpeculativeFailed);
                        }
                        sys.count(why.event());
                        M::note(format_args!("fault {addr} falls back: {}", why.event()));
                    }
                    Err(Stop::Signal(Signal::MapErr))
                        if *mode == LockMode::Mmap && self.expand_stack(addr).is_ok() =>
                    {
                        continue;
                    }
                    Err(Stop::Signal(signal)) => {
                        sys.count(Event::Signals);
                        match mode {
                            LockMode::Speculative => sys.count(Event::SpfAccess),
                            LockMode::VmaLock => sys.count(Event::VmaLockSuccess),
                            LockMode::Mmap => {}
                        }
                        return FaultOutcome::Signal(signal);
                    }
                    Err(Stop::Userfault) => {
                        self.await_wake();
                        continue;
                    }
                    Err(Stop::Moving(pfn)) => {
                        sys.await_move(pfn);
                        continue;
                    }
                    Err(Stop::PageIn) => match fault.page_in() {
                        Ok(()) => {
                            waited = true;
                            continue;
                        }
                        Err(FaultOutcome::Oom) if fault.more_memory(&mut shortage) => continue,
                        Err(outcome) => return outcome,
                    },
                    Err(Stop::Oom) if fault.more_memory(&mut shortage) => continue,
                    Err(Stop::Oom) => return FaultOutcome::Oom,
                }
                again -= 1;
                if again == 0 {
                    break;
                }
            }
        }
        // The last mode may sleep, so it never falls back.
        FaultOutcome::Oom
    }

    /// Maps what is cached of the file at `addr`, as far as its table reaches, and as far as that
    /// needs no waiting.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`; the caller holds nothing.
    pub(crate) fn map_ready(&self, share: &Share, addr: VirtAddr) {
        let fault = Fault::new(self, share, addr, Access::Read);
        // What cannot be mapped is faulted in when it is touched.
        let _later = fault.map_all_ready();
    }

    /// Faults a page in on behalf of a call, under `mmap_lock` for reading. It counts as a fault of
    /// the thread, unless the page is there, and not among `page-faults`: nothing trapped.
    ///
    /// Linux: faultin_page; mm_account_fault without registers.
    pub(crate) fn fault_in(&self, share: &Share, addr: VirtAddr, access: Access) -> FaultOutcome {
        let sys = self.system();
        let fault = Fault::new(self, share, addr, access);
        let mut how = Event::MinorFaults;
        let mut shortage = None;
        let outcome = loop {
            match fault.attempt(LockMode::Mmap) {
                Err(Stop::Userfault) => self.await_wake(),
                Err(Stop::Moving(pfn)) => sys.await_move(pfn),
                Err(Stop::PageIn) => {
                    how = Event::MajorFaults;
                    match fault.page_in() {
                        Ok(()) => {}
                        Err(FaultOutcome::Oom) if fault.more_memory(&mut shortage) => {}
                        Err(outcome) => return outcome,
                    }
                }
                Err(Stop::Oom) if fault.more_memory(&mut shortage) => {}
                outcome => break outcome,
            }
        };
        M::phase(Phase::Back);
        match outcome {
            Ok(kind) => {
                if kind != Kind::Spurious {
                    sys.count(how);
                    sys.count(Event::Populated);
                    sys.count(kind.event());
                }
                let by = LockMode::Mmap;
                FaultOutcome::Done(Done { kind, by })
            }
            Err(Stop::Signal(signal)) => FaultOutcome::Signal(signal),
            // The others were dealt with.
            Err(_) => FaultOutcome::Oom,
        }
    }
}

impl<M: Mmu> Fault<'_, M> {
    /// After an attempt that found no memory: whether there may be more now. If not, that is
    /// counted.
    #[cold]
    #[inline(never)]
    fn more_memory(&self, shortage: &mut Option<Shortage>) -> bool {
        let sys = self.mm.system();
        let shortage = shortage.get_or_insert_with(|| Shortage::new(sys));
        // An allocation that a test refuses must not be satisfied by reclaim.
        let more = sys.frames.was_short() && shortage.make_room(sys, self.within.get());
        if !more {
            sys.count(Event::OutOfMemory);
        }
        more
    }
}

/// How often a mode that never waits is tried. Under the negative control nearly without end, but
/// not quite, so that a set-up that needs `mmap_lock` still gets it.
#[inline(always)]
fn tries_of<M: Mmu>(config: &Config) -> u32 {
    if config.lacks::<M>(NegativeControl::FallbackWithoutEnd) {
        64
    } else {
        1
    }
}

impl<'m, M: Mmu> Fault<'m, M> {
    const fn new(mm: &'m Mm<M>, share: &'m Share, addr: VirtAddr, access: Access) -> Self {
        Self {
            mm,
            share,
            addr,
            tried: access,
            access: match access {
                Access::Execute => Access::Read,
                data => data,
            },
            filled: Cell::new(false),
            asked: Cell::new(false),
            wanted: Cell::new(None),
            away: Cell::new(None),
            brought: Cell::new(None),
            within: Cell::new(None),
        }
    }
}

impl<M: Mmu> Fault<'_, M> {
    /// The page is not in a frame that could be mapped now.
    #[cold]
    fn away(
        &self,
        stable: &Stable<'_, M>,
        leaf: Leaf<'_, M>,
        found: Pte<M::Paging>,
    ) -> Result<Kind, Stop> {
        match found.nonpresent() {
            Some(NonPresent::Migration(pfn)) => Err(Stop::Moving(pfn)),
            Some(NonPresent::Swap(slot)) => self.swap_in(stable, leaf, found, slot),
            None => Ok(Kind::Spurious),
        }
    }
}
