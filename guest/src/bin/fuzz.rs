//! System calls at random: whatever a program does, its kernel stays up, and serves others.
//!
//! `fuzz SEED ROUNDS [THREADS [FIRST]]`. In each round, from number FIRST (0) on, a child makes a
//! few hundred calls on up to THREADS threads (2), drawn from [`TABLE`], with arguments that are
//! right, nearly right or wrong; it touches memory, executes odd instructions, makes processes and
//! threads, and ends somehow. What ends it is no matter. The parent waits for it, and fails if it
//! does not end, or if no child can be made any more.
//!
//! A child's watchdog ends it after a while, for it may sleep for ever. On one CPU all depends
//! on SEED and the round only, but for what clocks say.
//!
//! On Linux the calls are those that harm nobody else: no path is created, no other process named,
//! and memory is bounded.
#![no_std]
#![no_main]

#[path = "fuzz/table.rs"]
mod table;

use minflt_guest::{
    Args, Ended, Forked, Odd, PAGE, Process, Prot, Raw, Sys, Then, Thread, Word, program, say,
};

use table::{Arg, KEYS, TABLE, nr};

program!(main);

/// Rounds between two lines of output.
const ROUNDS_A_LINE: u64 = 50;
/// Calls of a thread, at most.
const CALLS: u64 = 200;
/// How long a child may take, in milliseconds; what it forks has as long again.
const WATCHDOG_MS: u64 = 300;
/// How long the parent waits for a child.
const PATIENCE_NS: u64 = 20_000_000_000;
/// Pages that calls are meant to be about.
const ARENA_PAGES: u64 = 64;
/// Address space that a child may have on Linux.
const LINUX_BYTES: u64 = 256 << 20;

/// 1 on Linux.
static LINUX: Word = Word::new(0);
/// Threads of this process that still make calls.
static WORKERS: Word = Word::new(0);
/// How often the process was forked since the parent.
static DEPTH: Word = Word::new(0);
/// Where the arena is, in pages, and what a thread begins with.
static ARENA: [Word; 2] = [const { Word::new(0) }; 2];
static SEEDS: [Word; 2] = [const { Word::new(0) }; 2];
static NEXT: Word = Word::new(0);

/// Numbers at random, the same ones from the same seed. Vigna's SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn of(&mut self, list: &[u64]) -> u64 {
        list[self.below(list.len() as u64) as usize]
    }
}

fn main(args: Args) -> i32 {
    let number = |index, default| match args.get(index) {
        Some(word) => word.parse::<u64>().ok(),
        None => default,
    };
    let given = (
        number(1, None),
        number(2, None),
        number(3, Some(2)),
        number(4, Some(0)),
    );
    let (Some(seed), Some(rounds), Some(threads @ 1..=8), Some(first)) = given else {
        say!("fuzz: give SEED and ROUNDS, then THREADS from 1 to 8, and the FIRST round");
        return 2;
    };
    let mut name = [0_u8; 512];
    let at = (&raw mut name).expose_provenance() as u64;
    // SAFETY: (1) the buffer has room for what `uname` stores.
    unsafe { Raw::call(nr::UNAME, [at, 0, 0, 0, 0, 0]) };
    // SAFETY: (1) it lives, and is read once the kernel has stored it.
    let name = unsafe { (&raw const name).read_volatile() };
    if !name.windows(6).any(|part| part == b"minflt") {
        LINUX.store(1);
        let limit = [LINUX_BYTES; 2];
        let at = (&raw const limit).expose_provenance() as u64;
        // SAFETY: (1) it changes no memory.
        unsafe { Raw::call(nr::PRLIMIT, [0, 9, at, 0, 0, 0]) };
    }
    let mut ended = [0; 3];
    for round in first..first.saturating_add(rounds) {
        let how = match child(seed, round, threads) {
            Ok(how) => how,
            Err(why) => {
                say!("fuzz: seed {seed}, round {round}: {why}");
                return 1;
            }
        };
        let which = match how {
            Ended::Exited(_) => 0,
            Ended::Signalled(9) => 2,
            Ended::Signalled(_) => 1,
        };
        ended[which] += 1;
        remove_segments();
        if (round + 1).is_multiple_of(ROUNDS_A_LINE) {
            let [exited, killed, memory] = ended;
            say!(
                "fuzz: seed {seed}, {} rounds: {exited} exited, {killed} killed, {memory} for memory",
                round + 1
            );
        }
    }
    let [exited, killed, memory] = ended;
    say!(
        "fuzz: seed {seed}, done: {exited} exited, {killed} killed, {memory} for memory, in {rounds} rounds"
    );
    0
}

/// Runs a child to its end.
fn child(seed: u64, round: u64, threads: u64) -> Result<Ended, &'static str> {
    let begun = now();
    let child = loop {
        match Process::fork() {
            Ok(Forked::Child) => live(seed ^ round.wrapping_mul(0x0100_0000_01b3), threads),
            Ok(Forked::Parent(child)) => break child,
            // Those that a child left behind end soon, too.
            Err(_) if now() < begun + PATIENCE_NS => sleep(1_000_000),
            Err(_) => return Err("no child can be made any more"),
        }
    };
    let mut status = 0_u32;
    let at = (&raw mut status).expose_provenance() as u64;
    let mut pause = 0;
    loop {
        // SAFETY: (1) the kernel stores into `status`, which is exposed.
        let ended = unsafe { Raw::call(nr::WAIT4, [child, at, 1, 0, 0, 0]) };
        if ended == child {
            // SAFETY: (1) it lives, and is read once the kernel has stored it.
            let status = u64::from(unsafe { (&raw const status).read_volatile() });
            return Ok(match status & 0x7f {
                0 => Ended::Exited(status >> 8 & 0xff),
                signal => Ended::Signalled(signal),
            });
        }
        if ended != 0 {
            return Err("a child cannot be waited for");
        }
        if now() > begun + PATIENCE_NS {
            return Err("a child does not end");
        }
        pause = (pause + 20_000).min(1_000_000);
        sleep(pause);
    }
}

/// Segments of shared memory outlive their processes.
fn remove_segments() {
    if LINUX.load() == 1 {
        return;
    }
    for key in KEYS {
        // SAFETY: (1) it changes no memory.
        let id = unsafe { Raw::call(nr::SHMGET, [*key, 0, 0, 0, 0, 0]) };
        if !is_error(id) {
            // SAFETY: (1) this process has attached none.
            unsafe { Raw::call(nr::SHMCTL, [id, 0, 0, 0, 0, 0]) };
        }
    }
}

const fn is_error(result: u64) -> bool {
    result > u64::MAX - 4096
}

fn now() -> u64 {
    Sys::now_ns().unwrap_or(0)
}

fn sleep(ns: u64) {
    let time = [0, ns];
    let at = (&raw const time).expose_provenance() as u64;
    // SAFETY: (1) it changes no memory.
    unsafe { Raw::call(nr::NANOSLEEP, [at, 0, 0, 0, 0, 0]) };
}

/// Ends the process after a while, whatever the others are doing.
fn watch(ms: u64) {
    sleep(ms * 1_000_000);
    Sys::exit(3)
}

/// The life of a child.
fn live(seed: u64, threads: u64) -> ! {
    let mut random = Random(seed);
    let watchdog = Thread::spawn(watch, WATCHDOG_MS);
    let Ok(arena) = Sys::mmap(ARENA_PAGES * PAGE, Prot::ReadWrite) else {
        Sys::exit(4)
    };
    if watchdog.is_err() {
        Sys::exit(4);
    }
    ARENA[0].store((arena / PAGE) as u32);
    ARENA[1].store(((arena / PAGE) >> 32) as u32);
    fill(arena);
    open_files();
    begin(&mut random, threads)
}

/// What calls find in the arena: times, paths, words.
fn fill(arena: u64) {
    let put = |offset: u64, bytes: &[u8]| {
        for (at, byte) in (arena + offset..).zip(bytes) {
            // SAFETY: (1) within the arena, which no object lives in.
            unsafe { Raw::store(at, *byte) };
        }
    };
    for index in 0..4 {
        put(16 * index + 8, &(index * 300_000).to_le_bytes());
    }
    // Sets of CPUs.
    for (offset, cpus) in [(0x40, 1_u32), (0x1000, 2), (0x1004, 15)] {
        put(offset, &cpus.to_le_bytes());
    }
    for (index, path) in PATHS.into_iter().enumerate() {
        put(0x100 + 0x20 * index as u64, path);
    }
    // A robust list: itself only, a circle without an end, an entry nowhere.
    for (index, word) in [arena + 0x400, 8, 0, arena + 0x428, 16, 0, u64::MAX, 8, 1]
        .into_iter()
        .enumerate()
    {
        put(0x400 + 8 * index as u64, &word.to_le_bytes());
    }
}

const PATHS: [&[u8]; 5] = [b"/dev/null", b"/dev/zero", b"/fuzz", b"/none", b""];

fn open_files() {
    let path = |index: u64| arena() + 0x100 + 0x20 * index;
    // SAFETY: (1) none of the calls below changes memory.
    let call = |number, [a, b]: [u64; 2]| unsafe { Raw::call(number, [a, b, 0, 0, 0, 0]) };
    for file in 0..3 {
        call(nr::CLOSE, [file, 0]);
    }
    for index in [0, 0, 1, 2] {
        call(nr::OPEN, [path(index), 2 * u64::from(index < 2)]);
    }
    for flags in [0, 0, 4] {
        let file = call(nr::MEMFD, [path(4), flags]);
        call(nr::FTRUNCATE, [file, 64 * PAGE]);
    }
}

fn arena() -> u64 {
    (u64::from(ARENA[0].load()) | u64::from(ARENA[1].load()) << 32) * PAGE
}

/// Starts threads, and is the last of them.
fn begin(random: &mut Random, threads: u64) -> ! {
    let count = 1 + random.below(threads);
    let seed = random.next();
    SEEDS[0].store(seed as u32);
    SEEDS[1].store((seed >> 32) as u32);
    WORKERS.store(count as u32);
    NEXT.store(0);
    for _ in 1..count {
        if Thread::spawn(work, 0).is_err() {
            WORKERS.add(u32::MAX);
        }
    }
    work(0);
    Sys::exit(5)
}

/// One of the threads.
fn work(_: u64) {
    let seed = u64::from(SEEDS[0].load()) | u64::from(SEEDS[1].load()) << 32;
    let mut random = Random(seed ^ u64::from(NEXT.add(1)) << 60);
    let calls = 1 + random.below(CALLS);
    for _ in 0..calls {
        step(&mut random);
    }
    let last = WORKERS.add(u32::MAX) == 1;
    if last && !random.once_in(64) || random.once_in(16) {
        Sys::exit(0);
    }
    // Nobody joins it.
    Sys::exit_thread()
}

fn step(random: &mut Random) {
    match random.below(1000) {
        0..250 => {
            let inside = arena() + random.below(ARENA_PAGES * PAGE);
            let addr = if random.once_in(50) {
                Arg::Addr.value(random)
            } else {
                inside
            };
            if random.once_in(2) {
                Raw::load(addr);
            } else {
                // SAFETY: (1) this process may fail in any way.
                unsafe { Raw::store(addr, random.next() as u8) };
            }
        }
        250..252 => {
            let odd = random.below(Odd::ALL.len() as u64) as usize;
            // SAFETY: (1) this process may end.
            unsafe { Raw::execute(Odd::ALL[odd]) };
        }
        _ => any_call(random),
    }
}

fn any_call(random: &mut Random) {
    let (number, args) = draw(random);
    match number {
        nr::FORK if DEPTH.load() == 0 && random.once_in(2) => {
            let seed = random.next();
            if Process::fork() == Ok(Forked::Child) {
                DEPTH.store(1);
                live(seed, 2);
            }
        }
        nr::FORK | nr::VFORK | nr::CLONE => {
            let (then, args3) = loop {
                let (number, [a, b, c, ..]) = draw(random);
                if !sleeps(number) {
                    break (number, [a, b, c]);
                }
            };
            let then = Then {
                number: then,
                args: args3,
                end: random.of(&[nr::EXIT, nr::EXIT, nr::EXIT, nr::EXIT_GROUP]),
            };
            // SAFETY: (1) this process may fail in any way.
            unsafe { Raw::call_twice(number, args, then) };
        }
        _ => {
            // SAFETY: (1) as above.
            unsafe { Raw::call(number, args) };
        }
    }
}

/// Whether a call may sleep for long, or make a process.
const fn sleeps(number: u64) -> bool {
    matches!(
        number,
        nr::FORK
            | nr::VFORK
            | nr::CLONE
            | nr::WAIT4
            | nr::FUTEX
            | nr::NANOSLEEP
            | nr::CLOCK_NANOSLEEP
    )
}

/// A call and its arguments; on Linux a harmless one.
fn draw(random: &mut Random) -> (u64, [u64; 6]) {
    loop {
        let total = TABLE.iter().map(|call| call.weight).sum();
        let mut at = random.below(total);
        let found = TABLE.iter().find(|call| {
            let here = at < call.weight;
            at = at.wrapping_sub(call.weight);
            here
        });
        let Some(call) = found else { continue };
        let mut args = [0; 6];
        for (slot, arg) in args.iter_mut().zip(call.args) {
            let strict = matches!(arg, Arg::Only(_));
            let odds = if matches!(arg, Arg::Time) { 100 } else { 16 };
            *slot = if !strict && random.once_in(odds) {
                Arg::Any.value(random)
            } else {
                arg.value(random)
            };
        }
        let number = if call.number == u64::MAX {
            unknown(random)
        } else {
            call.number
        };
        if LINUX.load() == 0 || is_harmless(number, &mut args) {
            return (number, args);
        }
    }
}

/// A number that no call has.
fn unknown(random: &mut Random) -> u64 {
    let number = random.of(&[1000, 4095, 1 << 31, u64::MAX - 1, 1 << 63]);
    if LINUX.load() == 1 {
        return number;
    }
    // What Linux has, and the kernel not.
    random.of(&[number, 41, 101, 103, 169, 213, 284, 323, 334, 425])
}

/// Whether a call of Linux stays within the process; a few are made so.
fn is_harmless(number: u64, args: &mut [u64; 6]) -> bool {
    const CREATES: u64 = 0o100 | 0o1000 | 0o20_000_000;
    const MOST: u64 = 1 << 20;
    match number {
        nr::SHMGET | 30 | nr::SHMCTL | nr::SHMDT | nr::WAIT4 => false,
        nr::OPEN => args[1] & CREATES == 0,
        nr::OPENAT => args[2] & CREATES == 0,
        nr::SETAFFINITY | nr::GETAFFINITY | nr::PRLIMIT => {
            args[0] = 0;
            number != nr::PRLIMIT || args[2] == 0
        }
        nr::CLONE => args[0] & !0x13d_4fff == 0 && matches!(args[0] & 0xff, 0 | 17),
        nr::WRITE => args[2] <= MOST,
        18 | nr::FALLOCATE => args[2] <= MOST && args[3] <= MOST,
        _ => true,
    }
}

impl Arg {
    fn value(self, random: &mut Random) -> u64 {
        const TOP: u64 = 1 << 47;
        match self {
            Self::Addr => match random.below(40) {
                0 => 0,
                1 => random.of(&[TOP, TOP - PAGE, TOP - 8, TOP - 1, TOP - 4 * PAGE]),
                2 => random.of(&[
                    u64::MAX,
                    u64::MAX << 47,
                    0xffff_ffff_8000_0000,
                    u64::MAX - 7,
                ]),
                3 => random.of(&[0x40_0000, 1 << 30, 1 << 39, 1 << 46]),
                4 => (&raw const random.0).addr() as u64,
                5..8 => random.next() % TOP,
                8..12 => arena() + 0x400 + random.of(&[0, 24, 48]),
                12..20 => arena() + random.below(2 * ARENA_PAGES * PAGE),
                _ => arena() + random.below(2 * ARENA_PAGES) * PAGE,
            },
            Self::Word => arena() + random.of(&[0, 4, 8, 0x40, 0x1000, 0x1004]),
            Self::Len => match random.below(20) {
                0 => 0,
                1 => random.of(&[1 << 21, 1 << 24, 1 << 30, 1 << 31, 1 << 40]),
                2 => random.of(&[TOP, TOP - PAGE, 1 << 63, u64::MAX, u64::MAX - PAGE + 1]),
                3..7 => random.below(3 * PAGE),
                _ => random.below(ARENA_PAGES / 2) * PAGE,
            },
            Self::File => random.below(12),
            Self::Time => arena() + 16 * random.below(4),
            Self::Path => arena() + 0x100 + 0x20 * random.below(PATHS.len() as u64),
            Self::One(list) | Self::Only(list) => random.of(list),
            Self::Bits(list) => {
                let which = random.next();
                let bits = list.iter().enumerate();
                bits.fold(0, |all, (index, bit)| all | (bit * (which >> index & 1)))
            }
            Self::Small => random.below(30),
            Self::Any => match random.below(4) {
                0 => random.next(),
                1 => random.of(&[0, 1, u64::MAX, 1 << 31, 1 << 32, 1 << 63, 4095]),
                2 => 1 << random.below(64),
                _ => Self::Addr.value(random),
            },
        }
    }
}
