//! Loops of several threads, by the clock.
//!
//! Threads work before and after the time that counts, so that none begins or ends alone in it.

use minflt_guest::{Args, Counter, Errno, Mapping, PAGE, Sys, Word, say, together};

use crate::now;

/// 128 MiB, as in will-it-scale.
const LARGE: u64 = (128 << 20) / PAGE;
/// 256 KiB, a chunk of ebizzy's.
const CHUNK: u64 = (256 << 10) / PAGE;
/// Pages touched between two looks at the clock.
const STRIDE: u64 = 64;
/// How long the counter is compared with the clock, and how long threads work before they count.
const CALIBRATION_NS: u64 = 50_000_000;
const WARM_UP_MS: u64 = 200;

/// A part of a loop; returns operations.
type Step = fn(&Clock) -> Result<u64, Errno>;

const RATES: [(&str, Step); 3] = [
    ("page-fault1", page_fault1),
    ("mmap1", mmap1),
    ("ebizzy-like", ebizzy),
];

/// When operations count, by the time-stamp counter.
struct Clock {
    start: u64,
    end: u64,
}

impl Clock {
    fn counts(&self) -> bool {
        (self.start..self.end).contains(&now())
    }

    fn is_over(&self) -> bool {
        now() >= self.end
    }
}

/// The most threads, and the longest time.
const THREADS: u64 = 256;
const MS: u64 = 3_600_000;

/// Runs each loop on each number of threads.
pub(crate) fn run(args: Args) -> i32 {
    let number = |index, most| {
        let number = args.get(index).and_then(|word| word.parse::<u64>().ok());
        number.filter(|number| (1..=most).contains(number))
    };
    let counts = 3..args.count();
    let Some(ms) = number(2, MS).filter(|_| !counts.is_empty()) else {
        return usage();
    };
    if counts.clone().any(|index| number(index, THREADS).is_none()) {
        return usage();
    }
    let mut status = 0;
    for (name, step) in RATES {
        for threads in counts.clone().filter_map(|index| number(index, THREADS)) {
            match rate(step, threads, ms) {
                Ok((ops, ns)) => say!("rate {name} {threads} {ops} {ns}"),
                Err(Errno::ENOSYS) => say!("rate {name} {threads} unsupported ENOSYS"),
                Err(error) => {
                    say!("rate {name} {threads} failed {error:?}");
                    status = 1;
                }
            }
        }
    }
    status
}

fn usage() -> i32 {
    say!("bench: rates MS THREADS..., at most {MS} ms and {THREADS} threads");
    super::USAGE
}

fn rate(step: Step, threads: u64, ms: u64) -> Result<(u64, u64), Errno> {
    let per_ms = counts_per_ms()?;
    let start = now() + WARM_UP_MS * per_ms;
    let clock = Clock {
        start,
        end: start + ms * per_ms,
    };
    let total = Counter::new();
    let failed = Word::new(0);
    together(threads as usize, &|_| {
        let mut ops = 0;
        while !clock.is_over() {
            match step(&clock) {
                Ok(done) => ops += done,
                Err(Errno(number)) => return failed.store(number as u32),
            }
        }
        total.add(ops);
    })?;
    match failed.load() {
        0 => Ok((total.sum(), ms * 1_000_000)),
        number => Err(Errno(u64::from(number))),
    }
}

/// How far the counter gets in a millisecond of the kernel's clock.
fn counts_per_ms() -> Result<u64, Errno> {
    let (start, first) = (Sys::now_ns()?, now());
    loop {
        let (time, count) = (Sys::now_ns()?, now());
        let ns = time - start;
        if ns >= CALIBRATION_NS {
            return Ok((u128::from(count - first) * 1_000_000 / u128::from(ns)) as u64);
        }
    }
}

/// Maps 128 MiB, touches each page, unmaps; a page is an operation.
fn page_fault1(clock: &Clock) -> Result<u64, Errno> {
    let memory = Mapping::new(LARGE)?;
    let mut ops = 0;
    for first in (0..LARGE).step_by(STRIDE as usize) {
        for page in first..first + STRIDE {
            memory.store(page * PAGE, 1);
        }
        if clock.counts() {
            ops += STRIDE;
        } else if clock.is_over() {
            break;
        }
    }
    memory.unmap(0, LARGE)?;
    Ok(ops)
}

/// Maps and unmaps 128 MiB, an operation.
fn mmap1(clock: &Clock) -> Result<u64, Errno> {
    let memory = Mapping::new(LARGE)?;
    memory.unmap(0, LARGE)?;
    Ok(u64::from(clock.counts()))
}

/// Maps a chunk, fills its pages, looks through them, unmaps it: an operation.
fn ebizzy(clock: &Clock) -> Result<u64, Errno> {
    let memory = Mapping::new(CHUNK)?;
    for page in 0..CHUNK {
        memory.store(page * PAGE, page);
    }
    for page in 0..CHUNK {
        if memory.load(page * PAGE) != page {
            return Err(Errno::EINVAL);
        }
    }
    memory.unmap(0, CHUNK)?;
    Ok(u64::from(clock.counts()))
}
