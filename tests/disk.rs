//! A disk that is slow, fails where it is told to, and remembers what was written to it.
//!
//! It is made of words, as the memory of a simulated machine is, and serves any machine. What it
//! keeps is under a lock that is never held while another context could run.
#![expect(
    clippy::disallowed_types,
    reason = "the disk is no part of the machine, and nobody waits for this lock with it held"
)]

use minflt_addr::Pfn;
use minflt_mm::{FileOps, IoError};
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Kind, TaskId, lockdep, this_task};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A disk with one file on it.
#[derive(Debug, Default)]
pub struct Disk {
    /// Looks at the frame, each of them a moment for others to run, before a page is read or
    /// written.
    slow: u32,
    /// Whether it is a violation to ask for a write with any lock held.
    unlocked: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    /// Words that are not zero, by offset.
    words: BTreeMap<u64, u64>,
    fails_read: BTreeSet<u64>,
    fails_write: BTreeMap<u64, IoError>,
    /// Pages that a read waits at until it is let go on.
    held: BTreeSet<u64>,
    /// Who waits at such a page, and for one to come there.
    readers: Vec<TaskId>,
    watchers: Vec<TaskId>,
    written: Vec<Written>,
    /// Pages written since the last flush.
    at_risk: u64,
    fails_flush: Option<IoError>,
    read: Vec<u64>,
    released: bool,
}

/// A page that was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Which.
    pub index: u64,
    /// Its words that were not zero, by offset within the page.
    pub words: BTreeMap<u64, u64>,
}

impl Disk {
    /// A disk whose file has `bytes` bytes, `words` (offset, value) and zeros. Files keep their
    /// disks for ever, so it is not freed.
    #[must_use]
    pub fn new(bytes: u64, words: &[(u64, u64)]) -> &'static Self {
        Self::slow(0, bytes, words)
    }

    /// The same, which is written to with no lock held, or else reports a violation.
    #[must_use]
    pub fn unlocked(bytes: u64, words: &[(u64, u64)]) -> &'static Self {
        Self::leaked(0, true, bytes, words)
    }

    /// The same, with so many moments for others to run before each page.
    #[must_use]
    pub fn slow(slow: u32, bytes: u64, words: &[(u64, u64)]) -> &'static Self {
        Self::leaked(slow, false, bytes, words)
    }

    fn leaked(slow: u32, unlocked: bool, bytes: u64, words: &[(u64, u64)]) -> &'static Self {
        let state = State {
            bytes,
            words: words.iter().copied().collect(),
            ..State::default()
        };
        Box::leak(Box::new(Self {
            slow,
            unlocked,
            state: Mutex::new(state),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reading page `index` fails from now on.
    pub fn fail_read(&self, index: u64) {
        self.state().fails_read.insert(index);
    }

    /// Writing page `index` fails from now on.
    pub fn fail_write(&self, index: u64, error: IoError) {
        self.state().fails_write.insert(index, error);
    }

    /// Flushing fails from now on.
    pub fn fail_flush(&self, error: IoError) {
        self.state().fails_flush = Some(error);
    }

    /// Pages that were written, and not flushed since.
    #[must_use]
    pub fn at_risk(&self) -> u64 {
        self.state().at_risk
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        let mut state = self.state();
        state.fails_flush = None;
        state.fails_read.clear();
        state.fails_write.clear();
    }

    /// Whoever reads page `index` sleeps until [`Self::let_go`].
    pub fn hold(&self, index: u64) {
        self.state().held.insert(index);
    }

    /// Sleeps until somebody waits at a page that is held.
    pub fn await_reader<M: Mmu>(&self) {
        loop {
            let mut state = self.state();
            if !state.readers.is_empty() {
                return;
            }
            state.watchers.push(this_task::<M>());
            drop(state);
            M::park();
        }
    }

    /// Pages are held no longer.
    pub fn let_go<M: Mmu>(&self) {
        let mut state = self.state();
        state.held.clear();
        let readers = core::mem::take(&mut state.readers);
        drop(state);
        readers.into_iter().for_each(M::unpark);
    }

    /// The word at `offset` of the file.
    #[must_use]
    pub fn word(&self, offset: u64) -> u64 {
        self.state().words.get(&offset).copied().unwrap_or(0)
    }

    /// Bytes in the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state().bytes
    }

    /// What was written since this was asked last.
    #[must_use]
    pub fn written(&self) -> Vec<Written> {
        core::mem::take(&mut self.state().written)
    }

    /// Pages that were asked for since this was asked last, those that failed, too.
    #[must_use]
    pub fn read(&self) -> Vec<u64> {
        core::mem::take(&mut self.state().read)
    }

    /// Whether the system has let go of the file.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.state().released
    }

    /// Moments for others to run: on a simulated machine accesses to the frame, as a device makes
    /// them; on a real one the host's scheduler is asked.
    fn dawdle<M: Mmu>(&self, at: &M::Instance, pfn: Pfn, kind: Kind) {
        lockdep::might_sleep::<M>();
        for _ in 0..self.slow {
            M::before(M::frame_ptr(at, pfn), 8, kind);
            std::thread::yield_now();
        }
    }

    /// Sleeps as long as page `index` is held.
    fn wait_if_held<M: Mmu>(&self, index: u64) {
        loop {
            let mut state = self.state();
            if !state.held.contains(&index) {
                return;
            }
            state.readers.push(this_task::<M>());
            let watchers = core::mem::take(&mut state.watchers);
            drop(state);
            watchers.into_iter().for_each(M::unpark);
            M::park();
        }
    }
}

impl<M: Mmu> FileOps<M> for Disk {
    fn read_page(&self, at: &M::Instance, index: u64, pfn: Pfn) -> Result<(), IoError> {
        self.state().read.push(index);
        self.dawdle::<M>(at, pfn, Kind::PlainWrite);
        self.wait_if_held::<M>(index);
        if self.state().fails_read.contains(&index) {
            return Err(IoError::Failed);
        }
        M::clear(at, pfn);
        let start = index << M::Paging::shift();
        let state = self.state();
        for (offset, word) in state.words.range(start..start + M::Paging::page()) {
            M::user_store(at, pfn, offset - start, *word);
        }
        Ok(())
    }

    fn write_page(&self, at: &M::Instance, index: u64, pfn: Pfn) -> Result<(), IoError> {
        if self.unlocked {
            lockdep::holds_nothing::<M>();
        }
        self.dawdle::<M>(at, pfn, Kind::PlainRead);
        let mut state = self.state();
        if let Some(error) = state.fails_write.get(&index) {
            return Err(*error);
        }
        let start = index << M::Paging::shift();
        let end = state.bytes.min(start + M::Paging::page());
        let mut words = BTreeMap::new();
        for offset in (start..end).step_by(8) {
            state.words.remove(&offset);
            let word = M::user_load(at, pfn, offset - start);
            if word != 0 {
                state.words.insert(offset, word);
                words.insert(offset - start, word);
            }
        }
        state.written.push(Written { index, words });
        state.at_risk += 1;
        Ok(())
    }

    fn flush(&self) -> Result<(), IoError> {
        let mut state = self.state();
        if let Some(error) = state.fails_flush {
            return Err(error);
        }
        state.at_risk = 0;
        Ok(())
    }

    fn resize(&self, bytes: u64) -> Result<(), IoError> {
        let mut state = self.state();
        state.bytes = bytes;
        state.words.split_off(&bytes);
        Ok(())
    }

    fn release(&self) {
        self.state().released = true;
    }
}
