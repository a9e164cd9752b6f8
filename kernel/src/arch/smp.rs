//! Finding and starting the other CPUs (application processors).
//!
//! They are started one after the other, by an INIT and two start-up interrupts (Intel SDM volume
//! 3, 9.4.4), and each says that it runs before the next one is started. The page below 1 MiB that
//! they start at is found in the memory map; nothing else uses it, since `frames.rs` gives frames
//! behind the image only.

use core::arch::global_asm;
use core::ops::Range;
use core::ptr;

use x86_64::instructions::interrupts;

use super::paging::{self, PAGE};
use super::pvh::BootInfo;
use super::serial::say;
use super::{apic, clock, fpu, gdt, idt, interrupt, kernel_map, protect, syscall};
use crate::acpi::{MAX_CPUS, Madt, Physical};
use crate::machine;
use crate::mmu;
use crate::shared::Once;
use crate::{crew, task};

global_asm!(include_str!("smp.s"), options(att_syntax));

unsafe extern "C" {
    safe static trampoline_start: u8;
    safe static trampoline_end: u8;
    safe static trampoline_jump: u8;
    static mut ap_root: u64;
    static mut ap_stack: u64;
    static mut ap_number: u64;
}

/// The end of conventional memory: video memory and firmware are behind it.
const LOW_END: u64 = 0xa_0000;
/// How long a CPU may take to start, at most.
const START_NS: u64 = 2_000_000_000;

/// The APICs of the CPUs by number; the boot CPU is the first.
static APICS: Once<Apics> = Once::new();

/// Local APICs by the number of their CPU.
#[derive(Clone, Copy, Debug)]
struct Apics {
    ids: [u8; MAX_CPUS],
    len: usize,
}

/// Finds the CPUs, and returns how many there are, the boot CPU included. Why others are not used
/// is said on the console. Called once.
pub(crate) fn find(boot: &BootInfo) -> u32 {
    let madt = match Madt::find(boot.rsdp(), &mut Firmware) {
        Ok(madt) => madt,
        Err(error) => {
            say!("minflt: one CPU: {error}");
            return 1;
        }
    };
    if madt.left_out > 0 {
        say!(
            "minflt: {} CPUs more than the {MAX_CPUS} that are used, or beyond the local APIC's reach",
            madt.left_out
        );
    }
    if let Err(error) = apic::init(madt.local_apic) {
        say!("minflt: one CPU: {error}");
        return 1;
    }
    let boot_cpu = apic::id();
    let mut apics = Apics {
        ids: [boot_cpu; MAX_CPUS],
        len: 1,
    };
    // Where the boot CPU is not among those that were kept, one that is has no place.
    let others = madt.apic_ids().iter().filter(|id| **id != boot_cpu);
    for (id, slot) in others.zip(&mut apics.ids[1..]) {
        *slot = *id;
        apics.len += 1;
    }
    APICS.set(apics).len as u32
}

/// Starts the CPUs that [`find`] counted, as far as they start; returns how many run. There is a
/// task for each.
pub(crate) fn start(boot: &BootInfo, counts_per_second: u64) -> u32 {
    let Some(apics) = APICS.get() else { return 1 };
    interrupt::enable_apic();
    apic::measure_timer(counts_per_second);
    if apics.len == 1 {
        return 1;
    }
    let Some(page) = low_page(boot.ram()) else {
        say!("minflt: one CPU: no page below 1 MiB to start others at");
        return 1;
    };
    place_trampoline(page);
    for (cpu, id) in apics.ids[..apics.len].iter().enumerate().skip(1) {
        let cpu = cpu as u32;
        if !start_one(cpu, *id, page, counts_per_second) {
            return cpu;
        }
    }
    apics.len as u32
}

/// Whether CPUs can interrupt each other, and themselves.
pub(crate) fn can_interrupt() -> bool {
    APICS.get().is_some()
}

/// Interrupts CPU `cpu`.
pub(super) fn interrupt(cpu: u32, vector: u64) {
    match APICS.get() {
        Some(apics) if (cpu as usize) < apics.len => apic::send(apics.ids[cpu as usize], vector),
        _ => panic!("CPU {cpu} is interrupted, and there is none"),
    }
}

/// Starts CPU `cpu`; whether it runs.
fn start_one(cpu: u32, id: u8, page: u64, counts_per_second: u64) -> bool {
    let Some(stack) = kernel_map::map_stacks(cpu) else {
        say!("minflt: CPU {cpu} and those behind it are not used: no memory for their stacks");
        return false;
    };
    let words = [
        (&raw mut ap_root, kernel_map::root().phys()),
        (&raw mut ap_stack, stack),
        (&raw mut ap_number, u64::from(cpu)),
    ];
    for (word, value) in words {
        // SAFETY: (1) no other CPU is being started: the one before is past these words.
        unsafe { word.write_volatile(value) };
    }
    let delay = |ns: u64| {
        let end = clock::counts() + clock::counts_for(ns, counts_per_second);
        while clock::counts() < end {
            machine::pause();
        }
    };
    apic::send_init(id);
    delay(10_000_000);
    for _ in 0..2 {
        apic::send_start_up(id, (page / PAGE) as u8);
        delay(200_000);
    }
    let end = clock::counts() + clock::counts_for(START_NS, counts_per_second);
    while !task::of_cpu(cpu).is_up() {
        if clock::counts() > end {
            // It may still come, on its own stack and task, and is never given anything to do. The
            // words above must not change any more.
            say!("minflt: CPU {cpu} does not start; it and those behind it are not used");
            return false;
        }
        machine::pause();
    }
    true
}

/// The first code of a started CPU on its own stack.
#[unsafe(no_mangle)]
extern "C" fn ap_main(cpu: u32) -> ! {
    let [double_fault, nmi] = kernel_map::exception_stacks(cpu);
    gdt::load(cpu, double_fault, nmi);
    idt::load();
    syscall::enable();
    fpu::enable();
    protect::enable();
    interrupt::enable_apic();
    task::adopt(cpu);
    mmu::init();
    interrupts::enable();
    crew::serve()
}

/// A page of RAM below 1 MiB, but the first one, which the firmware uses.
fn low_page(ram: &[Range<u64>]) -> Option<u64> {
    let within = |page: &u64| {
        ram.iter()
            .any(|it| it.start <= *page && page + PAGE <= it.end)
    };
    (PAGE..LOW_END).step_by(PAGE as usize).find(within)
}

/// Copies the code that CPUs start with to `page`.
fn place_trampoline(page: u64) {
    let offset_of =
        |symbol: &u8| (&raw const *symbol).addr() - (&raw const trampoline_start).addr();
    let len = offset_of(&trampoline_end);
    assert!(len as u64 <= PAGE, "the trampoline is a page at most");
    let to = paging::direct(page);
    // SAFETY: (1) `len` bytes of the image's constants; (2) a page of RAM that nobody uses, in the
    // direct map; they are not the same.
    unsafe { ptr::copy_nonoverlapping(&raw const trampoline_start, to, len) };
    // SAFETY: (1) within the page.
    let jump = unsafe { to.add(offset_of(&trampoline_jump)) }.cast::<u32>();
    // SAFETY: (1) four bytes within the copy.
    let offset = unsafe { jump.read_unaligned() };
    // SAFETY: (1) the same ones.
    unsafe { jump.write_unaligned(offset + page as u32) };
}

/// Tables of the firmware, through the direct map.
struct Firmware;

impl Physical for Firmware {
    fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
        if !kernel_map::map_firmware(at, to.len() as u64) {
            return false;
        }
        let from = paging::direct(at);
        for (offset, byte) in to.iter_mut().enumerate() {
            // SAFETY: (1) within what was mapped above.
            let from = unsafe { from.add(offset) };
            // SAFETY: (1) mapped, and any byte is a valid one; volatile, since who else has it is
            // not known.
            *byte = unsafe { from.read_volatile() };
        }
        true
    }
}
