//! The committed corpora, with a compiler that cannot fuzz.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_fuzzing::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the targets and their corpora are.
fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// What a folder holds, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    files
}

#[test]
fn every_target_is_one_that_cargo_builds_and_has_a_corpus() {
    let stems = |folder: &str| -> BTreeSet<String> {
        let files = files(&fuzz().join(folder)).into_iter();
        files
            .filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()))
            .collect()
    };
    let named: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(stems("fuzz_targets"), named);
    assert_eq!(stems("corpus"), named);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).expect("readable");
    let built = manifest.matches("[[bin]]").count();
    assert_eq!(built, TARGETS.len());
    for name in &named {
        let bin = format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n");
        assert!(manifest.contains(&bin), "{name}");
    }
}

#[test]
fn the_corpora_run() {
    for (name, run) in TARGETS {
        let corpus = files(&fuzz().join("corpus").join(name));
        assert!(!corpus.is_empty(), "{name} has no corpus");
        for file in corpus {
            println!("{}", file.display());
            run(&fs::read(&file).expect("readable"));
        }
    }
}
