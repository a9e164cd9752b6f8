//! `minflt machines`, machines from files, and more CPUs than a machine has.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Exit status, standard output and standard error of `minflt ARGS`.
fn minflt(args: &str) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_minflt"))
        .args(args.split_whitespace())
        .output()
        .expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let status = output.status.code().expect("it exits");
    (status, text(output.stdout), text(output.stderr))
}

/// What `minflt ARGS` prints; it must succeed.
fn printed(args: &str) -> String {
    let (status, out, err) = minflt(args);
    assert_eq!(status, 0, "{args}: {err}");
    out
}

/// A path for a file of this test, without spaces.
fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn lines(path: &PathBuf) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(path).expect("written");
    let parse = |line| serde_json::from_str(line).expect("JSON");
    text.lines().map(parse).collect()
}

#[test]
fn machines_are_listed_and_shown_with_their_sources() {
    let json = path("list.json");
    let list = printed(&format!("machines --json {}", json.display()));
    assert!(
        list.contains("16 nodes x 6 cores x 8 threads, uneven"),
        "{list}"
    );
    assert_eq!(lines(&json).len(), 20);
    assert_eq!(lines(&json)[0]["machine"], "altix32");

    let json = path("shown.json");
    let shown = printed(&format!(
        "machines --show rome256 --json {}",
        json.display()
    ));
    assert!(shown.starts_with("rome256: 2-socket EPYC Rome"), "{shown}");
    assert!(
        shown.contains("rests on 15 measured numbers, 0 from a posting, 32 guesses, 0 fitted"),
        "{shown}"
    );
    let numbers = lines(&json);
    assert_eq!(numbers.len(), 47);
    let keys = ["machine", "table", "key", "source"].map(|key| numbers[19][key].as_str());
    assert_eq!(
        keys.map(Option::unwrap_or_default),
        ["rome256", "ns", "dram_local", "measured"]
    );
    assert_eq!(numbers[19]["value"], 122.0);
    for line in numbers {
        let cite = line["cite"].as_str().unwrap_or_default();
        assert!(shown.contains(cite), "{cite}");
    }
}

#[test]
fn a_machine_of_ones_own_runs_under_its_own_name() {
    let shipped = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../data/machines/kvm16.toml"
    );
    let text = fs::read_to_string(shipped).expect("there");
    let (own, json) = (path("own.toml"), path("own.json"));
    fs::write(&own, text.replace("\"kvm16\"", "\"mine\"")).expect("written");
    let bench = "bench pft --on sim --size 64K --ram 64M --quiet --machine";
    printed(&format!(
        "{bench} {} --json {}",
        own.display(),
        json.display()
    ));
    assert_eq!(lines(&json)[0]["machine"], "mine");

    let bad = text.replace("far1 = { value = 118", "far1 = { value = 8");
    fs::write(&own, bad).expect("written");
    let (status, _, said) = minflt(&format!("{bench} {}", own.display()));
    assert_eq!(status, 2);
    assert!(
        said.contains("own.toml:27: ns.far1 = 8 is below die = 44 (line 25): "),
        "{said}"
    );
}

#[test]
fn more_cpus_than_the_machine_has_are_labelled() {
    let json = path("extended.json");
    let bench = "bench pft --on sim --machine kvm16 --extend-machine --size 256K --ram 64M --quiet";
    let out = printed(&format!(
        "{bench} --threads 16,32 --json {}",
        json.display()
    ));
    let rows = lines(&json);
    let row = |at: usize| (rows[at]["machine"].as_str(), rows[at]["cpus"].as_u64());
    assert_eq!(row(0), (Some("kvm16"), Some(16)));
    assert_eq!(row(1), (Some("kvm16 extended to 32 CPUs"), Some(32)));
    assert!(
        out.contains("kvm16 has 16 CPUs: rows with more extend its topology by repetition"),
        "{out}"
    );
}

#[test]
fn a_machine_is_not_extended_without_end() {
    let bench = "bench pft --on sim --extend-machine --size 64M";
    let (status, _, said) = minflt(&format!("{bench} --threads 1024 --ram 1G"));
    assert_eq!(status, 2);
    assert!(
        said.contains("altix32 with 1024 CPUs: 512 memory nodes are more than the 256"),
        "{said}"
    );
    let (status, _, said) = minflt(&format!("{bench} --threads 4096"));
    assert_eq!(status, 2);
    assert!(
        said.contains("--threads 4096: more CPUs than are supported; give at most 2048"),
        "{said}"
    );
}

/// A run that is a row of a posting's table stands beside it, in memory that is as scarce.
#[test]
fn the_postings_table_stands_beside_ours() {
    let bench = "bench pft --on sim --quiet --threads 1,3 --era";
    let shown = printed(&format!("{bench} linux-2.6.10,atomic-pte-2004"));
    for row in [
        " 32  10    1    3.966s    366.840s 370.082s 56556.456  56553.456   published, 2004/unpatched",
        " 32  10    1    3.772s    330.629s 334.042s 62713.587  62708.706   published, 2004/patched",
    ] {
        assert!(shown.contains(row), "{shown}");
    }
    // Of three threads nothing was published, so that each table has one row.
    assert_eq!(shown.matches("   published, ").count(), 2, "{shown}");
    assert_eq!(shown.matches("[fitted]").count(), 2, "{shown}");
    // What the fit pins of the patched row.
    assert_eq!(shown.matches("[pinned]").count(), 2, "{shown}");
    assert!(
        shown.contains("in 512 MiB of RAM, as scarce as there"),
        "{shown}"
    );
    // With plenty of memory it is no row that was fitted; another era or program is none at all.
    for memory in ["--ram 1G", "--size 1M"] {
        let plenty = printed(&format!("{bench} linux-2.6.10 {memory}"));
        assert!(plenty.contains("published, 2004/unpatched"), "{plenty}");
        assert!(!plenty.contains("[fitted]"), "{plenty}");
    }
    for other in [
        "linux-4.13",
        "linux-2.6.10 --rss atomic",
        "linux-2.6.10 -- --measure workers",
        "linux-2.6.10 --machine kvm16 --size 1M",
    ] {
        let shown = printed(&format!("{bench} {other}"));
        assert!(!shown.contains("published"), "{other}: {shown}");
    }
}
