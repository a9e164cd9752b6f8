//! The ledger: at quiescence every frame is free, or its use is known.

use super::chains::{ChainsSeen, LastLinked};
use super::huge::{HugeObjects, sharers_add_up};
use super::slots::Named;
use super::unbalanced::{Ledger, Unbalanced};
use crate::base::attrs::{Prot, VmaFlags, VmaView};
use crate::base::check::Check;
use crate::memory::commit::Pages;
use crate::memory::frame::{Entries, Frame, PIN, Use};
use crate::mm::Mm;
use crate::pages::file::PageCache;
use crate::space::arenas::divide::Counted;
use crate::space::arenas::look::Held;
use crate::space::vma::Vma;
use crate::system::System;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{
    Grant, Mmu, NonPresent, Paging, Pte, Table, entries_of, span_shift, table_order,
};

/// Objects by kind.
#[derive(Default)]
struct Objects {
    mms: u64,
    vmas: u64,
    attrs: u64,
    nodes: u64,
    chains: ChainsSeen,
    uffds: u64,
    caches: u64,
    cache_nodes: u64,
    links: u64,
    segments: u64,
    huge: HugeObjects,
    slots: Named,
    arenas: Counted,
}

impl Objects {
    fn add(&mut self, other: &Self) {
        self.vmas += other.vmas;
        self.attrs += other.attrs;
        self.nodes += other.nodes;
        self.chains.add(&other.chains);
        self.uffds += other.uffds;
        self.links += other.links;
        self.huge.add(&other.huge);
        self.arenas.add(other.arenas);
        self.slots.times += other.slots.times;
        self.slots.weight = self.slots.weight.wrapping_add(other.slots.weight);
    }
}

/// Sums over one address space.
#[derive(Default)]
struct Walked {
    tables: u64,
    mapped: u64,
    vmas: Pages,
    objects: Objects,
    linked: LastLinked,
}

impl<M: Mmu> System<M> {
    /// Checks that all frames and counts add up, of all address spaces alive. Nothing else runs.
    ///
    /// # Errors
    /// The first thing that does not add up.
    pub fn check_ledger(&self, alive: &[&Mm<M>]) -> Result<Ledger, Unbalanced> {
        M::run_jobs(&self.at);
        self.drain_deferred();
        self.looked(Check::Ledger);
        let mut ledger = Ledger {
            total: self.frames.table.len(),
            free: self.frames.count_free(),
            reserved: self.reserved_frames() + self.swap.frames(),
            absent: self.absent,
            ..Ledger::default()
        };
        self.frames.for_each_used(|_, frame| match frame.used_as() {
            Use::Table => {
                ledger.tables += 1 << frame.block_order();
                frame.forget_sharers_seen();
            }
            Use::Slab => ledger.slab += 1,
            Use::Kernel => {
                ledger.kernel += 1 << frame.block_order();
                frame.count_entries(Entries::Clear);
            }
            Use::Huge => {
                ledger.huge += 1 << frame.block_order();
                frame.count_entries(Entries::Clear);
            }
            Use::Anon => {
                ledger.anon += 1;
                frame.count_entries(Entries::Clear);
            }
            Use::File => {
                ledger.file += 1;
                frame.count_entries(Entries::Clear);
            }
            _ => {}
        });
        if ledger.free + ledger.used() != ledger.total {
            return Err(Unbalanced::Total(ledger));
        }
        self.frames.huge_adds_up().map_err(Unbalanced::Pools)?;
        let mut reachable = 0;
        let mut vmas = Pages::default();
        let mut objects = Objects {
            mms: alive.len() as u64,
            ..Objects::default()
        };
        for mm in alive {
            let walked = mm.validate()?;
            reachable += walked.tables;
            vmas.add(walked.vmas);
            objects.add(&walked.objects);
        }
        if reachable != ledger.tables {
            return Err(Unbalanced::Tables {
                used: ledger.tables,
                reachable,
            });
        }
        let pinned = self.user_memory_adds_up(&mut objects)?;
        let pins: u64 = alive.iter().map(|mm| mm.pins.raw()).sum();
        // A pin of the zero page holds nothing.
        if pinned > pins {
            return Err(Unbalanced::Pins { pinned, pins });
        }
        self.promises_add_up(vmas.accounted, &mut objects)?;
        ledger.swapped = self.slots_add_up(objects.slots)?;
        self.files_add_up(&mut objects)?;
        self.reservations_add_up(&objects.huge)?;
        self.objects_add_up(&objects)?;
        ledger.link_steps = objects.chains.add_up().map_err(Unbalanced::Links)?;
        Ok(ledger)
    }

    /// Whether each frame of user memory, and each table that is shared, has the counts that were
    /// seen to be due; how many pins frames have.
    fn user_memory_adds_up(&self, objects: &mut Objects) -> Result<u64, Unbalanced> {
        let (mut wrong, mut pinned) = (None, 0);
        self.frames.for_each_used(|pfn, frame| {
            let cached = match frame.used_as() {
                Use::Huge if frame.refs.peek() == 0 => return,
                Use::Table => {
                    wrong = wrong.or(sharers_add_up(pfn, frame).err());
                    return;
                }
                Use::Anon | Use::File | Use::Huge if frame.is_busy() => {
                    wrong = wrong.or(Some(Unbalanced::Busy(pfn)));
                    return;
                }
                Use::Anon => 0,
                // Its holder is the embedding kernel.
                Use::Kernel => 1,
                Use::File => u32::from(is_cached(pfn, frame)),
                Use::Huge => {
                    let cached = is_cached(pfn, frame);
                    if cached {
                        objects.huge.add_cached(self.frames.size_of(frame));
                    }
                    u32::from(cached)
                }
                _ => return,
            };
            wrong = wrong.or(frame_adds_up(pfn, frame, cached, &mut pinned).err());
        });
        wrong.map_or(Ok(()), Err)?;
        Ok(pinned)
    }

    /// Whether what is promised is what was promised for mappings and for segments.
    fn promises_add_up(&self, mappings: u64, objects: &mut Objects) -> Result<(), Unbalanced> {
        let mut accounted = mappings;
        self.each_segment(|segment| {
            objects.segments += 1;
            accounted += segment.peek().0;
        });
        let kept = self.committed_raw();
        if kept == accounted as i64 {
            Ok(())
        } else {
            Err(Unbalanced::Committed { kept, accounted })
        }
    }

    /// Whether each slot of the swap device counts those entries that name it, and no other is in
    /// use; how many are.
    fn slots_add_up(&self, named: Named) -> Result<u64, Unbalanced> {
        let (mut counted, mut used) = (Named::default(), 0);
        for slot in 0..self.swap.slots() {
            let word = self.swap.peek(slot);
            counted.add(slot, u64::from(word));
            used += u64::from(word != 0);
        }
        if counted != named {
            let (counted, named) = (counted.times, named.times);
            return Err(Unbalanced::Slots { counted, named });
        }
        Ok(used)
    }

    /// Whether each file's reverse map has the links of its mappings, and no other.
    fn files_add_up(&self, objects: &mut Objects) -> Result<(), Unbalanced> {
        let (mut wrong, mut links) = (None, 0);
        self.each_file(|cache| {
            objects.caches += 1;
            objects.cache_nodes += cache.nodes();
            if let Err(why) = objects.huge.add_file(cache) {
                wrong = Some(why);
            }
            let attached = cache.segment_peek().map(|segment| segment.peek().1);
            match cache.spans.validate() {
                Ok(found) if attached.is_some_and(|attached| attached != found) => {
                    wrong = Some("a segment counts other mappings than it has");
                }
                Ok(found) if found <= cache.refs_raw() => links += found,
                Ok(_) => wrong = Some("a file has more mappings than references"),
                Err(why) => wrong = Some(why),
            }
        });
        if links != objects.links {
            wrong = wrong.or(Some("links of files and mappings of files are not as many"));
        }
        wrong.map_or(Ok(()), |why| Err(Unbalanced::Links(why)))
    }

    /// Whether nothing is in use that nobody reaches.
    fn objects_add_up(&self, reached: &Objects) -> Result<(), Unbalanced> {
        let (files, huge, arenas) = (&self.files, &self.huge, self.arenas_in_use());
        let kinds = [
            ("mm", self.mms.live(), reached.mms),
            ("vma", self.vmas.live(), reached.vmas),
            ("attrs", self.attrs.live(), reached.attrs),
            ("tree node", self.nodes.live(), reached.nodes),
            ("anon_vma_chain", self.chains.live(), reached.chains.links),
            ("userfaultfd", self.uffds.live(), reached.uffds),
            ("userfault waiter", self.waiters.live(), 0),
            ("file", files.caches.live(), reached.caches),
            ("page cache node", files.nodes.live(), reached.cache_nodes),
            ("file link", files.links.live(), reached.links),
            ("segment", self.shm.slab.live(), reached.segments),
            ("region", huge.regions.live(), reached.huge.regions),
            ("hugetlb VMA lock", huge.locks.live(), reached.huge.locks),
            ("pages set aside", huge.owns.live(), reached.huge.owns),
            ("arenas", arenas.divisions, reached.arenas.divisions),
            ("arena shelf", arenas.shelves, reached.arenas.shelves),
            ("arena", arenas.arenas, reached.arenas.arenas),
        ];
        let wrong = kinds.into_iter().find(|(_, live, reach)| live != reach);
        if let Some((what, live, reachable)) = wrong {
            return Err(Unbalanced::Objects {
                what,
                live,
                reachable,
            });
        }
        // Each that is in use has a link.
        let (what, live, reachable) = ("anon_vma", self.anon_vmas.live(), reached.chains.links);
        if live > reachable {
            return Err(Unbalanced::Objects {
                what,
                live,
                reachable,
            });
        }
        Ok(())
    }
}

/// Whether the cache that a frame names has it.
fn is_cached<M: Mmu>(pfn: Pfn, frame: &Frame<M>) -> bool {
    let cache = PageCache::<M>::at(frame.mapping.peek());
    cache.is_some_and(|cache| cache.peek(frame.index.peek()) == Some(pfn))
}

/// Whether a frame of user memory has the counts that the entries seen ask for, and `cached`
/// references of a cache.
fn frame_adds_up<M: Mmu>(
    pfn: Pfn,
    frame: &Frame<M>,
    cached: u32,
    pinned: &mut u64,
) -> Result<(), Unbalanced> {
    let entries = frame.count_entries(Entries::Keep);
    let (refs, maps) = (frame.refs.peek(), frame.maps.peek());
    let pins = refs / PIN;
    *pinned += u64::from(pins);
    if (refs % PIN, maps) != (entries + cached, entries) || entries + cached + pins == 0 {
        return Err(Unbalanced::Counts {
            pfn,
            entries,
            refs,
            maps,
        });
    }
    if frame.is_exclusive() && entries > 1 {
        return Err(Unbalanced::Shared { pfn, entries });
    }
    Ok(())
}

impl<M: Mmu> Mm<M> {
    /// Walks every table and checks every entry against its mapping and its frame.
    fn validate(&self) -> Result<Walked, Unbalanced> {
        let sys = self.system();
        sys.looked(Check::Tables);
        let mut walked = Walked::default();
        self.walk_table(self.root, M::Paging::levels() - 1, 0, &mut walked)?;
        self.validate_trees().map_err(Unbalanced::Tree)?;
        let (mut nodes, mut lost) = (0, None);
        self.visit_vmas(&mut |vma| {
            let vma = vma.get();
            walked.vmas.add(Pages::of::<M>(&vma.peek()));
            walked.objects.vmas += 1;
            walked.objects.attrs += u64::from(vma.attrs_ptr().is_some());
            walked.objects.links += u64::from(vma.link() != 0);
            if let Err(why) = walked.objects.huge.add_mapping(vma) {
                lost = Some(why);
            }
            if !vma.link_agrees() {
                lost = Some("a mapping of a file is not where its link says");
            }
            if let Err(why) = walked.objects.chains.add_mapping(vma) {
                lost = Some(why);
            }
        });
        self.visit_nodes(&mut |_| nodes += 1);
        walked.objects.arenas.add(self.count_arenas());
        lost.map_or(Ok(()), |why| Err(Unbalanced::Links(why)))?;
        walked.objects.nodes = nodes;
        walked.objects.uffds = self.count_contexts();
        let ((kept, vmas), mapped) = (self.sizes_raw(), walked.vmas.mapped);
        if kept != mapped {
            return Err(Unbalanced::Size { kept, mapped });
        }
        let (kept, found) = (vmas, walked.objects.vmas);
        if kept != found {
            return Err(Unbalanced::Vmas { kept, found });
        }
        let (kept, locked) = (self.locks.raw(), walked.vmas.locked);
        if kept != locked {
            return Err(Unbalanced::Locked { kept, locked });
        }
        if self.counts_exactly() {
            let shown = self.resident_raw();
            if shown != walked.mapped as i64 {
                return Err(Unbalanced::Resident {
                    shown,
                    mapped: walked.mapped,
                });
            }
        }
        Ok(walked)
    }

    fn walk_table(
        &self,
        table: Pfn,
        level: u32,
        base: u64,
        walked: &mut Walked,
    ) -> Result<(), Unbalanced> {
        if self.system().frames.get(table).was_seen_by_sharer() {
            return Ok(());
        }
        if self.system().frames.get(table).used_as() != Use::Table {
            return Err(Unbalanced::NoTable { table, level });
        }
        walked.tables += 1 << table_order::<M::Paging>(level);
        // SAFETY: 1: nothing else runs.
        let table = unsafe { Table::<M>::at(&self.system().at, table, level) };
        let shift = span_shift::<M::Paging>(level);
        // Up to the kernel's half, where the machine has one.
        let of_users = (M::Paging::user_end() - base).div_ceil(1 << shift);
        for index in 0..entries_of::<M::Paging>(level).min(of_users) {
            let value = table.entry(index as usize).peek();
            let at = base + (index << shift);
            if value.is_none_at(level) {
                continue;
            }
            if level > 0 && !value.is_table_at(level) {
                self.check_huge(VirtAddr(at), level, value)?;
            } else if level > 0 {
                self.check_shared(VirtAddr(at), level, value)?;
                self.walk_table(value.pfn(), level - 1, at, walked)?;
            } else if value.is_mapped() {
                self.check_entry(VirtAddr(at), value, walked)?;
            } else {
                self.check_away(VirtAddr(at), value, walked)?;
            }
        }
        Ok(())
    }

    /// An entry that says where its page is.
    fn check_away(
        &self,
        at: VirtAddr,
        value: Pte<M::Paging>,
        walked: &mut Walked,
    ) -> Result<(), Unbalanced> {
        match value.nonpresent() {
            Some(NonPresent::Swap(slot)) if slot < self.system().swap.slots() => {
                self.mapping_of(at)?;
                walked.objects.slots.add(slot, 1);
                Ok(())
            }
            Some(NonPresent::Swap(_)) => Err(Unbalanced::NoSlot(at)),
            _ => Err(Unbalanced::Moving(at)),
        }
    }

    /// The mapping that an entry lies in.
    pub(super) fn mapping_of(&self, at: VirtAddr) -> Result<&Vma<M>, Unbalanced> {
        // SAFETY: 1: nothing else runs.
        let vma = unsafe { Held::without_guard(self) }.at_or_before(at);
        let covers = |vma: &&Vma<M>| vma.peek().range.contains(at);
        vma.filter(covers).ok_or(Unbalanced::Unmapped(at))
    }

    fn check_entry(
        &self,
        at: VirtAddr,
        value: Pte<M::Paging>,
        walked: &mut Walked,
    ) -> Result<(), Unbalanced> {
        let vma = self.mapping_of(at)?;
        let prot = vma.peek().prot;
        if value.grant() > prot.grant() || is_other_exec(value, prot) {
            return Err(Unbalanced::TooMuch(at));
        }
        if value.is_zero_page() && value.pfn() == self.system().zero_page {
            return Ok(());
        }
        walked.mapped += 1;
        let frame = self.system().frames.get(value.pfn());
        if frame.used_as() == Use::File {
            frame.count_entries(Entries::One);
            return page_agrees(at, value, &vma.peek(), frame);
        }
        if frame.used_as() != Use::Anon {
            return Err(Unbalanced::NotAnon(at));
        }
        frame.count_entries(Entries::One);
        if value.grant() == Grant::Write && !frame.is_exclusive() {
            return Err(Unbalanced::WritableShared(at));
        }
        let page = vma.peek().page_index::<M::Paging>(at);
        let chains = &mut walked.objects.chains;
        if !chains.is_linked(&mut walked.linked, vma, frame.mapping.peek())
            || frame.index.peek() != page
        {
            return Err(Unbalanced::NoReverseMap(at));
        }
        Ok(())
    }
}

/// Whether an entry and its mapping say different things of instruction fetches. Where no bit says
/// it, an entry is as its mapping wants it.
pub(super) fn is_other_exec<P: Paging>(value: Pte<P>, prot: Prot) -> bool {
    value.is_present() && value.with_exec(prot.exec::<P>()) != value
}

/// Whether an entry names the page that the mapping has there.
fn page_agrees<M: Mmu>(
    at: VirtAddr,
    value: Pte<M::Paging>,
    view: &VmaView,
    frame: &Frame<M>,
) -> Result<(), Unbalanced> {
    let Some(cache) = view.cache::<M>() else {
        return Err(Unbalanced::OtherPage(at));
    };
    let page = view.page_index::<M::Paging>(at);
    let same = frame.mapping.peek() == cache.address() && frame.index.peek() == page;
    if !same || page >= cache.pages() {
        return Err(Unbalanced::OtherPage(at));
    }
    if value.grant() < Grant::Write {
        return Ok(());
    }
    if !view.flags.has(VmaFlags::SHARED) {
        return Err(Unbalanced::WritableShared(at));
    }
    if cache.writes_back() && !frame.is_dirty() {
        return Err(Unbalanced::WritableClean(at));
    }
    Ok(())
}
