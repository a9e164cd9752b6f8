//! Migration leaves a huge page in place if it has other references or the target node has no page.
//! Huge pages of files migrate by frame number only.

use super::{X86, boot};
use crate::base::error::MovePageError;
use crate::base::huge_size::HugeSize;
use crate::memory::alloc::Refuse;
use crate::memory::frame::PIN;
use crate::space::arenas::lock::Over;
use crate::{Advice, MapRequest, Mm, Place, Prot, Sharing};
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::X86_64;

const PAGE: u64 = 2 << 20;
const AT: VirtAddr = VirtAddr(1 << 40);

fn frame(mm: &Mm<X86>) -> Pfn {
    let reading = mm.read(Over::at(AT));
    let entry = reading
        .held()
        .tables()
        .huge_entry(HugeSize::Large, AT)
        .expect("a table")
        .entry
        .load();
    assert!(entry.is_mapped());
    entry.pfn()
}

#[test]
fn a_page_that_is_in_use_or_has_no_place_stays() {
    for sharing in [Sharing::Private, Sharing::Shared] {
        let sys = boot::<X86_64>();
        let _cpu = sys.machine().enter(0);
        assert_eq!(sys.resize_huge_pool(4), 4);
        let before = sys.huge_pool();
        let mm = sys.new_mm().expect("memory");
        let request = MapRequest::new(Place::Fixed(AT), PAGE, Prot::READ_WRITE);
        assert_eq!(mm.mmap_huge(&request, sharing), Ok(AT));
        let thread = mm.thread();
        assert_eq!(thread.store(AT, 5), Ok(()));
        let pfn = frame(&mm);
        for refs in [1, PIN] {
            assert!(sys.frames.hold(pfn, refs));
            assert_eq!(mm.move_page(AT, 1), Err(MovePageError::Busy));
            assert_eq!(frame(&mm), pfn, "as it was");
            assert_eq!(thread.load(AT), Ok(5));
            for _ in 0..refs {
                sys.frames.put(pfn);
            }
        }
        sys.refuse_allocations(Refuse::From(1));
        assert_eq!(mm.move_page(AT, 1), Err(MovePageError::NoMemory));
        sys.refuse_allocations(Refuse::Nothing);
        sys.check_ledger(&[&mm]).expect("it adds up");
        assert_eq!(mm.move_page(AT, 1), Ok(()));
        assert_eq!(sys.frames.node_of(frame(&mm)), 1);
        assert_eq!(thread.load(AT), Ok(5));
        sys.check_ledger(&[&mm]).expect("it adds up");
        drop(thread);
        drop(mm);
        sys.check_ledger(&[]).expect("nothing is left");
        assert_eq!(sys.huge_pool(), before);
    }
}

#[test]
fn by_its_frame_a_page_of_a_file_is_moved() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.resize_huge_pool(4), 4);
    let mm = sys.new_mm().expect("memory");
    let thread = mm.thread();
    let request = MapRequest::new(Place::Fixed(AT), PAGE, Prot::READ_WRITE);
    assert_eq!(mm.mmap_huge(&request, Sharing::Shared), Ok(AT));
    assert_eq!(thread.store(AT, 5), Ok(()));
    let old = frame(&mm);
    assert_eq!(sys.move_frame(old, 0), Ok(()), "it is there");
    assert_eq!(frame(&mm), old);
    assert_eq!(sys.move_frame(old, 1), Ok(()));
    assert_eq!(sys.frames.node_of(frame(&mm)), 1);
    assert_eq!(sys.move_frame(old, 1), Err(MovePageError::NotThere), "free");
    let tail = Pfn(frame(&mm).0 + 1);
    assert_eq!(sys.move_frame(tail, 0), Err(MovePageError::NotThere));
    assert_eq!(thread.load(AT), Ok(5));
    assert_eq!(mm.mmap_huge(&request, Sharing::Private), Ok(AT));
    assert_eq!(thread.store(AT, 6), Ok(()));
    let own = frame(&mm);
    assert_eq!(sys.move_frame(own, 1), Err(MovePageError::Busy));
    assert_eq!((frame(&mm), thread.load(AT)), (own, Ok(6)));
    sys.check_ledger(&[&mm]).expect("it adds up");
}

/// Whoever has a frame by its number keeps the page from coming back to the pool, and so its
/// reservation from coming back to the mapping.
#[test]
fn a_page_that_is_thrown_away_while_it_is_in_use_is_used_up() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.resize_huge_pool(4), 4);
    let before = sys.huge_pool();
    let counted = || {
        let pool = sys.huge_pool();
        (pool.free, pool.reserved)
    };
    let mm = sys.new_mm().expect("memory");
    let thread = mm.thread();
    let request = MapRequest::new(Place::Fixed(AT), PAGE, Prot::READ_WRITE);
    assert_eq!(mm.mmap_huge(&request, Sharing::Private), Ok(AT));
    assert_eq!(counted(), (4, 1));
    for in_use in [false, true] {
        assert_eq!(thread.store(AT, 5), Ok(()));
        let pfn = frame(&mm);
        assert_eq!(counted(), (3, 0));
        if in_use {
            assert!(sys.frames.hold(pfn, 1));
        }
        assert_eq!(mm.madvise(AT, PAGE, Advice::DontNeed), Ok(()));
        assert_eq!(counted(), if in_use { (3, 0) } else { (4, 1) });
        // A page of its own, or of those that are promised to nobody.
        assert_eq!(thread.load(AT), Ok(0));
        if in_use {
            assert_ne!(frame(&mm), pfn);
            sys.frames.put(pfn);
        }
        assert_eq!(counted(), (3, 0));
        sys.check_ledger(&[&mm]).expect("it adds up");
        assert_eq!(mm.munmap(AT, PAGE), Ok(()));
        assert_eq!(sys.huge_pool(), before);
        assert_eq!(mm.mmap_huge(&request, Sharing::Private), Ok(AT));
    }
    drop(thread);
    drop(mm);
    sys.check_ledger(&[]).expect("nothing is left");
    assert_eq!(sys.huge_pool(), before);
}
