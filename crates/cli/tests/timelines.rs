//! Timelines as printed: the same bytes in each process, within the width, and as data.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use serde_json::Value;
use std::process::Command;

fn printed(mut command: Command, args: &[&str]) -> String {
    let output = command.args(args).output().expect("the program runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    text
}

fn minflt(args: &[&str]) -> String {
    printed(Command::new(env!("CARGO_BIN_EXE_minflt")), args)
}

/// The same without address randomization, where that can be switched off.
fn fixed(args: &[&str]) -> Option<String> {
    Command::new("setarch").arg("--version").output().ok()?;
    let mut fixed = Command::new("setarch");
    fixed.arg("-R").arg(env!("CARGO_BIN_EXE_minflt"));
    Some(printed(fixed, args))
}

/// One process has its memory where another one has not.
#[test]
fn a_timeline_has_the_same_bytes_in_each_process() {
    for race in ["P30", "P3", "P37", "P45-move", "P50"] {
        for how in ["--show", "--json", "--all-steps"] {
            let args: Vec<_> = match how {
                "--show" => vec!["races", race, "--show"],
                how => vec!["races", race, "--show", how],
            };
            let first = minflt(&args);
            assert_eq!(first, minflt(&args), "{args:?}");
            if let Some(fixed) = fixed(&args) {
                assert_eq!(first, fixed, "{args:?}");
            }
        }
    }
}

#[test]
fn a_timeline_marks_folds_and_fits_a_hundred_columns_without_colour() {
    let text = minflt(&["races", "P30", "--show"]);
    for said in [
        "<-- freed here",
        "<-- used here",
        "steps of munmap, mmap on its own",
        " Fix: ",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert!(!text.contains('\u{1b}'), "escape sequences in a pipe");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let all = minflt(&["races", "P30", "--show", "--all-steps"]);
    assert!(!all.contains("on its own"), "{all}");
    assert!(all.lines().count() > text.lines().count());
}

/// The run takes a million accesses: its beginning, its end and its marks are shown.
#[test]
fn an_endless_run_is_shown_in_part() {
    let text = minflt(&["races", "huge-again", "--show"]);
    assert!(text.contains("--all-steps shows them"), "{text}");
    assert!(text.lines().count() < 1_000, "{}", text.lines().count());
}

#[test]
fn a_search_that_fails_draws_its_schedule() {
    let args = ["check", "P30", "--negative-control", "--quiet"];
    let text = minflt(&args);
    for said in [
        "--replay",
        " Fix: ",
        "<-- freed here",
        "<-- used here",
        "=> violation",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
}

#[test]
fn a_timeline_is_data_too() {
    let text = minflt(&["races", "P30", "--show", "--json"]);
    let data: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(data["race"], "P30");
    let timeline = &data["without_fix"]["timeline"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let lanes = list(&timeline["lanes"]);
    let names: Vec<_> = lanes.iter().map(|lane| lane["name"].clone()).collect();
    assert_eq!(names, ["munmap, mmap", "store fault"]);
    let rows = list(&timeline["rows"]);
    let marked = |mark: &str| rows.iter().filter(|row| row["mark"] == mark).count();
    assert_eq!((marked("freed"), marked("used")), (1, 1));
    assert!(!list(&timeline["folds"]).is_empty());
    let well = list(&data["with_fix"]["timeline"]["rows"]);
    assert!(well.iter().all(|row| row["mark"].is_null()));
}

#[test]
fn the_list_has_subjects_fits_and_says_where_to_begin() {
    let text = minflt(&["races"]);
    for said in [
        "\nSpeculative faults",
        "\nVMA locks",
        "\nhugetlb: shared page tables",
        "\nFive to learn speculative faults by:\n  1. P30 ",
        "\n  P57 ",
    ] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert_eq!(text, minflt(&["check", "--list"]));
    assert!(minflt(&["races", "--help"]).contains("minflt races P30 --show --json"));
}
