//! The code between the loader's jump and `kmain`, and the addresses the linker chose.

use core::arch::global_asm;
use core::ops::Range;

global_asm!(include_str!("boot.s"), options(att_syntax));

unsafe extern "C" {
    safe static image_start_phys: u8;
    safe static image_end_phys: u8;
    safe static text_start: u8;
    safe static text_end: u8;
    safe static rodata_start: u8;
    safe static rodata_end: u8;
    safe static data_start: u8;
    safe static data_end: u8;
    safe static stack_guard: u8;
}

/// Where the linker placed the kernel's image, minus where the loader put it.
pub(crate) const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// The address of a symbol.
fn address(symbol: &u8) -> u64 {
    (&raw const *symbol).addr() as u64
}

/// The physical range of the image, its BSS and stack included.
pub(crate) fn image_phys() -> Range<u64> {
    address(&image_start_phys)..address(&image_end_phys)
}

/// The virtual range of the code.
pub(crate) fn text() -> Range<u64> {
    address(&text_start)..address(&text_end)
}

/// The virtual range of the constants.
pub(crate) fn rodata() -> Range<u64> {
    address(&rodata_start)..address(&rodata_end)
}

/// The virtual range of the variables, the boot page tables and the stack.
pub(crate) fn data() -> Range<u64> {
    address(&data_start)..address(&data_end)
}

/// The page below the stack, which stays unmapped.
pub(crate) fn guard_page() -> u64 {
    address(&stack_guard)
}
