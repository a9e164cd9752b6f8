//! What one acquisition of a lock costs on a simulated machine, by CPUs:
//! `cargo run --release -p minflt-sim --example locks [MACHINE]`.

use minflt_pgtable::X86_64;
use minflt_sim::{MachineFile, RunOptions, Sim, SimInstance, Size, TaskSpec, run};
use minflt_sync::order::{LruLock, MmapLock};
use minflt_sync::{Instance, RwSem, SpinLock};

type M = Sim<X86_64>;

const ROUNDS: u64 = 2000;
const OUTSIDE_NS: u64 = 1000;

fn main() {
    let name = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "altix32".to_owned());
    let file = match MachineFile::shipped(&name) {
        Ok(file) => file,
        Err(e) => {
            println!("{e}");
            return;
        }
    };
    println!("{name}: simulated ns per acquisition, all CPUs together, {OUTSIDE_NS} ns outside");
    println!(
        "{:>5} {:>10} {:>10} {:>10}",
        "CPUs", "spin", "read", "write"
    );
    let most = file.shape.cpus.value as u32;
    for cpus in [1, 2, 4, 8, 16, 32]
        .into_iter()
        .filter(|cpus| *cpus <= most)
    {
        let [spin, read, write] = [0, 1, 2].map(|kind| cell(&file, cpus, kind));
        println!("{cpus:>5} {spin:>10} {read:>10} {write:>10}");
    }
}

fn cell(file: &MachineFile, cpus: u32, kind: u32) -> u64 {
    let size = Size {
        cpus,
        ram_bytes: 1 << 20,
        max_tasks: cpus,
    };
    let Ok(at) = SimInstance::new(file, size) else {
        return 0;
    };
    let base = at.ram().base;
    let spin = base.cast::<SpinLock<u64, LruLock, M>>();
    let sem = base.wrapping_add(4096).cast::<RwSem<MmapLock, M>>();
    // SAFETY: aligned, within the memory, and nobody else's.
    unsafe { spin.write(SpinLock::new(0)) };
    // SAFETY: as above.
    unsafe { sem.write(RwSem::new()) };
    // SAFETY: just written, shared from now on.
    let (spin, sem) = (unsafe { &*spin }, unsafe { &*sem });
    let body = || {
        for _ in 0..ROUNDS {
            match kind {
                0 => *spin.lock() += 1,
                1 => drop(sem.read()),
                _ => drop(sem.write()),
            }
            M::compute(OUTSIDE_NS);
        }
    };
    let tasks = (0..cpus).map(|cpu| TaskSpec::new(cpu, body)).collect();
    let report = run(&at, &RunOptions::virtual_time(), tasks);
    assert!(report.outcome.is_ok(), "{}", report.outcome);
    report.end_ns / (ROUNDS * u64::from(cpus))
}
