//! Itanium, as Linux used it on the 2004 posting's Altix.

use crate::paging::{AccessBits, BeforeInstall, Bits, ByteOrder, Caps, CasAbility, Facts, Level};

const fn upper() -> Level {
    Level {
        bits: 11,
        none: 0,
        // Only software walks these: any bit will do.
        fixed: 1,
    }
}

/// Like the ia64 Linux of the 2004 posting's Altix: three levels and 16 KiB pages, accessed and
/// dirty bits set by a low-level handler.
///
/// Leaf entries are the translation format of Itanium (Intel Itanium Architecture Software
/// Developer's Manual, volume 2, "Translation Insertion Format"): bit 0 present, 5 accessed, 6
/// dirty, 7..8 privilege level (3 is user mode), 9..11 access rights (0 read, 2 read and write,
/// one more to execute), 12..49 frame address; software has 53 and up, and all but bit 0 where
/// that is clear. Hardware checks the accessed and dirty bits and traps to vectors of their own
/// where one is missing.
///
/// Not modelled: execute-only pages, which are access rights 7, a number that has the bit for
/// stores in it; and the eight regions. Linux spent the top three bits of the root's index on them;
/// here the root covers one stretch of addresses, and user space has its lower half.
///
/// The instruction caches of ia64 do not see what was stored. Linux flushed them in
/// `update_mmu_cache`, after the entry was set, which the lock hid; without the lock the posting
/// flushes *before* the exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Altix16K;

impl Facts for Altix16K {
    type Word = u64;
    const ID: &'static str = "ia64";
    const NAME: &'static str = "ia64-like, 3 levels, 16 KiB";
    const MANUAL: &'static str = "Intel Itanium SDM vol. 2, Translation Insertion Format";
    const SHIFT: u32 = 14;
    const TREE: &'static [Level] = &[
        Level {
            bits: 11,
            none: 0,
            fixed: 3 << 7,
        },
        upper(),
        upper(),
    ];
    const USER_END: u64 = 1 << 46;
    const BITS: Bits = Bits {
        present: 1,
        load: 0,
        write: 1 << 10,
        accessed: 1 << 5,
        dirty: 1 << 6,
        no_access: 1 << 53,
        zero_page: 1 << 54,
        uffd_wp: 1 << 55,
        invalid: 0,
        read_only: 0,
        exec: 1 << 9,
        no_exec: 0,
        pfn_mask: 0x0003_ffff_ffff_c000,
        pfn_shift: 14,
    };
    const BYTES: ByteOrder = ByteOrder::Little;
    const CAPS: Caps = Caps {
        cas: CasAbility::Native,
        access_bits: AccessBits::Handler,
        before_install: BeforeInstall::FlushCaches,
    };
}
