//! The formats, one file an architecture.
//!
//! [`each_format`](crate::each_format) is the list of them: whatever runs on every format is made
//! from it, so a new format is a `Paging` and a row there.

mod arm;
mod ia64;
mod power;
mod riscv;
mod s390;
mod x86;

pub use arm::{Aarch64K4, Aarch64K16, Aarch64K64};
pub use ia64::Altix16K;
pub use power::PowerRadix;
pub use riscv::{RiscvSv39, RiscvSv48};
pub use s390::S390x;
pub use x86::{I386, I386Pae, X86_64, X86_64La57};

use crate::paging::{ByteOrder, Caps, Level, Paging};

/// Calls the macro named with all formats, in the order of the documentation, behind what else is
/// given.
#[macro_export]
macro_rules! each_format {
    ($then:ident $(, $($more:tt)+)?) => {
        $then! {
            $($($more)+,)?
            X86_64, X86_64La57, I386, I386Pae, Altix16K, S390x, PowerRadix,
            Aarch64K4, Aarch64K16, Aarch64K64, RiscvSv39, RiscvSv48
        }
    };
}

/// A format as a value, for whoever prints them.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// [`Paging::ID`].
    pub id: &'static str,
    /// [`Paging::NAME`].
    pub name: &'static str,
    /// [`Paging::MANUAL`].
    pub manual: &'static str,
    /// [`Paging::SHIFT`].
    pub page_shift: u32,
    /// [`Paging::TREE`].
    pub tree: &'static [Level],
    /// [`Paging::USER_END`].
    pub user_end: u64,
    /// Bits of an entry.
    pub word_bits: u32,
    /// [`Paging::BYTES`].
    pub bytes: ByteOrder,
    /// [`Paging::CAPS`].
    pub caps: Caps,
}

impl About {
    /// What there is to say about `P`.
    #[must_use]
    pub const fn of<P: Paging>() -> Self {
        Self {
            id: P::ID,
            name: P::NAME,
            manual: P::MANUAL,
            page_shift: P::SHIFT,
            tree: P::TREE,
            user_end: P::USER_END,
            word_bits: 8 * size_of::<P::Word>() as u32,
            bytes: P::BYTES,
            caps: P::CAPS,
        }
    }
}

macro_rules! all {
    ($($format:ident),+) => {
        /// Every format.
        pub const FORMATS: &[About] = &[$(About::of::<$format>()),+];
    };
}

each_format!(all);
