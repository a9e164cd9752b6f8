//! The console: the first serial port, by polling.

use core::fmt;

use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;

use crate::machine;
use crate::shared::Flag;

/// The first port of COM1.
const COM1: u16 = 0x3f8;
/// Line status: the transmitter takes another byte.
const READY: u8 = 1 << 5;

/// How often the last words wait for the port, before they are said in the middle of a line.
const PATIENCE: u32 = 1_000_000;

/// Whose line it is.
static LINE: Flag = Flag::new();

/// The first serial port.
#[derive(Debug)]
pub(crate) struct Serial;

impl Serial {
    /// Sets 115200 baud, 8 bits, no parity, FIFOs on, no interrupts.
    pub(crate) fn init() {
        for (register, value) in [
            (1, 0),
            (3, 0x80),
            (0, 1),
            (1, 0),
            (3, 0x03),
            (2, 0xc7),
            (4, 0x03),
        ] {
            output(register, value);
        }
    }

    /// Sends bytes as they are, in one piece.
    pub(crate) fn send(bytes: &[u8]) {
        exclusively(|| Self::transmit(bytes));
    }

    /// Sends bytes; the caller has the port.
    fn transmit(bytes: &[u8]) {
        for &byte in bytes {
            while input(5) & READY == 0 {}
            output(0, byte);
        }
    }
}

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        Self::transmit(text.as_bytes());
        Ok(())
    }
}

fn output(register: u16, value: u8) {
    // SAFETY: (1) a register of the serial port, which touches no memory.
    unsafe { Port::new(COM1 + register).write(value) };
}

fn input(register: u16) -> u8 {
    // SAFETY: (1) a register of the serial port, which touches no memory.
    unsafe { Port::new(COM1 + register).read() }
}

/// Prints a line on the console.
macro_rules! say {
    ($($arg:tt)*) => { $crate::arch::serial::line(format_args!($($arg)*)) };
}
pub(crate) use say;

/// Prints the beginning of a line.
macro_rules! say_on {
    ($($arg:tt)*) => { $crate::arch::serial::text(format_args!($($arg)*)) };
}
pub(crate) use say_on;

/// Prints a line; use [`say!`].
pub(crate) fn line(text: fmt::Arguments<'_>) {
    exclusively(|| print(format_args!("{text}\n")));
}

/// Prints what is no whole line; use [`say_on!`].
pub(crate) fn text(text: fmt::Arguments<'_>) {
    exclusively(|| print(text));
}

/// Prints the line of a CPU that is about to end the machine. It may have died in the middle of a
/// line of its own, so it does not wait for ever; other CPUs print nothing after it.
pub(crate) fn last_words(text: fmt::Arguments<'_>) {
    interrupts::disable();
    for _ in 0..PATIENCE {
        if LINE.try_take() {
            break;
        }
        machine::pause();
    }
    print(format_args!("{text}\n"));
}

fn print(text: fmt::Arguments<'_>) {
    // The port takes every byte.
    let _ = fmt::write(&mut Serial, text);
}

/// Calls `work` while no other CPU uses the port. Interrupts are off meanwhile: a handler may have
/// something to say, too.
fn exclusively(work: impl FnOnce()) {
    interrupts::without_interrupts(|| {
        while !LINE.try_take() {
            machine::pause();
        }
        work();
        LINE.release();
    });
}
