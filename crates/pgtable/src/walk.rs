//! Walking the tables: as software does, and as the hardware does.

use crate::entry::{Grant, Pte};
use crate::mmu::Mmu;
use crate::paging::{AccessBits, Paging};
use crate::table::{EntryRef, Exchange, Table, span_shift};
use crate::tlb::Rights;
use minflt_addr::{Pfn, VirtAddr};
use minflt_sync::Cost;

/// What an access wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An instruction fetch.
    Execute,
}

impl Access {
    /// The least grant that lets the access through, if the entry has the right by name
    /// ([`Pte::lets`]).
    #[must_use]
    pub const fn needs(self) -> Grant {
        match self {
            Self::Read | Self::Execute => Grant::Read,
            Self::Write => Grant::Write,
        }
    }
}

/// The leaf entry for an address, and the entry that led to its table.
#[derive(Debug)]
pub struct Leaf<'t, M: Mmu> {
    /// The leaf entry.
    pub entry: EntryRef<'t, M>,
    /// The table that contains it.
    pub table: Pfn,
    /// The entry that points to the table.
    pub parent: EntryRef<'t, M>,
    /// Its value when the walk read it.
    pub parent_value: Pte<M::Paging>,
}

impl<M: Mmu> Clone for Leaf<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Mmu> Copy for Leaf<'_, M> {}

/// Where a walk ended.
#[derive(Debug)]
pub enum Walk<'t, M: Mmu> {
    /// At a leaf.
    Leaf(Leaf<'t, M>),
    /// At an entry below which there is no table.
    Missing(Missing<'t, M>),
}

/// An entry below which there is no table: it is empty, or maps a huge page.
#[derive(Debug)]
pub struct Missing<'t, M: Mmu> {
    /// That entry.
    pub entry: EntryRef<'t, M>,
    /// Its level, 1 and up.
    pub level: u32,
    /// The table that contains it.
    pub table: Pfn,
}

/// Traverses the tables under `root` to the leaf entry for `addr`; each entry is read once.
///
/// # Safety
/// 1. The tables under `root` stay tables as long as `'t`.
#[inline(always)]
pub unsafe fn walk<M: Mmu>(at: &M::Instance, root: Pfn, addr: VirtAddr) -> Walk<'_, M> {
    let mut level = M::Paging::levels() - 1;
    // SAFETY: 1 of this function.
    let mut table = unsafe { Table::<M>::at(at, root, level) };
    loop {
        let entry = table.entry_for(addr, level);
        let value = entry.load_to_follow();
        if !value.is_table_at(level) {
            return Walk::Missing(Missing {
                entry,
                level,
                table: table.pfn(),
            });
        }
        level -= 1;
        // SAFETY: 1 of this function: a table entry names a table of the next level.
        table = unsafe { Table::<M>::at(at, value.pfn(), level) };
        if level == 0 {
            return Walk::Leaf(Leaf {
                entry: table.entry_for(addr, 0),
                table: table.pfn(),
                parent: entry,
                parent_value: value,
            });
        }
    }
}

/// Traverses the tables under `root` to the entry of level `level` (1 and up) for `addr`, whatever
/// it says, as a [`Leaf`] of that level; each entry is read once.
///
/// # Errors
/// The entry, above that, below which a table is missing.
///
/// # Safety
/// 1. The tables under `root` stay tables as long as `'t`.
pub unsafe fn walk_to<M: Mmu>(
    at: &M::Instance,
    root: Pfn,
    addr: VirtAddr,
    level: u32,
) -> Result<Leaf<'_, M>, Missing<'_, M>> {
    let mut here = M::Paging::levels() - 1;
    // SAFETY: 1 of this function.
    let mut table = unsafe { Table::<M>::at(at, root, here) };
    let mut parent = table.entry_for(addr, here);
    let mut parent_value = Pte::none_at(here);
    while here > level {
        parent = table.entry_for(addr, here);
        parent_value = parent.load_to_follow();
        if !parent_value.is_table_at(here) {
            return Err(Missing {
                entry: parent,
                level: here,
                table: table.pfn(),
            });
        }
        here -= 1;
        // SAFETY: 1 of this function: a table entry names a table of the next level.
        table = unsafe { Table::<M>::at(at, parent_value.pfn(), here) };
    }
    Ok(Leaf {
        entry: table.entry_for(addr, here),
        table: table.pfn(),
        parent,
        parent_value,
    })
}

/// What the hardware's walker says to an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hardware {
    /// The access may go on to this frame.
    Hit {
        /// The frame.
        pfn: Pfn,
        /// What a buffered translation may serve.
        rights: Rights,
    },
    /// A page fault.
    Fault,
    /// The entry grants the access, but a low-level handler has to set its bits first.
    WantsBits,
}

/// Walks as the hardware does, and sets the accessed and dirty bits where the hardware does that.
///
/// The caller has interrupts off: freeing a table first waits for this CPU to acknowledge a TLB
/// flush, so the tables stay.
///
/// # Safety
/// 1. The tables under `root` stay tables until interrupts are on again.
#[inline]
pub unsafe fn hardware_walk<M: Mmu>(
    at: &M::Instance,
    root: Pfn,
    addr: VirtAddr,
    access: Access,
) -> Hardware {
    M::charge(Cost::Walk);
    // SAFETY: 1 of this function.
    let (entry, huge) = match unsafe { walk::<M>(at, root, addr) } {
        Walk::Leaf(leaf) => (leaf.entry, None),
        // What is not a huge page grants nothing, as an empty entry does.
        Walk::Missing(Missing { entry, level, .. }) => match M::Paging::huge() {
            Some(huge) if level <= huge.top => (entry, Some(level)),
            _ => return Hardware::Fault,
        },
    };
    let within = huge.map_or(0, |level| {
        let order = span_shift::<M::Paging>(level) - M::Paging::shift();
        addr.page(M::Paging::shift()) & ((1 << order) - 1)
    });
    let mut pte = entry.load();
    loop {
        // A table was put in meanwhile.
        if huge.is_some_and(|level| pte.is_table_at(level)) {
            return Hardware::Fault;
        }
        if !pte.lets(access) {
            return Hardware::Fault;
        }
        let used = match access_bits::<M>(at) {
            AccessBits::Hardware => pte.used_by_hardware(access),
            _ if with_bits(pte, access) == pte => pte,
            AccessBits::Handler => return Hardware::WantsBits,
            AccessBits::Fault | AccessBits::ByCpu(_) => return Hardware::Fault,
        };
        if used != pte
            && let Err(found) = entry.cas(Exchange::Native, pte, used)
        {
            pte = found;
            continue;
        }
        // A clean page is entered read-only, so that the first store walks again and marks it.
        let writable = used.grant() == Grant::Write && used.is_dirty();
        return Hardware::Hit {
            pfn: Pfn(pte.pfn().0 + within),
            rights: Rights {
                writable,
                exec: used.exec(),
            },
        };
    }
}

/// Who sets the accessed and dirty bits on the CPUs of this machine.
#[inline(always)]
fn access_bits<M: Mmu>(at: &M::Instance) -> AccessBits {
    M::Paging::caps()
        .access_bits
        .on_cpu(|feature| M::cpu_has(at, feature))
}

/// The entry after an access of this kind.
#[inline(always)]
#[must_use]
pub fn with_bits<P: Paging>(pte: Pte<P>, access: Access) -> Pte<P> {
    match access {
        Access::Read | Access::Execute => pte.young(),
        Access::Write => pte.young().dirty(),
    }
}
