//! What the model says of a few cases that are known by heart.

mod files;
mod huge;
mod userfault;

use crate::abi::{
    MADV_DONTNEED, MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_FIXED, MAP_GROWSDOWN, MAP_PRIVATE,
    MREMAP_FIXED, MREMAP_MAYMOVE, PROT_READ, PROT_WRITE,
};
use crate::{Errno, PAGE, Signal, Space};
use minflt_addr::{VirtAddr, VirtRange};

const START: u64 = 1 << 30;
const RW: u64 = PROT_READ | PROT_WRITE;
const ANON: u64 = MAP_PRIVATE | MAP_ANONYMOUS;

const fn at(page: u64) -> u64 {
    START + page * PAGE
}

fn space() -> Space {
    let window = VirtRange::new(VirtAddr(START), VirtAddr(at(64)));
    Space::new(window, at(32))
}

/// Maps pages at a place; the mappings of the space as pages.
fn map(space: &mut Space, page: u64, pages: u64, prot: u64) {
    let mapped = space.mmap(at(page), pages * PAGE, prot, ANON | MAP_FIXED);
    assert_eq!(mapped, Ok(at(page)));
}

fn maps(space: &Space) -> Vec<(u64, u64)> {
    let page = |addr: u64| (addr - START) / PAGE;
    let vmas = space.vmas().iter();
    vmas.map(|vma| (page(vma.start), page(vma.end))).collect()
}

/// ```text
/// AAAA....    two that are alike and meet are one
/// AAAABBBB
/// ```
#[test]
fn neighbours_merge_until_each_has_pages_of_its_own() {
    let mut both = space();
    map(&mut both, 0, 4, RW);
    map(&mut both, 4, 4, RW);
    assert_eq!(maps(&both), [(0, 8)]);

    let mut own = space();
    map(&mut own, 0, 4, RW);
    map(&mut own, 5, 3, RW);
    own.store(at(0), 1).unwrap();
    own.store(at(5), 1).unwrap();
    map(&mut own, 4, 1, RW);
    assert_eq!(maps(&own), [(0, 5), (5, 8)]);
}

#[test]
fn moved_pages_keep_apart_from_what_is_not_in_line() {
    let mut space = space();
    map(&mut space, 0, 2, RW);
    map(&mut space, 8, 2, RW);
    space.store(at(0), 7).unwrap();
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    let moved = space.mremap(at(0), 2 * PAGE, 2 * PAGE, flags, at(10));
    assert_eq!(moved, Ok(at(10)));
    assert_eq!(maps(&space), [(8, 10), (10, 12)]);
    assert_eq!(space.load(at(10)), Ok(7));
    assert_eq!(space.load(at(0)), Err(Signal::MapErr));
}

#[test]
fn a_hole_is_found_from_the_top_but_not_below_a_stack() {
    let mut space = space();
    let stack = space.mmap(0, 2 * PAGE, RW, ANON | MAP_GROWSDOWN);
    assert_eq!(stack, Ok(at(62)));
    assert_eq!(space.mmap(0, PAGE, RW, ANON), Err(Errno::ENOMEM));
    assert_eq!(space.store(at(50), 1), Ok(()));
    assert_eq!(maps(&space), [(50, 64)]);
}

#[test]
fn a_child_gets_pages_of_zeros_where_it_was_told_so() {
    let mut space = space();
    map(&mut space, 0, 2, RW);
    space.store(at(0), 7).unwrap();
    space.madvise(at(1), PAGE, MADV_WIPEONFORK).unwrap();
    space.store(at(1), 8).unwrap();
    let mut child = space.fork();
    assert_eq!((child.load(at(0)), child.load(at(1))), (Ok(7), Ok(0)));
    child.store(at(0), 9).unwrap();
    assert_eq!(space.load(at(0)), Ok(7));
}

#[test]
fn a_locked_page_is_not_thrown_away() {
    let mut space = space();
    map(&mut space, 0, 2, RW);
    space.mlock(at(1), PAGE, 0).unwrap();
    assert_eq!(space.mincore(at(0), 2 * PAGE), Ok(vec![false, true]));
    let thrown = space.madvise(at(0), 2 * PAGE, MADV_DONTNEED);
    assert_eq!(thrown, Err(Errno::EINVAL));
    space.limit_memlock(PAGE);
    assert_eq!(space.mlock(at(0), PAGE, 0), Err(Errno::ENOMEM));
    space.munlock(at(1), PAGE).unwrap();
    assert_eq!(space.mlock(at(0), PAGE, 0), Ok(()));
}

#[test]
fn the_break_keeps_a_page_from_what_is_above_it() {
    let mut space = space();
    map(&mut space, 36, 1, RW);
    assert_eq!(space.brk(at(35)), at(35));
    assert_eq!(space.brk(at(36)), at(35));
    assert_eq!(space.brk(at(32) + 1), at(32) + 1);
    assert_eq!(maps(&space), [(32, 33), (36, 37)]);
}
