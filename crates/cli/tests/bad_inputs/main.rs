//! Bad inputs, broken files and abnormal endings: one table, one line each, the right status, and
//! nothing lost.
#![cfg(target_os = "linux")]
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

mod boot;
#[path = "../common/mod.rs"]
mod common;
mod endings;
mod files;
mod numbers;
mod row;
mod run;
mod together;
mod words;

use row::{Meanwhile, Row, ends_well, usage};
use run::check;
use std::collections::BTreeSet;

const TABLE: [&[Row]; 6] = [
    words::ROWS,
    numbers::ROWS,
    together::ROWS,
    files::ROWS,
    endings::ROWS,
    boot::ROWS,
];

fn rows() -> Vec<Row> {
    TABLE.concat()
}

#[test]
fn the_table_has_at_least_85_rows_with_names_of_their_own() {
    let rows = rows();
    assert!(rows.len() >= 85, "{}", rows.len());
    let names: BTreeSet<_> = rows.iter().map(|row| row.name).collect();
    let lines: BTreeSet<_> = rows.iter().map(|row| (row.line, row.given.len())).collect();
    assert_eq!(names.len(), rows.len());
    assert!(lines.len() > rows.len() * 2 / 3, "{}", lines.len());
    for row in rows {
        // What is wrong, and what would be right.
        assert!(
            row.status != 2 || row.says.len() >= 2 || row.line.contains("2>"),
            "{row:?}"
        );
    }
}

/// Two at a time: most of a row's time is that of starting the program.
#[test]
fn each_row_ends_as_the_table_says() {
    let rows = rows();
    let half = |first: usize| {
        let rows = rows.iter().skip(first).step_by(2);
        let wrong = rows.filter_map(|row| Some(format!("{}: {}", row.name, check(row).err()?)));
        wrong.collect::<Vec<_>>()
    };
    let wrong = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(1));
        let mut wrong = half(0);
        wrong.extend(other.join().expect("no panic"));
        wrong
    });
    assert!(
        wrong.is_empty(),
        "{} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Each thing that is checked, wrong in a row that is right without it.
#[test]
fn a_wrong_row_is_found_wrong() {
    const RIGHT: Row = usage("control", "minflt bench nope", &["unknown workload `nope`"]);
    const TWO: &str = "minflt bench nope; minflt bench nope";
    const LOSES: &str = "echo new >rows; minflt bench nope";
    const MAKES: &str = "echo new >more; minflt bench nope";
    const PRINTS: &str = "echo early; minflt bench nope";
    const PANICS: &str = "echo \"thread 'main' panicked\" >&2; exit 2";
    const QUIET: &str = "minflt bench nope 2>&-";
    const OLD: &[(&str, row::Given)] = &[("rows", row::Given::Bytes(b"old\n"))];
    let line = |line| Row { line, ..RIGHT };
    assert_eq!(check(&RIGHT), Ok(()));
    for (wrong, why) in [
        (RIGHT.status(1), "status 2, and not 1"),
        (
            Row {
                says: &["no such"],
                ..RIGHT
            },
            "does not say `no such`",
        ),
        (
            Row { says: &[], ..RIGHT },
            "is said, and nothing was expected",
        ),
        (RIGHT.prints(&["a table"]), "does not print `a table`"),
        (RIGHT.leaves(&["report.html"]), "report.html is not there"),
        (line(TWO), "2 lines"),
        (line(LOSES).given(OLD), "rows has changed"),
        (
            line("rm rows; minflt bench nope").given(OLD),
            "rows is gone",
        ),
        (line(MAKES), "more is new"),
        (line(PRINTS), "is printed, and nothing was expected"),
        (line(PANICS), "panicked"),
        (line(QUIET), "0 lines"),
        (line("kill -KILL $$"), "status 137, and not 2"),
    ] {
        let said = check(&wrong).expect_err(wrong.line);
        assert!(said.contains(why), "{}: {said}", wrong.line);
    }
    let hangs = ends_well("hangs", "while :; do :; done", &[]);
    let hangs = hangs.meanwhile(Meanwhile::SignalAfter("TERM", 10));
    assert!(check(&hangs).expect_err("ended").contains("status 143"));
}
