//! AArch64, with each of its three page sizes.
//!
//! Arm Architecture Reference Manual for A-profile (DDI 0487), chapter D8, "The AArch64 Virtual
//! Memory System Architecture". A page descriptor has bits 0 and 1 set; AP[1], bit 6, lets user
//! mode load; AP[2], bit 7, is *read only*; bits 8 and 9 are the shareability (3 is inner); bit 10
//! is the access flag, 11 "not global", 53 and 54 "execute never"; bit 51 is the dirty bit
//! modifier; software has 55 to 58, and all but bit 0 where that is clear. The frame's address ends
//! at bit 47.
//!
//! The dirty state is the read-only bit turned round: with the modifier set, hardware that manages
//! the state (`FEAT_HAFDBS`) clears AP[2] at the first store, and without such hardware the store
//! faults and software does the same. So the modifier is our "write", bit 55 the software's copy of
//! "dirty" for pages that lost the right to be stored to, and AP[2] follows from both. Linux:
//! arch/arm64/include/asm/pgtable.h, `pte_hw_dirty`, `pte_wrprotect`.
//!
//! A page with AP[1] and UXN clear is *execute-only* to user mode. PAN ("privileged access never")
//! looks at AP[1], so the kernel's own stray loads from such a page go through: a kernel that
//! relies on PAN maps pages so only on CPUs with `FEAT_PAN3` (EPAN), where PAN looks at UXN as
//! well. No privileged access is modelled here. Linux: `PAGE_EXECONLY`, arch/arm64/mm/mmap.c
//! `adjust_protection_map`.
//!
//! User space has all addresses that `TTBR0_EL1` translates.

use crate::paging::{
    AccessBits, BeforeInstall, Bits, ByteOrder, Caps, CasAbility, Facts, Feature, Huge, Level,
};

/// A table descriptor.
const fn upper(bits: u32) -> Level {
    Level {
        bits,
        none: 0,
        fixed: 0b11,
    }
}

/// A page of user mode: not global, inner shareable, never executed by the kernel.
const fn leaves(bits: u32) -> Level {
    Level {
        bits,
        none: 0,
        fixed: 1 << 1 | 3 << 8 | 1 << 11 | 1 << 53,
    }
}

const fn bits(page_shift: u32) -> Bits {
    Bits {
        present: 1,
        load: 1 << 6,
        write: 1 << 51,
        accessed: 1 << 10,
        dirty: 1 << 55,
        no_access: 1 << 58,
        zero_page: 1 << 56,
        uffd_wp: 1 << 57,
        invalid: 0,
        read_only: 1 << 7,
        exec: 0,
        no_exec: 1 << 54,
        pfn_mask: (1 << 48) - (1 << page_shift),
        pfn_shift: page_shift,
    }
}

const CAPS: Caps = Caps {
    cas: CasAbility::Native,
    access_bits: AccessBits::ByCpu(Feature::Hafdbs),
    before_install: BeforeInstall::Nothing,
};
const MANUAL: &str = "Arm ARM (DDI 0487), chapter D8";

/// AArch64 with 4 KiB pages: four levels, 48 bits of address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aarch64K4;

impl Facts for Aarch64K4 {
    type Word = u64;
    const ID: &'static str = "aarch64-4k";
    const NAME: &'static str = "AArch64, 4 levels, 4 KiB";
    const MANUAL: &'static str = MANUAL;
    const SHIFT: u32 = 12;
    const TREE: &'static [Level] = &[leaves(9), upper(9), upper(9), upper(9)];
    const USER_END: u64 = 1 << 48;
    const BITS: Bits = bits(12);
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = CAPS;
    // A block descriptor: bit 1 is clear. No use is made of blocks of the other granules, 32 and
    // 512 MiB.
    const HUGE: Option<Huge> = Some(Huge {
        top: 2,
        set: 0,
        clear: 1 << 1,
        mask: 0b11,
        table: 0b11,
    });
}

/// AArch64 with 16 KiB pages: three levels, 47 bits of address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aarch64K16;

impl Facts for Aarch64K16 {
    type Word = u64;
    const ID: &'static str = "aarch64-16k";
    const NAME: &'static str = "AArch64, 3 levels, 16 KiB";
    const MANUAL: &'static str = MANUAL;
    const SHIFT: u32 = 14;
    const TREE: &'static [Level] = &[leaves(11), upper(11), upper(11)];
    const USER_END: u64 = 1 << 47;
    const BITS: Bits = bits(14);
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = CAPS;
}

/// AArch64 with 64 KiB pages: three levels, 48 bits of address, 64 entries at the top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aarch64K64;

impl Facts for Aarch64K64 {
    type Word = u64;
    const ID: &'static str = "aarch64-64k";
    const NAME: &'static str = "AArch64, 3 levels, 64 KiB";
    const MANUAL: &'static str = MANUAL;
    const SHIFT: u32 = 16;
    const TREE: &'static [Level] = &[leaves(13), upper(13), upper(6)];
    const USER_END: u64 = 1 << 48;
    const BITS: Bits = bits(16);
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = CAPS;
}
