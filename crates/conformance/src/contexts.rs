//! Promises 1 and 3 of [`Machine`], and the state of interrupts that a context carries.

use crate::board::{Board, CPUS, On};
use crate::{Bed, Broken, Check, ensure, same};
use minflt_sync::{Cx, Machine, Ordering, TaskId};

/// What is checked here.
pub(crate) const fn checks<B: Bed>() -> [Check<B>; 3] {
    [
        Check::new(
            1,
            "context",
            "a context is its task's own, and found by number",
            own,
        ),
        Check::new(
            1,
            "irq-state",
            "`irq_save` and `irq_restore` nest and keep `Cx::irq_off`",
            irq_state,
        ),
        Check::new(
            1,
            "is-running",
            "the caller runs, and its CPU does not idle",
            running,
        ),
    ]
}

/// The context that runs.
fn here<M: Machine>() -> &'static Cx {
    // SAFETY: 1 of `Machine`: valid for the machine's life, which the run is within; what follows
    // uses it in that run only, and no cell of another context.
    unsafe { &*M::cx() }
}

/// A context is the same one as long as it runs, another one on each CPU, knows its CPU, and is
/// found by its number.
fn own<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let board = Board::<On<B>>::of(&at);
    let cpus = bed.cpus().min(CPUS as u32);
    bed.run(&at, cpus, &|cpu| {
        let first = On::<B>::cx();
        let me = here::<On<B>>();
        let task = me.task.get();
        board
            .word(cpu as usize)
            .store(u64::from(task.0), Ordering::Release);
        board.meet(cpus, 1)?;
        let again = On::<B>::cx();
        same(
            "the same context later",
            again as usize as u64,
            first as usize as u64,
        )?;
        same("the CPU in it", u64::from(me.cpu.get()), u64::from(cpu))?;
        let known = (1..1 << 30).contains(&task.0);
        ensure(
            "the number of a task, from 1 and below 2^30",
            task.0.into(),
            1,
            known,
        )?;
        let by_number = On::<B>::context(task);
        same(
            "it by its number",
            by_number as usize as u64,
            first as usize as u64,
        )?;
        for other in (0..cpus).filter(|other| *other != cpu) {
            let number = board.word(other as usize).load(Ordering::Acquire) as u32;
            ensure(
                "the numbers of two tasks",
                number.into(),
                task.0.into(),
                number != task.0,
            )?;
            let found = On::<B>::context(TaskId(number));
            let differs = found != first;
            ensure(
                "another's context",
                found as usize as u64,
                first as usize as u64,
                differs,
            )?;
        }
        board.meet(cpus, 2)
    })
}

/// `irq_save` and `irq_restore` nest, say what was before, and keep [`Cx::irq_off`].
fn irq_state<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    bed.run(&at, 1, &|_| {
        let off = || u64::from(here::<On<B>>().irq_off.get());
        let before = off();
        let outer = On::<B>::irq_save();
        same("`irq_off` with interrupts off", off(), before + 1)?;
        let inner = On::<B>::irq_save();
        same(
            "whether they were on before a second time",
            inner.were_on.into(),
            0,
        )?;
        same("`irq_off`, turned off twice", off(), before + 2)?;
        On::<B>::irq_restore(inner);
        same("`irq_off` after the inner restore", off(), before + 1)?;
        On::<B>::irq_restore(outer);
        same("`irq_off` after the outer restore", off(), before)?;
        same(
            "whether interrupts were on at the start of a run",
            outer.were_on.into(),
            1,
        )
    })
}

/// A context that runs is said to.
fn running<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    bed.run(&at, 1, &|_| {
        let task = here::<On<B>>().task.get();
        same(
            "whether the caller runs",
            On::<B>::is_running(task).into(),
            1,
        )?;
        same("whether its CPU idles", On::<B>::is_idle().into(), 0)
    })
}
