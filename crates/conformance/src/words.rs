//! Promise 2 of [`Machine`]: word operations are atomic, with at least the ordering given.

use crate::board::{Board, On};
use crate::{Bed, Broken, Check, ensure, same};
use minflt_sync::{Atomic, Machine, Ordering, Word};

/// What is checked here.
pub(crate) const fn checks<B: Bed>() -> [Check<B>; 7] {
    [
        Check::new(
            1,
            "rmw-values",
            "an operation returns the old value and leaves the new one",
            rmw_values,
        ),
        Check::new(
            2,
            "rmw-atomic",
            "no addition of two CPUs is lost",
            rmw_atomic,
        ),
        Check::new(
            2,
            "cas-atomic",
            "no exchange of two CPUs is lost, and none fails spuriously",
            cas_atomic,
        ),
        Check::new(
            2,
            "message",
            "who acquires a flag sees what was stored before its release",
            message,
        ),
        Check::new(
            2,
            "fence",
            "a SeqCst read-modify-write is a full fence",
            fence,
        ),
        Check::new(2, "take", "`take` excludes", take),
        Check::new(
            2,
            "add-local",
            "`add_local` adds, and others can read the sum",
            add_local,
        ),
    ]
}

/// Turns of a loop that two CPUs run at once.
const TURNS: u64 = 4_000;
/// Rounds that two CPUs go through step by step.
const ROUNDS: u64 = 500;

/// Both CPUs add to one word of each width: no addition is lost.
fn rmw_atomic<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    bed.run(&at, 2, &|_| {
        board.meet(2, 1)?;
        for _ in 0..TURNS {
            board.word(0).add(1, Ordering::Relaxed);
            board.half(1).add(1, Ordering::Relaxed);
        }
        board.meet(2, 2)
    })?;
    same("two CPUs added", board.word(0).peek(), 2 * TURNS)?;
    same(
        "two CPUs added to 32 bits",
        u64::from(board.half(1).peek()),
        2 * TURNS,
    )
}

/// Both CPUs count by exchanges.
fn cas_atomic<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    bed.run(&at, 2, &|_| {
        board.meet(2, 1)?;
        for _ in 0..TURNS {
            let mut old = board.word(0).load(Ordering::Relaxed);
            let (ok, fail) = (Ordering::Relaxed, Ordering::Relaxed);
            while let Err(found) = board.word(0).cas(old, old + 1, ok, fail) {
                ensure(
                    "a failed exchange found what it asked for",
                    found,
                    old,
                    found != old,
                )?;
                old = found;
            }
        }
        board.meet(2, 2)
    })?;
    same(
        "two CPUs counted by exchanges",
        board.word(0).peek(),
        2 * TURNS,
    )
}

/// Each operation returns the old value, and leaves the new one.
fn rmw_values<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    bed.run(&at, 1, &|_| {
        each_operation(0xf0f0_0000_ffff_1111, board.word(0))?;
        each_operation(0xf00f_1111_u32, board.half(0))
    })
}

fn each_operation<M: Machine, W: Word>(start: W, word: &Atomic<W, M>) -> Result<(), Broken> {
    let by = 0x1_0000_f00f;
    let old = start.wide();
    let cases: [(Operation<W, M>, u64, &'static str); 5] = [
        (Atomic::add, old.wrapping_add(by), "after an addition"),
        (Atomic::sub, old.wrapping_sub(by), "after a subtraction"),
        (Atomic::or, old | by, "after setting bits"),
        (Atomic::and, old & by, "after clearing bits"),
        (Atomic::swap, by, "after a swap"),
    ];
    for (operation, left, what) in cases {
        word.store(start, Ordering::Release);
        let told = operation(word, W::narrow(by), Ordering::AcqRel);
        same("the old value that an operation returned", told.wide(), old)?;
        let found = word.load(Ordering::Acquire);
        same(what, found.wide(), W::narrow(left).wide())?;
    }
    let (ok, fail) = (Ordering::AcqRel, Ordering::Acquire);
    word.store(start, Ordering::Release);
    let told = word.cas(W::narrow(by), W::ZERO, ok, fail);
    let told = told.map_or_else(W::wide, |_| 0);
    same("what an exchange for another value found", told, old)?;
    let told = word.cas(start, W::narrow(by), ok, fail);
    same(
        "an exchange for the value there",
        u64::from(told.is_ok()),
        1,
    )?;
    same(
        "after an exchange",
        word.load(Ordering::Acquire).wide(),
        W::narrow(by).wide(),
    )
}

type Operation<W, M> = fn(&Atomic<W, M>, W, Ordering) -> W;

/// Who acquires a flag sees what was stored before its release.
fn message<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    let (data, flag, seen) = (0, 1, 2);
    bed.run(&at, 2, &|cpu| {
        for round in 1..=ROUNDS {
            if cpu == 0 {
                board.word(data).store(round, Ordering::Relaxed);
                board.word(flag).store(round, Ordering::Release);
                board.settle("the reader came back", seen, round)?;
            } else {
                board.settle("the writer's flag", flag, round)?;
                let found = board.word(data).load(Ordering::Relaxed);
                same("what was stored before the flag", found, round)?;
                board.word(seen).store(round, Ordering::Release);
            }
        }
        Ok(())
    })
}

/// A `SeqCst` read-modify-write is a full fence: of two CPUs that each set a flag by one and then
/// look at the other's, at least one sees it.
fn fence<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    let saw = |cpu: usize| 2 + cpu;
    bed.run(&at, 2, &|cpu| {
        let (mine, other) = (cpu as usize, 1 - cpu as usize);
        for round in 1..=ROUNDS {
            board.meet(2, 3 * round - 2)?;
            board.word(mine).swap(round, Ordering::SeqCst);
            let found = board.word(other).load(Ordering::Relaxed);
            board.word(saw(mine)).store(found, Ordering::Relaxed);
            board.meet(2, 3 * round - 1)?;
            let found = board.word(saw(other)).load(Ordering::Relaxed).max(found);
            same("what either CPU saw of the other's flag", found, round)?;
            board.meet(2, 3 * round)?;
        }
        Ok(())
    })
}

/// [`Machine::take`] is a lock: additions by load and store under it are not lost.
fn take<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    let (lock, counter) = (0, 1);
    bed.run(&at, 2, &|_| {
        board.meet(2, 1)?;
        for turn in 0..TURNS {
            board.word(lock).take(0, 1, Ordering::Acquire);
            let found = board.word(counter).load(Ordering::Relaxed);
            if turn % 64 == 0 {
                // Time for the other CPU to come in, if it can.
                On::<B>::pass();
            }
            board.word(counter).store(found + 1, Ordering::Relaxed);
            board.word(lock).store(0, Ordering::Release);
        }
        board.meet(2, 2)
    })?;
    same(
        "counted under the lock",
        board.word(counter).peek(),
        2 * TURNS,
    )
}

/// [`Machine::add_local`] adds, and other CPUs read what it leaves.
fn add_local<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    bed.run(&at, 2, &|cpu| {
        board.meet(2, 1)?;
        for _ in 0..TURNS {
            board.word(cpu as usize).add_local(1, Ordering::Relaxed);
        }
        board.meet(2, 2)?;
        let other = board.word(1 - cpu as usize).load(Ordering::Relaxed);
        same("what the other CPU added to its own word", other, TURNS)
    })
}
