//! System boot: the layout in RAM and the initialisation of all parts.
//!
//! ```text
//! first frame                                                                last frame
//! | System | areas of each CPU | pools, zones | frame descriptors | zero page | free ... |
//! ```

use crate::base::config::{
    AddressSpace, Config, CpuMasks, ExchangeBy, Illegal, NegativeControl, Reclamation,
};
use crate::base::controls::check;
use crate::base::error::BootError;
use crate::base::huge_size::HugeSize;
use crate::base::policy::MAX_NODES;
use crate::entry::table::{Exchanges, linkers_for};
use crate::fault::stack::DEFAULT_GUARD_GAP;
use crate::memory::alloc::pool::{NodePool, Pools};
use crate::memory::alloc::{CpuFrames, CpuRuns, Frames, runs_for, zones_per_node};
use crate::memory::commit::Commit;
use crate::memory::frame::{Frame, FrameTable, Use};
use crate::memory::lifetime::Batch;
use crate::memory::rss::{self, Slots};
use crate::memory::swap::{Swap, SwapArea};
use crate::pages::file::Files;
use crate::pages::hugetlb::{FaultMutex, Huge};
use crate::pages::numa::{Numa, Rate};
use crate::pages::segments::Segments;
use crate::space::arenas::divide::Divisions;
use crate::system::System;
use crate::system::{CpuArea, VMAS};
use core::mem::ManuallyDrop;
use core::ops::{Deref, Range};
use core::ptr::NonNull;
use minflt_addr::{Pfn, PhysAddr};
use minflt_pgtable::{AccessBits, CasAbility, Mmu, Paging, PtLock};
use minflt_sync::rcu::{Patience, RcuCpu};
use minflt_sync::slab::{Magazine, Pages};
use minflt_sync::srcu::SrcuCpu;
use minflt_sync::{Array, Atomic, Instance, IpiHandler, Machine, PerCpu, Rcu, Slab, Srcu};

/// A running system. Dropping it gives its memory back with the machine.
#[derive(Debug)]
pub struct Running<M: Mmu> {
    system: NonNull<System<M>>,
}

// SAFETY: made to be shared by threads: what is not atomic in it is under its locks, but for the
// callbacks of frames, which are whose the frame is.
unsafe impl<M: Mmu> Sync for System<M> {}
// SAFETY: a `System` may be shared by threads.
unsafe impl<M: Mmu> Send for Running<M> {}
// SAFETY: as above.
unsafe impl<M: Mmu> Sync for Running<M> {}

/// Cuts areas off the start of RAM.
///
/// # Invariants
/// 1. From `base` on are `bytes` zeroed bytes, aligned to a page, which nobody else has.
struct Carve {
    base: NonNull<u8>,
    used: usize,
    bytes: usize,
}

impl Carve {
    /// `None` when RAM is too small; `used` then still tells how much would be needed.
    fn cut(&mut self, bytes: usize) -> Option<NonNull<u8>> {
        let start = self.used.next_multiple_of(128);
        self.used = start + bytes;
        // SAFETY: within RAM.
        (self.used <= self.bytes).then(|| unsafe { self.base.add(start) })
    }

    /// An area for each CPU, or whatever `count` counts.
    fn per_cpu<T, M: Machine>(
        &mut self,
        count: u32,
        init: impl FnMut(u32) -> T,
    ) -> Option<PerCpu<T, M>> {
        let at = self.cut(PerCpu::<T, M>::bytes(count))?;
        // SAFETY: 1: cut off just now, so by the invariant nobody else has it. It outlives the
        // system, with which it is given back.
        Some(unsafe { PerCpu::build(at, count, init) })
    }
}

impl Carve {
    /// The free frames that CPUs keep.
    fn frames<M: Mmu>(&mut self, config: &Config, cpus: u32) -> Option<Kept<M>> {
        let lists = self.per_cpu(cpus, |_| CpuFrames::new());
        let runs = self.per_cpu(runs_for(config, cpus), |_| CpuRuns::new(config));
        lists.zip(runs)
    }

    /// Memory of arenas, where address spaces may be divided.
    fn divisions<M: Mmu>(&mut self, config: &Config, cpus: u32) -> Option<PerCpu<Divisions<M>, M>> {
        let divides = config.address_space != AddressSpace::Whole;
        let cpus = if divides { cpus } else { 0 };
        let magazines = [(); 3].map(|()| self.per_cpu(cpus, |_| Magazine::new()));
        let [division, shelf, arena] = magazines;
        let mut slabs = Some(Divisions::new([division?, shelf?, arena?]));
        self.per_cpu(u32::from(divides), |_| {
            slabs.take().unwrap_or_else(|| unreachable!("there is one"))
        })
    }
}

/// The lists of all CPUs, and their runs.
type Kept<M> = (PerCpu<CpuFrames<M>, M>, PerCpu<CpuRuns<M>, M>);

/// What the machine says of its memory, in frames.
struct MemoryMap {
    /// From the first to the last, holes included.
    len: u64,
    /// Those before the first hole.
    first: u64,
    /// In bytes.
    first_bytes: u64,
    /// Those that are memory.
    present: u64,
}

impl MemoryMap {
    fn of<M: Mmu>(at: &M::Instance) -> Result<Self, BootError> {
        let (page, start) = (M::Paging::page(), at.ram_phys());
        let end = start + at.ram().bytes as u64;
        let (mut before, mut bad) = (start, None);
        let (mut first_bytes, mut present) = (0, 0);
        at.memory_ranges(&mut |range| {
            let is_first = present == 0;
            let follows = match is_first {
                true => range.start == start,
                false => range.start > before,
            };
            // What RAM has beyond its last whole page is nobody's.
            let whole = range.start.is_multiple_of(page)
                && (range.end.is_multiple_of(page) || range.end == end);
            let (Range { start, end }, inside) = (range.clone(), range.end <= end);
            if !follows || !whole || !inside || range.is_empty() {
                bad = bad.or(Some(BootError::BadRange { start, end }));
                return;
            }
            let frames = (end - start) / page;
            if is_first {
                first_bytes = end - start;
            }
            present += frames;
            before = end;
        });
        let len = at.ram().bytes as u64 / page;
        let map = Self {
            len,
            first: first_bytes / page,
            first_bytes,
            present,
        };
        bad.map_or(Ok(map), Err)
    }

    const fn absent(&self) -> u64 {
        self.len - self.present
    }

    /// Says so to the descriptors of the frames in holes.
    fn mark_holes<M: Mmu>(&self, at: &M::Instance, table: &FrameTable<M>) {
        if self.absent() == 0 {
            return;
        }
        let end = table.first().0 + self.len;
        let mut before = table.first().0;
        at.memory_ranges(&mut |range| {
            let [start, stop] = [range.start, range.end].map(|phys| phys >> M::Paging::shift());
            table.set_hole(before..start, &(start..stop));
            before = stop;
        });
        table.set_hole(before..end, &(end..end));
    }
}

impl<M: Mmu> System<M> {
    /// Starts a system on a machine whose memory is zeroed.
    ///
    /// # Errors
    /// When the configuration is illegal, or the memory too small.
    pub fn boot(at: M::Instance, config: Config) -> Result<Running<M>, BootError> {
        Self::boot_with_swap(at, config, Swap::None)
    }

    /// The same, with somewhere for pages to go that are not used: a program may then have more
    /// memory than the machine.
    ///
    /// # Errors
    /// As [`Self::boot`].
    pub fn boot_with_swap(
        at: M::Instance,
        config: Config,
        swap: Swap<M>,
    ) -> Result<Running<M>, BootError> {
        check::<M>(&config)?;
        let config = Self::on_this_cpu(&at, config).map_err(BootError::Illegal)?;
        if at.nodes() as usize > MAX_NODES {
            return Err(BootError::TooManyNodes(at.nodes()));
        }
        let ram = at.ram();
        let map = MemoryMap::of::<M>(&at)?;
        if map.absent() > 0 && swap.bytes_at_least(1) > 0 {
            return Err(BootError::SwapAmongHoles);
        }
        // Of the part that the system lies in.
        let has = map.first_bytes;
        let base = NonNull::new(ram.base).ok_or(BootError::TooSmall { has: 0, needs: 1 })?;
        // INVARIANT: 1: the machine gives its memory to this system, zeroed.
        let mut carve = Carve {
            base,
            used: 0,
            bytes: has as usize,
        };
        let nodes = u64::from(at.nodes());
        let built = Self::build(&mut carve, at, config, swap, &map);
        let used = carve.used as u64;
        let needs = used + 16 * M::Paging::page() + swap.bytes_at_least(nodes);
        match built {
            Some(system) if needs <= has => {
                let running = Running { system };
                running.start();
                return Ok(running);
            }
            // SAFETY: built just now; nobody else has it.
            Some(system) => drop(unsafe { system.read() }),
            None => {}
        }
        let needs = needs.max(swap.machine_at_least(nodes, used));
        // The frames that are missing are described too, on the first node; all are as large.
        let described = needs.saturating_sub(has) * nodes * size_of::<Frame<M>>() as u64;
        // A page is zeros, and each node's share is whole pages.
        let rounded = (1 + nodes) * M::Paging::page();
        let needs = needs + described.div_ceil(M::Paging::page()) + rounded;
        let needs = needs.next_multiple_of(M::Paging::page());
        Err(BootError::TooSmall { has, needs })
    }

    /// The configuration with the exchange and the CPU masks that these CPUs have: chosen when the
    /// system starts, so that a CPU that can is not made to emulate.
    ///
    /// Emulation beside a walker that writes entries is sound on one CPU only, as the posting of
    /// 2004 has it for the 386: that CPU's walker does nothing between the compare and the store.
    ///
    /// # Errors
    /// These CPUs cannot have what was chosen.
    fn on_this_cpu(at: &M::Instance, config: Config) -> Result<Config, Illegal> {
        let has = |feature| M::cpu_has(at, feature);
        let exchange = match M::Paging::caps().cas.on_cpu(has) {
            CasAbility::Native => config.exchange,
            CasAbility::Emulated | CasAbility::ByCpu(_) => ExchangeBy::Emulated,
        };
        let written = M::Paging::caps().access_bits.on_cpu(has) == AccessBits::Hardware;
        if exchange == ExchangeBy::Emulated && written && at.cpus() > 1 {
            return Err(Config::EMULATED_BESIDE_HARDWARE);
        }
        // Hardware that walks by itself from the root of the address space takes no fault in an
        // arena that is new to the CPU.
        let cpu_masks = match M::tlb(at, 0) {
            None if !M::OWN_ROOTS => CpuMasks::Space,
            _ => config.cpu_masks,
        };
        Ok(Config {
            exchange,
            cpu_masks,
            ..config
        })
    }

    fn exchanges_of(config: &Config) -> Exchanges {
        match config.exchange {
            _ if config.lacks::<M>(NegativeControl::HalfWidthExchange) => Exchanges::HalfWidth,
            ExchangeBy::Native => Exchanges::Native,
            ExchangeBy::Emulated => Exchanges::Emulated,
        }
    }

    fn build(
        carve: &mut Carve,
        at: M::Instance,
        config: Config,
        swap: Swap<M>,
        map: &MemoryMap,
    ) -> Option<NonNull<Self>> {
        let (cpus, nodes) = (at.cpus(), at.nodes());
        let (first, len) = (PhysAddr(at.ram_phys()).pfn(M::Paging::shift()), map.len);
        let place = carve.cut(size_of::<Self>());
        let magazines = [(); 15].map(|()| carve.per_cpu(cpus, |_| Magazine::new()));
        let areas = carve.per_cpu(cpus, |_| CpuArea::new());
        let lists = carve.frames(&config, cpus);
        let readers = carve.per_cpu(cpus, |_| SrcuCpu::new());
        let reports = carve.per_cpu(cpus, |_| RcuCpu::new());
        let slots = rss::slots_for(&config, len);
        let pieces = carve.per_cpu(rss::pieces_for(slots, cpus), |_| rss::piece());
        let rates = carve.per_cpu(nodes, |_| Rate::new());
        let pools = HugeSize::ALL.map(|_| carve.per_cpu(nodes, |_| NodePool::new()));
        let mutexes = carve.per_cpu(Huge::<M>::mutexes(cpus), FaultMutex::by(&config));
        let divisions = carve.divisions(&config, cpus);
        let linkers = carve.per_cpu(linkers_for(&config, cpus), |_| PtLock::new(()));
        let per_node = zones_per_node(&config, cpus, nodes, len);
        let zones = carve.cut(Frames::<M>::zone_bytes(nodes * per_node));
        let table = carve.cut(len as usize * size_of::<Frame<M>>());
        let words = carve.cut(swap.word_bytes());
        let reserved = (carve.used as u64).div_ceil(M::Paging::page()) + 1;
        // SAFETY: 1: cut off just now, aligned to 128, kept with the system; zeros are descriptors
        // of free frames. 2: the table has it alone.
        let table = FrameTable::new(unsafe { Array::new(table?.cast(), len) }, first);
        map.mark_holes::<M>(&at, &table);
        // SAFETY: 1: cut off just now, zeroed, and kept with the system.
        let swap = unsafe { SwapArea::new(words?.cast(), swap, &table, nodes, reserved) }?;
        let kept = swap.frames() / u64::from(nodes);
        let pages = map.present.saturating_sub(reserved + swap.frames());
        let split = (nodes, per_node);
        let zone = |number| Frames::zone(&table, (number, split), (reserved, kept), map.first);
        // SAFETY: 1: cut off just now.
        let zones = unsafe { PerCpu::build(zones?, nodes * per_node, zone) };
        let [node, vma, attr, mm, anon, chain, uffd, waiter, rest @ ..] = magazines;
        let [cache, cache_node, link, segment, region, lock, own] = rest;
        let pools = Pools::of_all_sizes(pages, pools)?;
        let unused = (&swap, map.absent());
        let keep = Self::kept_slots(&at, &config, pages, cpus);
        let system = Self {
            // First, since `at` is moved next.
            rcu: Rcu::new(reports?, patience::<M>(&at, &config)),
            batch: Batch::of::<M>(&at, pages, cpus),
            at,
            config,
            exchanges: Self::exchanges_of(&config),
            frames: Frames::new(table, zones, lists?, (nodes, cpus), unused, pools),
            cpus: areas?,
            srcu: Srcu::new(readers?),
            nodes: Slab::new(0, node?, Pages::Leave).keeping(keep),
            vmas: Slab::new(VMAS, vma?, Pages::Leave).keeping(keep),
            attrs: Slab::new(2, attr?, Pages::Leave).keeping(keep),
            mms: Slab::new(3, mm?, Pages::Leave),
            anon_vmas: Slab::new(4, anon?, Pages::Stay).keeping(keep),
            chains: Slab::new(5, chain?, Pages::Leave).keeping(keep),
            uffds: Slab::new(6, uffd?, Pages::Leave),
            waiters: Slab::new(7, waiter?, Pages::Leave),
            files: Files::new([cache?, cache_node?, link?]),
            zero_page: Pfn(first.0 + reserved - 1),
            reserved,
            next_id: Atomic::new(1),
            stamp: Atomic::new(1),
            spaces: Atomic::new(0),
            commit: Commit::new(pages, cpus, swap.slots()),
            rss_slots: Slots::new(pieces?, slots, cpus),
            stack_guard_gap: Atomic::new(DEFAULT_GUARD_GAP),
            swap,
            numa: Numa::new(rates?),
            shm: Segments::new(segment?, &config),
            huge: Huge::new(mutexes?, cpus, [region?, lock?, own?]),
            absent: map.absent(),
            linkers: linkers?,
            divisions: divisions?,
        };
        let place = place?.cast::<Self>();
        // SAFETY: cut off for this, aligned to 128.
        unsafe { place.write(system) };
        Some(place)
    }
}

/// How long a grace period waits for CPUs that come by: a few faults, in which each busy CPU does.
fn patience<M: Mmu>(at: &M::Instance, config: &Config) -> Patience {
    Patience(match config.reclamation {
        _ if M::defers_little(at) => 1,
        // Which looks after it much less often.
        Reclamation::RcuBatched => 4,
        _ => 32,
    })
}

impl<M: Mmu> Running<M> {
    /// Ends the system and gives its machine back. Whatever it held in the machine's memory is
    /// gone.
    pub fn shutdown(self) -> M::Instance {
        let ended = ManuallyDrop::new(self);
        ended.at.set_ipi_handler(None);
        // SAFETY: nobody else has the system, and its own drop does not run.
        let system = ManuallyDrop::new(unsafe { ended.system.read() });
        // SAFETY: read once; the rest of the system is plain data in the machine's memory.
        unsafe { core::ptr::read(&raw const system.at) }
    }

    /// Bytes at the start of the machine's memory that the system itself lies in.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        self.reserved * M::Paging::page()
    }

    fn start(&self) {
        let first = self.frames.table.first().0;
        for pfn in first..first + self.reserved {
            self.frames.get(Pfn(pfn)).set_use(Use::Reserved);
        }
        let arg = self.system.as_ptr().cast_const().cast();
        self.at.set_ipi_handler(Some(IpiHandler {
            call: crate::entry::shootdown::handle::<M>,
            arg,
        }));
    }
}

impl<M: Mmu> Deref for Running<M> {
    type Target = System<M>;

    fn deref(&self) -> &System<M> {
        // SAFETY: built by `boot`, lives as long as the handle.
        unsafe { self.system.as_ref() }
    }
}

impl<M: Mmu> Drop for Running<M> {
    fn drop(&mut self) {
        self.at.set_ipi_handler(None);
        // SAFETY: nobody else has the system; its memory goes with the machine that comes out.
        drop(unsafe { self.system.read() });
    }
}
