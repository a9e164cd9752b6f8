//! The cost model's constants: a machine file in picoseconds, and distances between CPUs.
//!
//! # Problem
//! Costs are looked up at every access, and must be the same on every host: no floating point, no
//! parsing, no division by unknown numbers on that path.
//!
//! # Idea
//! All times are picoseconds in a `u64` (200 days of virtual time). Each CPU knows its core, die,
//! group and node; the distance of two CPUs is the innermost of these that they share.
//!
//! # Cost
//! Three compares a distance.

use crate::machine_file::{Arbitration, MachineFile, Sourced};
use crate::snoop::Snoops;
use core::ops::Range;
use minflt_sync::Cost;

/// Picoseconds.
pub(crate) type Ps = u64;

/// How far two CPUs are apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Distance {
    Core,
    Die,
    Group,
    Beyond,
}

impl Distance {
    /// All of them, the nearest first.
    pub(crate) const ALL: [Self; 4] = [Self::Core, Self::Die, Self::Group, Self::Beyond];
}

/// One CPU's place in the topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    core: u32,
    pub(crate) die: u32,
    group: u32,
    pub(crate) node: u32,
}

/// A machine file, made ready for use, for a number of CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) arbitration: Arbitration,
    pub(crate) places: Vec<Place>,
    pub(crate) nodes: u32,
    /// Where requests go to all sockets.
    pub(crate) snoops: Option<Snoops>,
    /// CPUs of a core, a die, a group, and of the machine.
    per: [u32; 4],
    pub(crate) near_first_permille: u64,
    pub(crate) line_shift: u32,
    pub(crate) hit: Ps,
    pub(crate) rmw_hit: Ps,
    transfer: [Ps; 4],
    pub(crate) llc: Ps,
    pub(crate) dram_local: Ps,
    pub(crate) dram_far: Ps,
    /// Independent misses that are under way at once.
    overlap: u64,
    pub(crate) sharer: Ps,
    pub(crate) serve: Ps,
    pub(crate) home: Ps,
    pub(crate) contended: Ps,
    trap: Ps,
    syscall: Ps,
    cold: Ps,
    walk: Ps,
    invalidate_page: Ps,
    invalidate_all: Ps,
    /// 0 where translations are invalidated by interrupts.
    pub(crate) broadcast: Ps,
    free_page: Ps,
    pub(crate) ipi_send: Ps,
    ipi_near: Ps,
    ipi_far: Ps,
    pub(crate) ipi_handle: Ps,
    pub(crate) switch: Ps,
    pub(crate) wake: Ps,
    pub(crate) spawn: Ps,
    pub(crate) spawn_alone: Ps,
    pub(crate) exit: Ps,
    pub(crate) slice: Ps,
    clear_local: u64,
    clear_far: u64,
    copy: u64,
    node: u64,
    read_near: u64,
    read_far: u64,
    node_reads: u64,
    /// Whether lines that are read in order come at the rate of reading.
    streams: bool,
    shared_core_permille: u64,
    /// How far a CPU may run ahead on lines that are its own.
    pub(crate) ahead: Ps,
}

/// Cycles that a CPU may run ahead of the lowest clock on lines no other CPU has touched.
const AHEAD_CYCLES: u64 = 5000;

impl Model {
    /// The model of `file` with `cpus` CPUs; more than the file's repeat its topology.
    pub(crate) fn new(file: &MachineFile, cpus: u32) -> Self {
        let (shape, ns, rate) = (&file.shape, &file.ns, &file.bytes_per_us);
        let whole = |number: &Sourced| number.value as u64;
        let per = |number: &Sourced| whole(number) as u32;
        let places = places(file, cpus);
        let [read_near, read_far, node_reads] = reads(file);
        let mut model = Self {
            name: file.name.clone(),
            snoops: None,
            arbitration: file.arbitration,
            nodes: places.last().map_or(1, |place| place.node + 1),
            places,
            per: [
                per(&shape.cpus_per_core),
                per(&shape.cpus_per_die),
                per(&shape.cpus_per_group),
                cpus,
            ],
            near_first_permille: whole(&shape.near_first_permille),
            line_shift: whole(&shape.line_bytes).trailing_zeros(),
            hit: ps(&ns.hit),
            rmw_hit: ps(&ns.rmw_hit),
            transfer: [ps(&ns.smt), ps(&ns.die), ps(&ns.far1), ps(&ns.far2)],
            llc: ps(&ns.llc),
            dram_local: ps(&ns.dram_local),
            dram_far: ps(&ns.dram_far),
            overlap: whole(&shape.overlap),
            sharer: ps(&ns.sharer),
            serve: ps(&ns.serve),
            home: ps(&ns.home),
            contended: ps(&ns.contended),
            trap: ps(&ns.trap),
            syscall: ps(&ns.syscall),
            cold: ps(&ns.cold),
            walk: ps(&ns.walk),
            invalidate_page: ps(&ns.invalidate_page),
            invalidate_all: ps(&ns.invalidate_all),
            broadcast: ps(&ns.broadcast),
            free_page: ps(&ns.free_page),
            ipi_send: ps(&ns.ipi_send),
            ipi_near: ps(&ns.ipi_near),
            ipi_far: ps(&ns.ipi_far),
            ipi_handle: ps(&ns.ipi_handle),
            switch: ps(&ns.switch),
            wake: ps(&ns.wake),
            spawn: ps(&ns.spawn),
            spawn_alone: ps(&ns.spawn_alone),
            exit: ps(&ns.exit),
            slice: ps(&ns.slice).max(1),
            clear_local: whole(&rate.clear_local),
            clear_far: whole(&rate.clear_far),
            copy: whole(&rate.copy),
            node: whole(&rate.node),
            read_near,
            read_far,
            node_reads,
            streams: file.reads.is_some(),
            shared_core_permille: whole(&shape.shared_core_permille),
            ahead: AHEAD_CYCLES * 1_000_000 / whole(&shape.clock_mhz),
        };
        if file.snoops.is_some() {
            model.snoops = Some(model.ways(per(&shape.cpus_per_node)));
        }
        model
    }

    /// The ways of snoops between nodes of `per_node` CPUs.
    fn ways(&self, per_node: u32) -> Snoops {
        let far = |a: u32, b: u32| match a == b {
            true => self.transfer(Distance::Die),
            false => self.transfer(self.distance(a * per_node, b * per_node)),
        };
        Snoops::new(self.nodes, far)
    }

    /// How far CPUs `a` and `b` are apart.
    #[inline]
    pub(crate) fn distance(&self, a: u32, b: u32) -> Distance {
        let (a, b) = (&self.places[a as usize], &self.places[b as usize]);
        if a.core == b.core {
            Distance::Core
        } else if a.die == b.die {
            Distance::Die
        } else if a.group == b.group {
            Distance::Group
        } else {
            Distance::Beyond
        }
    }

    /// The CPUs that are no farther from `cpu` than `distance`, itself among them.
    #[inline]
    pub(crate) fn within(&self, cpu: u32, distance: Distance) -> Range<u32> {
        let (per, place) = (self.per[distance as usize], &self.places[cpu as usize]);
        let from = match distance {
            Distance::Core => place.core * per,
            Distance::Die => place.die * per,
            Distance::Group => place.group * per,
            Distance::Beyond => 0,
        };
        from..from + per
    }

    /// What moving a line that far costs.
    #[inline]
    pub(crate) fn transfer(&self, distance: Distance) -> Ps {
        self.transfer[distance as usize]
    }

    /// From sending an interrupt on CPU `from` until CPU `to` takes it.
    pub(crate) fn ipi_delay(&self, from: u32, to: u32) -> Ps {
        if self.distance(from, to) <= Distance::Die {
            self.ipi_near
        } else {
            self.ipi_far
        }
    }

    /// From sending an interrupt until a CPU that idles takes it: of a wake-up, all but the switch
    /// to the task.
    pub(crate) fn idle_exit(&self) -> Ps {
        self.wake.saturating_sub(self.switch)
    }

    /// What each of many independent misses costs that take `time` alone.
    pub(crate) fn overlapped(&self, time: Ps) -> Ps {
        time / self.overlap
    }

    /// What fixed work costs a CPU next to node `here`.
    pub(crate) fn fixed(&self, cost: Cost, here: u32) -> Ps {
        match cost {
            Cost::Trap => self.trap,
            Cost::Syscall => self.syscall,
            Cost::Cold => self.cold,
            Cost::Fresh => self.overlapped(self.cold),
            Cost::Walk => self.walk,
            Cost::Free => self.free_page,
            Cost::Invalidate { pages } => self
                .invalidate_page
                .saturating_mul(pages)
                .min(self.invalidate_all),
            Cost::Clear { bytes, node } => at_rate(
                bytes,
                if node == here {
                    self.clear_local
                } else {
                    self.clear_far
                },
            ),
            Cost::Copy { bytes, from, to } if from == here && to == here => {
                at_rate(bytes, self.copy)
            }
            // As much slower as clearing is.
            Cost::Copy { bytes, .. } => {
                at_rate(bytes, self.copy) * self.clear_local / self.clear_far
            }
        }
    }

    /// What storing to `bytes` of the memory of a node takes a CPU that has it for itself; the CPU
    /// is next to the node or not.
    pub(crate) fn data(&self, bytes: u64, is_near: bool) -> Ps {
        at_rate(
            bytes,
            if is_near {
                self.clear_local
            } else {
                self.clear_far
            },
        )
    }

    /// What loading `bytes` of the memory of a node takes a CPU that has it for itself.
    pub(crate) fn data_read(&self, bytes: u64, is_near: bool) -> Ps {
        at_rate(
            bytes,
            if is_near {
                self.read_near
            } else {
                self.read_far
            },
        )
    }

    /// What a line takes that comes to `cpu` from `node` before it is asked for; none where that is
    /// not modelled.
    pub(crate) fn streamed(&self, cpu: u32, node: u32) -> Option<Ps> {
        let is_near = self.places[cpu as usize].node == node;
        self.streams
            .then(|| self.data_read(1 << self.line_shift, is_near))
    }

    /// How long a node's memory is busy with giving `bytes`.
    pub(crate) fn node_reads(&self, bytes: u64) -> Ps {
        at_rate(bytes, self.node_reads)
    }

    /// How long a node's memory is busy with writing `bytes`.
    pub(crate) fn node_busy(&self, bytes: u64) -> Ps {
        at_rate(bytes, self.node)
    }

    /// What `time` becomes on a CPU whose core sibling runs too.
    pub(crate) fn on_shared_core(&self, time: Ps) -> Ps {
        time * 1000 / self.shared_core_permille
    }

    /// All CPUs, in the order in which a scheduler that balances gives them to threads: a core of
    /// each die in turn, and only then the second threads of cores.
    pub(crate) fn spread(&self) -> Vec<u32> {
        let place = |cpu: u32| {
            let [core, die] = [Distance::Core, Distance::Die].map(|at| self.within(cpu, at));
            let [thread, core] = [
                cpu - core.start,
                cpu / self.per[0] - die.start / self.per[0],
            ];
            (thread, core, self.places[cpu as usize].die)
        };
        let mut cpus: Vec<u32> = (0..self.places.len() as u32).collect();
        cpus.sort_by_key(|cpu| place(*cpu));
        cpus
    }

    /// The other CPUs of `cpu`'s core.
    pub(crate) fn siblings(&self, cpu: u32) -> impl Iterator<Item = u32> + '_ {
        let core = self.places[cpu as usize].core;
        let same = move |at: &u32| self.places[*at as usize].core == core;
        let below = (0..cpu).rev().take_while(same);
        below.chain((cpu + 1..self.places.len() as u32).take_while(same))
    }
}

/// Bytes per microsecond that one CPU reads of its own node and of another, and all of one node.
fn reads(file: &MachineFile) -> [u64; 3] {
    let rate = &file.bytes_per_us;
    match &file.reads {
        Some(reads) => [&reads.near, &reads.far, &reads.node].map(|it| it.value as u64),
        None => {
            let written = [&rate.clear_local, &rate.clear_far, &rate.node];
            written.map(|it| 2 * it.value as u64)
        }
    }
}

/// Each CPU's place in the topology.
fn places(file: &MachineFile, cpus: u32) -> Vec<Place> {
    let shape = &file.shape;
    let per = |number: &Sourced| number.value as u32;
    let place = |cpu: u32| Place {
        core: cpu / per(&shape.cpus_per_core),
        die: cpu / per(&shape.cpus_per_die),
        group: cpu / per(&shape.cpus_per_group),
        node: cpu / per(&shape.cpus_per_node),
    };
    (0..cpus).map(place).collect()
}

/// Picoseconds of a number of nanoseconds.
fn ps(number: &Sourced) -> Ps {
    (number.value * 1000.0 + 0.5) as Ps
}

/// Picoseconds that `bytes` take at `rate` bytes per microsecond.
fn at_rate(bytes: u64, rate: u64) -> Ps {
    (u128::from(bytes) * 1_000_000 / u128::from(rate)) as Ps
}

#[cfg(test)]
mod tests {
    use super::{Distance, Model};
    use crate::machine_file::MachineFile;
    use minflt_sync::Cost;

    #[test]
    fn the_altix_has_two_cpus_a_node_and_clears_at_the_published_rate() {
        let model = Model::new(&MachineFile::shipped("altix32").unwrap(), 32);
        assert_eq!(model.nodes, 16);
        assert_eq!(model.distance(0, 1), Distance::Die);
        assert_eq!(model.distance(0, 2), Distance::Group);
        assert_eq!(model.distance(0, 31), Distance::Beyond);
        let local = model.fixed(
            Cost::Clear {
                bytes: 16384,
                node: 0,
            },
            0,
        );
        assert!((12_400_000..12_600_000).contains(&local), "{local}");
        assert_eq!(model.siblings(5).count(), 0);
    }

    #[test]
    fn threads_are_spread_over_dies_before_cores_are_shared() {
        let model = Model::new(&MachineFile::shipped("ivb-ex120").unwrap(), 120);
        let spread = model.spread();
        assert_eq!(spread[..6], [0, 30, 60, 90, 2, 32]);
        let mut cores = spread[..60].to_vec();
        cores.sort_unstable();
        assert!(cores.iter().all(|cpu| cpu % 2 == 0));
        assert_eq!(spread[60..62], [1, 31]);
        let mut all = spread;
        all.sort_unstable();
        assert!(all.into_iter().eq(0..120));
    }

    #[test]
    fn siblings_share_a_core() {
        let model = Model::new(&MachineFile::shipped("kvm16").unwrap(), 16);
        assert_eq!(model.siblings(5).collect::<Vec<_>>(), [4]);
    }
}
