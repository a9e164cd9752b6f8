//! The boot smoke's program: a little of everything that memory calls promise.
//!
//! `smoke` checks and exits with 0; a check that fails panics with its line and exits with 101.
//! `smoke write-readonly`, `read-unmapped`, `run-data` and `run-revoked` each do one thing that
//! must end the program by SIGSEGV; they exit with 1 if they live on. `smoke wait-for-nobody` never
//! ends by itself: a kernel that sees as much may end it by SIGKILL.
#![no_std]
#![no_main]

use minflt_guest::{Args, Errno, Mapping, PAGE, Process, Prot, Sys, Word, program, say, together};

program!(main);

/// Pages of the main mapping: more than one table's 512 entries, whatever its alignment.
const PAGES: u64 = 600;

fn main(args: Args) -> i32 {
    match args.get(1) {
        None => checks(args),
        Some("write-readonly") => write_readonly(),
        Some("read-unmapped") => read_unmapped(),
        Some("run-data") => run_data(),
        Some("run-revoked") => run_revoked(),
        Some("wait-for-nobody") => wait_for_nobody(),
        Some(other) => {
            say!("smoke: no such part: {other}");
            2
        }
    }
}

fn checks(args: Args) -> i32 {
    assert_eq!(args.page_size(), Some(PAGE), "AT_PAGESZ");
    stack_grows_by_touch(16);
    match Mapping::new(PAGES) {
        Ok(memory) => memory_calls(&memory),
        Err(error) => panic!("mmap: {error:?}"),
    }
    assert_eq!(run_code().map(drop), Ok(()), "code runs where it may");
    bad_arguments();
    say!("smoke: {PAGES} pages written, verified, discarded, protected and unmapped");
    0
}

/// Two threads, which wait for the same word, and a parent, which waits for them.
fn wait_for_nobody() -> i32 {
    static WORD: Word = Word::new(0);
    let ended = Process::child(|| {
        let waited = together(1, &|_| assert_eq!(WORD.wait_while(0), Ok(()), "futex"));
        i32::from(waited.is_err())
    });
    say!("smoke: the wait is over: {ended:?}");
    1
}

/// Touches a fresh stack page per level.
#[inline(never)]
fn stack_grows_by_touch(levels: u64) -> u64 {
    let mut frame = [levels; PAGE as usize / 8];
    let frame = core::hint::black_box(&mut frame);
    if levels > 0 {
        assert_eq!(stack_grows_by_touch(levels - 1), levels - 1);
    }
    frame[17]
}

fn memory_calls(memory: &Mapping) {
    fresh_memory_is_zero_and_keeps_its_stores(memory);
    discarded_pages_read_as_zero(memory);
    readonly_pages_refuse_the_kernel_too(memory);
    contents_outlive_every_protection(memory);
    a_hole_leaves_its_neighbours_alone(memory);
    assert_eq!(
        memory.unmap(0, memory.pages()),
        Ok(()),
        "munmap over a hole"
    );
    assert_eq!(
        memory.kernel_load(0, 1),
        Err(Errno::EFAULT),
        "everything is gone"
    );
}

fn fresh_memory_is_zero_and_keeps_its_stores(memory: &Mapping) {
    for page in 0..memory.pages() {
        // Every third page is read before it is written.
        if page % 3 == 0 {
            assert_eq!(memory.load(page * PAGE + 8), 0, "fresh page {page}");
        }
        memory.store(page * PAGE + 16, stamp(page));
    }
    holds_stamps(memory, 0, memory.pages());
}

fn discarded_pages_read_as_zero(memory: &Mapping) {
    assert_eq!(memory.discard(100, 50), Ok(()));
    for page in 100..150 {
        assert_eq!(memory.load(page * PAGE + 16), 0, "discarded page {page}");
        memory.store(page * PAGE + 16, stamp(page));
    }
    holds_stamps(memory, 0, memory.pages());
}

fn readonly_pages_refuse_the_kernel_too(memory: &Mapping) {
    assert_eq!(memory.protect(200, 100, Prot::Read), Ok(()));
    holds_stamps(memory, 200, 300);
    assert_eq!(
        memory.kernel_store(200 * PAGE),
        Err(Errno::EFAULT),
        "first read-only page"
    );
    assert_eq!(
        memory.kernel_store(299 * PAGE),
        Err(Errno::EFAULT),
        "last read-only page"
    );
    assert_eq!(memory.kernel_store(199 * PAGE), Ok(()), "page before");
    assert_eq!(memory.kernel_store(300 * PAGE), Ok(()), "page after");

    assert_eq!(memory.protect(250, 1, Prot::None), Ok(()));
    assert_eq!(
        memory.kernel_load(250 * PAGE, 1),
        Err(Errno::EFAULT),
        "PROT_NONE"
    );

    assert_eq!(memory.protect(200, 100, Prot::ReadWrite), Ok(()));
    for page in 200..300 {
        assert_eq!(
            memory.load(page * PAGE + 16),
            stamp(page),
            "page {page} kept its contents"
        );
        memory.store(page * PAGE + 16, stamp(page));
    }
    assert_eq!(memory.kernel_store(250 * PAGE), Ok(()), "writable again");
}

/// Takes rights away and gives them back while the CPU marks pages as used and as written: of
/// three pages one is only read in between, one is written, and one is left alone. Some were never
/// written at all before.
fn contents_outlive_every_protection(memory: &Mapping) {
    const FIRST: u64 = 310;
    const COUNT: u64 = 60;
    const FRESH: u64 = 20;
    let end = FIRST + COUNT;
    assert_eq!(memory.discard(end - FRESH, FRESH), Ok(()));
    for page in end - FRESH..end {
        assert_eq!(memory.load(page * PAGE + 16), 0, "page {page} is fresh");
    }
    let mut expected = [0; COUNT as usize];
    for (page, word) in (FIRST..end - FRESH).zip(&mut expected) {
        *word = stamp(page);
    }
    for round in 1..=4 {
        for prot in [Prot::Read, Prot::None, Prot::Read, Prot::ReadWrite] {
            assert_eq!(memory.protect(FIRST, COUNT, prot), Ok(()));
            if prot == Prot::None {
                continue;
            }
            for (page, word) in (FIRST..end)
                .zip(&expected)
                .filter(|(page, _)| page % 3 != 2)
            {
                let found = memory.load(page * PAGE + 16);
                assert_eq!(found, *word, "page {page}, round {round}, {prot:?}");
            }
        }
        for (page, word) in (FIRST..end).zip(&mut expected) {
            if page % 3 == 1 {
                *word = stamp(page) ^ round;
                memory.store(page * PAGE + 16, *word);
            }
        }
    }
    for (page, word) in (FIRST..end).zip(&expected) {
        assert_eq!(memory.load(page * PAGE + 16), *word, "page {page}");
        memory.store(page * PAGE + 16, stamp(page));
    }
    holds_stamps(memory, 0, memory.pages());
}

fn a_hole_leaves_its_neighbours_alone(memory: &Mapping) {
    assert_eq!(memory.unmap(400, 10), Ok(()));
    assert_eq!(
        memory.kernel_load(400 * PAGE, 1),
        Err(Errno::EFAULT),
        "first page of the hole"
    );
    assert_eq!(
        memory.kernel_store(409 * PAGE),
        Err(Errno::EFAULT),
        "last page of the hole"
    );
    holds_stamps(memory, 0, 400);
    holds_stamps(memory, 410, memory.pages());
    assert_eq!(
        memory.protect(390, 20, Prot::Read),
        Err(Errno::ENOMEM),
        "mprotect into a hole"
    );
}

fn bad_arguments() {
    assert_eq!(
        Sys::mmap(0, Prot::ReadWrite),
        Err(Errno::EINVAL),
        "mmap of nothing"
    );
    assert_eq!(
        Sys::mmap(1 << 60, Prot::ReadWrite),
        Err(Errno::ENOMEM),
        "mmap of too much"
    );
    assert_eq!(
        Sys::write_at(u64::MAX - 8, 4),
        Err(Errno::EFAULT),
        "the kernel's half"
    );
}

fn holds_stamps(memory: &Mapping, first: u64, end: u64) {
    for page in first..end {
        assert_eq!(memory.load(page * PAGE + 16), stamp(page), "page {page}");
    }
}

/// What page `page` holds: unlike zero, unlike any neighbour's.
const fn stamp(page: u64) -> u64 {
    (page + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn write_readonly() -> i32 {
    let Ok(memory) = Mapping::new(2) else {
        return 3;
    };
    memory.store(0, 1);
    if memory.protect(0, 2, Prot::Read).is_err() {
        return 3;
    }
    memory.store(0, 2);
    1
}

fn read_unmapped() -> i32 {
    let Ok(memory) = Mapping::new(2) else {
        return 3;
    };
    memory.store(PAGE, 1);
    if memory.unmap(1, 1).is_err() {
        return 3;
    }
    i32::from(memory.load(PAGE) != 0) + 1
}

fn run_data() -> i32 {
    let Ok(memory) = Mapping::new(1) else {
        return 3;
    };
    memory.store(0, 0xc3);
    // SAFETY: (1) the mapping was made without PROT_EXEC.
    unsafe { memory.call(0) };
    1
}

/// Makes a page of code, runs it, and returns it, still executable.
fn run_code() -> Result<Mapping, Errno> {
    let memory = Mapping::new(1)?;
    memory.store(0, 0xc3);
    memory.protect(0, 1, Prot::ReadExecute)?;
    // SAFETY: (1) what was stored is a function that returns.
    unsafe { memory.call(0) };
    Ok(memory)
}

/// Runs code, and again after the right to was taken: the CPU has its translation still.
fn run_revoked() -> i32 {
    let Ok(memory) = run_code() else {
        return 3;
    };
    if memory.protect(0, 1, Prot::ReadWrite).is_err() {
        return 3;
    }
    // SAFETY: (1) the page is no longer executable.
    unsafe { memory.call(0) };
    1
}
