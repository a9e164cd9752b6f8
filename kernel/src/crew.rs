//! Work for several CPUs at once: each other CPU waits for it, the boot CPU hands it out.

use core::cell::UnsafeCell;
use core::mem;

use minflt_sync::Machine;

use crate::machine::Kernel;
use crate::task;

/// Called with the number of the CPU.
pub(crate) type Work<'w> = &'w (dyn Fn(u32) + Sync);

/// The work that is being done.
struct Job(UnsafeCell<Option<Work<'static>>>);

// SAFETY: (1) the boot CPU writes it while no other has been told to look, and others read it
// between `Task::post` and `Task::done`.
unsafe impl Sync for Job {}

static JOB: Job = Job(UnsafeCell::new(None));

/// Has each of the CPUs below `cpus` do `work`; returns when all have done it.
///
/// # Context
/// Caller: the boot CPU's task, not within such work. Sleeps.
pub(crate) fn run(cpus: u32, work: Work<'_>) {
    assert_eq!(task::current().cpu(), 0, "the boot CPU hands work out");
    // SAFETY: (1) only the lifetime changes, and nobody has the reference when this returns: all
    // are waited for, and a panic ends the kernel.
    let lasting = unsafe { mem::transmute::<Work<'_>, Work<'static>>(work) };
    // SAFETY: (1) all others wait to be told.
    unsafe { *JOB.0.get() = Some(lasting) };
    for cpu in 1..cpus {
        task::of_cpu(cpu).post();
        Kernel::unpark(task::of_cpu(cpu).id());
    }
    work(0);
    for cpu in 1..cpus {
        while task::of_cpu(cpu).is_posted() {
            Kernel::park();
        }
    }
}

/// The life of a CPU other than the boot CPU: it does what it is told to, and sleeps in between.
pub(crate) fn serve() -> ! {
    let me = task::current();
    loop {
        if !me.is_posted() {
            Kernel::park();
            continue;
        }
        // SAFETY: (1) written before the post, and not again before `done`.
        if let Some(work) = unsafe { *JOB.0.get() } {
            work(me.cpu());
        }
        me.done();
        Kernel::unpark(task::of_cpu(0).id());
    }
}
