//! A stand-in for `minflt-mm` until the kernel has a `Machine`: just enough memory management to
//! prove the way into ring 3 and back. One address space, no sharing, no reuse beyond a free list.

use core::ops::Range;

use x86_64::VirtAddr;
use x86_64::instructions::tlb;

use crate::arch::kernel_map;
use crate::arch::paging::{
    self, ADDRESS, LEAF, NO_EXECUTE, PAGE, PRESENT, Table, USER, USER_END, WRITABLE,
};
use crate::arch::serial::say;
use crate::fault::{Access, Signal};
use crate::frames;
use crate::linux::{Errno, Prot};
use crate::one_cpu::OneCpu;

/// The most ranges a program may have.
const REGIONS: usize = 32;
/// Mappings without a fixed address are placed downwards from here.
const PLACE_BELOW: u64 = 0x7f00_0000_0000;

static STATE: OneCpu<State> = OneCpu::new(State {
    free: None,
    in_use: 0,
    faults: 0,
    signals: 0,
    space: None,
});

struct State {
    /// The first free frame; each holds the address of the next, or zero.
    free: Option<u64>,
    in_use: u64,
    faults: u64,
    signals: u64,
    space: Option<Space>,
}

struct Space {
    root: Table,
    regions: [Option<Region>; REGIONS],
    place_below: u64,
}

#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    prot: Prot,
}

/// Makes an empty address space and activates it.
pub(crate) fn enter() -> Result<(), Errno> {
    STATE.with(|state| {
        let root = state.table().ok_or(Errno::ENOMEM)?;
        root.share_kernel_half(kernel_map::root());
        // SAFETY: (1) the kernel's half is shared, the lower half empty.
        unsafe { root.activate() };
        state.space = Some(Space {
            root,
            regions: [None; REGIONS],
            place_below: PLACE_BELOW,
        });
        Ok(())
    })
}

/// Leaves and frees the address space; returns the frames that are in use afterwards.
pub(crate) fn leave() -> u64 {
    STATE.with(|state| {
        // SAFETY: (1) the kernel's own root.
        unsafe { kernel_map::root().activate() };
        if let Some(space) = state.space.take() {
            state.free_tables(space.root, 4);
        }
        state.in_use
    })
}

/// Maps `len` bytes at an address, or anywhere.
pub(crate) fn map(at: Option<u64>, len: u64, prot: Prot) -> Result<u64, Errno> {
    if len == 0 || at.is_some_and(|at| at % PAGE != 0) {
        return Err(Errno::EINVAL);
    }
    let len = len.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
    STATE.with(|state| {
        let space = state.space.as_mut().ok_or(Errno::ENOMEM)?;
        let start = match at {
            Some(at) => at,
            None => space.place_below.checked_sub(len).ok_or(Errno::ENOMEM)?,
        };
        let end = start
            .checked_add(len)
            .filter(|end| *end <= USER_END)
            .ok_or(Errno::ENOMEM)?;
        if space
            .regions
            .iter()
            .flatten()
            .any(|region| region.start < end && start < region.end)
        {
            return Err(Errno::EINVAL);
        }
        space.add(Region { start, end, prot })?;
        if at.is_none() {
            // One page stays free between mappings.
            space.place_below = start - PAGE;
        }
        Ok(start)
    })
}

/// Unmaps a range.
pub(crate) fn unmap(start: u64, len: u64) -> Result<(), Errno> {
    let range = checked(start, len)?;
    STATE.with(|state| {
        let space = state.space.as_mut().ok_or(Errno::ENOMEM)?;
        space.cut(range.start)?;
        space.cut(range.end)?;
        for slot in &mut space.regions {
            slot.take_if(|region| range.start <= region.start && region.end <= range.end);
        }
        state.zap(range);
        Ok(())
    })
}

/// Changes what a range allows.
pub(crate) fn protect(start: u64, len: u64, prot: Prot) -> Result<(), Errno> {
    let range = checked(start, len)?;
    STATE.with(|state| {
        let space = state.space.as_mut().ok_or(Errno::ENOMEM)?;
        space.cut(range.start)?;
        space.cut(range.end)?;
        let mut at = range.start;
        while at < range.end {
            let region = space.find(at).ok_or(Errno::ENOMEM)?;
            region.prot = prot;
            let Region { end, .. } = *region;
            space.set_rights(at..end, prot);
            at = end;
        }
        Ok(())
    })
}

/// Discards the contents of a range.
pub(crate) fn discard(start: u64, len: u64) -> Result<(), Errno> {
    let range = checked(start, len)?;
    STATE.with(|state| state.zap(range));
    Ok(())
}

/// Resolves a fault.
pub(crate) fn fault(addr: u64, access: Access) -> Result<(), Signal> {
    STATE.with(|state| {
        state.faults += 1;
        let result = state.fault(addr, access);
        state.signals += u64::from(result.is_err());
        result
    })
}

/// Prints what was counted.
pub(crate) fn print_counters() {
    STATE.with(|state| {
        say!("page-faults {}", state.faults);
        say!("faults-signalled {}", state.signals);
    });
}

fn checked(start: u64, len: u64) -> Result<Range<u64>, Errno> {
    let len = len.checked_next_multiple_of(PAGE).ok_or(Errno::EINVAL)?;
    match start.checked_add(len) {
        Some(end) if start.is_multiple_of(PAGE) && len > 0 && end <= USER_END => Ok(start..end),
        _ => Err(Errno::EINVAL),
    }
}

/// The entry bits for a mapping; an entry without rights keeps its frame.
fn rights(prot: Prot) -> u64 {
    if prot.is_none() {
        return 0;
    }
    let write = if prot.allows(Prot::WRITE) {
        WRITABLE
    } else {
        0
    };
    let execute = if prot.allows(Prot::EXEC) {
        0
    } else {
        NO_EXECUTE
    };
    PRESENT | USER | write | execute
}

impl Space {
    fn add(&mut self, region: Region) -> Result<(), Errno> {
        let slot = self
            .regions
            .iter_mut()
            .find(|slot| slot.is_none())
            .ok_or(Errno::ENOMEM)?;
        *slot = Some(region);
        Ok(())
    }

    fn find(&mut self, addr: u64) -> Option<&mut Region> {
        self.regions
            .iter_mut()
            .flatten()
            .find(|region| region.start <= addr && addr < region.end)
    }

    /// Splits the region around `addr`, if there is one.
    fn cut(&mut self, addr: u64) -> Result<(), Errno> {
        let Some(region) = self.find(addr).filter(|region| region.start < addr) else {
            return Ok(());
        };
        let upper = Region {
            start: addr,
            ..*region
        };
        region.end = addr;
        self.add(upper)
    }

    fn set_rights(&mut self, range: Range<u64>, prot: Prot) {
        for addr in range.step_by(PAGE as usize) {
            let Some(table) = self.root.descend(addr, LEAF, || None) else {
                continue;
            };
            let index = paging::index(addr, LEAF);
            let frame = table.entry(index) & ADDRESS;
            if frame != 0 {
                // SAFETY: (1) a frame of this program, with the rights of its region; flushed here.
                unsafe { table.set(index, frame | rights(prot)) };
                tlb::flush(VirtAddr::new(addr));
            }
        }
    }
}

impl State {
    fn fault(&mut self, addr: u64, access: Access) -> Result<(), Signal> {
        let space = self.space.as_mut().ok_or(Signal::MapError)?;
        let root = space.root;
        let prot = space.find(addr).ok_or(Signal::MapError)?.prot;
        let wanted = match access {
            Access::Read => Prot::READ,
            Access::Write => Prot::WRITE,
            Access::Execute => Prot::EXEC,
        };
        if !prot.allows(wanted) {
            return Err(Signal::AccessError);
        }
        let table = root
            .descend(addr, LEAF, || self.table())
            .ok_or(Signal::OutOfMemory)?;
        let frame = self.take().ok_or(Signal::OutOfMemory)?;
        // SAFETY: (1) nothing was mapped here (entries with a frame have their region's rights), and
        // the frame is fresh.
        unsafe { table.set(paging::index(addr, LEAF), frame | rights(prot)) };
        Ok(())
    }

    fn zap(&mut self, range: Range<u64>) {
        let Some(root) = self.space.as_ref().map(|space| space.root) else {
            return;
        };
        for addr in range.step_by(PAGE as usize) {
            let Some(table) = root.descend(addr, LEAF, || None) else {
                continue;
            };
            let index = paging::index(addr, LEAF);
            let frame = table.entry(index) & ADDRESS;
            if frame != 0 {
                // SAFETY: (1) the entry goes, its translation with it, and only then the frame.
                unsafe { table.set(index, 0) };
                tlb::flush(VirtAddr::new(addr));
                self.give(frame);
            }
        }
    }

    /// Frees a table that is no longer active and all below it: of a root, the lower half.
    fn free_tables(&mut self, table: Table, level: u32) {
        for index in 0..if level == 4 { 256 } else { 512 } {
            if level > LEAF {
                if let Some(child) = table.child(index) {
                    self.free_tables(child, level - 1);
                }
            } else if table.entry(index) != 0 {
                self.give(table.entry(index) & ADDRESS);
            }
        }
        self.give(table.phys());
    }

    fn table(&mut self) -> Option<Table> {
        // SAFETY: (1) fresh, zeroed, and reached through the table only.
        self.take().map(|phys| unsafe { Table::new(phys) })
    }

    fn take(&mut self) -> Option<u64> {
        let phys = match self.free {
            None => frames::take()?,
            Some(phys) => {
                let link = paging::direct(phys).cast::<u64>();
                // SAFETY: (1) a free frame's first word was written by `give`.
                let next = unsafe { link.read() };
                self.free = (next != 0).then_some(next);
                // SAFETY: (1) the frame is free, so nobody else reaches it.
                unsafe { paging::direct(phys).write_bytes(0, PAGE as usize) };
                phys
            }
        };
        self.in_use += 1;
        Some(phys)
    }

    fn give(&mut self, phys: u64) {
        let link = paging::direct(phys).cast::<u64>();
        // SAFETY: (1) the frame was taken, and its owner gave up every way to reach it.
        unsafe { link.write(self.free.unwrap_or(0)) };
        self.free = Some(phys);
        self.in_use -= 1;
    }
}
