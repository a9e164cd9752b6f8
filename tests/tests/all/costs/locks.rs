//! The primitives of `sync`, undisturbed.

use super::count::{Count, M, of, with};
use minflt_sync::order::{FolioLock, MmapLock, VmaLock, ZoneLock};
use minflt_sync::{
    Atomic, LockSeq, LockedAt, Newcomers, RefLock, RwSem, SeqCount, SpinLock, Succession, WaitTable,
};

/// What each promises in its own file: loads, stores, exchanges.
#[test]
fn a_lock_that_nobody_else_wants_costs_what_its_page_says() {
    with(of("linux-4.13"), |w| {
        let count = |what: &str, expected: (u64, u64, u64), action: &dyn Fn()| {
            action();
            let did = w.did(action).all("elsewhere");
            let Count {
                loads,
                stores,
                exchanges,
            } = did;
            assert_eq!((loads, stores, exchanges), expected, "{what}");
        };
        let spin = SpinLock::<u64, ZoneLock, M>::new(0);
        count("spin.rs", (0, 1, 1), &|| drop(spin.lock()));
        let sem = RwSem::<MmapLock, M>::new(Succession::HandOff);
        count("rwsem.rs, reading", (0, 0, 2), &|| drop(sem.read()));
        count("rwsem.rs, writing", (0, 2, 2), &|| drop(sem.write()));
        count("rwsem.rs, downgrading", (0, 2, 3), &|| {
            drop(sem.write().downgrade())
        });
        let seq = SeqCount::<M>::new();
        count("seqcount.rs, reading", (2, 0, 0), &|| {
            assert!(seq.begin().is_some_and(|since| !seq.changed(since)));
        });
        count("seqcount.rs, writing", (2, 2, 0), &|| {
            seq.write_begin();
            seq.write_end();
        });
        let (whole, at) = (LockSeq::<M>::new(), LockedAt::<M>::new());
        count("lock_seq.rs, reading", (2, 0, 0), &|| {
            assert!(!at.is_locked(&whole))
        });
        count("lock_seq.rs, ending", (1, 1, 0), &|| whole.end_all());
        let refs = RefLock::<VmaLock, M>::new();
        refs.attach();
        // Four of the loads are two looks at the counts of `lock_seq.rs`.
        count("ref_lock.rs, reading", (5, 0, 2), &|| {
            drop(refs.try_read(&at, &whole))
        });
        // Of `lock_seq.rs`: three looks, and the ending with a load and a store.
        count("ref_lock.rs, writing", (5, 2, 2), &|| {
            let slept = refs.write_until_end(&at, &whole, Newcomers::Refused);
            assert_eq!(slept, 0);
            whole.end_all();
        });
        let (table, word) = (WaitTable::<M>::new(), Atomic::<u32, M>::new(0));
        count("wait_table.rs", (0, 0, 2), &|| {
            table.lock::<FolioLock>(1, &word, 1, 2);
            table.unlock::<FolioLock>(1, &word, 1, 2);
        });
    });
}
