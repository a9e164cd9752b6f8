//! How fast the engine is on this host: `cargo run --release -p minflt-sim --example speed`.

use core::cell::Cell;
use minflt_pgtable::X86_64;
use minflt_sim::{Budget, MachineFile, RunOptions, Sim, SimInstance, Size, TaskSpec, explore, run};
use minflt_sync::{Atomic, Instance, Ordering};

type M = Sim<X86_64>;

/// Accesses of a run, over all CPUs.
const ACCESSES: u64 = 4_000_000;

fn main() {
    println!("virtual time, one of 8 accesses to one shared line:");
    for cpus in [1, 16, 64, 256, 1024] {
        virtual_time(cpus, 8);
    }
    println!("virtual time, every access to one shared line:");
    for cpus in [2, 32, 512] {
        virtual_time(cpus, 1);
    }
    println!("two tasks, fresh memory each time:");
    for (kib, accesses) in [(16, 100), (200, 100), (200, 400)] {
        schedules(kib, accesses);
    }
}

fn word<'a>(at: &SimInstance, offset: usize) -> &'a Atomic<u64, M> {
    assert!(offset + 8 <= at.ram().bytes);
    // SAFETY: within the memory, as just checked.
    let word = unsafe { at.ram().base.add(offset) };
    // SAFETY: aligned, zeroed, and used as an atomic word only.
    unsafe { &*word.cast() }
}

fn virtual_time(cpus: u32, one_of: u64) {
    let Ok(file) = MachineFile::shipped("altix32") else {
        return;
    };
    let size = Size {
        cpus,
        ram_bytes: 64 << 20,
        max_tasks: cpus,
    };
    let Ok(at) = SimInstance::new(&file, size) else {
        return;
    };
    let shared = word(&at, 0);
    let body = |cpu: u32| {
        let own = word(&at, 4096 + 128 * cpu as usize);
        move || {
            for n in 0..ACCESSES / u64::from(cpus) {
                let to = if n % one_of == 0 { shared } else { own };
                to.add(1, Ordering::Relaxed);
            }
        }
    };
    let tasks = (0..cpus).map(|cpu| TaskSpec::new(cpu, body(cpu))).collect();
    let start = now();
    let report = run(&at, &RunOptions::virtual_time(), tasks);
    let seconds = start();
    println!(
        "  {cpus:>4} CPUs: {:>6.1} M accesses/s, end {} us ({})",
        report.events as f64 / seconds / 1e6,
        report.end_ns / 1000,
        report.outcome
    );
}

fn schedules(kib: usize, accesses: usize) {
    let Ok(file) = MachineFile::shipped("explorer") else {
        return;
    };
    let size = Size {
        cpus: 2,
        ram_bytes: 1 << 20,
        max_tasks: 2,
    };
    let Ok(at) = SimInstance::new(&file, size) else {
        return;
    };
    let budget = Budget {
        schedules: 20_000,
        seed: 1,
    };
    let sum = Cell::new(0);
    let start = now();
    let found = explore(&budget, |options| {
        // SAFETY: 1: nothing refers to the memory between schedules. 2: all of it is named.
        unsafe { at.reset(kib << 10) };
        // What building a system would write.
        // SAFETY: within the memory, which nobody else uses now.
        unsafe { at.ram().base.write_bytes(0, kib << 10) };
        let body = || {
            for n in 0..accesses {
                word(&at, n % 16 * 64).add(1, Ordering::Relaxed);
            }
            sum.set(sum.get() + 1);
        };
        run(
            &at,
            options,
            vec![TaskSpec::new(0, body), TaskSpec::new(1, body)],
        )
    });
    let seconds = start();
    println!(
        "  {kib:>4} KiB, {accesses} accesses a task: {:>7.0} schedules/s, {:.1} M accesses/s",
        found.schedules as f64 / seconds,
        found.events as f64 / seconds / 1e6
    );
}

/// A stopwatch.
fn now() -> impl Fn() -> f64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "it is the simulator itself that is timed"
    )]
    let start = std::time::Instant::now();
    move || start.elapsed().as_secs_f64()
}
