//! Character devices without a driver of their own: `/dev/null` and its like. Linux:
//! drivers/char/mem.c, random.c.

use core::arch::x86_64::{__cpuid, _rdrand64_step};

use crate::machine;

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Device {
    /// Nothing: an empty file that takes whatever is written.
    Null,
    /// Zeros, as many as are wanted, which takes whatever is written.
    Zero,
    /// The same, but there is no room for what is written.
    Full,
    /// Random bytes.
    Random,
    /// The terminal: [`super::tty`].
    Terminal,
}

/// A device in `/dev`: its path there, its number as `st_rdev`, its rights.
pub(crate) struct Row {
    pub(crate) path: &'static str,
    pub(crate) number: u32,
    pub(crate) rights: u32,
    device: Device,
}

/// Makes a device's number of its two parts.
pub(crate) const fn number(major: u32, minor: u32) -> u32 {
    major << 8 | minor & 0xff | (minor & !0xff) << 12
}

/// All that there are, as Linux's devtmpfs has them.
pub(crate) const DEVICES: [Row; 9] = [
    row("null", (1, 3), 0o666, Device::Null),
    row("zero", (1, 5), 0o666, Device::Zero),
    row("full", (1, 7), 0o666, Device::Full),
    row("random", (1, 8), 0o666, Device::Random),
    row("urandom", (1, 9), 0o666, Device::Random),
    row("tty", (5, 0), 0o666, Device::Terminal),
    row("console", (5, 1), 0o600, Device::Terminal),
    row("ttyS0", (4, 64), 0o660, Device::Terminal),
    row("tty0", (4, 0), 0o620, Device::Terminal),
];

const fn row(path: &'static str, numbers: (u32, u32), rights: u32, device: Device) -> Row {
    Row {
        path,
        number: number(numbers.0, numbers.1),
        rights,
        device,
    }
}

impl Device {
    /// The device of that number.
    pub(crate) fn numbered(number: u32) -> Option<Self> {
        let found = DEVICES.iter().find(|row| row.number == number);
        found.map(|row| row.device)
    }
}

/// Fills `bytes` at random: by the CPU's generator if it has one, and else from the clock, which is
/// no secret to a program.
pub(crate) fn random(bytes: &mut [u8]) {
    /// In ECX of leaf 1.
    const RDRAND: u32 = 1 << 30;
    let has = __cpuid(1).ecx & RDRAND != 0;
    let mut mixed = machine::now_ns() ^ 0x9e37_79b9_7f4a_7c15;
    for piece in bytes.chunks_mut(8) {
        let mut word = 0;
        // SAFETY: (1) the CPU has the instruction.
        let got = has && unsafe { _rdrand64_step(&mut word) } == 1;
        // Linux: also a generator of its own, which is fed by more than this.
        mixed ^= mixed << 13;
        mixed ^= mixed >> 7;
        mixed ^= mixed << 17;
        if !got {
            word = mixed ^ machine::now_ns();
        }
        piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
    }
}
