//! The ledger: at quiescence every frame is free, or somebody can say what it is for.

use crate::commit::Pages;
use crate::file::PageCache;
use crate::frame::{Entries, Frame, PIN, Use};
use crate::mm::Mm;
use crate::oracle::Check;
use crate::system::System;
use crate::vma::{Vma, VmaFlags, VmaView};
use core::fmt;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{Grant, Mmu, Paging, Pte, Table, entries_of, span_shift, table_order};

/// Frames by use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// All frames of the machine.
    pub total: u64,
    /// Free.
    pub free: u64,
    /// The system's own.
    pub reserved: u64,
    /// Objects.
    pub slab: u64,
    /// Tables, in frames: some formats have tables larger than a page.
    pub tables: u64,
    /// Anonymous memory.
    pub anon: u64,
    /// Pages of files.
    pub file: u64,
}

/// What does not add up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unbalanced {
    /// A tree of mappings is not what lookups rely on.
    Tree(&'static str),
    /// Frames free and used do not add up to all.
    Total(Ledger),
    /// Frames used as tables, and tables that can be reached.
    Tables {
        /// Frames used as tables.
        used: u64,
        /// Frames of tables reachable from the roots.
        reachable: u64,
    },
    /// The reverse map of a file is not what walks rely on.
    Links(&'static str),
    /// A frame of user memory whose counts differ from the entries that map it, and the cache that
    /// has it.
    Counts {
        /// The frame.
        pfn: Pfn,
        /// Entries that map it.
        entries: u32,
        /// Its references.
        refs: u32,
        /// Its map count.
        maps: u32,
    },
    /// More pins on frames than anybody has.
    Pins {
        /// On frames.
        pinned: u64,
        /// In somebody's hands.
        pins: u64,
    },
    /// A frame that is said to be exclusive, but mapped more than once.
    Shared {
        /// The frame.
        pfn: Pfn,
        /// Entries that map it.
        entries: u32,
    },
    /// An entry that grants stores to a frame that is not exclusive.
    WritableShared(VirtAddr),
    /// An entry that names a frame which is no user memory, or not any more.
    NotAnon(VirtAddr),
    /// An entry that names another page than the mapping's file has there, or one that the file
    /// has not any more.
    OtherPage(VirtAddr),
    /// An entry that grants stores to a page of a file that is not marked dirty.
    WritableClean(VirtAddr),
    /// A page that cannot be found from its anon_vma: the mapping is not chained to that.
    NoReverseMap(VirtAddr),
    /// Objects that are in use, and those that can be reached from the address spaces.
    Objects {
        /// What they are.
        what: &'static str,
        /// How many are in use.
        live: u64,
        /// How many can be reached.
        reachable: u64,
    },
    /// An entry outside every mapping.
    Unmapped(VirtAddr),
    /// An entry that grants more than its mapping allows.
    TooMuch(VirtAddr),
    /// The resident count differs from the entries, where the configuration says it is exact.
    Resident {
        /// The number shown.
        shown: i64,
        /// Entries that map a frame.
        mapped: u64,
    },
    /// The size of an address space differs from its mappings, in pages.
    Size {
        /// The number kept.
        kept: u64,
        /// The pages of its mappings.
        mapped: u64,
    },
    /// The number of VMAs of an address space differs from its tree.
    Vmas {
        /// The number kept.
        kept: u64,
        /// Those in the tree.
        found: u64,
    },
    /// The count of locked pages differs from the locked mappings.
    Locked {
        /// The number kept.
        kept: u64,
        /// The pages of the locked mappings.
        locked: u64,
    },
    /// What is promised differs from the accounted mappings, in pages.
    Committed {
        /// The number kept.
        kept: i64,
        /// The pages of all accounted mappings.
        accounted: u64,
    },
}

impl fmt::Display for Unbalanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(what) => write!(f, "the tree of mappings: {what}"),
            Self::Total(ledger) => write!(f, "frames leaked or doubled: {ledger:?}"),
            Self::Tables { used, reachable } => {
                write!(f, "{used} frames hold tables, {reachable} can be reached")
            }
            Self::Counts {
                pfn,
                entries,
                refs,
                maps,
            } => write!(
                f,
                "frame {pfn} is mapped by {entries} entries, but has refs {refs} and map count \
                 {maps}"
            ),
            Self::Pins { pinned, pins } => write!(f, "{pinned} pins on frames, {pins} held"),
            Self::Shared { pfn, entries } => {
                write!(
                    f,
                    "frame {pfn} is exclusive, but mapped by {entries} entries"
                )
            }
            Self::WritableShared(at) => {
                write!(
                    f,
                    "the entry at {at} grants stores to a page that is not exclusive"
                )
            }
            Self::Links(why) => f.write_str(why),
            Self::OtherPage(at) => {
                write!(
                    f,
                    "the entry at {at} names no page of the file that is mapped there"
                )
            }
            Self::WritableClean(at) => {
                write!(
                    f,
                    "the entry at {at} grants stores to a page that nobody would write back"
                )
            }
            Self::NotAnon(at) => {
                write!(f, "the entry at {at} names a frame that is no user memory")
            }
            Self::NoReverseMap(at) => {
                write!(f, "the page at {at} is not found from its anon_vma")
            }
            Self::Objects {
                what,
                live,
                reachable,
            } => write!(
                f,
                "{live} objects of kind {what} are in use, {reachable} can be reached"
            ),
            Self::Unmapped(at) => write!(f, "an entry at {at} lies in no mapping"),
            Self::TooMuch(at) => write!(f, "the entry at {at} grants more than its mapping allows"),
            Self::Resident { shown, mapped } => {
                write!(
                    f,
                    "the resident count is {shown}, but {mapped} frames are mapped"
                )
            }
            Self::Size { kept, mapped } => {
                write!(
                    f,
                    "the size is kept as {kept}, but {mapped} pages are mapped"
                )
            }
            Self::Vmas { kept, found } => {
                write!(f, "{kept} mappings are counted, but {found} are there")
            }
            Self::Locked { kept, locked } => {
                write!(f, "{kept} pages are counted as locked, but {locked} are")
            }
            Self::Committed { kept, accounted } => {
                write!(
                    f,
                    "{kept} pages are promised, but {accounted} are accounted"
                )
            }
        }
    }
}

impl core::error::Error for Unbalanced {}

/// Objects by kind.
#[derive(Default)]
struct Objects {
    mms: u64,
    vmas: u64,
    attrs: u64,
    nodes: u64,
    chains: u64,
    uffds: u64,
    caches: u64,
    cache_nodes: u64,
    links: u64,
}

impl Objects {
    fn add(&mut self, other: &Self) {
        self.vmas += other.vmas;
        self.attrs += other.attrs;
        self.nodes += other.nodes;
        self.chains += other.chains;
        self.uffds += other.uffds;
        self.links += other.links;
    }
}

/// Sums over one address space.
#[derive(Default)]
struct Walked {
    tables: u64,
    mapped: u64,
    vmas: Pages,
    objects: Objects,
}

impl<M: Mmu> System<M> {
    /// Checks that all frames and counts add up, given every address space that is alive. Only
    /// while nothing else runs.
    ///
    /// # Errors
    /// The first thing that does not add up.
    pub fn check_ledger(&self, alive: &[&Mm<M>]) -> Result<Ledger, Unbalanced> {
        self.drain_deferred();
        self.looked(Check::Ledger);
        let mut ledger = Ledger {
            total: self.frames.table.len(),
            free: self.frames.count_free(),
            reserved: self.reserved_frames(),
            ..Ledger::default()
        };
        self.frames.for_each_used(|_, frame| match frame.used_as() {
            Use::Table => ledger.tables += 1 << frame.block_order(),
            Use::Slab => ledger.slab += 1,
            Use::Anon => {
                ledger.anon += 1;
                frame.count_entries(Entries::Clear);
            }
            Use::File => {
                ledger.file += 1;
                frame.count_entries(Entries::Clear);
            }
            Use::Free | Use::FreeBlock | Use::FreeCpu | Use::Reserved | Use::Tail => {}
        });
        let user = ledger.anon + ledger.file;
        let used = ledger.reserved + ledger.slab + ledger.tables + user;
        if ledger.free + used != ledger.total {
            return Err(Unbalanced::Total(ledger));
        }
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
        let (mut wrong, mut pinned) = (None, 0);
        self.frames.for_each_used(|pfn, frame| {
            let cached = match frame.used_as() {
                Use::Anon => 0,
                Use::File => u32::from(is_cached(pfn, frame)),
                _ => return,
            };
            wrong = wrong.or(frame_adds_up(pfn, frame, cached, &mut pinned).err());
        });
        wrong.map_or(Ok(()), Err)?;
        let pins: u64 = alive.iter().map(|mm| mm.pins.raw()).sum();
        // A pin of the page of zeros holds nothing.
        if pinned > pins {
            return Err(Unbalanced::Pins { pinned, pins });
        }
        let (kept, accounted) = (self.committed_raw(), vmas.accounted);
        if kept != accounted as i64 {
            return Err(Unbalanced::Committed { kept, accounted });
        }
        self.files_add_up(&mut objects)?;
        self.objects_add_up(&objects)?;
        Ok(ledger)
    }

    /// Whether each file's reverse map has the links of its mappings, and no other.
    fn files_add_up(&self, objects: &mut Objects) -> Result<(), Unbalanced> {
        let (mut wrong, mut links) = (None, 0);
        self.each_file(|cache| {
            objects.caches += 1;
            objects.cache_nodes += cache.nodes();
            match cache.links.validate() {
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
        let kinds = [
            ("mm", self.mms.live(), reached.mms),
            ("vma", self.vmas.live(), reached.vmas),
            ("attrs", self.attrs.live(), reached.attrs),
            ("tree node", self.nodes.live(), reached.nodes),
            ("anon_vma_chain", self.chains.live(), reached.chains),
            ("userfaultfd", self.uffds.live(), reached.uffds),
            ("userfault waiter", self.waiters.live(), 0),
            ("file", self.caches.live(), reached.caches),
            (
                "page cache node",
                self.cache_nodes.live(),
                reached.cache_nodes,
            ),
            ("file link", self.file_links.live(), reached.links),
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
        let (live, reachable) = (self.anon_vmas.live(), reached.chains);
        if live > reachable {
            let what = "anon_vma";
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
        self.walk_table(self.root, M::Paging::LEVELS - 1, 0, &mut walked)?;
        self.tree.validate().map_err(Unbalanced::Tree)?;
        let mut nodes = 0;
        self.tree.visit(
            &mut |vma| {
                walked.vmas.add(Pages::of::<M>(&vma.peek()));
                walked.objects.vmas += 1;
                walked.objects.attrs += u64::from(vma.attrs_ptr().is_some());
                walked.objects.chains += vma.chain_links();
                walked.objects.links += u64::from(vma.link() != 0);
            },
            &mut |_| nodes += 1,
        );
        walked.objects.nodes = nodes;
        walked.objects.uffds = self.count_contexts();
        let (kept, mapped) = (self.sizes.raw(), walked.vmas.mapped);
        if kept != mapped {
            return Err(Unbalanced::Size { kept, mapped });
        }
        let (kept, found) = (self.sizes.vmas_raw(), walked.objects.vmas);
        if kept != found {
            return Err(Unbalanced::Vmas { kept, found });
        }
        let (kept, locked) = (self.locks.raw(), walked.vmas.locked);
        if kept != locked {
            return Err(Unbalanced::Locked { kept, locked });
        }
        let config = &sys.config;
        if config.rss != crate::config::Rss::Sloppy {
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
        walked.tables += 1 << table_order::<M::Paging>(level);
        // SAFETY: 1: nothing else runs.
        let table = unsafe { Table::<M>::at(&self.system().at, table, level) };
        for index in 0..entries_of::<M::Paging>(level) as usize {
            let value = table.entry(index).peek();
            let at = base + ((index as u64) << span_shift::<M::Paging>(level));
            if at >= M::Paging::USER_END {
                // The kernel's half, where the machine has one.
                break;
            }
            if value.is_none_at(level) {
                continue;
            }
            if level > 0 {
                self.walk_table(value.pfn(), level - 1, at, walked)?;
            } else if value.is_mapped() {
                self.check_entry(VirtAddr(at), value, walked)?;
            }
        }
        Ok(())
    }

    fn check_entry(
        &self,
        at: VirtAddr,
        value: Pte<M::Paging>,
        walked: &mut Walked,
    ) -> Result<(), Unbalanced> {
        // SAFETY: 1: nothing else runs.
        let vma = unsafe { self.tree.at_or_before(at) };
        let covers = |vma: &&Vma<M>| vma.peek().range.contains(at);
        let vma = vma.filter(covers).ok_or(Unbalanced::Unmapped(at))?;
        if value.grant() > vma.peek().prot.grant() {
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
        if !vma.is_chained_to(frame.mapping.peek()) || frame.index.peek() != page {
            return Err(Unbalanced::NoReverseMap(at));
        }
        Ok(())
    }
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
