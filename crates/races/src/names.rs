//! Names for what is on a stage, for timelines.

use super::entries::leaf_table;
use super::stage::Stage;
use minflt_mm::describe::{Field, Place};
use minflt_pgtable::{Paging, Pte};
use minflt_sim::{Entry, Names, Thing};
use minflt_sync::{Instance, Word};
use std::collections::BTreeMap;

/// Pages from the first on whose entries are called by their addresses.
const PAGES: u64 = 32;

/// The stage as it is before the scene.
pub(super) struct StageNames<'s, P: Paging> {
    stage: Stage<'s, P>,
    /// The first address that each table of leaf entries maps.
    bases: BTreeMap<u64, u64>,
}

impl<'s, P: Paging> StageNames<'s, P> {
    /// Only while nothing runs.
    pub(super) fn of(stage: Stage<'s, P>) -> Self {
        let tables = (0..PAGES).filter_map(|n| {
            let (pfn, index) = leaf_table(stage, n)?;
            let addr = stage.page(n).0;
            Some((pfn.0, addr - index as u64 * P::page()))
        });
        Self {
            stage,
            bases: tables.collect(),
        }
    }

    /// The entry number at a place in a table, and the table's level; a frame that is no table any
    /// more was one of leaf entries.
    fn in_table(place: &Place) -> Option<(u64, u32)> {
        let level = match place.object {
            "pte table" | "page" => 0,
            "pmd table" => 1,
            "pud table" => 2,
            "root table" => 3,
            _ => return None,
        };
        match place.field {
            Field::Entry(entry) => Some((entry, level)),
            Field::Byte(byte) => Some((byte / size_of::<P::Word>() as u64, level)),
            Field::Named(_) => None,
        }
    }
}

impl<P: Paging> Names for StageNames<'_, P> {
    fn thing(&self, offset: u64) -> Thing {
        let place = self.stage.sys.describe(offset);
        let part = match (Self::in_table(&place), place.field) {
            (Some((entry, _)), _) => format!("[{entry}]"),
            (None, Field::Named(name)) => name.to_owned(),
            (None, Field::Entry(entry)) => format!("[{entry}]"),
            (None, Field::Byte(0)) => String::new(),
            (None, Field::Byte(byte)) => format!("+{byte}"),
        };
        Thing {
            kind: place.object,
            number: place.number,
            part,
        }
    }

    fn pointer(&self, value: u64) -> Option<minflt_sim::Place> {
        self.stage.sys.machine().find(value)
    }

    fn entry(&self, offset: u64, value: u64) -> Option<Entry> {
        let place = self.stage.sys.describe(offset);
        let (entry, level) = Self::in_table(&place)?;
        let pte = Pte::<P>::from_word(P::Word::narrow(value));
        let (text, frame) = match level {
            0 => (format!("{pte:?}"), pte.is_present()),
            level if pte.is_table_at(level) => (format!("frame {}", pte.pfn()), false),
            level if pte.is_none_at(level) => ("none".to_owned(), false),
            _ => (format!("{pte:?}"), pte.is_present()),
        };
        let base = self.bases.get(&place.number).filter(|_| level == 0);
        Some(Entry {
            text,
            frame: (frame && !pte.is_zero_page()).then_some(pte.pfn().0),
            addr: base.map(|base| base + entry * P::page()),
        })
    }

    fn frame(&self, number: u64) -> Option<u64> {
        let bytes = self.stage.sys.machine().ram().bytes as u64;
        let offset = number.checked_mul(P::page())?;
        (offset < bytes).then_some(offset)
    }
}
