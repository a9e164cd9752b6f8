//! Threads: `threads [COUNT [ROUNDS]]` starts COUNT of them, which map, touch and unmap memory at
//! once, count together, and hand a turn round by futexes; then one that is joined late.
//!
//! Exits with 0 if every count is right; a check that fails panics and exits with 101.
#![no_std]
#![no_main]

use core::arch::asm;
use minflt_guest::{Args, Mapping, PAGE, Thread, Word, program, say, together};

program!(main);

/// Pages that each thread touches in a round.
const PAGES: u64 = 16;

static COUNTED: Word = Word::new(0);
static TURN: Word = Word::new(0);
static LATE: Word = Word::new(0);

fn main(args: Args) -> i32 {
    let number = |index, default| match args.get(index) {
        Some(word) => word.parse().ok().filter(|number| *number > 0),
        None => Some(default),
    };
    let (Some(count), Some(rounds)) = (number(1, 4), number(2, 8)) else {
        say!("threads: COUNT and ROUNDS are numbers from 1 on");
        return 2;
    };
    if count > 256 {
        say!("threads: {count} threads, at most 256");
        return 2;
    }
    let done = together(count as usize, &|index| {
        has_its_own_tls();
        keeps_its_registers(index);
        for round in 0..rounds {
            touches(index, round);
            COUNTED.add(1);
        }
        takes_turns(index as u32, count as u32, rounds as u32);
    });
    assert_eq!(done, Ok(()), "threads start");
    assert_eq!(u64::from(COUNTED.load()), count * rounds, "rounds counted");
    assert_eq!(u64::from(TURN.load()), count * rounds, "turns taken");
    joins_what_has_ended();
    say!("threads: {count} threads, {rounds} rounds each");
    0
}

/// Vector registers survive context switches.
fn keeps_its_registers(index: u64) {
    let mine = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..20 {
        let found: u64;
        // SAFETY: (1) `sched_yield`, by number 24, changes no memory; what it changes is named.
        unsafe {
            asm!(
                "movq xmm9, {mine}",
                "syscall",
                "movq {found}, xmm9",
                mine = in(reg) mine,
                found = lateout(reg) found,
                inout("rax") 24_u64 => _,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        assert_eq!(found, mine, "XMM9");
    }
}

/// FS points to the control block, whose first word is its own address.
fn has_its_own_tls() {
    let own: u64;
    let again: u64;
    // SAFETY: (1) the first word of the control block, which the thread's stack holds.
    unsafe { asm!("mov {}, fs:[0]", out(reg) own, options(nostack, readonly)) };
    // SAFETY: (1) as above.
    unsafe { asm!("mov {}, [{}]", out(reg) again, in(reg) own, options(nostack, readonly)) };
    assert_eq!(own, again, "FS");
    let here = &raw const own as u64;
    assert!(own > here && own - here < 64 << 10, "FS is this thread's");
}

fn touches(index: u64, round: u64) {
    let memory = match Mapping::new(PAGES) {
        Ok(memory) => memory,
        Err(error) => panic!("mmap: {error:?}"),
    };
    for page in 0..PAGES {
        assert_eq!(memory.load(page * PAGE), 0, "fresh page {page}");
        memory.store(page * PAGE, index << 32 | round << 16 | page);
    }
    for page in 0..PAGES {
        let found = memory.load(page * PAGE);
        assert_eq!(found, index << 32 | round << 16 | page, "page {page}");
    }
    assert_eq!(memory.unmap(0, PAGES), Ok(()));
}

/// Each waits for its turns, and hands them on.
fn takes_turns(index: u32, count: u32, rounds: u32) {
    for round in 0..rounds {
        let mine = round * count + index;
        loop {
            let now = TURN.load();
            if now == mine {
                break;
            }
            assert_eq!(TURN.wait_while(now), Ok(()));
        }
        TURN.store(mine + 1);
        if let Err(error) = TURN.wake(count) {
            panic!("futex: {error:?}");
        }
    }
}

fn joins_what_has_ended() {
    fn store(value: u64) {
        LATE.store(value as u32);
        // It may be that nobody sleeps yet.
        let _ = LATE.wake(1);
    }
    let thread = match Thread::spawn(store, 7) {
        Ok(thread) => thread,
        Err(error) => panic!("clone: {error:?}"),
    };
    assert_eq!(LATE.wait_while(0), Ok(()));
    assert_eq!(LATE.load(), 7);
    assert_eq!(thread.join(), Ok(()));
}
