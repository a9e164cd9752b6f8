//! One simulated machine: its memory, its TLBs, and state kept between runs.
//!
//! # Problem
//! The machines of the postings have 32 GB to 2 TB, and an exploration starts from zeroed memory
//! ten thousand times a second.
//!
//! # Idea
//! Memory is one sparse mapping of the host. Tables and slabs use its bytes; a *user* frame is
//! never given bytes: it is stamped, beside the memory, with the last word stored and its place.
//! **A simulated user frame holds one word**: clearing makes all words 0, copying copies the
//! stamp, a store replaces it, a load elsewhere in the page returns 0. That is enough for a page's
//! owner and generation.
//!
//! # Protocol
//! ```text
//! mapping    [ contexts: boot, tasks, idle tasks | up to 2 MiB | memory of the system ]
//! offsets     0                                                 contexts rounded up
//! ```
//! One thread of the host drives an instance at a time: it builds a system, runs tasks by
//! [`crate::run`], and looks at the result. [`SimInstance::reset`] starts over.
//!
//! # Why it is correct
//! `run` takes the instance's lease and gives it back, so runs exclude each other. Outside runs the
//! memory is as safe as its user makes it, as on any machine.
//!
//! # Cost
//! The host pays for memory touched. A reset writes the bytes named and the frames reached since
//! the last one.

use crate::lease::Lease;
use crate::lines::Lines;
use crate::machine_file::MachineFile;
use crate::memory::Mapping;
use crate::model::{Model, Ps};
use crate::trace::Place;
use core::cell::{Cell, RefCell};
use core::fmt;
use corosensei::stack::DefaultStack;
use minflt_addr::Pfn;
use minflt_pgtable::{Feature, Tlb};
use minflt_sync::{Cx, Instance, IpiHandler, Ram};
use std::io;
use std::sync::Arc;

const ALIGN: usize = 2 << 20;
/// The smallest page of any format; stamps are sized for it.
const SMALLEST_PAGE_SHIFT: u32 = 12;
/// Bytes of memory up to which a reset writes zeros instead of giving pages back to the host.
const RESET_BY_WRITING: usize = 8 << 20;

/// One simulated machine.
pub struct SimInstance {
    pub(crate) model: Arc<Model>,
    memory: Mapping,
    /// One [`Stamp`] a frame of the smallest size.
    stamps: Mapping,
    contexts: u32,
    ram_at: usize,
    tlbs: Box<[Tlb]>,
    handler: Cell<Option<IpiHandler>>,
    /// Whether what user mode uses of a frame lies on the nodes in turn, page by page.
    pub(crate) interleaved: Cell<bool>,
    /// Whether its runs are for their times.
    pub(crate) timed: Cell<bool>,
    /// What its CPUs have not.
    lacking: Cell<&'static [Feature]>,
    /// The clock outside runs: where the last one ended.
    pub(crate) clock: Cell<Ps>,
    lease: Lease,
    warm: RefCell<Warm>,
    /// Frames whose bytes were reached.
    bytes: RefCell<Dirty>,
    /// Frames whose stamps were.
    stamped: RefCell<Dirty>,
}

/// What is kept from one run to the next, because making it anew takes longer than a short run.
#[derive(Default)]
pub(crate) struct Warm {
    pub(crate) lines: Lines,
    pub(crate) stacks: Vec<DefaultStack>,
}

/// What a user frame holds: the last word stored, and where. All other words of the page read 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stamp {
    pub(crate) value: u64,
    pub(crate) offset: u64,
}

/// Frames that were reached since the last reset: what of them is to be reset, and by which page
/// size they are numbered.
#[derive(Debug)]
struct Dirty {
    seen: Vec<u64>,
    frames: Vec<(Pfn, u32)>,
}

impl Dirty {
    /// None of `frames` frames.
    fn new(frames: usize) -> Self {
        Self {
            seen: vec![0; frames.div_ceil(64)],
            frames: Vec::new(),
        }
    }

    fn mark(&mut self, pfn: Pfn, shift: u32) {
        let (word, bit) = (pfn.0 as usize / 64, 1 << (pfn.0 % 64));
        if self.seen[word] & bit == 0 {
            self.seen[word] |= bit;
            self.frames.push((pfn, shift));
        }
    }

    /// The frames, each for the last time.
    fn drain(&mut self) -> impl Iterator<Item = (Pfn, u32)> {
        let Self { seen, frames } = self;
        frames
            .drain(..)
            .inspect(|(pfn, _)| seen[pfn.0 as usize / 64] = 0)
    }
}

// SAFETY: the cells are used by the one thread that drives the instance; see the module's protocol.
unsafe impl Send for SimInstance {}
// SAFETY: as above; a second thread's run is refused by the lease.
unsafe impl Sync for SimInstance {}

/// How large a simulated machine is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// CPUs; more than the machine file has repeat its topology ([`Size::extended`]).
    pub cpus: u32,
    /// Bytes of memory.
    pub ram_bytes: u64,
    /// The most tasks a run may have.
    pub max_tasks: u32,
}

impl Size {
    /// The machine of `file` as it stands there, for up to four tasks a CPU.
    #[must_use]
    pub fn of(file: &MachineFile) -> Self {
        Self::extended(file, file.cpus())
    }

    /// The machine of `file` as often as `cpus` CPUs need it, at least once, with the memory of
    /// each; for up to four tasks a CPU. Between the copies everything is as far as it can be.
    #[must_use]
    pub fn extended(file: &MachineFile, cpus: u32) -> Self {
        let has = file.cpus();
        let copies = u64::from(cpus.div_ceil(has).max(1));
        let cpus = cpus.max(has);
        Self {
            cpus,
            ram_bytes: ((file.shape.ram_mib.value as u64) << 20) * copies,
            max_tasks: 4 * cpus,
        }
    }
}

impl SimInstance {
    /// A machine like `file`, of the size given, its memory zeroed.
    ///
    /// # Errors
    /// When the host has not enough address space.
    ///
    /// # Panics
    /// If `size` has no CPU or more than [`minflt_sync::MAX_CPUS`].
    pub fn new(file: &MachineFile, size: Size) -> io::Result<Self> {
        assert!(
            (1..=minflt_sync::MAX_CPUS).contains(&size.cpus),
            "{} CPUs",
            size.cpus
        );
        let contexts = 1 + size.max_tasks + size.cpus;
        let ram_at = (contexts as usize * size_of::<Cx>()).next_multiple_of(ALIGN);
        let too_large = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        let ram_bytes = usize::try_from(size.ram_bytes).map_err(too_large)?;
        let memory = Mapping::new(ram_at + ram_bytes, ALIGN)?;
        let frames = ram_bytes.div_ceil(1 << SMALLEST_PAGE_SHIFT);
        let stamps = Mapping::new(frames.max(1) * size_of::<Stamp>(), ALIGN)?;
        let model = Model::new(file, size.cpus);
        let lines = Lines::new((memory.bytes() >> model.line_shift) + 1, size.cpus);
        Ok(Self {
            memory,
            stamps,
            contexts,
            ram_at,
            tlbs: core::iter::repeat_with(Tlb::new)
                .take(size.cpus as usize)
                .collect(),
            handler: Cell::new(None),
            interleaved: Cell::new(false),
            timed: Cell::new(false),
            lacking: Cell::new(&[]),
            clock: Cell::new(0),
            lease: Lease::default(),
            warm: RefCell::new(Warm {
                lines,
                stacks: Vec::new(),
            }),
            bytes: RefCell::new(Dirty::new(frames)),
            stamped: RefCell::new(Dirty::new(frames)),
            model: Arc::new(model),
        })
    }

    /// The name of its machine file.
    #[must_use]
    pub fn machine(&self) -> &str {
        &self.model.name
    }

    /// Runs on this machine are for their times: a system that boots on it defers as much as where
    /// nothing is checked. Without it, as little as it can, so that a short run sees more.
    pub fn set_timed(&self) {
        self.timed.set(true);
    }

    /// The machine's CPUs lack these features, as older ones do. To be said before a system starts
    /// on it; a reset leaves it as it is.
    pub fn set_lacking(&self, features: &'static [Feature]) {
        self.lacking.set(features);
    }

    /// Whether its CPUs have `feature`.
    pub(crate) fn has(&self, feature: Feature) -> bool {
        !self.lacking.get().contains(&feature)
    }

    /// Starts over: the first `prefix` bytes of memory, every frame reached by number, all stamps,
    /// translation buffers, lines and the clock are as they were at the start. The interrupt
    /// handler is forgotten.
    ///
    /// # Safety
    /// 1. No reference into the machine's memory is alive.
    /// 2. Bytes beyond `prefix` were reached only through [`minflt_pgtable::Mmu`]'s verbs.
    ///
    /// # Panics
    /// In a run.
    pub unsafe fn reset(&self, prefix: usize) {
        let mut warm = self.lease();
        let mut bytes = self.bytes.borrow_mut();
        let many = prefix + bytes.frames.len() * 4096 > RESET_BY_WRITING;
        if many {
            // SAFETY: 1 of this function.
            unsafe { self.memory.discard() };
        } else {
            // SAFETY: 1 of this function.
            unsafe { self.memory.zero(self.ram_at, prefix) };
        }
        for (pfn, shift) in bytes.drain() {
            let from = (pfn.0 as usize) << shift;
            if !many && from >= prefix {
                let len = (1 << shift).min(self.memory.bytes() - self.ram_at - from);
                // SAFETY: 1 of this function.
                unsafe { self.memory.zero(self.ram_at + from, len) };
            }
        }
        drop(bytes);
        let mut stamped = self.stamped.borrow_mut();
        let many = stamped.frames.len() * size_of::<Stamp>() > RESET_BY_WRITING;
        if many {
            // SAFETY: references to stamps are never kept.
            unsafe { self.stamps.discard() };
        }
        for (pfn, _) in stamped.drain() {
            if !many {
                self.stamp(pfn).set(Stamp::default());
            }
        }
        drop(stamped);
        for tlb in &self.tlbs {
            tlb.flush_all();
        }
        self.handler.set(None);
        self.clock.set(0);
        warm.lines.clear();
        self.release(warm);
    }

    /// Takes what runs need, so that there is one run at a time.
    pub(crate) fn lease(&self) -> Warm {
        self.lease.take();
        core::mem::take(&mut *self.warm.borrow_mut())
    }

    /// Gives back what [`SimInstance::lease`] gave.
    pub(crate) fn release(&self, warm: Warm) {
        *self.warm.borrow_mut() = warm;
        self.lease.give_back();
    }

    /// Contexts there are; the boot context is the first.
    pub(crate) fn contexts(&self) -> u32 {
        self.contexts
    }

    /// The context with number `at`, which need not be initialized yet.
    pub(crate) fn cx(&self, at: u32) -> *mut Cx {
        assert!(at < self.contexts, "context {at} of {}", self.contexts);
        self.memory.at(at as usize * size_of::<Cx>()).cast()
    }

    /// The offset of a host address in the machine's memory, if `len` bytes from it lie there.
    #[inline]
    pub(crate) fn offset(&self, at: usize, len: usize) -> Option<usize> {
        let offset = at.wrapping_sub(self.memory.base() as usize);
        (offset < self.memory.bytes() && len <= self.memory.bytes() - offset).then_some(offset)
    }

    /// The place at an offset.
    pub(crate) fn place(&self, offset: usize) -> Place {
        match offset.checked_sub(self.ram_at) {
            Some(offset) => Place::Ram(offset as u64),
            None => Place::Context {
                task: (offset / size_of::<Cx>()) as u32,
                offset: (offset % size_of::<Cx>()) as u32,
            },
        }
    }

    /// Where a host address lies in the machine's memory.
    #[must_use]
    pub fn find(&self, at: u64) -> Option<Place> {
        Some(self.place(self.offset(at as usize, 1)?))
    }

    /// The memory node of an offset; `None` for contexts, which are their task's own.
    #[inline]
    pub(crate) fn node_at(&self, offset: usize) -> Option<u32> {
        let ram = self.memory.bytes() - self.ram_at;
        let per_node = ram.div_ceil(self.model.nodes as usize).max(1);
        offset
            .checked_sub(self.ram_at)
            .map(|offset| (offset / per_node) as u32)
    }

    /// The memory node of a frame of `1 << shift` bytes.
    pub(crate) fn node_of_frame(&self, pfn: Pfn, shift: u32) -> u32 {
        self.node_at(self.ram_at + ((pfn.0 as usize) << shift))
            .unwrap_or(0)
    }

    /// The node whose memory user mode uses in a frame.
    pub(crate) fn node_of_data(&self, pfn: Pfn, shift: u32) -> u32 {
        match self.interleaved.get() {
            true => (pfn.0 % u64::from(self.model.nodes)) as u32,
            false => self.node_of_frame(pfn, shift),
        }
    }

    /// Whether there is such a frame.
    pub(crate) fn has_frame(&self, pfn: Pfn, shift: u32) -> bool {
        pfn.0 < (Instance::ram(self).bytes as u64) >> shift
    }

    /// The bytes of a frame.
    pub(crate) fn frame(&self, pfn: Pfn, shift: u32) -> *mut u8 {
        self.bytes.borrow_mut().mark(pfn, shift);
        self.memory.at(self.ram_at + ((pfn.0 as usize) << shift))
    }

    /// The one word of a user frame, about to be changed.
    pub(crate) fn stamp_mut(&self, pfn: Pfn, shift: u32) -> &Cell<Stamp> {
        self.stamped.borrow_mut().mark(pfn, shift);
        self.stamp(pfn)
    }

    /// The one word of a user frame.
    pub(crate) fn stamp(&self, pfn: Pfn) -> &Cell<Stamp> {
        let word = self.stamps.at(pfn.0 as usize * size_of::<Stamp>());
        // SAFETY: within the mapping, 8-aligned, zeroed; only the driving thread uses stamps, and
        // always through cells.
        unsafe { &*word.cast::<Cell<Stamp>>() }
    }

    /// The translation buffer of CPU `cpu`.
    pub(crate) fn tlb(&self, cpu: u32) -> Option<&Tlb> {
        self.tlbs.get(cpu as usize)
    }

    pub(crate) fn handler(&self) -> Option<IpiHandler> {
        self.handler.get()
    }
}

impl Instance for SimInstance {
    fn ram(&self) -> Ram {
        let bytes = self.memory.bytes() - self.ram_at;
        Ram {
            base: self.memory.base().wrapping_add(self.ram_at),
            bytes,
        }
    }

    fn cpus(&self) -> u32 {
        self.tlbs.len() as u32
    }

    fn nodes(&self) -> u32 {
        self.model.nodes
    }

    fn node_of(&self, cpu: u32) -> u32 {
        self.model.places[cpu as usize].node
    }

    /// What a word of the other node costs, where 10 is one of its own.
    fn distance(&self, a: u32, b: u32) -> u32 {
        let (near, far) = (self.model.dram_local.max(1), self.model.dram_far);
        match a == b {
            true => 10,
            false => u32::try_from(far * 10 / near).map_or(u32::MAX, |far| far.max(10)),
        }
    }

    fn now_ns(&self) -> u64 {
        crate::here::clock(self).unwrap_or(self.clock.get()) / 1000
    }

    fn set_ipi_handler(&self, handler: Option<IpiHandler>) {
        self.handler.set(handler);
    }
}

impl fmt::Debug for SimInstance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = (self.memory.bytes() - self.ram_at) >> 20;
        write!(
            f,
            "SimInstance({}, {} CPUs, {mib} MiB)",
            self.model.name,
            self.tlbs.len()
        )
    }
}
