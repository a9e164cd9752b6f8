//! A format whose huge pages of both sizes are small enough to have many of them in a test.

use minflt_pgtable::{Bits, ByteOrder, Caps, Facts, Huge, Level, X86_64};

/// Tables of x86-64, but for those below level 2, which are so small that pages of both sizes are,
/// too: of 32 and 256 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Small;

impl Facts for Small {
    type Word = u64;
    const ID: &'static str = "small";
    const NAME: &'static str = "x86-64 with small tables";
    const MANUAL: &'static str = "none";
    const SHIFT: u32 = X86_64::SHIFT;
    const TREE: &'static [Level] = &[
        Level {
            bits: 3,
            ..X86_64::TREE[0]
        },
        Level {
            bits: 3,
            ..X86_64::TREE[1]
        },
        X86_64::TREE[2],
        X86_64::TREE[3],
    ];
    const USER_END: u64 = 1 << 36;
    const BITS: Bits = X86_64::BITS;
    const BYTES: ByteOrder = X86_64::BYTES;
    const CAPS: Caps = X86_64::CAPS;
    const HUGE: Option<Huge> = X86_64::HUGE;
}
