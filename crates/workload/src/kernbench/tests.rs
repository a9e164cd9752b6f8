use super::{Kernbench, Load, Unit, Warmth};
use crate::fake::{Fake, plan};
use crate::outcome::Columns;
use crate::target::{Plan, Stop, TargetError};

fn small() -> Kernbench {
    Kernbench {
        runs: 2,
        units: Some(9),
        unit_bytes: 256 << 10,
        warmth: Warmth::Cold,
        ..Kernbench::default()
    }
}

fn parse(line: &str) -> Result<Kernbench, String> {
    let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    Kernbench::parse(&args).map_err(|error| error.to_string())
}

#[test]
fn options_are_those_of_the_original() {
    let posted = parse("-n 5 -o 16 --half 7 -M").unwrap();
    assert_eq!(
        (posted.runs, posted.optimal, posted.half),
        (5, Some(16), Some(7))
    );
    assert_eq!(posted.loads, [Load::Half, Load::Optimal]);
    assert_eq!((posted.units, posted.ns_per_kib), (None, 7000));
    let build = parse("--units 64 --ns-per-kib 1000").unwrap();
    assert_eq!((build.units, build.ns_per_kib), (Some(64), 1000));
    let fast = parse("-fsHO").unwrap();
    assert_eq!((fast.runs, fast.warmth), (3, Warmth::Cold));
    assert_eq!(fast.loads, [Load::Single, Load::Maximal]);
    assert_eq!(
        parse("-HOM"),
        Err("kernbench: -H, -O and -M leave no load; leave one of them out".to_owned())
    );
    assert_eq!(
        parse("-H --half 3"),
        Err("kernbench: --half and -H are mutually exclusive".to_owned())
    );
}

#[test]
fn jobs_of_the_loads_follow_the_original() {
    let test = Kernbench {
        units: Some(100),
        ..small()
    };
    let jobs = |load, threads, cpus| test.jobs(load, threads, cpus);
    assert_eq!(jobs(Load::Half, 16, 16), Some(8));
    assert_eq!(jobs(Load::Half, 4, 4), Some(3));
    assert_eq!(jobs(Load::Half, 2, 3), None);
    assert_eq!(jobs(Load::Optimal, 16, 4), Some(16));
    assert_eq!(jobs(Load::Maximal, 16, 16), Some(64));
    assert_eq!(jobs(Load::Maximal, 40, 16), Some(100));
    assert_eq!(jobs(Load::Maximal, 200, 16), Some(200));
    assert_eq!(test.most_jobs(16, 16), 64);
}

#[test]
fn a_build_has_units_for_all_jobs_of_the_optimal_load() {
    let test = Kernbench::default();
    assert_eq!((test.units(2), test.units(80)), (32, 1280));
    assert_eq!(small().units(80), 9);
    assert_eq!(test.jobs(Load::Maximal, 80, 80), Some(320));
}

#[test]
fn memory_of_a_job_is_bytes_whatever_the_page_size() {
    let needed = |page_size| small().bytes_needed(1, page_size);
    // A MiB of its own, 16 pages of that copied, a unit of 256 KiB, and a page more.
    let bytes = (1 << 20) + (256 << 10);
    let jobs = u64::from(small().most_jobs(1, 1));
    for page_size in [4096, 16 << 10, 64 << 10] {
        assert_eq!(needed(page_size), (bytes + 17 * page_size) * jobs);
    }
}

#[test]
fn every_unit_is_compiled_once_in_each_run() {
    let test = small();
    let outcome = test.run(&Fake::default(), &plan(6)).unwrap();
    // Half 3, optimal 6, maximal 9 jobs, twice each.
    assert_eq!(outcome.workers.len(), 2 * (3 + 6 + 9));
    let units: u64 = outcome.workers.iter().map(|worker| worker.ops).sum();
    assert_eq!(units, 3 * 2 * 9);
    let pages: u64 = (0..9)
        .map(|unit| Unit::of(unit, 256 << 10, 4096).pages)
        .map(|pages| pages + pages / 4)
        .sum();
    assert_eq!(outcome.pages, 6 * pages);
    // The jobs' own pages come on top; the fake copies without a fault.
    assert_eq!(outcome.faults, outcome.pages + 256 * 2 * (3 + 6 + 9));
    assert_eq!(outcome.sleeps, units);
    let Some(Columns::Kernbench(columns)) = &outcome.columns else {
        panic!()
    };
    let jobs: Vec<_> = columns.loads.iter().map(|load| load.jobs).collect();
    assert_eq!(jobs, [3, 6, 9]);
    let half = &columns.loads[0];
    assert!((half.context_switches.mean - 3.0).abs() < 1e-12);
    assert!((half.sleeps.mean - 9.0).abs() < 1e-12);
    let cpu = half.user_s.mean + half.system_s.mean;
    assert!((half.percent_cpu.mean - cpu / half.elapsed_s.mean * 100.0).abs() < 1.0);
    let rate = outcome.rates["half_load_units_per_second"];
    assert!((rate * half.elapsed_s.mean - 9.0).abs() < 1e-6);
}

#[test]
fn a_warm_up_is_not_counted() {
    let test = Kernbench {
        loads: vec![Load::Optimal],
        runs: 1,
        ..small()
    };
    let warm = Kernbench {
        warmth: Warmth::WarmUp,
        ..test.clone()
    };
    let run = |test: &Kernbench| test.run(&Fake::default(), &plan(2)).unwrap();
    assert_eq!(run(&test).faults, run(&warm).faults);
    assert_eq!(run(&warm).workers.len(), 2);
}

#[test]
fn no_load_at_all_is_refused() {
    let test = Kernbench {
        loads: vec![Load::Half],
        ..small()
    };
    let plan = Plan { cpus: 2, ..plan(2) };
    let words = test.run(&Fake::default(), &plan).unwrap_err().to_string();
    assert!(words.contains("give --half"), "{words}");
}

#[test]
fn a_childs_store_that_reaches_its_parent_is_seen() {
    let fake = Fake {
        leaky_fork: true,
        ..Fake::default()
    };
    let error = small().run(&fake, &plan(6)).unwrap_err();
    assert!(
        matches!(
            error,
            TargetError::Stopped {
                why: Stop::Contents(_, 0, 1),
                ..
            }
        ),
        "{error}"
    );
}
