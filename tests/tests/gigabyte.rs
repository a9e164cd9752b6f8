//! Huge pages of a gigabyte, on real threads: in a process of its own, since one is cleared from
//! end to end, and other tests look at how much memory their process has.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_addr::VirtAddr;
use minflt_host::Host;
use minflt_mm::{
    Event, HugeSize, MapRequest, MmapError, MunmapError, Place, Prot, Sharing, Signal, Swap, era,
};
use minflt_pgtable::{Aarch64K4, Paging, RiscvSv39, X86_64};
use minflt_tests::world::{boot_on, machine};

/// Larger than any block of the allocator: it is put together of such, and comes apart again.
#[test]
fn a_page_of_a_gigabyte_comes_from_memory_that_nobody_has_and_goes_back() {
    a_gigabyte_of::<X86_64>();
    a_gigabyte_of::<Aarch64K4>();
    // Of three levels: in the root.
    a_gigabyte_of::<RiscvSv39>();
}

fn a_gigabyte_of<P: Paging>() {
    const GIB: u64 = 1 << 30;
    let config = era("linux-6.15").expect("an era").config;
    let sys = boot_on::<Host<P, true>>(machine(1, 3 << 30), config, Swap::None);
    let _cpu = sys.machine().enter(0);
    let giant = HugeSize::Giant;
    assert_eq!(sys.resize_huge_pool(3), 3);
    let most = sys.resize_huge_pool_of_size(giant, 3);
    assert!((1..3).contains(&most), "{most} of what is not all memory");
    assert_eq!(sys.resize_huge_pool_of_size(giant, 1), 1);
    let mm = sys.new_mm().expect("memory");
    let thread = mm.thread();
    let base = VirtAddr(1 << 37);
    let request = |len| MapRequest::new(Place::Fixed(base), len, Prot::READ_WRITE);
    let much = mm.mmap_huge_of(giant, &request(GIB + 1), Sharing::Private);
    assert_eq!(much, Err(MmapError::NoMemory), "two are not there");
    let mapped = mm.mmap_huge_of(giant, &request(4096), Sharing::Shared);
    assert_eq!(mapped, Ok(base), "the length is rounded up");
    let places = [0, 4096, GIB / 2 + 8, GIB - 8];
    for (place, value) in places.into_iter().zip(7..) {
        assert_eq!(thread.store(VirtAddr(base.0 + place), value), Ok(()));
    }
    assert_eq!(sys.count_of(Event::HugeFaults), 1);
    assert_eq!(sys.huge_pool_of_size(giant).free, 0);
    assert_eq!(sys.huge_pool().free, 3, "the other size has its own");
    for (place, value) in places.into_iter().zip(7..) {
        assert_eq!(thread.load(VirtAddr(base.0 + place)), Ok(value));
    }
    assert_eq!(mm.munmap(base, GIB / 2), Err(MunmapError::Invalid));
    let mut smaps = String::new();
    assert!(mm.smaps(&mut smaps).is_ok());
    assert!(smaps.contains("KernelPageSize:  1048576 kB"), "{smaps}");
    let child = mm.fork().expect("memory");
    assert_eq!(child.thread().load(VirtAddr(base.0 + GIB - 8)), Ok(10));
    assert_eq!(sys.count_of(Event::TablesShared), 0, "tables of it are not");
    sys.check_ledger(&[&mm, &child]).expect("it adds up");
    drop(child);
    assert_eq!(mm.munmap(base, GIB), Ok(()));
    assert_eq!(thread.load(base), Err(Signal::MapErr));
    sys.check_ledger(&[&mm]).expect("it adds up");
    // What it was made of is whole again.
    for _ in 0..2 {
        assert_eq!(sys.resize_huge_pool_of_size(giant, 0), 0);
        assert_eq!(sys.resize_huge_pool_of_size(giant, most), most);
    }
    sys.check_ledger(&[&mm]).expect("it adds up");
}
