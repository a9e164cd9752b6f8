//! A page fault, in phases.
//!
//! ```text
//! stabilise   a rung of the ladder  -> what was proven, and what it allows
//! prepare     tables, anon_vma, a frame of zeros; nothing is held open
//! open        hold x protocol       -> a slot: lock, trylock and check again, or nothing
//! commit      one verb on the entry; the loser gets its frame back
//! finish      rss, references, events
//! ```
//! On a file ([`file`]) *prepare* has the page locked, and *commit* may put more than one in
//! ([`around`]).
//!
//! Only *stabilise* and *open* know the configuration's enums. A rung that cannot go on says why,
//! the reason is counted, and the next rung is tried; the last one waits.

mod anon;
mod around;
mod file;
mod hugetlb;
mod numa;
mod outcome;
mod prepare;
pub(crate) mod remote;
mod remote_huge;
mod slot;
mod stabilise;
pub(crate) mod stack;
mod swap;
pub(crate) mod userfault;

use crate::base::config::{Ahead, Broken, Config, Rss, Rung};
use crate::base::event::Event;
use crate::base::policy::NodeMask;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::pages::reclaim::Shortage;
use core::cell::Cell;
use file::Wanted;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{Access, Leaf, Mmu, NonPresent, Paging, Pte};
use minflt_sync::Phase;
use stabilise::Stable;
use swap::{Away, Brought};

pub(crate) use outcome::Why;
pub use outcome::{Done, FaultOutcome, Kind, Signal};

/// Why an attempt ended without success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    Retry(Why),
    Signal(Signal),
    Oom,
    /// A handler has been told; it wakes the thread.
    Userfault,
    /// A page has to be read in, which is done with nothing held.
    PageIn,
    /// The page is being moved from this frame, which is waited for with nothing held.
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
    access: Access,
    /// A frame was filled for it by one of the verbs that ask for the next one's lines.
    filled: Cell<bool>,
    /// The descriptors of the pages around were asked for.
    asked: Cell<bool>,
    /// What has to be read in, if anything.
    wanted: Cell<Option<Wanted>>,
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
    /// From user mode; holds nothing. May sleep for `mmap_lock`, unless a rung before it succeeds.
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
        for rung in sys.config.ladder.rungs() {
            let mut again = tries_of::<M>(&sys.config);
            loop {
                match fault.attempt(*rung) {
                    Ok(kind) => {
                        here.count(if waited {
                            Event::MajorFaults
                        } else {
                            Event::MinorFaults
                        });
                        let done = Done { kind, by: *rung };
                        done.count(here);
                        return FaultOutcome::Done(done);
                    }
                    Err(Stop::Retry(why)) => {
                        if *rung == Rung::Speculative {
                            sys.count(Event::SpeculativeFailed);
                        }
                        sys.count(why.event());
                        M::note(format_args!("fault {addr} falls back: {}", why.event()));
                    }
                    Err(Stop::Signal(Signal::MapErr))
                        if *rung == Rung::Mmap && self.expand_stack(addr).is_ok() =>
                    {
                        continue;
                    }
                    Err(Stop::Signal(signal)) => {
                        sys.count(Event::Signals);
                        match rung {
                            Rung::Speculative => sys.count(Event::SpfAccess),
                            Rung::VmaLock => sys.count(Event::VmaLockSuccess),
                            Rung::Mmap => {}
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
        // The last rung waits, so it never asks for another.
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
            match fault.attempt(Rung::Mmap) {
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
                let by = Rung::Mmap;
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
        // What a test refuses shall not be had by taking it from others.
        let more = sys.frames.was_short() && shortage.make_room(sys, self.within.get());
        if !more {
            sys.count(Event::OutOfMemory);
        }
        more
    }
}

/// How often a rung is tried that does not wait: in the control nearly for ever, so that a set-up
/// that needs `mmap_lock` still gets it.
#[inline(always)]
fn tries_of<M: Mmu>(config: &Config) -> u32 {
    if config.lacks::<M>(Broken::LadderWithoutEnd) {
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
            access,
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
    /// Tries one rung. Each is a function of its own, in which nothing asks what it is.
    #[inline(always)]
    fn attempt(&self, rung: Rung) -> Result<Kind, Stop> {
        match rung {
            Rung::Mmap => self.attempt_mmap(),
            Rung::VmaLock => self.attempt_vma_lock(),
            Rung::Speculative => self.attempt_speculative(),
        }
    }

    #[inline(never)]
    fn attempt_mmap(&self) -> Result<Kind, Stop> {
        self.attempt_by(Rung::Mmap)
    }

    #[inline(never)]
    fn attempt_vma_lock(&self) -> Result<Kind, Stop> {
        self.attempt_by(Rung::VmaLock)
    }

    #[inline(never)]
    fn attempt_speculative(&self) -> Result<Kind, Stop> {
        self.attempt_by(Rung::Speculative)
    }

    #[inline(always)]
    fn attempt_by(&self, rung: Rung) -> Result<Kind, Stop> {
        M::phase(Phase::Stabilise);
        let kind = self.hold_by(rung);
        let rss = self.mm.system().config.rss;
        let counted = matches!(rss, Rss::UnderLock | Rss::Sloppy);
        if !counted && kind.is_ok_and(Kind::maps_a_frame) {
            self.count_page(1);
        }
        if kind.is_ok_and(Kind::takes_a_frame) {
            self.look_ahead();
        }
        kind
    }

    /// What is done while a rung's hold lasts.
    #[inline(always)]
    fn held(&self, stable: &Stable<'_, M>) -> Result<Kind, Stop> {
        let kind = self.under(stable);
        M::phase(Phase::Finish);
        // A sloppy number stands in the line of `mmap_lock`: counted right before that is let go,
        // it costs no move of the line.
        if self.mm.system().config.rss == Rss::Sloppy && kind.is_ok_and(Kind::maps_a_frame) {
            self.count_page(1);
        }
        kind
    }

    /// Asks for what a fault soon will wait for. Here, where all locks have been let go: the step
    /// that takes one waits for whatever was asked for before to be found in the tables of the
    /// processor's own, and until the next one there is the way out, the access and the way in.
    #[inline(always)]
    fn look_ahead(&self) {
        let sys = self.mm.system();
        if sys.config.ahead == Ahead::Frame {
            // What is filled is asked for when the frame before it is.
            let offset = self.addr.page_offset(M::Paging::shift());
            let offset = (!self.filled.get()).then_some(offset);
            sys.frames.prefetch_coming(&sys.at, offset);
        }
    }

    #[inline(always)]
    fn under(&self, stable: &Stable<'_, M>) -> Result<Kind, Stop> {
        stable.check_access(self.access)?;
        M::phase(Phase::Prepare);
        if stable.view.file.is_file() {
            if stable.view.is_huge() {
                return self.huge(stable);
            }
            return self.file(stable);
        }
        // What is watched is prepared when it is known what stands there.
        if stable.view.uffd == 0 {
            self.prepare_anon(stable)?;
        }
        let leaf = self.leaf(stable)?;
        self.anon(stable, leaf)
    }

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

    /// One more page is resident.
    #[inline(always)]
    fn count_page(&self, pages: i64) {
        self.mm.count_resident(Some(self.share), pages);
    }
}
