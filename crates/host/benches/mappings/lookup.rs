//! Looking a mapping up, beside `BTreeMap`.

use crate::common::figures::mix;
use crate::common::machine::{CpuTime, M, PAGE, system};
use core::hint::black_box;
use minflt_addr::VirtAddr;
use minflt_host::RamError;
use minflt_mm::{Mappings, Mm, MmHandle, Place, Prot, Running};
use std::collections::BTreeMap;

/// Looked up one after the other: a power of two.
const LOOKUPS: usize = 1 << 15;

/// What an ordinary map holds of a mapping.
type Other = BTreeMap<u64, (u64, Prot)>;

/// So many mappings, and addresses to look up.
#[derive(Debug)]
pub(crate) struct Lookups {
    pub(crate) mappings: usize,
    system: Running<M>,
    /// Start and end of each mapping, in the order they are made in.
    ranges: Vec<(u64, u64)>,
    other: Other,
    addresses: Vec<u64>,
}

/// The rows, in the order of what [`Lookups::measure`] returns.
pub(crate) const ROWS: [&str; 6] = [
    "lookup, the next waits",
    "lookup, the next does not",
    "lookup with the VMA, as faults do",
    "lookup under a lock of its own",
    "BTreeMap, the next waits",
    "BTreeMap, the next does not",
];

impl Lookups {
    /// `mappings` mappings of 1 to 4 pages with gaps of as many, made in a random order.
    pub(crate) fn new(mappings: usize, seed: u64) -> Result<Self, RamError> {
        let random = |at: usize, of: u64| mix(mix(seed ^ of) ^ at as u64);
        let mut at = 1 << 30;
        let mut ranges = Vec::new();
        for made in 0..mappings {
            let start = at + (1 + random(made, 1) % 4) * PAGE;
            at = start + (1 + random(made, 2) % 4) * PAGE;
            ranges.push((start, at));
        }
        ranges.sort_by_key(|range| mix(range.0 ^ seed));
        let address = |at| {
            let (start, end) = ranges[random(at, 3) as usize % mappings];
            start + random(at, 4) % (end - start)
        };
        let addresses = (0..LOOKUPS).map(address).collect();
        // One by one, in the same order: made of all at once, a map is packed as no map stays.
        let mut other = Other::new();
        for (start, end) in &ranges {
            other.insert(*start, (*end, Prot::READ));
        }
        Ok(Self {
            mappings,
            system: system("best", (16 << 20) + mappings * 1024)?,
            other,
            ranges,
            addresses,
        })
    }

    /// Makes the mappings in a new address space.
    pub(crate) fn space(&self) -> MmHandle<'_, M> {
        // More than `vm.max_map_count` allows at first.
        self.system.set_max_map_count(1 << 20);
        let mm = self.system.new_mm().expect("memory");
        for (start, end) in &self.ranges {
            let place = Place::FixedNoReplace(VirtAddr(*start));
            mm.mmap(place, end - start, Prot::READ).expect("free");
        }
        mm
    }

    /// Nanoseconds a lookup, one number a row.
    pub(crate) fn measure(&self) -> Vec<f64> {
        let _cpu = self.system.machine().enter(0);
        let mm = self.space();
        let sum = self.addresses.iter().map(|at| self.other(*at)).sum();
        let held = mm.mappings();
        self.warm(|at| end_of(&held, at));
        let chained = self.chained(sum, |at| end_of(&held, at));
        let loose = self.loose(sum, |at| end_of(&held, at));
        let with_vma = self.chained(sum, |at| vma_at(&held, at));
        drop(held);
        let own_lock = self.chained(sum, |at| mapping_at(&mm, at));
        self.warm(|at| self.other(at));
        let other_chained = self.chained(sum, |at| self.other(at));
        let other_loose = self.loose(sum, |at| self.other(at));
        vec![
            chained,
            loose,
            with_vma,
            own_lock,
            other_chained,
            other_loose,
        ]
    }

    fn warm(&self, look: impl Fn(u64) -> u64) {
        let sum: u64 = self.addresses.iter().map(|at| look(*at)).sum();
        black_box(sum);
    }

    /// Each address depends on what was found before it, as one fault comes after the other.
    fn chained(&self, sum: u64, look: impl Fn(u64) -> u64) -> f64 {
        let (mut ends, mut last) = (0, 0);
        let start = CpuTime::start();
        for at in &self.addresses {
            // No address is that large, but the processor does not know.
            last = look(at ^ (last >> 62));
            ends += last;
        }
        let ns = start.ns() / LOOKUPS as f64;
        assert_eq!(ends, sum, "something else was found");
        ns
    }

    /// The processor may begin the next lookup before it has ended this one.
    fn loose(&self, sum: u64, look: impl Fn(u64) -> u64) -> f64 {
        let start = CpuTime::start();
        let ends: u64 = self.addresses.iter().map(|at| look(*at)).sum();
        let ns = start.ns() / LOOKUPS as f64;
        assert_eq!(ends, sum, "something else was found");
        ns
    }

    #[inline(never)]
    fn other(&self, at: u64) -> u64 {
        let (_, (end, _)) = self.other.range(..=at).next_back().expect("mapped");
        if at < *end { *end } else { 0 }
    }
}

#[inline(never)]
fn end_of(held: &Mappings<'_, M>, at: u64) -> u64 {
    held.at(VirtAddr(at)).expect("mapped").range.end().0
}

#[inline(never)]
fn vma_at(held: &Mappings<'_, M>, at: u64) -> u64 {
    held.vma_at(VirtAddr(at)).expect("mapped").range.end().0
}

#[inline(never)]
fn mapping_at(mm: &Mm<M>, at: u64) -> u64 {
    mm.mapping_at(VirtAddr(at)).expect("mapped").range.end().0
}
