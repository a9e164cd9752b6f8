//! What a frame is used for.

/// What a frame is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Use {
    /// Never used, or free.
    Free = 0,
    /// The first frame of a block in a zone's free list.
    FreeBlock = 1,
    /// Freed, to a CPU's list; one that came to a list from a zone is still `Free`.
    FreeCpu = 2,
    /// The system's own: descriptors, per-CPU areas, the zero page.
    Reserved = 3,
    /// A page table.
    Table = 4,
    /// Objects of one slab.
    Slab = 5,
    /// Anonymous user memory.
    Anon = 6,
    /// Part of a block in use; its first frame says for what.
    Tail = 7,
    /// A page of a file, cached or on its way out.
    File = 8,
    /// The first frame of a huge page, in use or in a pool.
    Huge = 9,
    /// The embedding kernel's.
    Kernel = 10,
    /// No memory: in a hole.
    Absent = 11,
}

impl Use {
    /// That of a number.
    pub(super) const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::FreeBlock,
            2 => Self::FreeCpu,
            3 => Self::Reserved,
            4 => Self::Table,
            5 => Self::Slab,
            6 => Self::Anon,
            7 => Self::Tail,
            8 => Self::File,
            9 => Self::Huge,
            10 => Self::Kernel,
            11 => Self::Absent,
            _ => Self::Free,
        }
    }
}
