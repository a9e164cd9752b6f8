//! The interrupt descriptor table: a gate for each exception and interrupt, to the stubs of
//! `trap.s`. All CPUs use the same one.

use x86_64::VirtAddr;
use x86_64::instructions::tables::lidt;
use x86_64::structures::DescriptorTablePointer;

use super::{gdt, interrupt};
use crate::shared::Once;

/// Exceptions and interrupts.
const VECTORS: usize = interrupt::VECTORS.end as usize;
/// The distance between two stubs.
const STUB_SIZE: u64 = 16;

const NMI: usize = 2;
const BREAKPOINT: usize = 3;
const DOUBLE_FAULT: usize = 8;
const MACHINE_CHECK: usize = 18;

unsafe extern "C" {
    safe static trap_stubs: u8;
}

/// One entry, in the CPU's layout.
#[repr(C)]
#[derive(Clone, Copy)]
struct Gate {
    low: u64,
    high: u64,
}

impl Gate {
    const ABSENT: Self = Self { low: 0, high: 0 };

    /// A gate that turns interrupts off. `ring` is who may use it by an INT instruction.
    fn to(handler: u64, stack: u8, ring: u64) -> Self {
        const PRESENT_INTERRUPT: u64 = 0x8e << 40;
        let low = handler & 0xffff
            | u64::from(gdt::KERNEL_CODE.0) << 16
            | u64::from(stack) << 32
            | ring << 45
            | PRESENT_INTERRUPT
            | (handler >> 16 & 0xffff) << 48;
        Self {
            low,
            high: handler >> 32,
        }
    }
}

static IDT: Once<[Gate; VECTORS]> = Once::new();

/// Fills the table. Called once, at boot.
pub(super) fn init() {
    let stubs = (&raw const trap_stubs).addr() as u64;
    let mut gates = [Gate::ABSENT; VECTORS];
    for (vector, gate) in gates.iter_mut().enumerate() {
        let stack = match vector {
            NMI | MACHINE_CHECK => gdt::NMI_STACK,
            DOUBLE_FAULT => gdt::DOUBLE_FAULT_STACK,
            _ => 0,
        };
        let ring = if vector == BREAKPOINT { 3 } else { 0 };
        *gate = Gate::to(stubs + vector as u64 * STUB_SIZE, stack, ring);
    }
    IDT.set(gates);
}

/// Loads the table on the calling CPU, after its GDT.
pub(super) fn load() {
    let Some(gates) = IDT.get() else {
        panic!("the table of gates is not filled yet");
    };
    let base = VirtAddr::from_ptr(gates);
    let limit = (size_of::<[Gate; VECTORS]>() - 1) as u16;
    // SAFETY: (1) a static table whose gates lead to the stubs, on stacks the TSS has.
    unsafe { lidt(&DescriptorTablePointer { limit, base }) };
}
