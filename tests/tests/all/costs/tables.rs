//! Page tables that unmapping looks at.

use super::count::{Did, PAGE, of, page, with};
use minflt_mm::Config;
use minflt_mm::config::Linking;

const ERAS: [&str; 4] = ["linux-2.6.10", "linux-4.13", "spf-2017", "linux-6.15"];
/// Entries of a table.
const ENTRIES: u64 = 512;

/// Loads of entries of tables above those of pages.
fn above(did: &Did) -> u64 {
    let tables = ["pgd table", "pud table", "pmd table"];
    tables.map(|table| did.all(table).loads).iter().sum()
}

/// `mm/entry/zap.rs`: the end of an address space reads the entries of its mappings, not all of
/// each table.
#[test]
fn an_end_looks_at_entries_of_mappings_only() {
    for name in ERAS {
        let did = with(of(name), |w| {
            // Three tables of pages, below two of the next level.
            for n in [0, 4 * ENTRIES, 2 * ENTRIES * ENTRIES] {
                w.map_and_touch(n, 2);
            }
            let child = w.mm.fork().expect("memory");
            w.did(|| drop(child))
        });
        // What is freed at once is a page by the time it is named. For each mapping four entries of
        // a walk, two of pages, and an entry of each of three levels to free.
        let named = did.all("page").loads + did.all("pte table").loads;
        let entries = named + above(&did);
        assert!((3 * 9..=3 * 12).contains(&entries), "{name}: {did:?}");
    }
}

/// `mm/entry/walk.rs`, `mm/entry/zap.rs`: a range without tables is an entry for each span of a
/// table, to zap and to free; and of a table that others use, too, each entry once.
#[test]
fn a_range_that_nobody_touched_is_an_entry_a_table() {
    for name in ERAS {
        const SPANS: u64 = 64;
        let look = |spans: u64| {
            with(of(name), |w| {
                w.map_and_touch(0, 2);
                w.map(2, spans * ENTRIES - 2);
                w.did(|| {
                    let len = (spans * ENTRIES - 2) * PAGE;
                    w.mm.munmap(page(2), len).expect("mapped");
                })
            })
        };
        let (one, all) = (look(1), look(1 + SPANS));
        let more = above(&all) - above(&one);
        assert!((SPANS..=3 * SPANS).contains(&more), "{name}: {all:?}");
        let pages = all.to("pte table", "entry").loads;
        assert!(pages >= ENTRIES - 2, "{name}: {all:?}");
        assert!(pages < ENTRIES + 16, "{name}: {all:?}");
    }
}

/// `mm/entry/table.rs`: where speculative faults put tables in, munmap locks each table above
/// leaves once, and nothing else is locked more often.
#[test]
fn munmap_locks_each_table_above_leaves_once_where_faults_put_some_in_without_locks() {
    let locks = |linking| {
        let config = Config {
            linking,
            ..of("spf-2017")
        };
        with(config, |w| {
            w.map_and_touch(0, 2);
            let did = w.did(|| w.mm.munmap(page(0), 2 * PAGE).expect("mapped"));
            (did.lock("page-table lock of a table"), did.exchanges())
        })
    };
    let (parent, each) = (locks(Linking::ParentLock), locks(Linking::EveryParent));
    assert_eq!((each.0 - parent.0, each.1 - parent.1), (3, 3));
}
