//! The frames of RAM before there is an allocator: the boot CPU takes them in order, of the range
//! that holds the image, and never gives one back.

use core::mem;
use core::ops::Range;
use core::slice;

use minflt_mm::Gfp;

use crate::arch::boot;
use crate::arch::paging::{self, PAGE, Table};
use crate::boot_cpu::BootCpu;

/// The first tables map this much; what is taken before they are replaced must lie below.
const FIRST_MAPPED: u64 = 1 << 30;

/// The most ranges of RAM that are kept.
const RANGES: usize = 16;

/// Ranges of RAM: whole frames, ascending, apart from each other.
#[derive(Clone, Debug)]
pub(crate) struct Ranges {
    ranges: [Range<u64>; RANGES],
    len: usize,
}

/// The frames not yet taken, of the range of RAM that holds the image.
static REST: BootCpu<Range<u64>> = BootCpu::new(0..0);
/// The ranges of RAM above that.
static ABOVE: BootCpu<Ranges> = BootCpu::new(Ranges::NONE);

impl Ranges {
    const NONE: Self = Self {
        ranges: [const { 0..0 }; RANGES],
        len: 0,
    };

    /// One range.
    pub(crate) const fn one(range: Range<u64>) -> Self {
        let mut ranges = Self::NONE.ranges;
        ranges[0] = range;
        Self { ranges, len: 1 }
    }

    /// Adds the frames of a range that is not below the others, if there is room for it.
    fn add(&mut self, range: &Range<u64>) {
        let (start, end) = (range.start.next_multiple_of(PAGE), range.end / PAGE * PAGE);
        match self.ranges[..self.len].last_mut() {
            _ if start >= end => {}
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ if self.len == RANGES => {}
            _ => {
                self.ranges[self.len] = start..end;
                self.len += 1;
            }
        }
    }

    /// The ranges.
    pub(crate) fn as_slice(&self) -> &[Range<u64>] {
        &self.ranges[..self.len]
    }

    /// From the first byte to the last, with what lies between the ranges.
    pub(crate) fn span(&self) -> Range<u64> {
        match self.as_slice() {
            [] => 0..0,
            [first, .., last] => first.start..last.end,
            [only] => only.clone(),
        }
    }

    /// Bytes in them.
    pub(crate) fn bytes(&self) -> u64 {
        self.as_slice().iter().map(|it| it.end - it.start).sum()
    }
}

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
    // A memory map need not be sorted.
    let mut above = Ranges::NONE;
    let mut done = range.end;
    while let Some(next) = (ram.iter().filter(|it| it.start >= done)).min_by_key(|it| it.start) {
        above.add(&beside(next, initrd));
        done = next.end.max(next.start + 1);
    }
    ABOVE.with(|slot| *slot = above);
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

/// Takes all RAM that is left, from a multiple of `align` behind the image on, zeroed: from now on
/// [`take`] finds nothing. The direct map must cover it.
pub(crate) fn take_all(align: u64) -> Ranges {
    let rest = REST.with(|rest| {
        let start = rest.start.next_multiple_of(align).min(rest.end);
        start..mem::replace(rest, 0..0).end
    });
    let mut all = Ranges::one(rest);
    ABOVE.with(|above| above.as_slice().iter().for_each(|range| all.add(range)));
    for range in all.as_slice() {
        // SAFETY: (1) the frames are RAM in the direct map and were never given to anyone.
        range
            .clone()
            .step_by(PAGE as usize)
            .for_each(|phys| unsafe { zero(phys) });
    }
    all
}

/// Fills a frame with zeros, unless it is: what a hypervisor has not had to find memory for yet
/// stays so.
///
/// # Safety
/// 1. The frame is RAM in the direct map, and nobody's.
unsafe fn zero(phys: u64) {
    let words = PAGE as usize / size_of::<u64>();
    // SAFETY: (1) the caller's promise; any bytes are words.
    let frame = unsafe { slice::from_raw_parts_mut(paging::direct(phys).cast::<u64>(), words) };
    if frame.iter().any(|word| *word != 0) {
        frame.fill(0);
    }
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
