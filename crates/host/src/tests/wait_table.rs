//! Locks that are a bit, with sleepers in queues that all words share.

use super::{M, machine, on_all_cpus, rounds};
use minflt_sync::order::FolioLock;
use minflt_sync::{Atomic, Ordering, Plain, WaitTable};

const LOCKED: u32 = 1;
const WAITERS: u32 = 1 << 1;
const BUSY: u32 = 1 << 2;
const OTHERS: u32 = 1 << 31;

/// Two numbers that are equal whenever nobody has the lock.
struct Page {
    word: Atomic<u32, M>,
    pair: Plain<(u64, u64), M>,
}

impl Page {
    fn new() -> Self {
        Self {
            word: Atomic::new(OTHERS),
            pair: Plain::new((0, 0)),
        }
    }

    fn add(&self, hold: bool) {
        // SAFETY: 1: the callers have the lock.
        let pair = unsafe { self.pair.get_mut() };
        pair.0 += 1;
        if hold {
            // Long enough that others sleep.
            std::thread::yield_now();
        }
        pair.1 += 1;
        assert_eq!(pair.0, pair.1, "two are inside");
    }
}

#[test]
fn everybody_gets_the_lock_and_nobody_beside_another() {
    for (cpus, pages, many) in [(2, 1, 20_000), (8, 1, 4_000), (8, 200, 4_000)] {
        let rounds = rounds(many);
        let at = machine(cpus);
        let table = WaitTable::<M>::new();
        let pages: Vec<Page> = (0..pages).map(|_| Page::new()).collect();
        let tried = Atomic::<u64, M>::new(0);
        on_all_cpus(&at, |cpu| {
            for round in 0..rounds {
                let key = (round * 7 + u64::from(cpu)) % pages.len() as u64;
                let page = &pages[key as usize];
                if round % 8 == 3 {
                    if !table.try_lock::<FolioLock>(&page.word, LOCKED) {
                        continue;
                    }
                    tried.add(1, Ordering::Relaxed);
                } else {
                    table.lock::<FolioLock>(key, &page.word, LOCKED, WAITERS);
                }
                page.add(round % 16 == 1);
                table.unlock::<FolioLock>(key, &page.word, LOCKED, WAITERS);
            }
        });
        // SAFETY: 1: nobody runs any more.
        let sum: u64 = pages.iter().map(|page| unsafe { page.pair.get() }.0).sum();
        let sure = u64::from(cpus) * rounds / 8 * 7;
        assert_eq!(sum, sure + tried.load(Ordering::Relaxed));
        // Nobody sleeps, and the other bits are as they were.
        assert!(pages.iter().all(|page| page.word.peek() == OTHERS));
    }
}

#[test]
fn who_waits_for_the_end_of_a_write_sees_what_was_written() {
    let at = machine(4);
    let table = WaitTable::<M>::new();
    let (word, written) = (Atomic::<u32, M>::new(BUSY), Atomic::<u64, M>::new(0));
    let rounds = rounds(500);
    on_all_cpus(&at, |cpu| {
        if cpu == 0 {
            for round in 1..=rounds {
                written.store(round, Ordering::Relaxed);
                table.clear_and_wake(5, &word, BUSY, WAITERS);
                std::thread::yield_now();
                if round < rounds {
                    word.or(BUSY, Ordering::Relaxed);
                }
            }
        } else {
            let mut last = 0;
            while last < rounds {
                table.wait_clear(5, &word, BUSY, WAITERS);
                let now = written.load(Ordering::Relaxed);
                assert!(now >= last.max(1), "{now} after {last}");
                last = now;
                // Others need a processor, and it may be this one.
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(word.peek(), 0);
}
