//! Interrupts: their vectors, the old interrupt controllers, and what is done when one comes.

use core::cell::UnsafeCell;
use core::ops::Range;

use minflt_sync::{IpiHandler, Ordering};
use x86_64::instructions::port::Port;

use super::{apic, smp};
use crate::acpi::MAX_CPUS;
use crate::machine;
use crate::mmu;
use crate::sched;
use crate::shared::StaticWord;
use crate::task;

/// Gates of exceptions and interrupts.
pub(super) const VECTORS: Range<u64> = 0..64;
/// The vectors of interrupts: those below are exceptions.
const INTERRUPTS: Range<u64> = 32..VECTORS.end;
/// The vectors of the two old controllers' lines, which are all masked.
const OLD_CONTROLLERS: Range<u64> = INTERRUPTS.start..INTERRUPTS.start + 16;

/// Has the handler of [`set_handler`] called on the CPU that gets it.
const CALL: u64 = OLD_CONTROLLERS.end;
/// Has the scheduler of the CPU that gets it look what is queued.
const WAKE: u64 = CALL + 1;
/// The local timer's.
pub(super) const TIMER: u64 = WAKE + 1;
/// What an APIC sends where an interrupt went away meanwhile. Its low four bits are ones, as the
/// first APICs want.
pub(super) const SPURIOUS: u64 = VECTORS.end - 1;

/// The command port of each old controller, and the vector of its first line.
const CONTROLLERS: [(u16, u8); 2] = [
    (0x20, OLD_CONTROLLERS.start as u8),
    (0xa0, OLD_CONTROLLERS.start as u8 + 8),
];

/// How late calls are after [`be_late`].
const LATE_NS: u64 = 300_000;
/// 1 after [`be_late`].
static LATE: StaticWord = StaticWord::new(0);
/// 1 for each CPU that was interrupted for a call and did not serve it yet. Its own.
static CALLS_WAIT: [StaticWord; MAX_CPUS] = [const { StaticWord::new(0) }; MAX_CPUS];

/// A control: from now on CPUs serve calls some time after they were interrupted for them.
pub(crate) fn be_late() {
    LATE.store(1, Ordering::Relaxed);
}

/// Whether `vector` is an interrupt's.
pub(super) fn is_interrupt(vector: u64) -> bool {
    INTERRUPTS.contains(&vector)
}

/// Masks every line of the old controllers. What one of them still sends, an interrupt that nobody
/// raised, gets a vector that is no exception's.
pub(super) fn mask_old_controllers() {
    /// Starts the initialization: cascaded, and a fourth word follows.
    const INITIALIZE: u8 = 0x11;
    /// Where the second controller is: line 2 of the first one.
    const CASCADE: [u8; 2] = [1 << 2, 2];
    /// The mode of this architecture.
    const MODE_8086: u8 = 1;
    for ((command, first), cascade) in CONTROLLERS.into_iter().zip(CASCADE) {
        output(command, INITIALIZE);
        for word in [first, cascade, MODE_8086, 0xff] {
            output(command + 1, word);
        }
    }
}

/// Turns on the calling CPU's APIC. From now on it can be interrupted, where interrupts are on.
pub(super) fn enable_apic() {
    apic::enable();
}

/// Interrupts CPU `cpu`, which calls the handler.
pub(crate) fn send_call(cpu: u32) {
    smp::interrupt(cpu, CALL);
}

/// Interrupts CPU `cpu`, whose scheduler looks what is queued.
pub(crate) fn send_wake(cpu: u32) {
    smp::interrupt(cpu, WAKE);
}

/// Whether there is a timer that can interrupt the calling CPU.
pub(crate) fn has_timer() -> bool {
    smp::can_interrupt() && apic::timer_rate() != 0
}

/// Has the calling CPU interrupted at `at`, by the machine's clock, which is at `now`; or not at
/// all. The caller has interrupts off.
pub(crate) fn set_timer(at: Option<u64>, now: u64) {
    if has_timer() {
        let late = CALLS_WAIT[task::current().cpu() as usize].load(Ordering::Relaxed) == 1;
        let due = late.then_some(LATE_NS);
        apic::set_timer(
            at.map(|at| at.saturating_sub(now))
                .or(due)
                .map(|ns| due.map_or(ns, |due| due.min(ns))),
        );
    }
}

/// Serves an interrupt. The caller has interrupts off, and GS is the kernel's.
pub(super) fn serve(vector: u64) {
    match vector {
        CALL => {
            // Acknowledged first: one that is sent from here on is taken after this one, so that
            // whatever was posted before it was sent is found.
            apic::end_of_interrupt();
            if LATE.load(Ordering::Relaxed) == 0 {
                call_handler();
            } else {
                CALLS_WAIT[task::current().cpu() as usize].store(1, Ordering::Relaxed);
                apic::set_timer(Some(LATE_NS));
            }
        }
        WAKE => {
            apic::end_of_interrupt();
            sched::poked();
        }
        TIMER => {
            apic::end_of_interrupt();
            let calls = &CALLS_WAIT[task::current().cpu() as usize];
            if calls.swap(0, Ordering::Relaxed) == 1 {
                call_handler();
            }
            sched::tick();
        }
        // Neither is in service: the APIC, and the old controllers with all their lines masked,
        // found nothing to send any more.
        SPURIOUS => {}
        vector if OLD_CONTROLLERS.contains(&vector) => {}
        _ => panic!("interrupt {vector}, which nothing is set up to send"),
    }
}

/// The handler of calls.
///
/// # Protocol
/// ```text
/// CPU that is interrupted          CPU that sets another handler
/// RUNNING += 1                     SET = 0
/// if SET: read HANDLER, call it    wait until RUNNING = 0
/// RUNNING -= 1                     write HANDLER; SET = 1
/// ```
/// Both begin with an exchange, a full fence: either the interrupted CPU finds `SET` cleared, or
/// the other one finds it in `RUNNING` and waits. So no call of a handler that was taken back is
/// under way.
struct Handler(UnsafeCell<Option<IpiHandler>>);

// SAFETY: (1) by the protocol above; what the handler is given may be used on all CPUs, as whoever
// sets it promises.
unsafe impl Sync for Handler {}

static HANDLER: Handler = Handler(UnsafeCell::new(None));
static SET: StaticWord = StaticWord::new(0);
static RUNNING: StaticWord = StaticWord::new(0);

/// Sets the handler, or takes it back. No call of the one before is under way when this returns.
///
/// # Context
/// One caller at a time, outside of a handler.
pub(crate) fn set_handler(handler: Option<IpiHandler>) {
    // ORDERING: SeqCst; pairs with [kernel-handler].
    SET.swap(0, Ordering::SeqCst);
    // ORDERING: SeqCst; pairs with [kernel-handler].
    while RUNNING.load(Ordering::SeqCst) != 0 {
        machine::pause();
    }
    // SAFETY: (1) by the protocol nobody reads it now.
    unsafe { *HANDLER.0.get() = handler };
    // ORDERING: SeqCst; pairs with [kernel-handler].
    SET.swap(1, Ordering::SeqCst);
}

/// Calls the handler, if there is one, as the running task.
fn call_handler() {
    // ORDERING: SeqCst; pairs with [kernel-handler].
    RUNNING.fetch_add(1, Ordering::SeqCst);
    // ORDERING: SeqCst; pairs with [kernel-handler].
    if SET.load(Ordering::SeqCst) == 1 {
        // SAFETY: (1) by the protocol nobody writes it now.
        let handler = unsafe { *HANDLER.0.get() };
        if let Some(IpiHandler { call, arg }) = handler {
            // The CPU turned interrupts off, and the checks of locks are to know.
            let task = task::current();
            let off = &task.cx.irq_off;
            off.set(off.get() + 1);
            // SAFETY: (1) on the CPU that was interrupted, interrupts off, as its setter asks.
            mmu::in_handler(|| unsafe { call(arg) });
            off.set(off.get() - 1);
        }
    }
    // ORDERING: SeqCst; pairs with [kernel-handler].
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

fn output(port: u16, value: u8) {
    // SAFETY: (1) a register of an interrupt controller, which touches no memory.
    unsafe { Port::new(port).write(value) };
}
