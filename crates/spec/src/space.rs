//! The list of mappings, and how it changes: found, split, modified, merged.

use crate::access::ExecAlone;
use crate::file::{File, Words};
use crate::huge::{HUGE, Pool};
use crate::policy::Policy;
use crate::vma::{Flags, Vma};
use crate::{Errno, PAGE, Result};
use minflt_addr::{VirtAddr, VirtRange};
use std::collections::{BTreeMap, BTreeSet};

/// What is present at a page of private memory; every other page is absent, or the file's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// The zero page that all read.
    Zero,
    /// A page of its own, with the words known of it.
    Own(Words),
}

impl Page {
    /// The words known of it.
    #[must_use]
    pub const fn words(self) -> Words {
        match self {
            Self::Zero => [0; 2],
            Self::Own(words) => words,
        }
    }
}

/// An address space.
#[derive(Clone, Debug)]
pub struct Space {
    pub(crate) window: VirtRange,
    pub(crate) exec_alone: ExecAlone,
    /// Sorted; no two overlap.
    pub(crate) vmas: Vec<Vma>,
    /// By page number.
    pub(crate) pages: BTreeMap<u64, Page>,
    /// Pages among them whose stores a userfaultfd decides.
    pub(crate) protected: BTreeSet<u64>,
    pub(crate) files: Vec<File>,
    pub(crate) next_anon: u64,
    pub(crate) start_brk: u64,
    pub(crate) brk: u64,
    /// What mlockall says of mappings to come (`def_flags`).
    pub(crate) future: Flags,
    /// Pages that count as locked (`locked_vm`).
    pub(crate) locked_pages: u64,
    /// Whether what lies outside the window is locked.
    pub(crate) outside_locked: bool,
    /// `RLIMIT_MEMLOCK`, in bytes.
    pub(crate) memlock: u64,
    /// `RLIMIT_AS`, in pages beside what lies outside the window.
    pub(crate) as_pages: u64,
    pub(crate) policy: Policy,
    /// Huge pages of private mappings, by their number.
    pub(crate) huge: BTreeMap<u64, u64>,
    /// Which of its reserved huge pages each mapping has used.
    pub(crate) used: BTreeMap<u64, BTreeSet<u64>>,
    pub(crate) pool: Pool,
    /// Files that stay, whether they are mapped or not.
    pub(crate) known_files: usize,
    /// The process that waits while this one runs.
    pub(crate) other: Option<Box<Self>>,
}

impl Space {
    /// An empty address space with an empty heap at `brk`, and no limits.
    #[must_use]
    pub fn new(window: VirtRange, brk: u64) -> Self {
        Self {
            window,
            exec_alone: ExecAlone::Loads,
            vmas: Vec::new(),
            pages: BTreeMap::new(),
            protected: BTreeSet::new(),
            files: Vec::new(),
            next_anon: 1,
            start_brk: brk,
            brk,
            future: Flags::NONE,
            locked_pages: 0,
            outside_locked: false,
            memlock: u64::MAX,
            as_pages: u64::MAX,
            policy: Policy::Default,
            huge: BTreeMap::new(),
            used: BTreeMap::new(),
            pool: Pool::default(),
            known_files: 0,
            other: None,
        }
    }

    /// Says what `PROT_EXEC` alone allows; loads, too, until this is called.
    pub const fn set_exec_alone(&mut self, exec_alone: ExecAlone) {
        self.exec_alone = exec_alone;
    }

    /// The mappings, in order.
    #[must_use]
    pub fn vmas(&self) -> &[Vma] {
        &self.vmas
    }

    /// The pages of private memory that are present, by number, in order.
    pub fn pages(&self) -> impl Iterator<Item = (u64, Page)> {
        self.pages.iter().map(|(number, page)| (*number, *page))
    }

    /// Whether the model knows what lies in `[start, start + len)`.
    #[must_use]
    pub fn knows(&self, start: u64, len: u64) -> bool {
        let end = start.checked_add(len);
        start >= self.window.start().0 && end.is_some_and(|end| end <= self.window.end().0)
    }

    /// Sets `RLIMIT_MEMLOCK`, in bytes; all ones for a process that needs to respect none.
    pub fn limit_memlock(&mut self, bytes: u64) {
        self.memlock = bytes;
    }

    /// Sets `RLIMIT_AS` so that this many pages of the window may be mapped.
    pub fn limit_as(&mut self, pages: u64) {
        self.as_pages = pages;
    }

    /// The mapping at `addr`.
    #[must_use]
    pub fn at(&self, addr: u64) -> Option<&Vma> {
        self.lookup(addr).map(|index| &self.vmas[index])
    }

    /// The index of the mapping at `addr`. Linux: vma_lookup.
    pub(crate) fn lookup(&self, addr: u64) -> Option<usize> {
        let index = self.find(addr);
        let vma = self.vmas.get(index)?;
        (vma.start <= addr).then_some(index)
    }

    /// The index of the first mapping that ends after `addr`; of none, how many there are. Linux:
    /// find_vma.
    pub(crate) fn find(&self, addr: u64) -> usize {
        self.vmas.partition_point(|vma| vma.end <= addr)
    }

    /// Whether nothing is mapped in `[start, end)`.
    pub(crate) fn is_free(&self, start: u64, end: u64) -> bool {
        let inside = VirtRange::new(VirtAddr(start), VirtAddr(end));
        let next = self.vmas.get(self.find(start));
        self.window.covers(inside) && next.is_none_or(|next| next.start >= end)
    }

    /// Whether `pages` more may be mapped. Linux: may_expand_vm.
    pub(crate) fn may_expand(&self, pages: u64) -> bool {
        let mapped: u64 = self.vmas.iter().map(Vma::pages).sum();
        mapped.saturating_add(pages) <= self.as_pages
    }

    /// Cuts the mapping that `addr` lies within in two.
    ///
    /// # Errors
    /// Within a huge page: nothing is changed. Linux: hugetlb_vm_op_split.
    pub(crate) fn split(&mut self, addr: u64) -> Result<()> {
        if let Some(index) = self.lookup(addr)
            && self.vmas[index].start < addr
        {
            let whole = self.vmas[index].clone();
            if whole.flags.has(Flags::HUGETLB) && !addr.is_multiple_of(HUGE) {
                return Err(Errno::EINVAL);
            }
            self.vmas[index] = whole.part(whole.start, addr);
            self.vmas.insert(index + 1, whole.part(addr, whole.end));
        }
        Ok(())
    }

    /// Puts a mapping in where nothing is mapped, and merges it with the neighbours that take it
    /// in. Returns its index. Linux: vma_merge_new_range.
    pub(crate) fn insert(&mut self, new: Vma) -> usize {
        let index = self.find(new.start);
        self.put(index, new)
    }

    /// As [`Self::insert`], but merges with the mapping below only (`just_expand`).
    pub(crate) fn extend(&mut self, new: Vma) -> usize {
        let index = self.find(new.start);
        if index > 0 && self.vmas[index - 1].takes_in(&new) {
            let below = &mut self.vmas[index - 1];
            below.end = new.end;
            return index - 1;
        }
        self.vmas.insert(index, new);
        index
    }

    /// Gives `[start, end)` of the mapping at `index` other flags and another policy: merged with
    /// a neighbour that takes it in, or else split off. Returns the index of what it became.
    ///
    /// # Errors
    /// As [`Self::split`], at the one end or at the other.
    ///
    /// Linux: mm/vma.c vma_modify, vma_merge_existing_range.
    pub(crate) fn modify(
        &mut self,
        index: usize,
        range: (u64, u64),
        flags: Flags,
        policy: Policy,
    ) -> Result<usize> {
        let (start, end) = range;
        if self.vmas[index].flags.has(Flags::HUGETLB) {
            self.split(start)?;
            self.split(end)?;
            let index = self.find(start);
            self.vmas[index].flags = flags;
            self.vmas[index].policy = policy;
            return Ok(index);
        }
        let whole = self.vmas[index].clone();
        let mut rest = Vec::new();
        if whole.start < start {
            rest.push(whole.part(whole.start, start));
        }
        let at = index + rest.len();
        let changed = Vma {
            flags,
            policy,
            ..whole.part(start, end)
        };
        rest.push(changed.clone());
        if end < whole.end {
            rest.push(whole.part(end, whole.end));
        }
        self.vmas.splice(index..=index, rest);
        self.vmas.remove(at);
        Ok(self.put(at, changed))
    }

    /// Puts `new` in before index `at`, where its neighbours are.
    fn put(&mut self, at: usize, new: Vma) -> usize {
        let below = at > 0 && self.vmas[at - 1].takes_in(&new);
        let above = self.vmas.get(at).is_some_and(|above| above.takes_in(&new));
        // Each of the two goes with the new one; that does not say that they go with each other.
        let both = below && above && {
            let (below, above) = (self.vmas[at - 1].anon, self.vmas[at].anon);
            below.is_none() || above.is_none() || below == above
        };
        if below {
            if both {
                let above = self.vmas.remove(at);
                let kept = &mut self.vmas[at - 1];
                kept.end = above.end;
                kept.inherit_anon(&above);
            } else {
                self.vmas[at - 1].end = new.end;
            }
            self.vmas[at - 1].inherit_anon(&new);
            return at - 1;
        }
        if above {
            let kept = &mut self.vmas[at];
            kept.start = new.start;
            kept.pgoff = new.pgoff;
            kept.inherit_anon(&new);
            return at;
        }
        self.vmas.insert(at, new);
        at
    }

    /// Takes everything in `[start, end)` out. Linux: do_vmi_align_munmap.
    ///
    /// # Errors
    /// As [`Self::split`]; what was cut before stays so.
    pub(crate) fn unmap(&mut self, start: u64, end: u64) -> Result<()> {
        self.cut_out(start, end)?;
        self.forget_files();
        Ok(())
    }

    /// The same, but files stay, whoever has them.
    pub(crate) fn cut_out(&mut self, start: u64, end: u64) -> Result<()> {
        if start == end {
            return Ok(());
        }
        self.split(start)?;
        self.split(end)?;
        self.discard(start, end);
        let gone = |vma: &Vma| vma.start >= start && vma.end <= end;
        let (gone, kept) = core::mem::take(&mut self.vmas).into_iter().partition(gone);
        self.vmas = kept;
        let gone: Vec<Vma> = gone;
        for vma in &gone {
            if vma.flags.has(Flags::LOCKED) {
                self.locked_pages = self.locked_pages.saturating_sub(vma.pages());
            }
            self.give_back_own(vma);
        }
        Ok(())
    }

    /// Takes the pages in `[start, end)` out.
    pub(crate) fn discard(&mut self, start: u64, end: u64) {
        let range = start / PAGE..end / PAGE;
        self.pages.retain(|page, _| !range.contains(page));
        self.protected.retain(|page| !range.contains(page));
        self.discard_huge(start, end);
    }
}

impl Vma {
    /// Takes over the anon_vma of a mapping that becomes part of it. Linux: dup_anon_vma.
    fn inherit_anon(&mut self, other: &Self) {
        if self.anon.is_none() {
            self.anon = other.anon;
            self.forked = other.forked;
        }
    }
}
