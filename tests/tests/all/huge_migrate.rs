//! Huge pages that move from node to node: contents, who maps them, and what the pools count.

use crate::small_tables::Small;
use minflt_addr::VirtAddr;
use minflt_host::Host;
use minflt_mm::{
    Event, HugeSize, MapRequest, MempolicyError, Misplaced, MmHandle, MmapError, MovePageError,
    NodeMask, Place, Policy, PolicyMode, Prot, Reserve, Sharing, Swap, System, Thread, Which,
    eras_of_huge_pages,
};
use minflt_pgtable::{Paging, X86_64};
use minflt_tests::world::{alone, boot_on, machine};

type Machine<P> = Host<P, true>;

const SMALL: u64 = 4096;
const INTERVAL: u64 = 1 << 30;
/// Pages of each node's pool.
const EACH: u64 = 4;

struct World<'w, P: Paging> {
    sys: &'w System<Machine<P>>,
    mm: &'w MmHandle<'w, Machine<P>>,
    thread: &'w Thread<'w, Machine<P>>,
    size: HugeSize,
}

/// The thread is on node 0. At the end all pages are back, in the pools of their nodes.
fn each_era<P: Paging>(size: HugeSize, test: impl Fn(&World<'_, P>)) {
    for era in eras_of_huge_pages() {
        let sys = boot_on::<Machine<P>>(machine(2, 64 << 20).with_nodes(2), era.config, Swap::None);
        {
            let _cpu = sys.machine().enter(0);
            for node in 0..2 {
                let resized = sys.resize_huge_pool_of(size, node, EACH);
                assert_eq!(resized, EACH, "{}", era.name);
            }
        }
        alone(era.name, &sys, |mm| {
            test(&World {
                sys: &sys,
                mm,
                thread: &mm.thread(),
                size,
            });
        });
        let pool = sys.huge_pool_of_size(size);
        let counted = (pool.total, pool.free, pool.reserved);
        assert_eq!(counted, (2 * EACH, 2 * EACH, 0), "{}", era.name);
        let nodes = [0, 1].map(|node| sys.huge_pool_of(size, node));
        let nodes = nodes.map(|node| (node.total, node.free));
        assert_eq!(nodes, [(EACH, EACH); 2], "{}", era.name);
    }
}

/// Of both sizes: the second of a format in which they are small.
macro_rules! in_each_era {
    (|$world:ident| $test:block) => {{
        each_era::<X86_64>(HugeSize::Large, |$world| $test);
        each_era::<Small>(HugeSize::Giant, |$world| $test);
    }};
}

impl<P: Paging> World<'_, P> {
    fn page(&self) -> u64 {
        self.size.bytes::<P>()
    }

    fn at(&self, page: u64) -> VirtAddr {
        VirtAddr((1 << 34) + page * self.page())
    }

    fn map_huge(&self, request: &MapRequest) -> Result<VirtAddr, MmapError> {
        self.mm.mmap_huge_of(self.size, request, Sharing::Private)
    }

    fn ends(&self, page: u64) -> [VirtAddr; 2] {
        [self.at(page), VirtAddr(self.at(page + 1).0 - 8)]
    }

    /// What [`World::fill`] stored is there.
    fn holds(&self, thread: &Thread<'_, Machine<P>>, pages: u64) {
        for page in 0..pages {
            for (word, addr) in (10 * page + 1..).zip(self.ends(page)) {
                assert_eq!(thread.load(addr), Ok(word), "{addr}");
            }
        }
    }

    fn private(&self, pages: u64) {
        let request = MapRequest::new(
            Place::Fixed(self.at(0)),
            pages * self.page(),
            Prot::READ_WRITE,
        );
        assert_eq!(self.map_huge(&request), Ok(self.at(0)));
    }

    /// Stores into the first and the last small page of huge pages `0..pages`.
    fn fill(&self, pages: u64) {
        for page in 0..pages {
            for (word, addr) in (10 * page + 1..).zip(self.ends(page)) {
                assert_eq!(self.thread.store(addr, word), Ok(()));
            }
        }
    }

    /// Free pages of both nodes, and how many are reserved.
    fn pool(&self) -> (u64, u64, u64) {
        let free = |node| self.sys.huge_pool_of(self.size, node).free;
        (
            free(0),
            free(1),
            self.sys.huge_pool_of_size(self.size).reserved,
        )
    }

    /// Moves page `page` to node 1, whatever says who may.
    fn moves(&self, page: u64, which: Which) -> Result<u32, MovePageError> {
        let mut said = Err(MovePageError::Fault);
        let moved = self
            .mm
            .move_pages([(self.at(page), 1)], which, |status| said = status);
        let failed = matches!(said, Err(MovePageError::Busy | MovePageError::NoMemory));
        assert_eq!(moved, Ok(u64::from(failed)));
        said
    }

    /// The nodes that pages `0..pages` are on.
    fn nodes(&self, pages: u64) -> Vec<Result<u32, MovePageError>> {
        let mut nodes = Vec::new();
        let asked = (0..pages).map(|page| VirtAddr(self.at(page).0 + 5 * SMALL));
        self.mm.page_nodes(asked, |node| nodes.push(node));
        nodes
    }
}

#[test]
fn a_private_page_moves_with_its_contents() {
    in_each_era!(|w| {
        w.private(3);
        w.fill(2);
        assert_eq!(w.pool(), (2, 4, 1));
        let moved = w.sys.count_of(Event::PagesMigrated);
        assert_eq!(w.moves(1, Which::Own), Ok(1));
        assert_eq!(w.sys.count_of(Event::PagesMigrated), moved + 1);
        assert_eq!(
            w.pool(),
            (3, 3, 1),
            "one for one, and nothing promised went"
        );
        assert_eq!(w.nodes(3), [Ok(0), Ok(1), Err(MovePageError::NotThere)]);
        w.holds(w.thread, 2);
        assert_eq!(w.thread.store(w.at(1), 77), Ok(()));
        assert_eq!(w.thread.load(w.at(1)), Ok(77));
        assert_eq!(w.moves(1, Which::Own), Ok(1), "it is there");
        assert_eq!(w.moves(2, Which::Own), Err(MovePageError::NotThere));
        assert_eq!(w.moves(3, Which::Own), Err(MovePageError::Fault));
        assert_eq!(w.mm.move_page(w.at(0), 2), Err(MovePageError::NoNode));
        assert_eq!(
            w.thread.store(w.at(2), 5),
            Ok(()),
            "what was reserved is had"
        );
    });
}

#[test]
fn a_page_of_a_file_moves_for_all_who_map_it() {
    in_each_era!(|w| {
        let file = w
            .sys
            .new_huge_file_of(w.size, 2 * w.page())
            .expect("memory");
        let request = MapRequest::new(Place::Fixed(w.at(0)), 2 * w.page(), Prot::READ_WRITE);
        for place in [w.at(0), w.at(64)] {
            let request = MapRequest {
                place: Place::Fixed(place),
                ..request
            };
            let mapped = w.mm.mmap_file(&request, &file, 0, Sharing::Shared);
            assert_eq!(mapped, Ok(place));
        }
        w.fill(2);
        assert_eq!(w.thread.load(w.at(64)), Ok(1));
        assert_eq!(w.moves(0, Which::Own), Err(MovePageError::Shared));
        assert_eq!(w.moves(0, Which::All), Ok(1));
        assert_eq!(w.moves(1, Which::Own), Ok(1), "nobody else has touched it");
        assert_eq!(w.pool(), (4, 2, 0));
        w.holds(w.thread, 2);
        assert_eq!(w.thread.store(w.at(64), 9), Ok(()));
        assert_eq!(w.thread.load(w.at(0)), Ok(9));
        assert_eq!(file.cached_pages(), 2);
        assert_eq!(w.mm.munmap(w.at(0), 2 * w.page()), Ok(()));
        assert_eq!(w.mm.munmap(w.at(64), 2 * w.page()), Ok(()));
        let mapped = w.mm.mmap_file(&request, &file, 0, Sharing::Shared);
        assert_eq!(mapped, Ok(w.at(0)));
        assert_eq!(w.thread.load(w.at(0)), Ok(9), "and the file has it");
    });
}

#[test]
fn a_table_that_two_have_stays_theirs() {
    each_era::<X86_64>(HugeSize::Large, |w| {
        let file = w.sys.new_huge_file_of(w.size, 0).expect("memory");
        let request = MapRequest {
            reserve: Reserve::NoReserve,
            ..MapRequest::new(Place::Fixed(w.at(0)), INTERVAL, Prot::READ_WRITE)
        };
        let mapped = w.mm.mmap_file(&request, &file, 0, Sharing::Shared);
        assert_eq!(mapped, Ok(w.at(0)));
        w.fill(2);
        let child = w.mm.fork().expect("memory");
        let thread = child.thread();
        w.holds(&thread, 2);
        let table = w.mm.huge_table_for(w.at(0));
        assert_eq!(child.huge_table_for(w.at(0)), table, "shared");
        assert_eq!(w.moves(0, Which::Own), Ok(1));
        assert_eq!(child.huge_table_for(w.at(0)), table);
        assert_eq!(w.mm.huge_table_for(w.at(0)), table);
        w.holds(&thread, 2);
        assert_eq!(thread.store(w.at(0), 8), Ok(()));
        assert_eq!(w.thread.load(w.at(0)), Ok(8));
        // Of the whole mapping, which is not split: whose table others have is not one's own.
        let there = Policy::new(PolicyMode::Bind, NodeMask::of(1));
        let bind = |which| {
            w.mm.mbind(w.at(0), INTERVAL, there, Misplaced::MoveOrFail(which))
        };
        assert_eq!(bind(Which::Own), Ok(()));
        assert_eq!(w.nodes(2), [Ok(1), Ok(0)]);
        assert_eq!(bind(Which::All), Ok(()));
        assert_eq!(w.nodes(2), [Ok(1), Ok(1)]);
        assert_eq!(child.huge_table_for(w.at(0)), table);
        assert_eq!(thread.load(w.at(1)), Ok(11));
        assert_eq!(w.thread.load(w.at(1)), Ok(11));
        w.sys.check_ledger(&[w.mm, &child]).expect("it adds up");
    });
}

#[test]
fn a_page_that_a_child_has_too_moves_for_both() {
    in_each_era!(|w| {
        w.private(2);
        w.fill(2);
        let child = w.mm.fork().expect("memory");
        assert_eq!(w.moves(0, Which::Own), Err(MovePageError::Shared));
        assert_eq!(w.moves(0, Which::All), Ok(1));
        assert_eq!(w.pool(), (3, 3, 0));
        let thread = child.thread();
        w.holds(&thread, 2);
        assert_eq!(thread.store(w.at(0), 50), Ok(()), "a copy of its own");
        w.holds(w.thread, 2);
        assert_eq!(thread.load(w.at(0)), Ok(50));
        assert_eq!(w.moves(0, Which::Own), Ok(1), "there already");
    });
}

#[test]
fn where_the_pool_has_none_to_spare_nothing_happens() {
    in_each_era!(|w| {
        w.private(2);
        w.fill(2);
        assert_eq!(w.sys.resize_huge_pool_of(w.size, 1, 0), 0);
        let failed = w.sys.count_of(Event::MigrationsFailed);
        assert_eq!(w.moves(0, Which::Own), Err(MovePageError::NoMemory));
        assert_eq!(w.sys.count_of(Event::MigrationsFailed), failed + 1);
        w.holds(w.thread, 2);
        assert_eq!(w.nodes(2), [Ok(0), Ok(0)]);
        assert_eq!(w.sys.resize_huge_pool_of(w.size, 1, EACH), EACH);
        // All that is free is promised.
        let request = MapRequest::new(Place::Fixed(w.at(64)), 6 * w.page(), Prot::READ_WRITE);
        assert_eq!(w.map_huge(&request), Ok(w.at(64)));
        assert_eq!(w.pool(), (2, 4, 6));
        assert_eq!(w.moves(0, Which::Own), Err(MovePageError::NoMemory));
        assert_eq!(w.pool(), (2, 4, 6));
        assert_eq!(w.mm.munmap(w.at(64), w.page()), Ok(()));
        assert_eq!(w.moves(0, Which::Own), Ok(1), "one is nobody's now");
        assert_eq!(w.pool(), (3, 3, 5));
        w.holds(w.thread, 2);
    });
}

#[test]
fn mbind_moves_what_is_misplaced() {
    in_each_era!(|w| {
        w.private(4);
        w.fill(3);
        let there = Policy::new(PolicyMode::Bind, NodeMask::of(1));
        let bind = |pages, misplaced| w.mm.mbind(w.at(0), pages * w.page(), there, misplaced);
        let refused = bind(2, Misplaced::Refuse);
        assert_eq!(refused, Err(MempolicyError::Misplaced));
        assert_eq!(bind(2, Misplaced::Stay), Ok(()));
        assert_eq!(w.nodes(3), [Ok(0); 3]);
        assert_eq!(bind(2, Misplaced::MoveOrFail(Which::Own)), Ok(()));
        assert_eq!(w.nodes(3), [Ok(1), Ok(1), Ok(0)]);
        assert_eq!(bind(2, Misplaced::Refuse), Ok(()));
        w.holds(w.thread, 3);
        let child = w.mm.fork().expect("memory");
        assert_eq!(
            bind(3, Misplaced::MoveOrFail(Which::Own)),
            Ok(()),
            "a child's, too"
        );
        assert_eq!(w.nodes(3), [Ok(1), Ok(1), Ok(0)]);
        assert_eq!(bind(3, Misplaced::MoveOrFail(Which::All)), Ok(()));
        assert_eq!(w.nodes(3), [Ok(1); 3]);
        w.holds(&child.thread(), 3);
        let back = Policy::new(PolicyMode::Bind, NodeMask::of(0));
        drop(child);
        assert_eq!(w.pool(), (4, 1, 1));
        assert_eq!(w.sys.resize_huge_pool_of(w.size, 0, 2), 2);
        let moved = w.mm.mbind(
            w.at(0),
            4 * w.page(),
            back,
            Misplaced::MoveOrFail(Which::All),
        );
        assert_eq!(moved, Err(MempolicyError::Misplaced), "two of three");
        w.holds(w.thread, 3);
        assert_eq!(w.mm.munmap(w.at(0), 4 * w.page()), Ok(()));
        assert_eq!(w.sys.resize_huge_pool_of(w.size, 0, EACH), EACH);
    });
}

/// Whoever asks where a huge page is gets it first, as of small ones.
#[test]
fn the_node_of_a_huge_page_is_told_and_follows_it() {
    in_each_era!(|w| {
        w.private(2);
        w.fill(1);
        let inside = VirtAddr(w.at(0).0 + 3 * SMALL);
        assert_eq!(w.thread.node_at(inside), Ok(0));
        assert_eq!(w.mm.move_page(w.at(0), 1), Ok(()));
        assert_eq!(w.thread.node_at(inside), Ok(1));
        assert_eq!(w.pool().0, EACH);
        assert_eq!(w.thread.node_at(w.at(1)), Ok(0));
        assert_eq!(w.pool().0, EACH - 1);
        assert_eq!(w.thread.node_at(w.at(2)), Err(MempolicyError::Fault));
    });
}
