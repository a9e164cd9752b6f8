//! Four-level page tables, as far as the kernel's own mappings need them.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::ptr;

use x86_64::registers::control::{Cr3, Cr4, Cr4Flags};

/// Bytes in a page.
pub(crate) const PAGE: u64 = 4096;
/// Bytes in a page mapped one level up.
pub(crate) const LARGE_PAGE: u64 = 2 << 20;
/// The end of what programs may map: the lower half without its last page, as in Linux.
pub(crate) const USER_END: u64 = (1 << 47) - PAGE;
/// Where physical address zero is mapped.
const DIRECT_MAP: u64 = 0xffff_8000_0000_0000;

/// Entry bit: the entry maps something.
pub(crate) const PRESENT: u64 = 1 << 0;
/// Entry bit: stores are allowed.
pub(crate) const WRITABLE: u64 = 1 << 1;
/// Entry bit: ring 3 may use it.
pub(crate) const USER: u64 = 1 << 2;
/// Entry bits: accesses go to the device, past the caches.
pub(crate) const UNCACHED: u64 = 1 << 3 | 1 << 4;
/// Entry bit of an upper level: the entry maps a large page.
pub(crate) const LARGE: u64 = 1 << 7;
/// Entry bit: instructions are not fetched from it.
pub(crate) const NO_EXECUTE: u64 = 1 << 63;
/// The address within an entry.
pub(crate) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// The first entry of a root that belongs to the kernel.
const KERNEL_HALF: u64 = 256;
/// Entries in a table.
const ENTRIES: u64 = 512;

/// The level of entries that map pages of [`PAGE`] bytes.
pub(crate) const LEAF: u32 = 1;
/// The level of entries that may map pages of [`LARGE_PAGE`] bytes.
pub(crate) const LARGE_LEAF: u32 = 2;
/// The level of a root's entries.
const TOP: u32 = 4;

/// The address in the direct map of a physical address. Using it is what needs care.
pub(crate) fn direct(phys: u64) -> *mut u8 {
    ptr::with_exposed_provenance_mut((DIRECT_MAP + phys) as usize)
}

/// What becomes of translations under a process-context identifier when a root is loaded with it.
/// Without identifiers all are flushed, and the number is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pcid {
    /// They are kept.
    Keep(u16),
    /// They are flushed.
    Flush(u16),
}

/// The bit of a value for CR3 that keeps them.
const KEEP: u64 = 1 << 63;
/// CPUID leaf 1, ECX: there are identifiers.
const HAS_PCIDS: u32 = 1 << 17;

/// Whether the calling CPU has process-context identifiers.
pub(crate) fn has_pcids() -> bool {
    __cpuid(1).ecx & HAS_PCIDS != 0
}

/// Turns them on.
///
/// # Safety
/// 1. The CPU has them, and CR3 holds a root without any bits.
pub(crate) unsafe fn enable_pcids() {
    // SAFETY: (1) of this function.
    unsafe { Cr4::update(|flags| flags.insert(Cr4Flags::PCID)) };
}

/// Flushes the translations of the loaded root, under its identifier.
pub(crate) fn flush_current() {
    let (root, bits) = Cr3::read_raw();
    // SAFETY: (1) what is loaded; the bit that keeps translations is never read.
    unsafe { Cr3::write_raw(root, bits) };
}

/// A page of page-table entries.
///
/// # Invariants
/// The frame is RAM in the direct map and holds a page table; whoever else has it changes other
/// entries than those that are set through this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table(u64);

impl Table {
    /// The table in a frame.
    ///
    /// # Safety
    /// 1. The frame is RAM in the direct map that holds a page table or zeroes, and stays one.
    /// 2. Nobody else changes the entries that are set through the `Table`.
    pub(crate) const unsafe fn new(phys: u64) -> Self {
        // INVARIANT: the caller's promises.
        Self(phys)
    }

    /// Its physical address.
    pub(crate) const fn phys(self) -> u64 {
        self.0
    }

    /// The entry at `index`.
    pub(crate) fn entry(self, index: u64) -> u64 {
        // SAFETY: (1) by the type invariant the slot is in a mapped table; volatile, since the CPU
        // reads and marks entries too.
        unsafe { self.slot(index).read_volatile() }
    }

    /// Stores the entry at `index`.
    ///
    /// # Safety
    /// 1. What the entry maps, with the rights it gives, breaks nothing that is in use, and no
    ///    translation of an older entry is relied on before it is flushed.
    pub(crate) unsafe fn set(self, index: u64, entry: u64) {
        // SAFETY: (1) by the type invariant the slot is in a mapped table.
        unsafe { self.slot(index).write_volatile(entry) };
    }

    /// The table the entry at `index` points to, if it does.
    pub(crate) fn child(self, index: u64) -> Option<Self> {
        let entry = self.entry(index);
        let points = entry & PRESENT != 0 && entry & LARGE == 0;
        // INVARIANT: an upper entry that maps no large page points to a table.
        points.then_some(Self(entry & ADDRESS))
    }

    /// Descends from a root to the table whose entries of `level` cover `addr`, adding tables
    /// from `frames` (zeroed ones) where they are missing.
    pub(crate) fn descend(
        self,
        addr: u64,
        level: u32,
        mut frames: impl FnMut() -> Option<Self>,
    ) -> Option<Self> {
        let rights = if addr < USER_END {
            PRESENT | WRITABLE | USER
        } else {
            PRESENT | WRITABLE
        };
        let mut table = self;
        for upper in (level + 1..=TOP).rev() {
            let index = index(addr, upper);
            table = match table.child(index) {
                Some(child) => child,
                None => {
                    let child = frames()?;
                    // SAFETY: (1) nothing was mapped here, and an empty table maps nothing.
                    unsafe { table.set(index, child.0 | rights) };
                    child
                }
            };
        }
        Some(table)
    }

    /// Takes over the kernel's half of another root.
    pub(crate) fn share_kernel_half(self, other: Self) {
        // The last one is the image's, and is copied last: processors show stores in order.
        if self.entry(ENTRIES - 1) == other.entry(ENTRIES - 1) {
            return;
        }
        for index in KERNEL_HALF..ENTRIES {
            // SAFETY: (1) the kernel's mappings, which all roots have and which never change: what
            // is stored is what is there already where another CPU uses the root.
            unsafe { self.set(index, other.entry(index)) };
        }
    }

    /// Makes this root the active one.
    ///
    /// # Safety
    /// 1. The root maps the kernel's half, and the lower half maps only what ring 3 may reach.
    /// 2. An identifier that is not 0 is for CPUs where they are enabled; what one has that is kept
    ///    is what this root maps.
    pub(crate) unsafe fn activate(self, pcid: Pcid) {
        let (number, keep) = match pcid {
            Pcid::Keep(number) => (number, KEEP),
            Pcid::Flush(number) => (number, 0),
        };
        let cr3 = self.0 | u64::from(number) | keep;
        // SAFETY: (1), (2) the caller's promises.
        unsafe { asm!("mov cr3, {}", in(reg) cr3, options(nostack, preserves_flags)) };
    }

    fn slot(self, index: u64) -> *mut u64 {
        assert!(index < ENTRIES, "entry {index} of a page table");
        direct(self.0 + index * 8).cast()
    }
}

/// The index of the entry for `addr` in a table of `level`.
pub(crate) const fn index(addr: u64, level: u32) -> u64 {
    addr >> (12 + 9 * (level - 1)) & (ENTRIES - 1)
}
