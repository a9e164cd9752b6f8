//! System V shared memory: what two address spaces see, who is counted, what goes when.
//!
//! What each case expects, counts and error numbers, is what Linux 6.18 says to the same steps.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, ERAS, Errno, LockAll, Mm, MmHandle, Overcommit, Place, Prot, Refuse, Remap,
    RemapRequest, Reserve, ShmAttach, ShmCreate, ShmId, ShmKey, ShmLimits, ShmPlace, ShmRequest,
    ShmRound, ShmStatus, Signal, System, Thread,
};
use minflt_tests::world::{Machine, PAGE, alone, boot, page as at};

const KEY: ShmKey = ShmKey(0x4d46_4c54);

struct World<'w> {
    sys: &'w System<Machine>,
    mm: &'w MmHandle<'w, Machine>,
    thread: &'w Thread<'w, Machine>,
}

/// In the oldest era, and in the newest. The test lets no segment stay.
fn in_two_eras(test: impl Fn(&World<'_>)) {
    for era in ERAS.first().into_iter().chain(ERAS.last()) {
        let sys = boot(era.config, 1, 16 << 20);
        alone(era.name, &sys, |mm| {
            test(&World {
                sys: &sys,
                mm,
                thread: &mm.thread(),
            });
        });
    }
}

fn get(mm: &Mm<Machine>, request: &ShmRequest) -> Result<ShmId, Errno> {
    mm.shmget(request).map_err(Errno::from)
}

fn keyed(bytes: u64, create: ShmCreate, mode: u16) -> ShmRequest {
    ShmRequest {
        key: KEY,
        create,
        mode,
        ..ShmRequest::private(bytes)
    }
}

impl World<'_> {
    fn private(&self, pages: u64) -> ShmId {
        get(self.mm, &ShmRequest::private(pages * PAGE)).expect("memory")
    }

    fn attach(&self, id: ShmId, how: &ShmAttach) -> Result<VirtAddr, Errno> {
        self.mm.shmat(id, how).map_err(Errno::from)
    }

    fn attach_at(&self, id: ShmId, page: u64) {
        let attached = self.attach(id, &free(at(page)));
        assert_eq!(attached, Ok(at(page)));
    }

    fn detach(&self, page: u64) -> Result<(), Errno> {
        self.mm.shmdt(at(page)).map_err(Errno::from)
    }

    fn stat(&self, id: ShmId) -> Result<ShmStatus, Errno> {
        self.sys.shmctl_stat(id).map_err(Errno::from)
    }

    fn attached(&self, id: ShmId) -> u64 {
        self.sys.shmctl_stat(id).expect("there").attached
    }

    fn remove(&self, id: ShmId) {
        assert_eq!(self.sys.shmctl_remove(id), Ok(()));
    }

    fn protect(&self, page: u64, pages: u64, prot: Prot) {
        assert_eq!(self.mm.mprotect(at(page), pages * PAGE, prot), Ok(()));
    }

    fn remap(&self, page: u64, pages: u64, new: u64, how: Remap) {
        let request = RemapRequest {
            old: at(page),
            old_len: pages * PAGE,
            new_len: new * PAGE,
            how,
        };
        let to = match how {
            Remap::Fixed(to) => to,
            _ => at(page),
        };
        assert_eq!(self.thread.mremap(&request), Ok(to));
    }
}

fn free(addr: VirtAddr) -> ShmAttach {
    ShmAttach::new(ShmPlace::Free(addr))
}

fn over(addr: VirtAddr) -> ShmAttach {
    ShmAttach::new(ShmPlace::Over(addr))
}

#[test]
fn two_address_spaces_see_each_others_stores() {
    for era in ERAS.first().into_iter().chain(ERAS.last()) {
        let sys = boot(era.config, 2, 16 << 20);
        let store_and_await = |cpu: u32, own: u64, others: u64| {
            let _cpu = sys.machine().enter(cpu);
            let mm = sys.new_mm().expect("memory");
            let id = get(&mm, &keyed(3 * PAGE, ShmCreate::IfMissing, 0o600)).expect("memory");
            let base = mm
                .shmat(id, &ShmAttach::new(ShmPlace::Any))
                .expect("a hole");
            let page = |number| VirtAddr(base.0 + number * PAGE);
            let thread = mm.thread();
            thread.store(page(own), 100 + own).expect("attached");
            while thread.load(page(others)) != Ok(100 + others) {
                std::thread::yield_now();
            }
            // The other one may have gone.
            let _removed = sys.shmctl_remove(id);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| store_and_await(0, 0, 2));
            scope.spawn(|| store_and_await(1, 2, 0));
        });
        assert_eq!(sys.machine().failed(), None, "{}", era.name);
        let _cpu = sys.machine().enter(0);
        let left = sys.check_ledger(&[]).expect(era.name);
        assert_eq!((left.file, left.tables), (0, 0), "{}", era.name);
    }
}

#[test]
fn a_removed_segment_goes_with_its_last_mapping() {
    in_two_eras(|w| {
        let id = get(w.mm, &keyed(4 * PAGE, ShmCreate::Exclusive, 0o640)).expect("memory");
        w.attach_at(id, 0);
        assert_eq!(w.thread.store(at(1), 7), Ok(()));
        w.remove(id);
        let found = w.stat(id).expect("still there");
        assert_eq!((found.key, found.removed), (ShmKey::PRIVATE, true));
        assert_eq!((found.bytes, found.mode), (4 * PAGE, 0o640));
        let space = w.mm.space();
        let ids = (found.attached, found.creator, found.last);
        assert_eq!(ids, (1, space, Some(space)));
        // Its key is free.
        let sought = keyed(PAGE, ShmCreate::No, 0o600);
        assert_eq!(get(w.mm, &sought), Err(Errno::ENOENT));
        let other = get(w.mm, &keyed(PAGE, ShmCreate::IfMissing, 0o600)).expect("memory");
        assert_ne!(other, id);
        assert_eq!(get(w.mm, &sought), Ok(other));
        w.remove(other);
        // It can be attached as long as it is there, and removed again.
        w.attach_at(id, 8);
        assert_eq!(w.thread.load(at(9)), Ok(7));
        w.remove(id);
        assert_eq!(w.detach(0), Ok(()));
        assert_eq!(w.attached(id), 1);
        assert_eq!(w.thread.load(at(9)), Ok(7));
        // An attempt that fails leaves it as it is.
        assert_eq!(w.attach(id, &free(at(9))), Err(Errno::EINVAL));
        assert_eq!(w.attached(id), 1);
        assert_eq!(w.detach(8), Ok(()));
        assert_eq!(w.stat(id), Err(Errno::EINVAL));
        assert_eq!(w.attach(id, &free(at(0))), Err(Errno::EINVAL));
        let again = w.sys.shmctl_remove(id).map_err(Errno::from);
        assert_eq!(again, Err(Errno::EINVAL));
        // One that nobody has goes at once; one that is not removed stays without anybody.
        let id = w.private(2);
        w.attach_at(id, 0);
        assert_eq!(w.thread.store(at(0), 8), Ok(()));
        assert_eq!(w.detach(0), Ok(()));
        w.attach_at(id, 0);
        assert_eq!(w.thread.load(at(0)), Ok(8));
        assert_eq!(w.detach(0), Ok(()));
        w.remove(id);
        assert_eq!(w.stat(id), Err(Errno::EINVAL));
    });
}

#[test]
fn each_vma_counts() {
    in_two_eras(|w| {
        let id = w.private(6);
        let counts = |count| assert_eq!(w.attached(id), count);
        counts(0);
        w.attach_at(id, 0);
        counts(1);
        // Parts that are like a neighbour go to it; what is whole stays by itself.
        w.protect(0, 2, Prot::READ);
        counts(2);
        w.protect(2, 1, Prot::READ);
        counts(2);
        w.protect(3, 3, Prot::READ);
        counts(2);
        w.protect(5, 1, Prot::READ_WRITE);
        counts(3);
        w.protect(4, 1, Prot::READ_WRITE);
        counts(3);
        w.protect(0, 6, Prot::READ_WRITE);
        counts(3);
        assert_eq!(w.thread.store(at(4), 4), Ok(()));
        // A child has all of it, and what is left of it goes when the child does.
        let child = w.mm.fork().expect("memory");
        counts(6);
        assert_eq!(child.thread().load(at(4)), Ok(4));
        assert_eq!(child.thread().store(at(5), 5), Ok(()));
        assert_eq!(w.thread.load(at(5)), Ok(5));
        assert_eq!(child.munmap(at(4), PAGE), Ok(()));
        counts(6);
        drop(child);
        counts(3);
        let advised = w.mm.madvise(at(0), PAGE, Advice::DontFork);
        assert_eq!(advised, Ok(()));
        counts(4);
        let child = w.mm.fork().expect("memory");
        counts(7);
        drop(child);
        // A hole in the middle of one, then all but a part.
        assert_eq!(w.mm.munmap(at(4), PAGE), Ok(()));
        assert_eq!(w.mm.munmap(at(0), 3 * PAGE), Ok(()));
        assert_eq!(w.thread.load(at(5)), Ok(5));
        assert_eq!(w.detach(0), Ok(()), "by where it was");
        counts(0);
        assert_eq!(w.thread.load(at(5)), Err(Signal::MapErr));
        w.remove(id);
    });
}

#[test]
fn what_moves_counts() {
    in_two_eras(|w| {
        let id = w.private(4);
        let counts = |count| assert_eq!(w.attached(id), count);
        w.attach_at(id, 0);
        assert_eq!(w.thread.store(at(1), 1), Ok(()));
        w.remap(1, 1, 1, Remap::Fixed(at(20)));
        counts(3);
        assert_eq!(w.thread.load(at(20)), Ok(1));
        assert_eq!(w.detach(0), Ok(()));
        counts(1);
        assert_eq!(w.detach(20), Err(Errno::EINVAL), "its page is the second");
        assert_eq!(w.detach(19), Ok(()));
        counts(0);
        // A second mapping; one that grows, and what lies behind the segment's end.
        w.attach_at(id, 0);
        w.remap(0, 0, 4, Remap::Fixed(at(20)));
        counts(2);
        assert_eq!(w.detach(20), Ok(()));
        w.remap(0, 4, 8, Remap::InPlace);
        counts(1);
        assert_eq!(w.thread.load(at(3)), Ok(0));
        assert_eq!(w.thread.load(at(4)), Err(Signal::Bus));
        w.protect(2, 4, Prot::READ);
        counts(3);
        assert_eq!(w.detach(0), Ok(()));
        counts(2);
        assert_eq!(w.mm.munmap(at(0), 8 * PAGE), Ok(()));
        counts(0);
        w.remove(id);
    });
}

#[test]
fn one_detaches_what_was_attached_there() {
    in_two_eras(|w| {
        // Over the middle of itself, and by itself.
        let id = w.private(4);
        w.attach_at(id, 0);
        assert_eq!(w.attach(id, &over(at(2))), Ok(at(2)));
        assert_eq!(w.attached(id), 2);
        assert_eq!(w.detach(2), Ok(()));
        assert_eq!(w.attached(id), 1);
        assert_eq!(w.detach(0), Ok(()));
        // Another in the middle stays.
        let other = w.private(2);
        w.attach_at(id, 0);
        assert_eq!(w.attach(other, &over(at(1))), Ok(at(1)));
        assert_eq!((w.attached(id), w.attached(other)), (2, 1));
        assert_eq!(w.detach(0), Ok(()));
        assert_eq!((w.attached(id), w.attached(other)), (0, 1));
        assert_eq!(w.detach(0), Err(Errno::EINVAL));
        assert_eq!(w.detach(1), Ok(()));
        w.remove(other);
        // So does a part of another that lies as if it had been attached there, the first time.
        let other = w.private(4);
        w.attach_at(id, 0);
        w.attach_at(other, 20);
        w.remap(22, 1, 1, Remap::Fixed(at(2)));
        assert_eq!((w.attached(id), w.attached(other)), (2, 3));
        assert_eq!(w.detach(0), Ok(()));
        assert_eq!((w.attached(id), w.attached(other)), (0, 3));
        assert_eq!(w.detach(0), Ok(()));
        assert_eq!(w.attached(other), 2);
        assert_eq!(w.detach(20), Ok(()));
        w.remove(other);
        // All of one of which the first page is gone, and only that of ordinary memory around.
        w.attach_at(id, 0);
        let mapped = w.mm.mmap(Place::Fixed(at(0)), PAGE, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(at(0)));
        assert_eq!(w.detach(0), Ok(()));
        assert_eq!((w.thread.load(at(0)), w.attached(id)), (Ok(0), 0));
        assert_eq!(w.detach(0), Err(Errno::EINVAL));
        w.remove(id);
    });
}

#[test]
fn what_is_asked_for_wrongly_says_so() {
    use Errno as E;
    in_two_eras(|w| {
        let private = |bytes| get(w.mm, &ShmRequest::private(bytes));
        assert_eq!(private(0), Err(E::EINVAL));
        assert_eq!(private(1 << 63), Err(E::EINVAL));
        assert_eq!(private(u64::MAX), Err(E::EINVAL));
        assert_eq!(private(1 << 62), Err(E::ENOMEM));
        let keyed = |bytes, create, mode| get(w.mm, &keyed(bytes, create, mode));
        assert_eq!(keyed(PAGE, ShmCreate::No, 0o600), Err(E::ENOENT));
        let bytes = 2 * PAGE + 1;
        let id = keyed(bytes, ShmCreate::Exclusive, 0o600).expect("memory");
        assert_eq!(keyed(PAGE, ShmCreate::Exclusive, 0), Err(E::EEXIST));
        assert_eq!(keyed(9 * PAGE, ShmCreate::Exclusive, 0), Err(E::EEXIST));
        assert_eq!(keyed(0, ShmCreate::No, 0), Ok(id));
        assert_eq!(keyed(bytes, ShmCreate::IfMissing, 0o600), Ok(id));
        assert_eq!(keyed(bytes + 1, ShmCreate::No, 0o700), Err(E::EINVAL));
        assert_eq!(keyed(0, ShmCreate::No, 0o700), Err(E::EACCES));
        assert_eq!(keyed(0, ShmCreate::No, 0o001), Err(E::EACCES));

        let rounded = |place| ShmAttach {
            round: ShmRound::Down,
            ..ShmAttach::new(place)
        };
        let within = VirtAddr(at(0).0 + 5);
        let invalid = [
            free(within),
            over(within),
            over(VirtAddr(0)),
            rounded(ShmPlace::Over(VirtAddr(5))),
            free(VirtAddr(u64::MAX - PAGE + 1)),
        ];
        for how in invalid {
            assert_eq!(w.attach(id, &how), Err(E::EINVAL), "{how:?}");
        }
        assert_eq!(w.attach(id, &rounded(ShmPlace::Free(within))), Ok(at(0)));
        assert_eq!(w.attach(id, &free(at(2))), Err(E::EINVAL), "its tail");
        w.attach_at(id, 3);
        let null = w.attach(id, &rounded(ShmPlace::Free(VirtAddr(5))));
        assert_eq!(null, Err(E::EPERM));
        let user_end = VirtAddr((1 << 47) - PAGE);
        assert_eq!(w.attach(id, &free(user_end)), Err(E::ENOMEM));
        assert_eq!(w.attach(id, &over(user_end)), Err(E::ENOMEM));
        let executable = ShmAttach {
            prot: Prot::READ_WRITE.with(Prot::EXEC),
            ..ShmAttach::new(ShmPlace::Any)
        };
        assert_eq!(w.attach(id, &executable), Err(E::EACCES));
        assert_eq!(w.attach(ShmId(id.0 + 1), &free(at(9))), Err(E::EINVAL));

        assert_eq!(w.detach(1), Err(E::EINVAL), "not where it begins");
        assert_eq!(w.mm.shmdt(within).map_err(E::from), Err(E::EINVAL));
        assert_eq!(w.detach(100), Err(E::EINVAL));
        assert_eq!((w.detach(0), w.detach(3)), (Ok(()), Ok(())));
        assert_eq!(w.stat(ShmId(id.0 + 1)), Err(E::EINVAL));
        w.remove(id);
    });
}

#[test]
fn rights_are_the_owners() {
    use Errno as E;
    let executable = Prot::READ_WRITE.with(Prot::EXEC);
    in_two_eras(|w| {
        // For a mode: to find it for loads and stores, to attach it, for loads only, to execute,
        // to look at it.
        let expected = [
            (
                0o400,
                [
                    Err(E::EACCES),
                    Err(E::EACCES),
                    Ok(()),
                    Err(E::EACCES),
                    Ok(()),
                ],
            ),
            (0o200, [Err(E::EACCES); 5]),
            (0o066, [Err(E::EACCES); 5]),
            (0o600, [Ok(()), Ok(()), Ok(()), Err(E::EACCES), Ok(())]),
            (0o700, [Ok(()); 5]),
        ];
        for (mode, expected) in expected {
            let id = get(w.mm, &keyed(PAGE, ShmCreate::Exclusive, mode)).expect("memory");
            let attach = |prot| {
                let how = ShmAttach {
                    prot,
                    ..free(at(0))
                };
                w.attach(id, &how).map(|_| assert_eq!(w.detach(0), Ok(())))
            };
            let found = [
                get(w.mm, &keyed(0, ShmCreate::No, 0o600)).map(|_| ()),
                attach(Prot::READ_WRITE),
                attach(Prot::READ),
                attach(executable),
                w.stat(id).map(|_| ()),
            ];
            assert_eq!(found, expected, "{mode:o}");
            w.remove(id);
        }
    });
}

#[test]
fn for_loads_only_is_for_good() {
    in_two_eras(|w| {
        let id = w.private(2);
        w.attach_at(id, 8);
        assert_eq!(w.thread.store(at(8), 8), Ok(()));
        let how = ShmAttach::read_only(ShmPlace::Free(at(0)));
        assert_eq!(w.attach(id, &how), Ok(at(0)));
        assert_eq!(w.thread.load(at(0)), Ok(8));
        assert_eq!(w.thread.store(at(0), 1), Err(Signal::AccErr));
        let writable = w.mm.mprotect(at(0), PAGE, Prot::READ_WRITE);
        assert_eq!(writable.map_err(Errno::from), Err(Errno::EACCES));
        assert_eq!((w.detach(0), w.detach(8)), (Ok(()), Ok(())));
        w.remove(id);
    });
}

#[test]
fn limits_hold() {
    in_two_eras(|w| {
        let id = w.private(2);
        // Of the address space.
        w.mm.set_limit_as(PAGE);
        assert_eq!(w.attach(id, &free(at(0))), Err(Errno::ENOMEM));
        w.mm.set_limit_as(u64::MAX);
        w.mm.set_limit_memlock(PAGE);
        let said = w.thread.mlockall(LockAll::FUTURE);
        assert_eq!(said, Ok(()));
        assert_eq!(w.attach(id, &free(at(0))), Err(Errno::EAGAIN));
        assert_eq!(w.attached(id), 0);
        // Of the system.
        let limits = ShmLimits {
            bytes: 8 * PAGE,
            pages: 9,
            segments: 3,
        };
        assert_eq!(w.sys.shm_limits().segments, 4096);
        w.sys.set_shm_limits(limits);
        let private = |bytes| get(w.mm, &ShmRequest::private(bytes));
        assert_eq!(private(8 * PAGE + 1), Err(Errno::EINVAL));
        assert_eq!(private(8 * PAGE), Err(Errno::ENOSPC));
        let second = private(7 * PAGE).expect("as many as may be");
        assert_eq!(private(1), Err(Errno::ENOSPC));
        w.remove(id);
        let two = [private(PAGE), private(1)].map(|id| id.expect("room again"));
        assert_eq!(private(0), Err(Errno::EINVAL));
        w.sys.set_shm_limits(ShmLimits {
            pages: 90,
            ..limits
        });
        assert_eq!(private(1), Err(Errno::ENOSPC), "a fourth");
        two.iter().for_each(|id| w.remove(*id));
        w.remove(second);
    });
}

#[test]
fn a_segment_is_promised_as_long_as_it_is_there() {
    in_two_eras(|w| {
        let promised = |pages| assert_eq!(w.sys.committed_pages(), pages);
        let id = w.private(5);
        promised(5);
        let loose = ShmRequest {
            reserve: Reserve::NoReserve,
            ..ShmRequest::private(7 * PAGE)
        };
        let second = get(w.mm, &loose).expect("memory");
        promised(5);
        w.attach_at(id, 0);
        w.attach_at(second, 8);
        let child = w.mm.fork().expect("memory");
        promised(5);
        drop(child);
        w.remove(id);
        promised(5);
        assert_eq!((w.detach(0), w.detach(8)), (Ok(()), Ok(())));
        promised(0);
        w.remove(second);
        // Where nothing is overcommitted that is not asked for.
        w.sys.set_overcommit(Overcommit::Never);
        let third = get(w.mm, &loose).expect("memory");
        promised(7);
        let most = w.sys.commit_limit();
        let refused = get(w.mm, &ShmRequest::private(most * PAGE));
        assert_eq!(refused, Err(Errno::ENOMEM));
        promised(7);
        w.remove(third);
    });
}

#[test]
fn without_memory_nothing_is_left_behind() {
    let sys = boot(ERAS.last().expect("an era").config, 1, 16 << 20);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    for n in 1..100 {
        sys.refuse_allocations(Refuse::Nth(n));
        let made = get(&mm, &keyed(3 * PAGE, ShmCreate::IfMissing, 0o600));
        let id = made.inspect(|id| {
            let attached = mm.shmat(*id, &free(at(0)));
            let attached = attached
                .is_ok()
                .then(|| mm.mprotect(at(1), PAGE, Prot::READ));
            let split = attached.is_some_and(|split| split.is_ok());
            // Removed by whom it has, as one that fails is.
            assert_eq!(sys.shmctl_remove(*id), Ok(()));
            let detached = mm.shmdt(at(0)).is_ok();
            sys.refuse_allocations(Refuse::Nothing);
            let _rest = mm.shmdt(at(0));
            assert!(sys.shmctl_stat(*id).is_err(), "{n}: {split} {detached}");
        });
        sys.refuse_allocations(Refuse::Nothing);
        let left = sys.check_ledger(&[&mm]).expect("adds up");
        assert_eq!((left.file, sys.committed_pages()), (0, 0), "{n}");
        if sys.refused_allocation().is_none() {
            assert!(id.is_ok() && n > 8, "{n} allocations are too few");
            return;
        }
    }
    panic!("it allocates for ever");
}

/// While some attach and detach, split and fork, others find it by its key, and remove it: each
/// finds one that is whole, and none stays.
#[test]
fn many_attach_what_others_remove() {
    const CPUS: u32 = 4;
    const ROUNDS: u64 = 300;
    for era in ERAS.first().into_iter().chain(ERAS.last()) {
        let sys = boot(era.config, CPUS, 16 << 20);
        std::thread::scope(|scope| {
            for cpu in 0..CPUS {
                let sys = &sys;
                scope.spawn(move || {
                    let _cpu = sys.machine().enter(cpu);
                    let mm = sys.new_mm().expect("memory");
                    for round in 0..ROUNDS {
                        let request = keyed(3 * PAGE, ShmCreate::IfMissing, 0o600);
                        let id = get(&mm, &request).expect("memory");
                        if (round + u64::from(cpu)).is_multiple_of(3) {
                            // Another may have been first.
                            let _removed = sys.shmctl_remove(id);
                        }
                        let Ok(base) = mm.shmat(id, &ShmAttach::new(ShmPlace::Any)) else {
                            continue;
                        };
                        let middle = VirtAddr(base.0 + PAGE);
                        assert_eq!(mm.thread().store(middle, round), Ok(()));
                        assert!(sys.shmctl_stat(id).expect("attached").attached > 0);
                        if round.is_multiple_of(4) {
                            assert_eq!(mm.mprotect(middle, PAGE, Prot::READ), Ok(()));
                            drop(mm.fork().expect("memory"));
                        }
                        assert_eq!(mm.shmdt(base), Ok(()));
                    }
                });
            }
        });
        assert_eq!(sys.machine().failed(), None, "{}", era.name);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        if let Ok(id) = get(&mm, &keyed(0, ShmCreate::No, 0)) {
            assert_eq!(sys.shmctl_stat(id).expect("there").attached, 0);
            assert_eq!(sys.shmctl_remove(id), Ok(()));
        }
        let left = sys.check_ledger(&[&mm]).expect(era.name);
        assert_eq!((left.file, sys.committed_pages()), (0, 0), "{}", era.name);
    }
}
