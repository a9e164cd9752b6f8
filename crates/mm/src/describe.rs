//! What lies where: names for places in a system's memory, for timelines and for "which line
//! limits".

use crate::anon_vma::{AnonVma, Chain};
use crate::frame::{Frame, Use};
use crate::mm::Mm;
use crate::system::System;
use crate::tree::Node;
use crate::vma::{Attrs, Vma};
use core::fmt;
use core::mem::offset_of;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Instance, Word};

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

impl<M: Mmu> System<M> {
    /// What lies `offset` bytes into the machine's memory.
    #[must_use]
    pub fn describe(&self, offset: u64) -> Place {
        let ram = self.at.ram().base as usize;
        let own = core::ptr::from_ref(self) as usize - ram;
        let at = offset as usize;
        if (own..own + size_of::<Self>()).contains(&at) {
            let fields = fields!(Self: at, config, exchanges, frames, cpus, srcu, nodes, vmas,
                attrs, mms, anon_vmas, chains, zero_page, rcu);
            return Place {
                object: "system",
                number: 0,
                field: find(&fields, at - own),
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
        let index = offset >> M::Paging::SHIFT;
        if index < self.reserved_frames() || index >= self.total_frames() {
            return Place {
                object: "per-cpu",
                number: 0,
                field: Field::Byte(offset),
            };
        }
        let pfn = Pfn(self.frames.table.first().0 + index);
        self.in_frame(pfn, at & (M::Paging::PAGE as usize - 1))
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
        const ANON: Fields = &[(0, "anon_vma")];
        const CHAIN: Fields = &[(0, "chain")];
        let place = |object, slot: usize, fields: &[(usize, &'static str)]| {
            let number = pfn.0 * 1000 + (offset / slot) as u64;
            Place {
                object,
                number,
                field: find(fields, offset % slot),
            }
        };
        match slab {
            0 => place("tree node", size_of::<Node<M>>(), NODE),
            1 => {
                let fields = fields!(Vma<M>: id, seq, attrs, anon_vma, first, chain,
                    callback, lock_seq, mm, refcnt, lock);
                place("vma", size_of::<Vma<M>>(), &fields)
            }
            2 => place("attrs", size_of::<Attrs>(), ATTRS),
            3 => {
                let fields = fields!(Mm<M>: system, space, root, mmap_lock, tree,
                    page_table_lock, lock_seq, rss, flushes_pending, cpus);
                place("mm", size_of::<Mm<M>>(), &fields)
            }
            4 => place("anon_vma", size_of::<AnonVma<M>>(), ANON),
            _ => place("anon_vma_chain", size_of::<Chain<M>>(), CHAIN),
        }
    }
}
