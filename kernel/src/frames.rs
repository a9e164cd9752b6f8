//! The frames of RAM before there is an allocator: the boot CPU takes them in order, and never
//! gives one back.

use core::mem;
use core::ops::Range;

use minflt_mm::Gfp;

use crate::arch::boot;
use crate::arch::paging::{self, PAGE, Table};
use crate::boot_cpu::BootCpu;

/// The first tables map this much; what is taken before they are replaced must lie below.
const FIRST_MAPPED: u64 = 1 << 30;

/// The frames not yet taken, of the range of RAM that holds the image.
static REST: BootCpu<Range<u64>> = BootCpu::new(0..0);

/// Finds the RAM behind the image. Of what is before and behind the initial RAM disk, if that lies
/// there, only the larger part is used.
pub(crate) fn init(ram: &[Range<u64>], initrd: &Range<u64>) {
    let image = boot::image_phys();
    let Some(range) = ram.iter().find(|range| range.contains(&image.start)) else {
        panic!("the memory map has no RAM where the image is");
    };
    let rest = beside(&(image.end..range.end), initrd);
    let rest = rest.start.next_multiple_of(PAGE)..rest.end / PAGE * PAGE;
    REST.with(|slot| *slot = rest);
}

/// The larger part of `range` that is not in `taken`.
fn beside(range: &Range<u64>, taken: &Range<u64>) -> Range<u64> {
    if taken.is_empty() || taken.start >= range.end || taken.end <= range.start {
        return range.clone();
    }
    let before = range.start..taken.start.max(range.start);
    let behind = taken.end.min(range.end)..range.end;
    if before.end - before.start >= behind.end - behind.start {
        before
    } else {
        behind
    }
}

/// Takes all that is left, from a multiple of `align` on, zeroed: from now on [`take`] finds
/// nothing. The direct map must cover it.
pub(crate) fn take_all(align: u64) -> Range<u64> {
    let rest = REST.with(|rest| {
        let start = rest.start.next_multiple_of(align).min(rest.end);
        start..mem::replace(rest, 0..0).end
    });
    let len = (rest.end - rest.start) as usize;
    // SAFETY: (1) the frames are RAM in the direct map and were never given to anyone.
    unsafe { paging::direct(rest.start).write_bytes(0, len) };
    rest
}

/// Takes a zeroed frame, or `None` when there are no more.
pub(crate) fn take() -> Option<u64> {
    take_run(1)
}

/// Takes `count` zeroed frames one behind the other, or `None` when there are not so many.
pub(crate) fn take_run(count: u64) -> Option<u64> {
    let phys = REST.with(|rest| {
        let phys = rest.start;
        let end = phys + count * PAGE;
        (end <= rest.end).then(|| {
            rest.start = end;
            phys
        })
    })?;
    // SAFETY: (1) the frames are RAM in the direct map and were never given to anyone.
    unsafe { paging::direct(phys).write_bytes(0, (count * PAGE) as usize) };
    Some(phys)
}

/// Takes a frame, from `minflt-mm` once it has them all; what is in it is undefined. `None` when
/// memory is short. Sleeps.
pub(crate) fn take_one() -> Option<u64> {
    match crate::system() {
        Some(sys) => {
            let pages = sys.alloc_pages(0, Gfp::Kernel).ok()?;
            Some(pages.into_raw().0 * PAGE)
        }
        None => take(),
    }
}

/// Takes a frame for a table of the kernel's own map.
pub(crate) fn table() -> Table {
    match take() {
        // SAFETY: (1), (2) fresh, zeroed, and reached through the table only.
        Some(phys) if phys < FIRST_MAPPED => unsafe { Table::new(phys) },
        _ => panic!("no memory for the kernel's own page tables"),
    }
}
