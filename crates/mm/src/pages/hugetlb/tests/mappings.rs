//! Reservations of mappings and files when a call fails half way.

use super::{X86, boot};
use crate::base::error::{FileError, MprotectError, MunmapError};
use crate::memory::alloc::Refuse;
use crate::memory::alloc::pool::PoolCounters;
use crate::system::System;
use crate::{MapRequest, Mm, Place, Prot, Sharing};
use minflt_addr::VirtAddr;
use minflt_pgtable::X86_64;

const PAGE: u64 = 2 << 20;

fn at(page: u64) -> VirtAddr {
    VirtAddr((1 << 40) + page * PAGE)
}

fn private(mm: &Mm<X86>, pages: u64, prot: Prot) {
    let request = MapRequest::new(Place::Fixed(at(0)), pages * PAGE, prot);
    assert_eq!(mm.mmap_huge(&request, Sharing::Private), Ok(at(0)));
}

fn holds(sys: &System<X86>, alive: &[&Mm<X86>], reserved: u64) {
    sys.check_ledger(alive).expect("it adds up");
    assert_eq!(sys.huge_pool().reserved, reserved);
}

#[test]
fn what_an_allocation_left_behind_the_end_goes_with_a_cut() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.resize_huge_pool(3), 3);
    {
        let file = sys.new_huge_file(PAGE).expect("memory");
        assert_eq!(file.allocate(0, 5 * PAGE), Err(FileError::NoSpace));
        assert_eq!((file.bytes(), file.cached_pages()), (PAGE, 3));
        assert_eq!(file.truncate(0), Ok(()));
        assert_eq!(file.cached_pages(), 0);
        holds(&sys, &[], 0);
    }
    let pool = PoolCounters {
        total: 3,
        free: 3,
        reserved: 0,
    };
    assert_eq!(sys.huge_pool(), pool);
}

#[test]
fn a_hole_that_lacks_memory_leaves_the_page() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.resize_huge_pool(4), 4);
    let file = sys.new_huge_file(3 * PAGE).expect("memory");
    assert_eq!(file.allocate(0, 3 * PAGE), Ok(()));
    sys.refuse_allocations(Refuse::From(1));
    assert_eq!(file.punch_hole(PAGE, PAGE), Err(FileError::NoMemory));
    sys.refuse_allocations(Refuse::Nothing);
    assert_eq!(file.cached_pages(), 3);
    holds(&sys, &[], 0);
    assert_eq!(file.punch_hole(PAGE, PAGE), Ok(()));
    assert_eq!(file.cached_pages(), 2);
    holds(&sys, &[], 0);
}

#[test]
fn a_split_that_lacks_memory_gives_nothing_back() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.resize_huge_pool(6), 6);
    let mut failed = 0;
    for nth in 1..20 {
        let mm = sys.new_mm().expect("memory");
        private(&mm, 6, Prot::READ_WRITE);
        sys.refuse_allocations(Refuse::Nth(nth));
        let unmapped = mm.munmap(at(2), 2 * PAGE);
        sys.refuse_allocations(Refuse::Nothing);
        let left = if unmapped.is_ok() { 4 } else { 6 };
        failed += u64::from(unmapped == Err(MunmapError::NoMemory));
        holds(&sys, &[&mm], left);
        sys.refuse_allocations(Refuse::Nth(nth));
        let protected = mm.mprotect(at(4), PAGE, Prot::READ);
        sys.refuse_allocations(Refuse::Nothing);
        failed += u64::from(protected == Err(MprotectError::NoMemory));
        holds(&sys, &[&mm], left);
        drop(mm);
        holds(&sys, &[], 0);
    }
    assert!(failed > 6, "there was memory to refuse: {failed}");
}

#[test]
fn memory_that_may_not_be_stored_to_yet_is_zeros() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.resize_huge_pool(2), 2);
    let mm = sys.new_mm().expect("memory");
    private(&mm, 2, Prot::READ);
    let thread = mm.thread();
    assert_eq!(thread.load(at(1)), Ok(0));
    assert_eq!(mm.mprotect(at(0), 2 * PAGE, Prot::READ_WRITE), Ok(()));
    assert_eq!(thread.store(at(0), 7), Ok(()));
    assert_eq!(thread.store(at(1), 8), Ok(()));
    assert_eq!(thread.load(at(0)), Ok(7));
    drop(thread);
    holds(&sys, &[&mm], 0);
}
