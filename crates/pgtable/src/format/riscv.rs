//! RISC-V, three and four levels.
//!
//! The RISC-V Instruction Set Manual, volume II, "Sv39" and "Sv48": bit 0 valid, 1 to 3 read, write
//! and execute, 4 user, 5 global, 6 accessed, 7 dirty, 8 and 9 software's, the frame number from
//! bit 10 to 53. An entry that is valid and has none of bits 1 to 3 points to a table, and its
//! user, accessed and dirty bits must be clear. Where bit 0 is clear all else is software's;
//! "global" marks `PROT_NONE` there, as in Linux.
//!
//! An entry with "execute" and without "read" is *execute-only*; one with "write" and without
//! "read" is reserved. That holds with `sstatus.MXR` clear ("make executable readable"). Linux:
//! arch/riscv/include/asm/pgtable.h, `PAGE_EXEC`.
//!
//! A CPU either sets accessed and dirty itself (`Svadu`) or faults where they are missing
//! (`Svade`). User space is the lower half: the upper one has the sign bit set.

use crate::paging::{
    AccessBits, BeforeInstall, Bits, ByteOrder, Caps, CasAbility, Facts, Feature, Huge, Level,
};

const UPPER: Level = Level {
    bits: 9,
    none: 0,
    fixed: 1,
};
const LEAVES: Level = Level {
    bits: 9,
    none: 0,
    fixed: 1 << 4,
};
const BITS: Bits = Bits {
    present: 1,
    load: 1 << 1,
    write: 1 << 2,
    accessed: 1 << 6,
    dirty: 1 << 7,
    no_access: 1 << 5,
    zero_page: 1 << 8,
    uffd_wp: 1 << 9,
    invalid: 0,
    read_only: 0,
    exec: 1 << 3,
    no_exec: 0,
    pfn_mask: 0x003f_ffff_ffff_fc00,
    pfn_shift: 10,
};
/// An entry that grants anything is a leaf, at whatever level.
const HUGE: Option<Huge> = Some(Huge {
    top: 2,
    set: 0,
    clear: 0,
    mask: 0b1111,
    table: 0b0001,
});
const CAPS: Caps = Caps {
    cas: CasAbility::Native,
    access_bits: AccessBits::ByCpu(Feature::Svadu),
    before_install: BeforeInstall::Nothing,
};

/// RISC-V with three levels and 4 KiB pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RiscvSv39;

impl Facts for RiscvSv39 {
    type Word = u64;
    const ID: &'static str = "riscv-sv39";
    const NAME: &'static str = "RISC-V Sv39, 3 levels, 4 KiB";
    const MANUAL: &'static str = "RISC-V ISA Manual vol. II, Sv39";
    const SHIFT: u32 = 12;
    const TREE: &'static [Level] = &[LEAVES, UPPER, UPPER];
    const USER_END: u64 = 1 << 38;
    const BITS: Bits = BITS;
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = CAPS;
    const HUGE: Option<Huge> = HUGE;
}

/// RISC-V with four levels and 4 KiB pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RiscvSv48;

impl Facts for RiscvSv48 {
    type Word = u64;
    const ID: &'static str = "riscv-sv48";
    const NAME: &'static str = "RISC-V Sv48, 4 levels, 4 KiB";
    const MANUAL: &'static str = "RISC-V ISA Manual vol. II, Sv48";
    const SHIFT: u32 = 12;
    const TREE: &'static [Level] = &[LEAVES, UPPER, UPPER, UPPER];
    const USER_END: u64 = 1 << 47;
    const BITS: Bits = BITS;
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = CAPS;
    const HUGE: Option<Huge> = HUGE;
}
