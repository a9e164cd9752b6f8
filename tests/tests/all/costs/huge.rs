//! Huge pages.

use super::count::{Did, Each, M, World, of, with};
use minflt_addr::VirtAddr;
use minflt_mm::{FileHandle, Force, MapRequest, Place, Prot, Reserve, Sharing, Which};

const HUGE: u64 = 2 << 20;
/// Where a table of huge pages begins.
const BASE: u64 = 1 << 40;

fn at(n: u64) -> VirtAddr {
    VirtAddr(BASE + n * HUGE)
}

/// A file of huge pages, mapped whole.
fn mapped(w: &World<'_>, test: impl FnOnce(&FileHandle<'_, M>) -> Did) -> Did {
    assert_eq!(w.sys.resize_huge_pool(40), 40);
    let file = w.sys.new_huge_file(PAGES * HUGE).expect("whole pages");
    let request = MapRequest::new(Place::Fixed(at(0)), PAGES * HUGE, Prot::READ_WRITE);
    let thread = w.mm.thread();
    assert_eq!(
        thread.mmap_file(&request, &file, 0, Sharing::Shared),
        Ok(at(0))
    );
    drop(thread);
    let did = test(&file);
    assert_eq!(w.mm.munmap(at(0), PAGES * HUGE), Ok(()));
    drop(file);
    assert_eq!(w.sys.resize_huge_pool(0), 0);
    did
}

fn touch(w: &World<'_>, n: u64) {
    assert_eq!(w.mm.thread().store(at(n), n), Ok(()));
}

/// Pages of the file. The ones from `WARM` on are touched before anything is counted, so that the
/// slabs have what they keep.
const PAGES: u64 = 20;
const WARM: u64 = 9;

/// `mm/pages/hugetlb/file.rs`: a word of a page that may be being moved is read under the page's
/// mutex, for which one sleeps, and not by looking until the page can be held.
#[test]
fn a_word_of_a_huge_file_is_read_under_the_pages_mutex() {
    let did = with(of("linux-6.15"), |w| {
        mapped(w, |file| {
            touch(w, 1);
            w.did(|| assert_eq!(file.read_word(HUGE), Ok(Some(1))))
        })
    });
    assert_eq!(did.lock("hugetlb fault mutex"), 2, "{did:?}");
}

/// `mm/fault/remote_huge.rs`: the lock of the file's mappings once for each small page.
#[test]
fn a_remote_read_of_a_huge_page_locks_its_files_mappings_once_a_small_page() {
    let did = with(of("linux-6.15"), |w| {
        mapped(w, |_| {
            touch(w, 1);
            let mut to = [0; 3 << 12];
            w.did(|| assert_eq!(w.mm.remote_read(at(1), &mut to, Force::No), Ok(3 << 12)))
        })
    });
    // In and out.
    let locks = ["i_mmap lock", "mmap_lock"].map(|name| did.lock(name));
    assert_eq!(locks, [6, 6], "{did:?}");
}

const ERAS: [&str; 3] = ["linux-5.19", "hugetlb-vma-lock-2022", "linux-6.15"];

/// `mm/pages/hugetlb/mod.rs`, `mm/memory/alloc/pool.rs`, `mm/pages/reserved/reserve.rs`: the locks
/// of a fault that takes a page from the pool.
#[test]
fn a_huge_fault_takes_five_locks_and_its_files_reservations_twice() {
    for name in ERAS {
        let each = Each::of(of(name), |w, pages| {
            mapped(w, |_| {
                (WARM..PAGES).for_each(|n| touch(w, n));
                w.did(|| (0..pages).for_each(|n| touch(w, n)))
            })
        });
        let of_mappings = match name {
            "linux-5.19" => "i_mmap lock, held by faults",
            _ => "hugetlb VMA lock",
        };
        // Sleeping locks are exchanged twice, spinning ones once.
        for (lock, exchanges) in [
            ("hugetlb fault mutex", 2),
            (of_mappings, 2),
            ("page-table lock of a table", 1),
            ("hugetlb lock", 1),
            ("slab lock", 0),
            ("i_mmap lock", 0),
        ] {
            let added = each.adds(|did| did.lock(lock));
            assert_eq!(added, exchanges, "{name}, {lock}: {each:?}");
        }
        let reserved = each.adds(|did| did.to("file", "reserved").exchanges);
        assert_eq!(reserved, 2, "{name}: {each:?}");
        // Of the page's 512 frames the first one's descriptor only; its lock, state and counts.
        let frames = each.adds(|did| did.all("frame").stores);
        assert!(frames < 16, "{name}: {each:?}");
        let nodes = each.adds(|did| did.to("node", "free huge pages").stores);
        assert!(nodes <= 2, "{name}: {each:?}");
    }
}

/// `mm/pages/hugetlb/file.rs`: what a hole costs for each page in it.
#[test]
fn a_hole_is_five_locks_a_page() {
    for name in ERAS {
        let each = Each::of(of(name), |w, pages| {
            mapped(w, |file| {
                (0..PAGES).for_each(|n| touch(w, n));
                w.did(|| file.punch_hole(0, pages * HUGE).expect("whole pages"))
            })
        });
        for (lock, exchanges) in [
            ("hugetlb fault mutex", 2),
            ("folio lock", 2),
            ("hugetlb lock", 1),
            ("i_mmap lock", 0),
            ("hugetlb VMA lock", 0),
        ] {
            let added = each.adds(|did| did.lock(lock));
            assert_eq!(added, exchanges, "{name}, {lock}: {each:?}");
        }
        let reserved = each.adds(|did| did.to("file", "reserved").exchanges);
        assert_eq!(reserved, 1, "{name}: {each:?}");
    }
}

/// `mm/pages/hugetlb/migrate.rs`: two exchanges for each table.
#[test]
fn a_huge_page_moves_by_two_exchanges_of_its_entry() {
    for name in ERAS {
        let each = Each::of(of(name), |w, pages| {
            mapped(w, |_| {
                (0..PAGES).for_each(|n| touch(w, n));
                w.did(|| {
                    let all = (0..pages).map(|n| (at(n), 1));
                    let moved = |status| assert_eq!(status, Ok(1));
                    w.mm.move_pages(all, Which::Own, moved)
                })
            })
        });
        let entries = each.adds(|did| did.to("pmd table", "entry").exchanges);
        assert_eq!(entries, 2, "{name}: {each:?}");
        assert_eq!(
            each.adds(|did| did.lock("hugetlb lock")),
            2,
            "{name}: {each:?}"
        );
    }
}

/// `mm/pages/hugetlb/share.rs`: only the first touch of an interval walks the file's mappings.
#[test]
fn the_files_mappings_are_walked_for_a_table_only() {
    let interval = 512 * HUGE;
    for name in ["hugetlb-vma-lock-2022", "linux-6.15"] {
        with(of(name), |w| {
            assert_eq!(w.sys.resize_huge_pool(8), 8);
            let file = w.sys.new_huge_file(interval).expect("whole pages");
            let request = MapRequest {
                reserve: Reserve::NoReserve,
                ..MapRequest::new(Place::Fixed(at(0)), interval, Prot::READ_WRITE)
            };
            let thread = w.mm.thread();
            let mapped = thread.mmap_file(&request, &file, 0, Sharing::Shared);
            assert_eq!(mapped, Ok(at(0)));
            drop(thread);
            let first = w.did(|| touch(w, 0));
            assert_eq!(first.lock("i_mmap lock"), 2, "{name}: {first:?}");
            let second = w.did(|| touch(w, 1));
            assert_eq!(second.lock("i_mmap lock"), 0, "{name}: {second:?}");
            assert_eq!(w.mm.munmap(at(0), interval), Ok(()));
        });
    }
}
