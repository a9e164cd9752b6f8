//! Read-copy-update on real threads: no reader meets an object whose grace period is over, and CPUs
//! that do not come by are interrupted.

use super::{M, machine, on_all_cpus, per_cpu, rounds};
use crate::HostInstance;
use core::ptr::{self, NonNull};
use minflt_sync::rcu::{Patience, RcuCpu};
use minflt_sync::{Atomic, Callback, Instance, IpiHandler, Machine, Ordering, Rcu};

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

impl Node {
    fn new(state: u64) -> Self {
        Self {
            callback: Callback::new(),
            state: Atomic::new(state),
        }
    }

    fn assert_alive(&self) {
        assert_eq!(
            self.state.load(Ordering::Relaxed),
            ALIVE,
            "read after grace"
        );
    }
}

/// # Safety
/// 1. `callback` is the first field of a live [`Node`].
unsafe fn poison(_arg: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function.
    let node = unsafe { callback.cast::<Node>().as_ref() };
    node.state.store(POISONED, Ordering::Relaxed);
}

/// # Safety
/// 1. `arg` is the domain.
unsafe fn answer(arg: *const ()) {
    // SAFETY: 1 of this function.
    unsafe { &*arg.cast::<Rcu<M>>() }.answer();
}

/// Runs `body` with a domain whose interrupts are answered.
fn with_domain(at: &HostInstance, patience: u64, body: impl FnOnce(&Rcu<M>)) {
    let rcu = Rcu::new(per_cpu(at, 0, |_| RcuCpu::<M>::new()), Patience(patience));
    at.set_ipi_handler(Some(IpiHandler {
        call: answer,
        arg: ptr::from_ref(&rcu).cast(),
    }));
    body(&rcu);
    at.set_ipi_handler(None);
}

#[test]
fn a_reader_never_sees_a_poisoned_object() {
    for patience in [1, 64] {
        let cpus = 5;
        let at = machine(cpus);
        with_domain(&at, patience, |rcu| replace_and_read(&at, rcu));
    }
}

/// Two writers, each with nodes of its own of which one is published, and readers.
fn replace_and_read(at: &HostInstance, rcu: &Rcu<M>) {
    let nodes: [Vec<Node>; 2] =
        core::array::from_fn(|_| (0..NODES).map(|_| Node::new(POISONED)).collect());
    let published = [Atomic::<u64, M>::new(0), Atomic::<u64, M>::new(0)];
    for nodes in &nodes {
        nodes[0].state.store(ALIVE, Ordering::Relaxed);
    }
    let writing = Atomic::<u32, M>::new(2);
    let replace = |writer: usize, old: usize, new: usize| {
        let nodes = &nodes[writer];
        while nodes[new].state.load(Ordering::Relaxed) != POISONED {
            M::enter_kernel();
            // SAFETY: 1: `poison` does not look at the argument.
            unsafe { rcu.poll(at, ptr::null()) };
            std::thread::yield_now();
        }
        nodes[new].state.store(ALIVE, Ordering::Relaxed);
        published[writer].store(new as u64, Ordering::Release);
        let callback = NonNull::from(&nodes[old]).cast();
        // SAFETY: 1: unpublished; 2: a node outlives the domain and is unpublished once before it
        // is poisoned; 3: it is the first field of a node.
        unsafe { rcu.call(callback, poison) };
    };
    on_all_cpus(at, |cpu| {
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
                let section = rcu.read();
                let node = &nodes[published.load(Ordering::Acquire) as usize];
                node.assert_alive();
                // Takes an interrupt inside the section, if one waits.
                M::irq_restore(M::irq_save());
                if seen % 4 == 1 {
                    std::thread::yield_now();
                }
                node.assert_alive();
                drop(section);
                // Some readers report by themselves, others only when they are interrupted.
                if cpu == 2 {
                    rcu.quiescent();
                }
                M::enter_kernel();
                seen += 1;
            }
        }
    });
    let _cpu = at.enter(0);
    // SAFETY: 1: `poison` does not look at the argument.
    unsafe { rcu.drain(at, ptr::null()) };
    assert_eq!(rcu.pending(), 0);
    let alive = |nodes: &Vec<Node>| {
        nodes
            .iter()
            .filter(|node| node.state.peek() == ALIVE)
            .count()
    };
    assert_eq!(nodes.each_ref().map(alive), [1, 1]);
}

#[test]
fn an_open_section_keeps_a_callback_waiting_and_nobody_else_does() {
    let at = machine(3);
    with_domain(&at, 1, |rcu| {
        let node = Node::new(ALIVE);
        let _cpu = at.enter(0);
        let section = rcu.read();
        // SAFETY: 1: nobody finds the node; 2: it outlives the domain; 3: first field of a node.
        unsafe { rcu.call(NonNull::from(&node).cast(), poison) };
        // SAFETY: 1, here and below: `poison` does not look at the argument.
        let poll = || unsafe { rcu.poll(&at, ptr::null()) };
        for _ in 0..5 {
            assert_eq!(poll(), 0);
        }
        assert_eq!(node.state.peek(), ALIVE);
        drop(section);
        // CPUs 1 and 2 are nobody; whoever asks answers for them.
        assert_eq!(poll(), 1);
        assert_eq!(node.state.peek(), POISONED);
        // SAFETY: duty 1 of `Machine`.
        assert_eq!(unsafe { &*M::cx() }.rcu_depth.get(), 0);
    });
}

#[test]
fn without_interrupts_a_cpu_that_does_not_come_by_is_waited_for() {
    let at = machine(2);
    with_domain(&at, u64::MAX, |rcu| {
        let node = Node::new(ALIVE);
        let _cpu = at.enter(0);
        // SAFETY: 1: nobody finds the node; 2: it outlives the domain; 3: first field of a node.
        unsafe { rcu.call(NonNull::from(&node).cast(), poison) };
        for _ in 0..5 {
            // SAFETY: 1: `poison` does not look at the argument.
            assert_eq!(unsafe { rcu.poll(&at, ptr::null()) }, 0);
        }
        assert_eq!(node.state.peek(), ALIVE);
        // SAFETY: 1: as above.
        unsafe { rcu.drain(&at, ptr::null()) };
        assert_eq!(node.state.peek(), POISONED);
    });
}
