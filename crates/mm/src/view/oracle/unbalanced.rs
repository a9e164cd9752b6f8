//! Results of the ledger: frames by use, or the first discrepancy.

use core::fmt;
use minflt_addr::{Pfn, VirtAddr};

/// Frames by use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    /// All frames of the machine, those in holes included.
    pub total: u64,
    /// No memory: in holes between the machine's ranges.
    pub absent: u64,
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
    /// Huge pages, in frames: in pools and in use.
    pub huge: u64,
    /// The embedding kernel's ([`crate::KernelPages`]), in frames.
    pub kernel: u64,
    /// Slots of the swap device that are in use; no frames.
    pub swapped: u64,
    /// Steps along links of mappings to anon_vmas, and through the trees of these, that it took to
    /// check them; no frames.
    pub link_steps: u64,
}

impl Ledger {
    /// Frames that are not free.
    pub(super) const fn used(&self) -> u64 {
        let system = self.absent + self.reserved + self.slab + self.tables;
        system + self.anon + self.file + self.huge + self.kernel
    }
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
    /// The pools of huge pages are not what their counts say.
    Pools(&'static str),
    /// A table of huge pages is not in as many address spaces as it says.
    Sharers {
        /// The frame of the table.
        table: Pfn,
        /// How many have it beside one, as it says.
        sharers: u32,
        /// How many have it.
        found: u64,
    },
    /// An address space has a table that was freed.
    NoTable {
        /// Its frame.
        table: Pfn,
        /// Its level.
        level: u32,
    },
    /// A table of huge pages that others have, too, reaches out of its mapping.
    SharedInPart(VirtAddr),
    /// Huge pages are reserved, and for nobody, or the other way about.
    Reserved {
        /// As the pools count.
        kept: u64,
        /// For files and mappings.
        wanted: u64,
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
    /// A page of a file that is locked, being written or waited for, though nothing runs.
    Busy(Pfn),
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
    /// An entry says that its page is being moved, and nobody moves it.
    Moving(VirtAddr),
    /// An entry that names a slot which the swap device does not have.
    NoSlot(VirtAddr),
    /// The slots of the swap device do not count the entries that name them, or are being written
    /// though nothing runs.
    Slots {
        /// The sum of their counts.
        counted: u64,
        /// Entries that name one.
        named: u64,
    },
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
        /// The pages of all accounted mappings and segments.
        accounted: u64,
    },
}

impl Unbalanced {
    /// What does not add up of huge pages.
    fn write_huge(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sharers {
                table,
                sharers,
                found,
            } => write!(
                f,
                "page table {table} counts {sharers} sharers, but {found} address spaces share it"
            ),
            Self::Reserved { kept, wanted } => write!(
                f,
                "{kept} huge pages are reserved, but files and mappings account for {wanted}"
            ),
            Self::Pools(what) => write!(f, "huge page pools: {what}"),
            Self::NoTable { table, level } => {
                write!(
                    f,
                    "frame {table} is a page table of level {level}, but was freed"
                )
            }
            Self::SharedInPart(at) => {
                write!(
                    f,
                    "the page table at {at} is shared, but not covered by one VMA"
                )
            }
            _ => Ok(()),
        }
    }

    /// What is wrong with an entry, if that is it, and where it is.
    const fn of_entry(&self) -> Option<(VirtAddr, &'static str)> {
        Some(match *self {
            Self::NoSlot(at) => (at, "refers to a swap slot beyond the device"),
            Self::Moving(at) => (at, "is a migration entry, but no migration is running"),
            Self::WritableShared(at) => (at, "is writable, but its page is not exclusive"),
            Self::OtherPage(at) => (at, "maps a page that is not of the mapped file"),
            Self::WritableClean(at) => (at, "is writable, but its page is never written back"),
            Self::NotAnon(at) => (at, "maps a frame that is not user memory"),
            Self::NoReverseMap(at) => (at, "maps a page that its anon_vma does not reach"),
            Self::Unmapped(at) => (at, "is outside of all VMAs"),
            Self::TooMuch(at) => (at, "grants more than its VMA allows"),
            _ => return None,
        })
    }
}

impl fmt::Display for Unbalanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((at, what)) = self.of_entry() {
            return write!(f, "the PTE at {at} {what}");
        }
        match self {
            Self::Tree(what) => write!(f, "VMA tree: {what}"),
            Self::Total(ledger) => write!(f, "frames leaked or counted twice: {ledger:?}"),
            Self::Tables { used, reachable } => {
                write!(
                    f,
                    "{used} frames are page tables, but {reachable} are reachable"
                )
            }
            Self::Counts {
                pfn,
                entries,
                refs,
                maps,
            } => write!(
                f,
                "frame {pfn} is mapped by {entries} PTEs, but has refs {refs} and map count \
                 {maps}"
            ),
            Self::Pins { pinned, pins } => {
                write!(f, "frames count {pinned} pins, but {pins} are held")
            }
            Self::Shared { pfn, entries } => {
                write!(f, "frame {pfn} is exclusive, but mapped by {entries} PTEs")
            }
            Self::Busy(pfn) => write!(f, "file page {pfn} is locked or under I/O at quiescence"),
            Self::Slots { counted, named } => write!(
                f,
                "swap slots count {counted} entries, but {named} refer to them"
            ),
            Self::Links(why) => f.write_str(why),
            Self::Sharers { .. } | Self::Reserved { .. } | Self::Pools(_) => self.write_huge(f),
            Self::NoTable { .. } | Self::SharedInPart(_) => self.write_huge(f),
            Self::Objects {
                what,
                live,
                reachable,
            } => write!(
                f,
                "{live} objects of kind {what} are allocated, but {reachable} are reachable"
            ),
            Self::Resident { shown, mapped } => {
                write!(f, "RSS count is {shown}, but {mapped} frames are mapped")
            }
            Self::Size { kept, mapped } => {
                write!(f, "total_vm is {kept} pages, but {mapped} are mapped")
            }
            Self::Vmas { kept, found } => {
                write!(f, "map_count is {kept}, but there are {found} VMAs")
            }
            Self::Locked { kept, locked } => {
                write!(f, "locked_vm is {kept} pages, but {locked} are locked")
            }
            Self::Committed { kept, accounted } => {
                write!(
                    f,
                    "commit charge is {kept} pages, but {accounted} are accounted"
                )
            }
            _ => Ok(()),
        }
    }
}

impl core::error::Error for Unbalanced {}
