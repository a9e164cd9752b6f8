//! The kernel's half of every address space: the direct map, the image and the stacks of CPUs, each
//! with its rights.

use core::ops::Range;

use super::boot::{self, KERNEL_BASE};
use super::paging::{
    self, ADDRESS, LARGE, LARGE_LEAF, LARGE_PAGE, LEAF, NO_EXECUTE, PAGE, PRESENT, Pcid, Table,
    UNCACHED, WRITABLE,
};
use crate::frames;
use crate::shared::Once;

/// Where the stacks of the CPUs but the boot CPU are mapped, a slot each.
const STACKS: u64 = 0xffff_ff00_0000_0000;
/// The distance between two slots. A stack fills the upper half of its slot at most, and the rest
/// stays unmapped: running off it is a fault.
const STACK_SLOT: u64 = 128 << 10;
/// Bytes of the stack that a CPU runs on.
const STACK: u64 = 64 << 10;
/// Bytes of a stack for exceptions that must not trust the current one.
const EXCEPTION_STACK: u64 = 8 << 10;
/// Slots of a CPU: its own stack, and two for exceptions.
const SLOTS: u64 = 3;
/// Where the stacks of tasks are mapped, a slot each, by the task's number.
const TASK_STACKS: u64 = 0xffff_fe00_0000_0000;
/// Pages of a task's stack.
pub(crate) const TASK_STACK_PAGES: u64 = 16;
/// The end of what the direct map may map.
const DIRECT_END: u64 = 1 << 46;

/// The root whose lower half is empty.
static ROOT: Once<Table> = Once::new();

/// Builds the kernel's half for the RAM there is, and leaves the boot tables for it.
///
/// Programs' roots copy its top-level entries, so those never change afterwards.
pub(crate) fn init(ram: &[Range<u64>]) {
    let root = frames::table();
    for range in ram {
        map_direct(root, range);
    }
    map_image(root, boot::text(), 0);
    map_image(root, boot::rodata(), NO_EXECUTE);
    map_image(root, boot::data(), NO_EXECUTE | WRITABLE);
    // SAFETY: (1) the root maps the direct map and the image, and the lower half is empty; (2) all
    // is flushed.
    unsafe { root.activate(Pcid::Flush(0)) };
    ROOT.set(root);
}

/// The root whose lower half is empty.
pub(crate) fn root() -> Table {
    match ROOT.get() {
        Some(root) => *root,
        None => panic!("the kernel's map is not built yet"),
    }
}

/// Maps the stacks of CPU `cpu`, and returns the end of the one that it runs on; `None` without
/// memory. Called before there are programs, once for each CPU.
pub(crate) fn map_stacks(cpu: u32) -> Option<u64> {
    let [double_fault, nmi] = exception_stacks(cpu);
    let own = stack_top(cpu, 0);
    for (top, bytes) in [
        (own, STACK),
        (double_fault, EXCEPTION_STACK),
        (nmi, EXCEPTION_STACK),
    ] {
        map_stack(top, bytes)?;
    }
    Some(own)
}

/// Makes the tables for the stacks of tasks up to number `last`, so that each can be mapped on its
/// own. Called once, before there are programs.
pub(crate) fn prepare_task_stacks(last: u32) {
    let end = task_stack_top(last);
    for addr in (TASK_STACKS..end).step_by(LARGE_PAGE as usize) {
        table_for(root(), addr, LEAF);
    }
}

/// Maps `frame` as page number `page` of the stack of task number `task`.
///
/// # Safety
/// 1. The frame is the stack's alone, until [`unmap_task_stack_page`]. 2. [`prepare_task_stacks`]
///    was called, and nothing is mapped there.
pub(crate) unsafe fn map_task_stack_page(task: u32, page: u64, frame: u64) {
    let (table, index) = task_stack_entry(task, page);
    // SAFETY: (1), (2) of this function.
    unsafe { table.set(index, frame | PRESENT | WRITABLE | NO_EXECUTE) };
}

/// Takes that page away again, and returns its frame.
///
/// # Safety
/// 1. Nobody uses the stack, nor will before another frame is mapped there, and then the
///    translations of this one are gone.
pub(crate) unsafe fn unmap_task_stack_page(task: u32, page: u64) -> u64 {
    let (table, index) = task_stack_entry(task, page);
    let entry = table.entry(index);
    // SAFETY: (1) of this function.
    unsafe { table.set(index, 0) };
    entry & ADDRESS
}

fn task_stack_entry(task: u32, page: u64) -> (Table, u64) {
    assert!(page < TASK_STACK_PAGES, "page {page} of a stack");
    let addr = task_stack_top(task) - (page + 1) * PAGE;
    match root().descend(addr, LEAF, || None) {
        Some(table) => (table, paging::index(addr, LEAF)),
        None => panic!("no table for the stack of task {task}"),
    }
}

/// The end of the stack of task number `task`.
pub(crate) const fn task_stack_top(task: u32) -> u64 {
    TASK_STACKS + (task as u64 + 1) * STACK_SLOT
}

fn map_stack(top: u64, bytes: u64) -> Option<()> {
    for addr in (top - bytes..top).step_by(PAGE as usize) {
        let entry = frames::take()? | PRESENT | WRITABLE | NO_EXECUTE;
        // SAFETY: (1) nothing was mapped there, and the frame was taken for it.
        unsafe { table_for(root(), addr, LEAF).set(paging::index(addr, LEAF), entry) };
    }
    Some(())
}

/// The ends of the stacks of CPU `cpu` for double faults, and for non-maskable interrupts and
/// machine checks.
pub(crate) fn exception_stacks(cpu: u32) -> [u64; 2] {
    [stack_top(cpu, 1), stack_top(cpu, 2)]
}

fn stack_top(cpu: u32, which: u64) -> u64 {
    STACKS + (u64::from(cpu) * SLOTS + which + 1) * STACK_SLOT
}

/// Maps what the firmware left at a physical address into the direct map, to be read, where it is
/// not mapped already; false if that is no address. Called before there are programs.
#[must_use]
pub(crate) fn map_firmware(phys: u64, len: u64) -> bool {
    let Some(end) = phys.checked_add(len).filter(|end| *end <= DIRECT_END) else {
        return false;
    };
    let first = phys & !(LARGE_PAGE - 1);
    for page in (first..end).step_by(LARGE_PAGE as usize) {
        // What is mapped there already, RAM or a device, can be read as it is.
        map_large(page, LARGE | NO_EXECUTE);
    }
    true
}

/// Maps a device's registers at a physical address, uncached, and returns where; `None` if
/// something else is mapped there. Called before there are programs.
pub(crate) fn map_device(phys: u64) -> Option<*mut u8> {
    let page = phys & !(LARGE_PAGE - 1);
    let free = phys < DIRECT_END && map_large(page, LARGE | WRITABLE | NO_EXECUTE | UNCACHED);
    free.then(|| paging::direct(phys))
}

/// Maps a large page into the direct map, with these bits; false if something is mapped there.
fn map_large(phys: u64, bits: u64) -> bool {
    let addr = paging::direct(phys).addr() as u64;
    let table = table_for(root(), addr, LARGE_LEAF);
    let index = paging::index(addr, LARGE_LEAF);
    let free = table.entry(index) & PRESENT == 0;
    if free {
        // SAFETY: (1) nothing was mapped there, and the direct map is the kernel's alone.
        unsafe { table.set(index, phys | PRESENT | bits) };
    }
    free
}

/// Maps a range of RAM, rounded out to large pages, into the direct map.
fn map_direct(root: Table, range: &Range<u64>) {
    let mut phys = range.start & !(LARGE_PAGE - 1);
    while phys < range.end {
        let addr = paging::direct(phys).addr() as u64;
        let table = table_for(root, addr, LARGE_LEAF);
        let entry = phys | PRESENT | WRITABLE | LARGE | NO_EXECUTE;
        // SAFETY: (1) the root is not active yet, and the direct map is the kernel's alone.
        unsafe { table.set(paging::index(addr, LARGE_LEAF), entry) };
        phys += LARGE_PAGE;
    }
}

/// Maps a part of the image with its rights, but for the guard page below the stack.
fn map_image(root: Table, part: Range<u64>, rights: u64) {
    for addr in part.step_by(PAGE as usize) {
        if addr == boot::guard_page() {
            continue;
        }
        let table = table_for(root, addr, LEAF);
        let entry = (addr - KERNEL_BASE) | PRESENT | rights;
        // SAFETY: (1) the root is not active yet, and the page is where the loader put it, with
        // the rights the linker's section asks for.
        unsafe { table.set(paging::index(addr, LEAF), entry) };
    }
}

fn table_for(root: Table, addr: u64, level: u32) -> Table {
    match root.descend(addr, level, || Some(frames::table())) {
        Some(table) => table,
        None => unreachable!("frames::table always gives one"),
    }
}
