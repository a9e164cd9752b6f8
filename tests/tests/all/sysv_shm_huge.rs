//! System V shared memory of huge pages (`SHM_HUGETLB`): what is reserved when, where it may be
//! attached, what is left of it in parts.
//!
//! What each case expects, counts and error numbers, is what Linux 6.18 says to the same steps
//! (but for sizes of huge pages that it has and the library does not).

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, ERAS, Errno, MmHandle, Prot, Remap, RemapRequest, Reserve, ShmAttach, ShmCreate, ShmId,
    ShmKey, ShmLimits, ShmPages, ShmPlace, ShmRequest, ShmRound, Signal, System, Thread,
};
use minflt_tests::world::{Machine, PAGE, alone, boot};

const HUGE: u64 = 512 * PAGE;
const POOL: u64 = 8;
const KEY: ShmKey = ShmKey(0x4d46_4c54);

const fn at(number: u64) -> VirtAddr {
    VirtAddr((1 << 32) + number * HUGE)
}

struct World<'w> {
    sys: &'w System<Machine>,
    mm: &'w MmHandle<'w, Machine>,
    thread: &'w Thread<'w, Machine>,
}

/// In the oldest era, in the two of the posting, and in the newest; with a pool of eight pages. The
/// test lets no segment stay.
fn in_some_eras(test: impl Fn(&World<'_>)) {
    let named = [
        "linux-2.6.10",
        "linux-5.19",
        "hugetlb-vma-lock-2022",
        "linux-6.15",
    ];
    for era in ERAS.iter().filter(|era| named.contains(&era.name)) {
        let sys = boot(era.config, 1, 32 << 20);
        {
            let _cpu = sys.machine().enter(0);
            assert_eq!(sys.resize_huge_pool(POOL), POOL, "{}", era.name);
        }
        alone(era.name, &sys, |mm| {
            test(&World {
                sys: &sys,
                mm,
                thread: &mm.thread(),
            });
        });
        let pool = sys.huge_pool();
        assert_eq!((pool.free, pool.reserved), (POOL, 0), "{}", era.name);
    }
}

const fn huge(bytes: u64) -> ShmRequest {
    ShmRequest::private_huge(bytes)
}

impl World<'_> {
    fn get(&self, request: &ShmRequest) -> Result<ShmId, Errno> {
        self.mm.shmget(request).map_err(Errno::from)
    }

    fn made(&self, bytes: u64) -> ShmId {
        self.get(&huge(bytes)).expect("the pool has them")
    }

    fn attach(&self, id: ShmId, place: ShmPlace) -> Result<VirtAddr, Errno> {
        let attached = self.mm.shmat(id, &ShmAttach::new(place));
        attached.map_err(Errno::from)
    }

    fn attach_at(&self, id: ShmId, number: u64) {
        let attached = self.attach(id, ShmPlace::Free(at(number)));
        assert_eq!(attached, Ok(at(number)));
    }

    fn detach(&self, number: u64) -> Result<(), Errno> {
        self.mm.shmdt(at(number)).map_err(Errno::from)
    }

    fn attached(&self, id: ShmId) -> u64 {
        self.sys.shmctl_stat(id).expect("there").attached
    }

    fn remove(&self, id: ShmId) {
        assert_eq!(self.sys.shmctl_remove(id), Ok(()));
    }

    fn protect(&self, addr: VirtAddr, len: u64, prot: Prot) -> Result<(), Errno> {
        self.mm.mprotect(addr, len, prot).map_err(Errno::from)
    }

    fn unmap(&self, addr: VirtAddr, len: u64) -> Result<(), Errno> {
        self.mm.munmap(addr, len).map_err(Errno::from)
    }

    /// Free pages of the pool, and how many of them are reserved.
    fn pool(&self) -> (u64, u64) {
        let pool = self.sys.huge_pool();
        (pool.free, pool.reserved)
    }

    fn load(&self, number: u64) -> Result<u64, Signal> {
        self.thread.load(at(number))
    }

    fn store(&self, number: u64, word: u64) -> Result<(), Signal> {
        self.thread.store(at(number), word)
    }
}

#[test]
fn all_pages_are_reserved_when_it_is_made() {
    in_some_eras(|w| {
        let id = w.made(3 * HUGE - 5000);
        assert_eq!(w.pool(), (8, 3));
        let status = w.sys.shmctl_stat(id).expect("there");
        assert_eq!((status.bytes, status.attached), (3 * HUGE - 5000, 0));
        w.attach_at(id, 0);
        assert_eq!(w.pool(), (8, 3), "the mapping reserves none");
        assert_eq!(w.store(0, 1), Ok(()));
        let last = VirtAddr(at(3).0 - 8);
        assert_eq!(w.thread.store(last, 7), Ok(()), "behind what was asked for");
        assert_eq!(w.pool(), (6, 1));
        assert_eq!(w.store(3, 1), Err(Signal::MapErr));
        assert_eq!(w.get(&huge(8 * HUGE)), Err(Errno::ENOMEM), "5 are free");
        assert_eq!(w.get(&huge(6 * HUGE)), Err(Errno::ENOMEM));
        assert_eq!(w.pool(), (6, 1));
        assert_eq!(w.detach(0), Ok(()));
        assert_eq!(w.pool(), (6, 1), "its pages stay");
        w.attach_at(id, 0);
        assert_eq!(w.load(0), Ok(1));
        assert_eq!(w.thread.load(last), Ok(7));
        w.remove(id);
        assert_eq!(w.pool(), (6, 1), "attached");
        assert_eq!(w.detach(0), Ok(()));
        assert_eq!(w.pool(), (8, 0));
        assert_eq!(
            w.sys.shmctl_stat(id).map_err(Errno::from),
            Err(Errno::EINVAL)
        );
    });
}

#[test]
fn it_is_attached_where_huge_pages_start() {
    in_some_eras(|w| {
        let id = w.made(2 * HUGE);
        let within = VirtAddr(at(0).0 + PAGE);
        let round = |place| ShmAttach {
            round: ShmRound::Down,
            ..ShmAttach::new(place)
        };
        for place in [ShmPlace::Free(within), ShmPlace::Over(within)] {
            assert_eq!(w.attach(id, place), Err(Errno::EINVAL));
            let rounded = w.mm.shmat(id, &round(place));
            assert_eq!(
                rounded.map_err(Errno::from),
                Err(Errno::EINVAL),
                "to a small page"
            );
        }
        let early = ShmPlace::Free(VirtAddr(at(1).0 + 100));
        assert_eq!(w.attach(id, early), Err(Errno::EINVAL));
        let rounded = w.mm.shmat(id, &round(early));
        assert_eq!(rounded.map_err(Errno::from), Ok(at(1)));
        assert_eq!(w.detach(1), Ok(()));
        let anywhere = w.attach(id, ShmPlace::Any).expect("room");
        assert_eq!(anywhere.0 % HUGE, 0);
        assert_eq!(w.mm.shmdt(anywhere), Ok(()));
        w.attach_at(id, 0);
        assert_eq!(
            w.attach(id, ShmPlace::Free(at(1))),
            Err(Errno::EINVAL),
            "taken"
        );
        assert_eq!(w.store(0, 5), Ok(()));
        assert_eq!(w.attach(id, ShmPlace::Over(at(1))), Ok(at(1)));
        assert_eq!(w.attached(id), 2);
        assert_eq!(w.load(1), Ok(5), "the first page again");
        assert_eq!(w.detach(1), Ok(()));
        assert_eq!((w.load(0), w.load(1)), (Ok(5), Err(Signal::MapErr)));
        assert_eq!(w.detach(0), Ok(()));
        w.remove(id);
    });
}

#[test]
fn it_comes_apart_at_huge_pages_only() {
    in_some_eras(|w| {
        let id = w.made(3 * HUGE);
        w.attach_at(id, 0);
        (0..3).for_each(|n| assert_eq!(w.store(n, 10 + n), Ok(())));
        assert_eq!(w.unmap(at(0), PAGE), Err(Errno::EINVAL));
        assert_eq!(w.unmap(VirtAddr(at(0).0 + PAGE), PAGE), Err(Errno::EINVAL));
        assert_eq!(w.protect(at(0), PAGE, Prot::READ), Err(Errno::EINVAL));
        assert_eq!(w.protect(at(0), HUGE, Prot::READ), Ok(()));
        assert_eq!(w.attached(id), 2);
        assert_eq!(
            (w.store(0, 1), w.store(1, 11)),
            (Err(Signal::AccErr), Ok(()))
        );
        assert_eq!(w.unmap(at(1), HUGE), Ok(()));
        assert_eq!(w.attached(id), 2);
        assert_eq!((w.load(0), w.load(2)), (Ok(10), Ok(12)));
        assert_eq!(w.pool(), (5, 0));
        let removed = w.mm.madvise(at(0), HUGE, Advice::Remove);
        assert_eq!(removed, Ok(()), "a hole needs the right only");
        assert_eq!((w.pool(), w.load(0)), ((6, 0), Ok(0)));
        assert_eq!(w.detach(1), Err(Errno::EINVAL));
        assert_eq!(w.detach(0), Ok(()), "both parts");
        assert_eq!(w.attached(id), 0);
        assert_eq!(w.load(2), Err(Signal::MapErr));
        w.remove(id);
    });
}

#[test]
fn for_loads_only_is_for_good() {
    in_some_eras(|w| {
        let id = w.made(HUGE);
        let read_only = ShmAttach::read_only(ShmPlace::Free(at(0)));
        assert_eq!(w.mm.shmat(id, &read_only), Ok(at(0)));
        assert_eq!(w.store(0, 1), Err(Signal::AccErr));
        assert_eq!(w.load(0), Ok(0));
        assert_eq!(w.protect(at(0), HUGE, Prot::READ_WRITE), Err(Errno::EACCES));
        w.remove(id);
        assert_eq!(w.detach(0), Ok(()));
    });
}

#[test]
fn others_find_it_by_its_key_whatever_pages_they_say() {
    in_some_eras(|w| {
        let keyed = |bytes, create, pages| ShmRequest {
            key: KEY,
            create,
            pages,
            ..ShmRequest::private(bytes)
        };
        let id = w.get(&keyed(2 * HUGE - 1, ShmCreate::IfMissing, ShmPages::Huge));
        let id = id.expect("the pool has them");
        let same = |bytes, pages| w.get(&keyed(bytes, ShmCreate::No, pages));
        assert_eq!(same(HUGE, ShmPages::Small), Ok(id));
        assert_eq!(same(HUGE, ShmPages::HugeOf(22)), Ok(id), "it is not made");
        assert_eq!(
            same(2 * HUGE, ShmPages::Huge),
            Err(Errno::EINVAL),
            "a byte less"
        );
        let again = w.get(&keyed(HUGE, ShmCreate::Exclusive, ShmPages::Huge));
        assert_eq!(again, Err(Errno::EEXIST));
        w.attach_at(id, 0);
        let child = w.mm.fork().expect("memory");
        assert_eq!(w.attached(id), 2);
        assert_eq!(child.thread().store(at(1), 9), Ok(()));
        assert_eq!(w.load(1), Ok(9));
        drop(child);
        assert_eq!((w.attached(id), w.pool()), (1, (7, 1)));
        w.remove(id);
        assert_eq!(w.detach(0), Ok(()));
    });
}

#[test]
fn what_moves_counts() {
    in_some_eras(|w| {
        let id = w.made(2 * HUGE);
        let remap = |old, old_len, new_len, how| {
            let request = RemapRequest {
                old,
                old_len,
                new_len,
                how,
            };
            w.thread.mremap(&request).map_err(Errno::from)
        };
        w.attach_at(id, 0);
        assert_eq!(remap(at(0), 2 * HUGE, HUGE, Remap::InPlace), Ok(at(0)));
        assert_eq!(w.attached(id), 1);
        assert_eq!(w.detach(1), Err(Errno::EINVAL));
        assert_eq!(w.detach(0), Ok(()));
        w.attach_at(id, 0);
        assert_eq!(w.store(1, 3), Ok(()));
        let moved = remap(at(0), 2 * HUGE, 2 * HUGE, Remap::Fixed(at(16)));
        assert_eq!((moved, w.attached(id)), (Ok(at(16)), 1));
        assert_eq!(w.load(17), Ok(3));
        let twice = remap(at(16), 0, 2 * HUGE, Remap::Fixed(at(32)));
        assert_eq!(twice, Err(Errno::EINVAL));
        assert_eq!(w.detach(0), Err(Errno::EINVAL));
        assert_eq!(w.detach(16), Ok(()));
        w.remove(id);
    });
}

#[test]
fn without_reserving_pages_are_had_or_not() {
    in_some_eras(|w| {
        let lax = w.get(&ShmRequest {
            reserve: Reserve::NoReserve,
            ..huge(20 * HUGE)
        });
        let lax = lax.expect("none is reserved");
        w.attach_at(lax, 0);
        assert_eq!(w.pool(), (8, 0));
        assert_eq!(w.store(0, 1), Ok(()));
        let strict = w.made(6 * HUGE);
        assert_eq!(w.pool(), (7, 6));
        assert_eq!((w.store(1, 1), w.store(2, 1)), (Ok(()), Err(Signal::Bus)));
        assert_eq!(w.load(5), Err(Signal::Bus));
        assert_eq!(w.pool(), (6, 6));
        w.remove(strict);
        assert_eq!(w.store(2, 1), Ok(()), "they are anybody's again");
        assert_eq!(w.detach(0), Ok(()));
        w.remove(lax);
    });
}

#[test]
fn what_is_asked_for_wrongly_says_so() {
    in_some_eras(|w| {
        let of = |shift, bytes| {
            w.get(&ShmRequest {
                pages: ShmPages::HugeOf(shift),
                ..huge(bytes)
            })
        };
        let id = of(21, HUGE).expect("the size there is");
        assert_eq!(w.pool(), (8, 1));
        assert_eq!(of(22, HUGE), Err(Errno::EINVAL), "no such size");
        assert_eq!(of(12, HUGE), Err(Errno::EINVAL), "a small page's");
        assert_eq!(w.get(&huge(0)), Err(Errno::EINVAL));
        assert_eq!(w.get(&huge(9 * HUGE)), Err(Errno::ENOMEM));
        w.sys.set_shm_limits(ShmLimits {
            bytes: HUGE,
            ..ShmLimits::default()
        });
        assert_eq!(w.get(&huge(HUGE + 1)), Err(Errno::EINVAL), "shmmax");
        w.remove(w.made(HUGE - 1));
        // Bytes count, not what they lie in.
        w.sys.set_shm_limits(ShmLimits {
            pages: 600,
            ..ShmLimits::default()
        });
        let small = w.get(&huge(88 * PAGE)).expect("512 + 88");
        assert_eq!(w.get(&huge(PAGE)), Err(Errno::ENOSPC), "shmall");
        w.remove(small);
        w.sys.set_shm_limits(ShmLimits {
            segments: 1,
            ..ShmLimits::default()
        });
        assert_eq!(w.get(&huge(HUGE)), Err(Errno::ENOSPC), "shmmni");
        assert_eq!(
            w.get(&huge(9 * HUGE)),
            Err(Errno::ENOMEM),
            "the pool is asked before"
        );
        assert_eq!(of(22, HUGE), Err(Errno::EINVAL), "and the size before that");
        assert_eq!(w.pool(), (8, 1), "nothing stays reserved");
        w.remove(id);
    });
}
