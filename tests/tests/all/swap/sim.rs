//! The same on simulated machines.

use super::{PAGE, map, sweep};
use minflt_mm::{Config, Swap, System, era};
use minflt_pgtable::{Paging, X86_64};
use minflt_sim::{MachineFile, RunOptions, Sim, SimInstance, Size, TaskSpec, run};

type Virtual = Sim<X86_64, true>;

/// Pages that a program of four times the memory there is has.
fn four_times<P: Paging>(sys: &System<Sim<P, true>>) -> u64 {
    4 * sys.check_ledger(&[]).expect("adds up").free
}

/// With the anon_vma's lock exclusive, skipped where it can be, and shared.
#[test]
fn a_program_four_times_its_memory_ends_on_64_simulated_cpus() {
    for name in ["linux-3.7", "anon-vma-2012", "linux-6.15"] {
        four_times_on_64_cpus(name, era(name).expect("an era").config);
    }
}

fn four_times_on_64_cpus(name: &str, config: Config) {
    const CPUS: u32 = 64;
    let file = MachineFile::shipped("x86-4n32").expect("shipped");
    let slots = 12288;
    let size = Size {
        cpus: CPUS,
        // What the system itself needs, the slots, and some hundreds of frames.
        ram_bytes: (slots + 2560) * PAGE,
        max_tasks: CPUS,
    };
    let machine = SimInstance::new(&file, size).expect("memory");
    let swap = Swap::Memory { pages: slots };
    let sys = System::<Virtual>::boot_with_swap(machine, config, swap).expect("boots");
    let each = four_times(&sys) / u64::from(CPUS);
    assert!(each >= 16 && each * u64::from(CPUS) <= slots, "{each}");
    let mm = sys.new_mm().expect("memory");
    let tasks = (0..CPUS).map(|cpu| {
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
