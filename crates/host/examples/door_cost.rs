//! Shows that the door is free on real threads: the same word operations with and without it.
//!
//! ```text
//! cargo run --release -p minflt-host --example door_cost
//! ```
//!
//! Where the compiler finds both functions equal, instruction by instruction, it keeps one of them,
//! and the program says so: no measurement is as exact. Otherwise
//! `objdump -d --disassemble=...` and `valgrind --tool=callgrind` show what differs.

use core::hint::black_box;
use minflt_host::{Host, HostBare, HostInstance, HostOptions, Prefault};
use minflt_pgtable::X86_64;
use minflt_sync::order::PageTableLock;
use minflt_sync::{Atomic, Instance, Machine, Ordering, SeqCount, SpinLock};

const ROUNDS: u64 = 1_000_000;

/// The words that one round touches.
struct Words<M: Machine> {
    entry: Atomic<u64, M>,
    count: Atomic<u32, M>,
    locked: SpinLock<u64, PageTableLock, M>,
    seq: SeqCount<M>,
}

impl<M: Machine> Words<M> {
    fn new() -> Self {
        Self {
            entry: Atomic::new(0),
            count: Atomic::new(0),
            locked: SpinLock::new(0),
            seq: SeqCount::new(),
        }
    }

    /// Each kind of access once, about as a fault makes them.
    #[inline(always)]
    fn round(&self, value: u64) -> bool {
        let Some(since) = self.seq.begin() else {
            return false;
        };
        let old = self.entry.load(Ordering::Relaxed);
        *self.locked.lock() += value;
        self.count.add(1, Ordering::Relaxed);
        let installed = self
            .entry
            .cas(old, value, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        self.seq.write_begin();
        self.entry.store(old, Ordering::Relaxed);
        self.seq.write_end();
        installed && self.seq.changed(since)
    }
}

#[inline(never)]
fn with_door(words: &Words<Host<X86_64, false>>, rounds: u64) -> u64 {
    (0..rounds).map(|value| u64::from(words.round(value))).sum()
}

#[inline(never)]
fn without_door(words: &Words<HostBare<X86_64>>, rounds: u64) -> u64 {
    (0..rounds).map(|value| u64::from(words.round(value))).sum()
}

fn main() -> Result<(), Box<dyn core::error::Error>> {
    let options = HostOptions {
        cpus: 1,
        ram_bytes: 1 << 20,
        prefault: Prefault::OnTouch,
    };
    let at = HostInstance::new(&options)?;
    let _cpu = at.enter(0);
    let (door, bare) = (Words::new(), Words::new());
    let time = |run: &dyn Fn() -> u64| {
        let start = at.now_ns();
        let done = black_box(run());
        assert_eq!(done, ROUNDS);
        (at.now_ns() - start) as f64 / ROUNDS as f64
    };
    let address = |function: *const ()| black_box(function.addr());
    let one = address(with_door as *const ()) == address(without_door as *const ());
    println!(
        "with and without the door are {}",
        if one {
            "the same code"
        } else {
            "two functions"
        }
    );
    for _ in 0..3 {
        println!(
            "with the door {:.2} ns a round, without {:.2} ns",
            time(&|| with_door(&door, ROUNDS)),
            time(&|| without_door(&bare, ROUNDS))
        );
    }
    Ok(())
}
