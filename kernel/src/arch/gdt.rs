//! Segments, the task state segment, and the per-CPU area behind GS.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::ptr;

use x86_64::instructions::tables::load_tss;
use x86_64::registers::model_specific::{GsBase, KernelGsBase};
use x86_64::registers::segmentation::{CS, DS, ES, SS, Segment};
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::tss::TaskStateSegment;
use x86_64::{PrivilegeLevel, VirtAddr};

use crate::acpi::MAX_CPUS;
use crate::task::Task;

/// The kernel's code segment.
pub(super) const KERNEL_CODE: SegmentSelector = SegmentSelector::new(1, PrivilegeLevel::Ring0);
/// The kernel's data segment.
pub(super) const KERNEL_DATA: SegmentSelector = SegmentSelector::new(2, PrivilegeLevel::Ring0);
/// A program's data segment. SYSRET wants it just below the code segment.
pub(super) const USER_DATA: SegmentSelector = SegmentSelector::new(3, PrivilegeLevel::Ring3);
/// A program's code segment.
pub(super) const USER_CODE: SegmentSelector = SegmentSelector::new(4, PrivilegeLevel::Ring3);
const TSS: SegmentSelector = SegmentSelector::new(5, PrivilegeLevel::Ring0);

/// The stack-table slot (one-based in a gate) for double faults.
pub(super) const DOUBLE_FAULT_STACK: u8 = 1;
/// The stack-table slot for non-maskable interrupts and machine checks.
pub(super) const NMI_STACK: u8 = 2;

/// The offset from GS of the kernel's stack pointer while a program runs.
pub(super) const KERNEL_RSP: usize = offset_of!(CpuArea, kernel_rsp);
/// The offset from GS of a word the system-call entry parks the program's stack pointer in.
pub(super) const USER_RSP: usize = offset_of!(CpuArea, user_rsp);
/// The offset from GS of the stack pointer the CPU loads when a program traps.
pub(super) const RSP0: usize =
    offset_of!(CpuArea, tss) + offset_of!(TaskStateSegment, privilege_stack_table);
/// The offset from GS of the pointer to the running task.
const TASK: usize = offset_of!(CpuArea, task);

/// What the CPU finds behind GS.
#[repr(C, align(16))]
struct CpuArea {
    kernel_rsp: u64,
    user_rsp: u64,
    /// The task that runs on this CPU; null only until there is one.
    task: *const Task,
    tss: TaskStateSegment,
    gdt: GlobalDescriptorTable,
}

/// A stack for an exception that must not trust the current one.
#[repr(C, align(16))]
struct Stack([u8; 8192]);

/// Memory of a CPU that hardware and assembly also write.
#[repr(transparent)]
struct Shared<T>(UnsafeCell<T>);

// SAFETY: (1) each CPU has its own area and stacks, and Rust reaches the area only in `load`, which
// runs once on the CPU before any trap can happen there, and one word of it through GS.
unsafe impl<T> Sync for Shared<T> {}

static AREAS: Shared<[CpuArea; MAX_CPUS]> = Shared(UnsafeCell::new(
    [const {
        CpuArea {
            kernel_rsp: 0,
            user_rsp: 0,
            task: ptr::null(),
            tss: TaskStateSegment::new(),
            gdt: GlobalDescriptorTable::new(),
        }
    }; MAX_CPUS],
));
static DOUBLE_FAULT: Shared<Stack> = Shared(UnsafeCell::new(Stack([0; 8192])));
static NMI: Shared<Stack> = Shared(UnsafeCell::new(Stack([0; 8192])));

/// [`load`] for the boot CPU, whose stacks are part of the image.
pub(super) fn load_boot() {
    load(0, top(&DOUBLE_FAULT), top(&NMI));
}

/// Fills and loads GDT and TSS of CPU `cpu`, the caller, and points GS at its area. The stacks of
/// exceptions end at the addresses given. Called once on each CPU.
pub(super) fn load(cpu: u32, double_fault: u64, nmi: u64) {
    let index = cpu as usize;
    assert!(index < MAX_CPUS, "there is an area for each CPU");
    // SAFETY: (1) within the array.
    let area = unsafe { AREAS.0.get().cast::<CpuArea>().add(index) };
    // SAFETY: (1) this runs once on the CPU, before traps, so nobody else reaches its area.
    let area: &'static mut CpuArea = unsafe { &mut *area };

    for (slot, top) in [(DOUBLE_FAULT_STACK, double_fault), (NMI_STACK, nmi)] {
        area.tss.interrupt_stack_table[usize::from(slot) - 1] = VirtAddr::new(top);
    }

    // SAFETY: (1) the TSS is a static and stays where it is.
    let tss = unsafe { Descriptor::tss_segment_unchecked(&raw const area.tss) };
    let wanted = [
        (Descriptor::kernel_code_segment(), KERNEL_CODE),
        (Descriptor::kernel_data_segment(), KERNEL_DATA),
        (Descriptor::user_data_segment(), USER_DATA),
        (Descriptor::user_code_segment(), USER_CODE),
        (tss, TSS),
    ];
    for (descriptor, selector) in wanted {
        assert_eq!(area.gdt.append(descriptor), selector);
    }
    let gs = VirtAddr::from_ptr(&raw const *area);
    area.gdt.load();
    reload_segments();
    // In the kernel GS points here; SWAPGS exchanges it for the program's, which starts as zero.
    GsBase::write(gs);
    KernelGsBase::write(VirtAddr::zero());
}

/// Makes `task` the one that runs on this CPU.
pub(crate) fn set_task(task: &'static Task) {
    let task = ptr::from_ref(task);
    // SAFETY: (1) GS is this CPU's area, and the word is touched by its own CPU only.
    unsafe {
        asm!("mov gs:[{at}], {task}", at = const TASK, task = in(reg) task,
            options(nostack, preserves_flags));
    }
}

/// The task that runs on this CPU; null only until there is one.
#[inline(always)]
pub(crate) fn task() -> *const Task {
    let task;
    // SAFETY: (1) in the kernel GS is this CPU's area; the load has no other effect.
    unsafe {
        asm!("mov {task}, gs:[{at}]", at = const TASK, task = out(reg) task,
            options(nostack, preserves_flags, readonly));
    }
    task
}

fn reload_segments() {
    // SAFETY: (1) a 64-bit ring 0 code segment of the table just loaded.
    unsafe { CS::set_reg(KERNEL_CODE) };
    // SAFETY: (1) a writable data segment of that table.
    unsafe { SS::set_reg(KERNEL_DATA) };
    // SAFETY: (1) a writable data segment of that table.
    unsafe { DS::set_reg(KERNEL_DATA) };
    // SAFETY: (1) a writable data segment of that table.
    unsafe { ES::set_reg(KERNEL_DATA) };
    // SAFETY: (1) the selector of a valid TSS, loaded once.
    unsafe { load_tss(TSS) };
}

/// The end of a stack, where it starts to grow from.
fn top(stack: &'static Shared<Stack>) -> u64 {
    (stack.0.get().addr() + size_of::<Stack>()) as u64
}
