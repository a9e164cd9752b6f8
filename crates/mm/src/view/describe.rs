//! Symbolic names of memory locations, for timelines and for reports of contended cache lines.

use crate::arenas::{Arena, Arenas, Shelf};
use crate::memory::alloc::pool::Pools;
use crate::memory::frame::{Frame, Use};
use crate::mm::Mm;
use crate::pages::file::links::FileLink;
use crate::pages::file::{CacheNode, PageCache};
use crate::pages::reserved::lock::HugeLock;
use crate::pages::reserved::own::OwnPages;
use crate::pages::reserved::reserve::Region;
use crate::pages::rmap::anon_vma::{AnonVma, Chain};
use crate::pages::segments::Segment;
use crate::pages::userfault as uffd;
use crate::space::tree::Node;
use crate::space::vma::{Attrs, Vma};
use crate::system::{CpuArea, System};
use core::fmt;
use core::mem::offset_of;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::order::MmapLock;
use minflt_sync::slab::FOOT;
use minflt_sync::{Instance, RwSem, RwSemPart, Word};

/// A place in a system's memory, as an object and a field of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The kind of object.
    pub object: &'static str,
    /// Which one: a frame number, a slot's place among all of its kind, or 0.
    pub number: u64,
    /// The field, or the entry's number in a table.
    pub field: Field,
}

/// Where in an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Field {
    /// A field with a name.
    Named(&'static str),
    /// An entry of a table.
    Entry(u64),
    /// A byte that no table of fields covers.
    Byte(u64),
}

impl Place {
    /// The lock whose word lies here, as its class is called; `None` where there is none.
    #[must_use]
    pub fn lock(&self) -> Option<&'static str> {
        let Field::Named(field) = self.field else {
            return None;
        };
        let field = field.split('.').next().unwrap_or(field);
        Some(match (self.object, field) {
            ("mm" | "arena", "mmap_lock") => "mmap_lock",
            ("arenas", "outer lock") => "arenas lock",
            ("mm", "page_table_lock") => "page_table_lock",
            ("frame", "table_lock") | ("linkers", _) => "page-table lock of a table",
            ("vma", "lock" | "refcnt") => "VMA lock",
            ("anon_vma", _) => "anon_vma lock",
            ("file", "i_mmap") => "i_mmap lock",
            ("file", "resize") => "file lock",
            ("frame", "flags") => "folio lock",
            ("zone", _) => "zone lock",
            ("system", field) if field.starts_with("slab of") => "slab lock",
            ("file", "reserving") => "hugetlb reserve lock",
            ("file", "map_lock") => "i_mmap lock, held by faults",
            ("fault mutex", _) => "hugetlb fault mutex",
            ("hugetlb vma lock", _) => "hugetlb VMA lock",
            ("system", "huge pages") => "hugetlb lock",
            ("system", "srcu" | "rcu") => "grace-period lock",
            ("per-cpu", "mailbox") => "shootdown: mailboxes and answers",
            ("per-cpu", "runs of frames") => "lock of a CPU's runs of frames",
            _ => return None,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object)?;
        if self.number != 0 {
            write!(f, " {}", self.number)?;
        }
        match self.field {
            Field::Named(name) => write!(f, ".{name}"),
            Field::Entry(entry) => write!(f, "[{entry}]"),
            Field::Byte(byte) => write!(f, "+{byte}"),
        }
    }
}

/// Start offsets of fields, ascending.
type Fields = &'static [(usize, &'static str)];

macro_rules! fields {
    ($type:ty: $($name:ident),+ $(,)?) => {{
        let mut fields = [$((offset_of!($type, $name), stringify!($name))),+];
        fields.sort_unstable();
        fields
    }};
}

fn find(fields: &[(usize, &'static str)], offset: usize) -> Field {
    let named = fields.iter().rev().find(|(start, _)| *start <= offset);
    named.map_or(Field::Byte(offset as u64), |(_, name)| Field::Named(name))
}

/// The name of a field that is a read-write lock, with its part.
const fn part(names: [&'static str; 4], part: RwSemPart) -> &'static str {
    names[part as usize]
}

impl<M: Mmu> System<M> {
    /// What lies `offset` bytes into the machine's memory.
    #[must_use]
    pub fn describe(&self, offset: u64) -> Place {
        let ram = self.at.ram().base as usize;
        let own = core::ptr::from_ref(self) as usize - ram;
        let at = offset as usize;
        if (own..own + size_of::<Self>()).contains(&at) {
            return Place {
                object: "system",
                number: 0,
                field: Self::own_field(at - own),
            };
        }
        let table = self.frames.table.base() as usize - ram;
        let bytes = self.total_frames() as usize * size_of::<Frame<M>>();
        if (table..table + bytes).contains(&at) {
            let index = ((at - table) / size_of::<Frame<M>>()) as u64;
            let number = self.frames.table.first().0 + index;
            let field = Frame::<M>::field_at((at - table) % size_of::<Frame<M>>());
            return Place {
                object: "frame",
                number,
                field: Field::Named(field),
            };
        }
        let index = offset >> M::Paging::shift();
        if index < self.reserved_frames() || index >= self.total_frames() {
            return self.in_areas(ram + at).unwrap_or(Place {
                object: "per-cpu",
                number: 0,
                field: Field::Byte(offset),
            });
        }
        let pfn = Pfn(self.frames.table.first().0 + index);
        self.in_frame(pfn, at & (M::Paging::page() as usize - 1))
    }

    fn own_field(offset: usize) -> Field {
        let pools = [
            offset_of!(Self, frames.huge),
            offset_of!(Self, frames.giant),
        ];
        let within = |at: usize| (at..at + size_of::<Pools<M>>()).contains(&offset);
        if pools.into_iter().any(within) {
            return Field::Named("huge pages");
        }
        let fields = fields!(Self: at, config, exchanges, frames, cpus, srcu, nodes, vmas,
            attrs, mms, anon_vmas, chains, uffds, waiters, zero_page, next_id, spaces, rcu, commit,
            rss_slots, stack_guard_gap, numa, swap, shm,
            huge);
        match find(&fields, offset) {
            Field::Named(name) => Field::Named(match name {
                "nodes" => "slab of tree nodes",
                "vmas" => "slab of vmas",
                "attrs" => "slab of attrs",
                "mms" => "slab of mms",
                "anon_vmas" => "slab of anon_vmas",
                "chains" => "slab of anon_vma_chains",
                "uffds" => "slab of userfaultfds",
                "waiters" => "slab of waiters",
                other => other,
            }),
            other => other,
        }
    }

    /// What lies at a host address among the areas of CPUs and the zones.
    fn in_areas(&self, at: usize) -> Option<Place> {
        let place = |object, number: u32, field| Place {
            object,
            number: u64::from(number),
            field: Field::Named(field),
        };
        if let Some((cpu, offset)) = self.cpus.find(at) {
            let fields = fields!(CpuArea<M>: events, checks, committed, slot, mailbox);
            return Some(Place {
                object: "per-cpu",
                number: u64::from(cpu),
                field: find(&fields, offset),
            });
        }
        let of_cpu = |field| move |cpu| place("per-cpu", cpu, field);
        let magazines = || {
            let slabs = [
                (self.nodes.magazine_at(at), "tree nodes"),
                (self.vmas.magazine_at(at), "vmas"),
                (self.attrs.magazine_at(at), "attrs"),
                (self.mms.magazine_at(at), "mms"),
                (self.anon_vmas.magazine_at(at), "anon_vmas"),
                (self.chains.magazine_at(at), "anon_vma_chains"),
                (self.uffds.magazine_at(at), "userfaultfds"),
                (self.waiters.magazine_at(at), "waiters"),
                (self.files.caches.magazine_at(at), "files"),
                (self.files.nodes.magazine_at(at), "page cache nodes"),
                (self.files.links.magazine_at(at), "file links"),
                (self.shm.slab.magazine_at(at), "segments"),
                (self.huge.regions.magazine_at(at), "regions"),
                (self.huge.locks.magazine_at(at), "hugetlb VMA locks"),
                (self.huge.owns.magazine_at(at), "pages set aside"),
                (self.arena_magazine_at(at), "arenas"),
            ];
            slabs
                .into_iter()
                .find_map(|(cpu, what)| Some(place("per-cpu", cpu?, what)))
        };
        let zone = |node| place("zone", node, "free lists");
        let slot = |number| Place {
            object: "swap slot",
            number,
            field: Field::Named("count"),
        };
        let groups = |number| Place {
            object: "swap groups",
            number,
            field: Field::Named("full"),
        };
        let pool = |node| place("node", node, "free huge pages");
        let mutex = |number| place("fault mutex", number, "lock");
        let rate = |(node, _)| place("node", node, "pages moved to it");
        let linkers = |(number, _)| place("linkers", number, "lock");
        (self.frames.list_at(at).map(of_cpu("free frames")))
            .or_else(|| self.frames.runs_at(at).map(of_cpu("runs of frames")))
            .or_else(|| self.srcu.cpu_at(at).map(of_cpu("srcu")))
            .or_else(|| self.rcu.cpu_at(at).map(of_cpu("rcu")))
            .or_else(|| self.rss_slots.cpu_at(at).map(of_cpu("rss")))
            .or_else(magazines)
            .or_else(|| self.frames.zone_at(at).map(zone))
            .or_else(|| self.swap.slot_at(at).map(slot))
            .or_else(|| self.swap.bits_at(at).map(groups))
            .or_else(|| self.frames.huge.node_at(at).map(pool))
            .or_else(|| self.frames.giant.node_at(at).map(pool))
            .or_else(|| self.numa.rates.find(at).map(rate))
            .or_else(|| self.huge.mutex_at(at).map(mutex))
            .or_else(|| self.linkers.find(at).map(linkers))
    }

    fn in_frame(&self, pfn: Pfn, offset: usize) -> Place {
        let frame = self.frames.get(pfn);
        match frame.used_as() {
            Use::Table => {
                let entry = offset / size_of::<<<M::Paging as Paging>::Word as Word>::Prim>();
                let object = match frame.level.peek() {
                    0 => "pte table",
                    1 => "pmd table",
                    2 => "pud table",
                    _ => "root table",
                };
                Place {
                    object,
                    number: pfn.0,
                    field: Field::Entry(entry as u64),
                }
            }
            Use::Slab => self.in_slab(pfn, frame.index.peek(), offset),
            _ => Place {
                object: "page",
                number: pfn.0,
                field: Field::Byte(offset as u64),
            },
        }
    }

    fn in_slab(&self, pfn: Pfn, slab: u64, offset: usize) -> Place {
        const NODE: Fields = &[(0, "node")];
        const ATTRS: Fields = &[(0, "attrs")];
        const CHAIN: Fields = &[(0, "chain")];
        const UFFD: Fields = &[(0, "context")];
        const WAITER: Fields = &[(0, "waiter")];
        const CACHE_NODE: Fields = &[(0, "slots")];
        const LINK: Fields = &[(0, "link")];
        const REGION: Fields = &[(0, "region")];
        const HUGE_LOCK: Fields = &[(0, "lock")];
        const OWN_PAGES: Fields = &[(0, "used")];
        const SHELF: Fields = &[(0, "arenas")];
        const SEGMENT: Fields = &[(0, "segment")];
        let place = |object, slot: usize, fields: &[(usize, &'static str)]| {
            let number = pfn.0 * 1000 + (offset / slot) as u64;
            Place {
                object,
                number,
                field: find(fields, offset % slot),
            }
        };
        if offset >= M::Paging::page() as usize - FOOT {
            return Place {
                object: "slab page",
                number: pfn.0,
                field: Field::Named("free slots"),
            };
        }
        match slab {
            0 => place("tree node", size_of::<Node<M>>(), NODE),
            1 => {
                let fields = fields!(Vma<M>: id, seq, attrs, anon_vma, first, chain,
                    callback, lock_seq, mm, refcnt, lock);
                place("vma", size_of::<Vma<M>>(), &fields)
            }
            2 => place("attrs", size_of::<Attrs>(), ATTRS),
            3 => Self::in_mm(place("mm", size_of::<Mm<M>>(), &Self::mm_fields()), offset),
            4 => {
                let fields = AnonVma::<M>::fields();
                place("anon_vma", size_of::<AnonVma<M>>(), &fields)
            }
            5 => place("anon_vma_chain", size_of::<Chain<M>>(), CHAIN),
            6 => place("userfaultfd", size_of::<uffd::Context>(), UFFD),
            7 => place("waiter", size_of::<uffd::Waiter>(), WAITER),
            8 => place("file", size_of::<PageCache<M>>(), &PageCache::<M>::fields()),
            9 => place("page cache node", size_of::<CacheNode<M>>(), CACHE_NODE),
            10 => place("file link", size_of::<FileLink<M>>(), LINK),
            11 => place("segment", size_of::<Segment<M>>(), SEGMENT),
            12 => place("region", size_of::<Region<M>>(), REGION),
            13 => place("hugetlb vma lock", size_of::<HugeLock<M>>(), HUGE_LOCK),
            14 => place("pages set aside", size_of::<OwnPages<M>>(), OWN_PAGES),
            15 => place("arenas", size_of::<Arenas<M>>(), &Arenas::<M>::fields()),
            16 => place("arena shelf", size_of::<Shelf<M>>(), SHELF),
            _ => place("arena", size_of::<Arena<M>>(), &Arena::<M>::fields()),
        }
    }

    fn mm_fields() -> [(usize, &'static str); 19] {
        fields!(Mm<M>: system, space, root, tree, users, lock_seq, cpus, rss_slot, heap, pins,
            uffd, limit_stack, sizes, locks, mmap_lock, rss, page_table_lock, flushes_pending,
            balance)
    }

    /// The same place, with the part of `mmap_lock` where it is one.
    fn in_mm(place: Place, offset: usize) -> Place {
        if place.field != Field::Named("mmap_lock") {
            return place;
        }
        let names = [
            "mmap_lock.count",
            "mmap_lock.owner",
            "mmap_lock.spinners",
            "mmap_lock.queue",
        ];
        let inside = offset % size_of::<Mm<M>>() - offset_of!(Mm<M>, mmap_lock);
        let name = part(names, RwSem::<MmapLock, M>::part_at(inside));
        Place {
            field: Field::Named(name),
            ..place
        }
    }
}
