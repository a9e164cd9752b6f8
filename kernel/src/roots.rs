//! Each CPU's own root, and its own tables below that, for address spaces that are divided.
//!
//! Why a CPU has its own, and why no freed table is linked there, is in `minflt-mm`
//! (`entry/linked.rs`). Here are the tables: one root and [`UPPERS`] of the level below, whose
//! entries lead to tables that map 1 GiB and belong to the address space. A CPU has them for the
//! address space that it loaded last; for another one they are emptied.
//!
//! # Cost
//! 68 KiB a CPU, at boot, in eras that have masks of CPUs for arenas. A fault for each GiB that a
//! CPU uses, again after it ran another divided address space. A CPU that uses more than
//! [`UPPERS`] areas of 512 GiB drops all links and begins again.

use core::ops::Range;
use core::{array, mem};

use minflt_addr::{Pfn, VirtRange};
use minflt_pgtable::SpaceId;
use minflt_sync::{Machine, Ordering};

use crate::acpi::MAX_CPUS;
use crate::arch::kernel_map;
use crate::arch::paging::{self, PAGE, PRESENT, Table, USER, WRITABLE, index};
use crate::frames;
use crate::machine::Kernel;
use crate::shared::{Once, StaticWord};

/// Tables of a CPU's own below its root, 512 GiB each.
const UPPERS: usize = 16;
/// The levels of their entries.
const ROOT: u32 = 4;
const UPPER: u32 = 3;
/// Bytes below an entry of an upper table.
const LINK: u64 = 1 << 30;
/// Entries of the root that are a program's.
const USER_ENTRIES: u64 = 256;
const ENTRIES: u64 = 512;

/// The tables of a CPU, which alone changes them.
#[derive(Clone, Copy, Debug)]
struct Tables {
    root: Table,
    uppers: [Table; UPPERS],
}

static TABLES: [Once<Tables>; MAX_CPUS] = [const { Once::new() }; MAX_CPUS];

/// 1 after [`keep_links`].
static KEPT: StaticWord = StaticWord::new(0);

/// What of its tables a CPU uses. The CPU alone has this, with interrupts off.
///
/// # Invariants
/// Entries of the root's lower half other than those of `uppers[..used]` are empty, and so are
/// entries of an upper table outside of its `linked`.
#[derive(Debug)]
pub(crate) struct Links {
    cpu: u32,
    space: Option<SpaceId>,
    uppers: [Upper; UPPERS],
    used: usize,
}

/// An upper table in use.
#[derive(Clone, Debug)]
struct Upper {
    /// The entry of the root that leads to it.
    at: u64,
    /// Among these are its entries that are not empty.
    linked: Range<u64>,
}

/// Makes the tables of all CPUs, `cpus`. On the boot CPU, before programs and before
/// [`frames::take_all`].
pub(crate) fn make(cpus: u32) {
    for tables in &TABLES[..cpus as usize] {
        let root = frames::table();
        root.share_kernel_half(kernel_map::root());
        let uppers = array::from_fn(|_| frames::table());
        tables.set(Tables { root, uppers });
    }
}

/// A control: links outlive the tables that they lead to.
pub(crate) fn keep_links() {
    KEPT.store(1, Ordering::Relaxed);
}

fn tables(cpu: u32) -> &'static Tables {
    match TABLES[cpu as usize].get() {
        Some(tables) => tables,
        None => panic!("CPU {cpu} has no root of its own"),
    }
}

impl Links {
    /// None.
    pub(crate) const fn new() -> Self {
        // INVARIANT: the tables are zeroed when they are made.
        Self {
            cpu: 0,
            space: None,
            uppers: [const {
                Upper {
                    at: 0,
                    linked: 0..0,
                }
            }; UPPERS],
            used: 0,
        }
    }

    /// The root of `cpu`, whose these are, for `space`: what it has of another one is gone. The
    /// caller loads it, and has what the hardware buffered of that flushed, or under another tag.
    pub(crate) fn root_for(&mut self, cpu: u32, space: SpaceId) -> Table {
        self.cpu = cpu;
        if self.space != Some(space) {
            self.clear();
            self.space = Some(space);
        }
        tables(cpu).root
    }

    /// Whether they are those of `space`.
    pub(crate) fn are_of(&self, space: SpaceId) -> bool {
        self.space == Some(space)
    }

    /// Nothing of `space` is linked any more.
    pub(crate) fn forget(&mut self, space: SpaceId) {
        if self.are_of(space) {
            self.clear();
            self.space = None;
        }
    }

    /// Whether there is a link for `addr`.
    pub(crate) fn has(&self, addr: u64) -> bool {
        let upper = tables(self.cpu).root.child(index(addr, ROOT));
        upper.is_some_and(|upper| upper.entry(index(addr, UPPER)) & PRESENT != 0)
    }

    /// Links what `entry` leads to for `addr`; false if all links had to go for it, so that what
    /// the hardware buffered of them is to be flushed.
    pub(crate) fn add(&mut self, addr: u64, entry: u64) -> bool {
        let at = index(addr, ROOT);
        let Tables { root, uppers } = tables(self.cpu);
        let known = self.uppers[..self.used].iter().position(|it| it.at == at);
        let fits = known.is_some() || self.used < UPPERS;
        let number = known.unwrap_or_else(|| {
            if !fits {
                self.clear();
            }
            let number = self.used;
            self.uppers[number] = Upper { at, linked: 0..0 };
            self.used += 1;
            let rights = PRESENT | WRITABLE | USER;
            // SAFETY: (1) nothing was mapped here, and an empty table maps nothing.
            unsafe { root.set(at, uppers[number].phys() | rights) };
            number
        });
        let at = index(addr, UPPER);
        let linked = &mut self.uppers[number].linked;
        *linked = if linked.is_empty() {
            at..at + 1
        } else {
            linked.start.min(at)..linked.end.max(at + 1)
        };
        // SAFETY: (1) the address space maps the same there, for ring 3 only; nothing was mapped.
        unsafe { uppers[number].set(at, entry) };
        fits
    }

    /// Drops the links to tables whose span may be within `range`, which is to be flushed: a table
    /// that is freed is.
    pub(crate) fn drop_within(&mut self, range: VirtRange) {
        let bytes = range.end().0 - range.start().0;
        if self.used == 0 || bytes < LINK || KEPT.load(Ordering::Relaxed) == 1 {
            return;
        }
        let gone = range.start().0 / LINK..range.end().0.div_ceil(LINK);
        let tables = tables(self.cpu);
        for (upper, table) in self.uppers[..self.used].iter().zip(&tables.uppers) {
            let first = upper.at * ENTRIES;
            let from = gone.start.clamp(first, first + ENTRIES) - first;
            let to = gone.end.clamp(first, first + ENTRIES) - first;
            for at in upper.linked.start.max(from)..upper.linked.end.min(to) {
                // SAFETY: (1) an empty entry maps nothing; the caller flushes the range.
                unsafe { table.set(at, 0) };
            }
        }
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        if self.used == 0 {
            return;
        }
        let Tables { root, uppers } = tables(self.cpu);
        for (upper, table) in self.uppers[..self.used].iter_mut().zip(uppers) {
            // SAFETY: (1) empty entries map nothing; the caller flushes what was buffered.
            unsafe { root.set(upper.at, 0) };
            for at in mem::take(&mut upper.linked) {
                // SAFETY: (1) as above.
                unsafe { table.set(at, 0) };
            }
        }
        self.used = 0;
    }
}

/// An oracle: `pfn` gets new contents, so it is no table that a CPU has a link to.
#[inline(always)]
pub(crate) fn is_not_linked(pfn: Pfn) {
    if Kernel::CHECKED {
        for (cpu, tables) in TABLES.iter().enumerate() {
            let Some(Tables { root, .. }) = tables.get() else {
                return;
            };
            let uppers = (0..USER_ENTRIES).filter_map(|at| root.child(at));
            let mut links = uppers.flat_map(|upper| (0..ENTRIES).map(move |at| upper.entry(at)));
            let is_it =
                |entry: u64| entry & PRESENT != 0 && (entry & paging::ADDRESS) / PAGE == pfn.0;
            if links.any(is_it) {
                Kernel::violation(format_args!(
                    "frame {pfn} is used again, and CPU {cpu} has a link to it"
                ));
            }
        }
    }
}
