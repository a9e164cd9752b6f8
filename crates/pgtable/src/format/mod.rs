//! The formats, one file an architecture.
//!
//! [`each_format`](crate::each_format) is the list of them: whatever runs on every format is made
//! from it, so a new format is its `Facts` and a row there.

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

use crate::paging::About;

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

macro_rules! all {
    ($($format:ident),+) => {
        /// Every format.
        pub const FORMATS: &[About] = &[$(About::of::<$format>()),+];
    };
}

each_format!(all);
