//! Threads that use memory of other nodes: what that costs in the simulator, and that pages which
//! follow their threads make it cheap.

use minflt_host::HostTarget;
use minflt_mm::{NumaKnobs, era};
use minflt_sim::{MachineFile, SimTarget};
use minflt_workload::numa_mem::Columns;
use minflt_workload::{self as workload, Outcome, Plan, Workload};

fn plan(threads: u32) -> Plan {
    Plan::new(threads, threads)
}

fn numa_mem(options: &str) -> Workload {
    let options: Vec<_> = options.split(' ').map(str::to_owned).collect();
    Workload::parse("numa-mem", &options).expect("options")
}

/// A run on the machine of 2012, all of its CPUs, and its lines.
fn on_sim(name: &str, knobs: NumaKnobs, options: &str) -> (Outcome, Columns) {
    let file = MachineFile::shipped("x86-4n32").expect("shipped");
    let config = era(name).expect("an era").config;
    let target = SimTarget::start(&file, config, 256 << 20).expect("starts");
    target.set_numa_knobs(knobs);
    let outcome = numa_mem(options).run(&target, &plan(32)).expect("runs");
    let Some(workload::Columns::NumaMem(columns)) = outcome.columns.clone() else {
        panic!("its own lines")
    };
    (outcome, columns)
}

/// What the threads of each node get, in 10^9 bytes per second each.
fn by_node(outcome: &Outcome) -> [f64; 4] {
    core::array::from_fn(|node| {
        let of_node = &outcome.workers[8 * node..8 * node + 8];
        let speed = of_node
            .iter()
            .map(|it| it.ops as f64 / (it.end_ns - it.start_ns) as f64);
        speed.sum::<f64>() / 8.0
    })
}

#[test]
fn memory_of_one_node_serves_all_threads_and_its_own_first() {
    let knobs = NumaKnobs::default();
    let (far, one) = on_sim("linux-3.7", knobs, "-T 64K -l 40 -zZ0 --no-data_rand_walk");
    let (near, all) = on_sim("linux-3.7", knobs, "-T 64K -l 40 -zZ --no-data_rand_walk");
    // One node's bandwidth, and that of four.
    let (one, all) = (one.total_gb_per_s(), all.total_gb_per_s());
    assert!((14.0..15.0).contains(&one), "{one}");
    assert!((3.8..4.1).contains(&(all / one)), "{all} over {one}");
    let [own, others @ ..] = by_node(&far);
    assert!(others.iter().all(|it| own > 1.5 * it), "{own}, {others:?}");
    let speeds = by_node(&near);
    assert!(
        speeds.iter().all(|it| (it / speeds[0] - 1.0).abs() < 0.02),
        "{speeds:?}"
    );
}

#[test]
fn loading_takes_half_of_what_storing_does() {
    let run = |options: &str| {
        let (_, columns) = on_sim("linux-3.7", NumaKnobs::default(), options);
        columns.total_gb_per_s()
    };
    let loads = run("-T 64K -l 20 -0 --no-data_rand_walk --no-data_writes");
    let stores = run("-T 64K -l 20 -0 --no-data_rand_walk --no-data_reads");
    assert!(
        (1.9..2.1).contains(&(loads / stores)),
        "{loads} over {stores}"
    );
}

/// Balancing moves the pages to the threads that use them, after which they are as fast as if those
/// had touched them first; all stores are still there.
#[test]
fn pages_that_follow_their_threads_become_cheap() {
    const MS: u64 = 1_000_000;
    let knobs = NumaKnobs {
        scan_delay_ns: MS,
        scan_period_min_ns: MS,
        scan_period_max_ns: 8 * MS,
        ..NumaKnobs::default()
    };
    let options = "-T 128K -l 400 -zZ0";
    let (still, before) = on_sim("linux-3.7", knobs, options);
    assert!(!still.events.contains_key("numa-pages-migrated"));
    for name in ["numa-balancing-2012", "anon-vma-2012"] {
        let (moved, after) = on_sim(name, knobs, options);
        // Of 32 pages of each of 24 threads.
        let pages = moved.events["numa-pages-migrated"];
        assert!((700..1000).contains(&pages), "{name}: {pages} pages moved");
        let ratio = after.total_gb_per_s() / before.total_gb_per_s();
        assert!(ratio > 1.8, "{name}: x{ratio}");
        assert_eq!(moved.checks["contents"], 32 * (32 + 8));
    }
}

#[test]
fn it_runs_on_real_threads_with_balancing() {
    let config = era("anon-vma-2012").expect("an era").config;
    let target = HostTarget::<true>::start(config, 2, 64 << 20).expect("starts");
    target.system().set_numa_knobs(NumaKnobs {
        scan_delay_ns: 1,
        scan_period_min_ns: 1,
        ..NumaKnobs::default()
    });
    let test = numa_mem("-t 2 -T 64K -P 64K -L 16K -G 16K -s 0.1 -0");
    let outcome = test.run(&target, &plan(2)).expect("runs");
    // The timer scans more than once, and entries made to fault are faulted on.
    assert!(outcome.events["numa-hint-faults"] > 0, "{outcome:?}");
    assert_eq!(outcome.checks["contents"], 2 * (16 + 8));
}
