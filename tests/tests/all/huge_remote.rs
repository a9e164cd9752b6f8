//! Huge pages of another address space: read, written and pinned, and what that does to
//! reservations and to children.

use crate::small_tables::Small;
use minflt_addr::VirtAddr;
use minflt_host::Host;
use minflt_mm::{
    Advice, Config, Event, FileHandle, Force, HugeSize, MapRequest, MmHandle, MovePageError,
    NegativeControl, NoMemory, Place, Prot, RemoteError, Sharing, Signal, Swap, System, Thread,
    era, eras_of_huge_pages,
};
use minflt_pgtable::{Access, Paging, X86_64};
use minflt_tests::world::{alone, boot_on, machine};

type Machine<P> = Host<P, true>;
type Mm<'m, P> = MmHandle<'m, Machine<P>>;

const SMALL: u64 = 4096;
/// Pages of each of two nodes' pools.
const EACH: u64 = 4;
const POOL: u64 = 2 * EACH;

struct World<'w, P: Paging> {
    sys: &'w System<Machine<P>>,
    mm: &'w Mm<'w, P>,
    thread: &'w Thread<'w, Machine<P>>,
    size: HugeSize,
}

fn in_one<P: Paging>(config: Config, size: HugeSize, test: &impl Fn(&World<'_, P>)) {
    let sys = boot_on::<Machine<P>>(machine(2, 64 << 20).with_nodes(2), config, Swap::None);
    {
        let _cpu = sys.machine().enter(0);
        for node in 0..2 {
            assert_eq!(sys.resize_huge_pool_of(size, node, EACH), EACH);
        }
    }
    alone("", &sys, |mm| {
        test(&World {
            sys: &sys,
            mm,
            thread: &mm.thread(),
            size,
        });
    });
    let pool = sys.huge_pool_of_size(size);
    let counted = (pool.total, pool.free, pool.reserved);
    assert_eq!(counted, (POOL, POOL, 0), "all pages are back");
}

fn each_era<P: Paging>(size: HugeSize, test: impl Fn(&World<'_, P>)) {
    for era in eras_of_huge_pages() {
        in_one(era.config, size, &test);
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

impl<'w, P: Paging> World<'w, P> {
    fn page(&self) -> u64 {
        self.size.bytes::<P>()
    }

    fn at(&self, page: u64, bytes: u64) -> VirtAddr {
        VirtAddr((1 << 34) + page * self.page() + bytes)
    }

    fn request(&self, page: u64, pages: u64, prot: Prot) -> MapRequest {
        MapRequest::new(Place::Fixed(self.at(page, 0)), pages * self.page(), prot)
    }

    fn map(&self, page: u64, pages: u64, prot: Prot, sharing: Sharing) {
        let request = self.request(page, pages, prot);
        let mapped = self.mm.mmap_huge_of(self.size, &request, sharing);
        assert_eq!(mapped, Ok(self.at(page, 0)));
    }

    fn file(&self, pages: u64) -> FileHandle<'w, Machine<P>> {
        let file = self.sys.new_huge_file_of(self.size, pages * self.page());
        file.expect("whole pages")
    }

    fn map_file(&self, page: u64, pages: u64, file: &FileHandle<'_, Machine<P>>, how: Sharing) {
        let request = self.request(page, pages, Prot::READ_WRITE);
        let mapped = self.mm.mmap_file(&request, file, 0, how);
        assert_eq!(mapped, Ok(self.at(page, 0)));
    }

    fn store(&self, page: u64, value: u64) {
        assert_eq!(self.thread.store(self.at(page, SMALL), value), Ok(()));
    }

    fn load(&self, page: u64) -> Result<u64, Signal> {
        self.thread.load(self.at(page, SMALL))
    }

    fn protect(&self, page: u64, prot: Prot) {
        let done = self.mm.mprotect(self.at(page, 0), self.page(), prot);
        assert_eq!(done, Ok(()));
    }

    fn pin(
        &self,
        page: u64,
        access: Access,
    ) -> Result<minflt_mm::Pin<'w, Machine<P>>, RemoteError> {
        self.mm.pin(self.at(page, SMALL), access)
    }

    /// Free and reserved pages of the pools.
    fn pool(&self) -> (u64, u64) {
        let pool = self.sys.huge_pool_of_size(self.size);
        (pool.free, pool.reserved)
    }

    fn count(&self, event: Event) -> u64 {
        self.sys.count_of(event)
    }

    fn fork(&self) -> Result<Mm<'w, P>, NoMemory> {
        self.mm.fork()
    }

    fn holds(&self, child: &Mm<'_, P>) {
        let all = self.sys.check_ledger(&[self.mm, child]);
        all.expect("it adds up");
    }
}

/// The word at an address, read by another process.
fn read<P: Paging>(mm: &Mm<'_, P>, at: VirtAddr, force: Force) -> Result<u64, RemoteError> {
    let mut word = [0xaa; 8];
    let done = mm.remote_read(at, &mut word, force)?;
    assert_eq!(done, 8);
    Ok(u64::from_le_bytes(word))
}

fn write<P: Paging>(
    mm: &Mm<'_, P>,
    at: VirtAddr,
    word: u64,
    force: Force,
) -> Result<usize, RemoteError> {
    mm.remote_write(at, &word.to_le_bytes(), force)
}

#[test]
fn another_process_reads_and_writes_huge_pages() {
    in_each_era!(|world| {
        world.map(0, 2, Prot::READ_WRITE, Sharing::Shared);
        world.map(4, 2, Prot::READ_WRITE, Sharing::Private);
        for page in [0, 4] {
            world.store(page, 5);
            assert_eq!(read(world.mm, world.at(page, SMALL), Force::No), Ok(5));
            // Across small pages, and into a page that nobody has touched.
            let last = world.page() - SMALL - 100;
            let bytes: Vec<u8> = (0..2 * SMALL + 200).map(|n| (n % 251) as u8).collect();
            let at = world.at(page, last);
            let wrote = world.mm.remote_write(at, &bytes, Force::No);
            assert_eq!(wrote, Ok(bytes.len()));
            let mut found = vec![0; bytes.len()];
            let done = world.mm.remote_read(at, &mut found, Force::No);
            assert_eq!((done, &found), (Ok(bytes.len()), &bytes));
            let word = |from: usize| {
                let word = bytes[from..].first_chunk().expect("enough");
                u64::from_le_bytes(*word)
            };
            let next = world.thread.load(world.at(page + 1, 0));
            assert_eq!(next, Ok(word(SMALL as usize + 100)));
            assert_eq!(world.load(page), Ok(5), "what was there stays");
        }
        assert_eq!(world.pool(), (POOL - 4, 0), "of what was reserved");
        let mut bytes = vec![0; 2 * SMALL as usize];
        let end = world.at(1, world.page() - SMALL);
        let done = world.mm.remote_read(end, &mut bytes, Force::No);
        assert_eq!(done, Ok(SMALL as usize), "up to the mapping's end");
    });
}

/// A debugger reads and writes what nobody may, and no right comes of it; what is shared is never
/// written so.
#[test]
fn force_reads_and_writes_private_huge_pages() {
    in_each_era!(|world| {
        let file = world.file(1);
        world.map_file(8, 1, &file, Sharing::Shared);
        world.store(8, 3);
        for (page, sharing) in [(0, Sharing::Private), (4, Sharing::Shared)] {
            world.map_file(page, 1, &file, sharing);
            world.map(page + 1, 1, Prot::NONE, sharing);
            for (n, there) in [(page, 3), (page + 1, 0)] {
                let at = world.at(n, SMALL);
                for prot in [Prot::NONE, Prot::READ] {
                    world.protect(n, prot);
                    assert_eq!(read(world.mm, at, Force::Yes), Ok(there), "{prot}");
                    let fault = Err(RemoteError::Fault);
                    assert_eq!(write(world.mm, at, 1, Force::No), fault);
                    if sharing == Sharing::Shared {
                        assert_eq!(write(world.mm, at, 1, Force::Yes), fault);
                    }
                }
                world.protect(n, Prot::NONE);
                assert_eq!(read(world.mm, at, Force::No), Err(RemoteError::Fault));
                assert_eq!(world.load(n), Err(Signal::AccErr));
                if sharing == Sharing::Private {
                    assert_eq!(write(world.mm, at, 9, Force::Yes), Ok(8));
                    assert_eq!(read(world.mm, at, Force::Yes), Ok(9));
                    assert_eq!(world.load(n), Err(Signal::AccErr));
                    world.protect(n, Prot::READ);
                    assert_eq!(world.load(n), Ok(9));
                    assert_eq!(world.thread.store(at, 1), Err(Signal::AccErr));
                }
                world.protect(n, Prot::READ_WRITE);
                world.store(n, 10);
                assert_eq!(read(world.mm, at, Force::No), Ok(10));
                if sharing == Sharing::Private {
                    assert_eq!(world.load(8), Ok(3), "the file's page is as it was");
                }
            }
        }
    });
}

#[test]
fn a_forced_write_copies_a_huge_page_that_a_child_has() {
    in_each_era!(|world| {
        world.map(0, 1, Prot::READ_WRITE, Sharing::Private);
        world.store(0, 1);
        let child = world.fork().expect("memory");
        for prot in [Prot::READ, Prot::NONE] {
            world.protect(0, prot);
            let at = world.at(0, SMALL);
            assert_eq!(write(world.mm, at, 2, Force::Yes), Ok(8));
            assert_eq!(child.thread().load(at), Ok(1));
            assert_eq!(read(world.mm, at, Force::Yes), Ok(2));
        }
        world.holds(&child);
    });
}

#[test]
fn what_a_fault_would_signal_is_no_memory_of_another() {
    in_each_era!(|world| {
        let file = world.file(1);
        world.map_file(0, 1, &file, Sharing::Shared);
        assert_eq!(file.truncate(0), Ok(()));
        assert_eq!(
            read(world.mm, world.at(0, 0), Force::No),
            Err(RemoteError::Fault)
        );
        // All that is left is reserved for others.
        world.map(4, 1, Prot::READ_WRITE, Sharing::Private);
        let child = world.fork().expect("memory");
        world.map(5, POOL - 1, Prot::READ_WRITE, Sharing::Private);
        let at = world.at(4, 0);
        assert_eq!(write(&child, at, 1, Force::No), Err(RemoteError::Fault));
        assert_eq!(child.pin(at, Access::Read).err(), Some(RemoteError::Fault));
        assert_eq!(write(world.mm, at, 1, Force::No), Ok(8));
        world.holds(&child);
    });
}

#[test]
fn a_write_by_another_copies_what_a_child_has() {
    in_each_era!(|world| {
        world.map(0, 1, Prot::READ_WRITE, Sharing::Private);
        world.store(0, 1);
        let child = world.fork().expect("memory");
        let at = world.at(0, SMALL);
        assert_eq!(read(&child, at, Force::No), Ok(1));
        assert_eq!(world.pool(), (POOL - 1, 0), "one page for both");
        assert_eq!(write(&child, at, 2, Force::No), Ok(8));
        assert_eq!((world.load(0), child.thread().load(at)), (Ok(1), Ok(2)));
        assert_eq!(write(world.mm, at, 3, Force::No), Ok(8));
        assert_eq!((world.load(0), child.thread().load(at)), (Ok(3), Ok(2)));
        assert_eq!(world.pool(), (POOL - 2, 0));
        assert_eq!(world.count(Event::HugeCopies), 1);
        world.holds(&child);
    });
}

/// A pin for loads of a private mapping's page: of a file, shared with a child, nobody's yet.
fn pins_see_stores<P: Paging>(world: &World<'_, P>) -> bool {
    let file = world.file(1);
    world.map_file(0, 1, &file, Sharing::Shared);
    world.store(0, 7);
    world.map_file(1, 1, &file, Sharing::Private);
    world.map(2, 2, Prot::READ_WRITE, Sharing::Private);
    assert_eq!(world.load(1), Ok(7));
    world.store(2, 8);
    let child = world.fork().expect("memory");
    let mut seen = true;
    for (n, before) in [(1, 7), (2, 8), (3, 0)] {
        let pin = world.pin(n, Access::Read).expect("there");
        assert_eq!(pin.load(0), Ok(before));
        assert_eq!(pin.store(0, 1), Err(RemoteError::Fault));
        world.store(n, 20 + n);
        seen &= pin.load(0) == Ok(20 + n);
        assert_eq!(child.thread().load(world.at(n, SMALL)), Ok(before));
    }
    assert_eq!(world.load(0), Ok(7), "the file's page is as it was");
    // A shared mapping's page is the file's, and that is where stores go.
    let pin = world.pin(0, Access::Read).expect("there");
    world.store(0, 9);
    assert_eq!(pin.load(0), Ok(9));
    drop(pin);
    world.holds(&child);
    seen
}

#[test]
fn a_pin_for_loads_of_a_huge_page_sees_the_owners_stores() {
    in_each_era!(|world| {
        assert!(pins_see_stores(world));
    });
    let control = era("linux-6.15").expect("an era").config;
    in_one::<X86_64>(
        control.with_negative_control(Some(NegativeControl::PinsShared)),
        HugeSize::Large,
        &|world| assert!(!pins_see_stores(world)),
    );
}

fn stays_across_a_fork<P: Paging>(world: &World<'_, P>) -> bool {
    world.map(0, 3, Prot::READ_WRITE, Sharing::Private);
    (0..3).for_each(|n| world.store(n, n));
    let read = world.pin(0, Access::Read).expect("there");
    let write = world.pin(1, Access::Write).expect("there");
    let child = world.fork().expect("memory");
    let thread = child.thread();
    let mut stays = world.count(Event::ForkCopies) == 2;
    for (n, pin) in [(0, &read), (1, &write)] {
        assert_eq!(thread.load(world.at(n, SMALL)), Ok(n));
        world.store(n, 10 + n);
        stays &= pin.load(0) == Ok(10 + n);
        assert_eq!(thread.store(world.at(n, SMALL), 20 + n), Ok(()));
        assert_eq!(world.load(n), Ok(10 + n));
    }
    drop((read, write));
    drop(thread);
    world.holds(&child);
    stays
}

#[test]
fn a_pinned_huge_page_stays_its_owners_across_a_fork() {
    in_each_era!(|world| {
        assert!(stays_across_a_fork(world));
    });
    let control = era("linux-6.15").expect("an era").config;
    in_one::<X86_64>(
        control.with_negative_control(Some(NegativeControl::ForkSharesPinned)),
        HugeSize::Large,
        &|world| assert!(!stays_across_a_fork(world)),
    );
}

#[test]
fn a_fork_without_a_page_to_copy_a_pinned_one_to_fails() {
    in_each_era!(|world| {
        world.map(0, POOL, Prot::READ_WRITE, Sharing::Private);
        world.store(0, 1);
        let pin = world.pin(0, Access::Write).expect("there");
        assert_eq!(world.fork().err(), Some(NoMemory));
        world.store(0, 2);
        assert_eq!(pin.load(0), Ok(2));
        drop(pin);
        drop(world.fork().expect("nothing is pinned"));
    });
}

/// Stores are taken back and allowed again: the page stays the one that is pinned.
#[test]
fn mprotect_leaves_a_pinned_huge_page_its_owners() {
    in_each_era!(|world| {
        world.map(0, 1, Prot::READ_WRITE, Sharing::Private);
        let pin = world.pin(0, Access::Read).expect("mapped");
        for prot in [Prot::READ, Prot::NONE] {
            world.store(0, 4);
            world.protect(0, prot);
            world.protect(0, Prot::READ_WRITE);
            world.store(0, 5);
            assert_eq!(pin.load(0), Ok(5));
        }
        assert_eq!(world.count(Event::HugeCopies), 0);
    });
}

#[test]
fn a_pinned_huge_page_outlives_its_mapping_and_is_not_moved() {
    in_each_era!(|world| {
        world.map(0, 2, Prot::READ_WRITE, Sharing::Private);
        world.store(0, 1);
        let pin = world.pin(0, Access::Write).expect("mapped");
        for node in 0..2 {
            let moved = world.mm.move_page(world.at(0, 0), node);
            assert!(
                matches!(moved, Ok(()) | Err(MovePageError::Busy)),
                "{moved:?}"
            );
        }
        assert_eq!(world.count(Event::PagesMigrated), 0);
        pin.store(0, 2).expect("a word");
        assert_eq!(world.load(0), Ok(2));
        let (at, len) = (world.at(0, 0), world.page());
        assert_eq!(world.mm.madvise(at, len, Advice::DontNeed), Ok(()));
        assert_eq!(pin.load(0), Ok(2));
        assert_eq!(world.pool(), (POOL - 1, 1), "one is pinned, one reserved");
        assert_eq!(world.load(0), Ok(0), "a page that nobody reserved");
        assert_eq!(world.mm.munmap(at, 2 * len), Ok(()));
        assert_eq!(world.pool(), (POOL - 1, 0));
        pin.store(0, 3).expect("a word");
        assert_eq!(pin.load(0), Ok(3));
        drop(pin);
        assert_eq!(world.pool(), (POOL, 0));
    });
}
