//! The swap device.

use super::search;
use crate::base::file::IoError;
use crate::memory::frame::FrameTable;
use core::fmt;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging, Pte};
use minflt_sync::Atomic;

/// A device with slots of a page each: a disk of the host, a server, a test's memory. Linux: the
/// part of a block device that swap uses.
pub trait SwapDevice<M: Mmu>: Send + Sync {
    /// Fills frame `pfn` with what was written to `slot` last.
    ///
    /// # Context
    /// The frame is the caller's. May sleep. Called with nothing held.
    ///
    /// # Errors
    /// The contents cannot be had: who touches the page gets a signal. They are asked for again by
    /// the next touch.
    fn read_slot(&self, at: &M::Instance, slot: u64, pfn: Pfn) -> Result<(), IoError>;

    /// Writes `slot` from frame `pfn`.
    ///
    /// # Context
    /// Nobody stores to the page meanwhile. May sleep. Called with the page locked, and with
    /// whatever is held where memory was short: `mmap_lock` for reading, a VMA's lock, a page of a
    /// file. It must not ask the system for memory, nor wait for somebody who does.
    ///
    /// # Errors
    /// The page stays in memory.
    fn write_slot(&self, at: &M::Instance, slot: u64, pfn: Pfn) -> Result<(), IoError>;
}

/// Where anonymous pages go that are not used: chosen when a system starts.
pub enum Swap<M: Mmu> {
    /// Nowhere: only clean pages of files give their frames back.
    None,
    /// To frames of the machine's memory that are kept for that, some on each node, this many
    /// pages: fast, and what the system uses otherwise is smaller by as much.
    Memory {
        /// Pages.
        pages: u64,
    },
    /// To a device of this many pages.
    Device {
        /// The device.
        device: &'static dyn SwapDevice<M>,
        /// Its pages.
        pages: u64,
    },
}

impl<M: Mmu> Swap<M> {
    /// Memory of `bytes` bytes, or nothing where that is less than a page.
    #[must_use]
    pub fn of_bytes(bytes: u64) -> Self {
        match bytes >> M::Paging::shift() {
            0 => Self::None,
            pages => Self::Memory { pages },
        }
    }

    /// Pages of it, as many as entries can name.
    #[must_use]
    pub fn pages(&self) -> u64 {
        let pages = match self {
            Self::None => 0,
            Self::Memory { pages } | Self::Device { pages, .. } => *pages,
        };
        pages.min(Pte::<M::Paging>::slots())
    }

    /// Bytes that the words of its slots need, and the bits of its groups behind them.
    pub(crate) fn word_bytes(&self) -> usize {
        let bits = search::words_for(self.pages()) as usize * size_of::<Atomic<u64, M>>();
        self.bits_at() + bits
    }

    /// Where the bits of its groups begin, in bytes behind the first word.
    pub(crate) fn bits_at(&self) -> usize {
        let words = self.pages() as usize * size_of::<Atomic<u32, M>>();
        words.next_multiple_of(align_of::<Atomic<u64, M>>())
    }

    /// Bytes that a machine of `nodes` nodes has to have for the device, where the system's own
    /// take `used`: all of those are on the first node, and each node is as large as it.
    pub(crate) fn machine_at_least(&self, nodes: u64, used: u64) -> u64 {
        let Self::Memory { .. } = self else { return 0 };
        let own = used.div_ceil(M::Paging::page()) + self.pages().div_ceil(nodes) + 16;
        own * nodes * M::Paging::page()
    }

    /// Bytes of the machine's memory that the device itself needs.
    pub(crate) fn bytes_at_least(&self, nodes: u64) -> u64 {
        match self {
            Self::Memory { .. } => (self.pages().div_ceil(nodes) + 16) * nodes * M::Paging::page(),
            Self::None | Self::Device { .. } => 0,
        }
    }
}

impl<M: Mmu> Clone for Swap<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Mmu> Copy for Swap<M> {}

impl<M: Mmu> fmt::Debug for Swap<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Memory { pages } => write!(f, "Memory({pages})"),
            Self::Device { pages, .. } => write!(f, "Device({pages})"),
        }
    }
}

/// The device that a system has.
pub(crate) enum Backing<M: Mmu> {
    None,
    Memory(SwapFrames),
    Device(&'static dyn SwapDevice<M>),
}

impl<M: Mmu> Backing<M> {
    /// `None` where memory is too small.
    pub(crate) fn new(
        swap: Swap<M>,
        table: &FrameTable<M>,
        nodes: u64,
        reserved: u64,
    ) -> Option<Self> {
        match swap {
            Swap::Memory { .. } if swap.pages() > 0 => {
                let frames = SwapFrames {
                    first: table.first().0,
                    len: table.len(),
                    share: table.len().div_ceil(nodes),
                    kept: swap.pages().div_ceil(nodes),
                    nodes,
                };
                frames.fit(reserved).then_some(Self::Memory(frames))
            }
            Swap::None | Swap::Memory { .. } => Some(Self::None),
            Swap::Device { device, .. } => Some(Self::Device(device)),
        }
    }

    pub(crate) fn read(&self, at: &M::Instance, slot: u64, pfn: Pfn) -> Result<(), IoError> {
        match self {
            Self::None => Err(IoError::Failed),
            Self::Memory(memory) => {
                M::copy(at, pfn, memory.frame(slot));
                Ok(())
            }
            Self::Device(device) => device.read_slot(at, slot, pfn),
        }
    }

    pub(crate) fn write(&self, at: &M::Instance, slot: u64, pfn: Pfn) -> Result<(), IoError> {
        match self {
            Self::None => Err(IoError::NoSpace),
            Self::Memory(memory) => {
                M::copy(at, memory.frame(slot), pfn);
                Ok(())
            }
            Self::Device(device) => device.write_slot(at, slot, pfn),
        }
    }
}

/// Frames that are kept for swap: the last of each node, in the order of the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SwapFrames {
    /// The first frame of all, how many there are, and how many each node has: see
    /// [`crate::memory::alloc::Frames::zone`].
    first: u64,
    len: u64,
    share: u64,
    /// Kept on each node.
    kept: u64,
    nodes: u64,
}

impl SwapFrames {
    pub(super) const fn frames(&self) -> u64 {
        self.kept * self.nodes
    }

    /// The frame of a slot.
    const fn frame(&self, slot: u64) -> Pfn {
        let (node, at) = (slot / self.kept, slot % self.kept);
        Pfn(self.first + self.end(node) - self.kept + at)
    }

    /// The end of a node's frames.
    const fn end(&self, node: u64) -> u64 {
        let end = self.share * (node + 1);
        if end < self.len { end } else { self.len }
    }

    /// Whether each node keeps frames of its own for what they are there for, the first of them
    /// `reserved` for the system.
    fn fit(&self, reserved: u64) -> bool {
        (0..self.nodes).all(|node| {
            let start = (self.share * node).max(reserved);
            start + self.kept + 16 <= self.end(node)
        })
    }
}
