//! A simulated run gives the same bytes, with and without address randomization.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use std::fs;
use std::process::Command;

const JOB: &str = "bench pft --on sim --machine altix32 --era linux-2.6.10,spf-2017 --threads 1,3";

fn rows(name: &str, mut command: Command) -> String {
    let file = std::env::temp_dir().join(format!("minflt-{}-{name}.jsonl", std::process::id()));
    let output = command
        .args(JOB.split_whitespace())
        .arg("--json")
        .arg(&file)
        .args(["--quiet", "--", "-b", "1M"])
        .output()
        .expect("the program runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let rows = fs::read_to_string(&file).expect("rows were written");
    fs::remove_file(&file).expect("ours");
    rows
}

#[test]
fn the_same_bytes_come_out_at_other_addresses() {
    let program = env!("CARGO_BIN_EXE_minflt");
    let randomized = rows("randomized", Command::new(program));
    assert_eq!(randomized.lines().count(), 4);
    assert!(
        randomized
            .lines()
            .all(|line| line.contains("\"simulated\":true"))
    );
    if Command::new("setarch").arg("--version").output().is_err() {
        eprintln!("skipped: apt install util-linux (setarch switches randomization off)");
        return;
    }
    let mut fixed = Command::new("setarch");
    fixed.arg("-R").arg(program);
    assert_eq!(randomized, rows("fixed", fixed));
}
