//! What the manuals say an entry means to the hardware: written from them, and from nothing in
//! `pgtable`, so that the two can disagree.

use minflt_pgtable::{
    Aarch64K4, Aarch64K16, Aarch64K64, Altix16K, Facts, I386, I386Pae, PowerRadix, RiscvSv39,
    RiscvSv48, S390x, X86_64, X86_64La57,
};

/// What a walker that sets no bits makes of a leaf entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// A load of user mode goes through.
    pub(crate) load: bool,
    /// A store of user mode goes through.
    pub(crate) store: bool,
    /// An instruction fetch of user mode goes through.
    pub(crate) fetch: bool,
    /// The frame's physical address.
    pub(crate) frame: u64,
}

/// A format, as its manual has it.
pub(crate) trait Manual: Facts {
    /// Bytes of a table of each level, the leaves' first.
    const TABLES: &'static [u64];
    /// Bits of address that the tables translate, page offset included.
    const ADDRESS_BITS: u32;
    /// Whether an entry can let fetches through and no loads, by a bit for each.
    const EXECUTE_ONLY: bool = false;

    /// An entry, from its bytes in memory.
    fn entry(bytes: &[u8]) -> u64;
    /// What a leaf entry lets through.
    fn leaf(entry: u64) -> Seen;
    /// The physical address of the table that an entry of `level` leads to, if it is valid.
    fn table(entry: u64, level: u32) -> Option<u64>;
    /// What an entry of level 1 lets through that is valid and leads to no table, where that maps a
    /// page of all that the entry covers.
    fn huge(_entry: u64) -> Option<Seen> {
        None
    }
}

/// Bits `from..=to` of a word.
fn bits(word: u64, from: u32, to: u32) -> u64 {
    word >> from & u64::MAX >> (63 - (to - from))
}

fn bit(word: u64, at: u32) -> bool {
    bits(word, at, at) == 1
}

/// The word with all but bits `from..=to` cleared.
fn field(word: u64, from: u32, to: u32) -> u64 {
    bits(word, from, to) << from
}

fn little(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn big(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Execute-only needs protection keys (SDM 3A, "Protection Keys"), which entries name by number.
/// Intel SDM 3A: P 0, R/W 1, U/S 2, A 5, D 6; XD 63 of an entry of 64 bits.
fn x86_leaf(entry: u64, last: u32) -> Seen {
    let load = bit(entry, 0) && bit(entry, 2) && bit(entry, 5);
    Seen {
        load,
        store: load && bit(entry, 1) && bit(entry, 6),
        fetch: load && !bit(entry, 63),
        frame: field(entry, 12, last),
    }
}

/// The rights of all levels are combined, so an upper one must not take any away; PS (7) is clear.
fn x86_table(entry: u64, last: u32) -> Option<u64> {
    let leads = bits(entry, 0, 2) == 0b111 && !bit(entry, 7);
    leads.then(|| field(entry, 12, last))
}

macro_rules! x86 {
    ($name:ident, $tables:expr, $address_bits:expr, $last:expr) => {
        impl Manual for $name {
            const TABLES: &'static [u64] = &$tables;
            const ADDRESS_BITS: u32 = $address_bits;

            fn entry(bytes: &[u8]) -> u64 {
                little(bytes)
            }
            fn leaf(entry: u64) -> Seen {
                x86_leaf(entry, $last)
            }
            fn table(entry: u64, _level: u32) -> Option<u64> {
                x86_table(entry, $last)
            }
            fn huge(entry: u64) -> Option<Seen> {
                // PS (7); bit 12 is of another table then.
                let page = bit(entry, 0) && bit(entry, 7) && !bit(entry, 12);
                page.then(|| x86_leaf(entry, $last))
            }
        }
    };
}

x86!(X86_64, [4096; 4], 48, 51);
x86!(X86_64La57, [4096; 5], 57, 51);
x86!(I386, [4096; 2], 32, 31);

impl Manual for I386Pae {
    const TABLES: &'static [u64] = &[4096, 4096, 32];
    const ADDRESS_BITS: u32 = 32;

    fn entry(bytes: &[u8]) -> u64 {
        little(bytes)
    }
    fn leaf(entry: u64) -> Seen {
        x86_leaf(entry, 51)
    }
    fn table(entry: u64, level: u32) -> Option<u64> {
        if level == 1 {
            return x86_table(entry, 51);
        }
        // Bits 1, 2 and 5 to 8 of a page-directory-pointer entry are reserved.
        let reserved = bits(entry, 1, 2) | bits(entry, 5, 8);
        (bit(entry, 0) && reserved == 0).then(|| field(entry, 12, 51))
    }
    fn huge(entry: u64) -> Option<Seen> {
        <X86_64 as Manual>::huge(entry)
    }
}

impl Manual for Altix16K {
    const TABLES: &'static [u64] = &[16384; 3];
    const ADDRESS_BITS: u32 = 47;

    fn entry(bytes: &[u8]) -> u64 {
        little(bytes)
    }
    fn leaf(entry: u64) -> Seen {
        // p 0, a 5, d 6, pl 7-8 (3: all levels), ar 9-11 (0: read, 2: read and write, one more:
        // execute, too), ppn 12-49. Execute-only is ar 7, of which no use is made: it is a number,
        // and has the bit that grants stores in others.
        let rights = bits(entry, 9, 11);
        let load = bit(entry, 0) && bit(entry, 5) && bits(entry, 7, 8) == 3 && rights & !3 == 0;
        Seen {
            load,
            store: load && rights & 2 == 2 && bit(entry, 6),
            fetch: load && rights & 1 == 1,
            frame: field(entry, 12, 49),
        }
    }
    fn table(entry: u64, _level: u32) -> Option<u64> {
        // Software's own: 0 is empty.
        (entry != 0).then(|| field(entry, 14, 49))
    }
}

impl Manual for S390x {
    const TABLES: &'static [u64] = &[2048, 16384, 16384];
    const ADDRESS_BITS: u32 = 42;

    fn entry(bytes: &[u8]) -> u64 {
        big(bytes)
    }
    fn leaf(entry: u64) -> Seen {
        // From the left: 52 must be zero, 53 invalid, 54 protection, 55 instruction-execution
        // protection.
        assert!(
            !bit(entry, 63 - 52),
            "a translation-specification exception"
        );
        let load = !bit(entry, 63 - 53);
        Seen {
            load,
            store: load && !bit(entry, 63 - 54),
            fetch: load && !bit(entry, 63 - 55),
            frame: field(entry, 12, 63),
        }
    }
    fn table(entry: u64, level: u32) -> Option<u64> {
        // From the left: 58 invalid, 60-61 table type; an invalid one is not looked at further.
        if bit(entry, 63 - 58) {
            return None;
        }
        let kind = bits(entry, 2, 3);
        assert_eq!(
            u64::from(level - 1),
            kind,
            "a translation-specification exception"
        );
        if level == 1 {
            // 53 format control, 54 protection.
            assert_eq!(bits(entry, 9, 10), 0, "a page table, not a large page");
            return Some(field(entry, 11, 63));
        }
        // 56-57 table offset 0 and 62-63 table length 3: the whole segment table is there.
        (bits(entry, 6, 7) == 0 && bits(entry, 0, 1) == 3).then(|| field(entry, 12, 63))
    }
}

impl Manual for PowerRadix {
    const TABLES: &'static [u64] = &[256, 4096, 4096, 65536];
    const ADDRESS_BITS: u32 = 52;
    // Power ISA 3.0 B, Book III, "Radix Tree Translation", encoded access authority: read, write
    // and execute are looked at each for its own kind of access.
    const EXECUTE_ONLY: bool = true;

    fn entry(bytes: &[u8]) -> u64 {
        big(bytes)
    }
    fn leaf(entry: u64) -> Seen {
        // From the left: 0 valid, 1 leaf, 55 reference, 56 change, 60 privileged, 61 read,
        // 62 write, 63 execute.
        let leaf = bit(entry, 63) && bit(entry, 62);
        let open = leaf && bit(entry, 8) && !bit(entry, 3);
        Seen {
            load: open && bit(entry, 2),
            store: open && bit(entry, 1) && bit(entry, 7),
            fetch: open && bit(entry, 0),
            frame: field(entry, 12, 56),
        }
    }
    fn table(entry: u64, level: u32) -> Option<u64> {
        // 0 valid, 1 leaf, 4-55 the table's address, 59-63 the logarithm of its entries.
        let below = [5, 9, 9][level as usize - 1];
        let leads = bit(entry, 63) && !bit(entry, 62) && bits(entry, 0, 4) == below;
        leads.then(|| field(entry, 8, 59))
    }
}

macro_rules! arm {
    ($name:ident, $tables:expr, $address_bits:expr, $first:expr) => {
        impl Manual for $name {
            const TABLES: &'static [u64] = &$tables;
            const ADDRESS_BITS: u32 = $address_bits;
            // DDI 0487, D8.4, "Direct permissions": with UXN 0, AP[1] 0 is execute-only to EL0.
            const EXECUTE_ONLY: bool = true;

            fn entry(bytes: &[u8]) -> u64 {
                little(bytes)
            }
            fn leaf(entry: u64) -> Seen {
                // A page at level 3: bits 0-1; AP[1] 6: user mode loads; AF 10; AP[2] 7: read only;
                // UXN 54: user mode never executes.
                let open = bits(entry, 0, 1) == 3 && bit(entry, 10);
                let load = open && bit(entry, 6);
                Seen {
                    load,
                    store: load && !bit(entry, 7),
                    fetch: open && !bit(entry, 54),
                    frame: field(entry, $first, 47),
                }
            }
            fn table(entry: u64, _level: u32) -> Option<u64> {
                // APTable, 61-62, takes rights away.
                let leads = bits(entry, 0, 1) == 3 && bits(entry, 61, 62) == 0;
                leads.then(|| field(entry, $first, 47))
            }
            fn huge(entry: u64) -> Option<Seen> {
                // A block: bit 1 is clear, all else is as in a page.
                (bits(entry, 0, 1) == 1).then(|| Self::leaf(entry | 1 << 1))
            }
        }
    };
}

arm!(Aarch64K4, [4096; 4], 48, 12);
arm!(Aarch64K16, [16384; 3], 47, 14);
arm!(Aarch64K64, [65536, 65536, 512], 48, 16);

macro_rules! riscv {
    ($name:ident, $tables:expr, $address_bits:expr) => {
        impl Manual for $name {
            const TABLES: &'static [u64] = &$tables;
            const ADDRESS_BITS: u32 = $address_bits;
            // "Supervisor Memory-Management", the table of R, W and X: 100 is an execute-only page.
            const EXECUTE_ONLY: bool = true;

            fn entry(bytes: &[u8]) -> u64 {
                little(bytes)
            }
            fn leaf(entry: u64) -> Seen {
                // V 0, R 1, W 2, X 3, U 4, A 6, D 7, and bits 54 to 63 are reserved or extensions'.
                assert!(!bit(entry, 0) || bits(entry, 54, 63) == 0, "a reserved bit");
                assert!(
                    !bit(entry, 0) || bits(entry, 1, 2) != 0b10,
                    "write without read"
                );
                assert!(
                    !bit(entry, 0) || bits(entry, 1, 3) != 0,
                    "a pointer to a table"
                );
                let open = bit(entry, 0) && bit(entry, 4) && bit(entry, 6);
                Seen {
                    load: open && bit(entry, 1),
                    store: open && bit(entry, 2) && bit(entry, 7),
                    fetch: open && bit(entry, 3),
                    frame: bits(entry, 10, 53) << 12,
                }
            }
            fn table(entry: u64, _level: u32) -> Option<u64> {
                // No R, W, X; U, A and D must be clear.
                let leads = bit(entry, 0) && bits(entry, 1, 3) == 0;
                let clear = !bit(entry, 4) && bits(entry, 6, 7) == 0;
                (leads && clear).then(|| bits(entry, 10, 53) << 12)
            }
            fn huge(entry: u64) -> Option<Seen> {
                // An entry that grants something is a leaf; low bits of the frame must be clear.
                let leaf = bit(entry, 0) && bits(entry, 1, 3) != 0 && bits(entry, 10, 18) == 0;
                leaf.then(|| Self::leaf(entry))
            }
        }
    };
}

riscv!(RiscvSv39, [4096; 3], 39);
riscv!(RiscvSv48, [4096; 4], 48);
