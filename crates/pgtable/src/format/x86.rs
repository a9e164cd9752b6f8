//! x86 in its four forms: two, three, four and five levels.
//!
//! Intel 64 and IA-32 Architectures Software Developer's Manual, volume 3A, chapter "Facts":
//! bit 0 present, 1 write, 2 user, 5 accessed, 6 dirty, the frame from bit 12 on, and in entries of
//! 64 bits 63 "execute disable". Bits 9 to 11 are ignored, and all but bit 0 where that is clear;
//! bit 8 ("global") marks `PROT_NONE` there, as in Linux. An empty entry is 0. The walker sets
//! accessed and dirty with locked cycles.
//!
//! What can be fetched can be loaded: to forbid loads takes protection keys (chapter 4.6.2 of the
//! same manual), of which no use is made.
//!
//! The 386 has no `CMPXCHG` and the 486 no `CMPXCHG8B`. As in the posting of 2004 the exchange is
//! then emulated in a way that is sound on one CPU only, and a newer CPU is not made to pay for it:
//! the choice is made when a system starts. (No CPU with PAE lacks `CMPXCHG8B`; the posting's
//! emulation covers it, and so does this.)

use crate::paging::{
    AccessBits, BeforeInstall, Bits, ByteOrder, Caps, CasAbility, Facts, Feature, Huge, Level,
};

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;

/// Tables that map tables; user mode may write whatever the leaf allows.
const fn upper(bits: u32) -> Level {
    Level {
        bits,
        none: 0,
        fixed: PRESENT | WRITE | USER | ACCESSED,
    }
}

const fn leaves(bits: u32) -> Level {
    Level {
        bits,
        none: 0,
        fixed: USER,
    }
}

/// "Execute disable", in entries of 64 bits, with `EFER.NXE` set.
const NO_EXECUTE: u64 = 1 << 63;

const fn bits(pfn_mask: u64, no_exec: u64) -> Bits {
    Bits {
        present: PRESENT,
        load: 0,
        write: WRITE,
        accessed: ACCESSED,
        dirty: 1 << 6,
        no_access: 1 << 8,
        zero_page: 1 << 9,
        uffd_wp: 1 << 10,
        invalid: 0,
        read_only: 0,
        exec: 0,
        no_exec,
        pfn_mask,
        pfn_shift: 12,
    }
}

const fn caps(cas: CasAbility) -> Caps {
    Caps {
        cas,
        access_bits: AccessBits::Hardware,
        before_install: BeforeInstall::Nothing,
    }
}

/// Bit 7 of an entry above the leaves: it maps a page itself ("PS"). Where the entry is not present
/// the bit says nothing.
const fn huge(top: u32) -> Option<Huge> {
    Some(Huge {
        top,
        set: 1 << 7,
        clear: 0,
        mask: 1 << 7 | PRESENT,
        table: PRESENT,
    })
}

const PFN_52: u64 = 0x000f_ffff_ffff_f000;

/// x86-64 with four levels and 4 KiB pages.
///
/// Intel SDM volume 3A, "4-level paging": 9 bits a level, frame in bits 12 to 51. User space is the
/// lower half of the canonical addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct X86_64;

impl Facts for X86_64 {
    type Word = u64;
    const ID: &'static str = "x86-64";
    const NAME: &'static str = "x86-64, 4 levels, 4 KiB";
    const MANUAL: &'static str = "Intel SDM vol. 3A, 4-level paging";
    const SHIFT: u32 = 12;
    const TREE: &'static [Level] = &[leaves(9), upper(9), upper(9), upper(9)];
    const USER_END: u64 = 1 << 47;
    const BITS: Bits = bits(PFN_52, NO_EXECUTE);
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = caps(CasAbility::Native);
    const HUGE: Option<Huge> = huge(2);
}

/// x86-64 with five levels (`CR4.LA57`).
///
/// Intel SDM volume 3A, "5-level paging": entries as with four levels, one level more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct X86_64La57;

impl Facts for X86_64La57 {
    type Word = u64;
    const ID: &'static str = "x86-64-la57";
    const NAME: &'static str = "x86-64, 5 levels, 4 KiB";
    const MANUAL: &'static str = "Intel SDM vol. 3A, 5-level paging";
    const SHIFT: u32 = 12;
    const TREE: &'static [Level] = &[leaves(9), upper(9), upper(9), upper(9), upper(9)];
    const USER_END: u64 = 1 << 56;
    const BITS: Bits = bits(PFN_52, NO_EXECUTE);
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = caps(CasAbility::Native);
    const HUGE: Option<Huge> = huge(2);
}

/// Linux's split of 32-bit addresses: 3 GiB for user space.
const USER_END_32: u64 = 0xc000_0000;

/// i386 with two levels and entries of 32 bits.
///
/// Intel SDM volume 3A, "32-bit paging": 10 bits a level, frame in bits 12 to 31.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct I386;

impl Facts for I386 {
    type Word = u32;
    const ID: &'static str = "i386";
    const NAME: &'static str = "i386, 2 levels, 4 KiB";
    const MANUAL: &'static str = "Intel SDM vol. 3A, 32-bit paging";
    const SHIFT: u32 = 12;
    const TREE: &'static [Level] = &[leaves(10), upper(10)];
    const USER_END: u64 = USER_END_32;
    const BITS: Bits = bits(0xffff_f000, 0);
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = caps(CasAbility::ByCpu(Feature::Cmpxchg));
    const HUGE: Option<Huge> = huge(1);
}

/// i386 with physical address extension: entries of 64 bits on a machine of 32.
///
/// Intel SDM volume 3A, "PAE paging": four entries at the top, of which bits 1, 2, 5 to 8 are
/// reserved, then 9 bits a level; frame in bits 12 to 51. The CPU reads the four entries when `CR3`
/// is loaded, so whoever fills one of them loads `CR3` again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct I386Pae;

impl Facts for I386Pae {
    type Word = u64;
    const ID: &'static str = "i386-pae";
    const NAME: &'static str = "i386 PAE, 3 levels, 4 KiB";
    const MANUAL: &'static str = "Intel SDM vol. 3A, PAE paging";
    const SHIFT: u32 = 12;
    const TREE: &'static [Level] = &[
        leaves(9),
        upper(9),
        Level {
            bits: 2,
            none: 0,
            fixed: PRESENT,
        },
    ];
    const USER_END: u64 = USER_END_32;
    const BITS: Bits = bits(PFN_52, NO_EXECUTE);
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = caps(CasAbility::ByCpu(Feature::Cmpxchg8b));
    const HUGE: Option<Huge> = huge(1);
}
