//! The kernel's half of every address space: the direct map and the image, each with its rights.

use core::ops::Range;

use super::boot::{self, KERNEL_BASE};
use super::paging::{
    self, LARGE, LARGE_LEAF, LARGE_PAGE, LEAF, NO_EXECUTE, PAGE, PRESENT, Table, WRITABLE,
};
use crate::frames;
use crate::shared::Once;

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
    // SAFETY: (1) the root maps the direct map and the image, and the lower half is empty.
    unsafe { root.activate() };
    ROOT.set(root);
}

/// The root whose lower half is empty.
pub(crate) fn root() -> Table {
    match ROOT.get() {
        Some(root) => *root,
        None => panic!("the kernel's map is not built yet"),
    }
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
