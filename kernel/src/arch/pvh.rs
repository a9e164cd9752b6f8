//! The start info a PVH loader leaves: memory map, command line, initial RAM disk, where ACPI's
//! tables are.
//!
//! Layout: Xen's public/arch-x86/hvm/start_info.h, version 1.

use core::ops::Range;
use core::{ptr, slice, str};

use super::paging;

/// The first word of every start info.
const MAGIC: u32 = 0x336e_c578;
/// The type of a range that is plain RAM.
const RAM: u32 = 1;
/// The most ranges of RAM the kernel looks at.
const RANGES: usize = 16;
/// The longest command line the kernel keeps, the zero at its end included: as long as Linux's.
/// Linux: arch/x86/include/asm/setup.h `COMMAND_LINE_SIZE`.
const COMMAND_LINE: usize = 2048;

#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    nr_modules: u32,
    modlist: u64,
    cmdline: u64,
    rsdp: u64,
    memmap: u64,
    memmap_entries: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct MemmapEntry {
    addr: u64,
    size: u64,
    kind: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Module {
    addr: u64,
    size: u64,
    cmdline: u64,
    reserved: u64,
}

/// What the loader told, copied out of its memory.
#[derive(Clone, Debug)]
pub(crate) struct BootInfo {
    ram: [Range<u64>; RANGES],
    ranges: usize,
    rsdp: u64,
    initrd: Range<u64>,
    command_line: [u8; COMMAND_LINE],
    command_line_len: usize,
}

impl BootInfo {
    /// Copies what the kernel needs from the start info at physical address `at`.
    ///
    /// # Safety
    /// 1. `at` is what a PVH loader passed to the entry, nothing has overwritten the loader's
    ///    structures since, and they lie within the memory that the first tables map.
    pub(crate) unsafe fn read(at: u64) -> Self {
        // SAFETY: (1) the caller's promise.
        let info: StartInfo = unsafe { read_phys(at) };
        assert_eq!(info.magic, MAGIC, "no PVH start info");
        assert!(
            info.version >= 1,
            "the PVH start info is too old to hold a memory map"
        );

        let mut boot = Self {
            ram: [const { 0..0 }; RANGES],
            ranges: 0,
            rsdp: info.rsdp,
            initrd: 0..0,
            command_line: [0; COMMAND_LINE],
            command_line_len: 0,
        };
        for index in 0..u64::from(info.memmap_entries) {
            let entry = info.memmap + index * size_of::<MemmapEntry>() as u64;
            // SAFETY: (1) the caller's promise covers the memory map's entries.
            boot.note_range(unsafe { read_phys(entry) });
        }
        if info.nr_modules > 0 {
            // SAFETY: (1) the caller's promise covers the list of modules.
            let module: Module = unsafe { read_phys(info.modlist) };
            boot.initrd = module.addr..module.addr.saturating_add(module.size);
        }
        if info.cmdline != 0 {
            // SAFETY: (1) the caller's promise covers the command line.
            unsafe { boot.note_command_line(info.cmdline) };
        }
        boot
    }

    /// The ranges of RAM, in bytes, as told.
    pub(crate) fn ram(&self) -> &[Range<u64>] {
        &self.ram[..self.ranges]
    }

    /// The physical address of ACPI's root pointer; 0 for none.
    pub(crate) const fn rsdp(&self) -> u64 {
        self.rsdp
    }

    /// Where the initial RAM disk is, the first of the modules; empty if there is none.
    pub(crate) fn initrd(&self) -> Range<u64> {
        self.initrd.clone()
    }

    /// The bytes of the initial RAM disk; none if it is not within the RAM of the memory map.
    ///
    /// # Safety
    /// 1. The direct map holds all RAM, and nobody writes to the RAM disk, ever.
    pub(crate) unsafe fn initrd_bytes(&self) -> &'static [u8] {
        let Range { start, end } = self.initrd;
        let within = |ram: &Range<u64>| ram.start <= start && end <= ram.end;
        if start >= end || !self.ram().iter().any(within) {
            return &[];
        }
        // SAFETY: (1) within mapped RAM; (2) the caller's promise: nobody writes there.
        unsafe { slice::from_raw_parts(paging::direct(start), (end - start) as usize) }
    }

    /// The command line, empty if there is none; `None` if it is too long or not UTF-8.
    pub(crate) fn command_line(&self) -> Option<&str> {
        let text = self.command_line.get(..self.command_line_len)?;
        str::from_utf8(text).ok()
    }

    fn note_range(&mut self, entry: MemmapEntry) {
        if entry.kind == RAM && self.ranges < RANGES {
            self.ram[self.ranges] = entry.addr..entry.addr.saturating_add(entry.size);
            self.ranges += 1;
        }
    }

    /// Keeps the zero-terminated string at physical address `at`; notes if it is too long.
    ///
    /// # Safety
    /// 1. As for [`BootInfo::read`].
    unsafe fn note_command_line(&mut self, at: u64) {
        // SAFETY: (1) the caller's promise; bytes past the string's end are RAM and may hold
        // anything, and every byte is a valid `u8`.
        let text = unsafe { slice::from_raw_parts(paging::direct(at), COMMAND_LINE) };
        self.command_line.copy_from_slice(text);
        let end = text.iter().position(|&byte| byte == 0);
        // One more than there is room for, where the end is not seen.
        self.command_line_len = end.unwrap_or(COMMAND_LINE + 1);
    }
}

/// Reads a value from physical memory.
///
/// # Safety
/// 1. `at` is within mapped RAM that holds a valid `T`.
unsafe fn read_phys<T: Copy>(at: u64) -> T {
    // SAFETY: (1) the caller's promise; (2) an unaligned read asks for no alignment.
    unsafe { ptr::read_unaligned(paging::direct(at).cast()) }
}
