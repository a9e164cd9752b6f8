//! A mapping, and which two are alike enough to be one.

use crate::abi::{PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::file::Opened;
use crate::huge::HUGE;
use crate::policy::Policy;
use crate::{PAGE, STACK_GAP};

/// What a mapping is beside its range: a set of Linux's `VM_` flags, access rights among them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(u32);

#[expect(missing_docs, reason = "Linux's names say it")]
impl Flags {
    pub const NONE: Self = Self(0);
    pub const READ: Self = Self(1);
    pub const WRITE: Self = Self(1 << 1);
    pub const EXEC: Self = Self(1 << 2);
    pub const ACCOUNT: Self = Self(1 << 3);
    pub const NORESERVE: Self = Self(1 << 4);
    pub const LOCKED: Self = Self(1 << 5);
    pub const LOCKONFAULT: Self = Self(1 << 6);
    pub const GROWSDOWN: Self = Self(1 << 7);
    pub const RAND_READ: Self = Self(1 << 8);
    pub const SEQ_READ: Self = Self(1 << 9);
    pub const DONTCOPY: Self = Self(1 << 10);
    pub const WIPEONFORK: Self = Self(1 << 11);
    pub const DONTDUMP: Self = Self(1 << 12);
    pub const HUGEPAGE: Self = Self(1 << 13);
    pub const NOHUGEPAGE: Self = Self(1 << 14);
    pub const MERGEABLE: Self = Self(1 << 15);
    /// Stores go to the file: a shared mapping of a file that was opened for them.
    pub const SHARED: Self = Self(1 << 16);
    /// As the caller of mmap said.
    pub const MAYSHARE: Self = Self(1 << 17);
    pub const MAYWRITE: Self = Self(1 << 18);
    pub const UFFD_MISSING: Self = Self(1 << 19);
    pub const UFFD_WP: Self = Self(1 << 20);
    pub const HUGETLB: Self = Self(1 << 21);

    /// Any access at all (`VM_ACCESS_FLAGS`).
    pub const ACCESS: Self = Self(0b111);
    /// Both kinds of lock (`VM_LOCKED_MASK`).
    pub const LOCKS: Self = Self(0b11 << 5);
    /// What a userfaultfd watches for (`__VM_UFFD_FLAGS`).
    pub const UFFD: Self = Self(0b11 << 19);

    /// The flags with the two letters that `smaps` prints for each.
    pub const LETTERS: [(Self, &'static str); 21] = [
        (Self::READ, "rd"),
        (Self::WRITE, "wr"),
        (Self::EXEC, "ex"),
        (Self::ACCOUNT, "ac"),
        (Self::NORESERVE, "nr"),
        (Self::LOCKED, "lo"),
        (Self::GROWSDOWN, "gd"),
        (Self::RAND_READ, "rr"),
        (Self::SEQ_READ, "sr"),
        (Self::DONTCOPY, "dc"),
        (Self::WIPEONFORK, "wf"),
        (Self::DONTDUMP, "dd"),
        (Self::HUGEPAGE, "hg"),
        (Self::NOHUGEPAGE, "nh"),
        (Self::MERGEABLE, "mg"),
        (Self::SHARED, "sh"),
        (Self::MAYSHARE, "ms"),
        (Self::MAYWRITE, "mw"),
        (Self::UFFD_MISSING, "um"),
        (Self::UFFD_WP, "uw"),
        (Self::HUGETLB, "ht"),
    ];

    /// The rights that a `prot` argument gives.
    #[must_use]
    pub const fn of_prot(prot: u64) -> Self {
        Self((prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) as u32)
    }

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those of `self` that are also in `other`.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether any of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vma {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// Rights and the rest.
    pub flags: Flags,
    /// The file it is of; none for private anonymous memory.
    pub file: Option<Opened>,
    /// Where its pages lie in the file; without one, where they would lie in an object: what keeps
    /// pages of moved mappings apart.
    pub pgoff: u64,
    /// Where its pages come from.
    pub policy: Policy,
    /// Which anon_vma its pages hang on; none before the first store.
    pub(crate) anon: Option<u64>,
    /// Whether pages of a parent process hang on it, too: its chain of anon_vmas is not singular.
    pub(crate) forked: bool,
    /// Of a private mapping of huge pages that reserved some: where those stand that it has used.
    pub(crate) own: Option<u64>,
}

impl Vma {
    /// Pages of it.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE
    }

    /// Bytes of a page of it.
    pub(crate) const fn unit(&self) -> u64 {
        if self.flags.has(Flags::HUGETLB) {
            HUGE
        } else {
            PAGE
        }
    }

    /// Whether anything was stored to it, or was going to be.
    #[must_use]
    pub const fn has_anon(&self) -> bool {
        self.anon.is_some()
    }

    /// Its offset at `addr`.
    pub(crate) const fn pgoff_at(&self, addr: u64) -> u64 {
        self.pgoff + (addr - self.start) / PAGE
    }

    /// The part of it in `[start, end)`.
    pub(crate) fn part(&self, start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            pgoff: self.pgoff_at(start),
            ..self.clone()
        }
    }

    /// Where what stays free below it begins. Linux: include/linux/mm.h vm_start_gap.
    pub(crate) const fn start_gap(&self) -> u64 {
        if self.flags.has(Flags::GROWSDOWN) {
            self.start.saturating_sub(STACK_GAP)
        } else {
            self.start
        }
    }

    /// Whether it can take in its neighbour `other`, or what `other` shall become: alike, its pages
    /// in line, and their anon_vmas no two.
    ///
    /// Linux: mm/vma.c is_mergeable_vma, is_mergeable_anon_vma, can_vma_merge_before and _after.
    pub(crate) fn takes_in(&self, other: &Self) -> bool {
        let in_line = if self.end == other.start {
            self.pgoff_at(self.end) == other.pgoff
        } else {
            other.end == self.start && other.pgoff_at(other.end) == self.pgoff
        };
        let anon = match (self.anon, other.anon) {
            (None, Some(_)) => !other.forked,
            (Some(_), None) => !self.forked,
            (mine, its) => mine == its,
        };
        let alike =
            self.flags == other.flags && self.policy == other.policy && self.file == other.file;
        in_line && anon && alike && !self.flags.has(Flags::HUGETLB)
    }

    /// Whether a first store to `self` may share the anon_vma of its neighbour `other`.
    ///
    /// Linux: mm/vma.c anon_vma_compatible, reusable_anon_vma.
    pub(crate) fn lends_anon(&self, other: &Self) -> Option<u64> {
        let (low, high) = if self.start < other.start {
            (self, other)
        } else {
            (other, self)
        };
        let alike = low.end == high.start
            && low.pgoff_at(low.end) == high.pgoff
            && low.policy == high.policy
            && low.file == high.file
            && low.flags.without(Flags::ACCESS) == high.flags.without(Flags::ACCESS);
        other.anon.filter(|_| alike && !other.forked)
    }
}
