//! Sleeping, waking, waiting for a word, and time.

use crate::board::{Board, On, settle};
use crate::{Bed, Broken, Check, ensure};
use minflt_sync::{Instance, Machine, Ordering, TaskId, this_task};

/// What is checked here.
pub(crate) const fn checks<B: Bed>() -> [Check<B>; 6] {
    [
        Check::new(2, "clock", "no clock runs backwards", clock),
        Check::new(
            2,
            "wait-until",
            "a wait for a word ends when its bits are there",
            for_a_word,
        ),
        Check::new(
            2,
            "park-token",
            "a wake-up before the sleep is not lost",
            token_kept,
        ),
        Check::new(2, "park-sleeps", "who sleeps leaves its CPU alone", sleeps),
        Check::new(
            2,
            "park-until",
            "a sleep with a time-out ends by its time, and by a wake-up before",
            timed,
        ),
        Check::new(
            3,
            "park-wakes",
            "two that wake each other get on",
            ping_pong,
        ),
    ]
}

/// Where the sleeper says who it is.
const TASK: usize = 0;
/// How often it came back from its sleep.
const BACK: usize = 1;
/// How far the other one is.
const STEP: usize = 2;
/// Set when the sleeper may go.
const GO: usize = 3;
/// Set by the sleeper when it has gone.
const GONE: usize = 4;

/// Rounds of waking each other.
const ROUNDS: u64 = 300;
/// Looks of who waits beside a sleeper: long enough to see whether it sleeps.
const BESIDE: u64 = 2_000;
/// How often a sleeper may come back meanwhile for no reason.
const EARLY: u64 = BESIDE / 10;

/// Says who sleeps.
fn announce<M: minflt_pgtable::Mmu>(board: &Board<M>) {
    board
        .word(TASK)
        .store(this_task::<M>().0.into(), Ordering::Release);
}

fn sleeper<M: minflt_pgtable::Mmu>(board: &Board<M>) -> TaskId {
    TaskId(board.word(TASK).load(Ordering::Acquire) as u32)
}

/// Wakes the sleeper until it is gone, so that a check ends where wake-ups are lost.
fn rescue<M: minflt_pgtable::Mmu>(board: &Board<M>) -> Result<(), Broken> {
    board.word(GO).store(1, Ordering::Release);
    settle::<M>("the sleeper woke at last", 1, || {
        M::unpark(sleeper(board));
        board.word(GONE).load(Ordering::Acquire)
    })
}

/// A wake-up that came before the sleep ends it.
fn token_kept<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    bed.run(&at, 2, &|cpu| {
        if cpu == 1 {
            announce(board);
            board.settle("the other context left a wake-up", STEP, 1)?;
            for _ in 0..4 {
                board.word(BACK).store(0, Ordering::Release);
                board.word(STEP).store(2, Ordering::Release);
                On::<B>::park();
                board.word(BACK).store(1, Ordering::Release);
                board.settle("the other context left a wake-up", STEP, 1)?;
            }
            board.word(GONE).store(1, Ordering::Release);
            return Ok(());
        }
        let known = || u64::from(board.word(TASK).load(Ordering::Acquire) != 0);
        settle::<On<B>>("the other context began", 1, known)?;
        let mut kept = Ok(());
        for _ in 0..4 {
            On::<B>::unpark(sleeper(board));
            board.word(STEP).store(1, Ordering::Release);
            board.settle("the other context goes to sleep", STEP, 2)?;
            let came = board.settle("back from a sleep that a wake-up preceded", BACK, 1);
            kept = kept.and(came);
            if kept.is_err() {
                On::<B>::unpark(sleeper(board));
            }
        }
        board.word(STEP).store(1, Ordering::Release);
        rescue(board).and(kept)
    })
}

/// Who sleeps is not running: it does not come back again and again.
fn sleeps<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    bed.run(&at, 2, &|cpu| {
        if cpu == 1 {
            announce(board);
            while board.word(GO).load(Ordering::Acquire) == 0 {
                On::<B>::park();
                board.word(BACK).add(1, Ordering::Relaxed);
            }
            board.word(GONE).store(1, Ordering::Release);
            return Ok(());
        }
        let known = || u64::from(board.word(TASK).load(Ordering::Acquire) != 0);
        settle::<On<B>>("the other context began", 1, known)?;
        for _ in 0..BESIDE {
            board.word(STEP).add(1, Ordering::Relaxed);
            On::<B>::pass();
        }
        let early = board.word(BACK).load(Ordering::Relaxed);
        rescue(board)?;
        ensure(
            "times it came back from its sleep without a wake-up",
            early,
            EARLY,
            early <= EARLY,
        )
    })
}

/// A sleep that nobody ends, ends by its time; one whose time is far away, by a wake-up.
fn timed<B: Bed>(bed: &B) -> Result<(), Broken> {
    /// Short, and so long that the other context comes before.
    const SOON_NS: u64 = 300_000;
    const FAR_NS: u64 = 3_000_000_000;
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    bed.run(&at, 2, &|cpu| {
        let Some(began) = On::<B>::clock_ns() else {
            return Ok(());
        };
        let now = || On::<B>::clock_ns().unwrap_or(0);
        if cpu == 1 {
            settle::<On<B>>("the sleeper sleeps for long", 1, || {
                board.word(STEP).load(Ordering::Acquire)
            })?;
            board.word(GO).store(1, Ordering::Release);
            On::<B>::unpark(sleeper(board));
            return Ok(());
        }
        announce(board);
        let soon = began + SOON_NS;
        let mut times = 0;
        while now() < soon {
            On::<B>::park_until(soon);
            times += 1;
        }
        ensure("sleeps of 300 us", times, 1, times > 0)?;
        // What is over already is no reason to sleep.
        On::<B>::park_until(began);
        On::<B>::park_for(0);
        board.word(STEP).store(1, Ordering::Release);
        let far = now() + FAR_NS;
        while board.word(GO).load(Ordering::Acquire) == 0 && now() < far {
            On::<B>::park_until(far);
        }
        let left = far.saturating_sub(now());
        ensure("ns left of a sleep that was ended", left, FAR_NS, left > 0)
    })
}

/// Two contexts that wake each other in turn both get on. A third one looks on, and wakes both
/// where they do not.
fn ping_pong<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    let (turn, of_player) = (5, 6);
    bed.run(&at, 3, &|cpu| {
        let me = u64::from(cpu);
        if cpu < 2 {
            let task = this_task::<On<B>>().0.into();
            board
                .word(of_player + cpu as usize)
                .store(task, Ordering::Release);
        }
        board.meet(3, 1)?;
        let player = |n: usize| TaskId(board.word(of_player + n).load(Ordering::Acquire) as u32);
        if cpu == 2 {
            let turns = || board.word(turn).load(Ordering::Acquire);
            let mut lost = Ok(());
            for round in 1..=ROUNDS {
                let came = settle::<On<B>>("turns of two that wake each other", 2 * round, || {
                    turns().min(2 * round)
                });
                while came.is_err() && turns() < 2 * round {
                    (0..2).for_each(|n| On::<B>::unpark(player(n)));
                    On::<B>::pass();
                }
                lost = lost.and(came);
                if lost.is_err() {
                    board.word(GO).store(1, Ordering::Release);
                }
            }
            return lost;
        }
        for round in 0..ROUNDS {
            let mine = 2 * round + me;
            while board.word(turn).load(Ordering::Acquire) != mine {
                if board.word(GO).load(Ordering::Acquire) == 0 {
                    On::<B>::park();
                }
            }
            board.word(turn).store(mine + 1, Ordering::Release);
            On::<B>::unpark(player(1 - cpu as usize));
        }
        Ok(())
    })
}

/// A wait for a word ends when its masked bits are as asked for, whatever the others are.
fn for_a_word<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    let (word, step) = (0, 1);
    bed.run(&at, 2, &|cpu| {
        if cpu == 1 {
            let masked = || board.word(word).load(Ordering::Acquire) & 0xff;
            for round in 1..=100 {
                while masked() != round {
                    board.word(word).wait_until(0xff, round);
                }
                board.word(step).store(round, Ordering::Release);
            }
            return Ok(());
        }
        for round in 1..=100 {
            board.word(word).store(round << 8, Ordering::Release);
            board
                .word(word)
                .store(round << 8 | round, Ordering::Release);
            board.settle("the waiter came back", step, round)?;
        }
        Ok(())
    })
}

/// The clock never runs backwards, on one CPU or from one to another.
fn clock<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    let (turn, last) = (0, 1);
    bed.run(&at, 2, &|cpu| {
        for round in 0..200_u64 {
            board.settle(
                "the other CPU read its clock",
                turn,
                2 * round + u64::from(cpu),
            )?;
            let before = board.word(last).load(Ordering::Relaxed);
            let first = at.now_ns();
            let second = at.now_ns();
            ensure(
                "nanoseconds, after another CPU's",
                first,
                before,
                first >= before,
            )?;
            ensure("nanoseconds, read again", second, first, second >= first)?;
            board.word(last).store(second, Ordering::Relaxed);
            board.word(turn).add(1, Ordering::Release);
        }
        Ok(())
    })
}
