//! Page tables: formats as data, entries changed atomically, walks, and the gathering of what a zap
//! took out.
#![no_std]

pub mod entry;
pub mod gather;
pub mod mmu;
pub mod paging;
pub mod table;
pub mod tlb;
pub mod walk;

pub use entry::{Grant, Pte};
pub use gather::Gather;
pub use mmu::{Mmu, SpaceId};
pub use paging::{AccessBits, Altix16K, Bits, Caps, CasAbility, Paging, X86_64};
pub use table::{EntryRef, Exchange, PtLock, Table, exchange_of, index_of, span_of, span_shift};
pub use tlb::{Tlb, Translation};
pub use walk::{Access, Hardware, Leaf, Walk, hardware_walk, walk, with_bits};
