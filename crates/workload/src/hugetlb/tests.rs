use super::{HEADER, Hugetlb, Kind, Programs};
use crate::fake::{Fake, HUGE, plan};
use crate::outcome::{Columns, Outcome, Param};
use crate::target::{Plan, Stop, TargetError};

/// Eight huge pages, for 60 microseconds.
fn small(programs: Programs) -> Hugetlb {
    Hugetlb {
        bytes: 8 * HUGE,
        few: 2,
        until_ns: 60_000,
        ..Hugetlb::new(programs)
    }
}

fn parse(programs: Programs, line: &str) -> Result<Hugetlb, String> {
    let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    Hugetlb::parse(programs, &args).map_err(|error| error.to_string())
}

fn stopped(fake: &Fake, programs: Programs) -> TargetError {
    small(programs).run(fake, &plan(1)).unwrap_err()
}

fn is_contents(error: &TargetError) -> bool {
    matches!(
        error,
        TargetError::Stopped {
            why: Stop::Contents(..),
            ..
        }
    )
}

fn ops(outcome: &Outcome) -> Vec<u64> {
    outcome.workers.iter().map(|worker| worker.ops).collect()
}

#[test]
fn a_page_stored_to_is_a_fault_and_the_first_pass_is_not_counted() {
    let outcome = small(Programs::Fault)
        .run(&Fake::default(), &plan(1))
        .unwrap();
    // A page takes 1001 ns and each mapping and unmapping 1000 more.
    let pages = ops(&outcome)[0];
    assert!((40..60).contains(&pages), "{pages}");
    assert_eq!((outcome.pages, outcome.faults), (pages, pages));
    assert!(outcome.wall_ns >= 60_000 && outcome.wall_ns < 65_000);
    let rate = pages as f64 / outcome.wall_ns as f64 * 1e9;
    assert!((outcome.rates["faults_per_second_avg"] - rate).abs() < 1.0);
    assert!(!outcome.rates.contains_key("forks_per_second_avg"));
    // Pages 0 and 7.
    assert_eq!(outcome.checks["contents"], 2);
    let columns = outcome.columns.unwrap();
    assert_eq!(columns.header(), Some(HEADER));
}

#[test]
fn a_fork_is_an_operation_and_the_checks_is_none() {
    let outcome = small(Programs::Fork)
        .run(&Fake::default(), &plan(2))
        .unwrap();
    let forks: u64 = ops(&outcome).iter().sum();
    assert_eq!(outcome.sleeps, forks + 2);
    assert_eq!(outcome.pages, 2 * forks);
    // Two pages, three times, by each.
    assert_eq!(outcome.checks["contents"], 2 * 3 * 2);
    assert_eq!(outcome.params["pages"], Param::Number(2));
}

#[test]
fn both_programs_run_at_the_same_time_and_are_counted_apart() {
    let test = small(Programs::Both);
    let outcome = test.run(&Fake::default(), &plan(3)).unwrap();
    assert_eq!(outcome.workers.len(), 6);
    let Some(Columns::Hugetlb(columns)) = &outcome.columns else {
        panic!()
    };
    let rows: Vec<_> = columns
        .rows
        .iter()
        .map(|row| (row.what, row.instances))
        .collect();
    assert_eq!(rows, [("forks", 3), ("faults", 3)]);
    for row in &columns.rows {
        assert!(0.0 < row.min && row.min <= row.avg && row.avg <= row.max);
    }
    let kinds: Vec<_> = (0..6).map(|worker| test.kind_of(worker, 3)).collect();
    assert_eq!(kinds, [[Kind::Fault; 3], [Kind::Fork; 3]].concat());
}

#[test]
fn both_take_as_many_cpus_as_there_are_workers_unless_there_are_fewer() {
    let test = small(Programs::Both);
    let cpus = |threads, cpus| {
        let plan = Plan {
            cpus,
            ..plan(threads)
        };
        test.plan(&Fake::default(), &plan, 2 * threads, (8, HUGE))
            .cpus
    };
    assert_eq!([cpus(3, 3), cpus(3, 1), cpus(40, 40)], [6, 1, 64]);
    assert_eq!((test.workers(3), small(Programs::Fork).workers(3)), (6, 3));
}

#[test]
fn stores_that_do_not_reach_the_file_are_seen() {
    let fake = Fake {
        mixes_sharing: true,
        ..Fake::default()
    };
    for programs in [Programs::Fault, Programs::Fork] {
        let error = stopped(&fake, programs);
        assert!(is_contents(&error), "{error}");
    }
}

#[test]
fn a_lost_store_is_seen() {
    let lost = |programs: Programs, store| {
        let fake = Fake {
            lose_store: Some(store),
            ..Fake::default()
        };
        let test = Hugetlb {
            bytes: HUGE,
            few: 1,
            until_ns: 1,
            ..small(programs)
        };
        test.run(&fake, &plan(1)).unwrap_err()
    };
    // Store 0 is of the first pass, 1 of the only measured one.
    for programs in [Programs::Fault, Programs::Fork] {
        let error = lost(programs, 1);
        assert!(is_contents(&error), "{error}");
    }
    // The child's own.
    assert!(is_contents(&lost(Programs::Fork, 2)));
}

#[test]
fn the_file_is_planned_in_whole_huge_pages() {
    let test = Hugetlb {
        bytes: 3 * HUGE - 1,
        ..small(Programs::Fault)
    };
    let planned = test
        .plan(&Fake::default(), &plan(1), 1, (3, HUGE))
        .huge
        .unwrap();
    assert_eq!((planned.count, planned.file_bytes), (3, Some(3 * HUGE)));
    let outcome = test.run(&Fake::default(), &plan(1)).unwrap();
    assert_eq!(outcome.params["bytes"], Param::Number(3 * HUGE));
    assert_eq!(test.bytes_needed(24, 4096), 2 << 20);
}

#[test]
fn options_and_refusals() {
    let test = parse(Programs::Both, "--size 250G -S 1.5 --pages 8 -n 24").unwrap();
    assert_eq!((test.bytes, test.few), (250 << 30, 8));
    assert_eq!((test.until_ns, test.instances), (1_500_000_000, Some(24)));
    assert_eq!(
        parse(Programs::Fault, "--pages 8").unwrap_err(),
        "hugetlb-fault: unknown option `--pages`; options are --size, -S, --apart, -n"
    );
    let bare = Fake {
        bare: true,
        ..Fake::default()
    };
    let words = stopped(&bare, Programs::Both).to_string();
    assert_eq!(words, "hugetlb-both: the fake is bare");
    let many = small(Programs::Both).run(&Fake::default(), &plan(9));
    assert_eq!(
        many.unwrap_err().to_string(),
        "hugetlb-both: 18 processes are more than the 16 words of a huge page that they can have \
         apart; give fewer"
    );
}

#[test]
fn where_the_file_is_mapped_is_an_option() {
    let parsed = |line| parse(Programs::Both, line).unwrap();
    assert!(!parsed("").apart && parsed("--apart").apart);
    for (apart, tables) in [(false, "shared"), (true, "apart")] {
        let test = Hugetlb {
            apart,
            ..small(Programs::Both)
        };
        let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
        assert_eq!(outcome.params["tables"], Param::Text(tables.into()));
    }
}
