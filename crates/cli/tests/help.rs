//! The help: every command has examples, which work; the commands in groups; manual pages and
//! completions.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

mod common;
#[path = "common/shell.rs"]
mod shell;

use common::Folder;
use shell::{printed, shell};
use std::fs;
use std::path::Path;

/// Examples that no test runs, and why; that clap takes them is tested beside the table.
const NOT_RUN: [(&str, &str); 14] = [
    ("minflt reproduce", "takes minutes"),
    ("minflt reproduce 2012 2022 --tables", "takes minutes"),
    ("minflt reproduce --budget 60s", "takes a minute"),
    ("minflt reproduce --resume", "takes minutes"),
    ("minflt check --all --budget 60s", "takes a minute"),
    ("minflt curves --out docs", "takes minutes"),
    ("minflt efficiency --out docs", "takes minutes"),
    (
        "minflt boot -- ./hello world",
        "needs QEMU and a program; `boot.rs` boots",
    ),
    (
        "minflt boot -- busybox sh",
        "needs QEMU and busybox; `boot.rs` boots",
    ),
    (
        "minflt boot --era linux-6.15 --cpus 2 -- ./hello world",
        "needs QEMU and a program",
    ),
    (
        "minflt boot --kernel linux=/boot/vmlinuz -- ./hello world",
        "needs QEMU and a Linux kernel",
    ),
    (
        "minflt calibrate kvm16",
        "takes a minute, and writes into the repository",
    ),
    ("minflt sensitivity kvm16", "takes a minute"),
    (
        "minflt sensitivity --docs",
        "takes minutes, and writes into the repository",
    ),
];

/// The commands that the help lists.
fn commands(folder: &Path) -> Vec<String> {
    let help = printed(folder, "minflt help");
    let lists = help.split("Options:").next().unwrap_or_default();
    let listed = lists.lines().filter_map(|line| line.strip_prefix("  "));
    let names = listed.filter_map(|line| line.split(' ').next());
    let names = names.filter(|name| *name != "help").map(str::to_owned);
    names.collect()
}

/// The command lines at the end of the help of a command.
fn examples(folder: &Path, name: &str) -> Vec<String> {
    let help = printed(folder, &format!("minflt {name} --help"));
    assert_eq!(
        help,
        printed(folder, &format!("minflt help {name}")),
        "{name}"
    );
    let (_, examples) = help.split_once("\nExamples:\n").expect(name);
    let lines = examples.lines().map(|line| {
        assert!(line.chars().count() <= 100, "{line}");
        let (line, does) = line.trim().split_once("   ").expect(line);
        assert!(!does.trim().is_empty(), "{line}");
        line.trim().to_owned()
    });
    lines.collect()
}

#[test]
fn every_example_works() {
    let folder = Folder::new("examples");
    let at = folder.0.as_path();
    let mut not_run = Vec::new();
    let names = commands(at);
    assert_eq!(names.len(), 18, "{names:?}");
    for name in names {
        let lines = examples(at, &name);
        assert!(lines.len() >= 2, "{name}: {lines:?}");
        for line in lines {
            if NOT_RUN.iter().any(|(long, _)| *long == line) {
                not_run.push(line);
                continue;
            }
            assert!(
                !printed(at, &line).is_empty()
                    || line.contains(" man ")
                    || line.contains(" --out "),
                "{line}"
            );
            // `compare` is of two files; the second run is the reader's own.
            let saved = at.join("results/saved");
            if saved.join("before.json").exists() {
                fs::copy(saved.join("before.json"), saved.join("after.json")).expect("copied");
            }
        }
    }
    assert_eq!(not_run.len(), NOT_RUN.len(), "{not_run:?}");
    // A page for each command and that of the program.
    let pages = fs::read_dir(at.join(".local/share/man/man1")).expect("pages");
    assert_eq!(pages.count(), 19);
}

#[test]
fn the_commands_are_in_groups_and_the_first_one_to_run_is_named() {
    let folder = Folder::new("help");
    let help = printed(&folder.0, "minflt help");
    assert_eq!(help, printed(&folder.0, "minflt --help"));
    for said in [
        "\nStart here:\n  reproduce ",
        "\nFind races:\n  races ",
        "\nFirst time here? `minflt reproduce --budget 60s`",
    ] {
        assert!(help.contains(said), "{said} in {help}");
    }
    assert!(
        help.lines().all(|line| line.chars().count() <= 100),
        "{help}"
    );
    // Without a command the same, as an error.
    let output = shell(&folder.0, "minflt");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr), help);
}

#[test]
fn completions_and_pages_know_every_command_and_its_examples() {
    let folder = Folder::new("generated");
    let at = folder.0.as_path();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = printed(at, &format!("minflt completions {shell}"));
        for name in commands(at) {
            assert!(text.contains(&name), "{shell}: {name}");
        }
        assert!(
            text.contains("--negative-control") || shell == "fish",
            "{shell}"
        );
    }
    // A shell reads what is for it.
    printed(
        at,
        "minflt completions bash >here && sh -n here || exec bash -n here",
    );
    printed(at, "minflt man pages");
    for name in commands(at) {
        let page = fs::read_to_string(at.join(format!("pages/minflt-{name}.1"))).expect("there");
        assert!(page.contains(&format!(".TH minflt-{name} 1")), "{page}");
        assert!(page.contains("Examples:"), "{page}");
        assert!(
            page.contains(&format!("minflt {name}")) || page.contains("minflt\\ "),
            "{page}"
        );
    }
    let page = printed(at, "minflt man");
    assert_eq!(
        page,
        fs::read_to_string(at.join("pages/minflt.1")).expect("there")
    );
    for said in [".TH minflt 1", "minflt\\-bench(1)", "First time here?"] {
        assert!(page.contains(said), "{said} in {page}");
    }
}
