//! The serial ports, by polling: the first is the console, the second may take the kernel's log.

use core::fmt;

use minflt_sync::Ordering;
use x86_64::instructions::interrupts;
use x86_64::instructions::port::Port;

use crate::machine;
use crate::shared::{Flag, StaticWord};

/// The first port of COM1.
const COM1: u16 = 0x3f8;
/// The first port of COM2.
const COM2: u16 = 0x2f8;
/// Line status: the transmitter takes another byte.
const READY: u8 = 1 << 5;

/// How often the last words wait for the port, before they are said in the middle of a line.
const PATIENCE: u32 = 1_000_000;

/// Whose line it is.
static LINE: Flag = Flag::new();

/// 1 if the console has input.
static ATTENDED: StaticWord = StaticWord::new(0);

/// The first port of where the kernel's own lines go.
static LOG: StaticWord = StaticWord::new(COM1 as u32);

/// A serial port, by the first of its I/O ports.
#[derive(Debug)]
pub(crate) struct Serial(u16);

impl Serial {
    /// Sets up the console.
    pub(crate) fn init() {
        Self(COM1).set_up();
    }

    /// From now on the kernel's own lines go to the second port, and the console is the program's;
    /// where there is no second port, nothing changes. Called at boot.
    pub(crate) fn log_apart() {
        let second = Self(COM2);
        if second.is_there() {
            second.set_up();
            // ORDERING: Relaxed: the boot CPU sets it before it starts others.
            LOG.store(u32::from(COM2), Ordering::Relaxed);
        }
    }

    /// Where the kernel's own lines go.
    fn log() -> Self {
        // ORDERING: Relaxed: see `log_apart`.
        Self(LOG.load(Ordering::Relaxed) as u16)
    }

    /// Whether there is such a port: it has a register that keeps what is written.
    fn is_there(&self) -> bool {
        [0x5a, 0xa5].into_iter().all(|value| {
            self.output(7, value);
            self.input(7) == value
        })
    }

    /// Sets 115200 baud, 8 bits, no parity, FIFOs on, no interrupts.
    fn set_up(&self) {
        for (register, value) in [
            (1, 0),
            (3, 0x80),
            (0, 1),
            (1, 0),
            (3, 0x03),
            (2, 0xc7),
            (4, 0x03),
        ] {
            self.output(register, value);
        }
    }

    /// Sends bytes to the console as they are, in one piece.
    pub(crate) fn send(bytes: &[u8]) {
        exclusively(|| Self(COM1).transmit(bytes));
    }

    /// A byte that the console has received, if there is one.
    pub(crate) fn receive() -> Option<u8> {
        /// Line status: a byte is there.
        const THERE: u8 = 1;
        let console = Self(COM1);
        (console.input(5) & THERE != 0).then(|| console.input(0))
    }

    /// Whether the console has input: a terminal is connected to it.
    pub(crate) fn can_receive() -> bool {
        // ORDERING: Relaxed: the boot CPU sets it before there are programs.
        ATTENDED.load(Ordering::Relaxed) == 1
    }

    /// The console has input. Called at boot.
    pub(crate) fn attend() {
        ATTENDED.store(1, Ordering::Relaxed);
    }

    /// Sends bytes; the caller has the port.
    fn transmit(&self, bytes: &[u8]) {
        for &byte in bytes {
            while self.input(5) & READY == 0 {}
            self.output(0, byte);
        }
    }

    fn output(&self, register: u16, value: u8) {
        // SAFETY: (1) a register of the serial port, which touches no memory.
        unsafe { Port::new(self.0 + register).write(value) };
    }

    fn input(&self, register: u16) -> u8 {
        // SAFETY: (1) a register of the serial port, which touches no memory.
        unsafe { Port::new(self.0 + register).read() }
    }
}

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.transmit(text.as_bytes());
        Ok(())
    }
}

/// Prints a line of the kernel.
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
    let _ = fmt::write(&mut Serial::log(), text);
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
