//! Interrupts: their vectors, the old interrupt controllers, and what is done when one comes.

use core::ops::Range;

use x86_64::instructions::port::Port;

/// Gates of exceptions and interrupts.
pub(super) const VECTORS: Range<u64> = 0..64;
/// The vectors of interrupts: those below are exceptions.
const INTERRUPTS: Range<u64> = 32..VECTORS.end;
/// The vectors of the two old controllers' lines, which are all masked.
const OLD_CONTROLLERS: Range<u64> = INTERRUPTS.start..INTERRUPTS.start + 16;

/// The command port of each old controller, and the vector of its first line.
const CONTROLLERS: [(u16, u8); 2] = [
    (0x20, OLD_CONTROLLERS.start as u8),
    (0xa0, OLD_CONTROLLERS.start as u8 + 8),
];

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

/// Serves an interrupt. The caller has interrupts off, and GS is the kernel's.
pub(super) fn serve(vector: u64) {
    match vector {
        // Nobody raised it: the lines are masked, and such an interrupt is not acknowledged.
        vector if OLD_CONTROLLERS.contains(&vector) => {}
        _ => panic!("interrupt {vector}, which nothing is set up to send"),
    }
}

fn output(port: u16, value: u8) {
    // SAFETY: (1) a register of an interrupt controller, which touches no memory.
    unsafe { Port::new(port).write(value) };
}
