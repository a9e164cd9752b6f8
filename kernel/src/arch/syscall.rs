//! The SYSCALL instruction: where it goes and which flags it clears.

use x86_64::VirtAddr;
use x86_64::registers::model_specific::{Efer, EferFlags, LStar, SFMask, Star};
use x86_64::registers::rflags::RFlags;

use super::gdt;

unsafe extern "C" {
    safe static syscall_entry: u8;
}

/// Points SYSCALL at `syscall_entry`. Called once per CPU, after the GDT.
pub(super) fn enable() {
    let selectors = Star::write(
        gdt::USER_CODE,
        gdt::USER_DATA,
        gdt::KERNEL_CODE,
        gdt::KERNEL_DATA,
    );
    assert!(selectors.is_ok(), "the GDT's order does not suit SYSRET");
    LStar::write(VirtAddr::from_ptr(&raw const syscall_entry));
    SFMask::write(
        RFlags::INTERRUPT_FLAG
            | RFlags::TRAP_FLAG
            | RFlags::DIRECTION_FLAG
            | RFlags::NESTED_TASK
            | RFlags::ALIGNMENT_CHECK,
    );
    // SAFETY: (1) enabling SYSCALL changes nothing else; the other bits are kept.
    unsafe { Efer::update(|flags| flags.insert(EferFlags::SYSTEM_CALL_EXTENSIONS)) };
}
