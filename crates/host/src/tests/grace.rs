//! Sleepable read-copy-update: no reader meets an object whose grace period is over.

use super::{M, machine, on_all_cpus, per_cpu, rounds};
use core::ptr::{self, NonNull};
use minflt_sync::srcu::{Callback, SrcuCpu};
use minflt_sync::{Atomic, Instance, Machine, Ordering, Srcu};

const ALIVE: u64 = 1;
const POISONED: u64 = 2;
const NODES: usize = 64;

#[repr(C)]
struct Node {
    /// First, so that its address is the node's.
    callback: Callback,
    state: Atomic<u64, M>,
}

// SAFETY: the callback is touched by whoever queued it and then by the domain only.
unsafe impl Sync for Node {}

/// # Safety
/// 1. `callback` is the first field of a live [`Node`].
unsafe fn poison(_arg: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function.
    let node = unsafe { callback.cast::<Node>().as_ref() };
    node.state.store(POISONED, Ordering::Relaxed);
}

#[test]
fn a_reader_never_sees_a_poisoned_object() {
    let cpus = 5;
    let at = machine(cpus);
    let srcu = Srcu::new(per_cpu(&at, 0, |_| SrcuCpu::<M>::new()));
    // Each of two writers has nodes of its own, of which one is published.
    let node = || Node {
        callback: Callback::new(),
        state: Atomic::new(POISONED),
    };
    let nodes: Vec<Vec<Node>> = (0..2)
        .map(|_| (0..NODES).map(|_| node()).collect())
        .collect();
    let published = [Atomic::<u64, M>::new(0), Atomic::<u64, M>::new(0)];
    for nodes in &nodes {
        nodes[0].state.store(ALIVE, Ordering::Relaxed);
    }
    let writing = Atomic::<u32, M>::new(2);
    let replace = |writer: usize, old: usize, new: usize| {
        let nodes = &nodes[writer];
        while nodes[new].state.load(Ordering::Relaxed) != POISONED {
            // SAFETY: 1: `poison` does not look at the argument.
            unsafe { srcu.poll(ptr::null()) };
        }
        nodes[new].state.store(ALIVE, Ordering::Relaxed);
        published[writer].store(new as u64, Ordering::Release);
        let callback = NonNull::from(&nodes[old]).cast();
        // SAFETY: 1: unpublished; 2: a node outlives the domain and is unpublished once before it
        // is poisoned; 3: it is the first field of a node.
        unsafe { srcu.call(callback, poison) };
    };
    on_all_cpus(&at, |cpu| {
        if cpu < 2 {
            for round in 0..rounds(5_000) as usize {
                replace(cpu as usize, round % NODES, (round + 1) % NODES);
            }
            writing.sub(1, Ordering::Release);
            return;
        }
        let mut seen = 0u64;
        while writing.load(Ordering::Acquire) > 0 || seen == 0 {
            for (published, nodes) in published.iter().zip(&nodes) {
                let _section = srcu.read();
                let node = &nodes[published.load(Ordering::Acquire) as usize];
                for _ in 0..4 {
                    assert_eq!(
                        node.state.load(Ordering::Relaxed),
                        ALIVE,
                        "read after grace"
                    );
                }
                if seen % 64 == 7 {
                    std::thread::yield_now();
                    assert_eq!(
                        node.state.load(Ordering::Relaxed),
                        ALIVE,
                        "read after grace"
                    );
                }
                seen += 1;
            }
        }
    });
    let _cpu = at.enter(0);
    // SAFETY: 1: `poison` does not look at the argument.
    unsafe { srcu.drain(ptr::null()) };
    assert_eq!(srcu.pending(), 0);
    let alive = nodes
        .iter()
        .flatten()
        .filter(|node| node.state.peek() == ALIVE)
        .count();
    assert_eq!(alive, 2);
    assert_eq!(at.cpus(), cpus);
}

#[test]
fn an_open_section_keeps_a_callback_waiting() {
    let at = machine(2);
    let srcu = Srcu::new(per_cpu(&at, 0, |_| SrcuCpu::<M>::new()));
    let node = Node {
        callback: Callback::new(),
        state: Atomic::new(ALIVE),
    };
    let _cpu = at.enter(0);
    let section = srcu.read();
    // SAFETY: 1: nobody finds the node; 2: it outlives the domain; 3: first field of a node.
    unsafe { srcu.call(NonNull::from(&node).cast(), poison) };
    for _ in 0..5 {
        // SAFETY: 1: `poison` does not look at the argument.
        assert_eq!(unsafe { srcu.poll(ptr::null()) }, 0);
    }
    assert_eq!(node.state.peek(), ALIVE);
    drop(section);
    // SAFETY: 1: `poison` does not look at the argument.
    assert_eq!(unsafe { srcu.poll(ptr::null()) }, 1);
    assert_eq!(node.state.peek(), POISONED);
    // SAFETY: duty 1 of `Machine`.
    assert_eq!(unsafe { &*M::cx() }.read_sections.get(), 0);
}
