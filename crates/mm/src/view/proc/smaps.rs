//! `smaps`: memory use of each mapping.

use super::{FileNames, kib, maps};
use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::entry::walk::Tables;
use crate::memory::lifetime::as_call;
use crate::mm::Mm;
use crate::space::arenas::lock::Over;
use crate::space::vma::Vma;
use core::fmt::{self, Write};
use minflt_addr::VirtRange;
use minflt_pgtable::{Leaf, Mmu, NonPresent, Paging, Pte};
use minflt_sync::Ordering;

/// Parts of a page, which its users share.
const PSS_SHIFT: u32 = 12;

/// Pages of one mapping, by what they are.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    private_clean: u64,
    private_dirty: u64,
    shared_clean: u64,
    shared_dirty: u64,
    referenced: u64,
    /// Pages, each divided by the number of entries that map it, in parts.
    pss: u64,
    pss_dirty: u64,
    /// Those of them that are of no file.
    anonymous: u64,
    /// Pages that are swapped out, and the same divided by the number of entries that name each.
    swapped: u64,
    swap_pss: u64,
}

impl Counts {
    pub(super) const fn swapped(&self) -> u64 {
        self.swapped
    }

    pub(super) const fn of_files(&self) -> u64 {
        self.resident() - self.anonymous
    }

    const fn resident(&self) -> u64 {
        self.private_clean + self.private_dirty + self.shared_clean + self.shared_dirty
    }

    /// One more page, which `maps` entries name.
    fn add<P: Paging>(&mut self, pte: Pte<P>, maps: u64) {
        let dirty = pte.is_dirty();
        let kind = match (maps > 1, dirty) {
            (false, false) => &mut self.private_clean,
            (false, true) => &mut self.private_dirty,
            (true, false) => &mut self.shared_clean,
            (true, true) => &mut self.shared_dirty,
        };
        *kind += 1;
        self.referenced += u64::from(pte.is_young());
        let part = (1 << PSS_SHIFT) / maps.max(1);
        self.pss += part;
        self.pss_dirty += if dirty { part } else { 0 };
    }
}

impl<M: Mmu> Mm<M> {
    /// Writes the text of `/proc/PID/smaps`: a line as in `maps` for each mapping, and lines about
    /// its memory: those of Linux's fields that there is something to say about.
    ///
    /// # Context
    /// As [`Mm::maps`]. The pages of a mapping are counted a table at a time, so that they may be
    /// of different moments.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn smaps(&self, out: &mut impl Write) -> fmt::Result {
        self.smaps_with(&(), out)
    }

    /// The same, with files named by `names`.
    ///
    /// # Context
    /// As [`Mm::smaps`]. `names` is called with nothing held.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn smaps_with(&self, names: &impl FileNames, out: &mut impl Write) -> fmt::Result {
        self.each_line(|line| {
            let counts = self.count_pages(line.view.range);
            maps::write_line(out, &line, names)?;
            write_counts::<M>(out, &line.view, &counts)
        })
    }

    /// Counts the pages of `range`, letting `mmap_lock` go after each table. What was unmapped
    /// meanwhile is left out: munmap may be freeing tables there.
    pub(super) fn count_pages(&self, range: VirtRange) -> Counts {
        as_call(self.system(), || self.count_tables(range))
    }

    fn count_tables(&self, range: VirtRange) -> Counts {
        let mut counts = Counts::default();
        let mut at = range.start();
        while at < range.end() {
            let guard = self.read(Over::Range(VirtRange::new(at, range.end())));
            let held = guard.held();
            let view = held.find(at).map(Vma::view);
            let Some(view) = view.filter(|view| view.range.overlaps(range)) else {
                break;
            };
            at = at.max(view.range.start());
            let range = view.range.intersect(range);
            if view.is_huge() {
                // Huge pages do not count as resident.
                at = range.end();
                continue;
            }
            let (table, part) = held.tables().part(at, range);
            if let Some(leaf) = table {
                count_table(held.tables(), leaf, part, &mut counts);
            }
            at = part.end();
        }
        counts
    }
}

/// Counts the pages of one table. The shared zero page is nobody's.
fn count_table<M: Mmu>(
    tables: Tables<'_, M>,
    leaf: Leaf<'_, M>,
    part: VirtRange,
    counts: &mut Counts,
) {
    let sys = tables.system();
    tables.each_entry(leaf, part, |_, entry| {
        let pte = entry.load().unmoved();
        if pte.is_mapped() && !pte.is_zero_page() {
            counts.anonymous += u64::from(!sys.is_of_file(pte));
            let maps = sys.frames.get(pte.pfn()).maps.load(Ordering::Relaxed);
            counts.add(pte, u64::from(maps));
        } else if let Some(NonPresent::Swap(slot)) = pte.nonpresent() {
            counts.swapped += 1;
            counts.swap_pss += (1 << PSS_SHIFT) / sys.swap.names(slot).max(1);
        }
    });
}

fn write_counts<M: Mmu>(out: &mut impl Write, view: &VmaView, counts: &Counts) -> fmt::Result {
    let parts = |parts: u64| (parts << M::Paging::shift() >> PSS_SHIFT) >> 10;
    let locked = if view.flags.has(VmaFlags::LOCKED) {
        parts(counts.pss)
    } else {
        0
    };
    let page = if view.is_huge() {
        1 << view.huge_size().order::<M::Paging>()
    } else {
        1
    };
    let fields = [
        ("Size:", kib::<M>(view.range.pages(M::Paging::shift()))),
        ("KernelPageSize:", kib::<M>(page)),
        ("MMUPageSize:", kib::<M>(page)),
        ("Rss:", kib::<M>(counts.resident())),
        ("Pss:", parts(counts.pss)),
        ("Pss_Dirty:", parts(counts.pss_dirty)),
        ("Shared_Clean:", kib::<M>(counts.shared_clean)),
        ("Shared_Dirty:", kib::<M>(counts.shared_dirty)),
        ("Private_Clean:", kib::<M>(counts.private_clean)),
        ("Private_Dirty:", kib::<M>(counts.private_dirty)),
        ("Referenced:", kib::<M>(counts.referenced)),
        ("Anonymous:", kib::<M>(counts.anonymous)),
        ("Swap:", kib::<M>(counts.swapped)),
        ("SwapPss:", parts(counts.swap_pss)),
        ("Locked:", locked),
    ];
    for (name, value) in fields {
        writeln!(out, "{name:<16}{value:>8} kB")?;
    }
    write_flags(out, view)
}

/// Linux's two letters for each flag, in the order of Linux's bits.
fn write_flags(out: &mut impl Write, view: &VmaView) -> fmt::Result {
    out.write_str("VmFlags: ")?;
    let rights = [
        (Prot::READ, "rd "),
        (Prot::WRITE, "wr "),
        (Prot::EXEC, "ex "),
    ];
    for (right, text) in rights {
        if view.prot.has(right) {
            out.write_str(text)?;
        }
    }
    // What may never be stored to is shared by name only (`VM_MAYSHARE` without `VM_SHARED`).
    let never = view.flags.has(VmaFlags::NEVER_WRITTEN);
    let shared = view.flags.has(VmaFlags::SHARED);
    if shared && !never {
        out.write_str("sh ")?;
    }
    // Which rights may be asked for later.
    out.write_str(if never { "mr me " } else { "mr mw me " })?;
    if shared {
        out.write_str("ms ")?;
    }
    for (flag, text) in FLAGS {
        if view.flags.has(*flag) {
            out.write_str(text)?;
        }
    }
    out.write_char('\n')
}

const FLAGS: &[(VmaFlags, &str)] = &[
    (VmaFlags::GROWS_DOWN, "gd "),
    (VmaFlags::UFFD_MISSING, "um "),
    (VmaFlags::UFFD_WP, "uw "),
    (VmaFlags::LOCKED, "lo "),
    (VmaFlags::SEQUENTIAL, "sr "),
    (VmaFlags::RANDOM, "rr "),
    (VmaFlags::DONT_FORK, "dc "),
    (VmaFlags::LOCKED_ON_FAULT, "lf "),
    (VmaFlags::ACCOUNT, "ac "),
    (VmaFlags::NORESERVE, "nr "),
    (VmaFlags::HUGETLB, "ht "),
    (VmaFlags::WIPE_ON_FORK, "wf "),
    (VmaFlags::DONT_DUMP, "dd "),
    (VmaFlags::HUGE_PAGE, "hg "),
    (VmaFlags::NO_HUGE_PAGE, "nh "),
];
