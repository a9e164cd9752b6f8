//! userfaultfd, in every era: what a handler can do, what it is told, and who waits for it.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Config, Errno, Event, Force, Message, Mm, Prot, Reason, Remap, RemapRequest, RemoteError,
    Signal, System, UffdError, UffdFaults, UffdMode, Wake, WriteProtected, eras_without_migration,
};
use minflt_pgtable::Access;
use minflt_tests::world::{BASE, Machine, PAGE, boot, in_each_era, map, page};
use std::sync::mpsc;

fn bytes(word: u64, pages: usize) -> Vec<u8> {
    let mut bytes = vec![0; pages * PAGE as usize];
    for page in bytes.chunks_mut(PAGE as usize) {
        page[..8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[test]
fn what_cannot_be_watched_says_why() {
    in_each_era(1, 16 << 20, |_, _, mm| {
        map(mm, 0, 4, Prot::READ_WRITE);
        let uffd = mm.userfaultfd().expect("memory");
        let other = mm.userfaultfd().expect("memory");
        let missing = |start, len| uffd.register(start, len, UffdMode::Missing);
        assert_eq!(missing(VirtAddr(BASE + 1), PAGE), Err(UffdError::Invalid));
        assert_eq!(missing(page(0), PAGE - 1), Err(UffdError::Invalid));
        assert_eq!(missing(page(0), 0), Err(UffdError::Invalid));
        assert_eq!(missing(page(8), PAGE), Err(UffdError::Invalid));
        assert_eq!(uffd.unregister(page(8), PAGE), Err(UffdError::Invalid));
        assert_eq!(missing(page(1), PAGE), Ok(()));
        let busy = other.register(page(0), 4 * PAGE, UffdMode::Both);
        assert_eq!(busy, Err(UffdError::Busy));
        assert_eq!(other.unregister(page(1), PAGE), Err(UffdError::Invalid));
        // Again, and for something else.
        assert_eq!(uffd.register(page(1), PAGE, UffdMode::WriteProtect), Ok(()));
        assert_eq!(
            mm.thread().load(page(1)),
            Ok(0),
            "not watched for that any more"
        );
        // What is not mapped within is passed over.
        assert_eq!(missing(page(0), 100 * PAGE), Ok(()));
        assert_eq!(uffd.unregister(page(0), 100 * PAGE), Ok(()));
        assert_eq!(other.register(page(0), 4 * PAGE, UffdMode::Both), Ok(()));
        for (error, errno) in [
            (UffdError::Invalid, Errno::EINVAL),
            (UffdError::Busy, Errno::EBUSY),
            (UffdError::NotWatched, Errno::ENOENT),
            (UffdError::Exists, Errno::EEXIST),
            (UffdError::Partial(1), Errno::EAGAIN),
            (UffdError::Again, Errno::EAGAIN),
            (UffdError::NoMemory, Errno::ENOMEM),
        ] {
            assert_eq!(Errno::from(error), errno);
        }
        drop((uffd, other));
    });
}

#[test]
fn where_nobody_waits_there_are_signals() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        map(mm, 0, 4, Prot::READ_WRITE);
        let uffd = mm.userfaultfd_with(UffdFaults::Signal).expect("memory");
        let thread = mm.thread();
        assert_eq!(uffd.register(page(0), 4 * PAGE, UffdMode::Both), Ok(()));
        assert_eq!(thread.load(page(0)), Err(Signal::Bus));
        assert_eq!(thread.store(page(0), 1), Err(Signal::Bus));
        assert_eq!(
            mm.remote_read(page(0), &mut [0; 8], Force::Yes),
            Err(RemoteError::Fault)
        );
        assert_eq!(uffd.try_read(), Err(UffdError::Again));
        let filled = uffd.copy(page(0), &bytes(5, 2), WriteProtected::Yes, Wake::Yes);
        assert_eq!(filled, Ok(()));
        assert_eq!(thread.load(page(0)), Ok(5));
        assert_eq!(thread.store(page(0), 6), Err(Signal::Bus));
        let forced = mm.remote_write(page(0), &[1; 8], Force::Yes);
        assert_eq!(forced, Err(RemoteError::Fault));
        let allowed = uffd.writeprotect(page(0), PAGE, WriteProtected::No, Wake::Yes);
        assert_eq!(allowed, Ok(()));
        assert_eq!(thread.store(page(0), 6), Ok(()));
        assert_eq!(thread.store(page(1), 6), Err(Signal::Bus));
        assert_eq!(sys.count_of(Event::Userfaults), 0, "nobody is queued");
        drop(uffd);
        assert_eq!(thread.store(page(1), 6), Ok(()));
        assert_eq!(thread.load(page(2)), Ok(0));
    });
}

#[test]
fn an_address_space_has_so_many_userfaultfds_and_numbers_are_used_again() {
    let newest = eras_without_migration().last().expect("an era");
    let sys = boot(newest.config, 1, 16 << 20);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    // More in all than there are numbers.
    for _ in 0..65 {
        let all: Vec<_> = (0..1024).map(|_| mm.userfaultfd()).collect();
        assert!(all.iter().all(Result::is_ok));
        assert!(matches!(mm.userfaultfd(), Err(UffdError::NoMemory)));
    }
}

#[test]
fn holes_are_filled_before_anybody_waits() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        map(mm, 510, 6, Prot::READ_WRITE);
        let uffd = mm.userfaultfd().expect("memory");
        let copy = |n, from: &[u8]| uffd.copy(page(n), from, WriteProtected::No, Wake::Yes);
        assert_eq!(copy(510, &bytes(1, 1)), Err(UffdError::NotWatched));
        uffd.register(page(510), 6 * PAGE, UffdMode::Missing)
            .expect("mapped");
        assert_eq!(uffd.try_read(), Err(UffdError::Again));
        assert_eq!(copy(510, &[]), Err(UffdError::Invalid));
        assert_eq!(copy(510, &[1; 100]), Err(UffdError::Invalid));
        assert_eq!(copy(600, &bytes(1, 1)), Err(UffdError::NotWatched));
        assert_eq!(copy(515, &bytes(1, 2)), Err(UffdError::NotWatched));
        assert_eq!(copy(511, &bytes(7, 2)), Ok(()));
        assert_eq!(copy(511, &bytes(8, 1)), Err(UffdError::Exists));
        assert_eq!(copy(510, &bytes(9, 3)), Err(UffdError::Partial(PAGE)));
        let protect = uffd.copy(page(513), &bytes(1, 1), WriteProtected::Yes, Wake::Yes);
        assert_eq!(protect, Err(UffdError::Invalid));
        assert_eq!(uffd.zeropage(page(513), PAGE, Wake::Yes), Ok(()));
        assert_eq!(
            uffd.zeropage(page(513), PAGE, Wake::Yes),
            Err(UffdError::Exists)
        );
        let thread = mm.thread();
        let found = [510, 511, 512, 513].map(|n| thread.load(page(n)));
        assert_eq!(found, [Ok(9), Ok(7), Ok(7), Ok(0)]);
        for n in 510..514 {
            thread.store(page(n), n).expect("mapped");
        }
        assert_eq!(sys.count_of(Event::Userfaults), 0);
        drop(uffd);
        assert_eq!(thread.load(page(514)), Ok(0), "nobody watches");
    });
}

/// Runs `user` on a second CPU beside `handler`.
fn beside(
    config: Config,
    user: impl FnOnce(&Mm<Machine>) + Send,
    handler: impl FnOnce(&System<Machine>, &Mm<Machine>),
    set_up: impl FnOnce(&Mm<Machine>),
) {
    let sys = boot(config, 2, 16 << 20);
    let first = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    set_up(&mm);
    drop(first);
    std::thread::scope(|scope| {
        let (sys, mm) = (&sys, &mm);
        let user = scope.spawn(move || {
            let _cpu = sys.machine().enter(1);
            user(mm);
        });
        {
            let _cpu = sys.machine().enter(0);
            handler(sys, mm);
        }
        user.join().expect("the user ends well");
    });
    let _cpu = sys.machine().enter(0);
    sys.check_ledger(&[&mm]).expect("adds up");
    drop(mm);
}

#[test]
fn a_touch_of_a_hole_waits_for_the_handler() {
    for era in eras_without_migration() {
        let uffd_ready = std::sync::Barrier::new(2);
        beside(
            era.config,
            |mm| {
                uffd_ready.wait();
                let thread = mm.thread();
                for n in 0..64 {
                    assert_eq!(thread.load(page(n)), Ok(100 + n));
                    thread.store(page(n), n).expect("mapped");
                }
                let mut word = [0; 8];
                assert_eq!(mm.remote_read(page(64), &mut word, Force::No), Ok(8));
                assert_eq!(u64::from_le_bytes(word), 164, "others wait, too");
            },
            |sys, mm| {
                let uffd = mm.userfaultfd().expect("memory");
                uffd.register(page(0), 65 * PAGE, UffdMode::Missing)
                    .expect("mapped");
                uffd_ready.wait();
                for n in 0..65 {
                    let message = Message {
                        addr: page(n),
                        access: Access::Read,
                        reason: Reason::Missing,
                    };
                    assert_eq!(uffd.read(), Ok(message));
                    // Waking without filling only makes it wait again.
                    if n % 8 == 0 {
                        uffd.wake(page(n), PAGE).expect("whole pages");
                        assert_eq!(uffd.read(), Ok(message));
                    }
                    let fill = bytes(100 + n, 1);
                    let done = uffd.copy(page(n), &fill, WriteProtected::No, Wake::Yes);
                    assert_eq!(done, Ok(()), "{}", era.name);
                }
                assert_eq!(sys.count_of(Event::Userfaults), 65 + 9);
            },
            |mm| map(mm, 0, 65, Prot::READ_WRITE),
        );
    }
}

#[test]
fn who_waits_goes_on_when_the_handler_ends_or_the_mapping_goes() {
    for era in eras_without_migration() {
        for unmapped in [false, true] {
            let ready = std::sync::Barrier::new(2);
            beside(
                era.config,
                |mm| {
                    ready.wait();
                    let found = mm.thread().load(page(0));
                    let expected = if unmapped { Err(Signal::MapErr) } else { Ok(0) };
                    assert_eq!(found, expected, "{}", era.name);
                },
                |_, mm| {
                    let uffd = mm.userfaultfd().expect("memory");
                    uffd.register(page(0), PAGE, UffdMode::Missing)
                        .expect("mapped");
                    ready.wait();
                    uffd.read().expect("a fault");
                    if unmapped {
                        assert_eq!(mm.munmap(page(0), PAGE), Ok(()));
                    }
                    drop(uffd);
                },
                |mm| map(mm, 0, 2, Prot::READ_WRITE),
            );
        }
    }
}

#[test]
fn a_store_to_a_protected_page_waits_for_the_handler() {
    for era in eras_without_migration() {
        let (stored, ready) = mpsc::channel();
        let (go, went) = mpsc::channel();
        beside(
            era.config,
            move |mm| {
                let thread = mm.thread();
                for n in 0..3 {
                    thread.store(page(n), n).expect("mapped");
                }
                stored.send(()).expect("somebody waits");
                // A CPU that forgets translations while it waits.
                while went.try_recv().is_err() {
                    thread.load(page(0)).expect("mapped");
                }
                for n in 0..3 {
                    assert_eq!(thread.load(page(n)), Ok(n), "loads go on");
                }
                for n in 0..3 {
                    thread.store(page(n), 10 + n).expect("mapped");
                }
            },
            |_, mm| {
                let uffd = mm.userfaultfd().expect("memory");
                uffd.register(page(0), 4 * PAGE, UffdMode::WriteProtect)
                    .expect("mapped");
                ready.recv().expect("it stores");
                let protect = |n, pages, protect, wake| {
                    uffd.writeprotect(page(n), pages * PAGE, protect, wake)
                };
                let (yes, no) = (WriteProtected::Yes, WriteProtected::No);
                assert_eq!(protect(0, 1, yes, Wake::No), Err(UffdError::Invalid));
                assert_eq!(protect(9, 1, yes, Wake::Yes), Err(UffdError::NotWatched));
                assert_eq!(protect(4, 1, yes, Wake::Yes), Err(UffdError::NotWatched));
                assert_eq!(protect(0, 4, yes, Wake::Yes), Ok(()));
                go.send(()).expect("somebody waits");
                for n in 0..3 {
                    let message = Message {
                        addr: page(n),
                        access: Access::Write,
                        reason: Reason::WriteProtected,
                    };
                    assert_eq!(uffd.read(), Ok(message), "{}", era.name);
                    let mut word = [0; 8];
                    assert_eq!(mm.remote_read(page(n), &mut word, Force::No), Ok(8));
                    assert_eq!(u64::from_le_bytes(word), n);
                    if n == 2 {
                        // Who no longer watches no longer protects.
                        uffd.unregister(page(0), 4 * PAGE).expect("its own");
                        return;
                    }
                    assert_eq!(protect(n, 1, no, Wake::No), Ok(()));
                    uffd.wake(page(n), PAGE).expect("whole pages");
                }
            },
            |mm| {
                map(mm, 0, 4, Prot::READ_WRITE);
                map(mm, 4, 1, Prot::READ);
            },
        );
    }
}

#[test]
fn a_page_may_be_filled_protected() {
    in_each_era(1, 16 << 20, |_, _, mm| {
        map(mm, 0, 1, Prot::READ_WRITE);
        let uffd = mm.userfaultfd().expect("memory");
        uffd.register(page(0), PAGE, UffdMode::Both)
            .expect("mapped");
        // What is watched for more already stays so.
        uffd.register(page(0), PAGE, UffdMode::Missing)
            .expect("mapped");
        let (yes, no) = (WriteProtected::Yes, WriteProtected::No);
        assert_eq!(uffd.copy(page(0), &bytes(5, 1), yes, Wake::Yes), Ok(()));
        assert_eq!(mm.thread().load(page(0)), Ok(5));
        assert_eq!(uffd.writeprotect(page(0), PAGE, no, Wake::Yes), Ok(()));
        assert_eq!(mm.thread().store(page(0), 6), Ok(()));
        drop(uffd);
    });
}

#[test]
fn who_waits_to_store_goes_on_when_only_holes_are_watched() {
    for era in eras_without_migration() {
        let ready = std::sync::Barrier::new(2);
        let (stored, done) = mpsc::channel();
        beside(
            era.config,
            |mm| {
                ready.wait();
                mm.thread().store(page(0), 2).expect("mapped");
                stored.send(()).expect("somebody waits");
            },
            |_, mm| {
                mm.thread().store(page(0), 1).expect("mapped");
                let uffd = mm.userfaultfd().expect("memory");
                let watch = |mode| uffd.register(page(0), PAGE, mode);
                watch(UffdMode::WriteProtect).expect("mapped");
                let (yes, no) = (WriteProtected::Yes, WriteProtected::No);
                let protect = |protect| uffd.writeprotect(page(0), PAGE, protect, Wake::Yes);
                protect(yes).expect("watched");
                ready.wait();
                uffd.read().expect("a fault");
                watch(UffdMode::Missing).expect("mapped");
                assert_eq!(protect(no), Err(UffdError::NotWatched));
                let went = done.recv_timeout(core::time::Duration::from_secs(60));
                assert!(went.is_ok(), "{}: it sleeps on", era.name);
            },
            |mm| map(mm, 0, 1, Prot::READ_WRITE),
        );
    }
}

#[test]
fn no_mark_moves_with_a_page() {
    for era in eras_without_migration() {
        let ready = std::sync::Barrier::new(2);
        let (stored, done) = mpsc::channel();
        beside(
            era.config,
            |mm| {
                ready.wait();
                mm.thread().store(page(8), 3).expect("mapped");
                stored.send(()).expect("somebody waits");
            },
            |_, mm| {
                let thread = mm.thread();
                let uffd = mm.userfaultfd().expect("memory");
                let protect = |n| {
                    uffd.register(page(n), PAGE, UffdMode::WriteProtect)
                        .expect("mapped");
                    uffd.writeprotect(page(n), PAGE, WriteProtected::Yes, Wake::Yes)
                        .expect("watched");
                };
                let remap = |from, to| {
                    let request = RemapRequest {
                        old: page(from),
                        old_len: PAGE,
                        new_len: PAGE,
                        how: Remap::Fixed(page(to)),
                    };
                    thread.mremap(&request).expect("mapped");
                };
                thread.store(page(0), 1).expect("mapped");
                protect(0);
                remap(0, 4);
                // A mark would be in the way of this for ever.
                mm.mprotect(page(4), PAGE, Prot::READ).expect("mapped");
                assert_eq!(mm.remote_write(page(4), &[2], Force::Yes), Ok(1));
                mm.mprotect(page(4), PAGE, Prot::READ_WRITE)
                    .expect("mapped");
                protect(4);
                remap(4, 8);
                thread.store(page(8), 2).expect("nobody watches");
                protect(8);
                ready.wait();
                // And an old one would pass for a new one here.
                while uffd.try_read().is_err() {
                    assert!(done.try_recv().is_err(), "{}: not asked", era.name);
                }
                assert_eq!(thread.load(page(8)), Ok(2));
            },
            |mm| map(mm, 0, 1, Prot::READ_WRITE),
        );
    }
}

#[test]
fn a_child_is_watched_by_nobody() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        map(mm, 0, 2, Prot::READ_WRITE);
        mm.thread().store(page(0), 1).expect("mapped");
        let uffd = mm.userfaultfd().expect("memory");
        uffd.register(page(0), 2 * PAGE, UffdMode::Both)
            .expect("mapped");
        let done = uffd.writeprotect(page(0), PAGE, WriteProtected::Yes, Wake::Yes);
        assert_eq!(done, Ok(()));
        let child = mm.fork().expect("memory");
        let thread = child.thread();
        assert_eq!(thread.store(page(0), 2), Ok(()));
        assert_eq!(thread.load(page(1)), Ok(0));
        sys.check_ledger(&[mm, &child]).expect("adds up");
        drop(thread);
        drop((child, uffd));
        assert_eq!(mm.thread().load(page(0)), Ok(1));
    });
}
