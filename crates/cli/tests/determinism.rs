//! A simulated run gives the same bytes, with and without address randomization.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use std::fs;
use std::process::Command;

/// Commands, and the workload's own options.
const JOBS: &[(&str, &str)] = &[
    (
        "bench pft --on sim --machine altix32 --era linux-2.6.10,spf-2017 --threads 1,3",
        "-b 1M",
    ),
    (
        "bench ebizzy --on sim --machine kvm16 --era linux-4.13,spf-2017 --threads 2,20",
        "-mTRp --records 3 -s 64K",
    ),
    (
        "bench kernbench --on sim --machine kvm16 --era linux-2.6.10,spf-2017 --threads 2,4",
        "-f -n 2 --units 6 --unit 256K",
    ),
    // More than the memory there is.
    (
        "bench pft --on sim --machine kvm16 --era linux-2.6.10,linux-6.15 --threads 1,2 --ram 32M --swap 64M",
        "-b 40M",
    ),
];

fn rows(name: &str, command: impl Fn() -> Command) -> String {
    JOBS.iter()
        .map(|(job, options)| rows_of(name, command(), job, options))
        .collect()
}

fn rows_of(name: &str, mut command: Command, job: &str, options: &str) -> String {
    let file = std::env::temp_dir().join(format!("minflt-{}-{name}.jsonl", std::process::id()));
    let output = command
        .args(job.split_whitespace())
        .arg("--json")
        .arg(&file)
        .args(["--quiet", "--"])
        .args(options.split_whitespace())
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
    let randomized = rows("randomized", || Command::new(program));
    assert_eq!(randomized.lines().count(), 4 * JOBS.len());
    assert!(
        randomized
            .lines()
            .all(|line| line.contains("\"simulated\":true"))
    );
    if Command::new("setarch").arg("--version").output().is_err() {
        eprintln!("skipped: apt install util-linux (setarch switches randomization off)");
        return;
    }
    let fixed = || {
        let mut fixed = Command::new("setarch");
        fixed.arg("-R").arg(program);
        fixed
    };
    assert_eq!(randomized, rows("fixed", fixed));
}
