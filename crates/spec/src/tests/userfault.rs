//! What a userfaultfd decides.

use super::{ANON, RW, at, map, maps, space};
use crate::abi::{MADV_DONTNEED, MAP_FIXED, MREMAP_FIXED, MREMAP_MAYMOVE};
use crate::{Errno, Flags, PAGE, Signal};

const MISSING: u64 = 1;
const BOTH: u64 = 3;
const COPY_WP: u64 = 2;

#[test]
fn holes_are_filled_by_nobody_but_the_handler() {
    let mut space = space();
    map(&mut space, 0, 4, RW);
    assert_eq!(space.store(at(0), 7), Ok(()));
    assert_eq!(space.uffd_register(at(0), 2 * PAGE, MISSING), Ok(()));
    assert_eq!(maps(&space), [(0, 2), (2, 4)]);
    // What was there stays.
    assert_eq!(space.load(at(0)), Ok(7));
    assert_eq!(space.load(at(1)), Err(Signal::Bus));
    assert_eq!(space.store(at(1), 1), Err(Signal::Bus));
    assert_eq!(space.load(at(2)), Ok(0));
    assert_eq!(space.uffd_copy(at(0), PAGE, 9, 0), Err(Errno::EEXIST));
    assert_eq!(space.uffd_copy(at(1), PAGE, 9, COPY_WP), Err(Errno::EINVAL));
    assert_eq!(space.uffd_copy(at(1), 2 * PAGE, 9, 0), Err(Errno::ENOENT));
    assert_eq!(space.uffd_copy(at(1), PAGE, 9, 0), Ok(()));
    assert_eq!(space.load(at(1)), Ok(9));
    assert_eq!(space.madvise(at(0), PAGE, MADV_DONTNEED), Ok(()));
    assert_eq!(space.uffd_zeropage(at(0), 2 * PAGE, 0), Err(Errno::EAGAIN));
    assert_eq!(space.load(at(0)), Ok(0));
    assert_eq!(space.uffd_unregister(at(0), 2 * PAGE), Ok(()));
    assert_eq!(maps(&space), [(0, 4)]);
}

#[test]
fn stores_to_protected_pages_are_the_handlers() {
    let mut space = space();
    map(&mut space, 0, 2, RW);
    assert_eq!(space.uffd_register(at(0), 2 * PAGE, BOTH), Ok(()));
    assert_eq!(space.uffd_copy(at(0), PAGE, 5, COPY_WP), Ok(()));
    assert_eq!(space.load(at(0)), Ok(5));
    assert_eq!(space.store(at(0), 6), Err(Signal::Bus));
    assert_eq!(space.forced_write(at(0), 6), Err(Errno::EIO));
    assert_eq!(space.uffd_writeprotect(at(0), PAGE, 0), Ok(()));
    assert_eq!(space.store(at(0), 6), Ok(()));
    // A hole is not protected; it is missing.
    assert_eq!(space.uffd_writeprotect(at(0), 2 * PAGE, 1), Ok(()));
    assert_eq!(space.uffd_zeropage(at(1), PAGE, 0), Ok(()));
    assert_eq!(space.store(at(1), 1), Ok(()));
    assert_eq!(space.store(at(0), 7), Err(Signal::Bus));
    assert_eq!(space.uffd_writeprotect(at(0), PAGE, 3), Err(Errno::EINVAL));
}

#[test]
fn nobody_watches_a_child_or_what_was_moved() {
    let mut space = space();
    map(&mut space, 0, 1, RW);
    assert_eq!(space.uffd_register(at(0), PAGE, BOTH), Ok(()));
    assert_eq!(space.uffd_copy(at(0), PAGE, 5, COPY_WP), Ok(()));
    let mut child = space.fork();
    assert_eq!(child.store(at(0), 1), Ok(()));
    let moves = MREMAP_MAYMOVE | MREMAP_FIXED;
    assert_eq!(space.mremap(at(0), PAGE, PAGE, moves, at(8)), Ok(at(8)));
    assert_eq!(space.store(at(8), 1), Ok(()));
    let flags = space.at(at(8)).map(|vma| vma.flags);
    assert_eq!(flags.map(|flags| flags.has(Flags::UFFD)), Some(false));
}

#[test]
fn what_cannot_be_watched_is_said() {
    let mut space = space();
    assert_eq!(space.uffd_register(at(0), PAGE, BOTH), Err(Errno::EINVAL));
    map(&mut space, 0, 1, RW);
    let file = space.add_file(PAGE, []);
    let opened = crate::Opened {
        file,
        writable: true,
    };
    let mapped = space.mmap_file(at(1), PAGE, RW, (ANON & 0xf) | MAP_FIXED, (opened, 0));
    assert_eq!(mapped, Ok(at(1)));
    let both = space.uffd_register(at(0), 2 * PAGE, BOTH);
    assert_eq!(both, Err(Errno::EINVAL));
    assert_eq!(space.uffd_register(at(0), PAGE, 0), Err(Errno::EINVAL));
    assert_eq!(space.uffd_register(at(0), PAGE, 4), Err(Errno::EINVAL));
    assert_eq!(space.uffd_writeprotect(at(0), PAGE, 1), Err(Errno::ENOENT));
    assert_eq!(space.uffd_zeropage(at(9), PAGE, 0), Err(Errno::ENOENT));
}
