//! Model of sleepable read-copy-update: a callback runs after every reader that could have found
//! its object has left.
//!
//! Bounds: one reader of one or two sections and a writer that replaces the object once or twice
//! and polls beside it, at most 5 preemptions; one reader and two writers, at most 3.
#![cfg(loom)]
#![expect(
    clippy::tests_outside_test_module,
    clippy::unwrap_used,
    reason = "the whole crate is a test"
)]

#[path = "common/loom_machine.rs"]
mod loom_machine;

use core::ptr::{self, NonNull};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom_machine::{Loom, check, spawn};
use minflt_sync::prim::fence;
use minflt_sync::srcu::{Callback, SrcuCpu};
use minflt_sync::{Atomic, Ordering, PerCpu, Srcu};

type M = Loom<true>;

/// An object that readers find; the callback writes to it.
#[repr(C)]
struct Node {
    /// First, so that its address is the node's.
    callback: Callback,
    freed: UnsafeCell<bool>,
}

impl Node {
    fn new() -> Self {
        Self {
            callback: Callback::new(),
            freed: UnsafeCell::new(false),
        }
    }

    fn assert_alive(&self) {
        self.freed.with(|freed| {
            // SAFETY: loom has just checked that nobody writes.
            assert!(!unsafe { *freed }, "a reader found a freed object");
        });
    }

    fn free(&self) {
        self.freed.with_mut(|freed| {
            // SAFETY: loom has just checked that nobody else is here.
            unsafe { *freed = true };
        });
    }
}

/// # Safety
/// 1. `callback` is the first field of a live [`Node`].
unsafe fn free(_arg: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function.
    unsafe { callback.cast::<Node>().as_ref() }.free();
}

#[repr(align(128))]
#[derive(Clone, Copy)]
struct Apart {
    _bytes: [u8; 128],
}

struct Domain {
    srcu: Srcu<M>,
    nodes: [Node; 3],
    published: Atomic<u32, M>,
    /// What `srcu`'s areas lie in; last, so dropped after it.
    _areas: Box<[Apart]>,
}

// SAFETY: loom finds accesses to the nodes that nothing orders; the rest is the domain's.
unsafe impl Sync for Domain {}
// SAFETY: as above.
unsafe impl Send for Domain {}

impl Domain {
    fn new(cpus: u32) -> Self {
        let count = PerCpu::<SrcuCpu<M>, M>::bytes(cpus) / size_of::<Apart>();
        let mut areas = vec![Apart { _bytes: [0; 128] }; count].into_boxed_slice();
        let at = NonNull::new(areas.as_mut_ptr()).unwrap().cast();
        // SAFETY: 1: as many bytes as asked for, aligned, ours, and kept as long as the domain.
        let cpus = unsafe { PerCpu::build(at, cpus, |_| SrcuCpu::new()) };
        let nodes = [Node::new(), Node::new(), Node::new()];
        Self {
            srcu: Srcu::new(cpus),
            nodes,
            published: Atomic::new(0),
            _areas: areas,
        }
    }

    fn read(&self) {
        let _section = self.srcu.read();
        self.nodes[self.published.load(Ordering::Acquire) as usize].assert_alive();
    }

    /// Publishes the next node and queues the one before.
    fn replace(&self) {
        let old = self.published.add(1, Ordering::AcqRel);
        // SAFETY: 1: unpublished just now; 2: a node outlives the domain and is unpublished once;
        // 3: the first field of a node.
        unsafe {
            self.srcu
                .call(NonNull::from(&self.nodes[old as usize]).cast(), free)
        };
    }

    fn poll(&self) -> u64 {
        // SAFETY: 1: `free` does not look at the argument.
        unsafe { self.srcu.poll(ptr::null()) }
    }
}

fn reader_beside_writer(sections: u32, replacements: u32, polls: u32, preemptions: usize) {
    check(2, preemptions, move || {
        let domain = Arc::new(Domain::new(2));
        let theirs = domain.clone();
        let reader = spawn(1, move || {
            for _ in 0..sections {
                theirs.read();
            }
        });
        let mut ran = 0;
        for _ in 0..replacements {
            domain.replace();
            for _ in 0..polls {
                ran += domain.poll();
            }
        }
        reader.join().unwrap();
        // Nobody is inside any more: a batch a poll, and at most two batches are left.
        ran += domain.poll();
        ran += domain.poll();
        assert_eq!((ran, domain.srcu.pending()), (u64::from(replacements), 0));
    });
}

#[test]
fn a_callback_waits_for_the_reader_that_was_inside() {
    reader_beside_writer(1, 1, 2, 5);
}

#[test]
fn a_reader_that_counts_itself_late_is_waited_for_by_the_next_grace_period() {
    reader_beside_writer(1, 2, 1, 5);
}

#[test]
fn a_reader_that_comes_back_finds_the_new_object_or_is_waited_for() {
    reader_beside_writer(2, 1, 1, 5);
}

#[test]
fn callbacks_of_two_cpus_share_grace_periods() {
    check(3, 3, || {
        let domain = Arc::new(Domain::new(3));
        let (readers, writers) = (domain.clone(), domain.clone());
        let reader = spawn(1, move || readers.read());
        let writer = spawn(2, move || {
            writers.replace();
            writers.poll();
        });
        domain.replace();
        domain.poll();
        reader.join().unwrap();
        writer.join().unwrap();
        // SAFETY: 1: `free` does not look at the argument.
        unsafe { domain.srcu.drain(ptr::null()) };
        assert_eq!(domain.srcu.pending(), 0);
    });
}

/// What the copy of the protocol leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Omitted {
    Nothing,
    /// The wait for late readers of the last flip.
    WaitBeforeFlip,
    /// The fence after a reader has counted itself.
    ReaderFence,
}

/// The protocol for one CPU's counts, without callbacks: a grace period is tried, and if a reader
/// stands in the way the object is not freed.
struct Copy {
    index: Atomic<u64, M>,
    entered: [Atomic<u64, M>; 2],
    left: [Atomic<u64, M>; 2],
}

impl Copy {
    fn new() -> Self {
        let zeros = || [Atomic::new(0), Atomic::new(0)];
        Self {
            index: Atomic::new(0),
            entered: zeros(),
            left: zeros(),
        }
    }

    fn read(&self, omitted: Omitted, body: impl FnOnce()) {
        let generation = (self.index.load(Ordering::Relaxed) & 1) as usize;
        self.entered[generation].add(1, Ordering::Relaxed);
        if omitted != Omitted::ReaderFence {
            fence(Ordering::SeqCst);
        }
        body();
        self.left[generation].add(1, Ordering::Release);
    }

    fn no_readers(&self, generation: usize) -> bool {
        let left = self.left[generation].load(Ordering::Acquire);
        fence(Ordering::SeqCst);
        left == self.entered[generation].load(Ordering::Relaxed)
    }

    /// Whether a grace period that starts now came to its end.
    fn grace_period(&self, omitted: Omitted) -> bool {
        fence(Ordering::SeqCst);
        let current = (self.index.load(Ordering::Relaxed) & 1) as usize;
        if omitted != Omitted::WaitBeforeFlip && !self.no_readers(current ^ 1) {
            return false;
        }
        self.index.add(1, Ordering::SeqCst);
        self.no_readers(current)
    }
}

fn copy_of_the_protocol(omitted: Omitted) {
    check(2, 4, move || {
        let domain = Arc::new((Copy::new(), Domain::new(1)));
        let theirs = domain.clone();
        let reader = spawn(1, move || {
            let (
                copy,
                Domain {
                    nodes, published, ..
                },
            ) = &*theirs;
            copy.read(omitted, || {
                nodes[published.load(Ordering::Acquire) as usize].assert_alive()
            });
        });
        let (
            copy,
            Domain {
                nodes, published, ..
            },
        ) = &*domain;
        for _ in 0..2 {
            let old = published.add(1, Ordering::AcqRel);
            if !copy.grace_period(omitted) {
                break;
            }
            nodes[old as usize].free();
        }
        reader.join().unwrap();
    });
}

#[test]
fn the_copy_is_sound_with_everything_in_place() {
    copy_of_the_protocol(Omitted::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_grace_period_that_does_not_wait_before_the_flip_is_found() {
    copy_of_the_protocol(Omitted::WaitBeforeFlip);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_reader_without_its_fence_is_found() {
    copy_of_the_protocol(Omitted::ReaderFence);
}
