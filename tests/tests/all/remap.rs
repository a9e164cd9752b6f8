//! mremap, in every era: what is mapped, what is in it, what is promised, and every errno.

use minflt_addr::VirtAddr;
use minflt_mm::{Errno, Event, MmHandle, Place, Prot, Remap, RemapRequest, Signal, System, Thread};
use minflt_tests::world::{BASE, Machine, PAGE, in_each_era, page as at};

/// A leaf table's worth.
const TABLE: u64 = 512;

struct World<'w> {
    sys: &'w System<Machine>,
    mm: &'w MmHandle<'w, Machine>,
    thread: &'w Thread<'w, Machine>,
}

impl World<'_> {
    fn map(&self, first: u64, pages: u64) {
        let place = Place::FixedNoReplace(at(first));
        let mapped = self.mm.mmap(place, pages * PAGE, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(at(first)));
    }

    fn fill(&self, first: u64, pages: u64) {
        for page in first..first + pages {
            assert_eq!(self.thread.store(at(page), 1000 + page), Ok(()));
        }
    }

    /// The pages from `first` on hold what was stored to those from `was` on.
    fn holds(&self, first: u64, pages: u64, was: u64) {
        for page in 0..pages {
            let found = self.thread.load(at(first + page));
            assert_eq!(found, Ok(1000 + was + page), "page {page}");
        }
    }

    fn remap(&self, old: u64, len: u64, new_len: u64, how: Remap) -> Result<u64, Errno> {
        let request = RemapRequest {
            old: at(old),
            old_len: len * PAGE,
            new_len: new_len * PAGE,
            how,
        };
        let moved = self.thread.mremap(&request)?;
        Ok((moved.0.wrapping_sub(BASE)) / PAGE)
    }

    /// Mappings as pairs of a first page and a number of pages.
    fn mappings(&self) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        self.mm.for_each_mapping(|range, _| {
            all.push(((range.start().0 - BASE) / PAGE, range.len() / PAGE));
        });
        all
    }
}

fn in_every_era(test: impl Fn(&World<'_>)) {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        test(&World {
            sys,
            mm,
            thread: &mm.thread(),
        });
    });
}

#[test]
fn grows_in_place() {
    in_every_era(|w| {
        w.map(0, 4);
        w.fill(0, 4);
        assert_eq!(w.remap(0, 4, 6, Remap::InPlace), Ok(0));
        assert_eq!(w.mappings(), [(0, 6)]);
        w.holds(0, 4, 0);
        assert_eq!(w.thread.load(at(5)), Ok(0));
        // As far as the next mapping, which it becomes one with if that has no pages.
        w.map(8, 2);
        assert_eq!(w.remap(0, 6, 8, Remap::InPlace), Ok(0));
        assert_eq!(w.mappings(), [(0, 10)]);
        assert_eq!(w.sys.committed_pages(), 10);
        // A part that does not reach the end has no room.
        assert_eq!(w.remap(0, 4, 5, Remap::InPlace), Err(Errno::ENOMEM));
    });
}

#[test]
fn shrinks() {
    in_every_era(|w| {
        w.map(0, 8);
        w.fill(0, 8);
        assert_eq!(w.remap(2, 4, 1, Remap::InPlace), Ok(2));
        assert_eq!(w.mappings(), [(0, 3), (6, 2)]);
        w.holds(0, 3, 0);
        w.holds(6, 2, 6);
        assert_eq!(w.sys.committed_pages(), 5);
    });
}

#[test]
fn moves_entry_by_entry() {
    in_every_era(|w| {
        w.map(0, 8);
        w.fill(0, 8);
        let before = w.sys.count_of(Event::EntriesMoved);
        // Across the border of two tables, the middle of a mapping, and longer.
        let to = at(TABLE - 1);
        assert_eq!(w.remap(2, 4, 6, Remap::Fixed(to)), Ok(TABLE - 1));
        assert_eq!(w.mappings(), [(0, 2), (6, 2), (TABLE - 1, 6)]);
        w.holds(0, 2, 0);
        w.holds(TABLE - 1, 4, 2);
        w.holds(6, 2, 6);
        assert_eq!(w.thread.load(at(3)), Err(Signal::MapErr));
        assert_eq!(w.sys.count_of(Event::EntriesMoved) - before, 4);
        assert_eq!(w.sys.committed_pages(), 10);
        // Back, which makes it one again: its pages have their numbers still.
        assert_eq!(w.remap(TABLE - 1, 4, 4, Remap::Fixed(at(2))), Ok(2));
        assert_eq!(w.mappings(), [(0, 8), (TABLE + 3, 2)]);
        w.holds(0, 8, 0);
    });
}

#[test]
fn moves_whole_tables() {
    in_every_era(|w| {
        w.map(0, 2 * TABLE);
        w.fill(5, 4);
        w.fill(TABLE + 5, 4);
        let before = w.sys.count_of(Event::TablesMoved);
        let to = at(8 * TABLE);
        assert_eq!(
            w.remap(0, 2 * TABLE, 2 * TABLE, Remap::Fixed(to)),
            Ok(8 * TABLE)
        );
        assert_eq!(w.sys.count_of(Event::TablesMoved) - before, 2);
        assert_eq!(w.mappings(), [(8 * TABLE, 2 * TABLE)]);
        w.holds(8 * TABLE + 5, 4, 5);
        w.holds(9 * TABLE + 5, 4, TABLE + 5);
        assert_eq!(w.thread.load(at(5)), Err(Signal::MapErr));
        // Only where they fit.
        let to = at(1);
        let all = 2 * TABLE;
        assert_eq!(w.remap(8 * TABLE, all, all, Remap::Fixed(to)), Ok(1));
        assert_eq!(w.sys.count_of(Event::TablesMoved) - before, 2);
        w.holds(6, 4, 5);
        w.holds(TABLE + 6, 4, TABLE + 5);
    });
}

#[test]
fn moves_if_it_has_to() {
    in_every_era(|w| {
        w.map(0, 4);
        w.map(4, 1);
        assert_eq!(w.mappings(), [(0, 5)]);
        w.fill(0, 5);
        let to = w.remap(0, 4, 8, Remap::MayMove).expect("there is room");
        w.holds(to, 4, 0);
        assert_eq!(w.mappings(), [(4, 1), (to, 8)]);
        assert_eq!(w.sys.committed_pages(), 9);
    });
}

#[test]
fn leaves_the_old_place_empty() {
    in_every_era(|w| {
        w.map(0, 4);
        w.fill(0, 4);
        assert_eq!(w.remap(0, 4, 4, Remap::FixedDontUnmap(at(10))), Ok(10));
        assert_eq!(w.mappings(), [(0, 4), (10, 4)]);
        w.holds(10, 4, 0);
        assert_eq!(w.thread.load(at(0)), Ok(0));
        assert_eq!(w.thread.store(at(1), 5), Ok(()));
        assert_eq!(w.sys.committed_pages(), 8);
        // A part, anywhere.
        let to = w.remap(11, 2, 2, Remap::DontUnmap(at(0)));
        let to = to.expect("there is room");
        w.holds(to, 2, 1);
        assert_eq!(w.thread.load(at(11)), Ok(0));
        w.holds(13, 1, 3);
    });
}

#[test]
fn moves_several_at_once() {
    in_every_era(|w| {
        w.map(0, 2);
        w.map(4, 2);
        w.map(7, 3);
        w.map(21, 1);
        w.map(22, 1);
        w.fill(0, 2);
        w.fill(4, 2);
        w.fill(7, 3);
        assert_eq!(w.remap(1, 8, 8, Remap::Fixed(at(20))), Ok(20));
        // What stood in a hole of the target stays.
        assert_eq!(
            w.mappings(),
            [(0, 1), (9, 1), (20, 1), (21, 2), (23, 2), (26, 2)]
        );
        w.holds(20, 1, 1);
        w.holds(23, 2, 4);
        w.holds(26, 2, 7);
        // Unless it changes its length.
        assert_eq!(w.remap(20, 5, 6, Remap::Fixed(at(40))), Err(Errno::EFAULT));
        assert_eq!(w.remap(19, 5, 5, Remap::Fixed(at(40))), Err(Errno::EFAULT));
    });
}

#[test]
fn what_has_no_pages_becomes_one_with_its_neighbours() {
    in_every_era(|w| {
        w.map(0, 4);
        w.map(10, 4);
        assert_eq!(w.remap(10, 4, 4, Remap::Fixed(at(4))), Ok(4));
        assert_eq!(w.mappings(), [(0, 8)]);
        // Also with itself, before its old place goes.
        assert_eq!(w.remap(0, 2, 2, Remap::Fixed(at(8))), Ok(8));
        assert_eq!(w.mappings(), [(2, 8)]);
        w.fill(2, 8);
        assert_eq!(w.remap(2, 2, 2, Remap::Fixed(at(10))), Ok(10));
        assert_eq!(w.mappings(), [(4, 6), (10, 2)]);
        w.holds(10, 2, 2);
    });
}

#[test]
fn refuses() {
    in_every_era(|w| {
        w.map(0, 4);
        w.fill(0, 4);
        let to = |page| Remap::Fixed(at(page));
        assert_eq!(w.remap(0, 4, 0, Remap::MayMove), Err(Errno::EINVAL));
        assert_eq!(w.remap(0, 0, 4, Remap::MayMove), Err(Errno::EINVAL));
        assert_eq!(w.remap(0, 4, 4, to(2)), Err(Errno::EINVAL));
        assert_eq!(
            w.remap(0, 2, 3, Remap::FixedDontUnmap(at(9))),
            Err(Errno::EINVAL)
        );
        assert_eq!(w.remap(0, 5, 6, Remap::MayMove), Err(Errno::EFAULT));
        assert_eq!(w.remap(6, 1, 2, Remap::MayMove), Err(Errno::EFAULT));
        let odd = |old, how| {
            let request = RemapRequest {
                old,
                old_len: PAGE,
                new_len: PAGE,
                how,
            };
            w.thread.mremap(&request).map_err(Errno::from)
        };
        let half = VirtAddr(at(0).0 + 8);
        assert_eq!(odd(half, Remap::InPlace), Err(Errno::EINVAL));
        assert_eq!(odd(at(0), Remap::Fixed(half)), Err(Errno::EINVAL));
        assert_eq!(
            odd(at(0), Remap::Fixed(VirtAddr(1 << 47))),
            Err(Errno::EINVAL)
        );
        w.mm.set_limit_as(6 * PAGE);
        assert_eq!(w.remap(0, 4, 7, Remap::MayMove), Err(Errno::ENOMEM));
        assert_eq!(
            w.remap(0, 4, 4, Remap::DontUnmap(at(9))),
            Err(Errno::ENOMEM)
        );
        w.mm.set_limit_as(u64::MAX);
        w.sys.set_max_map_count(6);
        assert_eq!(w.remap(0, 4, 4, to(9)), Err(Errno::ENOMEM));
        assert_eq!(w.mappings(), [(0, 4)]);
        w.holds(0, 4, 0);
    });
}

#[test]
fn a_child_moves_what_it_shares() {
    in_every_era(|w| {
        w.map(0, 4);
        w.fill(0, 4);
        let child = w.mm.fork().expect("memory");
        let thread = child.thread();
        let request = RemapRequest {
            old: at(0),
            old_len: 4 * PAGE,
            new_len: 4 * PAGE,
            how: Remap::Fixed(at(3 * TABLE - 2)),
        };
        assert_eq!(thread.mremap(&request), Ok(at(3 * TABLE - 2)));
        assert_eq!(thread.store(at(3 * TABLE), 7), Ok(()));
        assert_eq!(thread.load(at(3 * TABLE - 1)), Ok(1001));
        w.holds(0, 4, 0);
    });
}
