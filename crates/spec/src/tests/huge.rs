//! Of huge pages.

use super::RW;
use crate::abi::{
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MADV_DONTNEED, MAP_FIXED, MAP_NORESERVE,
    MAP_PRIVATE, MAP_SHARED, PROT_READ,
};
use crate::{Errno, HUGE, Opened, PAGE, Signal, Space};
use minflt_addr::{VirtAddr, VirtRange};

const START: u64 = 1 << 40;
const POOL: u64 = 6;
const FILE: Opened = Opened {
    file: 0,
    writable: true,
};

const fn at(page: u64) -> u64 {
    START + page * HUGE
}

/// An address space with a pool, and a file of four huge pages that are not there.
fn space() -> Space {
    let window = VirtRange::new(VirtAddr(START), VirtAddr(at(64)));
    let mut space = Space::new(window, at(32));
    space.set_huge_pool(POOL);
    space.add_huge_file(4);
    space
}

fn private(space: &mut Space, page: u64, pages: u64) {
    let mapped = space.mmap_huge(at(page), pages * HUGE, RW, MAP_PRIVATE | MAP_FIXED);
    assert_eq!(mapped, Ok(at(page)));
}

fn file(space: &mut Space, page: u64, pages: u64, share: u64) {
    let mapped = space.mmap_huge_file(at(page), pages * HUGE, RW, share | MAP_FIXED, (FILE, 0));
    assert_eq!(mapped, Ok(at(page)));
}

fn counts(space: &Space) -> [u64; 2] {
    space.huge_pool().counts()
}

#[test]
fn a_page_of_a_file_is_reserved_once() {
    let mut space = space();
    file(&mut space, 0, 4, MAP_SHARED);
    file(&mut space, 8, 4, MAP_SHARED);
    assert_eq!(counts(&space), [POOL, 4]);
    space.store(at(1), 7).unwrap();
    assert_eq!(space.load(at(9)), Ok(7));
    assert_eq!(counts(&space), [POOL - 1, 3]);
    space.munmap(at(0), 4 * HUGE).unwrap();
    space.munmap(at(8), 4 * HUGE).unwrap();
    // A file keeps what was reserved for it.
    assert_eq!(counts(&space), [POOL - 1, 3]);
    space.huge_ftruncate(FILE, 0).unwrap();
    assert_eq!(counts(&space), [POOL, 0]);
}

#[test]
fn what_was_thrown_away_is_reserved_again() {
    let mut space = space();
    private(&mut space, 0, 4);
    space.store(at(1), 7).unwrap();
    assert_eq!(counts(&space), [POOL - 1, 3]);
    space.madvise(at(1), HUGE + PAGE, MADV_DONTNEED).unwrap();
    assert_eq!(counts(&space), [POOL, 4]);
    assert_eq!(space.load(at(1)), Ok(0));
    space.munmap(at(0), 2 * HUGE).unwrap();
    assert_eq!(counts(&space), [POOL, 2]);
}

#[test]
fn who_reserved_nothing_may_get_nothing() {
    let mut space = space();
    private(&mut space, 0, POOL - 1);
    let flags = MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED;
    let late = space.mmap_huge(at(10), 2 * HUGE, RW, flags);
    assert_eq!(late, Ok(at(10)));
    assert_eq!(space.store(at(10), 1), Ok(()));
    assert_eq!(space.store(at(11), 1), Err(Signal::Bus));
    let more = space.mmap_huge(at(20), HUGE, RW, MAP_PRIVATE | MAP_FIXED);
    assert_eq!(more, Err(Errno::ENOMEM));
    assert_eq!(space.store(at(0), 1), Ok(()));
}

#[test]
fn a_child_has_nothing_reserved() {
    let mut space = space();
    private(&mut space, 0, POOL);
    for page in 0..POOL {
        space.store(at(page), page).unwrap();
    }
    let mut child = space.fork();
    assert_eq!(child.load(at(1)), Ok(1));
    assert_eq!(child.store(at(1), 2), Err(Signal::Bus));
    child.munmap(at(0), HUGE).unwrap();
    // The parent has it still.
    assert_eq!(counts(&child), [0, 0]);
    space.join(child);
    assert_eq!(space.store(at(0), 9), Ok(()));
    assert_eq!(counts(&space), [0, 0]);
}

#[test]
fn what_a_child_cuts_off_is_gone_at_once() {
    let mut space = space();
    file(&mut space, 0, 2, MAP_PRIVATE);
    space.store(at(0), 1).unwrap();
    let mut child = space.fork();
    child.huge_ftruncate(FILE, 0).unwrap();
    assert_eq!(counts(&child), [POOL, 2]);
    space.join(child);
    assert_eq!(space.load(at(0)), Err(Signal::Bus));
}

#[test]
fn a_page_behind_the_end_is_there() {
    let mut space = space();
    file(&mut space, 0, 4, MAP_SHARED);
    space.huge_ftruncate(FILE, HUGE).unwrap();
    space.huge_fallocate(FILE, 0, 2 * HUGE, 1).unwrap();
    assert_eq!(space.load(at(2)), Ok(0));
    assert_eq!(space.load(at(3)), Err(Signal::Bus));
    let punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    space.huge_fallocate(FILE, punch, 2 * HUGE, HUGE).unwrap();
    assert_eq!(space.load(at(2)), Err(Signal::Bus));
    let much = space.huge_fallocate(FILE, 0, 0, 20 * HUGE);
    assert_eq!(much, Err(Errno::ENOSPC));
}

#[test]
fn huge_pages_are_not_cut() {
    let mut space = space();
    private(&mut space, 0, 2);
    assert_eq!(space.munmap(at(0), PAGE), Err(Errno::EINVAL));
    let protected = space.mprotect(at(1), PAGE, PROT_READ);
    assert_eq!(protected, Err(Errno::EINVAL));
    // Linux has cut it where the range begins.
    assert_eq!(space.vmas().len(), 2);
    let odd = space.mmap_huge(at(4) + PAGE, HUGE, RW, MAP_PRIVATE | MAP_FIXED);
    assert_eq!(odd, Err(Errno::EINVAL));
    // A hole has room to align what lies in it.
    let free = space.mmap_huge(0, PAGE, RW, MAP_PRIVATE);
    assert_eq!(free, Ok(at(63)));
}
