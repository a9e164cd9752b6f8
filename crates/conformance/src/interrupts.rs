//! Interrupts between CPUs: taken everywhere they are promised to be, and nowhere else.

use crate::board::{At, Board, On};
use crate::{Bed, Broken, Check, same};
use core::ptr;
use minflt_pgtable::Mmu;
use minflt_sync::{CpuMask, Instance, IpiHandler, Machine, Ordering, this_cpu};

/// What is checked here.
pub(crate) const fn checks<B: Bed>() -> [Check<B>; 6] {
    [
        Check::new(
            2,
            "ipi-in-wait",
            "interrupts are taken in `wait_until`",
            in_wait,
        ),
        Check::new(2, "ipi-in-take", "interrupts are taken in `take`", in_take),
        Check::new(2, "ipi-in-pass", "interrupts are taken in `pass`", in_pass),
        Check::new(2, "ipi-in-park", "interrupts are taken in `park`", in_park),
        Check::new(
            2,
            "ipi-deferred",
            "none is taken while they are off, and all are after",
            deferred,
        ),
        Check::new(
            3,
            "ipi-to-whom",
            "an interrupt reaches whom it was sent to",
            to_whom,
        ),
    ]
}

/// Where the CPU that is interrupted says how far it is.
const READY: usize = 0;
/// What it waits for.
const GO: usize = 1;
/// Its number as a task.
const TASK: usize = 2;
/// What handlers found amiss: interrupts on in one.
const AMISS: usize = 3;

/// Counts on the CPU that runs.
///
/// # Safety
/// 1. `board` is the board of the machine that interrupts.
unsafe fn count<M: Mmu>(board: *const ()) {
    // SAFETY: 1 of this function.
    let board = unsafe { &*board.cast::<Board<M>>() };
    let irq = M::irq_save();
    if irq.were_on {
        board.word(AMISS).store(1, Ordering::Relaxed);
    }
    M::irq_restore(irq);
    board.taken[this_cpu::<M>() as usize]
        .word
        .add(1, Ordering::AcqRel);
}

/// The board of `at`, whose interrupts are counted there from now on.
fn counting<B: Bed>(at: &At<B>) -> &Board<On<B>> {
    let board = Board::<On<B>>::of(at);
    at.set_ipi_handler(Some(IpiHandler {
        call: count::<On<B>>,
        arg: ptr::from_ref(board).cast(),
    }));
    board
}

/// CPU 1.
fn cpu_1() -> CpuMask {
    let mut mask = CpuMask::empty();
    mask.insert(1);
    mask
}

/// Waits until CPU 1 took `wanted` interrupts.
fn taken<B: Bed>(board: &Board<On<B>>, what: &'static str, wanted: u64) -> Result<(), Broken> {
    crate::board::settle::<On<B>>(what, wanted, || board.taken(1).min(wanted))
}

/// CPU 1 does `first`, and then `wait` until it is told to go on; CPU 0 interrupts it meanwhile,
/// and looks whether that was taken. `wake`, once, ends the wait, which may not have begun yet:
/// where the hardware takes interrupts, one is taken before it, too.
fn while_it<B: Bed>(
    bed: &B,
    what: &'static str,
    first: impl Fn(&Board<On<B>>) + Sync,
    wait: impl Fn(&Board<On<B>>) + Sync,
    wake: impl Fn(&Board<On<B>>) + Sync,
) -> Result<(), Broken> {
    let at = bed.machine();
    let board = counting::<B>(&at);
    let ended = bed.run(&at, 2, &|cpu| {
        if cpu == 1 {
            first(board);
            board.word(TASK).store(
                minflt_sync::this_task::<On<B>>().0.into(),
                Ordering::Release,
            );
            board.word(READY).store(1, Ordering::Release);
            while board.word(GO).load(Ordering::Acquire) == 0 {
                wait(board);
            }
            return Ok(());
        }
        board.settle("the other context began", READY, 1)?;
        On::<B>::send_ipi(&at, &cpu_1());
        let came = taken::<B>(board, what, 1);
        board.word(GO).store(1, Ordering::Release);
        wake(board);
        came
    });
    at.set_ipi_handler(None);
    ended?;
    same("handlers with interrupts on", board.word(AMISS).peek(), 0)
}

/// Interrupts are taken in a wait for a word.
fn in_wait<B: Bed>(bed: &B) -> Result<(), Broken> {
    let wait = |board: &Board<On<B>>| board.word(GO).wait_until(u64::MAX, 1);
    while_it(
        bed,
        "interrupts taken in `wait_until`",
        |_| {},
        wait,
        |_| {},
    )
}

/// Interrupts are taken in a wait for a lock of one word.
fn in_take<B: Bed>(bed: &B) -> Result<(), Broken> {
    let (lock, free, taken) = (4, 0, 1);
    while_it(
        bed,
        "interrupts taken in `take`",
        |board| board.word(lock).store(taken, Ordering::Release),
        |board| board.word(lock).take(free, taken, Ordering::Acquire),
        |board| board.word(lock).store(free, Ordering::Release),
    )
}

/// Interrupts are taken in sleep.
fn in_park<B: Bed>(bed: &B) -> Result<(), Broken> {
    while_it(
        bed,
        "interrupts taken in `park`",
        |_| {},
        |_| On::<B>::park(),
        |board| {
            let task = board.word(TASK).load(Ordering::Acquire) as u32;
            On::<B>::unpark(minflt_sync::TaskId(task));
        },
    )
}

/// Interrupts are taken between two polls.
fn in_pass<B: Bed>(bed: &B) -> Result<(), Broken> {
    while_it(
        bed,
        "interrupts taken in `pass`",
        |_| {},
        |_| On::<B>::pass(),
        |_| {},
    )
}

/// No interrupt is taken while they are off; one that came meanwhile is, when they are on again.
fn deferred<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = counting::<B>(&at);
    let ended = bed.run(&at, 2, &|cpu| {
        if cpu == 0 {
            board.settle("the other context turned interrupts off", READY, 1)?;
            On::<B>::send_ipi(&at, &cpu_1());
            board.word(GO).store(1, Ordering::Release);
            return taken::<B>(board, "interrupts taken once they are on", 1);
        }
        let irq = On::<B>::irq_save();
        board.word(READY).store(1, Ordering::Release);
        let sent = board.settle("the interrupt was sent", GO, 1);
        for _ in 0..100 {
            On::<B>::pass();
        }
        let early = board.taken(1);
        On::<B>::irq_restore(irq);
        sent?;
        same("interrupts taken while they were off", early, 0)?;
        // Wherever they are promised to be taken at the latest.
        taken::<B>(board, "interrupts taken once they are on", 1)
    });
    at.set_ipi_handler(None);
    ended
}

/// An interrupt reaches the CPUs it is sent to, each on its own, and no other.
fn to_whom<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = counting::<B>(&at);
    let ended = bed.run(&at, 3, &|cpu| {
        board.meet(3, 1)?;
        if cpu == 0 {
            On::<B>::send_ipi(&at, &cpu_1());
            taken::<B>(board, "interrupts of the CPU they were sent to", 1)?;
        }
        board.meet(3, 2)?;
        same(
            "interrupts of a CPU they were not sent to",
            board.taken(2),
            0,
        )?;
        same("interrupts of the sender", board.taken(0), 0)
    });
    at.set_ipi_handler(None);
    ended
}
