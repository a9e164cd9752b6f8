//! `pagemap`: what each page's entry maps.
//!
//! Linux: fs/proc/task_mmu.c pagemap_pmd_range (v6.18), of which these are the bits 63, 62 and 61.

use crate::base::attrs::VmaView;
use crate::entry::zap::pages;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Leaf, Missing, Mmu, NonPresent, Paging, Table, Walk, span_of, walk};
use minflt_sync::Ordering;

/// What a page's entry maps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mapped {
    /// Nothing.
    #[default]
    Nothing,
    /// A page of the address space's own, or the page of zeros.
    Private,
    /// A page of a file, shared anonymous memory among them.
    OfFile,
    /// A page that is swapped out.
    Swapped,
}

impl<M: Mmu> Mm<M> {
    /// Says of each page from `start` on, which begins a page, what its entry maps. Nothing is
    /// faulted in by that. A moment later it may be otherwise.
    ///
    /// # Context
    /// Sleeps for `mmap_lock`, which it takes for reading, for each table anew.
    pub fn pagemap(&self, start: VirtAddr, found: &mut [Mapped]) {
        found.fill(Mapped::Nothing);
        let len = found.len() as u64 * M::Paging::page();
        let user = VirtRange::new(VirtAddr(0), VirtAddr(M::Paging::user_end()));
        let asked = VirtRange::from_len(start, len).map(|asked| asked.intersect(user));
        if let Some(asked) = asked {
            as_call(self.system(), || self.look_up_pages(asked, found));
        }
    }

    /// As [`Mm::pagemap`], for the part `asked` that can be mapped, which begins where it does.
    fn look_up_pages(&self, asked: VirtRange, found: &mut [Mapped]) {
        let mut at = asked.start();
        while at < asked.end() {
            let guard = self.mmap_lock.read();
            let view = self.held(&guard).find(at).map(Vma::view);
            let Some(view) = view.filter(|view| view.range.overlaps(asked)) else {
                break;
            };
            at = at.max(view.range.start());
            let end = view.range.intersect(asked).end();
            if view.is_huge() {
                let here = view.huge_size().page_at::<M::Paging>(at);
                let here = here.intersect(VirtRange::new(at, end));
                let skipped = VirtRange::new(asked.start(), at).pages(M::Paging::shift()) as usize;
                let pages = here.pages(M::Paging::shift()) as usize;
                found[skipped..skipped + pages].fill(self.huge_mapped(&view, at));
                at = here.end();
                continue;
            }
            // SAFETY: 1: `mmap_lock` keeps tables.
            at = match unsafe { walk::<M>(&self.system().at, self.root, at) } {
                Walk::Leaf(leaf) => {
                    let here = span_of::<M::Paging>(at, 1).intersect(VirtRange::new(at, end));
                    let skipped = VirtRange::new(asked.start(), at).pages(M::Paging::shift());
                    self.map_table(leaf, here, &mut found[skipped as usize..]);
                    here.end()
                }
                Walk::Missing(Missing { level, .. }) => {
                    span_of::<M::Paging>(at, level).end().min(end)
                }
            };
        }
    }

    /// What the entry of a huge page maps. The caller holds `mmap_lock`.
    fn huge_mapped(&self, view: &VmaView, at: VirtAddr) -> Mapped {
        let Some(cache) = view.cache::<M>() else {
            return Mapped::Nothing;
        };
        // Keeps tables that others share.
        let _tree = cache.i_mmap.read();
        let found = self
            .huge_entry(view.huge_size(), at)
            .map(|leaf| leaf.entry.load());
        let found = found.ok().filter(|pte| pte.is_mapped());
        let Some(found) = found else {
            return Mapped::Nothing;
        };
        let frame = self.system().huge_frame(found.pfn());
        let owner = frame.mapping.load(Ordering::Relaxed);
        match cache.address() == owner {
            true => Mapped::OfFile,
            false => Mapped::Private,
        }
    }

    /// Looks at the entries of one table.
    fn map_table(&self, leaf: Leaf<'_, M>, span: VirtRange, found: &mut [Mapped]) {
        let sys = self.system();
        let _held = self.table_lock(leaf.table).lock();
        for (page, found) in pages::<M>(span).zip(found) {
            // SAFETY: 1: a table, kept by `mmap_lock`.
            let table = unsafe { Table::<M>::at(&sys.at, leaf.table, 0) };
            let pte = table.entry_for(page.start(), 0).load().unmoved();
            if sys.is_of_file(pte) {
                *found = Mapped::OfFile;
            } else if pte.is_mapped() {
                *found = Mapped::Private;
            } else if let Some(NonPresent::Swap(_)) = pte.nonpresent() {
                *found = Mapped::Swapped;
            }
        }
    }
}
