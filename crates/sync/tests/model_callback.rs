//! Model of a CPU's queue of callbacks, through the grace periods that use it: each callback runs
//! once, after what came before its push, and no earlier than its grace period ends, while its CPU
//! pushes and polls and another CPU drains.
//!
//! Bounds: a CPU that pushes two callbacks and one that drains, at most 4 preemptions; with a
//! reader, at most 3.
#![cfg(loom)]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "the whole crate is a test"
)]

#[path = "common/areas.rs"]
mod areas;
#[path = "common/loom_machine.rs"]
mod loom_machine;

use areas::Areas;
use core::ptr::{self, NonNull};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom_machine::{Loom, check, spawn};
use minflt_sync::order::GraceLock;
use minflt_sync::srcu::SrcuCpu;
use minflt_sync::{Atomic, Callback, Ordering, PerCpu, SpinLock, Srcu};

type M = Loom<true>;

/// An object with a callback.
#[repr(C)]
struct Node {
    /// First, so that its address is the node's.
    callback: Callback,
    /// Written before the push, and by the callback: how often it ran.
    ran: UnsafeCell<u64>,
}

struct Shared {
    srcu: Srcu<M>,
    nodes: [Node; 3],
    published: Atomic<u32, M>,
    /// What `srcu`'s areas lie in; last, so dropped after it.
    _areas: Areas,
}

// SAFETY: loom finds accesses to the nodes that nothing orders; the rest is the domain's.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// # Safety
/// 1. `callback` is the first field of a live [`Node`].
unsafe fn count(_arg: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function.
    let node = unsafe { callback.cast::<Node>().as_ref() };
    node.ran.with_mut(|ran| {
        // SAFETY: loom has just checked that nobody else is here.
        unsafe { *ran += 1 };
    });
}

impl Shared {
    fn new(cpus: u32) -> Self {
        let areas = Areas::new(PerCpu::<SrcuCpu<M>, M>::bytes(cpus));
        // SAFETY: 1: as many bytes as asked for, aligned, ours, and kept as long as the domain.
        let cpus = unsafe { PerCpu::build(areas.base(), cpus, |_| SrcuCpu::new()) };
        let node = |_| Node {
            callback: Callback::new(),
            ran: UnsafeCell::new(0),
        };
        Self {
            srcu: Srcu::new(cpus),
            nodes: core::array::from_fn(node),
            published: Atomic::new(0),
            _areas: areas,
        }
    }

    /// Unlinks the node that can be found, writes to it, and pushes its callback.
    fn push(&self) {
        let at = self.published.add(1, Ordering::AcqRel) as usize;
        let callback = NonNull::from(&self.nodes[at]).cast();
        // SAFETY: 1: unlinked just now; 2: a node outlives the domain and is unlinked once; 3: the
        // first field of a node.
        unsafe { self.srcu.call(callback, count) };
    }

    fn read(&self) {
        let _section = self.srcu.read();
        let at = self.published.load(Ordering::Acquire) as usize;
        self.nodes[at].ran.with(|ran| {
            // SAFETY: loom has just checked that nobody writes.
            assert_eq!(unsafe { *ran }, 0, "a callback ran too early");
        });
    }

    fn poll(&self) -> u64 {
        // SAFETY: 1: `count` does not look at the argument.
        unsafe { self.srcu.poll(ptr::null()) }
    }

    fn drain(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.srcu.drain(ptr::null()) }
    }

    /// When nobody else runs any more: that each of the first `pushed` callbacks ran once.
    fn assert_ran(&self, pushed: usize) {
        self.drain();
        assert_eq!(self.srcu.pending(), 0);
        for (at, node) in self.nodes.iter().enumerate() {
            node.ran.with(|ran| {
                // SAFETY: nobody else runs.
                let ran = unsafe { *ran };
                assert_eq!(ran, u64::from(at < pushed), "callback {at} ran {ran} times");
            });
        }
    }
}

fn one_pushes_and_one_drains(pushes: usize, polls: usize, preemptions: usize) {
    check(2, preemptions, move || {
        let shared = Arc::new(Shared::new(2));
        let theirs = shared.clone();
        let drains = spawn(1, move || {
            theirs.drain();
        });
        for _ in 0..pushes {
            // What the pusher did to it before.
            let at = shared.published.peek() as usize;
            shared.nodes[at].ran.with_mut(|_| ());
            shared.push();
            for _ in 0..polls {
                shared.poll();
            }
        }
        drains.join().unwrap();
        shared.assert_ran(pushes);
    });
}

#[test]
fn each_callback_runs_once_while_another_cpu_drains() {
    one_pushes_and_one_drains(2, 0, 4);
}

#[test]
fn a_poll_beside_a_drain() {
    one_pushes_and_one_drains(2, 1, 4);
}

#[test]
fn no_callback_runs_before_a_reader_has_left() {
    check(3, 3, || {
        let shared = Arc::new(Shared::new(3));
        let (reads, drains) = (shared.clone(), shared.clone());
        let reader = spawn(2, move || reads.read());
        let other = spawn(1, move || {
            drains.drain();
        });
        shared.push();
        reader.join().unwrap();
        other.join().unwrap();
        shared.assert_ran(1);
    });
}

/// What the copy of the queue leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Omitted {
    Nothing,
    /// The look whether the batch is still the one whose grace period is over.
    Number,
    /// Taking the batch out before it runs.
    TakeOut,
}

#[derive(Clone, Default)]
struct Lists {
    queued: Vec<usize>,
    waiting: Vec<usize>,
    waiting_for: u64,
}

/// The queue of one CPU; a grace period is over as soon as `over` says so.
struct Copy {
    lists: SpinLock<Lists, GraceLock, M>,
    over: Atomic<u64, M>,
    ran: [UnsafeCell<u64>; 2],
}

// SAFETY: loom finds accesses to `ran` that nothing orders.
unsafe impl Sync for Copy {}
// SAFETY: as above.
unsafe impl Send for Copy {}

impl Copy {
    fn push(&self, at: usize) {
        self.lists.lock().queued.push(at);
    }

    fn poll(&self, omitted: Omitted) {
        let mut lists = self.lists.lock();
        if lists.waiting.is_empty() && !lists.queued.is_empty() {
            lists.waiting = core::mem::take(&mut lists.queued);
            lists.waiting_for += 1;
        }
        let wanted = lists.waiting_for;
        drop(lists);
        if self.over.load(Ordering::Acquire) < wanted {
            return;
        }
        let mut lists = self.lists.lock();
        if lists.waiting_for != wanted && omitted != Omitted::Number {
            return;
        }
        let late = lists.waiting_for > self.over.load(Ordering::Acquire);
        let due = if omitted == Omitted::TakeOut {
            lists.waiting.clone()
        } else {
            core::mem::take(&mut lists.waiting)
        };
        drop(lists);
        assert!(due.is_empty() || !late, "a callback ran too early");
        for at in due {
            self.ran[at].with_mut(|ran| {
                // SAFETY: loom has just checked that nobody else is here.
                unsafe { *ran += 1 };
            });
        }
        if omitted == Omitted::TakeOut {
            self.lists.lock().waiting.clear();
        }
    }
}

fn copy_of_the_queue(omitted: Omitted) {
    check(2, 4, move || {
        let copy = Arc::new(Copy {
            lists: SpinLock::new(Lists::default()),
            // The grace period of the first batch is over, that of the second is not.
            over: Atomic::new(1),
            ran: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let theirs = copy.clone();
        copy.push(0);
        let other = spawn(1, move || theirs.poll(omitted));
        copy.poll(omitted);
        copy.push(1);
        copy.poll(omitted);
        other.join().unwrap();
    });
}

#[test]
fn the_copy_is_sound_with_everything_in_place() {
    copy_of_the_queue(Omitted::Nothing);
}

#[test]
#[should_panic(expected = "a callback ran too early")]
fn control_a_batch_taken_for_an_older_one_is_found() {
    copy_of_the_queue(Omitted::Number);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_batch_that_two_cpus_run_is_found() {
    copy_of_the_queue(Omitted::TakeOut);
}
