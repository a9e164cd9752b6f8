//! The spinning lock, the sleeping lock and the sequence count.

use super::{M, machine, on_all_cpus, rounds};
use crate::HostInstance;
use minflt_sync::order::{FilesLock, MmapLock, PageTableLock};
use minflt_sync::{
    Atomic, Instance, Machine, Ordering, Plain, RwSem, SeqCount, SpinLock, Succession,
};

#[test]
fn additions_under_a_spinning_lock_add_up() {
    for cpus in [2, 8] {
        let at = machine(cpus);
        let counter: SpinLock<u64, PageTableLock, M> = SpinLock::new(0);
        let tried: SpinLock<u64, FilesLock, M> = SpinLock::new(0);
        on_all_cpus(&at, |_| {
            for _ in 0..rounds(20_000) {
                *counter.lock() += 1;
                loop {
                    if let Some(mut counter) = tried.try_lock() {
                        *counter += 1;
                        break;
                    }
                    tried.wait_free();
                }
            }
        });
        assert_eq!(*counter.lock(), u64::from(cpus) * rounds(20_000));
        assert_eq!(*tried.lock(), u64::from(cpus) * rounds(20_000));
    }
}

/// Two numbers that are equal whenever nobody writes, under a sleeping lock.
struct Pair {
    lock: RwSem<MmapLock, M>,
    pair: Plain<(u64, u64), M>,
}

impl Pair {
    fn new() -> Self {
        Self {
            lock: RwSem::new(Succession::HandOff),
            pair: Plain::new((0, 0)),
        }
    }

    fn write(&self, hold: impl FnOnce()) {
        let _lock = self.lock.write();
        // SAFETY: 1: locked for writing.
        let pair = unsafe { self.pair.get_mut() };
        pair.0 += 1;
        hold();
        pair.1 += 1;
    }

    fn read(&self) -> u64 {
        let _lock = self.lock.read();
        self.look()
    }

    fn try_read(&self) -> Option<u64> {
        let _lock = self.lock.try_read()?;
        Some(self.look())
    }

    fn look(&self) -> u64 {
        // SAFETY: 1: the callers have it locked for reading.
        let (first, second) = *unsafe { self.pair.get() };
        assert_eq!(first, second, "a reader beside a writer");
        first
    }

    /// Readers and writers in several proportions; counts what was written.
    fn stress(&self, at: &HostInstance, rounds: u64) -> u64 {
        let written = Atomic::<u64, M>::new(0);
        on_all_cpus(at, |cpu| {
            let mut last = 0;
            for round in 0..rounds {
                match (round * 7 + u64::from(cpu) * 3) % 10 {
                    0 | 1 => {
                        self.write(|| {});
                        written.add(1, Ordering::Relaxed);
                    }
                    2 if round % 50 == 2 => {
                        // Long enough that the others stop spinning and sleep.
                        self.write(std::thread::yield_now);
                        written.add(1, Ordering::Relaxed);
                    }
                    3 => {
                        let _ = self.try_read();
                    }
                    _ => {
                        let now = self.read();
                        assert!(now >= last, "time runs backwards");
                        last = now;
                    }
                }
            }
        });
        assert!(!self.lock.is_held() && !self.lock.has_waiters());
        written.load(Ordering::Relaxed)
    }
}

#[test]
fn readers_and_writers_of_a_sleeping_lock_exclude_each_other() {
    for (cpus, many) in [(2, 60_000), (4, 40_000), (8, 20_000)] {
        let at = machine(cpus);
        let pair = Pair::new();
        let written = pair.stress(&at, rounds(many));
        assert_eq!(pair.read(), written);
    }
}

#[test]
fn a_thread_that_holds_and_sleeps_is_waited_for() {
    // The holder parks inside, so that waiters neither spin on it nor find the lock free.
    let at = machine(3);
    let pair = Pair::new();
    on_all_cpus(&at, |cpu| {
        for _ in 0..rounds(3_000) {
            if cpu == 0 {
                pair.write(|| {
                    M::unpark(super::me().task.get());
                    M::park();
                });
            } else if cpu == 1 {
                pair.write(|| {});
            } else {
                pair.read();
            }
        }
    });
    assert_eq!(pair.read(), 2 * rounds(3_000));
}

#[test]
fn two_machines_at_once_do_not_meet() {
    let machines = [machine(3), machine(4)];
    std::thread::scope(|scope| {
        for at in &machines {
            scope.spawn(move || {
                let pair = Pair::new();
                let written = pair.stress(at, rounds(15_000));
                assert_eq!(pair.read(), written);
            });
        }
    });
    assert!(machines.iter().all(|at| at.failed().is_none()));
}

#[test]
fn a_reader_of_a_sequence_sees_both_halves_of_a_change_or_notices() {
    let at = machine(3);
    let seq = SeqCount::<M>::new();
    let writers: SpinLock<(), PageTableLock, M> = SpinLock::new(());
    let (first, second) = (Atomic::<u64, M>::new(0), Atomic::<u64, M>::new(0));
    let stop = Atomic::<u32, M>::new(0);
    on_all_cpus(&at, |cpu| {
        if cpu == 0 {
            for value in 1..rounds(100_000) {
                let _lock = writers.lock();
                seq.write_begin();
                first.store(value, Ordering::Relaxed);
                second.store(value, Ordering::Relaxed);
                seq.write_end();
            }
            stop.store(1, Ordering::Relaxed);
            return;
        }
        let mut agreed = 0u64;
        while stop.load(Ordering::Relaxed) == 0 || agreed == 0 {
            let Some(since) = seq.begin() else { continue };
            let pair = (
                first.load(Ordering::Relaxed),
                second.load(Ordering::Relaxed),
            );
            if !seq.changed(since) {
                assert_eq!(pair.0, pair.1, "a torn read");
                agreed += 1;
            }
        }
    });
    assert_eq!(at.cpus(), 3);
}
