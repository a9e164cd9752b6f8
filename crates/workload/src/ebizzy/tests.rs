use super::{Apart, Ebizzy, Generator, Sizes, Until, Work};
use crate::fake::{Fake, plan};
use crate::outcome::Columns;
use crate::target::{Stop, TargetError};

/// The posting's run, of chunks of 16 pages.
fn posted(until: Until) -> Ebizzy {
    Ebizzy {
        apart: Apart::Permissions,
        chunk_bytes: 64 << 10,
        sizes: Sizes::Random,
        work: Work::Touch,
        until,
        ..Ebizzy::default()
    }
}

fn parse(line: &str) -> Result<Ebizzy, String> {
    let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    Ebizzy::parse(&args).map_err(|error| error.to_string())
}

#[test]
fn the_posted_command_line_parses_as_getopt_reads_it() {
    let expected = Ebizzy {
        apart: Apart::Permissions,
        sizes: Sizes::Random,
        work: Work::Touch,
        ..Ebizzy::default()
    };
    assert_eq!(parse("-mTRp"), Ok(expected.clone()));
    assert_eq!(parse("-m -T -R -p"), Ok(expected));
    let threads = parse("-mTt 48 -S 0.25 -Pp -n3 -s4096").unwrap();
    assert_eq!(threads.threads, Some(48));
    assert_eq!(threads.until, Until::Elapsed(250_000_000));
    assert_eq!((threads.apart, threads.chunks), (Apart::Both, 3));
    assert_eq!(threads.chunk_bytes, 4096);
    assert_eq!(
        parse("--generator ltp -z --records 7").map(|t| (t.generator, t.work, t.until)),
        Ok((Generator::Ltp, Work::Linear, Until::Records(7)))
    );
    assert_eq!(parse("--warm-up 3").map(|t| t.warm_up), Ok(3));
}

#[test]
fn wrong_options_are_told_in_one_line() {
    for (line, says) in [
        (
            "-mTRpM",
            "ebizzy: -M is not supported: there is no malloc; records are \
             always mapped, as with -m",
        ),
        (
            "-S 0",
            "ebizzy: -S must be a time in seconds, such as 10 or 0.5, got `0`",
        ),
        (
            "-S 1 --records 2",
            "ebizzy: -S and --records are mutually exclusive",
        ),
        (
            "-s 7",
            "ebizzy: -s must be at least a record of 8 bytes, got 7",
        ),
        (
            "--generator rand",
            "ebizzy: --generator must be lcg or ltp, got `rand`",
        ),
        ("-Tz", "ebizzy: -T and -z are mutually exclusive"),
    ] {
        assert_eq!(parse(line), Err(says.to_owned()));
    }
}

#[test]
fn records_are_counted_and_each_thread_draws_the_same_sizes() {
    let outcome = posted(Until::Records(5))
        .run(&Fake::default(), &plan(3))
        .unwrap();
    assert!(outcome.workers.iter().all(|worker| worker.ops == 5));
    // Words drawn below 8,192 by the known generator: 3,967 lead to 8 pages, and so on.
    let faults = outcome.workers[0].faults;
    assert!(faults > 5 && faults < 5 * 16, "{faults}");
    assert!(outcome.workers.iter().all(|worker| worker.faults == faults));
    let rate = outcome.rates["records_per_second"];
    assert!((rate - 15.0 * 1e9 / outcome.wall_ns as f64).abs() < 1e-3);
    let Some(Columns::Ebizzy(columns)) = outcome.columns else {
        panic!()
    };
    assert_eq!(columns.records_per_s, Some(rate));
    assert!(outcome.checks["contents"] > 0);
}

#[test]
fn the_broken_generator_makes_records_of_one_page() {
    let test = Ebizzy {
        generator: Generator::Ltp,
        ..posted(Until::Records(9))
    };
    let outcome = test.run(&Fake::default(), &plan(1)).unwrap();
    assert_eq!(outcome.workers[0].faults, 9);
}

#[test]
fn whole_records_fault_once_a_page_and_are_calculated() {
    let test = Ebizzy {
        sizes: Sizes::Whole,
        ..posted(Until::Records(4))
    };
    let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
    assert_eq!((outcome.pages, outcome.faults), (2 * 4 * 16, 2 * 4 * 16));
}

#[test]
fn a_time_ends_the_loop_too() {
    let outcome = posted(Until::Elapsed(1_000_000))
        .run(&Fake::default(), &plan(2))
        .unwrap();
    assert!(outcome.wall_ns >= 1_000_000);
    assert!(outcome.workers.iter().all(|worker| worker.ops > 0));
}

#[test]
fn copies_are_searched_by_halves_and_from_the_first_on() {
    for (work, apart) in [(Work::Halves, Apart::Holes), (Work::Linear, Apart::Both)] {
        let test = Ebizzy {
            work,
            apart,
            chunk_bytes: 4104,
            ..posted(Until::Records(20))
        };
        let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
        assert!(outcome.checks["contents"] >= 2 * 20);
    }
}

#[test]
fn a_lost_store_to_a_copy_is_found_by_the_search() {
    // The set-up stores 2 chunks of 2 words and their addresses; then comes the first copy's first
    // word, and the first key drawn is 0.
    let test = Ebizzy {
        work: Work::Linear,
        chunks: 2,
        chunk_bytes: 16,
        sizes: Sizes::Whole,
        ..posted(Until::Records(50))
    };
    let fake = Fake {
        lose_store: Some(6),
        fresh: 9,
        ..Fake::default()
    };
    let error = test.run(&fake, &plan(1)).unwrap_err();
    assert!(
        matches!(
            error,
            TargetError::Stopped {
                worker: 0,
                why: Stop::Contents(_, 0, 9)
            }
        ),
        "{error}"
    );
}

#[test]
fn pages_of_one_word_can_only_be_touched() {
    let bare = Fake {
        bare: true,
        ..Fake::default()
    };
    assert!(posted(Until::Records(1)).run(&bare, &plan(1)).is_ok());
    let words = Ebizzy::default()
        .run(&bare, &plan(1))
        .unwrap_err()
        .to_string();
    assert_eq!(
        words,
        "ebizzy: records cannot be copied and searched: the fake is bare; give -T"
    );
}

#[test]
fn a_set_up_that_fails_is_one_error_and_no_hang() {
    let test = Ebizzy {
        chunk_bytes: 1 << 46,
        ..posted(Until::Records(1))
    };
    let error = test.run(&Fake::default(), &plan(3)).unwrap_err();
    let why = Stop::Errno(12);
    assert_eq!(error, TargetError::Stopped { worker: 0, why });
}
