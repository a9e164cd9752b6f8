//! The clock: the time-stamp counter, its rate measured once against the interval timer.

use core::arch::x86_64::_rdtsc;

use x86_64::instructions::port::Port;

/// The interval timer's ticks per second.
const TIMER_HZ: u64 = 1_193_182;
/// How long the measurement takes, in timer ticks: about 10 ms.
const TICKS: u16 = 11_932;
/// Counter 2 of the interval timer, whose gate and output software can reach.
const COUNTER: u16 = 0x42;
/// The interval timer's command port.
const COMMAND: u16 = 0x43;
/// Counter 2, both bytes, counting down once.
const COUNT_DOWN_ONCE: u8 = 0b1011_0000;
/// The port with counter 2's gate and output.
const GATE: u16 = 0x61;
/// The counter runs, and the speaker is silent.
const GATE_OPEN: u8 = 0b01;
/// The speaker's bit.
const SPEAKER: u8 = 0b10;
/// Set once the counter is through.
const OUTPUT: u8 = 1 << 5;

/// Counts since the machine's reset.
///
/// Other CPUs count alike: the counter runs at a constant rate, is reset with all of them, and is
/// never written. Emulators and every CPU of the last fifteen years have it so; check `clock` of
/// the conformance suite sees it where not.
pub(crate) fn counts() -> u64 {
    // SAFETY: (1) every CPU with long mode has the instruction, and it has no other effect.
    unsafe { _rdtsc() }
}

/// Counts in `ns` nanoseconds, rounded up.
pub(crate) fn counts_for(ns: u64, counts_per_second: u64) -> u64 {
    (u128::from(ns) * u128::from(counts_per_second)).div_ceil(1_000_000_000) as u64
}

/// Counts per second, measured. `None` where the timer does not run.
pub(crate) fn counts_per_second() -> Option<u64> {
    let gate = input(GATE) & !SPEAKER;
    output(GATE, gate | GATE_OPEN);
    output(COMMAND, COUNT_DOWN_ONCE);
    output(COUNTER, TICKS as u8);
    output(COUNTER, (TICKS >> 8) as u8);
    let start = counts();
    // A bound in looks: each takes at least a hundred nanoseconds on any bus.
    let through = (0..10_000_000).any(|_| input(GATE) & OUTPUT != 0);
    let taken = counts() - start;
    through.then_some(taken * TIMER_HZ / u64::from(TICKS))
}

fn output(port: u16, value: u8) {
    // SAFETY: (1) the interval timer's registers, which touch no memory.
    unsafe { Port::new(port).write(value) };
}

fn input(port: u16) -> u8 {
    // SAFETY: (1) the interval timer's registers, which touch no memory.
    unsafe { Port::new(port).read() }
}
