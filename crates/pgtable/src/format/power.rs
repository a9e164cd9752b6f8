//! POWER with radix translation.

use crate::paging::{AccessBits, BeforeInstall, Bits, ByteOrder, Caps, CasAbility, Facts, Level};

const VALID: u64 = 1 << 63;
const LEAF: u64 = 1 << 62;

/// A page directory whose entries lead to tables of `below` index bits.
const fn directory(bits: u32, below: u64) -> Level {
    Level {
        bits,
        none: 0,
        fixed: VALID | below,
    }
}

/// POWER9 and later with radix translation and 64 KiB pages: 13, 9, 9 and 5 bits.
///
/// Power ISA 3.0 B, Book III, "Radix Tree Translation". Counted from the left, bit 0 is "valid" and
/// bit 1 "leaf"; a leaf has the frame in bits 7 to 51, reference in bit 55 (0x100), change in bit
/// 56 (0x080), and in bits 60 to 63 privileged, read, write and execute (8, 4, 2, 1). An entry of
/// a directory has the table's address and, in its last five bits, the logarithm of the table's
/// entries. Bits 2 and 52 to 54 of a leaf are the software's, and an entry that is not valid is all
/// software's. Entries are big-endian in memory, whatever the kernel's own order is. The walker
/// sets reference and change itself, atomically. A fetch needs "execute" and not "read", so a leaf
/// without "read" is *execute-only*. Linux: arch/powerpc/include/asm/book3s/64/pgtable.h,
/// `PAGE_EXECONLY`.
///
/// User space is quadrant 0, of which these tables cover the lower 2^52 addresses, all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerRadix;

impl Facts for PowerRadix {
    type Word = u64;
    const ID: &'static str = "power-radix";
    const NAME: &'static str = "POWER radix, 4 levels, 64 KiB";
    const MANUAL: &'static str = "Power ISA 3.0 B, Book III, Radix Tree Translation";
    const SHIFT: u32 = 16;
    const TREE: &'static [Level] = &[
        Level {
            bits: 5,
            none: 0,
            fixed: LEAF,
        },
        directory(9, 5),
        directory(9, 9),
        directory(13, 9),
    ];
    const USER_END: u64 = 1 << 52;
    const BITS: Bits = Bits {
        present: VALID,
        load: 0x4,
        write: 0x2,
        accessed: 0x100,
        dirty: 0x080,
        no_access: 0x800,
        zero_page: 0x400,
        uffd_wp: 0x200,
        invalid: 0,
        read_only: 0,
        exec: 0x1,
        no_exec: 0,
        pfn_mask: 0x01ff_ffff_ffff_0000,
        pfn_shift: 16,
    };
    const BYTES: ByteOrder = ByteOrder::Big;
    const CAPS: Caps = Caps {
        cas: CasAbility::Native,
        access_bits: AccessBits::Hardware,
        before_install: BeforeInstall::Nothing,
    };
}
