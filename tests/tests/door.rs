//! What costs nothing on real threads: the door, and fixes that only checked machines can switch
//! off.

#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

const FAULTS: &str = "1000000";
/// By how much the counts may differ of machines that do the same: the code is compiled for each,
/// and not always inlined alike. It was 370 instructions of 1,733,130,958, three for each of 123
/// munmaps, in `Zap::free_below`. One instruction a fault is a thousand times this bound.
const INLINING: u64 = 1000;

/// Where cargo put this test, and puts the example.
fn target() -> PathBuf {
    let me = std::env::current_exe().expect("a path");
    // target/debug/deps/door-0123
    me.ancestors().nth(3).expect("a target folder").to_owned()
}

fn build() -> PathBuf {
    let args = [
        "build",
        "--release",
        "--quiet",
        "-p",
        "minflt-host",
        "--example",
        "door_faults",
    ];
    let built = Command::new(env!("CARGO"))
        .args(args)
        .arg("--target-dir")
        .arg(target())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .status();
    assert!(
        built.expect("cargo runs").success(),
        "the example does not build"
    );
    target().join("release/examples/door_faults")
}

/// The instructions that `machine` takes for its faults, all that they call included.
fn instructions(program: &Path, machine: &str) -> u64 {
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=door_faults::faults*")
        .arg(program)
        .args([machine, FAULTS])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{text}");
    let line = text.lines().find_map(|line| line.split_once("Collected :"));
    let count = line.and_then(|(_, count)| count.trim().parse().ok());
    count.unwrap_or_else(|| panic!("no count in {text}"))
}

#[test]
fn a_million_faults_pay_neither_for_the_door_nor_for_controls() {
    let asked = Command::new("valgrind").arg("--version").output();
    if !asked.is_ok_and(|answer| answer.status.success()) {
        println!("skipped: apt install valgrind");
        return;
    }
    let program = build();
    let [door, bare, busy, controls] = thread::scope(|scope| {
        ["door", "bare", "busy", "controls"]
            .map(|machine| scope.spawn(|| instructions(&program, machine)))
            .map(|counting| counting.join().expect("counts"))
    });
    println!(
        "{FAULTS} faults: {door} instructions with the door, {bare} without, {busy} with one that \
         counts, {controls} with controls"
    );
    // A count that misses the faults would be equal, too.
    assert!(door > 100_000_000, "{door}");
    // A fault passes the door some fifty times; the least a door can do is an instruction.
    assert!(
        door.abs_diff(bare) <= INLINING,
        "the door costs something: {door}, {bare} without"
    );
    assert!(
        busy > door + 10_000_000,
        "a door that does something is not seen: {busy}, {door}"
    );
    // A fault asks of several fixes, and a question is a load, a comparison and a jump.
    assert!(
        controls > door + 10_000_000,
        "questions that are asked are not seen: {controls}, {door}"
    );
}
