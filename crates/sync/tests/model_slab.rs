//! Model of slabs: whoever is given a slot has it for itself, and sees what the slot's last owner
//! did with it, on whichever CPU that was; a page that goes back has no slot in use.
//!
//! Bounds: two CPUs, of which one gives slots to all and the other takes them, at most 5
//! preemptions; three, at most 3. Loom does not see the links within the slots: it watches one cell
//! for each slot, which its owner writes.
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
use core::ptr::NonNull;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom_machine::{Loom, check, play, spawn};
use minflt_sync::slab::{BATCH, FOOT, Magazine, Pages, SlabObject};
use minflt_sync::{Atomic, Ordering, PageSource, PerCpu, Slab, SpentPage};

type M = Loom<true>;

/// An object.
#[repr(C)]
struct Object([u64; 4]);

impl SlabObject for Object {}

const PAGE: usize = 512;
const PAGES: usize = 16;
/// Slots of a page.
const SLOTS: usize = (PAGE - FOOT) / size_of::<Object>();
// A CPU's stack that is filled from a fresh page gets all of it.
const _: () = assert!(SLOTS <= BATCH as usize && 3 * SLOTS > 2 * BATCH as usize);

/// Pages for the slab, and a cell for each slot of them.
struct Source {
    memory: Areas,
    /// The free ones, a bit each.
    free: Atomic<u64, M>,
    slots: Vec<UnsafeCell<u64>>,
    /// What a page's owner writes: the slab, or nobody.
    pages: Vec<UnsafeCell<u64>>,
}

struct Shared {
    slab: Slab<Object, M>,
    source: Source,
    _areas: Areas,
}

// SAFETY: loom finds accesses to the cells that nothing orders.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

/// An object that a task owns.
struct Owned(NonNull<Object>);

fn write(cell: &UnsafeCell<u64>) {
    cell.with_mut(|number| {
        // SAFETY: loom has just checked that nobody else is here.
        unsafe { *number += 1 };
    });
}

impl PageSource for Source {
    fn slab_page(&self, _slab: u8) -> Option<NonNull<[u8]>> {
        let mut free = self.free.load(Ordering::Relaxed);
        let at = loop {
            let at = free.trailing_zeros() as usize;
            if at == 64 {
                return None;
            }
            let rest = free & (free - 1);
            match self
                .free
                .cas(free, rest, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => break at,
                Err(found) => free = found,
            }
        };
        write(&self.pages[at]);
        // SAFETY: within the memory.
        let page = unsafe { self.memory.base().add(at * PAGE) };
        Some(NonNull::slice_from_raw_parts(page, PAGE))
    }

    fn slab_page_back(&self, _slab: u8, page: SpentPage) {
        let at = (page.base().addr().get() - self.memory.base().addr().get()) / PAGE;
        // Whoever had one of its slots gave it back before.
        for slot in &self.slots[at * SLOTS..(at + 1) * SLOTS] {
            write(slot);
        }
        write(&self.pages[at]);
        let before = self.free.or(1 << at, Ordering::Release);
        assert_eq!(before >> at & 1, 0, "page {at} is given back twice");
    }

    fn has(&self, _slab: u8, at: NonNull<u8>) -> bool {
        let offset = at.addr().get() - self.memory.base().addr().get();
        offset / PAGE < self.pages.len()
    }
}

impl Shared {
    fn new(cpus: u32, pages: Pages) -> Self {
        let areas = Areas::new(PerCpu::<Magazine<M>, M>::bytes(cpus));
        // SAFETY: 1: as many bytes as asked for, aligned, ours, and kept as long as the slab.
        let magazines = unsafe { PerCpu::build(areas.base(), cpus, |_| Magazine::new()) };
        let cells = |n: usize| (0..n).map(|_| UnsafeCell::new(0)).collect();
        Self {
            slab: Slab::new(0, magazines, pages),
            source: Source {
                memory: Areas::aligned(PAGES * PAGE, PAGE),
                free: Atomic::new((1 << PAGES) - 1),
                slots: cells(PAGES * SLOTS),
                pages: cells(PAGES),
            },
            _areas: areas,
        }
    }

    fn alloc(&self) -> Owned {
        let object = self.slab.alloc(Object([0; 4]), &self.source).ok().unwrap();
        self.touch(&Owned(object));
        Owned(object)
    }

    /// What an owner does with its object.
    fn touch(&self, object: &Owned) {
        let offset = object.0.addr().get() - self.source.memory.base().addr().get();
        let (page, within) = (offset / PAGE, offset % PAGE);
        let slot = page * SLOTS + within / size_of::<Object>();
        write(&self.source.slots[slot]);
    }

    fn free(&self, object: Owned) {
        self.touch(&object);
        // SAFETY: 1: from this slab's `alloc`, and consumed here. 2: its owner is the caller.
        unsafe { self.slab.free(object.0, &self.source) };
    }

    fn alloc_many(&self, n: u32) -> Vec<Owned> {
        (0..n).map(|_| self.alloc()).collect()
    }
}

impl Shared {
    /// Fills a CPU's own stack, so that one more slot would be too many; returns some objects that
    /// the CPU has besides.
    fn fill_stack(&self) -> Vec<Owned> {
        // Whole pages, so that the stack is empty then.
        let mut objects = self.alloc_many(3 * SLOTS as u32);
        for object in objects.split_off(objects.len() - 2 * BATCH as usize) {
            self.free(object);
        }
        objects
    }

    /// Takes more slots than there are before another CPU gives some; then gives them back.
    fn take_and_free(&self) {
        for object in self.alloc_many(BATCH) {
            self.free(object);
        }
    }
}

/// CPU 0 frees one object more than its own stack may hold, so that some slots become everybody's,
/// while CPUs 1 to `takers` need some.
fn one_that_gives_and_some_that_take(takers: u32, preemptions: usize) {
    check(1 + takers, preemptions, move || {
        let shared = Arc::new(Shared::new(1 + takers, Pages::Stay));
        let mut objects = shared.fill_stack();
        let live = objects.len() as u64 - 1;
        let others: Vec<_> = (1..=takers)
            .map(|cpu| {
                let shared = shared.clone();
                spawn(cpu as usize, move || shared.take_and_free())
            })
            .collect();
        let last = objects.pop().unwrap();
        shared.free(last);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(shared.slab.live(), live);
    });
}

#[test]
fn slots_that_one_cpu_gives_another_takes() {
    one_that_gives_and_some_that_take(1, 5);
}

#[test]
fn two_cpus_take_what_a_third_gives() {
    one_that_gives_and_some_that_take(2, 3);
}

/// CPU 0 frees all there is, while CPU 1 takes slots: pages go back when all of theirs are free.
#[test]
fn pages_go_back_while_another_cpu_takes_slots() {
    check(2, 4, || {
        let shared = Arc::new(Shared::new(2, Pages::Leave));
        let objects = shared.alloc_many(8 * BATCH);
        let before = shared.source.free.peek().count_ones();
        let theirs = shared.clone();
        let other = spawn(1, move || theirs.take_and_free());
        for object in objects {
            shared.free(object);
        }
        other.join().unwrap();
        assert_eq!(shared.slab.live(), 0);
        let after = shared.source.free.peek().count_ones();
        assert!(
            after > before,
            "no page went back: {after} of {PAGES} are free"
        );
    });
}

/// Objects made on one CPU are freed on another, and their slots used again where they were made.
#[test]
fn an_object_is_freed_where_it_was_not_made() {
    check(2, 4, || {
        let shared = Arc::new(Shared::new(2, Pages::Stay));
        let _mine = shared.fill_stack();
        let mut made = play(1, || shared.alloc_many(SLOTS as u32));
        let theirs = shared.clone();
        let other = spawn(1, move || theirs.take_and_free());
        shared.free(made.swap_remove(0));
        other.join().unwrap();
    });
}

/// Two CPUs fill their empty stacks at once, and each frees all it has.
#[test]
fn two_cpus_fill_their_stacks() {
    check(2, 4, || {
        let shared = Arc::new(Shared::new(2, Pages::Leave));
        let theirs = shared.clone();
        let other = spawn(1, move || theirs.take_and_free());
        shared.take_and_free();
        other.join().unwrap();
        assert_eq!(shared.slab.live(), 0);
    });
}

/// A CPU's stack belongs to that CPU: two tasks that use the same one find each other's slots.
#[test]
#[should_panic(expected = "Causality violation")]
fn control_two_tasks_with_one_stack_are_found() {
    check(2, 4, || {
        let shared = Arc::new(Shared::new(1, Pages::Stay));
        let theirs = shared.clone();
        let other = spawn(1, move || {
            play(0, || {
                let object = theirs.alloc();
                theirs.free(object);
            });
        });
        let object = shared.alloc();
        shared.free(object);
        other.join().unwrap();
    });
}

/// How a slot becomes everybody's in the copy.
fn copy_of_the_shared_stack(put: Ordering) {
    check(2, 4, move || {
        // The shared stack has at most one slot.
        let shared = Arc::new((Atomic::<u64, M>::new(0), UnsafeCell::new(0_u64)));
        let theirs = shared.clone();
        let taker = spawn(1, move || {
            let (stack, slot) = &*theirs;
            if stack
                .cas(1, 0, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                write(slot);
            }
        });
        let (stack, slot) = &*shared;
        write(slot);
        stack.store(1, put);
        taker.join().unwrap();
    });
}

#[test]
fn the_copy_is_sound_with_everything_in_place() {
    copy_of_the_shared_stack(Ordering::Release);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn control_a_slot_given_without_release_is_found() {
    copy_of_the_shared_stack(Ordering::Relaxed);
}
