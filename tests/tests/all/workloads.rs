//! The workloads on real threads and in virtual time, small: every era runs them to the end, with
//! contents and the ledger checked, and simulated runs repeat.

use minflt_host::HostTarget;
use minflt_mm::{Config, era, eras_without_migration};
use minflt_sim::{MachineFile, SimTarget};
use minflt_workload::{
    Columns, Outcome, Plan, Prot, Spaces, Stop, Target, TargetError, Worker, Workload,
};

/// Workers of the plan, and the command line; all small.
const LINES: &[(u32, &str)] = &[
    (2, "ebizzy -mTRp --records 20 -s 64K"),
    (2, "ebizzy -TRP -n 3 --records 20 --generator ltp"),
    (2, "kernbench -f -n 1 --half 1 --units 5 --unit 256K"),
    (3, "load --size 1M --chunk 64K"),
    (1, "load --size 256K"),
    (2, "mmap1 -s 20 --len 1M"),
    (2, "mmap1 -s 20 --len 1M --mode processes"),
    (2, "brk1 -s 20"),
    (2, "brk1 -s 20 --touch"),
    (2, "brk1 -s 20 --mode threads"),
    (2, "mmap2 -s 20 --len 1M"),
    (2, "mmap2 -s 20 --len 1M --mode processes"),
    (2, "page-fault2 -s 2 --len 256K"),
    (2, "page-fault2 -s 2 --len 256K --mode processes"),
    (2, "page-fault3 -s 2 --len 256K"),
    (2, "page-fault3 -s 2 --len 256K --mode processes"),
    (2, "file-seq --size 1M"),
    (3, "file-rand --size 1M --measure process --page-ns 100"),
    (2, "file-sparse --size 8M"),
    (2, "file-rand --size 1M --cache cold"),
    (2, "fork1 -s 5 --resident 128K"),
    (2, "fork1 -s 5 --resident 128K --mode threads"),
    (2, "numa-mem -T 16K -l 2 -zZ0"),
    (2, "numa-mem -t 2 -T 8K -P 8K -L 8K -G 8K -l 2"),
    (2, "numa-mem -p 2 -T 8K -P 8K -L 8K -G 8K -l 2"),
    (2, "usemem --prealloc --prefault -r 2 64K"),
    (2, "usemem -t 2 -PF -r 2 64K"),
    (2, "commit -s 20 --share 128K --reservation 1G"),
];

fn plan(threads: u32) -> Plan {
    Plan::new(threads, threads)
}

fn workload(line: &str) -> Workload {
    let (name, options) = line.split_once(' ').expect("a name and options");
    let options: Vec<_> = options.split(' ').map(str::to_owned).collect();
    Workload::parse(name, &options).expect("options")
}

fn on_host(config: Config, (threads, line): (u32, &str)) -> Result<Outcome, TargetError> {
    let workload = workload(line);
    let cpus = workload.most_workers(threads, threads);
    let target = HostTarget::<true>::start(config, cpus, 64 << 20).expect("starts");
    workload.run(&target, &plan(threads))
}

fn on_sim(
    machine: &str,
    config: Config,
    (threads, line): (u32, &str),
) -> (Result<Outcome, TargetError>, u64) {
    let file = MachineFile::shipped(machine).expect("shipped");
    let target = SimTarget::start(&file, config, 256 << 20).expect("starts");
    let (workload, plan) = (workload(line), plan(threads));
    (workload.run(&target, &plan), target.hash())
}

/// What every outcome has.
fn sound(line: &str, era: &str, outcome: &Outcome) {
    let what = format!("{line} in {era}: {outcome:?}");
    assert!(outcome.checks["ledger"] > 0, "{what}");
    let unchecked = line.contains("--mode threads") && line.starts_with("brk1");
    assert_eq!(outcome.checks["contents"] == 0, unchecked, "{what}");
    assert!(
        outcome.columns.is_some() && !outcome.rates.is_empty(),
        "{what}"
    );
    let around = outcome.events.get("fault-around-mapped").copied();
    let around = around.unwrap_or(0);
    assert!(outcome.faults + around >= outcome.pages, "{what}");
    if line.starts_with("file-") && !line.starts_with("file-sparse") {
        // Every page of every thread is mapped once, by a fault of its own or another.
        assert_eq!(outcome.faults + around, outcome.pages, "{what}");
    }
    assert!(outcome.wall_ns > 0, "{what}");
    let forks = outcome.events.get("fork-calls").copied().unwrap_or(0);
    let children = match line.split(' ').next() {
        // The warm run's units are not counted; each task forks once more for its check.
        Some("kernbench") => 3 * 5,
        Some("fork1") => 2 * 6,
        // The first process forks the workers.
        Some("usemem") if !line.contains("-t 2") => 2,
        _ => 0,
    };
    assert_eq!(forks, children, "{what}");
}

#[test]
fn every_workload_ends_well_on_real_threads_in_every_era() {
    for era in eras_without_migration() {
        for line in LINES {
            let outcome = on_host(era.config, *line);
            let outcome = outcome.unwrap_or_else(|error| panic!("{line:?}: {error}"));
            sound(line.1, era.name, &outcome);
        }
    }
}

/// The workloads of huge pages, in the eras that differ in them.
const HUGE: &[(u32, &str)] = &[
    (2, "hugetlb-fault --size 4M -S 0.002"),
    (2, "hugetlb-fork --size 4M -S 0.002"),
    (2, "hugetlb-both --size 4M -S 0.002"),
    (2, "usemem -U --prealloc --prefault -r 2 5M"),
    (2, "usemem -U 5M"),
    (2, "usemem -t 2 -UPF 5M"),
];
const HUGE_ERAS: [&str; 3] = ["linux-5.19", "hugetlb-vma-lock-2022", "linux-6.15"];

#[test]
fn workloads_of_huge_pages_end_well_on_real_threads() {
    for name in HUGE_ERAS {
        let config = era(name).expect("an era").config;
        for line in HUGE {
            let outcome = on_host(config, *line);
            let outcome = outcome.unwrap_or_else(|error| panic!("{name} {line:?}: {error}"));
            assert!(outcome.checks["contents"] > 0 && outcome.checks["ledger"] > 0);
            assert!(outcome.workers.iter().all(|worker| worker.ops > 0));
        }
    }
}

#[test]
fn workloads_of_huge_pages_repeat_in_virtual_time() {
    for name in HUGE_ERAS {
        let config = era(name).expect("an era").config;
        for line in HUGE {
            let (outcome, hash) = on_sim("kvm16", config, *line);
            let outcome = outcome.unwrap_or_else(|error| panic!("{name} {line:?}: {error}"));
            assert!(outcome.checks["contents"] > 0 && outcome.checks["ledger"] > 0);
            let (again, same) = on_sim("kvm16", config, *line);
            let again = again.expect("as before");
            assert_eq!(format!("{outcome:?}"), format!("{again:?}"), "{line:?}");
            assert_eq!(hash, same, "{line:?}");
        }
    }
    let config = era("linux-5.19").expect("an era").config;
    let why = on_sim("altix32", config, HUGE[0])
        .0
        .expect_err("no huge pages");
    let words = "hugetlb-fault: the machine's format of page tables has no huge pages";
    assert_eq!(why.to_string(), words);
}

/// Instances of one program share the tables of a file of a GiB and more; those apart do not.
#[test]
fn instances_that_map_apart_share_no_table() {
    let config = era("hugetlb-vma-lock-2022").expect("an era").config;
    let file = MachineFile::shipped("kvm16").expect("shipped");
    let shared = |line: &str| {
        let target = SimTarget::start(&file, config, 4 << 30).expect("starts");
        let outcome = workload(line).run(&target, &plan(2)).expect("runs");
        assert!(outcome.workers.iter().all(|worker| worker.ops > 0));
        outcome.events.get("tables-shared").copied().unwrap_or(0)
    };
    // A forked child maps the file where its parent does, and shares its table in the last look.
    for (program, with_children) in [("hugetlb-fault", 0), ("hugetlb-fork", 2)] {
        let line = format!("{program} --size 2G -S 0.001");
        assert!(shared(&line) > with_children, "{line}");
        assert_eq!(shared(&format!("{line} --apart")), with_children, "{line}");
    }
}

#[test]
fn records_are_copied_and_searched_on_real_threads() {
    for line in [
        "ebizzy -R --records 10 -s 64K",
        "ebizzy -zp -n 2 --records 3 -s 64K",
    ] {
        let config = era("spf-2017").expect("an era").config;
        let outcome = on_host(config, (2, line)).expect("runs");
        assert!(outcome.checks["contents"] > 0);
    }
}

#[test]
fn a_time_ends_ebizzy_on_real_threads_and_in_virtual_time() {
    let config = era("linux-4.13").expect("an era").config;
    let line = (2, "ebizzy -mTRp -S 0.01 -s 64K");
    let host = on_host(config, line).expect("runs");
    let (sim, _) = on_sim("kvm16", config, line);
    for outcome in [host, sim.expect("runs")] {
        assert!(outcome.wall_ns >= 10_000_000);
        assert!(outcome.workers.iter().all(|worker| worker.ops > 0));
    }
}

#[test]
fn every_workload_repeats_in_virtual_time_in_every_era() {
    for era in eras_without_migration() {
        for line in LINES {
            let (outcome, hash) = on_sim("kvm16", era.config, *line);
            let outcome = outcome.unwrap_or_else(|error| panic!("{line:?}: {error}"));
            sound(line.1, era.name, &outcome);
            let (again, same) = on_sim("kvm16", era.config, *line);
            let again = again.expect("as before");
            assert_eq!(format!("{outcome:?}"), format!("{again:?}"), "{line:?}");
            assert_eq!(hash, same, "{line:?}");
        }
    }
}

#[test]
fn pages_of_16_kib_do_as_well() {
    let config = era("atomic-pte-2004").expect("an era").config;
    for line in LINES {
        let (outcome, _) = on_sim("altix32", config, *line);
        let outcome = outcome.unwrap_or_else(|error| panic!("{line:?}: {error}"));
        sound(line.1, "atomic-pte-2004", &outcome);
    }
}

#[test]
fn what_a_target_cannot_do_is_refused_with_the_reason() {
    let config = era("spf-2017").expect("an era").config;
    let words = |result: Result<Outcome, TargetError>| match result {
        Err(TargetError::Unsupported(words)) => words,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        words(on_sim("kvm16", config, (1, "file-rand --every-word")).0),
        "file-rand: a simulated page holds one word; omit --every-word, and give the time \
         of loading a page's words by --page-ns"
    );
    assert_eq!(
        words(on_sim("kvm16", config, (1, "ebizzy -R")).0),
        "ebizzy: records cannot be copied and searched: a simulated page holds one word; give -T"
    );
    let file = MachineFile::shipped("kvm16").expect("shipped");
    let target = SimTarget::start(&file, config, 64 << 20).expect("starts");
    let crowd = Plan {
        cpus: 16,
        ..plan(65)
    };
    assert_eq!(
        words(workload("mmap1 -s 1").run(&target, &crowd)),
        "65 threads or processes: a simulated machine of 16 CPUs takes at most 64"
    );
}

/// Workers with spaces of their own: the same address, other words; mailbox and barrier reach all.
fn apart<W: Worker>(w: &mut W) -> Result<(), Stop> {
    let at = w.map(w.page_size(), Prot::ReadWrite)?;
    let mine = u64::from(w.index()) + 1;
    w.store(at, mine)?;
    w.post(w.index() as usize, at.0);
    let turn = w.claim(5);
    w.barrier();
    let same = (1..w.threads() as usize).all(|slot| w.read(slot) == w.read(0));
    if !same || turn >= 3 || w.read(5) != 3 || w.load(at)? != mine {
        return Err(Stop::Errno(1));
    }
    w.fork(|child| {
        child.ops(10);
        if child.load(at)? != mine {
            return Err(Stop::Errno(2));
        }
        child.store(at, 99)
    })?;
    if w.load(at)? != mine {
        return Err(Stop::Errno(3));
    }
    // A child that stops is the worker's error, and the worker goes on.
    if w.fork(|_| Err(Stop::Errno(77))) != Err(Stop::Errno(77)) {
        return Err(Stop::Errno(4));
    }
    w.ops(1);
    Ok(())
}

#[test]
fn workers_with_spaces_of_their_own_share_the_mailbox_only() {
    let config = era("spf-2017").expect("an era").config;
    let own = Plan {
        spaces: Spaces::Own,
        ..plan(3)
    };
    let host = HostTarget::<true>::start(config, 3, 64 << 20).expect("starts");
    let host = host.process(&own, |w| apart(w)).expect("runs");
    let file = MachineFile::shipped("kvm16").expect("shipped");
    let sim = SimTarget::start(&file, config, 64 << 20).expect("starts");
    let sim = sim.process(&own, |w| apart(w)).expect("runs");
    assert!(sim.sleeps >= 6, "a sleep for each of the forks");
    for report in [host, sim] {
        assert!(report.workers.iter().all(|worker| worker.ops == 11));
        assert_eq!(report.events["fork-calls"], 6);
        assert!(report.system_ns > 0);
    }
}

#[test]
fn a_process_that_stops_is_named() {
    let config = era("linux-4.13").expect("an era").config;
    let target = HostTarget::<true>::start(config, 2, 64 << 20).expect("starts");
    for spaces in [Spaces::Shared, Spaces::Own] {
        let plan = Plan { spaces, ..plan(2) };
        let stopped = target.process(&plan, |w| match w.index() {
            1 => Err(Stop::Errno(5)),
            _ => {
                w.barrier();
                Ok(())
            }
        });
        let why = Stop::Errno(5);
        let expected = TargetError::Stopped { worker: 1, why };
        assert_eq!(stopped.err(), Some(expected));
    }
}

#[test]
fn kernbench_shares_the_work_in_virtual_time() {
    let config = era("linux-4.13").expect("an era").config;
    let line = (4, "kernbench -sf -n 1 -HM --units 48 --unit 1M");
    let (outcome, _) = on_sim("kvm16", config, line);
    let outcome = outcome.expect("runs");
    let Some(Columns::Kernbench(columns)) = &outcome.columns else {
        panic!("{outcome:?}")
    };
    let [single, four] = &columns.loads[..] else {
        panic!("{columns}")
    };
    // Two cores of two CPUs each, at 0.6 of their speed, and small units, which end together.
    assert!(
        four.elapsed_s.mean < single.elapsed_s.mean * 0.6,
        "{columns}"
    );
    assert!(four.percent_cpu.mean > 200.0 && single.percent_cpu.mean <= 101.0);
    // More jobs than CPUs make way for each other.
    let crowded = Plan { cpus: 1, ..plan(4) };
    let file = MachineFile::shipped("kvm16").expect("shipped");
    let target = SimTarget::start(&file, config, 256 << 20).expect("starts");
    let outcome = workload("kernbench -f -n 1 -HM --units 12 --unit 8M").run(&target, &crowded);
    assert!(outcome.expect("runs").preemptions > 0);
}

/// Faults with an order of fault-around; the skipped neighbours of the run.
fn faults(outcome: &Outcome) -> (u64, u64) {
    let skipped = outcome.events.get("fault-around-skipped").copied();
    (outcome.faults, skipped.unwrap_or(0))
}

/// What the tables of 2014 are about: how many faults a file takes. One thread takes the pages
/// over those that one fault maps, but for the window that the mapping begins in; where others
/// fault on the same pages, at most one more for each neighbour that was skipped because somebody
/// had it locked.
#[test]
fn faults_on_files_are_pages_over_the_order_and_skips_at_the_most() {
    use minflt_mm::config::FaultAround;
    let lines = [
        "file-seq --size 4M",
        "file-rand --size 4M",
        "file-sparse --size 32M",
    ];
    for (at, (around, ..)) in FaultAround::ALL.iter().enumerate() {
        let Some(order) = around.order() else {
            continue;
        };
        let config = Config {
            around: *around,
            ..era("fault-around-2014").expect("an era").config
        };
        for line in lines {
            for threads in [1, 2, 8] {
                let expected = match line.starts_with("file-sparse") {
                    true => 16,
                    false => 1024 >> order,
                };
                let expected = expected * u64::from(threads);
                let (sim, _) = on_sim("kvm16", config, (threads, line));
                let mut outcomes = vec![sim.expect("runs")];
                if threads <= 2 && at % 2 == 0 {
                    let host = on_host(config, (threads, line));
                    outcomes.push(host.expect("runs"));
                }
                for outcome in outcomes {
                    let (faults, skipped) = faults(&outcome);
                    let what = format!("{line}, order {order}, {threads}: {outcome:?}");
                    // A mapping that begins amid a window takes one window more.
                    let most = expected + skipped + u64::from(threads);
                    assert!((expected..=most).contains(&faults), "{what}");
                    assert!(threads > 1 || skipped == 0, "{what}");
                }
            }
        }
    }
}

#[test]
fn whole_pages_of_files_are_read_on_real_threads() {
    let config = era("fault-around-2014").expect("an era").config;
    for line in [
        "file-seq --every-word --size 1M",
        "file-rand --every-word --size 1M",
    ] {
        let outcome = on_host(config, (2, line)).expect("runs");
        let (faults, skipped) = faults(&outcome);
        assert!((32..=34 + skipped).contains(&faults), "{outcome:?}");
    }
}

/// The end of a process that mapped a file: its pages stay in the page cache, and there is nobody
/// who could bring a translation back.
#[test]
fn the_end_of_a_process_frees_no_page_of_a_file_and_asks_other_cpus_once() {
    let mut file = MachineFile::shipped("ivb-ex120").expect("shipped");
    file.ns.free_page.value = 1e6;
    let config = era("linux-3.14").expect("an era").config;
    let target = SimTarget::start(&file, config, 64 << 20).expect("starts");
    let outcome = workload("file-seq --size 2M --measure process").run(&target, &plan(4));
    let outcome = outcome.expect("runs");
    assert_eq!(outcome.pages, 4 * 512);
    assert!(outcome.wall_ns < 512 * 1_000_000, "{}", outcome.wall_ns);
    assert_eq!(outcome.events["tlb-shootdowns"], 1);
    assert_eq!(outcome.events["tlb-shootdown-targets"], 3);
}

#[test]
fn threads_that_read_whole_pages_get_what_their_nodes_memory_gives() {
    let file = MachineFile::shipped("ivb-ex120").expect("shipped");
    let config = era("fault-around-2014").expect("an era").config;
    let wall = |threads, line| {
        let target = SimTarget::start(&file, config, 64 << 20).expect("starts");
        let plan = Plan {
            threads,
            ..plan(60)
        };
        let outcome = workload(line).run(&target, &plan).expect("runs");
        outcome.wall_ns
    };
    let read = "file-seq --size 2M --every-word";
    // A page in 717 ns, and 16 of them for a fault.
    let alone = wall(1, read) - wall(1, "file-seq --size 2M");
    assert!((366_000..368_000).contains(&alone), "{alone}");
    // The file lies on one node, whose memory gives 46 GB/s to 30 CPUs.
    let together = wall(30, read);
    assert!(together > 30 * (2 << 20) / 46, "{together}");
    assert!(together < 2 * 30 * (2 << 20) / 46, "{together}");
}
