//! Descriptions of page-table formats: page size, levels, entry width, bits, capabilities.
//!
//! All of it is data, and for the formats whose levels are alike the data folds into constants: a
//! walk of x86-64 tables shifts and masks by immediates. The formats are in [`crate::format`].

use core::fmt::{self, Debug};
use minflt_sync::Word;

/// The most levels that a format has.
pub const MAX_LEVELS: usize = 5;

/// A page-table format, as the code that works on tables asks for it. All of it is data; no code
/// anywhere names a page size.
///
/// A format whose [`Facts`] are known when compiling is one of these by itself, and its data folds
/// into constants. One that is chosen at run time looks them up instead, so that a program for
/// every format need not hold every format's copy of itself.
pub trait Paging: Copy + Debug + Send + Sync + 'static {
    /// The width of an entry.
    type Word: Word;

    /// The format's facts: the same at each call for as long as tables of it exist.
    fn about() -> &'static About;

    /// Bytes per page, as a power of two.
    #[inline(always)]
    #[must_use]
    fn shift() -> u32 {
        Self::about().page_shift
    }

    /// Bytes per page.
    #[inline(always)]
    #[must_use]
    fn page() -> u64 {
        1 << Self::shift()
    }

    /// The tables of each level. Leaf entries stand in those of level 0, the root is the last.
    #[inline(always)]
    #[must_use]
    fn tree() -> &'static [Level] {
        Self::about().tree
    }

    /// Levels of tables; the root is level `levels() - 1`, leaf entries stand at level 0.
    #[inline(always)]
    #[must_use]
    fn levels() -> u32 {
        Self::tree().len() as u32
    }

    /// What follows from the tree.
    #[inline(always)]
    #[must_use]
    fn shape() -> &'static Shape {
        &Self::about().shape
    }

    /// First address that user space cannot have.
    #[inline(always)]
    #[must_use]
    fn user_end() -> u64 {
        Self::about().user_end
    }

    /// Where the bits of a leaf entry stand.
    #[inline(always)]
    #[must_use]
    fn bits() -> &'static Bits {
        &Self::about().bits
    }

    /// How the bytes of an entry stand in memory.
    #[inline(always)]
    #[must_use]
    fn bytes() -> ByteOrder {
        Self::about().bytes
    }

    /// What the hardware can do.
    #[inline(always)]
    #[must_use]
    fn caps() -> Caps {
        Self::about().caps
    }

    /// How an entry above the leaves maps one page of all that it covers; `None` where it cannot,
    /// or no use is made of it.
    #[inline(always)]
    #[must_use]
    fn huge() -> Option<&'static Huge> {
        Self::about().huge.as_ref()
    }

    /// A huge page of level 1 has 2 to the power of this pages.
    #[inline(always)]
    #[must_use]
    fn huge_order() -> Option<u32> {
        Self::huge().map(|_| Self::tree()[0].bits)
    }
}

impl<F: Facts> Paging for F {
    type Word = F::Word;

    #[inline(always)]
    fn about() -> &'static About {
        const { &About::of::<F>() }
    }
}

/// What there is to know about a page-table format, known when compiling.
pub trait Facts: Copy + Debug + Send + Sync + 'static {
    /// The width of an entry.
    type Word: Word;
    /// A name to type.
    const ID: &'static str;
    /// The format's name.
    const NAME: &'static str;
    /// The manual that defines it.
    const MANUAL: &'static str;
    /// Bytes per page, as a power of two.
    const SHIFT: u32;
    /// See [`Paging::tree`].
    const TREE: &'static [Level];
    /// See [`Paging::user_end`].
    const USER_END: u64;
    /// See [`Paging::bits`].
    const BITS: Bits;
    /// See [`Paging::bytes`].
    const BYTES: ByteOrder;
    /// See [`Paging::caps`].
    const CAPS: Caps;
    /// See [`Paging::huge`].
    const HUGE: Option<Huge> = None;

    /// Bytes per page.
    const PAGE: u64 = 1 << Self::SHIFT;
}

/// The facts of a format as a value.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// [`Facts::ID`].
    pub id: &'static str,
    /// [`Facts::NAME`].
    pub name: &'static str,
    /// [`Facts::MANUAL`].
    pub manual: &'static str,
    /// [`Paging::shift`].
    pub page_shift: u32,
    /// [`Paging::tree`].
    pub tree: &'static [Level],
    /// [`Paging::shape`].
    pub shape: Shape,
    /// [`Paging::user_end`].
    pub user_end: u64,
    /// Bits of an entry.
    pub word_bits: u32,
    /// [`Paging::bits`].
    pub bits: Bits,
    /// [`Paging::bytes`].
    pub bytes: ByteOrder,
    /// [`Paging::caps`].
    pub caps: Caps,
    /// [`Paging::huge`].
    pub huge: Option<Huge>,
}

impl About {
    /// What there is to say about `F`.
    #[must_use]
    pub const fn of<F: Facts>() -> Self {
        Self {
            id: F::ID,
            name: F::NAME,
            manual: F::MANUAL,
            page_shift: F::SHIFT,
            tree: F::TREE,
            shape: Shape::of(F::SHIFT, F::TREE),
            user_end: F::USER_END,
            word_bits: 8 * size_of::<F::Word>() as u32,
            bits: F::BITS,
            bytes: F::BYTES,
            caps: F::CAPS,
            huge: F::HUGE,
        }
    }
}

/// How an entry above the leaves differs from a leaf entry where it maps a *huge page*, and how
/// such entries are told from those that point to tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Huge {
    /// The highest level whose entries can, of those that use is made of: all from 1 on.
    pub top: u32,
    /// Set, beside what a leaf entry has.
    pub set: u64,
    /// Clear, though a leaf entry has it.
    pub clear: u64,
    /// An entry of level 1 or above points to a table if these bits ...
    pub mask: u64,
    /// ... are these.
    pub table: u64,
}

/// The tables of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// Entries per table, as a power of two.
    pub bits: u32,
    /// The entry at which nothing is mapped.
    pub none: u64,
    /// Set in every entry that points to a table; at level 0, in every one that maps a page.
    pub fixed: u64,
}

/// What follows from the levels of a format.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Log2 of the bytes that an entry of each level covers; behind the root's, that all cover.
    pub(crate) shifts: [u32; MAX_LEVELS + 1],
    /// Whether the tables of all levels have the same number of entries.
    pub(crate) uniform: bool,
    /// Whether the empty entry is 0 at every level.
    pub(crate) zero_is_none: bool,
}

impl Shape {
    const fn of(page_shift: u32, tree: &[Level]) -> Self {
        let mut shape = Self {
            shifts: [page_shift; MAX_LEVELS + 1],
            uniform: true,
            zero_is_none: true,
        };
        let mut level = 0;
        while level < tree.len() {
            shape.shifts[level + 1] = shape.shifts[level] + tree[level].bits;
            shape.uniform &= tree[level].bits == tree[0].bits;
            shape.zero_is_none &= tree[level].none == 0;
            level += 1;
        }
        shape
    }
}

/// The bits of a leaf entry, as masks over 64 bits.
///
/// Most formats say with a bit what is granted. Some say what is *not*: an "invalid" bit, a
/// "read only" bit, and those answer for the accessed and dirty bits as well, which such hardware
/// does not have: a page that was not used is invalid, one that was not stored to is read only.
/// There the granting bits are the software's own, and [`Bits::invalid`] and [`Bits::read_only`]
/// are kept as what follows from them.
#[derive(Clone, Copy, Debug)]
pub struct Bits {
    /// Set where anything is granted.
    pub present: u64,
    /// Set where loads are granted, if `present` is set as well, in formats whose entries can grant
    /// instruction fetches and no loads (*execute-only*). 0 in formats without such entries: there
    /// an entry that grants anything grants loads.
    pub load: u64,
    /// Set where a store is granted.
    pub write: u64,
    /// The page was used.
    pub accessed: u64,
    /// The page was stored to.
    pub dirty: u64,
    /// Software bit: a page is mapped without permissions (`PROT_NONE`); `present` is clear.
    pub no_access: u64,
    /// Ours: the entry maps the shared zero page.
    pub zero_page: u64,
    /// Ours: stores to the page are for a userfaultfd's handler; 0 where software has no bit left
    /// for it.
    pub uffd_wp: u64,
    /// The hardware's bit that is set unless a load is granted and the page was used; 0 where the
    /// hardware looks at `present` and `accessed`.
    pub invalid: u64,
    /// The hardware's bit that is set unless a store is granted and the page was stored to; 0 where
    /// the hardware looks at `write` and `dirty`.
    pub read_only: u64,
    /// Set where an instruction fetch is granted; 0 where the hardware says it the other way round,
    /// or not at all.
    pub exec: u64,
    /// Set where an instruction fetch is *not* granted; 0 where the hardware has no such bit. With
    /// neither this nor `exec`, what can be loaded can be fetched.
    pub no_exec: u64,
    /// The frame number's field.
    pub pfn_mask: u64,
    /// Where the frame number's field starts.
    pub pfn_shift: u32,
}

impl Bits {
    /// The bits that say whether instruction fetches are granted; 0 where none does.
    #[inline(always)]
    #[must_use]
    pub const fn of_exec(&self) -> u64 {
        self.exec | self.no_exec
    }

    /// Whether an entry can grant instruction fetches and no loads.
    #[inline(always)]
    #[must_use]
    pub const fn execute_only(&self) -> bool {
        self.load != 0
    }
}

/// How the bytes of an entry stand in memory, whatever the kernel's own order is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByteOrder {
    /// The least significant first.
    Little,
    /// The most significant first.
    Big,
}

/// What some CPUs of an architecture have and others lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// x86: `CMPXCHG`, from the 486 on.
    Cmpxchg,
    /// x86: `CMPXCHG8B`, from the Pentium on.
    Cmpxchg8b,
    /// AArch64: `FEAT_HAFDBS`, the walker sets the access flag and the dirty state.
    Hafdbs,
    /// RISC-V: `Svadu`, the walker sets A and D.
    Svadu,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cmpxchg => "CMPXCHG",
            Self::Cmpxchg8b => "CMPXCHG8B",
            Self::Hafdbs => "FEAT_HAFDBS",
            Self::Svadu => "Svadu",
        })
    }
}

/// How entries can be compared and exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CasAbility {
    /// By one instruction.
    Native,
    /// Not at all: a lock emulates it.
    Emulated,
    /// By one instruction on CPUs that have it, else emulated; known when a system starts.
    ByCpu(Feature),
}

/// Who sets the accessed and dirty bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessBits {
    /// The hardware's walker, atomically, regardless of locks.
    Hardware,
    /// A low-level handler, after a trap of its own.
    Handler,
    /// Nobody: an entry without them is an ordinary page fault.
    Fault,
    /// The walker on CPUs that do it, else an ordinary page fault.
    ByCpu(Feature),
}

/// What has to be done before an entry names a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BeforeInstall {
    /// Nothing: caches agree by themselves, or are asked at another time.
    Nothing,
    /// The caches of instructions have to see what was written to the frame, and nothing asks them
    /// later: once the entry is there, another CPU may use the page.
    FlushCaches,
}

/// What the hardware can do.
#[derive(Clone, Copy, Debug)]
pub struct Caps {
    /// How entries can be compared and exchanged.
    pub cas: CasAbility,
    /// Who sets the accessed and dirty bits.
    pub access_bits: AccessBits,
    /// What has to be done before an entry names a frame.
    pub before_install: BeforeInstall,
}

impl CasAbility {
    /// The same for a CPU whose features are known: [`CasAbility::Native`] or
    /// [`CasAbility::Emulated`].
    #[inline(always)]
    #[must_use]
    pub fn on_cpu(self, has: impl FnOnce(Feature) -> bool) -> Self {
        match self {
            Self::ByCpu(feature) if has(feature) => Self::Native,
            Self::ByCpu(_) => Self::Emulated,
            known => known,
        }
    }
}

impl AccessBits {
    /// The same for a CPU whose features are known: never [`AccessBits::ByCpu`].
    #[inline(always)]
    #[must_use]
    pub fn on_cpu(self, has: impl FnOnce(Feature) -> bool) -> Self {
        match self {
            Self::ByCpu(feature) if has(feature) => Self::Hardware,
            Self::ByCpu(_) => Self::Fault,
            known => known,
        }
    }
}
