//! How fast the engine is on this host: `cargo run --release -p minflt-sim --example speed`; with
//! `-- faults`, how many faults of each era it simulates in a second of this host, on machines of
//! 32 and of 512 CPUs. Behind `faults` may stand machines and then eras to do only those.

use core::cell::Cell;
use minflt_addr::VirtAddr;
use minflt_mm::config::{Era, eras_without_files};
use minflt_mm::{Place, Prot};
use minflt_sim::{
    Budget, MachineFile, RunOptions, SimInstance, SimTarget, Simulated, Size, TaskSpec, explore,
    run,
};
use minflt_sync::{Atomic, Instance, Ordering};
use minflt_workload::Target;

type M = Simulated;

/// Accesses of a run, over all CPUs.
const ACCESSES: u64 = 4_000_000;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, only @ ..] = &words[..]
        && first == "faults"
    {
        return all_faults(only);
    }
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

/// Pages that each CPU faults in.
const PAGES: u64 = 64;

fn all_faults(only: &[String]) {
    println!("faults of {PAGES} pages of each CPU, neighbours in one mapping:");
    let asked = |name: &str, any: bool| only.iter().any(|it| it == name) || !any;
    let machines = [
        ("altix32", 32),
        ("altix512", 512),
        ("next1024", 32),
        ("next1024", 512),
    ];
    let some_machine = machines.iter().any(|(name, _)| asked(name, true));
    let some_era = eras_without_files().any(|era| asked(era.name, true));
    for (machine, cpus) in machines {
        for era in eras_without_files() {
            if !asked(machine, some_machine) || !asked(era.name, some_era) {
                continue;
            }
            faults(machine, cpus, era);
        }
    }
}

fn faults(machine: &str, cpus: u32, era: &Era) {
    let Ok(file) = MachineFile::shipped(machine) else {
        return;
    };
    let size = Size {
        cpus,
        ram_bytes: 8 << 30,
        max_tasks: cpus,
    };
    let Ok(target) = SimTarget::start_sized(&file, era.config, size) else {
        return;
    };
    let system = target.system();
    let page_bytes = target.page_size();
    let Ok(mm) = system.new_mm() else { return };
    let bytes = u64::from(cpus) * PAGES * page_bytes;
    let Ok(range) = mm.mmap(Place::Any, bytes, Prot::READ_WRITE) else {
        return;
    };
    let body = |cpu: u32| {
        let mm = &mm;
        move || {
            let thread = mm.thread();
            for page in 0..PAGES {
                let offset = (u64::from(cpu) * PAGES + page) * page_bytes;
                if thread.store(VirtAddr(range.0 + offset), page).is_err() {
                    return;
                }
            }
        }
    };
    let tasks = (0..cpus).map(|cpu| TaskSpec::new(cpu, body(cpu))).collect();
    let faults = u64::from(cpus) * PAGES;
    let start = now();
    let report = run(system.machine(), &RunOptions::virtual_time(), tasks);
    let seconds = start();
    println!(
        "  {machine}, {cpus:>3} CPUs, {:<16} {:>8.0} faults/s, {:>6} accesses a fault, {:>4.1} M \
         accesses/s, end {} us, hash {:016x} ({})",
        era.name,
        faults as f64 / seconds,
        report.events / faults,
        report.events as f64 / seconds / 1e6,
        report.end_ns / 1000,
        report.hash,
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
