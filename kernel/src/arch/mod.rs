//! x86-64: the entry, the tables the CPU reads, traps, ports. All the assembly is here.

mod apic;
pub(crate) mod boot;
pub(crate) mod clock;
pub(crate) mod date;
pub(crate) mod exit;
pub(crate) mod fpu;
pub(crate) mod gdt;
mod idt;
pub(crate) mod interrupt;
pub(crate) mod kernel_map;
pub(crate) mod paging;
pub(crate) mod protect;
pub(crate) mod pvh;
pub(crate) mod serial;
pub(crate) mod smp;
pub(crate) mod switch;
mod syscall;
pub(crate) mod trap;
pub(crate) mod uaccess;

/// Sets up everything of the boot CPU that does not depend on the memory map.
pub(crate) fn init() {
    gdt::load_boot();
    idt::init();
    idt::load();
    syscall::enable();
    fpu::enable();
    // SAFETY: (1) first thing at boot.
    unsafe { protect::patch() };
    protect::enable();
    interrupt::mask_old_controllers();
}
