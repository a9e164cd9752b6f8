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

/// The parts of XSAVE that are turned on.
static ENABLED: Once<u32> = Once::new();

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

/// The registers as a program sees them in a handler's frame: XSAVE's standard form, with what says
/// so in the bytes that the CPU leaves alone; that of FXSAVE alone where there is no XSAVE. Linux:
/// `struct _fpx_sw_bytes`.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct FpuBytes([u8; FRAME]);

/// Bytes of that, with the word behind it.
const FRAME: usize = BYTES + 4;
/// Where the bytes begin that say so.
const MARK: usize = 464;
/// What they begin with, and what the word behind is.
const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
/// Where XSAVE's header is: which parts are there.
const HEADER: usize = 512;
/// Where the register of SSE's exceptions is, and which of its bits there are.
const MXCSR: usize = 24;
/// Where FXSAVE says which of those there are, and those that all CPUs have.
const MXCSR_MASK: usize = 28;
const MXCSR_BITS: u32 = 0xffbf;

impl FpuBytes {
    /// All zero.
    pub(crate) const fn new() -> Self {
        Self([0; FRAME])
    }

    /// As many as there are.
    pub(crate) fn len(&self) -> usize {
        if has_xsave() { FRAME } else { HEADER }
    }

    /// The bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.0[..self.len()]
    }

    /// The bytes.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len();
        &mut self.0[..len]
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = [self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]];
        u32::from_le_bytes(bytes)
    }

    fn set_word(&mut self, at: usize, word: u32) {
        self.0[at..at + 4].copy_from_slice(&word.to_le_bytes());
    }
}

/// The registers of the running task's program.
pub(crate) fn bytes_of_running() -> FpuBytes {
    let state = FpuState::new();
    // SAFETY: (1) the caller's own.
    unsafe { state.save() };
    let mut bytes = FpuBytes::new();
    bytes.0[..BYTES].copy_from_slice(&state.0.into_inner());
    if has_xsave() {
        bytes.set_word(MARK, MAGIC[0]);
        bytes.set_word(MARK + 4, FRAME as u32);
        bytes.set_word(MARK + 8, parts());
        bytes.set_word(MARK + 12, 0);
        bytes.set_word(MARK + 16, BYTES as u32);
        bytes.set_word(BYTES, MAGIC[1]);
    }
    bytes
}

/// The bits of MXCSR that the CPU has.
fn mxcsr_bits() -> u32 {
    match bytes_of_running().word(MXCSR_MASK) {
        0 => MXCSR_BITS,
        bits => bits,
    }
}

/// Sets the registers of the running task's program to what it says, as far as that means
/// something: the CPU refuses the rest.
pub(crate) fn set_running(bytes: &FpuBytes) {
    let mut clean = bytes.clone();
    clean.set_word(MXCSR, bytes.word(MXCSR) & mxcsr_bits());
    if has_xsave() {
        let is_whole = bytes.word(MARK) == MAGIC[0] && bytes.word(BYTES) == MAGIC[1];
        // Else what FXSAVE has.
        let there = if is_whole { bytes.word(HEADER) } else { 0b11 };
        clean.0[HEADER..HEADER + 64].fill(0);
        clean.set_word(HEADER, there & parts());
    }
    let mut state = [0; BYTES];
    state.copy_from_slice(&clean.0[..BYTES]);
    let state = FpuState(UnsafeCell::new(state));
    // SAFETY: (1) the caller's own; (2) its program asked for them.
    unsafe { state.load() };
}

/// Sets the registers of the running task's program as a program starts with them.
pub(crate) fn reset_running() {
    // SAFETY: (1) nobody else's; (2) the program is to begin with them.
    unsafe { FpuState::new().load() };
}

/// The parts that are turned on.
fn parts() -> u32 {
    ENABLED.get().copied().unwrap_or(0b11)
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
        ENABLED.set(if features & HAS_AVX != 0 { PARTS } else { 0b11 });
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
