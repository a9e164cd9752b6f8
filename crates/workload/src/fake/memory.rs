//! An address space of the fake target.

use super::PAGE;
use crate::target::Prot;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// What a mapping shows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Backing {
    Anonymous,
    /// The file of a worker.
    Own(u32),
    /// The file of all.
    Common,
    /// The file of huge pages.
    Huge,
    /// What all workers find.
    Inherited,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) len: u64,
    pub(super) prot: Prot,
    pub(super) backing: Backing,
    /// Whether stores reach the file.
    pub(super) shared: bool,
    /// Bytes of a page.
    pub(super) page: u64,
}

/// An address space.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) next: u64,
    pub(super) brk: u64,
    pub(super) mapped: BTreeMap<u64, Mapping>,
    pub(super) present: BTreeSet<u64>,
    pub(super) words: BTreeMap<u64, u64>,
}

impl Memory {
    pub(super) const HEAP: u64 = 1 << 20;
    pub(super) const INHERITED: u64 = 1 << 29;

    pub(super) fn new(inherited: Option<Mapping>) -> Mutex<Self> {
        Mutex::new(Self {
            next: 1 << 30,
            brk: Self::HEAP,
            mapped: inherited
                .map(|mapping| (Self::INHERITED, mapping))
                .into_iter()
                .collect(),
            present: BTreeSet::new(),
            words: BTreeMap::new(),
        })
    }

    /// Where the mapping around `page` begins, and the mapping.
    pub(super) fn mapping(&self, page: u64) -> Option<(u64, Mapping)> {
        if (Self::HEAP..self.brk).contains(&page) {
            let heap = Mapping {
                len: self.brk - Self::HEAP,
                prot: Prot::ReadWrite,
                backing: Backing::Anonymous,
                shared: false,
                page: PAGE,
            };
            return Some((Self::HEAP, heap));
        }
        let (start, mapping) = self.mapped.range(..=page).next_back()?;
        (page < start + mapping.len).then_some((*start, *mapping))
    }

    pub(super) fn drop_pages(&mut self, at: u64, len: u64) {
        self.present.retain(|page| !(at..at + len).contains(page));
        self.words.retain(|word, _| !(at..at + len).contains(word));
    }
}
