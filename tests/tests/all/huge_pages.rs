//! Huge pages: pools and reservations, mapped, shared with others, taken away.

use crate::small_tables::Small;
use minflt_addr::VirtAddr;
use minflt_host::Host;
use minflt_mm::{
    Advice, Config, Event, FileError, FileHandle, HugeSize, MapRequest, Mapped, MempolicyError,
    Misplaced, MmHandle, MmapError, MremapError, MunmapError, NodeMask, Place, Policy, PolicyMode,
    PoolCounters, Populate, Prot, Remap, RemapRequest, Reserve, Sharing, Signal, Swap, System,
    Thread, era, eras_of_huge_pages,
};

use minflt_pgtable::{I386Pae, Paging, X86_64};
use minflt_tests::world::{alone, boot_on, machine};

type Machine<P> = Host<P, true>;

/// Of a large page of x86-64, and where an interval of its tables begins.
const BASE: u64 = 1 << 34;
const INTERVAL: u64 = 1 << 30;
const POOL: u64 = 12;

struct World<'w, P: Paging> {
    sys: &'w System<Machine<P>>,
    mm: &'w MmHandle<'w, Machine<P>>,
    thread: &'w Thread<'w, Machine<P>>,
    size: HugeSize,
}

impl<'w, P: Paging> World<'w, P> {
    fn page(&self) -> u64 {
        self.size.bytes::<P>()
    }

    fn at(&self, page: u64) -> VirtAddr {
        VirtAddr(BASE + page * self.page())
    }

    /// Some bytes into a page.
    fn within(&self, page: u64, bytes: u64) -> VirtAddr {
        VirtAddr(self.at(page).0 + bytes)
    }

    fn request(&self, page: u64, pages: u64, prot: Prot) -> MapRequest {
        MapRequest::new(Place::Fixed(self.at(page)), pages * self.page(), prot)
    }

    fn map_huge(&self, request: &MapRequest, sharing: Sharing) -> Result<VirtAddr, MmapError> {
        self.mm.mmap_huge_of(self.size, request, sharing)
    }

    fn file(&self, pages: u64) -> FileHandle<'w, Machine<P>> {
        self.sys
            .new_huge_file_of(self.size, pages * self.page())
            .expect("a whole number of pages")
    }

    fn map(&self, page: u64, pages: u64, file: &FileHandle<'_, Machine<P>>, sharing: Sharing) {
        let request = self.request(page, pages, Prot::READ_WRITE);
        let mapped = self.thread.mmap_file(&request, file, 0, sharing);
        assert_eq!(mapped, Ok(self.at(page)));
    }

    fn private(&self, page: u64, pages: u64) {
        let request = self.request(page, pages, Prot::READ_WRITE);
        assert_eq!(self.map_huge(&request, Sharing::Private), Ok(self.at(page)));
    }

    /// By a thread that has ended when its pages are counted.
    fn touch_small(&self, at: VirtAddr, value: u64) {
        assert_eq!(self.mm.thread().store(at, value), Ok(()));
    }

    fn pool(&self) -> (u64, u64, u64) {
        let PoolCounters {
            total,
            free,
            reserved,
            ..
        } = self.sys.huge_pool_of_size(self.size);
        (total, free, reserved)
    }

    fn count(&self, event: Event) -> u64 {
        self.sys.count_of(event)
    }

    fn holds(&self, others: &[&MmHandle<'_, Machine<P>>]) {
        let mut alive = vec![&**self.mm];
        alive.extend(others.iter().map(|mm| &***mm));
        self.sys.check_ledger(&alive).expect("it adds up");
    }
}

fn in_one<P: Paging>(
    (name, config): (&str, Config),
    size: HugeSize,
    test: &impl Fn(&World<'_, P>),
) {
    let sys = boot_on::<Machine<P>>(machine(1, 64 << 20), config, Swap::None);
    {
        let _cpu = sys.machine().enter(0);
        assert_eq!(sys.resize_huge_pool_of_size(size, POOL), POOL, "{name}");
    }
    alone(name, &sys, |mm| {
        test(&World {
            sys: &sys,
            mm,
            thread: &mm.thread(),
            size,
        });
    });
    let pool = sys.huge_pool_of_size(size);
    assert_eq!(
        (pool.total, pool.free, pool.reserved),
        (POOL, POOL, 0),
        "{name}"
    );
}

fn each_era<P: Paging>(size: HugeSize, test: impl Fn(&World<'_, P>)) {
    for era in eras_of_huge_pages() {
        in_one((era.name, era.config), size, &test);
    }
}

/// Of both sizes: the second of a format in which they are small.
macro_rules! in_each_era {
    (|$world:ident| $test:block) => {{
        each_era::<X86_64>(HugeSize::Large, |$world| $test);
        each_era::<Small>(HugeSize::Large, |$world| $test);
        each_era::<Small>(HugeSize::Giant, |$world| $test);
    }};
}

#[test]
fn a_shared_page_is_one_page_for_all() {
    in_each_era!(|world| {
        let file = world.file(4);
        world.map(0, 4, &file, Sharing::Shared);
        world.map(100, 4, &file, Sharing::Shared);
        assert_eq!(world.pool(), (POOL, POOL, 4), "reserved once");
        for page in 0..4 {
            assert_eq!(
                world.thread.store(world.within(page, 4096), 7 + page),
                Ok(())
            );
            assert_eq!(
                world.thread.load(world.within(100 + page, 4096)),
                Ok(7 + page)
            );
            assert_eq!(
                world
                    .thread
                    .load(world.within(100 + page, world.page() - 8)),
                Ok(0)
            );
        }
        assert_eq!(world.pool(), (POOL, POOL - 4, 0));
        assert_eq!(world.count(Event::HugeFaults), 8);
        assert_eq!(file.read_word(world.page() + 4096), Ok(Some(8)));
        world.holds(&[]);
        assert_eq!(world.mm.munmap(world.at(0), 4 * world.page()), Ok(()));
        assert_eq!(world.thread.load(world.at(0)), Err(Signal::MapErr));
        assert_eq!(world.thread.load(world.within(101, 4096)), Ok(8));
        world.holds(&[]);
    });
}

#[test]
fn what_is_not_left_is_refused_when_it_is_mapped() {
    in_each_era!(|world| {
        world.private(0, POOL - 2);
        assert_eq!(world.pool(), (POOL, POOL, POOL - 2));
        let much = world.request(100, 3, Prot::READ_WRITE);
        let refused = world.map_huge(&much, Sharing::Private);
        assert_eq!(refused, Err(MmapError::NoMemory));
        let file = world.file(0);
        let refused = world.mm.mmap_file(&much, &file, 0, Sharing::Shared);
        assert_eq!(refused, Err(MmapError::NoMemory));
        // Who reserves nothing may get nothing.
        let late = MapRequest {
            reserve: Reserve::NoReserve,
            ..much
        };
        assert_eq!(world.map_huge(&late, Sharing::Private), Ok(world.at(100)));
        assert_eq!(world.thread.store(world.at(100), 1), Ok(()));
        assert_eq!(world.thread.store(world.at(101), 1), Ok(()));
        assert_eq!(world.thread.store(world.at(102), 1), Err(Signal::Bus));
        for page in 0..POOL - 2 {
            assert_eq!(world.thread.store(world.at(page), 1), Ok(()), "{page}");
        }
        assert_eq!(world.pool(), (POOL, 0, 0));
        world.holds(&[]);
    });
}

#[test]
fn parts_of_a_private_mapping_give_back_what_they_have_not_used() {
    in_each_era!(|world| {
        world.private(0, 6);
        assert_eq!(world.thread.store(world.at(1), 5), Ok(()));
        assert_eq!(world.thread.store(world.at(4), 6), Ok(()));
        assert_eq!(world.pool(), (POOL, POOL - 2, 4));
        assert_eq!(
            world.mm.munmap(world.at(2), world.page() / 2),
            Err(MunmapError::Invalid)
        );
        assert_eq!(world.mm.munmap(world.at(2), 2 * world.page()), Ok(()));
        world.holds(&[]);
        assert_eq!(world.pool(), (POOL, POOL - 2, 2));
        assert_eq!(world.thread.load(world.at(1)), Ok(5));
        assert_eq!(world.thread.load(world.at(4)), Ok(6));
        assert_eq!(world.thread.load(world.at(3)), Err(Signal::MapErr));
        assert_eq!(world.mm.munmap(world.at(0), 2 * world.page()), Ok(()));
        assert_eq!(world.pool(), (POOL, POOL - 1, 1));
        world.holds(&[]);
    });
}

#[test]
fn a_child_shares_private_pages_until_one_of_the_two_stores() {
    in_each_era!(|world| {
        world.private(0, 3);
        assert_eq!(world.thread.store(world.at(0), 1), Ok(()));
        assert_eq!(world.thread.store(world.at(1), 2), Ok(()));
        let child = world.mm.fork().expect("memory");
        world.holds(&[&child]);
        {
            let thread = child.thread();
            assert_eq!(thread.load(world.at(0)), Ok(1));
            assert_eq!(world.thread.store(world.at(0), 10), Ok(()));
            assert_eq!(thread.load(world.at(0)), Ok(1));
            assert_eq!(thread.store(world.at(1), 20), Ok(()));
            assert_eq!(world.thread.load(world.at(1)), Ok(2));
            world.holds(&[&child]);
            assert_eq!(world.thread.store(world.at(1), 3), Ok(()));
            assert_eq!(thread.load(world.at(1)), Ok(20));
        }
        assert_eq!(world.count(Event::HugeCopies), 2);
        drop(child);
        world.holds(&[]);
    });
}

#[test]
fn who_reserved_a_page_wins_it_from_children() {
    in_each_era!(|world| {
        world.private(0, POOL);
        for page in 0..POOL {
            assert_eq!(world.thread.store(world.at(page), page), Ok(()));
        }
        let child = world.mm.fork().expect("memory");
        let thread = child.thread();
        assert_eq!(
            thread.store(world.at(0), 1),
            Err(Signal::Bus),
            "none is left"
        );
        assert_eq!(world.thread.store(world.at(0), 100), Ok(()));
        assert_eq!(world.count(Event::HugePagesLost), 1);
        assert_eq!(world.thread.load(world.at(0)), Ok(100));
        assert_eq!(thread.load(world.at(0)), Err(Signal::Bus));
        assert_eq!(thread.load(world.at(1)), Ok(1));
        drop(thread);
        world.holds(&[&child]);
    });
}

#[test]
fn a_truncated_file_has_no_pages_behind_its_end() {
    in_each_era!(|world| {
        let file = world.file(4);
        world.map(0, 6, &file, Sharing::Shared);
        assert_eq!(
            file.bytes(),
            6 * world.page(),
            "a mapping that may be stored to makes it longer"
        );
        for page in 0..5 {
            assert_eq!(world.thread.store(world.at(page), page + 1), Ok(()));
        }
        let child = world.mm.fork().expect("memory");
        let thread = child.thread();
        assert_eq!(thread.load(world.at(3)), Ok(4));
        assert_eq!(file.truncate(world.page() / 2), Err(FileError::Invalid));
        assert_eq!(file.truncate(2 * world.page()), Ok(()));
        assert_eq!(world.pool(), (POOL, POOL - 2, 0));
        for thread in [world.thread, &thread] {
            assert_eq!(thread.load(world.at(1)), Ok(2));
            assert_eq!(thread.load(world.at(2)), Err(Signal::Bus));
            assert_eq!(thread.store(world.at(4), 1), Err(Signal::Bus));
        }
        assert_eq!(file.truncate(4 * world.page()), Ok(()));
        assert_eq!(world.thread.load(world.at(3)), Ok(0));
        assert_eq!(file.punch_hole(0, world.page() + 4096), Ok(()));
        assert_eq!(world.thread.load(world.at(0)), Ok(0));
        assert_eq!(
            world.thread.load(world.at(1)),
            Ok(0),
            "of what is no whole page zeros"
        );
        drop(thread);
        world.holds(&[&child]);
    });
}

#[test]
fn an_interval_has_one_table_for_all_who_may_share_it() {
    each_era::<X86_64>(HugeSize::Large, |world| {
        let file = world.file(0);
        // Nothing is reserved: there are not so many pages.
        let whole = MapRequest {
            reserve: Reserve::NoReserve,
            ..MapRequest::new(
                Place::Fixed(world.at(0)),
                INTERVAL + world.page(),
                Prot::READ_WRITE,
            )
        };
        let mapped = world.thread.mmap_file(&whole, &file, 0, Sharing::Shared);
        assert_eq!(mapped, Ok(world.at(0)));
        assert_eq!(world.thread.store(world.at(3), 33), Ok(()));
        assert_eq!(world.thread.store(world.at(512), 44), Ok(()));
        let child = world.mm.fork().expect("memory");
        let thread = child.thread();
        let faults = world.count(Event::HugeFaults);
        assert_eq!(thread.load(world.at(3)), Ok(33));
        assert_eq!(world.count(Event::TablesShared), 1);
        assert_eq!(
            world.count(Event::HugeFaults),
            faults,
            "the entry was there"
        );
        assert_eq!(
            thread.load(world.at(512)),
            Ok(44),
            "what reaches out has a table of its own"
        );
        assert_eq!(world.count(Event::TablesShared), 1);
        assert_eq!(thread.store(world.at(5), 55), Ok(()));
        assert_eq!(world.thread.load(world.at(5)), Ok(55));
        assert_eq!(world.count(Event::HugeFaults), faults + 2);
        world.holds(&[&child]);
        // One who may not store has no table in common.
        assert_eq!(
            child.mprotect(world.at(0), INTERVAL + world.page(), Prot::READ),
            Ok(())
        );
        assert_eq!(world.count(Event::TablesUnshared), 1);
        world.holds(&[&child]);
        assert_eq!(thread.load(world.at(5)), Ok(55));
        assert_eq!(thread.store(world.at(5), 1), Err(Signal::AccErr));
        assert_eq!(world.thread.store(world.at(5), 56), Ok(()));
        assert_eq!(world.count(Event::TablesShared), 1);
        assert_eq!(
            child.mprotect(world.at(0), INTERVAL + world.page(), Prot::READ_WRITE),
            Ok(())
        );
        assert_eq!(
            child.madvise(world.at(0), INTERVAL, Advice::DontNeed),
            Ok(())
        );
        world.holds(&[&child]);
        assert_eq!(thread.load(world.at(5)), Ok(56));
        drop(thread);
        world.holds(&[&child]);
    });
}

#[test]
fn who_is_cut_in_an_interval_leaves_its_table() {
    each_era::<X86_64>(HugeSize::Large, |world| {
        let file = world.file(0);
        let whole = MapRequest {
            reserve: Reserve::NoReserve,
            ..MapRequest::new(Place::Fixed(world.at(0)), INTERVAL, Prot::READ_WRITE)
        };
        let mapped = world.thread.mmap_file(&whole, &file, 0, Sharing::Shared);
        assert_eq!(mapped, Ok(world.at(0)));
        assert_eq!(world.thread.store(world.at(3), 33), Ok(()));
        let child = world.mm.fork().expect("memory");
        let thread = child.thread();
        assert_eq!(thread.load(world.at(3)), Ok(33));
        assert_eq!(world.count(Event::TablesShared), 1);
        assert_eq!(child.munmap(world.at(100), world.page()), Ok(()));
        assert_eq!(world.count(Event::TablesUnshared), 1);
        world.holds(&[&child]);
        assert_eq!(thread.load(world.at(3)), Ok(33));
        assert_eq!(world.count(Event::TablesShared), 1, "it is not all mapped");
        assert_eq!(thread.load(world.at(100)), Err(Signal::MapErr));
        assert_eq!(world.thread.load(world.at(100)), Ok(0));
        drop(thread);
        world.holds(&[&child]);
    });
}

#[test]
fn populated_and_preallocated_pages_need_no_fault() {
    in_each_era!(|world| {
        let file = world.file(0);
        assert_eq!(file.allocate(0, 3 * world.page()), Ok(()));
        assert_eq!(file.bytes(), 3 * world.page());
        assert_eq!(world.pool(), (POOL, POOL - 3, 0));
        world.map(0, 3, &file, Sharing::Shared);
        assert_eq!(
            world.pool(),
            (POOL, POOL - 3, 0),
            "what is there is not reserved"
        );
        let now = MapRequest {
            populate: Populate::Now,
            ..world.request(100, 2, Prot::READ_WRITE)
        };
        assert_eq!(world.map_huge(&now, Sharing::Private), Ok(world.at(100)));
        assert_eq!(world.pool(), (POOL, POOL - 5, 0));
        let faults = world.count(Event::PageFaults);
        assert_eq!(world.thread.store(world.at(101), 1), Ok(()));
        assert_eq!(world.count(Event::PageFaults), faults);
        world.holds(&[]);
    });
}

#[test]
fn a_moved_mapping_takes_its_pages_and_what_it_reserved_along() {
    in_each_era!(|world| {
        let remap = |old: u64, pages: u64, to: u64| RemapRequest {
            old: world.at(old),
            old_len: pages * world.page(),
            new_len: pages * world.page(),
            how: Remap::Fixed(world.at(to)),
        };
        world.private(0, 6);
        for page in [0, 2, 5] {
            assert_eq!(world.thread.store(world.at(page), page + 1), Ok(()));
        }
        // A part, over a mapping that goes.
        world.private(700, 2);
        assert_eq!(world.thread.mremap(&remap(1, 2, 700)), Ok(world.at(700)));
        world.holds(&[]);
        assert_eq!(world.pool(), (POOL, POOL - 3, 3));
        assert_eq!(world.thread.load(world.at(701)), Ok(3));
        assert_eq!(world.thread.load(world.at(2)), Err(Signal::MapErr));
        assert_eq!(world.thread.load(world.at(700)), Ok(0), "still reserved");
        assert_eq!(world.thread.mremap(&remap(3, 3, 1400)), Ok(world.at(1400)));
        assert_eq!(world.thread.load(world.at(1402)), Ok(6));
        world.holds(&[]);
        let file = world.file(0);
        world.map(2000, 2, &file, Sharing::Shared);
        assert_eq!(world.thread.store(world.at(2001), 9), Ok(()));
        assert_eq!(
            world.thread.mremap(&remap(2000, 2, 2600)),
            Ok(world.at(2600))
        );
        assert_eq!(world.thread.load(world.at(2601)), Ok(9));
        assert_eq!(world.thread.load(world.at(2001)), Err(Signal::MapErr));
        let longer = RemapRequest {
            new_len: 3 * world.page(),
            how: Remap::MayMove,
            ..remap(2600, 2, 0)
        };
        assert_eq!(world.thread.mremap(&longer), Err(MremapError::Invalid));
        let shorter = RemapRequest {
            new_len: world.page(),
            how: Remap::InPlace,
            ..remap(2600, 2, 0)
        };
        assert_eq!(world.thread.mremap(&shorter), Ok(world.at(2600)));
        assert_eq!(world.thread.load(world.at(2601)), Err(Signal::MapErr));
        assert_eq!(file.read_word(world.page()), Ok(Some(9)));
        world.holds(&[]);
    });
}

#[test]
fn what_is_shown_of_huge_pages() {
    each_era::<X86_64>(HugeSize::Large, |world| {
        world.private(0, 2);
        assert_eq!(world.thread.store(world.at(1), 1), Ok(()));
        let mut found = [Mapped::Swapped; 3];
        world.mm.pagemap(VirtAddr(world.at(1).0 - 4096), &mut found);
        assert_eq!(found, [Mapped::Nothing, Mapped::Private, Mapped::Private]);
        let mut there = [9; 2];
        assert_eq!(
            world
                .mm
                .mincore(VirtAddr(world.at(1).0 - 4096), 2 * 4096, &mut there),
            Ok(())
        );
        assert_eq!(there, [0, 1]);
        let mut smaps = String::new();
        assert!(world.mm.smaps(&mut smaps).is_ok());
        assert!(smaps.contains("KernelPageSize:     2048 kB"), "{smaps}");
    });
}

#[test]
fn locks_and_policies_cut_no_huge_page() {
    in_each_era!(|world| {
        world.private(0, 2);
        let base = VirtAddr(world.at(0).0 + 4096);
        assert_eq!(world.thread.mlock(base, 4096), Ok(()));
        let policy = Policy::new(PolicyMode::Preferred, NodeMask::of(0));
        let cut = world.mm.mbind(base, 4096, policy, Misplaced::Stay);
        assert_eq!(cut, Err(MempolicyError::Invalid));
        assert_eq!(
            world
                .mm
                .mbind(world.at(1), world.page(), policy, Misplaced::Stay),
            Ok(())
        );
        assert_eq!(world.mm.locked_bytes(), 0);
        assert_eq!(world.thread.store(world.at(1), 1), Ok(()));
        world.holds(&[]);
    });
}

/// Where pages of one size come in place of those of another, the tables of these are gone.
#[test]
fn pages_of_all_sizes_replace_each_other_in_one_address_space() {
    each_era::<Small>(HugeSize::Giant, |world| {
        let (mm, thread) = (world.mm, world.thread);
        assert_eq!(world.sys.resize_huge_pool(16), 16);
        let large = HugeSize::Large.bytes::<Small>();
        let whole = world.request(0, 1, Prot::READ_WRITE);
        let part = |from: u64, pages: u64| {
            let place = Place::Fixed(VirtAddr(world.at(0).0 + from * large));
            MapRequest::new(place, pages * large, Prot::READ_WRITE)
        };
        for round in 1..3 {
            assert_eq!(mm.mmap(whole.place, whole.len, whole.prot), Ok(world.at(0)));
            world.touch_small(world.within(0, 4096), round);
            for (from, pages) in [(0, 8), (2, 3)] {
                let mapped = mm.mmap_huge(&part(from, pages), Sharing::Private);
                assert_eq!(mapped, Ok(VirtAddr(world.at(0).0 + from * large)));
                assert_eq!(thread.load(world.within(0, 3 * large)), Ok(0));
                assert_eq!(thread.store(world.within(0, 3 * large), round), Ok(()));
                world.holds(&[]);
            }
            let mapped = world.map_huge(&whole, Sharing::Shared);
            assert_eq!(mapped, Ok(world.at(0)));
            for place in [4096, 3 * large] {
                assert_eq!(thread.load(world.within(0, place)), Ok(0));
                assert_eq!(thread.store(world.within(0, place), round), Ok(()));
                assert_eq!(thread.load(world.within(0, place)), Ok(round));
            }
            world.holds(&[]);
        }
        assert_eq!(mm.munmap(world.at(0), world.page()), Ok(()));
        assert_eq!(world.sys.resize_huge_pool(0), 0, "all are back");
    });
}

/// Linux: may_split, hugetlb_vm_op_split.
#[test]
fn mremap_cuts_no_huge_page() {
    in_each_era!(|world| {
        let page = world.page();
        let small = |at| world.mm.mmap(Place::Fixed(at), 8192, Prot::READ_WRITE);
        assert_eq!(small(world.at(20)), Ok(world.at(20)));
        world.touch_small(world.at(20), 5);
        world.private(4, 2);
        assert_eq!(world.thread.store(world.at(4), 6), Ok(()));
        let into = |to| RemapRequest {
            old: world.at(20),
            old_len: 4096,
            new_len: 4096,
            how: Remap::Fixed(to),
        };
        let inside = into(world.within(4, 4096));
        assert_eq!(world.thread.mremap(&inside), Err(MremapError::Invalid));
        assert_eq!(world.thread.load(world.at(4)), Ok(6));
        assert_eq!(world.thread.load(world.at(20)), Ok(5));
        // What is cut off a mapping reaches into a huge page behind it.
        let before = VirtAddr(world.at(4).0 - 8192);
        assert_eq!(small(before), Ok(before));
        let shorter = RemapRequest {
            old: before,
            old_len: 8192 + page / 2,
            new_len: 4096,
            how: Remap::InPlace,
        };
        assert_eq!(world.thread.mremap(&shorter), Err(MremapError::Invalid));
        assert_eq!(world.thread.load(world.at(4)), Ok(6));
        world.holds(&[]);
    });
}

#[test]
fn brk_cuts_no_huge_page() {
    in_each_era!(|world| {
        let (mm, page) = (world.mm, world.page());
        assert_eq!(mm.set_start_brk(world.at(0)), Ok(()));
        assert_eq!(mm.brk(Some(world.at(3))), world.at(3));
        world.private(1, 1);
        assert_eq!(world.thread.store(world.at(1), 6), Ok(()));
        let cut = mm.brk(Some(world.within(1, page / 2)));
        assert_eq!(cut, world.at(3), "it stays");
        assert_eq!(world.thread.load(world.at(1)), Ok(6));
        assert_eq!(mm.brk(Some(world.at(1))), world.at(1));
        assert_eq!(world.thread.load(world.at(1)), Err(Signal::MapErr));
        world.holds(&[]);
    });
}

#[test]
fn a_format_without_larger_pages_says_so() {
    let config = era("linux-6.15").expect("an era").config;
    let sys = boot_on::<Machine<I386Pae>>(machine(1, 16 << 20), config, Swap::None);
    let _cpu = sys.machine().enter(0);
    let giant = HugeSize::Giant;
    assert!(!giant.exists::<I386Pae>() && giant.exists::<X86_64>());
    assert_eq!(HugeSize::of_shift::<X86_64>(30), Some(giant));
    assert_eq!(HugeSize::of_shift::<I386Pae>(30), None);
    assert_eq!(sys.resize_huge_pool_of_size(giant, 1), 0);
    let file = sys.new_huge_file_of(giant, 1 << 30);
    assert_eq!(file.err(), Some(FileError::Invalid));
    let mm = sys.new_mm().expect("memory");
    let request = MapRequest::new(Place::Any, 1 << 30, Prot::READ);
    let mapped = mm.mmap_huge_of(giant, &request, Sharing::Shared);
    assert_eq!(mapped, Err(MmapError::Invalid));
}
