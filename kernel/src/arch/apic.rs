//! The local APIC of each CPU: how CPUs interrupt and start each other.
//!
//! Registers: Intel SDM volume 3, chapter 11. They lie at the same address for every CPU, each of
//! which finds its own there. The x2APIC, whose registers are others, is not used.

use core::arch::x86_64::__cpuid;
use core::fmt;

use x86_64::instructions::interrupts;
use x86_64::registers::model_specific::Msr;

use minflt_sync::Ordering;

use super::interrupt::{SPURIOUS, TIMER};
use super::{clock, kernel_map};
use crate::machine;
use crate::shared::{Once, StaticWord};

/// The mapped registers.
static REGISTERS: Once<Registers> = Once::new();

/// The timer's counts per second; 0 while it is not known.
static TIMER_RATE: StaticWord = StaticWord::new(0);

/// The most looks at an interrupt that another CPU's APIC does not accept.
const PATIENCE: u32 = 100_000_000;

const ID: u64 = 0x20;
const TASK_PRIORITY: u64 = 0x80;
const END_OF_INTERRUPT: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const COMMAND_LOW: u64 = 0x300;
const COMMAND_HIGH: u64 = 0x310;
const TIMER_SOURCE: u64 = 0x320;
/// Timer, LINT0, LINT1, error: the local sources of interrupts that every APIC has.
const LOCAL_SOURCES: [u64; 4] = [TIMER_SOURCE, 0x350, 0x360, 0x370];
const TIMER_INITIAL: u64 = 0x380;
const TIMER_CURRENT: u64 = 0x390;
const TIMER_DIVIDER: u64 = 0x3e0;
/// The timer counts every 16th tick of its clock.
const DIVIDE_BY_16: u32 = 0b0011;

/// A local source is masked.
const MASKED: u32 = 1 << 16;
/// The APIC is on.
const ENABLED: u32 = 1 << 8;
/// The command before was not accepted yet.
const PENDING: u32 = 1 << 12;
/// The level of an INIT; set for all commands here.
const ASSERT: u32 = 1 << 14;
/// Delivery: as an INIT.
const INIT: u32 = 0b101 << 8;
/// Delivery: as a start-up, whose vector is the number of a page below 1 MiB.
const START_UP: u32 = 0b110 << 8;

/// Why there is no local APIC that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApicError {
    /// The CPU has none.
    Missing,
    /// The firmware switched it off, or to the x2APIC's registers.
    OtherMode,
    /// The CPU has it at another address than the MADT says.
    Elsewhere,
    /// Its registers cannot be mapped.
    Unmapped,
}

impl fmt::Display for ApicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the CPU has no local APIC",
            Self::OtherMode => "the local APIC is off, or is an x2APIC",
            Self::Elsewhere => "the local APIC is not where the MADT has it",
            Self::Unmapped => "the local APIC lies within RAM",
        })
    }
}

/// The registers of the calling CPU's APIC.
///
/// # Invariants
/// The address is that of the mapped registers, uncached.
#[derive(Clone, Copy, Debug)]
struct Registers(u64);

impl Registers {
    fn read(self, register: u64) -> u32 {
        let at = core::ptr::with_exposed_provenance::<u32>((self.0 + register) as usize);
        // SAFETY: (1) by the type invariant a register, whose load has no effect on memory.
        unsafe { at.read_volatile() }
    }

    fn write(self, register: u64, value: u32) {
        let at = core::ptr::with_exposed_provenance_mut::<u32>((self.0 + register) as usize);
        // SAFETY: (1) by the type invariant a register; what it sends is received by `interrupt.rs`
        // or starts a CPU that waits to be started.
        unsafe { at.write_volatile(value) };
    }

    /// Sends a command to the APIC called `to`.
    fn command(self, to: u8, command: u32) {
        // The command is two stores, and a handler may send one, too.
        interrupts::without_interrupts(|| {
            self.settle();
            self.write(COMMAND_HIGH, u32::from(to) << 24);
            self.write(COMMAND_LOW, command | ASSERT);
        });
    }

    /// Waits until the command before was accepted.
    fn settle(self) {
        let accepted = (0..PATIENCE).any(|_| {
            machine::pause();
            self.read(COMMAND_LOW) & PENDING == 0
        });
        assert!(accepted, "the local APIC does not deliver");
    }
}

/// Maps the registers at physical address `at`, which every CPU then finds. Called once, by the
/// boot CPU.
pub(super) fn init(at: u64) -> Result<(), ApicError> {
    /// `IA32_APIC_BASE`.
    const BASE: u32 = 0x1b;
    const X2APIC: u64 = 1 << 10;
    const ON: u64 = 1 << 11;
    const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
    /// In EDX of leaf 1.
    const HAS_APIC: u32 = 1 << 9;
    if __cpuid(1).edx & HAS_APIC == 0 {
        return Err(ApicError::Missing);
    }
    // SAFETY: (1) every CPU with an APIC of this kind has the register; reading it has no effect.
    let base = unsafe { Msr::new(BASE).read() };
    if base & (X2APIC | ON) != ON {
        return Err(ApicError::OtherMode);
    }
    if base & ADDRESS != at {
        return Err(ApicError::Elsewhere);
    }
    let mapped = kernel_map::map_device(at).ok_or(ApicError::Unmapped)?;
    // INVARIANT: mapped by the line above.
    REGISTERS.set(Registers(mapped.addr() as u64));
    Ok(())
}

/// Turns the calling CPU's APIC on, with nothing but other CPUs to interrupt it.
pub(super) fn enable() {
    let here = registers();
    for source in LOCAL_SOURCES {
        here.write(source, MASKED);
    }
    here.write(TIMER_DIVIDER, DIVIDE_BY_16);
    here.write(TIMER_INITIAL, 0);
    here.write(TIMER_SOURCE, TIMER as u32);
    here.write(TASK_PRIORITY, 0);
    here.write(SPURIOUS_VECTOR, ENABLED | SPURIOUS as u32);
}

/// Measures the timer against the time-stamp counter, which counts so often a second. Called once,
/// by the boot CPU, with its APIC on.
pub(super) fn measure_timer(counts_per_second: u64) {
    const SHARE: u64 = 200;
    let here = registers();
    let end = clock::counts() + counts_per_second / SHARE;
    here.write(TIMER_INITIAL, u32::MAX);
    while clock::counts() < end {
        machine::pause();
    }
    let taken = u64::from(u32::MAX - here.read(TIMER_CURRENT));
    here.write(TIMER_INITIAL, 0);
    // One that is faster than the word has room for ends turns late, which is all.
    let rate = u32::try_from(taken * SHARE).unwrap_or(u32::MAX);
    TIMER_RATE.store(rate, Ordering::Relaxed);
}

/// The timer's counts per second, 0 if it does not run.
pub(super) fn timer_rate() -> u32 {
    TIMER_RATE.load(Ordering::Relaxed)
}

/// Has the timer interrupt the calling CPU after so many nanoseconds, once, instead of what it was
/// to do before; `None`: never.
pub(super) fn set_timer(ns: Option<u64>) {
    let counts = ns.map_or(0, |ns| {
        let counts = u128::from(ns) * u128::from(timer_rate()) / 1_000_000_000;
        // What is too far away is interrupted on the way, and set again.
        counts.clamp(1, u128::from(u32::MAX)) as u32
    });
    registers().write(TIMER_INITIAL, counts);
}

/// The number of the calling CPU's APIC.
pub(super) fn id() -> u8 {
    (registers().read(ID) >> 24) as u8
}

/// Says that the interrupt in service was taken.
pub(super) fn end_of_interrupt() {
    registers().write(END_OF_INTERRUPT, 0);
}

/// Interrupts the CPU of the APIC called `to`.
pub(super) fn send(to: u8, vector: u64) {
    registers().command(to, vector as u32);
}

/// Resets the CPU of the APIC called `to`; it then waits for a start-up.
pub(super) fn send_init(to: u8) {
    registers().command(to, INIT);
}

/// Starts that CPU, in real mode, at the page `page` below 1 MiB.
pub(super) fn send_start_up(to: u8, page: u8) {
    registers().command(to, START_UP | u32::from(page));
}

fn registers() -> Registers {
    match REGISTERS.get() {
        Some(registers) => *registers,
        None => panic!("the local APIC is not mapped yet"),
    }
}
