//! The start info a PVH loader leaves: memory map, command line, where ACPI's tables are.
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
/// The longest command line the kernel keeps.
const COMMAND_LINE: usize = 256;

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

/// What the loader told, copied out of its memory.
#[derive(Clone, Debug)]
pub(crate) struct BootInfo {
    ram: [Range<u64>; RANGES],
    ranges: usize,
    rsdp: u64,
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
            command_line: [0; COMMAND_LINE],
            command_line_len: 0,
        };
        for index in 0..u64::from(info.memmap_entries) {
            let entry = info.memmap + index * size_of::<MemmapEntry>() as u64;
            // SAFETY: (1) the caller's promise covers the memory map's entries.
            boot.note_range(unsafe { read_phys(entry) });
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

    /// The command line; empty if there is none or it is not UTF-8.
    pub(crate) fn command_line(&self) -> &str {
        str::from_utf8(&self.command_line[..self.command_line_len]).unwrap_or("")
    }

    fn note_range(&mut self, entry: MemmapEntry) {
        if entry.kind == RAM && self.ranges < RANGES {
            self.ram[self.ranges] = entry.addr..entry.addr.saturating_add(entry.size);
            self.ranges += 1;
        }
    }

    /// Keeps the zero-terminated string at physical address `at`, cut at the longest length.
    ///
    /// # Safety
    /// 1. As for [`BootInfo::read`].
    unsafe fn note_command_line(&mut self, at: u64) {
        // SAFETY: (1) the caller's promise; bytes past the string's end are RAM and may hold
        // anything, and every byte is a valid `u8`.
        let text = unsafe { slice::from_raw_parts(paging::direct(at), COMMAND_LINE) };
        let len = text
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(COMMAND_LINE);
        self.command_line[..len].copy_from_slice(&text[..len]);
        self.command_line_len = len;
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
