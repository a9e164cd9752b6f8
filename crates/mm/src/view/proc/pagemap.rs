//! `pagemap`: what the PTE of each page maps.
//!
//! Linux: fs/proc/task_mmu.c pagemap_pmd_range (v6.18), of which these are the bits 63, 62 and 61.

use crate::base::attrs::VmaView;
use crate::entry::walk::Tables;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_pgtable::{Leaf, Mmu, NonPresent, Paging};
use minflt_sync::Ordering;

/// What a page's entry maps.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mapped {
    /// Nothing.
    #[default]
    Nothing,
    /// A page of the address space's own, or the zero page.
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
            let guard = self.read(Over::Range(VirtRange::new(at, asked.end())));
            let held = guard.held();
            let view = held.find(at).map(Vma::view);
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
                found[skipped..skipped + pages].fill(huge_mapped(held, &view, at));
                at = here.end();
                continue;
            }
            let (table, part) = held.tables().part(at, VirtRange::new(at, end));
            if let Some(leaf) = table {
                let skipped = VirtRange::new(asked.start(), at).pages(M::Paging::shift());
                map_table(held.tables(), leaf, part, &mut found[skipped as usize..]);
            }
            at = part.end();
        }
    }
}

/// What the entry of a huge page maps.
fn huge_mapped<M: Mmu>(held: Held<'_, M>, view: &VmaView, at: VirtAddr) -> Mapped {
    let Some(cache) = view.cache::<M>() else {
        return Mapped::Nothing;
    };
    // Keeps tables that others share.
    let _tree = cache.i_mmap.read();
    let found = held
        .tables()
        .huge_entry(view.huge_size(), at)
        .map(|leaf| leaf.entry.load());
    let found = found.ok().filter(|pte| pte.is_mapped());
    let Some(found) = found else {
        return Mapped::Nothing;
    };
    let frame = held.system().huge_frame(found.pfn());
    let owner = frame.mapping.load(Ordering::Relaxed);
    match cache.address() == owner {
        true => Mapped::OfFile,
        false => Mapped::Private,
    }
}

/// Looks at the entries of one table.
fn map_table<M: Mmu>(
    tables: Tables<'_, M>,
    leaf: Leaf<'_, M>,
    part: VirtRange,
    found: &mut [Mapped],
) {
    let mut found = found.iter_mut();
    tables.each_entry(leaf, part, |_, entry| {
        let Some(found) = found.next() else { return };
        let pte = entry.load().unmoved();
        if tables.system().is_of_file(pte) {
            *found = Mapped::OfFile;
        } else if pte.is_mapped() {
            *found = Mapped::Private;
        } else if let Some(NonPresent::Swap(_)) = pte.nonpresent() {
            *found = Mapped::Swapped;
        }
    });
}
