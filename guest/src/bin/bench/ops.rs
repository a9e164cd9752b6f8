//! Single operations, by the time-stamp counter.

use core::arch::asm;
use minflt_guest::{Args, Ended, Errno, File, Mapping, Mode, PAGE, Process, Prot, Sys, say};

use crate::now;

/// Pages of the large mappings.
const PAGES: u64 = 8192;
/// Rounds of the small ones, and as many rounds before that are not counted.
const ROUNDS: u64 = 1000;
const BEFORE: u64 = 100;
/// Rounds of mapping 128 MiB.
const LARGE_ROUNDS: u64 = 100;
const LARGE_BEFORE: u64 = 5;
/// 128 MiB.
const LARGE: u64 = (128 << 20) / PAGE;
/// Forks of a process with little memory, and with much.
const FORKS: u64 = 50;
const LARGE_FORKS: u64 = 4;
/// The file that is mapped, and how much of it.
const DATA: &core::ffi::CStr = c"/data";
const DATA_PAGES: u64 = 1024;

/// Rounds of the loop that finds out whether something else runs; how many in a row have to be
/// undisturbed, and after how many that counts as never.
const CHUNK: u64 = 2_000_000;
const QUIET: u64 = 60;
const CHUNKS: u64 = 4000;

/// What an operation came to.
enum Outcome {
    /// A difference of the counter, and how often it was done.
    Counted(u64, u64),
    /// The child that did it has printed that.
    Printed,
}

/// The name of an operation, and what does it.
type Op = (&'static str, fn() -> Result<Outcome, Errno>);

/// In this order: what is named late runs after all before it.
const OPS: [Op; 17] = [
    ("getppid", getppid),
    ("mmap-munmap-128m-early", mmap_large),
    ("first-touch", first_touch),
    ("zero-page-read", zero_page_read),
    ("write-after-zero-page", write_after_zero_page),
    ("munmap-touched-page", munmap_touched),
    ("mmap-munmap-4k", mmap_small),
    ("mmap-touch-munmap-4k", mmap_touch),
    ("mprotect-there-and-back", mprotect),
    ("dontneed-touch", dontneed),
    ("cow-after-fork", cow),
    ("write-own-page", write_own),
    ("fork-exit-wait", fork_small),
    ("fork-exit-wait-8192-pages", fork_large),
    ("fault-file-page", file_read),
    ("fault-file-page-pages", file_pages),
    ("mmap-munmap-128m-late", mmap_large),
];

/// Runs the operations that the arguments name, or all.
pub(crate) fn run(args: Args) -> i32 {
    let named = |name| (2..args.count()).any(|index| args.get(index) == Some(name));
    for index in 2..args.count() {
        let name = args.get(index).unwrap_or("?");
        if OPS.iter().all(|(known, _)| *known != name) {
            say!("bench: no such operation: {name}; operations are:");
            for (known, _) in OPS {
                say!("  {known}");
            }
            return super::USAGE;
        }
    }
    let mut status = 0;
    if !is_quiet() {
        say!("bench: other threads run all the time; the counts hold their instructions, too");
        status = 1;
    }
    for (name, op) in OPS {
        if args.count() > 2 && !named(name) {
            continue;
        }
        match op() {
            Ok(Outcome::Counted(total, count)) => say!("op {name} {total} {count}"),
            Ok(Outcome::Printed) => {}
            Err(Errno::ENOSYS) => say!("op {name} unsupported ENOSYS"),
            Err(error) => {
                say!("op {name} failed {error:?}");
                status = 1;
            }
        }
    }
    status
}

/// Waits until nothing else runs on this CPU: a kernel has work of its own for seconds after it has
/// started process 1. False if it never gets quiet.
fn is_quiet() -> bool {
    let mut least = u64::MAX;
    let mut quiet = 0;
    for _ in 0..CHUNKS {
        let start = now();
        spin(CHUNK);
        let took = now() - start;
        least = least.min(took);
        // A timer's tick may come.
        if took - least > least / 20 {
            quiet = 0;
        } else {
            quiet += 1;
        }
        if quiet == QUIET {
            return true;
        }
    }
    false
}

/// Two instructions a round.
fn spin(rounds: u64) {
    // SAFETY: (1) it changes a register, which is named, and flags.
    unsafe { asm!("2:", "dec {0}", "jnz 2b", inout(reg) rounds => _, options(nomem, nostack)) };
}

/// Does `work` with a number from 0 on, `before` times and then `rounds` times, which count.
#[inline(always)]
fn timed(
    before: u64,
    rounds: u64,
    work: impl Fn(u64) -> Result<(), Errno>,
) -> Result<Outcome, Errno> {
    for round in 0..before {
        work(round)?;
    }
    let start = now();
    for round in 0..rounds {
        work(round)?;
    }
    Ok(Outcome::Counted(now() - start, rounds))
}

/// A mapping whose pages were each written.
fn touched(pages: u64) -> Result<Mapping, Errno> {
    let memory = Mapping::new(pages)?;
    write_all(&memory);
    Ok(memory)
}

#[inline(always)]
fn write_all(memory: &Mapping) {
    for page in 0..memory.pages() {
        memory.store(page * PAGE, 1);
    }
}

fn gone(memory: &Mapping) -> Result<(), Errno> {
    memory.unmap(0, memory.pages())
}

fn getppid() -> Result<Outcome, Errno> {
    timed(BEFORE, ROUNDS, |_| Sys::getppid().map(drop))
}

fn first_touch() -> Result<Outcome, Errno> {
    // What an earlier mapping left is used again.
    gone(&touched(PAGES)?)?;
    let memory = Mapping::new(PAGES)?;
    let result = timed(0, PAGES, |page| {
        memory.store(page * PAGE, 1);
        Ok(())
    });
    gone(&memory)?;
    result
}

fn zero_page_read() -> Result<Outcome, Errno> {
    let memory = Mapping::new(PAGES)?;
    let result = timed(0, PAGES, |page| {
        let _zero = memory.load(page * PAGE);
        Ok(())
    });
    gone(&memory)?;
    result
}

fn write_after_zero_page() -> Result<Outcome, Errno> {
    let memory = Mapping::new(PAGES)?;
    for page in 0..PAGES {
        let _zero = memory.load(page * PAGE);
    }
    let result = timed(0, PAGES, |page| {
        memory.store(page * PAGE, 1);
        Ok(())
    });
    gone(&memory)?;
    result
}

fn munmap_touched() -> Result<Outcome, Errno> {
    let memory = touched(PAGES)?;
    let start = now();
    gone(&memory)?;
    Ok(Outcome::Counted(now() - start, PAGES))
}

fn mmap_small() -> Result<Outcome, Errno> {
    timed(BEFORE, ROUNDS, |_| gone(&Mapping::new(1)?))
}

fn mmap_large() -> Result<Outcome, Errno> {
    timed(LARGE_BEFORE, LARGE_ROUNDS, |_| gone(&Mapping::new(LARGE)?))
}

fn mmap_touch() -> Result<Outcome, Errno> {
    timed(BEFORE, ROUNDS, |_| gone(&touched(1)?))
}

fn mprotect() -> Result<Outcome, Errno> {
    let memory = touched(3)?;
    let result = timed(BEFORE, ROUNDS, |_| {
        memory.protect(1, 1, Prot::Read)?;
        memory.protect(1, 1, Prot::ReadWrite)
    });
    gone(&memory)?;
    result
}

fn dontneed() -> Result<Outcome, Errno> {
    let memory = touched(1)?;
    let result = timed(BEFORE, ROUNDS, |_| {
        memory.store(0, 1);
        memory.discard(0, 1)
    });
    gone(&memory)?;
    result
}

/// The first writes of a child, whose parent waits for it: both have all pages.
fn cow() -> Result<Outcome, Errno> {
    let memory = touched(PAGES)?;
    let ended = Process::child(|| {
        let start = now();
        write_all(&memory);
        let total = now() - start;
        say!("op cow-after-fork {total} {PAGES}");
        0
    })?;
    gone(&memory)?;
    match ended {
        Ended::Exited(0) => Ok(Outcome::Printed),
        _ => Err(Errno::EINVAL),
    }
}

/// The parent's first writes after a child is gone that had the same pages.
fn write_own() -> Result<Outcome, Errno> {
    let memory = touched(PAGES)?;
    Process::child(|| 0)?;
    let start = now();
    write_all(&memory);
    let total = now() - start;
    gone(&memory)?;
    Ok(Outcome::Counted(total, PAGES))
}

fn fork_small() -> Result<Outcome, Errno> {
    timed(4, FORKS, |_| Process::child(|| 0).map(drop))
}

fn fork_large() -> Result<Outcome, Errno> {
    let memory = touched(PAGES)?;
    let result = timed(1, LARGE_FORKS, |_| Process::child(|| 0).map(drop));
    gone(&memory)?;
    result
}

/// Reads each page of a mapping of a file that is in the page cache; the count is of pages.
fn file_read() -> Result<Outcome, Errno> {
    with_data(|data| {
        let start = now();
        for page in 0..DATA_PAGES {
            let _word = data.load(page * PAGE);
        }
        Ok(Outcome::Counted(now() - start, DATA_PAGES))
    })
}

/// Pages that the first fault maps: the total; the count is of faults, 1.
fn file_pages() -> Result<Outcome, Errno> {
    with_data(|data| {
        let _word = data.load(DATA_PAGES / 2 * PAGE);
        let before = Process::minor_faults()?;
        for page in 0..DATA_PAGES {
            let _word = data.load(page * PAGE);
        }
        let faults = Process::minor_faults()? - before + 1;
        Ok(Outcome::Counted(DATA_PAGES, faults))
    })
}

/// Maps the file for `work`, after all of it was read into the page cache by another mapping.
fn with_data(work: impl Fn(&Mapping) -> Result<Outcome, Errno>) -> Result<Outcome, Errno> {
    let file = File::open(DATA, Mode::Read)?;
    let before = Mapping::of_file(&file, DATA_PAGES)?;
    for page in 0..DATA_PAGES {
        let _word = before.load(page * PAGE);
    }
    gone(&before)?;
    let data = Mapping::of_file(&file, DATA_PAGES)?;
    let result = work(&data);
    gone(&data)?;
    file.close()?;
    result
}
