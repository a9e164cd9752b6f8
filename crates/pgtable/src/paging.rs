//! What a page-table format is: page size, levels, entry width, bits and abilities.

use core::fmt::Debug;
use minflt_sync::Word;

/// A page-table format. All of it is data; no code anywhere names a page size.
pub trait Paging: Copy + Debug + Send + Sync + 'static {
    /// The width of an entry.
    type Word: Word;
    /// The format's name.
    const NAME: &'static str;
    /// Bytes per page, as a power of two.
    const SHIFT: u32;
    /// Levels of tables; the root is level `LEVELS - 1`, leaf entries stand at level 0.
    const LEVELS: u32;
    /// Entries per table, as a power of two.
    const INDEX_BITS: u32;
    /// Where the bits of an entry stand.
    const BITS: Bits;
    /// What the hardware can do.
    const CAPS: Caps;

    /// Bytes per page.
    const PAGE: u64 = 1 << Self::SHIFT;
    /// Entries per table.
    const ENTRIES: u64 = 1 << Self::INDEX_BITS;
    /// First address that user space cannot have: half of what the tables cover.
    const USER_END: u64 = 1 << (Self::SHIFT + Self::LEVELS * Self::INDEX_BITS - 1);
}

/// The bits of an entry, as masks over 64 bits.
#[derive(Clone, Copy, Debug)]
pub struct Bits {
    /// The hardware may use the entry.
    pub present: u64,
    /// Stores are allowed.
    pub write: u64,
    /// User mode may use the entry.
    pub user: u64,
    /// The page was used.
    pub accessed: u64,
    /// The page was stored to.
    pub dirty: u64,
    /// Ours: a page is mapped here that nobody may access now (`PROT_NONE`); `present` is clear.
    pub no_access: u64,
    /// Ours: the entry maps the shared page of zeros.
    pub zero_page: u64,
    /// Set in every entry that points to a table.
    pub table: u64,
    /// The frame number's field.
    pub pfn_mask: u64,
    /// Where the frame number's field starts.
    pub pfn_shift: u32,
}

/// How entries can be compared and exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CasAbility {
    /// By one instruction.
    Native,
    /// Not at all: a lock emulates it.
    Emulated,
}

/// Who sets the accessed and dirty bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessBits {
    /// The hardware's walker, atomically, whoever holds whatever lock.
    Hardware,
    /// A low-level handler, after a trap.
    Handler,
}

/// What the hardware can do.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// How entries can be compared and exchanged.
    pub cas: CasAbility,
    /// Who sets the accessed and dirty bits.
    pub access_bits: AccessBits,
}

/// x86-64 with four levels and 4 KiB pages.
///
/// Intel SDM volume 3, "4-level paging": bits 0 present, 1 write, 2 user, 5 accessed, 6 dirty,
/// 12..51 frame; 9 to 11 and 52 to 58 are left to software.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct X86_64;

impl Paging for X86_64 {
    type Word = u64;
    const NAME: &'static str = "x86-64, 4 levels, 4 KiB";
    const SHIFT: u32 = 12;
    const LEVELS: u32 = 4;
    const INDEX_BITS: u32 = 9;
    const BITS: Bits = Bits {
        present: 1,
        write: 1 << 1,
        user: 1 << 2,
        accessed: 1 << 5,
        dirty: 1 << 6,
        no_access: 1 << 8,
        zero_page: 1 << 9,
        table: 1 | 1 << 1 | 1 << 2 | 1 << 5,
        pfn_mask: 0x000f_ffff_ffff_f000,
        pfn_shift: 12,
    };
    const CAPS: Caps = Caps {
        cas: CasAbility::Native,
        access_bits: AccessBits::Hardware,
    };
}

/// Like the ia64 Linux of the 2004 posting's Altix: three levels and 16 KiB pages, accessed and
/// dirty bits set by a low-level handler.
///
/// Bit places follow the translation format of Itanium (Intel Itanium Architecture Software
/// Developer's Manual, volume 2): bit 0 present, 5 accessed, 6 dirty, 7..8 privilege, 9..11 rights,
/// frame address from bit 12 on; software has 53 and up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Altix16K;

impl Paging for Altix16K {
    type Word = u64;
    const NAME: &'static str = "ia64-like, 3 levels, 16 KiB";
    const SHIFT: u32 = 14;
    const LEVELS: u32 = 3;
    const INDEX_BITS: u32 = 11;
    const BITS: Bits = Bits {
        present: 1,
        write: 1 << 10,
        user: 1 << 7,
        accessed: 1 << 5,
        dirty: 1 << 6,
        no_access: 1 << 53,
        zero_page: 1 << 54,
        table: 1,
        pfn_mask: 0x0003_ffff_ffff_c000,
        pfn_shift: 14,
    };
    const CAPS: Caps = Caps {
        cas: CasAbility::Native,
        access_bits: AccessBits::Handler,
    };
}
