//! madvise: advice on the use of a range.
//!
//! | advice | `mmap_lock` | does |
//! |---|---|---|
//! | pages not needed, or not soon | read | unmaps or ages pages ([`pages`]) |
//! | pages needed soon | read, a page at a time | faults them in ([`super::populate`]) |
//! | use of a mapping | write | changes its flags, in a write section ([`flags`]) |
//!
//! Mappings of the range are processed up to the first that refuses; holes are skipped and reported
//! at the end.
//!
//! Linux: mm/madvise.c do_madvise, madvise_walk_vmas (v6.18).

mod flags;
mod pages;

use super::page_range;
use super::populate::{NotPopulated, willing};
use crate::base::error::MadviseError;
use crate::base::event::Event;
use crate::call::thread::Thread;
use crate::memory::lifetime::as_call;
use crate::memory::rss::Share;
use crate::mm::Mm;
use crate::space::arenas::look::Held;
use core::fmt;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Access, Mmu};

macro_rules! advice {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal $text:literal),+ $(,)?) => {
        /// What is to be expected of a range.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u32)]
        pub enum Advice { $($(#[doc = $doc])+ $name = $number),+ }

        impl Advice {
            /// Each.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The name, as Linux has it behind `MADV_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

advice! {
    /// Nothing special.
    Normal = 0 "NORMAL",
    /// Accesses in no order.
    Random = 1 "RANDOM",
    /// Accesses in order.
    Sequential = 2 "SEQUENTIAL",
    /// It is needed soon: pages of files are read in. What is swapped out is read when it is
    /// touched.
    WillNeed = 3 "WILLNEED",
    /// Its contents are not needed: the next access finds zeros.
    DontNeed = 4 "DONTNEED",
    /// The contents are not needed until the next store. A page that is not stored to may be freed,
    /// and then reads as zeros. Reclaim does not make use of that, so the contents stay; but the
    /// dirty bits of the PTEs are cleared.
    Free = 8 "FREE",
    /// The file's contents are to go: a hole is made in it. Anonymous memory has none, and refuses;
    /// so do private mappings.
    Remove = 9 "REMOVE",
    /// A child does not get it.
    DontFork = 10 "DONTFORK",
    /// A child gets it.
    DoFork = 11 "DOFORK",
    /// Huge pages are wanted. Recorded only.
    HugePage = 14 "HUGEPAGE",
    /// Huge pages are not wanted. Recorded only.
    NoHugePage = 15 "NOHUGEPAGE",
    /// Left out of a core dump. Recorded only.
    DontDump = 16 "DONTDUMP",
    /// Not left out of a core dump. Recorded only.
    DoDump = 17 "DODUMP",
    /// A child gets it empty.
    WipeOnFork = 18 "WIPEONFORK",
    /// A child gets its contents.
    KeepOnFork = 19 "KEEPONFORK",
    /// Not needed soon: clears the accessed bits of its pages.
    Cold = 20 "COLD",
    /// Not needed for long: its pages are swapped out, or leave their file's cache. Without a swap
    /// device anonymous memory stays as it is.
    PageOut = 21 "PAGEOUT",
    /// Its pages are faulted in as by loads.
    PopulateRead = 22 "POPULATE_READ",
    /// Its pages are faulted in as by stores.
    PopulateWrite = 23 "POPULATE_WRITE",
    /// As `DontNeed`, of locked memory, too.
    DontNeedLocked = 24 "DONTNEED_LOCKED",
}

impl Advice {
    /// Linux's number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The advice with Linux's number. One that is not there is refused as `EINVAL`, as Linux does
    /// where it is built without what that advice is for.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|advice| advice.number() == number)
            .copied()
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<M: Mmu> Mm<M> {
    /// Follows advice about `len` bytes (rounded up to pages) from `start` on.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading, so that faults and similar calls run
    /// concurrently, or for writing where it changes VMAs. Waits for TLB flushes.
    ///
    /// # Errors
    /// See [`MadviseError`].
    pub fn madvise(&self, start: VirtAddr, len: u64, advice: Advice) -> Result<(), MadviseError> {
        self.for_no_thread(|share| self.follow(share, start, len, advice))
    }

    fn follow(
        &self,
        share: &Share,
        start: VirtAddr,
        len: u64,
        advice: Advice,
    ) -> Result<(), MadviseError> {
        as_call(self.system(), || {
            self.system().count(Event::Madvise);
            self.system().with_memory(|| {
                let range = page_range::<M>(start, len).ok_or(MadviseError::Invalid)?;
                if range.is_empty() {
                    return Ok(());
                }
                let result = match advice {
                    Advice::PopulateRead => self.populate_for(share, range, Access::Read),
                    Advice::PopulateWrite => self.populate_for(share, range, Access::Write),
                    Advice::WillNeed | Advice::Remove => self.advise_files(range, advice),
                    Advice::DontNeed
                    | Advice::DontNeedLocked
                    | Advice::Free
                    | Advice::Cold
                    | Advice::PageOut => self.advise_pages(range, advice),
                    Advice::Normal
                    | Advice::Random
                    | Advice::Sequential
                    | Advice::DontFork
                    | Advice::DoFork
                    | Advice::HugePage
                    | Advice::NoHugePage
                    | Advice::DontDump
                    | Advice::DoDump
                    | Advice::WipeOnFork
                    | Advice::KeepOnFork => self.advise_mappings(range, advice),
                };
                M::note(format_args!("madvise {range} {advice} returns"));
                result
            })
        })
    }

    /// Linux: madvise_populate. A mapping has to have the right by name: what may be stored to may
    /// not be populated by loads for that.
    fn populate_for(
        &self,
        share: &Share,
        range: VirtRange,
        access: Access,
    ) -> Result<(), MadviseError> {
        self.populate_all(share, range, |view| willing(view, access).map(Some))
            .map_err(|why| match why {
                NotPopulated::Refused => MadviseError::Invalid,
                NotPopulated::Bus => MadviseError::Fault,
                NotPopulated::Hole | NotPopulated::NoMemory => MadviseError::NoMemory,
            })
    }
}

impl<M: Mmu> Thread<'_, M> {
    /// Follows advice about `len` bytes (rounded up to pages) from `start` on; see [`Mm::madvise`].
    ///
    /// # Context
    /// As [`Mm::madvise`].
    ///
    /// # Errors
    /// As [`Mm::madvise`].
    pub fn madvise(&self, start: VirtAddr, len: u64, advice: Advice) -> Result<(), MadviseError> {
        self.mm().follow(&self.share, start, len, advice)
    }
}

/// Calls `each` with the part of `range` that lies in each mapping, in order, until one
/// refuses; it may change that mapping.
fn advise_each<M: Mmu>(
    held: Held<'_, M>,
    range: VirtRange,
    mut each: impl FnMut(VirtRange) -> Result<(), MadviseError>,
) -> Result<(), MadviseError> {
    let mut at = range.start();
    let mut result = Ok(());
    while at < range.end() {
        let found = held.find(at).map(|vma| vma.view().range);
        let found = found.ok_or(MadviseError::NoMemory)?;
        if found.start() > at {
            result = Err(MadviseError::NoMemory);
        }
        let from = found.start().max(at);
        if from >= range.end() {
            break;
        }
        let part = VirtRange::new(from, found.end().min(range.end()));
        each(part)?;
        at = part.end();
    }
    result
}
