//! Every command of the tutorial runs and prints what stands there; those of README are commands.
//! `TRYCMD=overwrite` writes what they print now.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use std::fs;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

#[test]
fn the_tutorial_prints_what_stands_there() {
    trycmd::TestCases::new().case(format!("{ROOT}/docs/tutorial.md"));
}

/// Lines of code blocks that call the program, without what explains them.
fn commands(file: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("{ROOT}/{file}")).expect("there");
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.starts_with("```") {
            inside = !inside;
        }
        let line = line.trim_start_matches("$ ");
        if inside && line.starts_with("minflt ") {
            let command = line.split("  #").next().unwrap_or(line);
            found.push(command.trim().to_owned());
        }
    }
    found
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
            // `[POSTING..]` stands for what may be left out.
            let words = command.split_whitespace().skip(1);
            let words = words.filter(|word| !word.starts_with('['));
            let words: Vec<_> = words.take_while(|word| *word != "--").collect();
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
