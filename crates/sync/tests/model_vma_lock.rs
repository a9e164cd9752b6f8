//! Model of the two forms of a VMA's lock: a reader that came in sees no write of a writer under
//! way, a writer that went on has no reader inside, and nobody comes into what was taken out. A
//! lost wake-up would be a deadlock, which loom reports.
//!
//! Bounds: a writer of two rounds and a reader of two attempts, at most 4 preemptions; two readers
//! and a writer, at most 3.
#![cfg(loom)]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "the whole crate is a test"
)]

#[path = "common/loom_machine.rs"]
mod loom_machine;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom_machine::{Loom, check, spawn};
use minflt_sync::order::{MmapLock, VmaLock};
use minflt_sync::{
    Atomic, LockSeq, LockedAt, Newcomers, Ordering, RefLock, Refused, RwSem, Succession,
};

type M = Loom<false>;

/// Which form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Rwsem,
    Count,
    /// The same, whose writer lets readers in while it waits.
    CountLetIn,
}

/// What a test does wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// The writer says that it is inside without waiting for readers.
    DoesNotWait,
    /// A reader does not ask whose the object is, once inside.
    DoesNotAsk,
    /// The write locks end before the writing.
    EndsEarly,
    /// The writer detaches the object before it takes it out.
    DetachesEarly,
}

struct Shared {
    form: Form,
    mmap: RwSem<MmapLock, M>,
    whole: LockSeq<M>,
    /// The number of another address space, that the object may come to belong to.
    other: LockSeq<M>,
    at: LockedAt<M>,
    sem: RwSem<VmaLock, M>,
    count: RefLock<VmaLock, M>,
    /// Whose it is: 1 or 2; 0 once taken out.
    owner: Atomic<u64, M>,
    number: UnsafeCell<u64>,
}

// SAFETY: loom finds accesses to `number` that nothing orders.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(form: Form) -> Self {
        let shared = Self {
            form,
            mmap: RwSem::new(Succession::HandOff),
            whole: LockSeq::new(),
            other: LockSeq::new(),
            at: LockedAt::new(),
            sem: RwSem::new(Succession::HandOff),
            count: RefLock::new(),
            owner: Atomic::new(1),
            number: UnsafeCell::new(0),
        };
        shared.count.attach();
        shared
    }

    fn look(&self) -> u64 {
        self.number.with(|number| {
            // SAFETY: loom has just checked that nobody writes.
            unsafe { *number }
        })
    }

    fn change(&self) {
        self.number.with_mut(|number| {
            // SAFETY: loom has just checked that nobody else is here.
            unsafe { *number += 1 };
        });
    }

    /// What a fault does.
    fn read(&self, wrong: Wrong) -> Option<u64> {
        let look = || {
            let mine = wrong == Wrong::DoesNotAsk || self.owner.load(Ordering::Relaxed) == 1;
            mine.then(|| self.look())
        };
        match self.form {
            Form::Rwsem => {
                let _inside = self.sem.try_read_unless(&self.at, &self.whole)?;
                look()
            }
            Form::Count | Form::CountLetIn => {
                match self.count.try_read(&self.at, &self.whole) {
                    Ok(_inside) => look(),
                    Err(Refused::Locked) => None,
                    Err(Refused::Detached) => {
                        // Who finds it detached looks it up again, and does not find it.
                        let owner = self.owner.load(Ordering::Relaxed);
                        assert_ne!(owner, 1, "a detached object can still be found");
                        None
                    }
                }
            }
        }
    }

    fn write_lock(&self, wrong: Wrong) {
        match self.form {
            _ if wrong == Wrong::DoesNotWait => self.at.lock(&self.whole),
            Form::Rwsem => self.sem.write_until_end(&self.at, &self.whole),
            Form::Count => {
                self.count
                    .write_until_end(&self.at, &self.whole, Newcomers::Refused);
            }
            Form::CountLetIn => {
                self.count
                    .write_until_end(&self.at, &self.whole, Newcomers::LetIn);
            }
        }
        if wrong == Wrong::EndsEarly {
            self.whole.end_all();
        }
    }

    /// What a call that changes the VMA does.
    fn write(&self, wrong: Wrong) {
        let _held = self.mmap.write();
        self.write_lock(wrong);
        self.change();
        self.whole.end_all();
    }

    /// What munmap does, and then freeing.
    fn take_out(&self, wrong: Wrong) {
        let held = self.mmap.write();
        self.write_lock(Wrong::Nothing);
        if wrong == Wrong::DetachesEarly {
            self.count.detach();
        }
        self.owner.store(0, Ordering::Relaxed);
        if self.form == Form::Count && wrong != Wrong::DetachesEarly {
            self.count.detach();
        }
        self.whole.end_all();
        drop(held);
    }

    /// The memory becomes another address space's object.
    fn reuse(&self) {
        self.change();
        self.at.lock(&self.other);
        self.owner.store(2, Ordering::Relaxed);
        self.count.attach();
        self.other.end_all();
    }
}

fn readers_and_a_writer(form: Form, readers: usize, rounds: usize, bound: usize, wrong: Wrong) {
    check(1 + readers as u32, bound, move || {
        let shared = Arc::new(Shared::new(form));
        let others: Vec<_> = (1..=readers)
            .map(|at| {
                let shared = shared.clone();
                spawn(at, move || {
                    let mut last = 0;
                    for _ in 0..rounds {
                        if let Some(now) = shared.read(wrong) {
                            assert!(now >= last, "time runs backwards");
                            last = now;
                        }
                    }
                })
            })
            .collect();
        for _ in 0..rounds {
            shared.write(wrong);
        }
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(
            shared.read(Wrong::Nothing),
            Some(rounds as u64),
            "all write locks ended"
        );
    });
}

fn a_reader_and_reuse(form: Form, wrong: Wrong) {
    check(2, 4, move || {
        let shared = Arc::new(Shared::new(form));
        let theirs = shared.clone();
        let reader = spawn(1, move || {
            for _ in 0..2 {
                if let Some(now) = theirs.read(wrong) {
                    assert_eq!(now, 0, "what it read is another's");
                }
            }
        });
        shared.take_out(wrong);
        if form == Form::Count {
            shared.reuse();
        }
        reader.join().unwrap();
        assert_eq!(shared.read(Wrong::Nothing), None);
    });
}

#[test]
fn a_reader_and_a_writer_by_rwsem() {
    readers_and_a_writer(Form::Rwsem, 1, 2, 4, Wrong::Nothing);
}

#[test]
fn a_reader_and_a_writer_by_count() {
    readers_and_a_writer(Form::Count, 1, 2, 4, Wrong::Nothing);
}

#[test]
fn a_reader_and_a_writer_that_lets_readers_in() {
    readers_and_a_writer(Form::CountLetIn, 1, 2, 4, Wrong::Nothing);
}

#[test]
fn two_readers_and_a_writer_by_rwsem() {
    readers_and_a_writer(Form::Rwsem, 2, 1, 3, Wrong::Nothing);
}

#[test]
fn two_readers_and_a_writer_by_count() {
    readers_and_a_writer(Form::Count, 2, 1, 3, Wrong::Nothing);
}

#[test]
fn nobody_comes_into_what_was_taken_out() {
    a_reader_and_reuse(Form::Rwsem, Wrong::Nothing);
}

#[test]
fn a_reader_of_an_earlier_life_finds_out() {
    a_reader_and_reuse(Form::Count, Wrong::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_writer_that_does_not_wait_by_rwsem() {
    readers_and_a_writer(Form::Rwsem, 1, 1, 4, Wrong::DoesNotWait);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_writer_that_does_not_wait_by_count() {
    readers_and_a_writer(Form::Count, 1, 1, 4, Wrong::DoesNotWait);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_an_end_before_the_writing_by_rwsem() {
    readers_and_a_writer(Form::Rwsem, 1, 1, 4, Wrong::EndsEarly);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_an_end_before_the_writing_by_count() {
    readers_and_a_writer(Form::Count, 1, 1, 4, Wrong::EndsEarly);
}

#[test]
#[should_panic(expected = "what it read is another's")]
fn control_a_reader_that_does_not_ask_whose_it_is() {
    a_reader_and_reuse(Form::Count, Wrong::DoesNotAsk);
}

#[test]
#[should_panic(expected = "a detached object can still be found")]
fn control_an_object_that_is_detached_before_it_is_taken_out() {
    a_reader_and_reuse(Form::Count, Wrong::DetachesEarly);
}
