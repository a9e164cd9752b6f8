//! Address spaces on small machines: whatever is allocated and freed, once, so that an interpreter
//! can run it too; then threads that fault while one unmaps.

use super::{on_all_cpus, rounds};
use crate::{Host, HostInstance, HostOptions, Prefault};
use minflt_addr::VirtAddr;
use minflt_mm::config::Reclamation;
use minflt_mm::{
    Advice, Config, Era, HugeSize, MapRequest, Mm, Place, Prot, Remap, RemapRequest, Reserve,
    Running, Sharing, ShmAttach, ShmPlace, ShmRequest, Swap, System, UffdMode, Wake, era,
    eras_of_huge_pages,
};
use minflt_pgtable::{Bits, ByteOrder, Caps, Facts, Huge, Level, Paging, X86_64};

type Machine<P> = Host<P, true>;

const PAGE: u64 = 4096;
const BASE: u64 = 1 << 30;

/// Rounds of each thread of a storm.
const ROUNDS: u64 = rounds(2_000);

fn at(page: u64) -> VirtAddr {
    VirtAddr(BASE + page * PAGE)
}

/// An era of each reclamation scheme.
const ERAS: [&str; 4] = ["linux-4.13", "spf-2017", "linux-6.4", "linux-6.15"];

fn eras() -> impl Iterator<Item = &'static Era> {
    ERAS.into_iter().filter_map(era)
}

fn boot<P: Paging>(config: Config, cpus: u32, swap: Swap<Machine<P>>) -> Running<Machine<P>> {
    let options = HostOptions {
        cpus,
        ram_bytes: 1 << 20,
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).unwrap();
    System::boot_with_swap(machine, config, swap).unwrap()
}

fn map(mm: &Mm<Machine<X86_64>>, first: u64, pages: u64) {
    let mapped = mm.mmap(Place::Fixed(at(first)), pages * PAGE, Prot::READ_WRITE);
    assert_eq!(mapped, Ok(at(first)));
}

/// Runs every scene on one CPU of a system of this era. None leaves anything.
fn every_scene(name: &str) {
    let sys = boot(era(name).unwrap().config, 1, Swap::Memory { pages: 8 });
    let _cpu = sys.machine().enter(0);
    for scene in [mappings, many_mappings, files, segments, swapped, watched] {
        scene(&sys);
    }
    let left = sys.check_ledger(&[]).unwrap();
    assert_eq!((left.anon, left.tables), (0, 0));
}

/// The shortest of all: a VMA is split in three, and these are merged and freed at once.
#[test]
fn a_split_vma_is_merged_and_freed_at_once() {
    let sys = boot(era(ERAS[0]).unwrap().config, 1, Swap::None);
    let _cpu = sys.machine().enter(0);
    watched(&sys);
    sys.check_ledger(&[]).unwrap();
}

#[test]
fn what_is_freed_at_once_has_no_user() {
    every_scene(ERAS[0]);
}

#[test]
fn what_waits_for_sleepable_readers_is_freed_whole() {
    every_scene(ERAS[1]);
}

#[test]
fn what_waits_for_readers_is_freed_whole() {
    every_scene(ERAS[2]);
}

#[test]
fn vmas_whose_memory_is_used_at_once_have_no_user() {
    every_scene(ERAS[3]);
}

#[test]
fn the_eras_have_every_lifetime() {
    let schemes = [
        Reclamation::Immediate,
        Reclamation::Srcu,
        Reclamation::Rcu,
        Reclamation::TypeStable,
    ];
    assert!(eras().map(|era| era.config.reclamation).eq(schemes));
}

fn mappings(sys: &System<Machine<X86_64>>) {
    let mm = sys.new_mm().unwrap();
    let thread = mm.thread();
    map(&mm, 0, 8);
    (0..8).for_each(|page| thread.store(at(page), page + 1).unwrap());
    // rrrrrrrr -> rr--rrrr -> rrrrrrrr -> rrrr.rrr
    mm.mprotect(at(2), 2 * PAGE, Prot::NONE).unwrap();
    mm.mprotect(at(2), 2 * PAGE, Prot::READ_WRITE).unwrap();
    mm.munmap(at(4), PAGE).unwrap();
    mm.madvise(at(5), PAGE, Advice::DontNeed).unwrap();
    assert_eq!(
        [2, 5, 6].map(|page| thread.load(at(page))),
        [Ok(3), Ok(0), Ok(7)]
    );
    thread
        .mremap(&RemapRequest {
            old: at(0),
            old_len: 4 * PAGE,
            new_len: 4 * PAGE,
            how: Remap::Fixed(at(1024)),
        })
        .unwrap();
    // A child, of it a child, and each copies a page of its own.
    let child = mm.fork().unwrap();
    let grandchild = child.fork().unwrap();
    for (mm, value) in [(&mm, 11), (&child, 12), (&grandchild, 13)] {
        mm.thread().store(at(1025), value).unwrap();
    }
    drop(child);
    assert_eq!(grandchild.thread().load(at(1024)), Ok(1));
    assert_eq!(grandchild.thread().load(at(1025)), Ok(13));
    drop(grandchild);
    assert_eq!(thread.load(at(1025)), Ok(11));
    sys.run_deferred();
}

/// More than a node of the tree holds, so that nodes are split and thrown away.
fn many_mappings(sys: &System<Machine<X86_64>>) {
    let mappings = if cfg!(miri) { 40 } else { 100 };
    let mm = sys.new_mm().unwrap();
    let thread = mm.thread();
    for n in 0..mappings {
        map(&mm, 2 * n, 1);
        thread.store(at(2 * n), n).unwrap();
    }
    for n in (0..mappings).filter(|n| n % 3 > 0) {
        mm.munmap(at(2 * n), PAGE).unwrap();
        sys.run_deferred();
    }
    assert_eq!(thread.load(at(6)), Ok(3));
    mm.munmap(at(0), 2 * mappings * PAGE).unwrap();
}

fn files(sys: &System<Machine<X86_64>>) {
    let mm = sys.new_mm().unwrap();
    let thread = mm.thread();
    let file = sys.new_file(80 * PAGE).unwrap();
    let request = MapRequest::new(Place::Fixed(at(0)), 80 * PAGE, Prot::READ_WRITE);
    for (first, sharing) in [(0, Sharing::Shared), (128, Sharing::Private)] {
        let place = Place::Fixed(at(first));
        let request = MapRequest { place, ..request };
        mm.mmap_file(&request, &file, 0, sharing).unwrap();
        thread.store(at(first), 5).unwrap();
        thread.store(at(first + 70), 6).unwrap();
    }
    assert_eq!(thread.load(at(0)), Ok(5));
    let child = mm.fork().unwrap();
    file.truncate(8 * PAGE).unwrap();
    assert!(thread.load(at(70)).is_err());
    drop(child);
    mm.munmap(at(2), PAGE).unwrap();
    drop(file);
    mm.munmap(at(0), 256 * PAGE).unwrap();
}

fn segments(sys: &System<Machine<X86_64>>) {
    let mm = sys.new_mm().unwrap();
    let thread = mm.thread();
    let id = mm.shmget(&ShmRequest::private(2 * PAGE)).unwrap();
    let there = ShmPlace::Free(at(512));
    mm.shmat(id, &ShmAttach::new(there)).unwrap();
    thread.store(at(512), 9).unwrap();
    sys.shmctl_remove(id).unwrap();
    mm.shmdt(at(512)).unwrap();
}

fn swapped(sys: &System<Machine<X86_64>>) {
    let mm = sys.new_mm().unwrap();
    let thread = mm.thread();
    map(&mm, 0, 4);
    (0..4).for_each(|page| thread.store(at(page), page + 1).unwrap());
    let child = mm.fork().unwrap();
    mm.madvise(at(0), 4 * PAGE, Advice::PageOut).unwrap();
    assert_eq!(thread.load(at(3)), Ok(4));
    assert_eq!(child.thread().store(at(2), 7), Ok(()));
    drop(child);
    assert_eq!(thread.load(at(2)), Ok(3));
}

fn watched(sys: &System<Machine<X86_64>>) {
    let mm = sys.new_mm().unwrap();
    map(&mm, 0, 4);
    let uffd = mm.userfaultfd().unwrap();
    uffd.register(at(1), 2 * PAGE, UffdMode::Missing).unwrap();
    uffd.zeropage(at(1), PAGE, Wake::Yes).unwrap();
    assert_eq!(mm.thread().load(at(1)), Ok(0));
    uffd.unregister(at(0), 4 * PAGE).unwrap();
}

/// Tables of x86-64, but for those below level 2, which are so small that huge pages are, too: of
/// 32 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Small;

impl Facts for Small {
    type Word = u64;
    const ID: &'static str = "small";
    const NAME: &'static str = "x86-64 with small tables";
    const MANUAL: &'static str = "none";
    const SHIFT: u32 = X86_64::SHIFT;
    const TREE: &'static [Level] = &[
        Level {
            bits: 3,
            ..X86_64::TREE[0]
        },
        Level {
            bits: 3,
            ..X86_64::TREE[1]
        },
        X86_64::TREE[2],
        X86_64::TREE[3],
    ];
    const USER_END: u64 = 1 << 36;
    const BITS: Bits = X86_64::BITS;
    const BYTES: ByteOrder = X86_64::BYTES;
    const CAPS: Caps = X86_64::CAPS;
    const HUGE: Option<Huge> = X86_64::HUGE;
}

#[test]
fn huge_pages_are_mapped_shared_and_given_back() {
    // The newest two, one of each lock, where it takes long.
    let skipped = if cfg!(miri) {
        eras_of_huge_pages().count() - 2
    } else {
        0
    };
    for era in eras_of_huge_pages().skip(skipped) {
        let sys = boot::<Small>(era.config, 1, Swap::None);
        let _cpu = sys.machine().enter(0);
        let huge = HugeSize::Large.bytes::<Small>();
        assert_eq!(sys.resize_huge_pool(6), 6, "{}", era.name);
        let mm = sys.new_mm().unwrap();
        let file = sys.new_huge_file(16 * huge).unwrap();
        let map = |mm: &Mm<Machine<Small>>, first: u64, sharing| {
            let place = Place::Fixed(VirtAddr(BASE + first * huge));
            let request = MapRequest::new(place, 16 * huge, Prot::READ_WRITE);
            let request = MapRequest {
                reserve: Reserve::NoReserve,
                ..request
            };
            mm.mmap_file(&request, &file, 0, sharing).unwrap();
        };
        map(&mm, 0, Sharing::Shared);
        map(&mm, 16, Sharing::Private);
        mm.thread().store(VirtAddr(BASE), 1).unwrap();
        let child = mm.fork().unwrap();
        child.thread().store(VirtAddr(BASE + 16 * huge), 2).unwrap();
        assert_eq!(mm.thread().load(VirtAddr(BASE + 16 * huge)), Ok(1));
        child.munmap(VirtAddr(BASE), 8 * huge).unwrap();
        mm.munmap(VirtAddr(BASE + 20 * huge), huge).unwrap();
        file.truncate(0).unwrap();
        drop((child, file));
        drop(mm);
        assert_eq!(sys.resize_huge_pool(0), 0);
        sys.check_ledger(&[]).expect(era.name);
    }
}

/// Two CPUs fault and fork, a third splits, unmaps and maps again beside them.
#[test]
fn threads_fault_while_another_unmaps() {
    for era in eras() {
        let sys = boot::<X86_64>(era.config, 3, Swap::None);
        let mm = {
            let _cpu = sys.machine().enter(0);
            let mm = sys.new_mm().unwrap();
            map(&mm, 0, 8);
            mm
        };
        on_all_cpus(sys.machine(), |cpu| {
            let thread = mm.thread();
            for round in 0..ROUNDS {
                let page = (round * 3 + u64::from(cpu)) % 8;
                match cpu {
                    0 => {
                        mm.mprotect(at(page), PAGE, Prot::READ).unwrap();
                        mm.munmap(at(page), PAGE).unwrap();
                        map(&mm, page, 1);
                    }
                    1 if round % 4 == 1 => {
                        let child = mm.fork().unwrap();
                        // The page may be away.
                        let _ = child.thread().store(at(page), 5);
                    }
                    _ => {
                        let _ = thread.store(at(page), round);
                        let _ = thread.load(at((page + 1) % 8));
                    }
                }
                sys.run_deferred();
            }
        });
        let _cpu = sys.machine().enter(0);
        drop(mm);
        let left = sys.check_ledger(&[]).expect(era.name);
        assert_eq!((left.anon, left.tables), (0, 0), "{}", era.name);
        assert_eq!(sys.machine().failed(), None, "{}", era.name);
    }
}
