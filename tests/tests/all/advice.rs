//! madvise, the flags that fork obeys, mincore: Linux's rules and error numbers, in every era.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Errno, Event, MadviseError, MincoreError, Mm, Prot, Signal, System, VmaView,
};
use minflt_tests::world::{Machine, PAGE, in_each_era, map, page};

/// In each era: pages 0..8 are mapped, 8..12 are not, 12..16 are.
fn everywhere(body: impl Fn(&'static str, &System<Machine>, &Mm<Machine>)) {
    in_each_era(2, 8 << 20, |era, sys, mm| {
        map(mm, 0, 8, Prot::READ_WRITE);
        map(mm, 12, 4, Prot::READ_WRITE);
        body(era, sys, mm);
    });
}

fn advise(mm: &Mm<Machine>, from: u64, pages: u64, advice: Advice) -> Result<(), MadviseError> {
    mm.thread().madvise(page(from), pages * PAGE, advice)
}

fn in_core(mm: &Mm<Machine>, from: u64, pages: usize) -> Vec<u8> {
    let mut found = vec![9; pages];
    let done = mm.mincore(page(from), pages as u64 * PAGE, &mut found);
    assert_eq!(done, Ok(()));
    found
}

fn view(mm: &Mm<Machine>, n: u64) -> VmaView {
    mm.mappings().vma_at(page(n)).expect("mapped")
}

#[test]
fn each_advice_has_the_number_and_order_of_checks_that_linux_has() {
    for advice in Advice::ALL {
        assert_eq!(Advice::from_number(advice.number()), Some(*advice));
    }
    for number in [5, 12, 13, 25, 100, 101, 102, 103, 200, u32::MAX] {
        assert_eq!(Advice::from_number(number), None, "{number}");
    }
    everywhere(|era, _, mm| {
        for advice in Advice::ALL {
            let of = |start: VirtAddr, len: u64| mm.madvise(start, len, *advice);
            let odd = VirtAddr(page(0).0 + 1);
            let invalid = Err(MadviseError::Invalid);
            assert_eq!(of(odd, PAGE), invalid, "{era} {advice}: not a page's");
            assert_eq!(of(odd, 0), invalid, "{advice}");
            assert_eq!(of(page(0), u64::MAX), invalid, "{advice}: wraps to 0");
            assert_eq!(of(page(0), 0_u64.wrapping_sub(PAGE)), invalid, "{advice}");
            assert_eq!(of(page(0), 0), Ok(()), "{advice}: nothing");
            assert_eq!(of(page(9), 0), Ok(()), "{advice}: nothing, of nothing");
            let hole = Err(MadviseError::NoMemory);
            assert_eq!(of(page(9), PAGE), hole, "{era} {advice}: a hole");
            // A mapping that refuses comes before the hole behind it.
            let refuses = *advice == Advice::Remove;
            let expected = if refuses { invalid } else { hole };
            assert_eq!(of(page(6), 4 * PAGE), expected, "{era} {advice}");
            let one = if refuses { invalid } else { Ok(()) };
            assert_eq!(of(page(1), PAGE), one, "{era} {advice}");
        }
    });
    let numbers = [
        (MadviseError::Invalid, Errno::EINVAL),
        (MadviseError::NoMemory, Errno::ENOMEM),
        (MadviseError::Again, Errno::EAGAIN),
    ];
    for (error, errno) in numbers {
        assert_eq!(Errno::from(error), errno);
    }
}

#[test]
fn what_lies_around_a_hole_is_done_all_the_same() {
    everywhere(|era, _, mm| {
        let thread = mm.thread();
        for n in [6, 7, 12, 13] {
            thread.store(page(n), n).expect("mapped");
        }
        let hole = Err(MadviseError::NoMemory);
        assert_eq!(advise(mm, 6, 7, Advice::DontNeed), hole);
        let words = [6, 7, 12, 13].map(|n| thread.load(page(n)));
        assert_eq!(words, [Ok(0), Ok(0), Ok(0), Ok(13)], "{era}");
        assert_eq!(advise(mm, 6, 7, Advice::Random), hole);
        let flags = [5, 6, 12, 13].map(|n| format!("{:?}", view(mm, n).flags));
        let random = |flags: &str| flags.contains("random");
        let expected = [false, true, true, false];
        assert_eq!(flags.each_ref().map(|flags| random(flags)), expected);
    });
}

#[test]
fn freed_pages_keep_their_contents_and_can_be_stored_to() {
    everywhere(|era, sys, mm| {
        let thread = mm.thread();
        for n in 0..4 {
            thread.store(page(n), n + 1).expect("mapped");
        }
        let _zero = thread.load(page(4)).expect("mapped");
        assert_eq!(advise(mm, 0, 8, Advice::Free), Ok(()));
        assert_eq!(in_core(mm, 0, 6), [1, 1, 1, 1, 1, 0], "{era}");
        for n in 0..4 {
            assert_eq!(thread.load(page(n)), Ok(n + 1), "{era}");
        }
        // A store is a store again: nothing buffered says otherwise.
        thread.store(page(1), 50).expect("mapped");
        assert_eq!(thread.load(page(1)), Ok(50));
        // Shared pages are left alone, and copied as ever.
        let child = sys.fork(mm).expect("memory");
        assert_eq!(advise(mm, 0, 8, Advice::Free), Ok(()));
        thread.store(page(1), 51).expect("mapped");
        assert_eq!(child.thread().load(page(1)), Ok(50), "{era}");
    });
}

#[test]
fn cold_pages_are_young_again_at_their_next_use() {
    everywhere(|era, sys, mm| {
        let thread = mm.thread();
        let all = minflt_addr::VirtRange::new(page(0), page(4));
        for n in 0..3 {
            thread.store(page(n), 1).expect("mapped");
        }
        assert_eq!(advise(mm, 0, 8, Advice::Cold), Ok(()));
        assert_eq!(mm.age(all), 0, "{era}: none was left young");
        thread.load(page(1)).expect("mapped");
        assert_eq!(mm.age(all), 1, "{era}: one was used");
        // What a child shares is left as it is.
        thread.load(page(1)).expect("mapped");
        let child = sys.fork(mm).expect("memory");
        thread.load(page(1)).expect("mapped");
        assert_eq!(advise(mm, 0, 8, Advice::Cold), Ok(()));
        assert_eq!(mm.age(all), 1, "{era}");
        drop(child);
        // Neither of these takes anything away.
        thread.load(page(2)).expect("mapped");
        assert_eq!(advise(mm, 0, 8, Advice::PageOut), Ok(()));
        assert_eq!(advise(mm, 0, 8, Advice::WillNeed), Ok(()));
        assert_eq!(mm.age(all), 1, "{era}");
        assert_eq!(in_core(mm, 0, 4), [1, 1, 1, 0]);
    });
}

#[test]
fn populating_asks_for_the_right_by_name() {
    everywhere(|era, sys, mm| {
        let (read, write) = (Advice::PopulateRead, Advice::PopulateWrite);
        assert_eq!(advise(mm, 0, 2, read), Ok(()));
        assert_eq!(advise(mm, 2, 2, write), Ok(()));
        assert_eq!(in_core(mm, 0, 5), [1, 1, 1, 1, 0], "{era}");
        assert_eq!(mm.resident_pages_sum(), 2, "{era}: pages of zeros are not");
        assert_eq!(sys.count_of(Event::PageFaults), 0, "nothing trapped");
        // What there is stays.
        let thread = mm.thread();
        thread.store(page(2), 7).expect("mapped");
        assert_eq!(advise(mm, 0, 4, write), Ok(()));
        assert_eq!(thread.load(page(2)), Ok(7));
        let rights = [
            (Prot::NONE, false, false),
            (Prot::READ, true, false),
            (Prot::WRITE, false, true),
            (Prot::EXEC, false, false),
            (Prot::READ_WRITE, true, true),
        ];
        for (prot, reads, writes) in rights {
            mm.mprotect(page(5), PAGE, prot).expect("mapped");
            let expected = |may| {
                if may {
                    Ok(())
                } else {
                    Err(MadviseError::Invalid)
                }
            };
            assert_eq!(advise(mm, 5, 1, read), expected(reads), "{era} {prot}");
            assert_eq!(advise(mm, 5, 1, write), expected(writes), "{era} {prot}");
        }
        // Up to what cannot be had.
        mm.mprotect(page(5), PAGE, Prot::NONE).expect("mapped");
        let refused = Err(MadviseError::Invalid);
        assert_eq!(advise(mm, 4, 3, write), refused);
        assert_eq!(in_core(mm, 4, 1), [1]);
        assert_eq!(in_core(mm, 6, 1), [0]);
        assert_eq!(advise(mm, 7, 6, read), Err(MadviseError::NoMemory));
        assert_eq!(in_core(mm, 7, 1), [1]);
        assert_eq!(in_core(mm, 12, 1), [0], "{era}: a hole ends it");
    });
}

#[test]
fn advice_is_recorded_where_it_was_given() {
    let changes = [
        (Advice::Sequential, "[sequential]"),
        (Advice::Random, "[random]"),
        (Advice::Normal, "[]"),
        (Advice::HugePage, "[huge-page]"),
        (Advice::NoHugePage, "[no-huge-page]"),
        (Advice::DontDump, "[dont-dump, no-huge-page]"),
        (Advice::DoDump, "[no-huge-page]"),
        (Advice::DontFork, "[dont-fork, no-huge-page]"),
        (
            Advice::WipeOnFork,
            "[dont-fork, wipe-on-fork, no-huge-page]",
        ),
        (Advice::DoFork, "[wipe-on-fork, no-huge-page]"),
        (Advice::KeepOnFork, "[no-huge-page]"),
    ];
    everywhere(|era, _, mm| {
        for (advice, expected) in changes {
            assert_eq!(advise(mm, 2, 3, advice), Ok(()));
            let flags = |n| {
                let flags = view(mm, n).flags.without(minflt_mm::VmaFlags::ACCOUNT);
                format!("{flags:?}").replace('"', "")
            };
            assert_eq!(flags(2), expected, "{era} {advice}");
            assert_eq!(flags(4), expected, "{era} {advice}");
            for n in [1, 5] {
                assert_eq!(flags(n), "[]", "{era} {advice}: beside");
            }
        }
    });
}

#[test]
fn a_child_lacks_what_it_was_not_to_have_and_finds_zeros_where_it_was_wiped() {
    everywhere(|era, sys, mm| {
        let store = |mm: &Mm<Machine>, n, word| mm.thread().store(page(n), word).expect("mapped");
        (0..8).for_each(|n| store(mm, n, n + 1));
        assert_eq!(advise(mm, 2, 2, Advice::DontFork), Ok(()));
        assert_eq!(advise(mm, 4, 2, Advice::WipeOnFork), Ok(()));
        let child = sys.fork(mm).expect("memory");
        let words = |mm: &Mm<Machine>| [1, 2, 3, 4, 5, 6].map(|n| mm.thread().load(page(n)));
        let gone = Err(Signal::MapErr);
        let wiped = [Ok(2), gone, gone, Ok(0), Ok(0), Ok(7)];
        assert_eq!(
            in_core(&child, 4, 3),
            [0, 0, 1],
            "{era}: nothing was shared"
        );
        assert_eq!(words(&child), wiped, "{era}");
        assert_eq!(words(mm), [2, 3, 4, 5, 6, 7].map(Ok), "{era}");
        assert_eq!(child.mapped_bytes(), 10 * PAGE, "{era}");
        // Nothing of either reaches the other.
        store(&child, 4, 40);
        store(mm, 5, 50);
        assert_eq!(mm.thread().load(page(4)), Ok(5));
        assert_eq!(child.thread().load(page(5)), Ok(0));
        sys.check_ledger(&[mm, &child])
            .unwrap_or_else(|e| panic!("{era}: {e}"));
        // The child's own child finds zeros there, too.
        let grandchild = sys.fork(&child).expect("memory");
        assert_eq!(grandchild.thread().load(page(4)), Ok(0), "{era}");
        drop((child, grandchild));
        // And what was taken back is as before.
        assert_eq!(advise(mm, 0, 8, Advice::DoFork), Ok(()));
        assert_eq!(advise(mm, 0, 8, Advice::KeepOnFork), Ok(()));
        let child = sys.fork(mm).expect("memory");
        assert_eq!(words(&child), [2, 3, 4, 5, 50, 7].map(Ok), "{era}");
    });
}

#[test]
fn mincore_says_what_is_there_and_refuses_as_linux_does() {
    everywhere(|era, _, mm| {
        let thread = mm.thread();
        thread.store(page(1), 1).expect("mapped");
        thread.load(page(2)).expect("mapped");
        thread.store(page(3), 1).expect("mapped");
        mm.mprotect(page(3), PAGE, Prot::NONE).expect("mapped");
        assert_eq!(in_core(mm, 0, 6), [0, 1, 1, 1, 0, 0], "{era}");
        assert_eq!(advise(mm, 1, 1, Advice::DontNeed), Ok(()));
        assert_eq!(in_core(mm, 0, 6), [0, 0, 1, 1, 0, 0], "{era}");
        let mut found = [7; 4];
        let odd = VirtAddr(page(0).0 + 1);
        let hole = Err(MincoreError::NoMemory);
        assert_eq!(
            mm.mincore(odd, u64::MAX, &mut found),
            Err(MincoreError::Invalid)
        );
        assert_eq!(mm.mincore(page(0), u64::MAX, &mut found), hole);
        assert_eq!(mm.mincore(VirtAddr(1 << 47), PAGE, &mut found), hole);
        assert_eq!(mm.mincore(page(9), 0, &mut found), Ok(()));
        assert_eq!(mm.mincore(page(9), PAGE, &mut found), hole);
        assert_eq!(mm.mincore(page(0), PAGE, &mut []), Err(MincoreError::Fault));
        assert_eq!(found, [7; 4]);
        assert_eq!(mm.mincore(page(2), 1, &mut found), Ok(()));
        assert_eq!(found, [1, 7, 7, 7], "{era}: a byte is a page");
        found = [7; 4];
        assert_eq!(mm.mincore(page(6), 4 * PAGE, &mut found), hole);
        assert_eq!(found, [0, 0, 7, 7], "{era}: what lies before the hole");
    });
    let numbers = [
        (MincoreError::Invalid, Errno::EINVAL),
        (MincoreError::NoMemory, Errno::ENOMEM),
        (MincoreError::Fault, Errno::EFAULT),
    ];
    for (error, errno) in numbers {
        assert_eq!(Errno::from(error), errno);
    }
}
