//! Memory of another address space, read, written and pinned, in every era.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Config, Errno, Event, Force, Growth, MapRequest, Mm, NegativeControl, Place, Prot,
    RemoteError, Sharing, Signal, System, era, eras_without_migration,
};
use minflt_pgtable::Access;
use minflt_tests::world::{Machine, PAGE, alone, boot, in_each_era, map, page};

fn at(n: u64, offset: u64) -> VirtAddr {
    VirtAddr(page(n).0 + offset)
}

fn with(config: Config, test: impl Fn(&System<Machine>, &Mm<Machine>)) {
    let sys = boot(config, 1, 16 << 20);
    alone("", &sys, |mm| test(&sys, mm));
}

fn read(mm: &Mm<Machine>, from: VirtAddr, len: usize) -> Result<Vec<u8>, RemoteError> {
    let mut bytes = vec![0xaa; len];
    let done = mm.remote_read(from, &mut bytes, Force::No)?;
    assert!(bytes[done..].iter().all(|byte| *byte == 0xaa));
    bytes.truncate(done);
    Ok(bytes)
}

#[test]
fn bytes_come_back_as_they_were_written() {
    in_each_era(1, 16 << 20, |_, _, mm| {
        map(mm, 0, 3, Prot::READ_WRITE);
        let bytes: Vec<u8> = (0..2 * PAGE + 100).map(|n| (n % 251) as u8).collect();
        for (start, len) in [
            (0, 1),
            (3, 7),
            (5, 2),
            (PAGE - 3, 6),
            (1, 2 * PAGE as usize + 100),
        ] {
            let part = &bytes[..len];
            assert_eq!(mm.remote_write(at(0, start), part, Force::No), Ok(len));
            assert_eq!(read(mm, at(0, start), len).as_deref(), Ok(part));
        }
        let thread = mm.thread();
        // Bytes of a word that are not written stay.
        thread.store(page(2), u64::MAX).expect("mapped");
        assert_eq!(mm.remote_write(at(2, 3), &[0, 0], Force::No), Ok(2));
        assert_eq!(thread.load(page(2)), Ok(0xffff_ff00_00ff_ffff));
        assert_eq!(read(mm, at(2, 2), 4), Ok(vec![0xff, 0, 0, 0xff]));
    });
}

#[test]
fn what_is_not_there_ends_a_transfer() {
    in_each_era(1, 16 << 20, |_, _, mm| {
        map(mm, 0, 1, Prot::READ_WRITE);
        map(mm, 2, 1, Prot::READ);
        assert_eq!(read(mm, at(0, PAGE - 8), 16).map(|it| it.len()), Ok(8));
        assert_eq!(read(mm, page(1), 16), Err(RemoteError::Fault));
        assert_eq!(
            mm.remote_write(page(1), &[1], Force::Yes),
            Err(RemoteError::Fault)
        );
        assert_eq!(
            mm.remote_write(page(2), &[1], Force::No),
            Err(RemoteError::Fault)
        );
        assert_eq!(
            read(mm, VirtAddr(u64::MAX - 3), 16),
            Err(RemoteError::Fault)
        );
        assert_eq!(read(mm, page(1), 0), Ok(vec![]));
        assert_eq!(Errno::from(RemoteError::Fault), Errno::EFAULT);
    });
}

/// A mapping that may only be stored to is read by the hardware, and not by others.
#[test]
fn others_need_the_right_to_load() {
    in_each_era(1, 16 << 20, |_, _, mm| {
        map(mm, 0, 1, Prot::WRITE);
        assert_eq!(mm.thread().load(page(0)), Ok(0));
        assert_eq!(read(mm, page(0), 1), Err(RemoteError::Fault));
        assert_eq!(mm.remote_write(page(0), &[7], Force::No), Ok(1));
        let mut byte = [0];
        assert_eq!(mm.remote_read(page(0), &mut byte, Force::Yes), Ok(1));
        assert_eq!(byte, [7]);
    });
}

#[test]
fn force_reads_and_writes_what_nobody_may() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        for (n, prot) in [(0, Prot::NONE), (2, Prot::READ)] {
            map(mm, n, 1, Prot::READ_WRITE);
            mm.thread().store(at(n, 8), 5).expect("mapped");
            mm.protect(n, prot);
            let mut word = [0; 8];
            assert_eq!(mm.remote_read(at(n, 8), &mut word, Force::Yes), Ok(8));
            assert_eq!(u64::from_le_bytes(word), 5);
            // A page that is there, one that never was, and one of zeros.
            map(mm, n + 10, 2, prot);
            let _zero = mm.thread().load(page(n + 11));
            for at in [at(n, 16), at(n + 10, 0), at(n + 11, 0)] {
                assert_eq!(mm.remote_write(at, &[9], Force::Yes), Ok(1), "{prot}");
                let mut byte = [0];
                assert_eq!(mm.remote_read(at, &mut byte, Force::Yes), Ok(1));
                assert_eq!(byte, [9]);
                // No right has come of it.
                assert_eq!(mm.thread().store(at, 1), Err(Signal::AccErr));
            }
            // Holes are read as zeros.
            map(mm, n + 20, 1, prot);
            let mut byte = [1];
            assert_eq!(mm.remote_read(page(n + 20), &mut byte, Force::Yes), Ok(1));
            assert_eq!(byte, [0]);
            mm.protect(n, Prot::READ_WRITE);
            assert_eq!(mm.thread().load(at(n, 16)), Ok(9));
            mm.thread().store(at(n, 16), 10).expect("mapped");
        }
        sys.check_ledger(&[mm]).expect("adds up");
    });
}

#[test]
fn only_a_forced_access_grows_a_stack() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        let stack = MapRequest {
            growth: Growth::Down,
            ..MapRequest::new(Place::Fixed(page(9)), PAGE, Prot::READ_WRITE)
        };
        assert_eq!(mm.thread().mmap(&stack), Ok(page(9)));
        assert_eq!(
            mm.remote_write(page(8), &[1], Force::No),
            Err(RemoteError::Fault)
        );
        assert_eq!(read(mm, page(8), 1), Err(RemoteError::Fault));
        assert_eq!(
            mm.pin(page(8), Access::Write).err(),
            Some(RemoteError::Fault)
        );
        assert_eq!(sys.count_of(Event::StackGrown), 0);
        assert_eq!(mm.remote_write(page(8), &[1], Force::Yes), Ok(1));
        assert_eq!(mm.thread().load(page(8)), Ok(1));
        assert_eq!(
            mm.remote_write(page(10), &[1], Force::Yes),
            Err(RemoteError::Fault)
        );
    });
}

trait Protect {
    fn protect(&self, n: u64, prot: Prot);
}

impl Protect for Mm<Machine> {
    fn protect(&self, n: u64, prot: Prot) {
        assert_eq!(self.mprotect(page(n), PAGE, prot), Ok(()));
    }
}

#[test]
fn a_forced_write_never_reaches_a_page_that_a_child_has() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        map(mm, 0, 2, Prot::READ_WRITE);
        mm.thread().store(page(0), 1).expect("mapped");
        let child = mm.fork().expect("memory");
        mm.protect(0, Prot::READ);
        assert_eq!(mm.remote_write(page(0), &[2], Force::Yes), Ok(1));
        assert_eq!(child.thread().load(page(0)), Ok(1));
        assert_eq!(mm.thread().load(page(0)), Ok(2));
        assert_eq!(child.remote_write(page(0), &[3], Force::No), Ok(1));
        assert_eq!(mm.thread().load(page(0)), Ok(2));
        sys.check_ledger(&[mm, &child]).expect("adds up");
        drop(child);
    });
}

#[test]
fn a_pin_reads_and_writes_the_page() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        map(mm, 0, 4, Prot::READ_WRITE);
        let thread = mm.thread();
        let pin = mm.pin(at(0, 100), Access::Write).expect("mapped");
        pin.store(8, 7).expect("a word");
        assert_eq!(thread.load(at(0, 8)), Ok(7));
        thread.store(at(0, 16), 8).expect("mapped");
        assert_eq!(pin.load(16), Ok(8));
        assert_eq!(pin.load(PAGE), Err(RemoteError::Invalid));
        assert_eq!(pin.load(4), Err(RemoteError::Invalid));
        sys.check_ledger(&[mm]).expect("a pin adds up");
        // The page outlives its mapping.
        assert_eq!(mm.munmap(page(0), PAGE), Ok(()));
        assert_eq!(pin.load(8), Ok(7));
        sys.check_ledger(&[mm]).expect("a pin adds up");
        drop(pin);
        let zeros = mm.pin(page(1), Access::Read).expect("mapped");
        assert_eq!(zeros.load(0), Ok(0));
        assert_eq!(zeros.store(0, 1), Err(RemoteError::Fault));
        assert_eq!(
            mm.pin(page(9), Access::Read).err(),
            Some(RemoteError::Fault)
        );
        let mut text = String::new();
        mm.status(&mut text).expect("a string takes all");
        assert!(text.contains("VmPin:\t       4 kB\n"), "{text}");
    });
}

#[test]
fn a_pinned_page_stays_its_owners_across_a_fork() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        map(mm, 0, 4, Prot::READ_WRITE);
        let thread = mm.thread();
        for n in 0..3 {
            thread.store(page(n), n).expect("mapped");
        }
        let pins = [Access::Read, Access::Write].map(|access| {
            let n = access as u64 + 1;
            mm.pin(page(n), access).expect("mapped")
        });
        let child = mm.fork().expect("memory");
        assert_eq!(sys.count_of(Event::ForkCopies), 2);
        for (n, pin) in (1..).zip(&pins) {
            assert_eq!(child.thread().load(page(n)), Ok(n));
            thread.store(page(n), 10 + n).expect("mapped");
            assert_eq!(pin.load(0), Ok(10 + n), "the pin sees the owner's stores");
            assert_eq!(child.thread().load(page(n)), Ok(n));
            child.thread().store(page(n), 20 + n).expect("mapped");
            assert_eq!(pin.load(0), Ok(10 + n));
        }
        drop(thread);
        sys.check_ledger(&[mm, &child]).expect("adds up");
        drop(pins);
        drop(child);
    });
}

/// A pin of a shared page for loads: the owner's next store has to be seen through it, and a child
/// must not see the parent's (CVE-2020-29374).
fn pins_after_fork(config: Config) -> bool {
    let seen = core::cell::Cell::new(true);
    with(config, |sys, mm| {
        map(mm, 0, 1, Prot::READ_WRITE);
        let thread = mm.thread();
        thread.store(page(0), 1).expect("mapped");
        let child = mm.fork().expect("memory");
        let old = child.pin(page(0), Access::Read).expect("mapped");
        let own = mm.pin(page(0), Access::Read).expect("mapped");
        assert_eq!(child.madvise(page(0), PAGE, Advice::DontNeed), Ok(()));
        thread.store(page(0), 2).expect("mapped");
        assert_eq!(old.load(0), Ok(1), "the child reads what its parent stored");
        seen.set(own.load(0) == Ok(2));
        drop((old, own));
        drop(thread);
        sys.check_ledger(&[mm, &child]).expect("adds up");
        drop(child);
    });
    seen.get()
}

#[test]
fn a_pin_for_loads_has_a_page_of_its_own() {
    for era in eras_without_migration() {
        assert!(pins_after_fork(era.config), "{}", era.name);
    }
    let control = era("linux-4.13").expect("an era").config;
    assert!(!pins_after_fork(
        control.with_negative_control(Some(NegativeControl::PinsShared))
    ));
}

/// A pin for loads of what a private mapping shares with a file, or with everybody: whether it sees
/// the owner's next store.
fn pins_before_stores(config: Config) -> bool {
    let seen = core::cell::Cell::new(true);
    with(config, |sys, mm| {
        let file = sys.new_file(4 * PAGE).expect("memory");
        for n in 0..4 {
            file.write_word(n * PAGE, 10 + n).expect("memory");
        }
        let request = MapRequest::new(Place::Fixed(page(0)), 4 * PAGE, Prot::READ_WRITE);
        let mapped = mm.mmap_file(&request, &file, 0, Sharing::Private);
        assert_eq!(mapped, Ok(page(0)));
        map(mm, 4, 2, Prot::READ_WRITE);
        let thread = mm.thread();
        // A page that is mapped, and one that is not; a zero page, and nothing.
        assert_eq!(
            (thread.load(page(0)), thread.load(page(4))),
            (Ok(10), Ok(0))
        );
        for (n, there) in [(0, 10), (1, 11), (4, 0), (5, 0)] {
            let pin = mm.pin(page(n), Access::Read).expect("mapped");
            assert_eq!((pin.load(0), thread.load(page(n))), (Ok(there), Ok(there)));
            thread.store(page(n), 20 + n).expect("mapped");
            seen.set(seen.get() & (pin.load(0) == Ok(20 + n)));
            drop(pin);
        }
        // What may not be stored to now may be later.
        mm.protect(2, Prot::READ);
        let pin = mm.pin(page(2), Access::Read).expect("mapped");
        mm.protect(2, Prot::READ_WRITE);
        thread.store(page(2), 22).expect("mapped");
        seen.set(seen.get() & (pin.load(0) == Ok(22)));
        drop(pin);
        for n in 0..3 {
            assert_eq!(
                file.read_word(n * PAGE),
                Ok(Some(10 + n)),
                "a store to a file"
            );
        }
    });
    seen.get()
}

#[test]
fn a_pin_for_loads_sees_the_owners_later_stores() {
    for era in eras_without_migration() {
        assert!(pins_before_stores(era.config), "{}", era.name);
    }
    let control = era("linux-4.13").expect("an era").config;
    assert!(!pins_before_stores(
        control.with_negative_control(Some(NegativeControl::PinsShared))
    ));
}

/// A shared mapping's stores go to the file's page, and that is what a pin holds.
#[test]
fn a_pin_of_a_shared_mapping_holds_the_files_page() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        let file = sys.new_file(2 * PAGE).expect("memory");
        let request = MapRequest::new(Place::Fixed(page(0)), 2 * PAGE, Prot::READ_WRITE);
        let mapped = mm.mmap_file(&request, &file, 0, Sharing::Shared);
        assert_eq!(mapped, Ok(page(0)));
        let thread = mm.thread();
        assert_eq!(thread.load(page(0)), Ok(0));
        for n in 0..2 {
            let pin = mm.pin(page(n), Access::Read).expect("mapped");
            thread.store(page(n), 5).expect("mapped");
            assert_eq!(pin.load(0), Ok(5));
            assert_eq!(file.read_word(n * PAGE), Ok(Some(5)));
        }
    });
}

#[test]
fn a_fork_that_does_not_ask_takes_a_pinned_page_away() {
    let control = era("linux-4.13").expect("an era").config;
    with(
        control.with_negative_control(Some(NegativeControl::ForkSharesPinned)),
        |_, mm| {
            map(mm, 0, 1, Prot::READ_WRITE);
            let pin = mm.pin(page(0), Access::Write).expect("mapped");
            let child = mm.fork().expect("memory");
            mm.thread().store(page(0), 2).expect("mapped");
            assert_eq!(pin.load(0), Ok(0));
            drop((pin, child));
        },
    );
}

#[test]
fn a_pin_without_a_lock_needs_a_page_that_will_do() {
    in_each_era(1, 16 << 20, |_, sys, mm| {
        map(mm, 0, 2, Prot::READ_WRITE);
        let thread = mm.thread();
        assert!(thread.pin_fast(page(0), Access::Write).is_none(), "no page");
        thread.load(page(0)).expect("mapped");
        assert!(thread.pin_fast(page(0), Access::Read).is_none(), "zeros");
        thread.store(page(0), 1).expect("mapped");
        for access in [Access::Read, Access::Write] {
            let pin = thread.pin_fast(page(0), access).expect("it is there");
            assert_eq!(pin.load(0), Ok(1));
        }
        assert_eq!(sys.count_of(Event::PinnedFast), 2);
        let child = mm.fork().expect("memory");
        for access in [Access::Read, Access::Write] {
            assert!(thread.pin_fast(page(0), access).is_none(), "shared");
        }
        drop(child);
        assert!(thread.pin_fast(page(9), Access::Read).is_none());
    });
}

/// Were there no end to pins, the count of references would wrap.
#[test]
fn pins_of_one_page_have_an_end() {
    with(era("linux-6.15").expect("an era").config, |_, mm| {
        map(mm, 0, 1, Prot::READ_WRITE);
        let thread = mm.thread();
        thread.store(page(0), 1).expect("mapped");
        let pin = || thread.pin_fast(page(0), Access::Write);
        let pins: Vec<_> = core::iter::from_fn(pin).take(1 << 20).collect();
        assert!(
            pins.len() < 1 << 20,
            "the counter has 32 bits, a pin adds 4096"
        );
        let error = mm.pin(page(0), Access::Write).err();
        assert_eq!(error, Some(RemoteError::NoMemory));
        mm.munmap(page(0), PAGE).expect("mapped");
        assert_eq!(pins.first().map(|pin| pin.load(0)), Some(Ok(1)));
    });
}

/// Others read and write while the owner does, and forks; counts and words stay whole.
#[test]
fn owner_and_others_at_once() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 2, 16 << 20);
        let first = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        map(&mm, 0, 4, Prot::READ_WRITE);
        drop(first);
        std::thread::scope(|scope| {
            let (sys, mm) = (&sys, &mm);
            let other = scope.spawn(move || {
                let _cpu = sys.machine().enter(1);
                for round in 0..400u64 {
                    let n = round % 4;
                    let word = (round << 8 | 1).to_le_bytes();
                    assert_eq!(mm.remote_write(at(n, 8), &word, Force::No), Ok(8));
                    assert_eq!(read(mm, at(n, 8), 8), Ok(word.to_vec()));
                    let pin = mm.pin(page(n), Access::Write).expect("mapped");
                    pin.store(16, round).expect("a word");
                    assert_eq!(read(mm, at(n, 16), 8), Ok(round.to_le_bytes().to_vec()));
                }
            });
            let _cpu = sys.machine().enter(0);
            let thread = mm.thread();
            let mut round = 0;
            while !other.is_finished() {
                let n = round % 4;
                thread.store(page(n), round).expect("mapped");
                if round % 3 == 0 {
                    drop(mm.fork().expect("memory"));
                }
                assert_eq!(thread.load(page(n)), Ok(round));
                if let Some(pin) = thread.pin_fast(page(n), Access::Write) {
                    pin.store(0, round + 1).expect("a word");
                    assert_eq!(thread.load(page(n)), Ok(round + 1));
                }
                round += 1;
            }
        });
        let _cpu = sys.machine().enter(0);
        sys.check_ledger(&[&mm]).expect("adds up");
        drop(mm);
    }
}
