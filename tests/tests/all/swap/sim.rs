//! The same on simulated machines.

use super::{PAGE, map, newest, sweep};
use minflt_mm::{Swap, System};
use minflt_pgtable::X86_64;
use minflt_sim::{MachineFile, RunOptions, Sim, SimInstance, Size, TaskSpec, run};

type Virtual = Sim<X86_64, true>;

#[test]
fn a_program_four_times_its_memory_ends_on_64_simulated_cpus() {
    const CPUS: u32 = 64;
    const RAM: u64 = 1024;
    let file = MachineFile::shipped("x86-4n32").expect("shipped");
    let each = 4 * RAM / u64::from(CPUS);
    let size = Size {
        cpus: CPUS,
        ram_bytes: (RAM + 4 * RAM) * PAGE + (4 << 20),
        max_tasks: CPUS,
    };
    let machine = SimInstance::new(&file, size).expect("memory");
    let swap = Swap::Memory { pages: 4 * RAM };
    let sys = System::<Virtual>::boot_with_swap(machine, newest(), swap).expect("boots");
    let mm = sys.new_mm().expect("memory");
    let tasks = (0..CPUS).map(|cpu| {
        let mm = &mm;
        TaskSpec::new(cpu, move || {
            let at = map(mm, each);
            sweep(mm, at, each, 2, u64::from(cpu));
        })
    });
    let report = run(sys.machine(), &RunOptions::virtual_time(), tasks.collect());
    assert!(report.outcome.is_ok(), "{}", report.outcome);
    let ledger = sys.check_ledger(&[&mm]).expect("adds up");
    assert!(ledger.swapped >= RAM, "{ledger:?}");
    drop(mm);
    sys.check_ledger(&[]).expect("adds up");
}
