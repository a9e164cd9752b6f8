//! Model of read-copy-update: a callback runs after every CPU was seen outside of all sections.
//!
//! Bounds: one reader of one or two sections and a writer that replaces the object once or twice
//! and polls beside it, at most 4 preemptions; one reader and two writers, at most 3. There are no
//! interrupts here, so a reader takes one at the places its body says; the explorer of `sim` has
//! them everywhere. A thread that has ended idles, and whoever is left answers for it.
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
use loom_machine::{Loom, Nowhere, check, play, spawn};
use minflt_sync::prim::fence;
use minflt_sync::rcu::{Patience, RcuCpu};
use minflt_sync::{Atomic, Callback, Ordering, PerCpu, Rcu};

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
    rcu: Rcu<M>,
    nodes: [Node; 3],
    published: Atomic<u32, M>,
    steps: Atomic<u32, M>,
    /// What `rcu`'s areas lie in; last, so dropped after it.
    _areas: Box<[Apart]>,
}

// SAFETY: loom finds accesses to the nodes that nothing orders; the rest is the domain's.
unsafe impl Sync for Domain {}
// SAFETY: as above.
unsafe impl Send for Domain {}

/// Where a reader is interrupted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupted {
    Never,
    /// Inside, before it looks at the object.
    Inside,
}

impl Domain {
    fn new(cpus: u32) -> Self {
        let count = PerCpu::<RcuCpu<M>, M>::bytes(cpus) / size_of::<Apart>();
        let mut areas = vec![Apart { _bytes: [0; 128] }; count].into_boxed_slice();
        let at = NonNull::new(areas.as_mut_ptr()).unwrap().cast();
        // SAFETY: 1: as many bytes as asked for, aligned, ours, and kept as long as the domain.
        let cpus = unsafe { PerCpu::build(at, cpus, |_| RcuCpu::new()) };
        let nodes = [Node::new(), Node::new(), Node::new()];
        Self {
            rcu: Rcu::new(cpus, Patience(u64::MAX)),
            nodes,
            published: Atomic::new(0),
            steps: Atomic::new(0),
            _areas: areas,
        }
    }

    /// A point at which loom tries who comes first. It looks for the last access to a word only, so
    /// that a CPU which loads its own word before it stores it hides from loom that others have
    /// looked at it; and its clocks tick at atomics only.
    fn step(&self) {
        self.steps.add(1, Ordering::Relaxed);
    }

    /// A section, and the kernel exit after it.
    fn read(&self, interrupted: Interrupted) {
        let section = self.rcu.read();
        let node = &self.nodes[self.published.load(Ordering::Acquire) as usize];
        if interrupted == Interrupted::Inside {
            self.rcu.answer();
            self.step();
        }
        node.assert_alive();
        drop(section);
        self.rcu.quiescent();
    }

    /// Publishes the next node and queues the one before.
    fn replace(&self) {
        let old = self.published.add(1, Ordering::AcqRel);
        // SAFETY: 1: unpublished just now; 2: a node outlives the domain and is unpublished once;
        // 3: the first field of a node.
        unsafe {
            self.rcu
                .call(NonNull::from(&self.nodes[old as usize]).cast(), free)
        };
    }

    /// Queues a node that no reader finds.
    fn retire_unseen(&self, node: &Node) {
        // SAFETY: 1: nobody finds it; 2: a node outlives the domain, and is retired once; 3: the
        // first field of a node.
        unsafe { self.rcu.call(NonNull::from(node).cast(), free) };
    }

    fn poll(&self) -> u64 {
        // SAFETY: 1: `free` does not look at the argument.
        unsafe { self.rcu.poll(&Nowhere, ptr::null()) }
    }

    fn poll_twice_with_work(&self) {
        self.replace();
        self.poll();
        self.step();
        self.poll();
    }

    /// Polls as CPU `at`, while nobody else runs any more and CPUs below `cpus` idle.
    fn finish(&self, at: usize, cpus: usize) -> u64 {
        let mut ran = 0;
        // A batch needs at most two grace periods, and there are at most two batches.
        for _ in 0..6 {
            ran += play(at, || self.poll());
            for cpu in 0..cpus {
                play(cpu, || self.rcu.answer());
            }
        }
        ran
    }
}

fn reader_beside_writer(
    sections: u32,
    interrupted: Interrupted,
    replacements: u32,
    polls: u32,
    preemptions: usize,
) {
    check(2, preemptions, move || {
        let domain = Arc::new(Domain::new(2));
        let theirs = domain.clone();
        let reader = spawn(1, move || {
            for _ in 0..sections {
                theirs.read(interrupted);
            }
        });
        let mut ran = 0;
        for _ in 0..replacements {
            domain.replace();
            for _ in 0..polls {
                ran += domain.poll();
                domain.step();
            }
        }
        reader.join().unwrap();
        ran += domain.finish(0, 2);
        assert_eq!((ran, domain.rcu.pending()), (u64::from(replacements), 0));
    });
}

#[test]
fn a_callback_waits_for_the_reader_that_was_inside() {
    reader_beside_writer(1, Interrupted::Never, 1, 2, 4);
}

#[test]
fn a_reader_that_comes_back_finds_the_new_object_or_is_waited_for() {
    reader_beside_writer(2, Interrupted::Never, 1, 2, 4);
}

#[test]
fn a_report_for_one_grace_period_does_not_count_for_the_next() {
    reader_beside_writer(2, Interrupted::Never, 2, 2, 3);
}

#[test]
fn an_interrupt_inside_a_section_does_not_end_a_grace_period() {
    reader_beside_writer(1, Interrupted::Inside, 1, 2, 4);
    reader_beside_writer(2, Interrupted::Inside, 1, 2, 3);
}

#[test]
fn callbacks_of_two_cpus_share_grace_periods() {
    check(3, 3, || {
        let domain = Arc::new(Domain::new(3));
        let (readers, writers) = (domain.clone(), domain.clone());
        let reader = spawn(1, move || readers.read(Interrupted::Never));
        let writer = spawn(2, move || {
            writers.poll_twice_with_work();
        });
        domain.poll_twice_with_work();
        reader.join().unwrap();
        writer.join().unwrap();
        domain.finish(0, 3);
        domain.finish(2, 3);
        assert_eq!(domain.rcu.pending(), 0);
    });
}

/// CPUs 0 and 1 wait for one grace period, for which only CPU 2 has not reported: it is inside a
/// section. Either of the two ends it, and the other finds it ended.
#[test]
fn a_callback_runs_after_a_grace_period_that_another_cpu_ended() {
    check(3, 4, || {
        let domain = Arc::new(Domain::new(3));
        // The grace period before, under way when both callbacks are queued.
        play(2, || domain.retire_unseen(&domain.nodes[2]));
        play(2, || domain.poll());
        play(0, || domain.replace());
        play(0, || domain.poll());
        play(1, || domain.replace());
        // This one ends it, and begins theirs.
        play(1, || domain.poll());
        play(0, || domain.rcu.answer());
        let (reads, polls) = (domain.clone(), domain.clone());
        let reader = spawn(2, move || {
            // Found before either of the two was unlinked.
            let section = reads.rcu.read();
            reads.nodes[0].assert_alive();
            reads.nodes[1].assert_alive();
            drop(section);
            reads.rcu.quiescent();
        });
        let other = spawn(1, move || {
            polls.poll();
        });
        domain.poll();
        reader.join().unwrap();
        other.join().unwrap();
        for cpu in 0..3 {
            domain.finish(cpu, 3);
        }
        assert_eq!(domain.rcu.pending(), 0);
    });
}

/// CPU 1 starts a grace period that CPU 0, which has just unlinked an object, must not take for
/// its own if CPU 2 can report for it and then find the object.
#[test]
fn a_section_after_the_report_sees_what_was_unlinked_before_the_sample() {
    check(3, 3, || {
        let domain = Arc::new(Domain::new(3));
        let (reads, starts) = (domain.clone(), domain.clone());
        let starter = spawn(1, move || {
            starts.retire_unseen(&starts.nodes[2]);
            starts.poll();
        });
        let reader = spawn(2, move || {
            reads.rcu.quiescent();
            reads.read(Interrupted::Never);
        });
        domain.replace();
        domain.poll();
        domain.step();
        domain.poll();
        starter.join().unwrap();
        reader.join().unwrap();
        domain.finish(0, 3);
        domain.finish(1, 3);
        assert_eq!(domain.rcu.pending(), 0);
    });
}

/// As above, where the one that starts the grace period is the one that reads.
#[test]
fn a_reader_that_started_a_grace_period_sees_what_was_unlinked_before_the_sample() {
    check(2, 4, || {
        let domain = Arc::new(Domain::new(2));
        let theirs = domain.clone();
        let reader = spawn(1, move || {
            theirs.retire_unseen(&theirs.nodes[2]);
            theirs.poll();
            theirs.read(Interrupted::Never);
        });
        domain.replace();
        domain.poll();
        domain.step();
        domain.poll();
        reader.join().unwrap();
        domain.finish(0, 2);
        domain.finish(1, 2);
        assert_eq!(domain.rcu.pending(), 0);
    });
}

/// What the copy of the protocol leaves out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Omitted {
    Nothing,
    /// The wait for the reader.
    Wait,
    /// The fence before a report.
    Fence,
    /// The look whether the grace period under way began before the object was unlinked.
    Sample,
    /// The look whether the interrupt came inside a section.
    Depth,
}

/// What the writer comes upon.
#[derive(Clone, Copy)]
enum Before {
    /// No grace period.
    Idle,
    /// One that is under way for some other object.
    UnderWay,
}

/// The protocol for one reader, without callbacks.
struct Copy {
    period: Atomic<u64, M>,
    said: Atomic<u64, M>,
}

impl Copy {
    fn new(before: Before) -> Self {
        Self {
            period: Atomic::new(match before {
                Before::Idle => 2,
                Before::UnderWay => 3,
            }),
            said: Atomic::new(0),
        }
    }

    fn report(&self, omitted: Omitted) {
        let period = self.period.load(Ordering::Relaxed);
        if period & 1 != 0 {
            if omitted != Omitted::Fence {
                fence(Ordering::SeqCst);
            }
            self.said.store(period, Ordering::Relaxed);
        }
    }

    /// Whether a grace period that is good for what was unlinked before came to its end.
    fn grace_period(&self, omitted: Omitted) -> bool {
        fence(Ordering::SeqCst);
        let now = self.period.load(Ordering::Relaxed);
        let wanted = if omitted == Omitted::Sample {
            (now + 1) >> 1
        } else {
            (now + 3) >> 1
        };
        // Enough looks for two grace periods.
        for _ in 0..4 {
            let period = self.period.load(Ordering::Relaxed);
            if period >> 1 >= wanted {
                return true;
            }
            if period & 1 == 0 {
                self.period.add(1, Ordering::SeqCst);
            } else if omitted == Omitted::Wait || self.said.load(Ordering::Acquire) == period {
                self.period.add(1, Ordering::Release);
            }
        }
        self.period.load(Ordering::Relaxed) >> 1 >= wanted
    }
}

fn copy_of_the_protocol(before: Before, omitted: Omitted) {
    check(2, 5, move || {
        let domain = Arc::new((Copy::new(before), Domain::new(1)));
        let theirs = domain.clone();
        let reader = spawn(1, move || {
            let (
                copy,
                Domain {
                    nodes, published, ..
                },
            ) = &*theirs;
            copy.report(omitted);
            for _ in 0..2 {
                let node = &nodes[published.load(Ordering::Acquire) as usize];
                if omitted == Omitted::Depth {
                    copy.report(omitted);
                    published.load(Ordering::Relaxed);
                }
                node.assert_alive();
                copy.report(omitted);
            }
        });
        let (
            copy,
            Domain {
                nodes, published, ..
            },
        ) = &*domain;
        let old = published.add(1, Ordering::AcqRel);
        if copy.grace_period(omitted) {
            nodes[old as usize].free();
        }
        reader.join().unwrap();
    });
}

#[test]
fn the_copy_is_sound_with_everything_in_place() {
    copy_of_the_protocol(Before::Idle, Omitted::Nothing);
    copy_of_the_protocol(Before::UnderWay, Omitted::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_callback_that_does_not_wait_for_the_reader_is_found() {
    copy_of_the_protocol(Before::Idle, Omitted::Wait);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_report_without_its_fence_is_found() {
    copy_of_the_protocol(Before::Idle, Omitted::Fence);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_the_grace_period_under_way_is_not_good_enough() {
    copy_of_the_protocol(Before::UnderWay, Omitted::Sample);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_an_interrupt_that_reports_inside_a_section_is_found() {
    copy_of_the_protocol(Before::Idle, Omitted::Depth);
}
