//! The machine's clock of dates (CMOS), which is read once, at boot. Linux: arch/x86/kernel/rtc.c,
//! drivers/rtc/rtc-mc146818-lib.c. It is taken to show universal time.

use x86_64::instructions::port::Port;

/// Where the number of a register goes, and where its value is.
const INDEX: u16 = 0x70;
const VALUE: u16 = 0x71;

/// The registers: seconds, minutes, hours, day of the month, month, year; a state with the bit that
/// says that they change now, and one that says how they are written.
const REGISTERS: [u8; 6] = [0, 2, 4, 7, 8, 9];
const STATE: u8 = 10;
const CHANGES: u8 = 1 << 7;
const FORM: u8 = 11;
/// They are binary, and hours go to 23.
const BINARY: u8 = 1 << 2;
const HOURS_24: u8 = 1 << 1;
/// Of an hour in the other form: it is one of the afternoon.
const AFTERNOON: u8 = 1 << 7;

/// How often a reading is tried until it is whole.
const PATIENCE: u32 = 100_000;

fn register(number: u8) -> u8 {
    // SAFETY: (1) a register of the clock, which touches no memory.
    unsafe { Port::new(INDEX).write(number) };
    // SAFETY: (1) as above.
    unsafe { Port::new(VALUE).read() }
}

/// Nanoseconds since 1970 by that clock; 0 if it has none, or says nonsense.
pub(crate) fn since_1970_ns() -> u64 {
    for _ in 0..PATIENCE {
        if register(STATE) & CHANGES != 0 {
            continue;
        }
        let read = REGISTERS.map(register);
        if register(STATE) & CHANGES == 0 && read == REGISTERS.map(register) {
            return seconds(read, register(FORM)).unwrap_or(0) * 1_000_000_000;
        }
    }
    0
}

fn seconds(read: [u8; 6], form: u8) -> Option<u64> {
    let number = |byte: u8| {
        let value = if form & BINARY != 0 {
            byte
        } else {
            (byte >> 4) * 10 + (byte & 15)
        };
        u64::from(value)
    };
    let [second, minute, hour, day, month, year] = read;
    let afternoon = hour & AFTERNOON != 0;
    let hour = match (form & HOURS_24 != 0, number(hour & !AFTERNOON)) {
        (true, hour) => hour,
        (false, hour) => hour % 12 + if afternoon { 12 } else { 0 },
    };
    let (day, month, year) = (number(day), number(month), 2000 + number(year));
    if !(1..=31).contains(&day) || !(1..=12).contains(&month) || year > 2099 {
        return None;
    }
    // Days, with years that begin in March, so that February 29 is the last day of one. Linux:
    // kernel/time/time.c mktime64.
    let (month, year) = if month > 2 {
        (month - 2, year)
    } else {
        (month + 10, year - 1)
    };
    let days = year / 4 - year / 100 + year / 400 + 367 * month / 12 + day + year * 365 - 719_499;
    Some(((days * 24 + hour) * 60 + number(minute)) * 60 + number(second))
}
