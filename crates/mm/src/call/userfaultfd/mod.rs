//! userfaultfd: faults on missing or write-protected pages are resolved by a handler.
//!
//! Supported: registering and unregistering ranges, for missing pages and for write-protection;
//! reading faults, one at a time; COPY, ZEROPAGE, WRITEPROTECT, WAKE ([`fill`]). A forked child
//! inherits nothing, and the only events are faults. The queue is in [`queue`], the fault's side in
//! [`crate::fault`].
//!
//! Registering changes VMAs: under `mmap_lock` for writing, inside their write sections. Filling
//! and protecting change PTEs only, under `mmap_lock` for reading.
//!
//! Linux: fs/userfaultfd.c, mm/userfaultfd.c (v6.18).

mod fill;

use super::page_range;
use crate::base::attrs::{VmaFlags, VmaView};
use crate::base::error::{NoMemory, UffdError};
use crate::change::modify::modify;
use crate::change::writers::Writers;
use crate::entry::zap::Zap;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::pages::userfault::{Message, UffdFaults};
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use core::cell::Cell;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Mmu, Paging};

/// What a range is watched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UffdMode {
    /// Touches of holes.
    Missing,
    /// Stores to pages that the handler protects.
    WriteProtect,
    /// Both.
    Both,
}

/// Whether an operation wakes the threads that wait in its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// They are.
    Yes,
    /// Not yet: [`Uffd::wake`] will.
    No,
}

/// A userfaultfd: the handler's end. Dropping it unregisters its ranges and wakes all waiters.
#[derive(Debug)]
pub struct Uffd<'m, M: Mmu> {
    mm: &'m Mm<M>,
    number: u16,
}

impl<M: Mmu> Mm<M> {
    /// A new userfaultfd, which watches nothing yet.
    ///
    /// # Errors
    /// No memory.
    pub fn userfaultfd(&self) -> Result<Uffd<'_, M>, UffdError> {
        self.userfaultfd_with(UffdFaults::Wait)
    }

    /// The same, with the way in which faults in its ranges are reported.
    ///
    /// # Errors
    /// No memory.
    pub fn userfaultfd_with(&self, faults: UffdFaults) -> Result<Uffd<'_, M>, UffdError> {
        as_call(self.system(), || {
            self.system().with_memory(|| {
                let number = self.new_context(faults)?;
                Ok(Uffd { mm: self, number })
            })
        })
    }
}

impl UffdMode {
    const fn flags(self) -> VmaFlags {
        match self {
            Self::Missing => VmaFlags::UFFD_MISSING,
            Self::WriteProtect => VmaFlags::UFFD_WP,
            Self::Both => WATCHED,
        }
    }
}

const WATCHED: VmaFlags = VmaFlags::UFFD_MISSING.with(VmaFlags::UFFD_WP);

impl<M: Mmu> Uffd<'_, M> {
    /// Registers the mappings in `len` bytes from `start` on, for `mode`. A mapping registered for
    /// that mode stays as it is; one registered for another mode changes its mode, and threads that
    /// wait there retry.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing.
    ///
    /// # Errors
    /// `Invalid`: no whole pages, nothing mapped there, or write-protection on tables that have no
    /// bit for it, or a file. `Busy`: part of it is registered with another userfaultfd; nothing
    /// has changed then. `NoMemory`: the mappings below the one that could not be split are
    /// registered.
    pub fn register(&self, start: VirtAddr, len: u64, mode: UffdMode) -> Result<(), UffdError> {
        let protects = mode.flags().has(VmaFlags::UFFD_WP);
        if protects && M::Paging::bits().uffd_wp == 0 {
            return Err(UffdError::Invalid);
        }
        as_call(self.mm.system(), || {
            self.mm.system().with_memory(|| {
                let range = whole_pages::<M>(start, len)?;
                let writers = Writers::lock(self.mm, self.mm.over(range));
                self.check(writers.held(), range, UffdError::Busy)?;
                let replaced = Cell::new(false);
                // Linux: userfaultfd_register_range.
                let watched = |view: VmaView| {
                    if view.uffd == self.number && !mode.flags().without(view.flags).has(WATCHED) {
                        return view;
                    }
                    replaced.set(replaced.get() || view.flags.has(WATCHED));
                    VmaView {
                        flags: view.flags.without(WATCHED).with(mode.flags()),
                        uffd: self.number,
                        ..view
                    }
                };
                let result = change_all(&writers, range, watched);
                drop(writers);
                if replaced.get() {
                    // Allowing stores wakes no thread where the mapping is not registered for
                    // write-protection.
                    self.mm.wake_userfaults(range);
                }
                result?;
                M::note(format_args!("userfaultfd watches {range}"));
                Ok(())
            })
        })
    }

    /// Unregisters the mappings in `len` bytes from `start` on, and wakes the threads that wait
    /// there.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for writing.
    ///
    /// # Errors
    /// `Invalid`: no whole pages, nothing mapped there, or part of it registered with another
    /// userfaultfd. `NoMemory` as [`Uffd::register`].
    pub fn unregister(&self, start: VirtAddr, len: u64) -> Result<(), UffdError> {
        as_call(self.mm.system(), || {
            self.mm.system().with_memory(|| {
                let range = whole_pages::<M>(start, len)?;
                let writers = Writers::lock(self.mm, self.mm.over(range));
                self.check(writers.held(), range, UffdError::Invalid)?;
                let result = change_all(&writers, range, unwatched);
                drop(writers);
                self.mm.wake_userfaults(range);
                Ok(result?)
            })
        })
    }

    /// Wakes the threads that wait in `len` bytes from `start` on; they retry.
    ///
    /// # Errors
    /// `Invalid`: no whole pages.
    pub fn wake(&self, start: VirtAddr, len: u64) -> Result<(), UffdError> {
        let range = whole_pages::<M>(start, len)?;
        self.mm.wake_userfaults(range);
        Ok(())
    }

    /// The next unread fault; sleeps until there is one, which never happens where faults raise
    /// signals ([`UffdFaults::Signal`]).
    ///
    /// # Errors
    /// No memory for a place to sleep in.
    pub fn read(&self) -> Result<Message, UffdError> {
        as_call(self.mm.system(), || {
            self.mm.system().with_memory(|| {
                loop {
                    match self.mm.next_userfault(self.number) {
                        Some(message) => return Ok(message),
                        None => self.mm.await_userfault(self.number)?,
                    }
                }
            })
        })
    }

    /// The next unread fault, if there is one.
    ///
    /// # Errors
    /// `Again`: there is none.
    pub fn try_read(&self) -> Result<Message, UffdError> {
        self.mm.next_userfault(self.number).ok_or(UffdError::Again)
    }

    /// Whether something is mapped in `range`, and nothing there is another's.
    fn check(
        &self,
        held: Held<'_, M>,
        range: VirtRange,
        others: UffdError,
    ) -> Result<(), UffdError> {
        let mut found = Err(UffdError::Invalid);
        for_parts(held, range, |_, view| {
            found = Ok(());
            if view.file.is_file() {
                return Err(UffdError::Invalid);
            }
            if view.uffd == self.number || !self.mm.is_watched_by(view.uffd) {
                Ok(())
            } else {
                Err(others)
            }
        })?;
        found
    }
}

impl<M: Mmu> Drop for Uffd<'_, M> {
    fn drop(&mut self) {
        let mm = self.mm;
        as_call(mm.system(), || {
            let writers = Writers::lock(mm, Over::All);
            let mut at = VirtAddr(0);
            while let Some(view) = writers.held().find(at).map(Vma::view) {
                if view.uffd == self.number {
                    // Where that fails the mapping goes on naming a number that nobody has, which
                    // watches nothing.
                    let _unwatched = change(&writers, view.range, unwatched);
                }
                at = view.range.end();
            }
            drop(writers);
            mm.end_context(self.number);
        });
    }
}

fn unwatched(view: VmaView) -> VmaView {
    VmaView {
        flags: view.flags.without(WATCHED),
        uffd: 0,
        ..view
    }
}

/// The pages of a range, which must be some and whole.
fn whole_pages<M: Mmu>(start: VirtAddr, len: u64) -> Result<VirtRange, UffdError> {
    let range = page_range::<M>(start, len).ok_or(UffdError::Invalid)?;
    let whole = range.len() == len && len > 0 && range.end().0 <= M::Paging::user_end();
    whole.then_some(range).ok_or(UffdError::Invalid)
}

/// Calls `visit` with each part of `range` that is one mapping's.
fn for_parts<M: Mmu, E>(
    held: Held<'_, M>,
    range: VirtRange,
    mut visit: impl FnMut(VirtRange, VmaView) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = range.start();
    while at < range.end()
        && let Some(view) = held.find(at).map(Vma::view)
    {
        let part = view.range.intersect(VirtRange::new(at, range.end()));
        if part.is_empty() {
            break;
        }
        visit(part, view)?;
        at = part.end();
    }
    Ok(())
}

fn change_all<M: Mmu>(
    writers: &Writers<'_, M>,
    range: VirtRange,
    to: impl Fn(VmaView) -> VmaView,
) -> Result<(), NoMemory> {
    for_parts(writers.held(), range, |part, _| change(writers, part, &to))
}

/// Changes the registration of `part`, and allows stores again where write-protection ended.
fn change<M: Mmu>(
    writers: &Writers<'_, M>,
    part: VirtRange,
    to: impl Fn(VmaView) -> VmaView,
) -> Result<(), NoMemory> {
    let mut protected = VmaFlags::NONE;
    let vma = writers.held().find(part.start()).ok_or(NoMemory)?;
    let changed = modify(writers, vma.into(), part, |view| {
        let new = to(view);
        // Marks are one handler's: another does not find what the one before it left behind.
        protected = if view.uffd == new.uffd {
            view.flags.without(new.flags)
        } else {
            view.flags
        };
        new
    })?;
    if protected.has(VmaFlags::UFFD_WP) {
        let mut zap = Zap::begin(writers.held().tables(), part);
        zap.unmark(part);
        zap.finish();
    }
    drop(changed);
    Ok(())
}
