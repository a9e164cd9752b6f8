//! `minflt compare`: its verdicts, its statuses, and what it refuses.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

mod common;

use common::Folder;
use std::fs;
use std::process::Command;

fn minflt(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_minflt"))
        .args(args)
        .output()
        .expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let status = output.status.code().expect("it exits");
    (status, text(output.stdout), text(output.stderr))
}

/// Rows as a measurement on `machine` writes them, with these rates.
fn rows(folder: &Folder, name: &str, machine: &str, rates: &[u32]) -> String {
    let row = |rate: &u32| {
        format!(
            "{{\"schema\":1,\"workload\":\"pft\",\"target\":\"host\",\"machine\":\"{machine}\",\
             \"era\":\"linux-4.13\",\"threads\":2,\"cpus\":2,\"params\":{{}},\"scale\":1,\
             \"seconds\":1.0,\"cpu_seconds\":2.0,\"faults\":{rate},\"faults_per_second\":{rate}.0,\
             \"faults_per_cpu_second\":1.0,\"rates\":{{}},\"events\":{{}},\"checks\":{{}},\
             \"simulated\":false,\"host\":{{}}}}\n"
        )
    };
    let path = folder.0.join(name);
    fs::write(&path, rates.iter().map(row).collect::<String>()).expect("written");
    path.to_str().expect("a path").to_owned()
}

#[test]
fn a_loss_fails_and_noise_does_not() {
    let folder = Folder::new("compare");
    let before = rows(&folder, "before", "here", &[1000, 1010, 990, 1005, 995]);
    let same = rows(&folder, "same", "here", &[1002, 1008, 992, 1001, 998]);
    let less = rows(&folder, "less", "here", &[900, 910, 890, 905, 895]);
    let (status, out, err) = minflt(&["compare", &before, &same, "--fail-over", "5%"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("no difference detectable"), "{out}");
    assert!(out.contains("no row is worse by more than 5%"), "{out}");
    let (status, out, err) = minflt(&["compare", &before, &less, "--fail-over", "5%"]);
    assert!(status == 1 && out.contains("worse"), "{out}");
    assert_eq!(
        err,
        "minflt: 1 of 1 rows are worse by more than 5%; 0 are missing in the second file\n"
    );
    // A smaller loss than that is seen, and does not fail.
    let (status, out, _) = minflt(&["compare", &before, &less, "--fail-over", "20%"]);
    assert!(status == 0 && out.contains("worse"), "{out}");
    let (status, out, _) = minflt(&["compare", &less, &before]);
    assert!(status == 0 && out.contains("better"), "{out}");
}

#[test]
fn what_cannot_be_told_is_not_called_equal() {
    let folder = Folder::new("compare-few");
    let before = rows(&folder, "before", "here", &[1000, 1010, 990, 1005]);
    let few = rows(&folder, "few", "here", &[500]);
    let (status, out, err) = minflt(&["compare", &before, &few, "--fail-over", "5%"]);
    assert!(
        status == 1 && out.contains("too few rounds: 4 and 1"),
        "{out}"
    );
    assert!(err.contains("--rounds 4"), "{err}");
    let gone = folder.0.join("gone");
    fs::write(
        &gone,
        fs::read_to_string(&few)
            .expect("rows")
            .replace("pft", "ebizzy"),
    )
    .expect("w");
    let gone = gone.to_str().expect("a path");
    let (status, out, err) = minflt(&["compare", &before, gone, "--fail-over", "5%"]);
    assert!(status == 1 && err.contains("1 are missing"), "{err}");
    assert!(
        out.contains("only in the first") && out.contains("only in the second"),
        "{out}"
    );
}

#[test]
fn rows_of_another_machine_and_files_without_rows_are_refused() {
    let folder = Folder::new("compare-refused");
    let here = rows(&folder, "here", "here", &[1000; 4]);
    let there = rows(&folder, "there", "there", &[1000; 4]);
    let empty = rows(&folder, "empty", "here", &[]);
    let refused = |args: &[&str]| {
        let (status, out, err) = minflt(&[&["compare"], args].concat());
        assert!(out.is_empty() && err.lines().count() == 1, "{out}{err}");
        (status, err)
    };
    let (status, err) = refused(&[&here, &there]);
    assert_eq!(status, 2);
    assert_eq!(
        err,
        "minflt: measured on two machines: here, and there; --across compares them all the same\n"
    );
    assert_eq!(minflt(&["compare", &here, &there, "--across"]).0, 0);
    let (status, err) = refused(&[&here, &empty]);
    assert!(status == 2 && err.contains("no rows to compare"), "{err}");
    let (status, err) = refused(&[&here, "/nowhere/rows"]);
    assert!(
        status == 2 && err.contains("/nowhere/rows: No such file"),
        "{err}"
    );
    let (status, err) = refused(&[&here, &here, "--fail-over", "5"]);
    assert!(
        status == 2 && err.contains("expected a percentage"),
        "{err}"
    );
    let (status, err) = refused(&[&here]);
    assert!(status == 2 && err.contains("give a second file"), "{err}");
    let (status, err) = refused(&[&here, &here, "--benchstat"]);
    assert!(status == 2 && err.contains("rows of one file"), "{err}");
    let broken = folder.0.join("broken");
    fs::write(&broken, "{\n").expect("written");
    let (status, err) = refused(&[&here, broken.to_str().expect("a path")]);
    assert!(status == 1 && err.contains("broken: line 1:"), "{err}");
}

#[test]
fn a_simulated_row_is_compared_exactly_and_read_by_benchstat() {
    let folder = Folder::new("compare-sim");
    let path = folder.0.join("rows");
    let path = path.to_str().expect("a path");
    let bench = [
        "bench",
        "pft",
        "--on",
        "sim",
        "--threads",
        "2",
        "--size",
        "1M",
        "--quiet",
    ];
    let options = ["--rounds", "2", "--json", path];
    let (status, _, err) = minflt(&[&bench[..], &options].concat());
    assert_eq!((status, err.as_str()), (0, ""));
    let (status, out, _) = minflt(&["compare", path, path, "--fail-over", "1%"]);
    assert!(status == 0 && out.contains("1.000 to 1.000"), "{out}");
    let (status, out, _) = minflt(&["compare", path, "--benchstat"]);
    assert_eq!(status, 0);
    assert_eq!(out.lines().count(), 2, "{out}");
    let line = "BenchmarkPft/on=sim/machine=altix32/";
    assert!(
        out.lines()
            .all(|it| it.starts_with(line) && it.ends_with(" faults/s")),
        "{out}"
    );
}
