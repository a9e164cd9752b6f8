//! The area of shared memory through which workers tell the parent what they did, and through which
//! they meet.
//!
//! It is an array of 64-bit words, zero at first:
//!
//! ```text
//! word   0  claim    1 once a thread holds the right to report the process's failure
//!        1  kind     of failure, 0 for none     2 thread     3..6 details
//!        6  length of the message in bytes      8..40  the message
//!       40  looks of the oracle for contents    41  workers that are pinned
//!       42  workers at the barrier              43  rounds of the barrier
//!       48  mailbox: 8 slots, a cacheline each
//!      112  reports: a cacheline per worker
//! ```
//!
//! The parent reads after `wait4`, when no worker is left: the kernel orders that, so results are
//! `Relaxed`. Only mailbox and barrier pass values between workers that run.
//!
//! The barrier's rounds are counted in both halves of their word alike: a futex looks at one of
//! them, whichever comes first on this machine.

use super::sys::futex;
use super::sys::memory::SharedWords;
use super::window::Window;
use crate::target::{Stop, WorkerReport};
use core::sync::atomic::{AtomicU64, Ordering};
use minflt_addr::VirtAddr;

const CLAIM: usize = 0;
const KIND: usize = 1;
const THREAD: usize = 2;
const DETAILS: usize = 3;
const LENGTH: usize = 6;
const MESSAGE: usize = 8;
const MESSAGE_WORDS: usize = 32;
const CONTENTS: usize = 40;
const PINNED: usize = 41;
const ARRIVED: usize = 42;
const ROUND: usize = 43;
/// One round, in both halves of the word.
const ONE_ROUND: u64 = 1 << 32 | 1;
const MAILBOX: usize = 48;
const SLOTS: usize = 8;
const REPORTS: usize = 112;
/// Words of a cacheline.
const LINE: usize = 8;

const ERRNO: u64 = 1;
const SIGNAL: u64 = 2;
const DIFFERS: u64 = 3;
const PANIC: u64 = 4;
const NO_THREAD: u64 = 5;
const HUGE_PAGES: u64 = 6;
const NO_PROCESS: u64 = 7;
const KILLED: u64 = 8;

/// Words of a report that the worker itself fills; the last counts its children's operations.
const FIELDS: usize = LINE - 1;

/// The shared area of one process.
#[derive(Debug)]
pub(super) struct Area {
    words: SharedWords,
}

/// Why the child ended early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// A body stopped.
    Stop(Stop),
    /// A body panicked with these words.
    Panic(String),
    /// A thread could not be started.
    Thread(i32),
    /// Huge pages could not be switched off.
    HugePages(i32),
    /// A worker's process could not be started.
    Process(i32),
    /// A worker's process was killed by this signal.
    Killed(i32),
}

impl Area {
    /// A zeroed area for so many threads.
    ///
    /// # Errors
    /// The error number of `mmap`.
    pub(super) fn new(threads: u32) -> Result<Self, i32> {
        let words = SharedWords::new(REPORTS + LINE * threads as usize)?;
        Ok(Self { words })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.words.all()[index]
    }

    fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Relaxed)
    }

    fn set(&self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::Relaxed);
    }

    /// Notes a failure; of several threads' failures the first counts. Returns whether it is this.
    #[must_use]
    pub(super) fn fail(&self, thread: u32, failure: &Failure) -> bool {
        let claim = self.word(CLAIM);
        if claim
            .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        let number = |value: i32| u64::from(value.cast_unsigned());
        let (kind, details) = match failure {
            Failure::Stop(Stop::Errno(errno)) => (ERRNO, [number(*errno), 0, 0]),
            Failure::Stop(Stop::Signal(signal)) => (SIGNAL, [number(*signal), 0, 0]),
            Failure::Stop(Stop::Contents(at, expected, found)) => {
                (DIFFERS, [at.0, *expected, *found])
            }
            Failure::Panic(words) => {
                self.set_message(words);
                (PANIC, [0; 3])
            }
            Failure::Thread(errno) => (NO_THREAD, [number(*errno), 0, 0]),
            Failure::HugePages(errno) => (HUGE_PAGES, [number(*errno), 0, 0]),
            Failure::Process(errno) => (NO_PROCESS, [number(*errno), 0, 0]),
            Failure::Killed(signal) => (KILLED, [number(*signal), 0, 0]),
        };
        self.set(THREAD, u64::from(thread));
        for (i, detail) in details.into_iter().enumerate() {
            self.set(DETAILS + i, detail);
        }
        self.set(KIND, kind);
        true
    }

    /// The failure noted, and the thread it befell.
    pub(super) fn failure(&self) -> Option<(u32, Failure)> {
        let [a, b, c] = [0, 1, 2].map(|i| self.get(DETAILS + i));
        let number = (a as u32).cast_signed();
        let failure = match self.get(KIND) {
            ERRNO => Failure::Stop(Stop::Errno(number)),
            SIGNAL => Failure::Stop(Stop::Signal(number)),
            DIFFERS => Failure::Stop(Stop::Contents(VirtAddr(a), b, c)),
            PANIC => Failure::Panic(self.message()),
            NO_THREAD => Failure::Thread(number),
            HUGE_PAGES => Failure::HugePages(number),
            NO_PROCESS => Failure::Process(number),
            KILLED => Failure::Killed(number),
            _ => return None,
        };
        Some((self.get(THREAD) as u32, failure))
    }

    /// Keeps as much of `words` as there is room for.
    fn set_message(&self, words: &str) {
        let bytes = &words.as_bytes()[..words.len().min(MESSAGE_WORDS * 8)];
        for (i, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.set(MESSAGE + i, u64::from_le_bytes(word));
        }
        self.set(LENGTH, bytes.len() as u64);
    }

    fn message(&self) -> String {
        let mut bytes: Vec<u8> = (0..MESSAGE_WORDS)
            .flat_map(|i| self.get(MESSAGE + i).to_le_bytes())
            .collect();
        bytes.truncate(self.get(LENGTH) as usize);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Adds looks of the oracle for contents.
    pub(super) fn add_contents(&self, looks: u64) {
        self.word(CONTENTS).fetch_add(looks, Ordering::Relaxed);
    }

    /// How often the oracle for contents looked.
    pub(super) fn contents(&self) -> u64 {
        self.get(CONTENTS)
    }

    /// Counts a thread that is bound to its CPU.
    pub(super) fn add_pinned(&self) {
        self.word(PINNED).fetch_add(1, Ordering::Relaxed);
    }

    /// How many threads are bound to their CPU.
    pub(super) fn pinned(&self) -> u64 {
        self.get(PINNED)
    }

    /// Waits until `workers` workers have come.
    pub(super) fn meet(&self, workers: u32) {
        let (arrived, round) = (self.word(ARRIVED), self.word(ROUND));
        // ORDERING: Acquire here and below; pairs with [linux-barrier].
        let now = round.load(Ordering::Acquire);
        // ORDERING: AcqRel; pairs with [linux-barrier].
        if arrived.fetch_add(1, Ordering::AcqRel) + 1 == u64::from(workers) {
            // Whoever comes to the next round has seen this one end.
            arrived.store(0, Ordering::Relaxed);
            // ORDERING: Release; pairs with [linux-barrier].
            round.fetch_add(ONE_ROUND, Ordering::Release);
            futex::wake_all(round);
            return;
        }
        while round.load(Ordering::Acquire) == now {
            futex::wait(round, now as u32);
        }
    }

    fn slot(&self, slot: usize) -> &AtomicU64 {
        assert!(
            slot < SLOTS,
            "the mailbox has {SLOTS} slots, no slot {slot}"
        );
        self.word(MAILBOX + LINE * slot)
    }

    /// Sets a slot of the mailbox.
    pub(super) fn post(&self, slot: usize, value: u64) {
        // ORDERING: Release; pairs with [mailbox-slot]
        self.slot(slot).store(value, Ordering::Release);
    }

    /// Reads a slot of the mailbox.
    pub(super) fn read(&self, slot: usize) -> u64 {
        // ORDERING: Acquire; pairs with [mailbox-slot]
        self.slot(slot).load(Ordering::Acquire)
    }

    /// Adds 1 to a slot of the mailbox and returns what it held.
    pub(super) fn claim(&self, slot: usize) -> u64 {
        self.slot(slot).fetch_add(1, Ordering::Relaxed)
    }

    /// Adds operations that a worker's child did to the worker's.
    pub(super) fn add_child_ops(&self, worker: u32, ops: u64) {
        self.word(REPORTS + LINE * worker as usize + FIELDS)
            .fetch_add(ops, Ordering::Relaxed);
    }

    /// Leaves what a worker did for the parent.
    pub(super) fn publish(&self, thread: u32, window: &Window) {
        let WorkerReport {
            start_ns,
            end_ns,
            user_ns,
            system_ns,
            faults,
            ops,
        } = window.report;
        let fields = [
            start_ns,
            end_ns,
            user_ns,
            system_ns,
            faults,
            ops,
            window.cpu_ns,
        ];
        const {
            assert!(
                FIELDS == 7,
                "the fields above and the children's operations fill a line"
            )
        };
        for (i, field) in fields.into_iter().enumerate() {
            self.set(REPORTS + LINE * thread as usize + i, field);
        }
    }

    /// What a worker left.
    pub(super) fn window(&self, thread: u32) -> Window {
        let by_children = self.get(REPORTS + LINE * thread as usize + FIELDS);
        let [start_ns, end_ns, user_ns, system_ns, faults, ops, cpu_ns] =
            [0, 1, 2, 3, 4, 5, 6].map(|i| self.get(REPORTS + LINE * thread as usize + i));
        let report = WorkerReport {
            start_ns,
            end_ns,
            user_ns,
            system_ns,
            faults,
            ops: ops + by_children,
        };
        Window { report, cpu_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::{Area, Failure, Window};
    use crate::target::{Stop, WorkerReport};
    use minflt_addr::VirtAddr;

    #[test]
    fn failures_survive_the_words_and_the_first_one_counts() {
        for failure in [
            Failure::Stop(Stop::Errno(12)),
            Failure::Stop(Stop::Signal(11)),
            Failure::Stop(Stop::Contents(VirtAddr(0x1000), u64::MAX, 7)),
            Failure::Panic("words".to_owned()),
            Failure::Panic(String::new()),
            Failure::Thread(11),
            Failure::HugePages(22),
            Failure::Process(11),
            Failure::Killed(9),
        ] {
            let area = Area::new(1).unwrap();
            assert_eq!(area.failure(), None);
            assert!(area.fail(3, &failure));
            assert!(!area.fail(4, &Failure::Stop(Stop::Errno(1))));
            assert_eq!(area.failure(), Some((3, failure)));
        }
    }

    #[test]
    fn long_messages_are_cut() {
        let area = Area::new(1).unwrap();
        assert!(area.fail(0, &Failure::Panic("x".repeat(1000))));
        assert_eq!(area.failure(), Some((0, Failure::Panic("x".repeat(256)))));
    }

    #[test]
    fn reports_and_slots_do_not_overlap() {
        let area = Area::new(2).unwrap();
        (0..8).for_each(|slot| area.post(slot, slot as u64 + 1));
        let window = |n| Window {
            report: WorkerReport {
                start_ns: n,
                end_ns: n + 1,
                user_ns: n + 2,
                system_ns: n + 3,
                faults: n + 4,
                ops: n + 5,
            },
            cpu_ns: n + 6,
        };
        area.publish(0, &window(10));
        area.publish(1, &window(20));
        assert_eq!(area.window(0), window(10));
        assert_eq!(area.window(1), window(20));
        area.add_child_ops(1, 5);
        assert_eq!(area.window(1).report.ops, 30);
        assert_eq!(area.window(0).report.ops, 15);
        assert!((0..8).all(|slot| area.read(slot) == slot as u64 + 1));
        assert_eq!((area.claim(7), area.claim(7), area.read(7)), (8, 9, 10));
        assert_eq!(
            (area.contents(), area.pinned(), area.failure()),
            (0, 0, None)
        );
    }
}
