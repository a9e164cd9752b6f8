//! Model of the queue of spinners: one at the head at a time, nobody is forgotten behind, and who
//! gives up is out of it. A forgotten spinner would be a deadlock, which loom reports.
//!
//! Bounds: two tasks that come back, at most 5 preemptions; three tasks, of which one, two or all
//! give up where they are not at the head, at most 3.
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
use minflt_sync::{Atomic, Ordering, SpinQueue};

type M = Loom<true>;

struct Shared {
    queue: SpinQueue<M>,
    /// How many are at the head, and how often somebody was.
    inside: Atomic<u32, M>,
    heads: Atomic<u32, M>,
}

/// What a task does when it is not at the head at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Task {
    Waits,
    GivesUp,
    /// Waits, and comes back once.
    WaitsTwice,
    /// Gives up, and comes back once to wait.
    GivesUpThenWaits,
}

impl Shared {
    fn once(&self, gives_up: bool) {
        if self.queue.enter(|_| gives_up) {
            let before = self.inside.add(1, Ordering::Relaxed);
            assert_eq!(before, 0, "two are at the head");
            self.heads.add(1, Ordering::Relaxed);
            self.inside.sub(1, Ordering::Relaxed);
            self.queue.leave();
        } else {
            assert!(gives_up, "who waits comes to the head");
        }
    }

    fn act(&self, task: Task) {
        self.once(matches!(task, Task::GivesUp | Task::GivesUpThenWaits));
        if matches!(task, Task::WaitsTwice | Task::GivesUpThenWaits) {
            self.once(false);
        }
    }
}

fn run(preemptions: usize, tasks: &'static [Task]) {
    check(tasks.len() as u32, preemptions, move || {
        let shared = Arc::new(Shared {
            queue: SpinQueue::new(2),
            inside: Atomic::new(0),
            heads: Atomic::new(0),
        });
        let others: Vec<_> = (1..tasks.len())
            .map(|at| {
                let shared = shared.clone();
                spawn(at, move || shared.act(tasks[at]))
            })
            .collect();
        shared.act(tasks[0]);
        for other in others {
            other.join().unwrap();
        }
        let wait = |task: &&Task| **task != Task::GivesUp;
        let least = tasks.iter().filter(wait).count() as u32;
        assert!(shared.heads.peek() >= least, "somebody did not get there");
        assert!(shared.queue.is_empty() && shared.queue.mark() == 2);
    });
}

#[test]
fn two_that_wait_and_come_back() {
    run(5, &[Task::WaitsTwice, Task::WaitsTwice]);
}

#[test]
fn one_that_waits_and_one_that_gives_up_and_comes_back() {
    run(5, &[Task::WaitsTwice, Task::GivesUpThenWaits]);
    run(5, &[Task::GivesUpThenWaits, Task::GivesUpThenWaits]);
}

#[test]
fn three_that_wait() {
    run(3, &[Task::Waits, Task::Waits, Task::Waits]);
}

#[test]
fn one_of_three_gives_up() {
    run(3, &[Task::Waits, Task::GivesUp, Task::Waits]);
}

#[test]
fn one_of_three_gives_up_and_comes_back() {
    run(3, &[Task::Waits, Task::GivesUpThenWaits, Task::Waits]);
}

#[test]
fn two_of_three_give_up() {
    run(3, &[Task::Waits, Task::GivesUp, Task::GivesUp]);
}

#[test]
fn all_of_three_give_up() {
    run(3, &[Task::GivesUp, Task::GivesUp, Task::GivesUp]);
}
