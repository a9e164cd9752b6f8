//! Registers of floating point and vectors: the programs', for the kernel uses none.
//!
//! They are saved and loaded when a program's thread gives its CPU away and gets one (never in
//! between, and never by a trap). Where the CPU has XSAVE, the registers of AVX are among them;
//! those of AVX-512 are not offered.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::cell::UnsafeCell;

use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags};
use x86_64::registers::xcontrol::{XCr0, XCr0Flags};

use crate::shared::Once;

/// Whether the CPUs have XSAVE, as the boot CPU does.
static XSAVE: Once<bool> = Once::new();

/// Bytes of XSAVE's standard form up to the registers of AVX: 512 of FXSAVE, 64 of a header, 256.
const BYTES: usize = 512 + 64 + 256;

/// x87, SSE, AVX: what XSAVE and XRSTOR move, if it is turned on.
const PARTS: u32 = 0b111;

/// What a thread has in these registers while it does not run.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct FpuState(UnsafeCell<[u8; BYTES]>);

impl FpuState {
    /// As a program starts: all exceptions masked, all registers zero.
    pub(crate) const fn new() -> Self {
        let mut bytes = [0; BYTES];
        // The control words of x87 and SSE, as the CPU's reset and Linux's exec have them.
        (bytes[0], bytes[1]) = (0x7f, 0x03);
        (bytes[24], bytes[25]) = (0x80, 0x1f);
        Self(UnsafeCell::new(bytes))
    }

    /// Saves the CPU's registers here.
    ///
    /// # Safety
    /// 1. Nobody else uses the state meanwhile.
    pub(crate) unsafe fn save(&self) {
        let at = self.0.get();
        if has_xsave() {
            // SAFETY: (1) of this function; the size suits what is turned on.
            unsafe { asm!("xsave64 [{}]", in(reg) at, in("eax") PARTS, in("edx") 0) };
        } else {
            // SAFETY: (1) of this function.
            unsafe { asm!("fxsave64 [{}]", in(reg) at) };
        }
    }

    /// Loads the CPU's registers from here.
    ///
    /// # Safety
    /// 1. Nobody else uses the state meanwhile. 2. The caller's program is to have them.
    pub(crate) unsafe fn load(&self) {
        let at = self.0.get();
        if has_xsave() {
            // SAFETY: (1), (2) of this function; the kernel has nothing in these registers.
            unsafe { asm!("xrstor64 [{}]", in(reg) at, in("eax") PARTS, in("edx") 0) };
        } else {
            // SAFETY: (1), (2) of this function, as above.
            unsafe { asm!("fxrstor64 [{}]", in(reg) at) };
        }
    }

    /// Becomes a copy of another.
    ///
    /// # Safety
    /// 1. Nobody else uses either meanwhile.
    pub(crate) unsafe fn copy_from(&self, other: &Self) {
        // SAFETY: (1) of this function.
        let bytes = unsafe { *other.0.get() };
        // SAFETY: (1) of this function.
        unsafe { *self.0.get() = bytes };
    }
}

fn has_xsave() -> bool {
    XSAVE.get() == Some(&true)
}

/// Lets programs use these registers on the calling CPU. Called once on each, on the boot CPU
/// first.
pub(crate) fn enable() {
    /// In ECX of leaf 1.
    const HAS_XSAVE: u32 = 1 << 26;
    const HAS_AVX: u32 = 1 << 28;
    let features = __cpuid(1).ecx;
    if XSAVE.get().is_none() {
        XSAVE.set(features & HAS_XSAVE != 0);
    }
    let mut cr4 = Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE;
    if has_xsave() {
        cr4 |= Cr4Flags::OSXSAVE;
    }
    // SAFETY: (1) every CPU with long mode has SSE, and XSAVE was looked for.
    unsafe { Cr4::update(|flags| flags.insert(cr4)) };
    // SAFETY: (1) as above; the kernel itself uses no such register.
    unsafe {
        Cr0::update(|flags| {
            flags.remove(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED);
            flags.insert(Cr0Flags::MONITOR_COPROCESSOR | Cr0Flags::NUMERIC_ERROR);
        });
    }
    if has_xsave() {
        let mut parts = XCr0Flags::X87 | XCr0Flags::SSE;
        parts.set(XCr0Flags::AVX, features & HAS_AVX != 0);
        // SAFETY: (1) the CPU has what is turned on, and `BYTES` has room for it.
        unsafe { XCr0::write(parts) };
    }
}
