//! Of files.

use super::{RW, START, at, maps, space};
use crate::abi::{
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, MADV_DONTNEED, MADV_FREE, MADV_REMOVE,
    MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, MAP_SHARED, MREMAP_MAYMOVE, MS_INVALIDATE, MS_SYNC,
    PROT_READ,
};
use crate::{Errno, HALF, Opened, PAGE, Signal, Space};

const FILE: Opened = Opened {
    file: 0,
    writable: true,
};
const READ_ONLY: Opened = Opened {
    writable: false,
    ..FILE
};
const PUNCH: u64 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

/// An address space with a file of four pages; page `i` holds `10 * i + 1` and `10 * i + 2`.
fn with_file() -> Space {
    let mut space = space();
    let pages = (0..4).map(|page| (page, [10 * page + 1, 10 * page + 2]));
    space.add_file(4 * PAGE, pages);
    space
}

/// Maps pages of the file from its first on.
fn map(space: &mut Space, page: u64, pages: u64, share: u64) {
    let mapped = space.mmap_file(at(page), pages * PAGE, RW, share | MAP_FIXED, (FILE, 0));
    assert_eq!(mapped, Ok(at(page)));
}

#[test]
fn a_private_copy_is_taken_at_the_first_store() {
    let mut space = with_file();
    map(&mut space, 0, 4, MAP_PRIVATE);
    map(&mut space, 8, 4, MAP_SHARED);
    space.store(at(0), 100).unwrap();
    space.store(at(8), 200).unwrap();
    space.store(at(9), 300).unwrap();
    assert_eq!(space.load(at(0)), Ok(100));
    assert_eq!(space.load(at(0) + HALF), Ok(2));
    assert_eq!(space.load(at(1)), Ok(300));
    assert_eq!(space.pread(FILE, 0), Ok((8, 200)));
    space.madvise(at(0), PAGE, MADV_DONTNEED).unwrap();
    assert_eq!(space.load(at(0)), Ok(200));
}

/// ```text
/// page   0    1    2    3    4
/// file   |====|=|            .    cut within page 1
/// A      p    p    -    -         p: a private copy that stays
/// ```
#[test]
fn what_is_cut_off_goes_and_private_copies_with_it() {
    let mut space = with_file();
    map(&mut space, 0, 5, MAP_PRIVATE);
    map(&mut space, 8, 5, MAP_SHARED);
    for page in 0..4 {
        space.store(at(page), 100 + page).unwrap();
    }
    assert_eq!(space.load(at(4)), Err(Signal::Bus));
    space.ftruncate(FILE, PAGE + HALF).unwrap();
    assert_eq!(space.load(at(1)), Ok(101));
    assert_eq!(space.load(at(1) + HALF), Ok(12));
    assert_eq!(space.load(at(9) + HALF), Ok(0));
    assert_eq!(space.load(at(2)), Err(Signal::Bus));
    space.ftruncate(FILE, 4 * PAGE).unwrap();
    assert_eq!((space.load(at(2)), space.load(at(10))), (Ok(0), Ok(0)));
    assert_eq!(space.load(at(1) + HALF), Ok(12));
}

#[test]
fn a_word_that_the_end_lies_in_keeps_its_first_bytes() {
    let mut space = with_file();
    space.pwrite(FILE, 0, 0x0807_0605_0403_0201).unwrap();
    space.ftruncate(FILE, 3).unwrap();
    assert_eq!(space.pread(FILE, 0), Ok((3, 0x03_0201)));
    assert_eq!(space.pread(FILE, PAGE), Ok((0, 0)));
}

#[test]
fn a_hole_is_in_the_file_and_not_in_private_copies() {
    let mut space = with_file();
    map(&mut space, 0, 4, MAP_PRIVATE);
    map(&mut space, 8, 4, MAP_SHARED);
    space.store(at(1), 100).unwrap();
    space.fallocate(FILE, PUNCH, PAGE, 2 * PAGE).unwrap();
    assert_eq!((space.load(at(1)), space.load(at(2))), (Ok(100), Ok(0)));
    space.madvise(at(8), PAGE, MADV_REMOVE).unwrap();
    assert_eq!(space.load(at(0)), Ok(0));
    let refused = [MADV_REMOVE, MADV_FREE].map(|advice| space.madvise(at(0), PAGE, advice));
    assert_eq!(refused, [Err(Errno::EACCES), Err(Errno::EINVAL)]);
}

#[test]
fn who_may_not_write_never_may() {
    let mut space = with_file();
    let flags = MAP_SHARED | MAP_FIXED;
    let refused = space.mmap_file(at(0), PAGE, RW, flags, (READ_ONLY, 0));
    assert_eq!(refused, Err(Errno::EACCES));
    let mapped = space.mmap_file(at(0), PAGE, PROT_READ, flags, (READ_ONLY, 0));
    assert_eq!(mapped, Ok(at(0)));
    assert_eq!(space.mprotect(at(0), PAGE, RW), Err(Errno::EACCES));
    assert_eq!(space.forced_write(at(0), 1), Err(Errno::EIO));
    let private = space.mmap_file(at(0), PAGE, RW, MAP_PRIVATE | MAP_FIXED, (READ_ONLY, 0));
    assert_eq!(private, Ok(START));
    assert_eq!(space.store(at(0), 5), Ok(()));
    assert_eq!(space.pwrite(READ_ONLY, 0, 5), Err(Errno::EBADF));
}

#[test]
fn a_child_writes_to_the_same_files() {
    let mut space = with_file();
    map(&mut space, 0, 4, MAP_PRIVATE);
    map(&mut space, 8, 4, MAP_SHARED);
    space.store(at(2), 100).unwrap();
    space.store(at(3), 100).unwrap();
    let mut child = space.fork();
    child.store(at(8), 200).unwrap();
    child.store(at(2), 300).unwrap();
    child.ftruncate(FILE, 3 * PAGE).unwrap();
    child.ftruncate(FILE, 4 * PAGE).unwrap();
    space.join(child);
    assert_eq!((space.load(at(8)), space.load(at(2))), (Ok(200), Ok(100)));
    assert_eq!(space.load(at(3)), Ok(0));
}

#[test]
fn shared_anonymous_memory_is_a_file_that_does_not_grow() {
    let mut space = space();
    let flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED;
    space.mmap(at(0), PAGE, RW, flags).unwrap();
    space.mmap(at(1), PAGE, RW, flags).unwrap();
    assert_eq!(maps(&space), [(0, 1), (1, 2)]);
    space.store(at(0), 7).unwrap();
    let grown = space
        .mremap(at(0), PAGE, 2 * PAGE, MREMAP_MAYMOVE, 0)
        .unwrap();
    assert_eq!(space.load(grown), Ok(7));
    assert_eq!(space.load(grown + PAGE), Err(Signal::Bus));
    let again = space.mremap(grown, 0, PAGE, MREMAP_MAYMOVE, 0).unwrap();
    space.store(again, 8).unwrap();
    assert_eq!(space.load(grown), Ok(8));
}

#[test]
fn what_a_file_lacks_is_not_locked() {
    let mut space = with_file();
    map(&mut space, 0, 6, MAP_PRIVATE);
    assert_eq!(space.mlock(at(0), 6 * PAGE, 0), Err(Errno::ENOMEM));
    assert_eq!(space.pages().count(), 4);
    assert_eq!(space.msync(at(0), PAGE, MS_INVALIDATE), Err(Errno::EBUSY));
    assert_eq!(space.msync(at(0), 7 * PAGE, MS_SYNC), Err(Errno::ENOMEM));
    assert_eq!(space.remote_write(at(3), 2 * PAGE, 9), Ok(PAGE));
    assert_eq!(space.remote_read(at(4), PAGE), Err(Errno::EFAULT));
}
