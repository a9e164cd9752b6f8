//! Every command of the tutorial and of README runs, and prints what stands there.
//! `TRYCMD=overwrite` writes what they print now.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

mod common;
#[path = "common/shell.rs"]
mod shell;

use common::Folder;
use shell::printed;
use std::fs;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Commands of README and the tutorial that no test runs, and why.
const NOT_RUN: [(&str, &str); 15] = [
    ("cargo build --release", "builds the program"),
    (
        "cargo run --release -- reproduce",
        "builds the program, and takes minutes",
    ),
    ("cargo test --workspace", "is what runs this test"),
    (
        "cargo run -p minflt-host --example first_fault",
        "builds a program; a test of host has it",
    ),
    (
        "minflt boot -- ./hello world",
        "needs QEMU; a test of boot has others",
    ),
    ("minflt boot --cpus 2 -- PROGRAM ARGS", "the same"),
    ("minflt reproduce", "takes minutes"),
    ("minflt bench --proof", "takes minutes"),
    ("minflt check --all", "takes minutes"),
    (
        "cargo test -p minflt --test tutorial",
        "is what runs this test",
    ),
    ("minflt curves", "takes minutes"),
    ("minflt curves --out docs", "takes minutes"),
    (
        "minflt calibrate",
        "takes minutes, and writes into the repository",
    ),
    ("minflt sensitivity", "takes minutes"),
    (
        "minflt man ~/.local/share/man/man1",
        "run by the test of the help",
    ),
];

#[test]
fn the_tutorial_prints_what_stands_there() {
    trycmd::TestCases::new().case(format!("{ROOT}/docs/tutorial.md"));
}

/// Command lines: those of code blocks, without what explains them and without what they print, and
/// `those in text`.
fn commands(file: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("{ROOT}/{file}")).expect("there");
    let mut inside = false;
    let mut found: Vec<String> = Vec::new();
    let mut add = |line: &str| {
        let line = line.split("  #").next().unwrap_or(line);
        // `[POSTING..]` stands for what may be left out.
        let words = line
            .split_whitespace()
            .filter(|word| !word.starts_with('['));
        let line = words.collect::<Vec<_>>().join(" ");
        let is_one = ["minflt ", "cargo ", "cd "]
            .iter()
            .any(|it| line.starts_with(it));
        if is_one && !found.contains(&line) {
            found.push(line);
        }
    };
    let (mut spoken, mut prompts) = (String::new(), false);
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
            prompts = line == "```console";
        } else if inside {
            match line.strip_prefix("$ ") {
                Some(command) => add(command),
                None if !prompts => add(line),
                None => {}
            }
        } else {
            spoken += &format!("{line} ");
        }
    }
    spoken.split('`').skip(1).step_by(2).for_each(add);
    found
}

/// Those of the tutorial's blocks are run above, where what they print is compared.
#[test]
fn every_command_of_readme_and_tutorial_runs() {
    let folder = Folder::new("docs");
    let at = folder.0.as_path();
    let tutorial = fs::read_to_string(format!("{ROOT}/docs/tutorial.md")).expect("there");
    printed(
        at,
        "minflt bench pft --size 1M --rounds 4 --quiet --json before.json",
    );
    fs::copy(at.join("before.json"), at.join("after.json")).expect("copied");
    fs::create_dir_all(at.join(".local/share/bash-completion/completions")).expect("made");
    let mut not_run = Vec::new();
    let all = [commands("README.md"), commands("docs/tutorial.md")].concat();
    assert!(all.len() >= 30, "{all:?}");
    for command in all {
        if NOT_RUN.iter().any(|(long, _)| *long == command) {
            not_run.push(command);
        } else if !tutorial.contains(&format!("\n$ {command}\n")) {
            if command.starts_with("minflt compare before after.json") {
                // Two measurements while other tests run may differ: it is given one.
                let saved = at.join("results/saved/before.json");
                fs::copy(saved, at.join("after.json")).expect("measured before");
            }
            let text = printed(at, &command);
            assert!(
                !text.is_empty() || command.contains("--out") || command.contains('>'),
                "{command}"
            );
        }
    }
    for (command, why) in NOT_RUN {
        assert!(
            not_run.iter().any(|it| it == command),
            "{command} ({why}) is in no page"
        );
    }
}

/// `--help` after a command makes clap read all of it and run nothing.
#[test]
fn commands_of_the_docs_are_commands() {
    for file in [
        "README.md",
        "docs/tutorial.md",
        "docs/races.md",
        "docs/benchmarks.md",
    ] {
        let all = commands(file);
        assert!(all.len() >= 3, "{file}: {all:?}");
        for command in all {
            let command = command.replace("cargo run --release -- reproduce", "minflt reproduce");
            let words = command.split_whitespace().skip(1);
            let words: Vec<_> = words
                .take_while(|word| *word != "--" && !word.starts_with('>'))
                .collect();
            // What stands after `minflt help` is a command's name only.
            if !command.starts_with("minflt ") || command.starts_with("minflt help") {
                continue;
            }
            let output = Command::new(env!("CARGO_BIN_EXE_minflt"))
                .args(&words)
                .arg("--help")
                .output()
                .expect("the program runs");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{file}: {command}: {said}");
        }
    }
}
