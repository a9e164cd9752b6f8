//! The frames of RAM before there is an allocator: taken in order, never given back.

use core::ops::Range;

use crate::arch::boot;
use crate::arch::paging::{self, PAGE, Table};
use crate::one_cpu::OneCpu;

/// The first tables map this much; what is taken before they are replaced must lie below.
const FIRST_MAPPED: u64 = 1 << 30;

/// The frames not yet taken, of the range of RAM that holds the image.
static REST: OneCpu<Range<u64>> = OneCpu::new(0..0);

/// Finds the RAM behind the image.
pub(crate) fn init(ram: &[Range<u64>]) {
    let image = boot::image_phys();
    let Some(range) = ram.iter().find(|range| range.contains(&image.start)) else {
        panic!("the memory map has no RAM where the image is");
    };
    let rest = image.end.next_multiple_of(PAGE)..range.end / PAGE * PAGE;
    REST.with(|slot| *slot = rest);
}

/// The number of frames not yet taken.
pub(crate) fn left() -> u64 {
    REST.with(|rest| rest.end.saturating_sub(rest.start) / PAGE)
}

/// Takes a zeroed frame, or `None` when there are no more.
pub(crate) fn take() -> Option<u64> {
    let phys = REST.with(|rest| {
        let phys = rest.start;
        (phys < rest.end).then(|| {
            rest.start += PAGE;
            phys
        })
    })?;
    // SAFETY: (1) the frame is RAM in the direct map and was never given to anyone.
    unsafe { paging::direct(phys).write_bytes(0, PAGE as usize) };
    Some(phys)
}

/// Takes a frame for a table of the kernel's own map.
pub(crate) fn table() -> Table {
    match take() {
        // SAFETY: (1) fresh, zeroed, and reached through the table only.
        Some(phys) if phys < FIRST_MAPPED => unsafe { Table::new(phys) },
        _ => panic!("no memory for the kernel's own page tables"),
    }
}
