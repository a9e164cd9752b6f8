//! A system on real threads for a test: booted, with an address space, and a ledger that adds up
//! at the end.

#![expect(clippy::expect_used, reason = "a test fails where it cannot start")]

use minflt_addr::VirtAddr;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{Config, Mm, MmHandle, Place, Prot, Running, Swap, System, eras_without_migration};
use minflt_pgtable::{Mmu, X86_64};

/// The machine that most tests run on: checked.
pub type Machine = Host<X86_64, true>;

/// The size of its pages.
pub const PAGE: u64 = 4096;
/// Where mappings of tests begin: at the start of a table.
pub const BASE: u64 = 1 << 30;

/// The address of a test's page `n`.
#[must_use]
pub const fn page(n: u64) -> VirtAddr {
    VirtAddr(BASE + n * PAGE)
}

/// Maps anonymous pages from page `n` on.
///
/// # Panics
/// If they cannot be mapped.
pub fn map(mm: &Mm<Machine>, n: u64, pages: u64, prot: Prot) {
    let mapped = mm.mmap(Place::Fixed(page(n)), pages * PAGE, prot);
    assert_eq!(mapped, Ok(page(n)));
}

/// A machine whose memory the host finds when it is touched.
///
/// # Panics
/// If there is no memory.
#[must_use]
pub fn machine(cpus: u32, ram_bytes: usize) -> HostInstance {
    let options = HostOptions {
        cpus,
        ram_bytes,
        prefault: Prefault::OnTouch,
    };
    HostInstance::new(&options).expect("memory")
}

/// A checked system on a machine of its own, of one node and without swap.
///
/// # Panics
/// If it does not boot.
#[must_use]
pub fn boot(config: Config, cpus: u32, ram_bytes: usize) -> Running<Machine> {
    boot_on(machine(cpus, ram_bytes), config, Swap::None)
}

/// A system on `machine`.
///
/// # Panics
/// If it does not boot.
#[must_use]
pub fn boot_on<M: Mmu<Instance = HostInstance>>(
    machine: HostInstance,
    config: Config,
    swap: Swap<M>,
) -> Running<M> {
    System::boot_with_swap(machine, config, swap).expect("boots")
}

/// Runs `test` on CPU 0 of `sys` with an address space of its own. The ledger adds up before and
/// after the address space ends, nothing is left of it, and no lock has been held for too long.
///
/// # Panics
/// If it is not so.
pub fn alone<M: Mmu<Instance = HostInstance>>(
    name: &str,
    sys: &System<M>,
    test: impl FnOnce(&MmHandle<'_, M>),
) {
    let entered = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    test(&mm);
    let balanced = sys.check_ledger(&[&mm]);
    balanced.unwrap_or_else(|error| panic!("{name}: {error}"));
    drop(mm);
    let left = sys.check_ledger(&[]);
    let left = left.unwrap_or_else(|error| panic!("{name}, gone: {error}"));
    assert_eq!((left.anon, left.file, left.tables), (0, 0, 0), "{name}");
    assert_eq!(sys.committed_pages(), 0, "{name}: exit gives back");
    drop(entered);
    assert_eq!(sys.machine().failed(), None, "{name}");
}

/// Runs `test` as [`alone`] does in each era that can be told apart without migration.
///
/// # Panics
/// If anything does not add up.
pub fn in_each_era(
    cpus: u32,
    ram_bytes: usize,
    test: impl Fn(&'static str, &System<Machine>, &MmHandle<'_, Machine>),
) {
    for era in eras_without_migration() {
        let sys = boot(era.config, cpus, ram_bytes);
        alone(era.name, &sys, |mm| test(era.name, &sys, mm));
    }
}

/// Numbers that look random, the same in each run.
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next one, below `end`.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}
