//! How a run ends that does not end by itself: Ctrl-C, a closed pipe, a full disk, a budget, one
//! CPU. Nothing that was done is lost, one line says what is there, and the status is right.
#![cfg(target_os = "linux")]
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

mod common;

use common::Folder;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The page in a folder.
fn page(folder: &Folder) -> String {
    fs::read_to_string(folder.0.join("report.html")).expect("a page")
}

fn minflt(args: &[&str], out: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minflt"));
    command.args(args).arg("--out").arg(out);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(from: Option<impl Read>) -> String {
    let mut text = String::new();
    let mut from = from.expect("a pipe");
    from.read_to_string(&mut text).expect("text");
    text
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    // A shell has it built in; the program of that name is not on every machine.
    let sent = Command::new("sh")
        .args(["-c", "kill -INT $0", &pid])
        .status();
    assert!(sent.expect("a shell runs").success());
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn a_run_that_is_interrupted_keeps_what_it_has_and_another_goes_on_from_there() {
    let folder = Folder::new("interrupted");
    let rows = folder.0.join("rows.json");
    let args = [
        "reproduce",
        "2012",
        "--quiet",
        "--json",
        rows.to_str().expect("a path"),
    ];
    let mut child = minflt(&args, &folder.0).spawn().expect("it runs");
    // With one CPU nothing is measured, and the line that says so comes first.
    let first = if cpus() > 1 {
        "  anon-vma-2012"
    } else {
        "measured here: skipped"
    };
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let seen = lines.any(|line| line.expect("text").starts_with(first));
    assert!(seen, "{first}");
    interrupt(&child);
    let said = text(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(130), "{said}");
    assert!(
        said.contains("interrupted") && said.contains("report.html"),
        "{said}"
    );
    assert!(said.contains("--resume"), "{said}");
    assert!(page(&folder).contains("This run has not ended"));

    let kept = folder.0.join("parts/measured-2012-move-pages.json");
    assert_eq!(kept.exists(), cpus() > 1);
    // A budget that is over at once uses what is kept, and keeps it for the next run.
    let short = [&args[..], &["--resume", "--budget", "1ms"]].concat();
    let output = minflt(&short, &folder.0).output().expect("it runs");
    let said = String::from_utf8(output.stdout).expect("text");
    assert!(said.contains("; --resume goes on from there"), "{said}");
    assert_eq!(said.contains("anon-vma-2012"), cpus() > 1, "{said}");
    assert!(page(&folder).contains("The budget of this run ended first"));
    assert_eq!(kept.exists(), cpus() > 1);
    let args = [&args[..], &["--resume"]].concat();
    let output = minflt(&args, &folder.0).output().expect("it runs");
    assert!(output.status.success());
    assert!(page(&folder).contains("What came out"));
    assert!(!page(&folder).contains("This run has not ended"));
    assert!(!folder.0.join("parts").exists());
    // The rows are all there, once.
    let rows = fs::read_to_string(rows).expect("rows");
    let simulated = rows.lines().filter(|row| row.contains("\"sim\"")).count();
    assert_eq!(simulated, 4, "numa02 in four eras");
}

#[test]
fn a_reader_who_leaves_does_not_cost_the_page() {
    let folder = Folder::new("closed");
    let args = ["reproduce", "2004", "--quiet", "--budget", "1ms"];
    let mut child = minflt(&args, &folder.0).spawn().expect("it runs");
    drop(child.stdout.take());
    let said = text(child.stderr.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0), "{said}");
    assert!(said.is_empty(), "{said}");
    assert!(page(&folder).contains("What came out"));
}

#[test]
fn a_budget_that_is_over_is_said_with_what_it_left_out() {
    let folder = Folder::new("budget");
    let args = ["reproduce", "--quiet", "--budget", "1ms"];
    let output = minflt(&args, &folder.0).output().expect("it runs");
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    for left_out in [
        "left out, as --budget is over: ",
        "the simulated tables of 2017",
    ] {
        assert!(said.contains(left_out), "{said}");
    }
    assert_eq!(said.matches("not simulated").count(), 2 * 8, "{said}");
}

#[test]
fn without_qemu_the_kernel_is_skipped_and_the_run_ends_well() {
    let folder = Folder::new("no-qemu");
    for (qemu, why) in [("./none", "is not there"), ("/bin/false", "does not run")] {
        let args = ["reproduce", "--quiet", "--budget", "1ms"];
        let mut command = minflt(&args, &folder.0);
        let output = command.env("QEMU", qemu).output().expect("it runs");
        let said = String::from_utf8(output.stdout).expect("text");
        assert_eq!(output.status.code(), Some(0), "{said}");
        let skipped = format!("skipped: {qemu} {why}; install QEMU");
        assert!(said.contains(&skipped), "{said}");
        assert!(said.contains("apt install qemu-system-x86"), "{said}");
        // A posting's rows are not the kernel's.
        let args = ["reproduce", "2004", "--quiet", "--budget", "1ms"];
        let output = minflt(&args, &folder.0).output().expect("it runs");
        let said = String::from_utf8(output.stdout).expect("text");
        assert!(!said.contains("QEMU"), "{said}");
    }
}

#[test]
fn a_full_disk_is_named_and_the_page_is_there() {
    let folder = Folder::new("full");
    let args = ["reproduce", "2012", "--quiet", "--json", "/dev/full"];
    let output = minflt(&args, &folder.0).output().expect("it runs");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("/dev/full") && said.contains("No space left"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(page(&folder).contains("</html>"));
}

#[test]
fn places_that_cannot_be_written_to_are_refused_before_the_run() {
    let nowhere = "/proc/nowhere";
    for (args, named) in [
        (vec!["reproduce", "--quiet"], "--out"),
        (
            vec!["reproduce", "--quiet", "--json", "/proc/nowhere/rows"],
            "--out",
        ),
    ] {
        let output = minflt(&args, nowhere.as_ref()).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(named) && said.contains(nowhere), "{said}");
        assert!(output.stdout.is_empty());
    }
    let folder = Folder::new("refused");
    let args = ["reproduce", "--quiet", "--json", "/proc/nowhere/rows"];
    let output = minflt(&args, &folder.0).output().expect("it runs");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("--json") && output.stdout.is_empty(),
        "{said}"
    );
}

#[test]
fn one_cpu_measures_nothing_and_simulates_the_same() {
    if Command::new("taskset").arg("--version").output().is_err() {
        eprintln!("skipped: apt install util-linux, which has taskset");
        return;
    }
    let folder = Folder::new("one-cpu");
    let mut command = Command::new("taskset");
    command.args([
        "-c",
        "0",
        env!("CARGO_BIN_EXE_minflt"),
        "reproduce",
        "2012",
        "--quiet",
    ]);
    command.arg("--tables").arg("--out").arg(&folder.0);
    let output = command.output().expect("taskset is part of util-linux");
    let said = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("skipped: measured rows need two processors"),
        "{said}"
    );
    assert!(said.contains("The 2012 tables"), "{said}");
    assert!(said.contains("2012  agrees "), "{said}");
}

/// A command without `--out`, run in `folder`: its status, standard output and standard error.
fn run(args: &[&str], folder: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_minflt"));
    let output = command.args(args).current_dir(folder).output();
    let output = output.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn a_long_command_begins_nothing_after_its_budget_and_says_how_much_is_missing() {
    let folder = Folder::new("budgets");
    fs::create_dir_all(folder.0.join("data/fit")).expect("made");
    for (line, missing) in [
        (
            "bench mmap1 --on sim --threads 1,2 --json rows",
            "2 of 2 runs",
        ),
        ("bench mmap1 --on sim --rounds 3 --save kept", "3 of 3 runs"),
        (
            "curves mmap1 --threads 1,2 --era linux-6.15 --seeds 2 --json rows",
            "4 of 4 runs",
        ),
        (
            "curves mmap1 --threads 1 --era linux-6.15 --seeds 1 --out page",
            "1 of 1 runs",
        ),
        ("sensitivity kvm16", " variants"),
        ("calibrate kvm16", "1 of 1 machines"),
        ("check P30 --era spf-2017", "1 of 1 searches"),
    ] {
        let mut args: Vec<_> = line.split(' ').collect();
        args.extend(["--quiet", "--budget", "1ns"]);
        let (status, said, errors) = run(&args, &folder.0);
        assert_eq!(status, Some(0), "{line}: {errors}");
        let missing = format!("{missing} left out, as --budget is over");
        assert_eq!(said.matches(&missing).count(), 1, "{line}: {said}");
    }
    // What is there is written, and that is nothing here.
    let read = |name: &str| fs::read_to_string(folder.0.join(name)).expect("written");
    assert_eq!(read("rows") + &read("results/saved/kept.json"), "");
    assert!(read("page/scaling.md").contains("budget of this run ended first: 1 runs"));
    let fits = fs::read_dir(folder.0.join("data/fit")).expect("a folder");
    assert_eq!(fits.count(), 0);
}

#[test]
fn a_long_command_checks_its_outputs_before_the_run() {
    let folder = Folder::new("outputs");
    fs::write(folder.0.join("results"), "no folder").expect("written");
    fs::write(folder.0.join("rows"), "a row\n").expect("written");
    let bench = "bench mmap1 --on sim --threads 64 --json rows";
    for (line, option) in [
        (
            "bench mmap1 --on sim --threads 64 --json /proc/nowhere/rows",
            "--json",
        ),
        (&format!("{bench} --save kept"), "--save"),
        (
            &format!("{bench} --flame /proc/nowhere/flame.svg"),
            "--flame",
        ),
        (
            &format!("{bench} --profile /proc/nowhere/profile"),
            "--profile",
        ),
        ("bench --proof --json /proc/nowhere/rows", "--json"),
        ("curves --json /proc/nowhere/rows", "--json"),
        ("curves --out /proc/nowhere", "--out"),
        ("calibrate --host --out /proc/nowhere/here.toml", "--out"),
    ] {
        let args: Vec<_> = line.split(' ').chain(["--quiet"]).collect();
        let (status, said, errors) = run(&args, &folder.0);
        assert_eq!(status, Some(1), "{line}: {errors}");
        let named = format!("minflt: {option}: cannot write ");
        assert!(
            errors.starts_with(&named) && said.is_empty(),
            "{line}: {errors}"
        );
    }
    // A check changes nothing.
    let rows = fs::read_to_string(folder.0.join("rows")).expect("rows");
    assert_eq!(rows, "a row\n");
}

#[test]
fn a_simulated_loop_that_gets_fewer_rounds_says_so() {
    let folder = Folder::new("rounds");
    let line = "bench page-fault1 --machine kvm16 --threads 1,16 --quiet --budget 1ns --on";
    let said = |rest: &str| {
        let args: Vec<_> = line.split(' ').chain(rest.split(' ')).collect();
        let (status, said, errors) = run(&args, &folder.0);
        assert_eq!(status, Some(0), "{errors}");
        said
    };
    let fewer = "rounds simulated: 2 at 16 threads (default 8, which would take long";
    assert!(said("sim").contains(fewer), "{}", said("sim"));
    // A number that was given is kept.
    assert!(!said("sim -- -s 8").contains("rounds simulated"));
}
