//! s390x.

use crate::paging::{AccessBits, BeforeInstall, Bits, ByteOrder, Caps, CasAbility, Facts, Level};

/// s390x with a region-third table, segment tables and page tables, 4 KiB pages.
///
/// z/Architecture Principles of Operation (SA22-7832), chapter 3, "Dynamic Address Translation".
/// Region and segment tables have 2048 entries (16 KiB), page tables 256 (2 KiB). A page-table
/// entry holds the frame in its bits 0 to 51 (from the left), bit 53 "page invalid" (0x400) and bit
/// 54 "page protection" (0x200); bits 56 to 63 are the software's. A region or segment entry is
/// invalid by bit 58 (0x20), says in bits 60 and 61 what kind of table it stands in, and a region
/// entry in bits 62 and 63 how long the table below is. 0 is a *valid* entry, of frame 0, so empty
/// tables are filled with entries that are invalid.
///
/// There are no accessed and dirty bits: storage keys count references of frames, not of entries.
/// As Linux does since 3.10, software keeps them, and a page that is old is invalid, one that is
/// clean protected. Linux's names for the bits used here: present 0x001, young 0x004, dirty 0x008,
/// read 0x010, write 0x020, special 0x040 (arch/s390/include/asm/pgtable.h); 0x080 marks
/// `PROT_NONE`, which Linux tells by the absence of "read".
///
/// User space has all 2^42 addresses, for the kernel lives in another address space. Linux begins
/// with these three levels and adds one when somebody maps higher, which is not modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct S390x;

const INVALID: u64 = 0x400;
const PROTECT: u64 = 0x200;
const TABLE_INVALID: u64 = 0x20;
const REGION_THIRD: u64 = 0x4;
const FULL_LENGTH: u64 = 0x3;

impl Facts for S390x {
    type Word = u64;
    const ID: &'static str = "s390x";
    const NAME: &'static str = "s390x, 3 levels, 4 KiB";
    const MANUAL: &'static str = "z/Architecture Principles of Operation, ch. 3, DAT";
    const SHIFT: u32 = 12;
    const TREE: &'static [Level] = &[
        Level {
            bits: 8,
            none: INVALID,
            fixed: 0x001,
        },
        Level {
            bits: 11,
            none: TABLE_INVALID,
            fixed: 0,
        },
        Level {
            bits: 11,
            none: REGION_THIRD | TABLE_INVALID,
            fixed: REGION_THIRD | FULL_LENGTH,
        },
    ];
    const USER_END: u64 = 1 << 42;
    const BITS: Bits = Bits {
        present: 0x010,
        load: 0,
        write: 0x020,
        accessed: 0x004,
        dirty: 0x008,
        no_access: 0x080,
        zero_page: 0x040,
        uffd_wp: 0,
        invalid: INVALID,
        read_only: PROTECT,
        exec: 0,
        no_exec: 0x100,
        pfn_mask: 0xffff_ffff_ffff_f000,
        pfn_shift: 12,
    };
    const BYTES: ByteOrder = ByteOrder::Big;
    const CAPS: Caps = Caps {
        cas: CasAbility::Native,
        access_bits: AccessBits::Fault,
        before_install: BeforeInstall::Nothing,
    };
}
