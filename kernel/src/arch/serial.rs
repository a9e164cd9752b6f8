//! The console: the first serial port, by polling.

use core::fmt;

use x86_64::instructions::port::Port;

/// The first port of COM1.
const COM1: u16 = 0x3f8;
/// Line status: the transmitter takes another byte.
const READY: u8 = 1 << 5;

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

    /// Sends bytes as they are.
    pub(crate) fn send(bytes: &[u8]) {
        for &byte in bytes {
            while input(5) & READY == 0 {}
            output(0, byte);
        }
    }
}

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        Self::send(text.as_bytes());
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

/// Prints a line; use [`say!`].
pub(crate) fn line(text: fmt::Arguments<'_>) {
    // The port takes every byte.
    let _ = fmt::write(&mut Serial, format_args!("{text}\n"));
}
