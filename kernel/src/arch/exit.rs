//! Ending the machine with a verdict, through QEMU's `isa-debug-exit` device.

use x86_64::instructions::hlt;
use x86_64::instructions::port::Port;

/// The device's port, as `run.sh` configures it.
const PORT: u16 = 0xf4;

/// How a boot ended. QEMU's exit status is twice the value plus one; `run.sh` knows these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Everything was as it should be: status 33.
    Success = 0x10,
    /// A check failed: status 35.
    Failure = 0x11,
    /// The kernel panicked: status 37.
    Panic = 0x12,
}

/// Ends the machine; halts for good where there is no such device.
pub(crate) fn exit(verdict: Verdict) -> ! {
    // SAFETY: (1) the port is the debug exit's or nobody's; it touches no memory.
    unsafe { Port::new(PORT).write(verdict as u32) };
    loop {
        hlt();
    }
}
