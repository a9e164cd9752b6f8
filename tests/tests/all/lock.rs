//! mlock and its kin: Linux's rules, limits and error numbers, in every era.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Errno, Lock, LockAll, LockWhen, MadviseError, MapRequest, MlockError, Mm, MmapError,
    Place, Prot, Signal, System, VmaFlags, eras_without_migration,
};
use minflt_tests::world::{Machine, PAGE, boot, in_each_era, map, page};

/// In each era: pages 0..8 are mapped, 8..12 are not, 12..16 are.
fn everywhere(body: impl Fn(&'static str, &System<Machine>, &Mm<Machine>)) {
    in_each_era(1, 8 << 20, |era, sys, mm| {
        map(mm, 0, 8, Prot::READ_WRITE);
        map(mm, 12, 4, Prot::READ_WRITE);
        body(era, sys, mm);
    });
}

fn lock(mm: &Mm<Machine>, from: u64, pages: u64) -> Result<(), MlockError> {
    mm.thread().mlock(page(from), pages * PAGE)
}

fn unlock(mm: &Mm<Machine>, from: u64, pages: u64) -> Result<(), MlockError> {
    mm.munlock(page(from), pages * PAGE)
}

fn locked(mm: &Mm<Machine>) -> u64 {
    mm.locked_bytes() / PAGE
}

/// Whether each page is in core, of a range that is mapped.
fn in_core(mm: &Mm<Machine>, at: VirtAddr, pages: usize) -> Vec<u8> {
    let mut found = vec![9; pages];
    let done = mm.mincore(at, pages as u64 * PAGE, &mut found);
    assert_eq!(done, Ok(()));
    found
}

#[test]
fn what_is_locked_is_there_and_counted_once() {
    everywhere(|era, sys, mm| {
        assert_eq!(lock(mm, 1, 2), Ok(()));
        assert_eq!(locked(mm), 2, "{era}");
        assert_eq!(in_core(mm, page(0), 4), [0, 1, 1, 0], "{era}");
        assert_eq!(mm.resident_pages_sum(), 2, "{era}: as by stores");
        assert_eq!(lock(mm, 0, 4), Ok(()));
        assert_eq!(locked(mm), 4, "{era}: each page once");
        // From a byte to a byte, both rounded.
        let middle = VirtAddr(page(5).0 + 1);
        assert_eq!(mm.thread().mlock(middle, PAGE), Ok(()));
        assert_eq!(locked(mm), 6, "{era}: two pages");
        assert_eq!(unlock(mm, 2, 4), Ok(()));
        assert_eq!(locked(mm), 3, "{era}: 0, 1 and 6");
        sys.check_ledger(&[mm])
            .unwrap_or_else(|e| panic!("{era}: {e}"));
        // Unmapping, splitting, replacing.
        mm.munmap(page(1), PAGE).expect("mapped");
        assert_eq!(locked(mm), 2, "{era}");
        let place = Place::Fixed(page(6));
        mm.mmap(place, PAGE, Prot::READ).expect("room");
        assert_eq!(locked(mm), 1, "{era}");
        mm.mprotect(page(0), PAGE, Prot::READ).expect("mapped");
        assert_eq!(locked(mm), 1, "{era}");
        // A mapping that may not be stored to is filled as by loads.
        mm.mprotect(page(14), PAGE, Prot::READ).expect("mapped");
        let resident = mm.resident_pages_sum();
        assert_eq!(lock(mm, 14, 1), Ok(()));
        assert_eq!(mm.resident_pages_sum(), resident, "{era}: the zero page");
        assert_eq!(in_core(mm, page(14), 1), [1]);
    });
}

#[test]
fn what_is_locked_stays_whatever_is_advised() {
    everywhere(|era, _, mm| {
        let thread = mm.thread();
        thread.store(page(2), 5).expect("mapped");
        assert_eq!(thread.mlock(page(2), PAGE), Ok(()));
        let refused = Err(MadviseError::Invalid);
        for advice in [
            Advice::DontNeed,
            Advice::Free,
            Advice::Cold,
            Advice::PageOut,
        ] {
            assert_eq!(mm.madvise(page(2), PAGE, advice), refused, "{era} {advice}");
            assert_eq!(mm.madvise(page(1), 2 * PAGE, advice), refused, "{advice}");
        }
        assert_eq!(mm.madvise(page(2), PAGE, Advice::WillNeed), Ok(()));
        assert_eq!(thread.load(page(2)), Ok(5), "{era}");
        let anyway = Advice::DontNeedLocked;
        assert_eq!(mm.madvise(page(2), PAGE, anyway), Ok(()));
        assert_eq!(thread.load(page(2)), Ok(0), "{era}");
        assert_eq!(thread.mm().munlock(page(2), PAGE), Ok(()));
        assert_eq!(mm.madvise(page(2), PAGE, Advice::DontNeed), Ok(()));
    });
}

#[test]
fn errors_are_linuxs() {
    everywhere(|era, _, mm| {
        let none = Err(MlockError::NoMemory);
        let thread = mm.thread();
        assert_eq!(lock(mm, 9, 1), none, "{era}: a hole");
        assert_eq!(unlock(mm, 9, 1), none);
        assert_eq!(lock(mm, 6, 4), none, "{era}: a hole behind");
        assert_eq!(locked(mm), 2, "{era}: what lies before it is locked");
        assert_eq!(in_core(mm, page(6), 2), [0, 0], "and not populated");
        assert_eq!(unlock(mm, 6, 7), none);
        assert_eq!(locked(mm), 0, "{era}");
        assert_eq!(lock(mm, 9, 0), Ok(()), "nothing");
        assert_eq!(thread.mlock(page(1), u64::MAX), Ok(()), "wraps to nothing");
        assert_eq!(thread.mm().munlock(page(1), u64::MAX), Ok(()));
        let wraps = 0_u64.wrapping_sub(PAGE);
        assert_eq!(thread.mlock(page(1), wraps), Err(MlockError::Invalid));
        assert_eq!(
            thread.mm().munlock(page(1), wraps),
            Err(MlockError::Invalid)
        );
        // What allows no access is locked, and cannot be filled.
        mm.mprotect(page(3), PAGE, Prot::NONE).expect("mapped");
        assert_eq!(lock(mm, 2, 3), none, "{era}");
        assert_eq!(locked(mm), 3, "{era}");
        assert_eq!(in_core(mm, page(2), 3), [1, 0, 0], "{era}: up to there");
        assert_eq!(thread.load(page(3)), Err(Signal::AccErr));
        for bits in [0, 4, 8, 9, 1 << 31] {
            let what = LockAll::from_bits(bits);
            assert_eq!(thread.mlockall(what), Err(MlockError::Invalid), "{bits}");
        }
    });
    let numbers = [
        (MlockError::Invalid, Errno::EINVAL),
        (MlockError::NoMemory, Errno::ENOMEM),
        (MlockError::Again, Errno::EAGAIN),
        (MlockError::NotPermitted, Errno::EPERM),
    ];
    for (error, errno) in numbers {
        assert_eq!(Errno::from(error), errno);
    }
    assert_eq!(Errno::from(MmapError::LockLimit), Errno::EAGAIN);
    assert_eq!(Errno::from(MmapError::NotPermitted), Errno::EPERM);
}

#[test]
fn the_limit_counts_each_page_once_and_is_asked_first() {
    everywhere(|era, _, mm| {
        let none = Err(MlockError::NoMemory);
        mm.set_limit_memlock(4 * PAGE + 100);
        assert_eq!(lock(mm, 0, 5), none, "{era}");
        assert_eq!(locked(mm), 0);
        assert_eq!(lock(mm, 0, 3), Ok(()));
        assert_eq!(lock(mm, 1, 3), Ok(()), "{era}: two of them are locked");
        assert_eq!(lock(mm, 4, 1), none);
        assert_eq!(lock(mm, 0, 4), Ok(()));
        let thread = mm.thread();
        // More than may be locked comes before what cannot be.
        let wraps = 0_u64.wrapping_sub(PAGE);
        assert_eq!(thread.mlock(page(1), wraps), none, "{era}");
        assert_eq!(lock(mm, 9, 1), none);
        let all = LockAll::CURRENT;
        assert_eq!(thread.mlockall(all), none, "{era}: 12 pages are mapped");
        assert_eq!(locked(mm), 4);
        mm.set_limit_memlock(0);
        let denied = Err(MlockError::NotPermitted);
        assert_eq!(lock(mm, 0, 1), denied, "{era}");
        assert_eq!(lock(mm, 9, 0), denied);
        assert_eq!(thread.mlockall(LockAll::FUTURE), denied);
        let what = LockAll::from_bits(0);
        assert_eq!(thread.mlockall(what), Err(MlockError::Invalid), "first");
        assert_eq!(unlock(mm, 0, 1), Ok(()), "{era}: always");
        let request = MapRequest {
            lock: Lock::Yes,
            ..MapRequest::new(Place::Any, PAGE, Prot::READ)
        };
        assert_eq!(thread.mmap(&request), Err(MmapError::NotPermitted));
        mm.set_limit_memlock(3 * PAGE);
        assert_eq!(thread.mmap(&request), Err(MmapError::LockLimit), "{era}");
        mm.set_limit_memlock(4 * PAGE);
        assert!(thread.mmap(&request).is_ok(), "{era}");
        assert_eq!(locked(mm), 4);
    });
}

#[test]
fn pages_locked_on_fault_wait_for_it() {
    everywhere(|era, _, mm| {
        let thread = mm.thread();
        let when = LockWhen::OnFault;
        assert_eq!(thread.mlock2(page(0), 4 * PAGE, when), Ok(()));
        assert_eq!(locked(mm), 4, "{era}");
        assert_eq!(in_core(mm, page(0), 4), [0; 4], "{era}");
        assert_eq!(thread.mlock2(page(1), PAGE, LockWhen::Now), Ok(()));
        assert_eq!(in_core(mm, page(0), 4), [0, 1, 0, 0], "{era}");
        assert_eq!(locked(mm), 4, "{era}: only how changed");
    });
}

#[test]
fn all_that_is_and_will_be_mapped() {
    everywhere(|era, _, mm| {
        let thread = mm.thread();
        mm.mprotect(page(3), PAGE, Prot::NONE).expect("mapped");
        assert_eq!(thread.mlockall(LockAll::CURRENT), Ok(()), "{era}");
        assert_eq!(locked(mm), 12, "{era}");
        assert_eq!(in_core(mm, page(0), 8), [1, 1, 1, 0, 1, 1, 1, 1], "{era}");
        assert_eq!(in_core(mm, page(12), 4), [1; 4], "{era}");
        let new = mm.mmap(Place::Any, 2 * PAGE, Prot::READ).expect("room");
        assert_eq!(locked(mm), 12, "{era}: not what is new");
        assert_eq!(thread.mlockall(LockAll::FUTURE), Ok(()));
        assert_eq!(locked(mm), 12, "{era}: not what is old");
        let newer = mm.mmap(Place::Any, 2 * PAGE, Prot::READ_WRITE);
        let newer = newer.expect("room");
        assert_eq!(locked(mm), 14, "{era}");
        assert_eq!(in_core(mm, new, 2), [0, 0], "{era}");
        assert_eq!(in_core(mm, newer, 2), [1, 1], "{era}");
        // The heap grows locked and there.
        let heap = mm.brk(None);
        assert_eq!(mm.brk(Some(VirtAddr(heap.0 + 100))).0, heap.0 + 100);
        assert_eq!(in_core(mm, heap, 1), [1], "{era}");
        assert_eq!(
            mm.brk(Some(VirtAddr(heap.0 + 2 * PAGE))).0,
            heap.0 + 2 * PAGE
        );
        assert_eq!(in_core(mm, heap, 2), [1, 1], "{era}");
        assert_eq!(locked(mm), 16, "{era}");
        mm.set_limit_memlock(16 * PAGE);
        assert_eq!(
            mm.brk(Some(VirtAddr(heap.0 + 3 * PAGE))).0,
            heap.0 + 2 * PAGE
        );
        let more = mm.mmap(Place::Any, PAGE, Prot::READ);
        assert_eq!(more, Err(MmapError::LockLimit), "{era}");
        mm.set_limit_memlock(u64::MAX);
        assert_eq!(mm.brk(Some(heap)), heap);
        assert_eq!(locked(mm), 14, "{era}");
        let later = LockAll::FUTURE.with(LockAll::ON_FAULT);
        assert_eq!(thread.mlockall(later), Ok(()));
        let later = mm.mmap(Place::Any, 2 * PAGE, Prot::READ_WRITE);
        assert_eq!(in_core(mm, later.expect("room"), 2), [0, 0], "{era}");
        assert_eq!(locked(mm), 16, "{era}");
        thread.mm().munlockall();
        assert_eq!(locked(mm), 0, "{era}");
        let at = mm.mmap(Place::Any, PAGE, Prot::READ_WRITE).expect("room");
        assert_eq!(in_core(mm, at, 1), [0], "{era}");
        assert_eq!(locked(mm), 0, "{era}");
    });
}

#[test]
fn what_is_locked_and_becomes_writable_is_filled_as_by_stores() {
    everywhere(|era, _, mm| {
        let thread = mm.thread();
        mm.mprotect(page(2), 3 * PAGE, Prot::NONE).expect("mapped");
        assert_eq!(lock(mm, 2, 3), Err(MlockError::NoMemory));
        assert_eq!(lock(mm, 12, 1), Ok(()));
        mm.mprotect(page(2), 2 * PAGE, Prot::READ).expect("mapped");
        assert_eq!(in_core(mm, page(2), 3), [0, 0, 0], "{era}");
        let done = mm.mprotect(page(2), 2 * PAGE, Prot::READ_WRITE);
        assert_eq!(done, Ok(()));
        assert_eq!(in_core(mm, page(1), 4), [0, 1, 1, 0], "{era}");
        let when = LockWhen::OnFault;
        assert_eq!(thread.mlock2(page(4), PAGE, when), Ok(()));
        let done = mm.mprotect(page(4), PAGE, Prot::READ_WRITE);
        assert_eq!(done, Ok(()));
        assert_eq!(in_core(mm, page(4), 1), [0], "{era}: waits for its touch");
        // Only what is locked, of a range where others lie between.
        mm.mprotect(page(0), 8 * PAGE, Prot::READ).expect("mapped");
        for n in [5, 7] {
            assert_eq!(lock(mm, n, 1), Ok(()));
        }
        let resident = mm.resident_pages_sum();
        let done = mm.mprotect(page(5), 3 * PAGE, Prot::READ_WRITE);
        assert_eq!(done, Ok(()));
        assert_eq!(in_core(mm, page(5), 3), [1, 0, 1], "{era}");
        assert_eq!(mm.resident_pages_sum(), resident + 2, "{era}: as by stores");
        // A lowered limit is nothing to what is not locked.
        mm.set_limit_memlock(0);
        assert!(mm.mmap(Place::Any, PAGE, Prot::READ).is_ok(), "{era}");
        let heap = mm.brk(None);
        assert_eq!(mm.brk(Some(VirtAddr(heap.0 + 1))).0, heap.0 + 1, "{era}");
    });
}

#[test]
fn a_child_has_nothing_locked() {
    everywhere(|era, sys, mm| {
        mm.set_limit_memlock(9 * PAGE);
        assert_eq!(lock(mm, 0, 2), Ok(()));
        assert_eq!(mm.thread().mlockall(LockAll::FUTURE), Ok(()));
        let child = sys.fork(mm).expect("memory");
        assert_eq!((locked(mm), locked(&child)), (2, 0), "{era}");
        assert_eq!(child.limit_memlock(), 9 * PAGE);
        let view = child.mappings().vma_at(page(0)).expect("mapped");
        assert!(!view.flags.has(VmaFlags::LOCKED), "{era}");
        child.mmap(Place::Any, PAGE, Prot::READ).expect("room");
        assert_eq!(locked(&child), 0, "{era}");
        sys.check_ledger(&[mm, &child])
            .unwrap_or_else(|e| panic!("{era}: {e}"));
    });
}

#[test]
fn a_page_that_cannot_be_had_is_eagain_and_the_rest_is_locked() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 1, 1 << 20);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let len = 200 * PAGE;
        let at = mm.mmap(Place::Any, len, Prot::READ_WRITE).expect("a hole");
        let more = mm.mmap(Place::Any, len, Prot::READ_WRITE).expect("a hole");
        let locks = |at| mm.thread().mlock(at, len);
        let results = [locks(at), locks(more)];
        assert!(
            results.contains(&Err(MlockError::Again)),
            "{}: {results:?}",
            era.name
        );
        assert_eq!(locked(&mm), 400, "{}", era.name);
        sys.check_ledger(&[&mm])
            .unwrap_or_else(|e| panic!("{}: {e}", era.name));
    }
}
