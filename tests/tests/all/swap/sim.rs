//! The same on simulated machines.

use super::{PAGE, map, sweep};
use minflt_mm::{Swap, System, era};
use minflt_pgtable::{Paging, X86_64};
use minflt_sim::{MachineFile, RunOptions, Sim, SimInstance, Size, TaskSpec, run};

type Virtual = Sim<X86_64, true>;

/// Pages that a program of four times the memory there is has.
fn four_times<P: Paging>(sys: &System<Sim<P, true>>) -> u64 {
    4 * sys.check_ledger(&[]).expect("adds up").free
}

#[test]
fn a_program_four_times_its_memory_ends_on_64_simulated_cpus() {
    // What the system itself needs is some hundreds of frames less.
    four_times_on(64, 12288, 3072, "linux-6.15");
}

/// Reclaim's walks with the anon_vma's lock exclusive. Fewer CPUs: a minute would be too long.
#[test]
fn a_program_four_times_its_memory_ends_in_older_eras() {
    four_times_on(16, 4096, 1024, "linux-3.7");
    four_times_on(16, 4096, 1024, "anon-vma-2012");
}

/// With so many slots, and so many frames beside them.
fn four_times_on(cpus: u32, slots: u64, frames: u64, name: &str) {
    let config = era(name).expect("an era").config;
    let file = MachineFile::shipped("x86-4n32").expect("shipped");
    let size = Size {
        cpus,
        ram_bytes: (slots + frames) * PAGE,
        max_tasks: cpus,
    };
    let machine = SimInstance::new(&file, size).expect("memory");
    let swap = Swap::Memory { pages: slots };
    let sys = System::<Virtual>::boot_with_swap(machine, config, swap).expect("boots");
    let each = four_times(&sys) / u64::from(cpus);
    assert!(each >= 16 && each * u64::from(cpus) <= slots, "{each}");
    let mm = sys.new_mm().expect("memory");
    let tasks = (0..cpus).map(|cpu| {
        let mm = &mm;
        TaskSpec::new(cpu, move || {
            let at = map(mm, each);
            sweep(mm, at, each, 1, u64::from(cpu));
        })
    });
    let report = run(sys.machine(), &RunOptions::virtual_time(), tasks.collect());
    assert!(report.outcome.is_ok(), "{name}: {}", report.outcome);
    let ledger = sys.check_ledger(&[&mm]).expect(name);
    assert!(ledger.swapped > 2 * ledger.anon, "{name}: {ledger:?}");
    drop(mm);
    let ledger = sys.check_ledger(&[]).expect(name);
    assert_eq!((ledger.anon, ledger.swapped), (0, 0), "{name}");
}
