//! ABA detection: entries that mapped another page since a task sampled them.
//!
//! # Problem
//! A fault samples an entry, decides by the sample and by other words (what the frame says), and
//! exchanges the entry from the sample. Equal bits do not say that nothing happened: the page may
//! have been moved away and back, and the other words may have been read in between.
//!
//! # Idea
//! Give entries a version here, where it costs the model nothing: how often an entry came to name
//! another page. A task's sample notes it; an exchange that says that it was decided by more than
//! the value is compared with the note.
//!
//! # Why it is correct
//! Bits that change while the page stays (accessed, dirty, what is granted) are no new version: a
//! decision by what the page *is* stands as long as the page does. An entry that a task never
//! sampled has nothing to be compared with.
//!
//! # Cost
//! Two searches of maps, outside of simulated time, and only in checked runs.

use std::collections::BTreeMap;

/// The versions of entries, and what tasks have seen of them.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// By where the entry lies.
    versions: BTreeMap<usize, u64>,
    /// By task and where the entry lies.
    samples: BTreeMap<(u32, usize), u64>,
}

impl Entries {
    fn version(&self, entry: usize) -> u64 {
        self.versions.get(&entry).copied().unwrap_or(0)
    }

    pub(super) fn sampled(&mut self, task: u32, entry: usize) {
        let version = self.version(entry);
        self.samples.insert((task, entry), version);
    }

    pub(super) fn renamed(&mut self, entry: usize) {
        *self.versions.entry(entry).or_default() += 1;
    }

    /// Whether the entry has named another page since `task` sampled it.
    pub(super) fn is_stale(&self, task: u32, entry: usize) -> bool {
        let sample = self.samples.get(&(task, entry));
        sample.is_some_and(|sample| *sample != self.version(entry))
    }
}
