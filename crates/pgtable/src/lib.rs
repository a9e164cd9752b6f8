//! Page tables: formats as data, entries changed atomically, walks, and the gathering of what a zap
//! took out.
#![no_std]

pub mod asid;
pub mod bytes;
pub mod entry;
pub mod format;
pub mod gather;
pub mod mmu;
pub mod paging;
pub mod table;
pub mod tlb;
pub mod walk;

pub use asid::{ASIDS, Asids, Switch};
pub use entry::{Exec, Grant, NonPresent, Pte};
pub use format::{
    Aarch64K4, Aarch64K16, Aarch64K64, Altix16K, FORMATS, I386, I386Pae, PowerRadix, RiscvSv39,
    RiscvSv48, S390x, X86_64, X86_64La57,
};
pub use gather::Gather;
pub use mmu::{EntryPoint, Mmu, SpaceId};
pub use paging::{
    About, AccessBits, BeforeInstall, Bits, ByteOrder, Caps, CasAbility, Facts, Feature, Huge,
    Level, Paging, Shape,
};
pub use table::{
    EntryRef, Exchange, PtLock, Table, entries_of, index_of, span_of, span_shift, table_bytes,
    table_order,
};
pub use tlb::{Rights, Tlb, Translation};
pub use walk::{Access, Hardware, Leaf, Missing, Walk, hardware_walk, walk, walk_to, with_bits};
