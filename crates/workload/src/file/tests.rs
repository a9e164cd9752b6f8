use super::{File, HEADER, Pattern, Words};
use crate::fake::{Fake, plan};
use crate::outcome::{Columns, Outcome, Param};
use crate::pft::Definition;
use crate::target::{Cache, Stop, TargetError};

const PATTERNS: [Pattern; 3] = [Pattern::Sequential, Pattern::Random, Pattern::Sparse];

/// A file of 64 tables' pages and a bit, where it is read sparsely, and of 64 pages.
fn small(pattern: Pattern) -> File {
    File {
        bytes: match pattern {
            Pattern::Sparse => 63 * (2 << 20) + 1,
            _ => 63 * 4096 + 1,
        },
        ..File::new(pattern)
    }
}

fn around(order: u32) -> Fake {
    Fake {
        around: order,
        ..Fake::default()
    }
}

fn columns(outcome: &Outcome) -> &super::Columns {
    match &outcome.columns {
        Some(Columns::File(columns)) => columns,
        other => panic!("{other:?}"),
    }
}

/// The counts that the posting's tables are about: pages over pages mapped at once, and where the
/// neighbours are of no use, pages.
#[test]
fn faults_are_pages_over_what_a_fault_maps() {
    for pattern in PATTERNS {
        for order in [0, 1, 3, 4, 5] {
            for threads in [1, 3] {
                let (test, fake) = (small(pattern), around(order));
                let outcome = test.run(&fake, &plan(threads)).unwrap();
                let threads = u64::from(threads);
                let faults = match pattern {
                    Pattern::Sparse => 64,
                    _ => 64 >> order,
                };
                assert_eq!(outcome.pages, 64 * threads);
                assert_eq!(outcome.faults, faults * threads, "{pattern:?} {order}");
                // The check made none.
                assert_eq!(outcome.events["page-faults"], outcome.faults);
                let per = (1 << order) - 1;
                let mapped = match pattern {
                    // Of the last window the file has one page.
                    Pattern::Sparse => (63 * per) * threads,
                    _ => faults * per * threads,
                };
                assert_eq!(outcome.events["fault-around-mapped"], mapped);
                let bytes = Param::Number(4096 << order);
                assert_eq!(outcome.params["fault_around_bytes"], bytes);
            }
        }
    }
}

/// A load in each window: the windows lie side by side, and cover the file.
#[test]
fn a_stride_is_rounded_up_to_pages() {
    for (stride, pages) in [(1, 64), (4096, 64), (4097, 32), (65_536, 4), (1 << 30, 1)] {
        let test = File {
            bytes: 64 * 4096,
            stride: Some(stride),
            ..small(Pattern::Sparse)
        };
        let outcome = test.run(&around(4), &plan(1)).unwrap();
        assert_eq!(outcome.pages, pages, "{stride}");
        assert_eq!(outcome.faults, pages.min(4), "{stride}");
        assert_eq!(outcome.params["stride"], Param::Number(stride));
    }
}

#[test]
fn every_word_makes_no_other_faults() {
    for pattern in [Pattern::Sequential, Pattern::Random] {
        let test = File {
            words: Words::Every,
            ..small(pattern)
        };
        let outcome = test.run(&around(3), &plan(2)).unwrap();
        assert_eq!((outcome.pages, outcome.faults), (128, 16));
    }
}

#[test]
fn computing_at_each_page_takes_its_time() {
    for pattern in PATTERNS {
        let wall = |page_ns| {
            let test = File {
                page_ns,
                ..small(pattern)
            };
            let outcome = test.run(&around(0), &plan(1)).unwrap();
            outcome.wall_ns
        };
        assert_eq!(wall(500), wall(0) + 64 * 500);
    }
}

#[test]
fn the_row_says_what_was_measured() {
    let outcome = small(Pattern::Sequential)
        .run(&around(4), &plan(1))
        .unwrap();
    let columns = columns(&outcome);
    assert_eq!((columns.minor_faults, columns.around), (4, Some(60)));
    let ns = columns.ns_per_page.unwrap();
    assert!((ns - outcome.wall_ns as f64 / 64.0).abs() < 1e-9);
    let row = columns.to_string();
    assert_eq!(row.len(), HEADER.len(), "{HEADER}\n{row}");
    let process = File {
        definition: Definition::Process,
        ..small(Pattern::Sequential)
    };
    let process = process.run(&around(4), &plan(1)).unwrap();
    assert!(process.wall_ns > outcome.wall_ns);
    assert_eq!(process.faults, outcome.faults);
}

#[test]
fn a_page_with_other_contents_is_seen() {
    for pattern in PATTERNS {
        for page in [0, 1, 63] {
            let (page, seen) = match pattern {
                Pattern::Sparse => (page * 512, true),
                _ => (page, true),
            };
            let fake = Fake {
                hole: Some(page),
                ..around(2)
            };
            let error = small(pattern).run(&fake, &plan(1)).unwrap_err();
            let why = matches!(
                error,
                TargetError::Stopped {
                    worker: 0,
                    why: Stop::Contents(..)
                }
            );
            assert_eq!(why, seen, "{error}");
        }
    }
    // A page that nobody loads from.
    let fake = Fake {
        hole: Some(7),
        ..around(2)
    };
    assert!(small(Pattern::Sparse).run(&fake, &plan(1)).is_ok());
}

#[test]
fn a_target_without_files_is_told_so() {
    let bare = Fake {
        bare: true,
        ..Fake::default()
    };
    let error = small(Pattern::Sparse).run(&bare, &plan(1)).unwrap_err();
    let words = "file-sparse: the fake is bare; linux has files";
    assert_eq!(error.to_string(), words);
}

#[test]
fn options_are_read() {
    let parse = |pattern, line: &str| {
        let args: Vec<_> = line.split(' ').map(str::to_owned).collect();
        File::parse(pattern, &args).map_err(|error| error.to_string())
    };
    let line = "--size 1M --every-word --page-ns 7 --cache cold --measure process --seed 9";
    let test = parse(Pattern::Random, line).unwrap();
    let expected = File {
        pattern: Pattern::Random,
        bytes: 1 << 20,
        stride: None,
        words: Words::Every,
        page_ns: 7,
        cache: Cache::Cold,
        definition: Definition::Process,
        seed: 9,
    };
    assert_eq!(test, expected);
    assert_eq!(
        parse(Pattern::Sparse, "--every-word").unwrap_err(),
        "file-sparse: unknown option `--every-word`; options are --size, --stride, --page-ns, --cache, \
         --measure"
    );
    let strides = ["64K", "1"].map(|it| parse(Pattern::Sparse, &format!("--stride {it}")).unwrap());
    assert_eq!(strides.map(|it| it.stride), [Some(65_536), Some(1)]);
    assert_eq!(
        parse(Pattern::Sparse, "--stride 0").unwrap_err(),
        "file-sparse: --stride must be from 1 byte to 128T, got `0`"
    );
    assert!(parse(Pattern::Sequential, "--stride 64K").is_err());
    assert_eq!(
        parse(Pattern::Sequential, "--cache hot").unwrap_err(),
        "file-seq: --cache must be warm or cold, got `hot`"
    );
    let none: [String; 0] = [];
    let default = File::parse(Pattern::Sequential, &none).unwrap();
    assert_eq!(default, File::new(Pattern::Sequential));
    // The file, and for each thread entries and a table begun.
    assert_eq!(
        default.bytes_needed(3, 4096),
        (256 << 20) + 3 * ((512 << 10) + 4096)
    );
}
