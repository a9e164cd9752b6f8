//! Page tables: formats as data, entries changed atomically, walks, and the gathering of what a zap
//! took out.
#![no_std]

pub mod mmu;
pub mod paging;
pub mod tlb;

pub use mmu::{Mmu, SpaceId};
pub use paging::{AccessBits, Altix16K, Bits, Caps, CasAbility, Paging, X86_64};
pub use tlb::{Tlb, Translation};
