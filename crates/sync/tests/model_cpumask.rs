//! Model of the shared set of CPUs: either the initiator of a shootdown sees a CPU in it, or the
//! CPU reads the entry as the initiator has changed it.
//!
//! Bounds: an initiator and a CPU that comes, at most 6 preemptions; and two CPUs of one word, at
//! most 4.
#![cfg(loom)]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "the whole crate is a test"
)]

#[path = "common/loom_machine.rs"]
mod loom_machine;

use loom::sync::Arc;
use loom_machine::{Loom, check, spawn};
use minflt_sync::prim::fence;
use minflt_sync::{Atomic, CpuMask, Ordering, SharedCpuMask};

type M = Loom<true>;

struct Space {
    cpus: SharedCpuMask<M>,
    /// An entry of its table: 0 as it was, 1 as it is changed.
    entry: Atomic<u64, M>,
}

impl Space {
    /// What `Mm::arrive` of a CPU does, and the first walk of the table after it.
    fn arrive(&self, cpu: u32) -> u64 {
        self.cpus.insert(cpu);
        self.entry.load(Ordering::Relaxed)
    }

    /// What a change of the entry does: the CPUs that have to be asked.
    fn change(&self, me: u32, cpus: u32) -> CpuMask {
        self.entry.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut others = CpuMask::empty();
        let (here, any) = self.cpus.split(me, cpus, &mut others);
        assert!(!here, "CPU {me} has never been here");
        assert_eq!(any, !others.is_empty());
        others
    }
}

/// CPUs 1 to `comers` come while CPU 0 changes the entry.
fn comers_and_an_initiator(comers: u32, preemptions: usize) {
    check(1 + comers, preemptions, move || {
        let space = Arc::new(Space {
            cpus: SharedCpuMask::new(),
            entry: Atomic::new(0),
        });
        let saw = Arc::new(core::array::from_fn::<_, 2, _>(|_| {
            Atomic::<u64, M>::new(9)
        }));
        let others: Vec<_> = (1..=comers)
            .map(|cpu| {
                let (space, saw) = (space.clone(), saw.clone());
                spawn(cpu as usize, move || {
                    let found = space.arrive(cpu);
                    saw[cpu as usize - 1].store(found, Ordering::Relaxed);
                })
            })
            .collect();
        let asked = space.change(0, 1 + comers);
        for other in others {
            other.join().unwrap();
        }
        for cpu in 1..=comers {
            let found = saw[cpu as usize - 1].load(Ordering::Relaxed);
            assert!(
                asked.contains(cpu) || found == 1,
                "an old entry stays buffered"
            );
        }
        let mut all = CpuMask::empty();
        space.cpus.split(0, 1 + comers, &mut all);
        assert!(all.iter().eq(1..=comers), "one that came is forgotten");
    });
}

#[test]
fn the_initiator_sees_the_cpu_or_the_cpu_sees_the_change() {
    comers_and_an_initiator(1, 6);
}

#[test]
fn two_that_come_at_once() {
    comers_and_an_initiator(2, 4);
}

/// What the copy of the protocol leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Omitted {
    Nothing,
    /// The fence of the exchange by which a CPU comes.
    Comers,
    /// The fence between the change and the look at the set.
    Initiators,
}

fn copy_of_the_protocol(omitted: Omitted) {
    check(2, 6, move || {
        let shared = Arc::new((Atomic::<u64, M>::new(0), Atomic::<u64, M>::new(0)));
        let theirs = shared.clone();
        let comer = spawn(1, move || {
            let (set, entry) = &*theirs;
            set.or(1, Ordering::AcqRel);
            if omitted != Omitted::Comers {
                fence(Ordering::SeqCst);
            }
            // What it read stands in the set, for the assertion.
            set.or(entry.load(Ordering::Relaxed) << 1, Ordering::Relaxed);
        });
        let (set, entry) = &*shared;
        entry.store(1, Ordering::Relaxed);
        if omitted != Omitted::Initiators {
            fence(Ordering::SeqCst);
        }
        let asked = set.load(Ordering::Relaxed) & 1 == 1;
        comer.join().unwrap();
        let saw = set.load(Ordering::Relaxed) >> 1 == 1;
        assert!(asked || saw, "an old entry stays buffered");
    });
}

#[test]
fn the_copy_is_sound_with_everything_in_place() {
    copy_of_the_protocol(Omitted::Nothing);
}

#[test]
#[should_panic(expected = "an old entry stays buffered")]
fn control_a_cpu_that_comes_without_a_fence_is_found() {
    copy_of_the_protocol(Omitted::Comers);
}

#[test]
#[should_panic(expected = "an old entry stays buffered")]
fn control_an_initiator_without_its_fence_is_found() {
    copy_of_the_protocol(Omitted::Initiators);
}
