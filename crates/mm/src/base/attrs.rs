//! Attributes of a mapping, by value.

use crate::base::file::FileKey;
use crate::base::huge_size::HugeSize;
use crate::base::policy::Policy;
use core::fmt;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Access, Exec, Grant, Paging};

/// Access rights of a mapping: a set of loads, stores and instruction fetches.
///
/// [`Prot::EXEC`] alone grants fetches only in formats whose entries can say so
/// ([`Bits::load`](minflt_pgtable::Bits::load)). In others, x86 among them, it grants loads, too.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Prot(u8);

impl Prot {
    /// No access.
    pub const NONE: Self = Self(0);
    /// Loads.
    pub const READ: Self = Self(1 << 0);
    /// Stores. They imply loads, as on the hardware.
    pub const WRITE: Self = Self(1 << 1);
    /// Instruction fetches.
    pub const EXEC: Self = Self(1 << 2);
    /// Loads and stores.
    pub const READ_WRITE: Self = Self::READ.with(Self::WRITE);
    /// Bits that a set takes.
    pub(crate) const BITS: u32 = 3;

    /// With those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether any of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The most an entry of the mapping may grant; [`Self::exec`] says whether that includes loads.
    #[must_use]
    #[inline(always)]
    pub const fn grant(self) -> Grant {
        if self.has(Self::WRITE) {
            Grant::Write
        } else if self.0 != 0 {
            Grant::Read
        } else {
            Grant::Nothing
        }
    }

    /// What an entry of the mapping, in format `P`, says of instruction fetches.
    #[must_use]
    #[inline(always)]
    pub fn exec<P: Paging>(self) -> Exec {
        if !self.has(Self::EXEC) {
            Exec::No
        } else if P::bits().execute_only() && self == Self::EXEC {
            Exec::Only
        } else {
            Exec::Yes
        }
    }

    /// Whether an access is allowed where entries are of format `P`.
    #[must_use]
    pub fn allows<P: Paging>(self, access: Access) -> bool {
        if P::bits().execute_only() && self == Self::EXEC {
            return access == Access::Execute;
        }
        self.grant() >= access.needs() && (access != Access::Execute || self.has(Self::EXEC))
    }

    /// The set as a number of three bits: 1 loads, 2 stores, 4 fetches.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// The set that a number stands for; other bits are left out.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self((bits & ((1 << Self::BITS) - 1)) as u8)
    }
}

/// As `maps` prints it: `rwx`, with a dash for what is not allowed.
impl fmt::Display for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = |right, letter| if self.has(right) { letter } else { "-" };
        f.write_str(letter(Self::READ, "r"))?;
        f.write_str(letter(Self::WRITE, "w"))?;
        f.write_str(letter(Self::EXEC, "x"))
    }
}

impl fmt::Debug for Prot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What else a mapping is: a set.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct VmaFlags(u32);

impl VmaFlags {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// Its pages are charged, and uncharged at unmap (`VM_ACCOUNT`).
    pub const ACCOUNT: Self = Self(1 << 0);
    /// Its pages are never charged (`VM_NORESERVE`).
    pub const NORESERVE: Self = Self(1 << 1);
    /// Its pages stay resident (`VM_LOCKED`).
    pub const LOCKED: Self = Self(1 << 2);
    /// They are locked when they are first touched (`VM_LOCKONFAULT`).
    pub const LOCKED_ON_FAULT: Self = Self(1 << 3);
    /// It grows down to accesses below it, as a stack does (`VM_GROWSDOWN`).
    pub const GROWS_DOWN: Self = Self(1 << 4);
    /// A child does not get it (`VM_DONTCOPY`).
    pub const DONT_FORK: Self = Self(1 << 5);
    /// A child gets it empty (`VM_WIPEONFORK`).
    pub const WIPE_ON_FORK: Self = Self(1 << 6);
    /// Left out of a core dump (`VM_DONTDUMP`).
    pub const DONT_DUMP: Self = Self(1 << 7);
    /// Accesses come in order (`VM_SEQ_READ`).
    pub const SEQUENTIAL: Self = Self(1 << 8);
    /// Accesses come in no order (`VM_RAND_READ`).
    pub const RANDOM: Self = Self(1 << 9);
    /// Huge pages are wanted (`VM_HUGEPAGE`).
    pub const HUGE_PAGE: Self = Self(1 << 10);
    /// Huge pages are not wanted (`VM_NOHUGEPAGE`).
    pub const NO_HUGE_PAGE: Self = Self(1 << 11);
    /// A userfaultfd handler resolves faults on missing pages (`VM_UFFD_MISSING`).
    pub const UFFD_MISSING: Self = Self(1 << 12);
    /// A userfaultfd handler resolves write-protect faults (`VM_UFFD_WP`).
    pub const UFFD_WP: Self = Self(1 << 13);

    /// What is stored there is stored to the file (`VM_SHARED`).
    pub const SHARED: Self = Self(1 << 14);
    /// It can never be stored to: a shared mapping of a file that was opened for loads (no
    /// `VM_MAYWRITE`).
    pub const NEVER_WRITTEN: Self = Self(1 << 15);
    /// Its pages are huge, those of a file (`VM_HUGETLB`).
    pub const HUGETLB: Self = Self(1 << 16);
    /// The huge pages that were set aside for it are its own, not a child's
    /// (`HPAGE_RESV_OWNER`).
    pub const HUGE_OWNER: Self = Self(1 << 17);
    /// Its huge pages are of the larger size.
    pub const HUGE_GIANT: Self = Self(1 << 18);

    const NAMES: &[(Self, &str)] = &[
        (Self::ACCOUNT, "account"),
        (Self::NORESERVE, "noreserve"),
        (Self::LOCKED, "locked"),
        (Self::LOCKED_ON_FAULT, "locked-on-fault"),
        (Self::GROWS_DOWN, "grows-down"),
        (Self::DONT_FORK, "dont-fork"),
        (Self::WIPE_ON_FORK, "wipe-on-fork"),
        (Self::DONT_DUMP, "dont-dump"),
        (Self::SEQUENTIAL, "sequential"),
        (Self::RANDOM, "random"),
        (Self::HUGE_PAGE, "huge-page"),
        (Self::NO_HUGE_PAGE, "no-huge-page"),
        (Self::UFFD_MISSING, "uffd-missing"),
        (Self::UFFD_WP, "uffd-wp"),
        (Self::SHARED, "shared"),
        (Self::NEVER_WRITTEN, "never-written"),
        (Self::HUGETLB, "hugetlb"),
        (Self::HUGE_OWNER, "huge-owner"),
        (Self::HUGE_GIANT, "huge-giant"),
    ];

    /// With those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether any of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for VmaFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = Self::NAMES.iter().filter(|(flag, _)| self.has(*flag));
        f.debug_list().entries(set.map(|(_, name)| name)).finish()
    }
}

/// The attributes, by value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaView {
    /// The addresses mapped.
    pub range: VirtRange,
    /// The number of its first page in what it maps. Of anonymous memory that is the number of the
    /// address it was first mapped at: it stays when pages that exist are moved, so that the
    /// reverse map finds them. Two mappings are one only if their numbers go on.
    ///
    /// Linux: `vm_pgoff`.
    pub pgoff: u64,
    /// What may be done there.
    pub prot: Prot,
    /// What else it is.
    pub flags: VmaFlags,
    /// Where its pages come from.
    pub policy: Policy,
    /// The number of the userfaultfd that receives its faults, or 0.
    pub uffd: u16,
    /// Which file it maps, if any.
    pub file: FileKey,
}

impl VmaView {
    /// A new mapping of anonymous memory.
    #[must_use]
    pub fn anonymous<P: Paging>(range: VirtRange, prot: Prot, flags: VmaFlags) -> Self {
        Self {
            range,
            pgoff: range.start().page(P::shift()),
            prot,
            flags,
            policy: Policy::DEFAULT,
            uffd: 0,
            file: FileKey::NONE,
        }
    }

    /// The same mapping, of the addresses `range`, which overlap its own or touch it.
    #[must_use]
    pub fn of_range<P: Paging>(self, range: VirtRange) -> Self {
        let (old, new) = (self.range.start().0, range.start().0);
        let moved = new.wrapping_sub(old).cast_signed() >> P::shift();
        Self {
            range,
            pgoff: self.pgoff.wrapping_add_signed(moved),
            ..self
        }
    }

    /// The number of the page at `addr` in what is mapped.
    ///
    /// Linux: linear_page_index.
    #[must_use]
    #[inline(always)]
    pub fn page_index<P: Paging>(&self, addr: VirtAddr) -> u64 {
        self.pgoff + (addr.page(P::shift()) - self.range.start().page(P::shift()))
    }

    /// Whether a VMA's own first record can say it.
    pub(crate) fn is_plain<P: Paging>(&self) -> bool {
        *self == Self::anonymous::<P>(self.range, self.prot, self.flags)
    }
}

impl VmaView {
    /// How large its pages are, where they are huge.
    #[inline(always)]
    pub(crate) const fn huge_size(&self) -> HugeSize {
        match self.flags.has(VmaFlags::HUGE_GIANT) {
            true => HugeSize::Giant,
            false => HugeSize::Large,
        }
    }

    /// Whether `part` of it begins or ends within one of its huge pages.
    ///
    /// Linux: hugetlb_vm_op_split.
    pub(crate) fn cuts_huge_page<P: Paging>(&self, part: VirtRange) -> bool {
        let whole = |at| self.huge_size().is_aligned::<P>(at);
        self.is_huge() && !(whole(part.start()) && whole(part.end()))
    }

    /// The number of the huge page at `addr` in its file.
    pub(crate) fn huge_index<P: Paging>(&self, addr: VirtAddr) -> u64 {
        self.page_index::<P>(addr) >> self.huge_size().order::<P>()
    }
}
