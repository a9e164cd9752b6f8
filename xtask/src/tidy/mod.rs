//! Rules of the tree that no compiler checks.
//!
//! Every rule is a function from the [`Tree`] to its findings and has a test that shows it failing
//! on a bad sample. What a rule knows about the project (tables, lists of files, limits) stands as
//! data at the top of its file.

mod bans;
mod deps;
mod floors;
mod links;
mod locks;
mod names;
mod orderings;
mod purity;
mod rust_source;
mod sections;
mod size;
mod tree;
mod unsafe_code;

use core::fmt;
use std::path::Path;
use std::process::ExitCode;
use tree::Tree;

pub(crate) use orderings::pairs_by_line;
pub(crate) use rust_source::{RustSource, after_closing, is_ident};
pub(crate) use tree::rust_files;

/// Something wrong at one line.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Finding {
    path: String,
    /// Counted from 1.
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [Rule; 20] = [
    deps::arrows_point_down,
    floors::arrows_point_down,
    floors::permissions_are_used,
    deps::members_inherit_lints,
    orderings::pairs_have_two_ends,
    orderings::pairs_are_listed,
    purity::raw_atomics_stay_in_prim,
    purity::no_statics,
    purity::no_heap_and_no_std,
    purity::no_cfg_in_the_core,
    bans::nothing_unfinished,
    size::short_files,
    size::short_lines,
    locks::page_matches_code,
    sections::page_lists_sections,
    links::targets_exist,
    names::items_exist,
    names::names_are_in_their_files,
    unsafe_code::only_where_listed,
    unsafe_code::others_forbid_it,
];

/// Checks the tree below `root` and prints one line a finding.
pub(crate) fn run(root: &Path) -> ExitCode {
    let tree = match Tree::read(root) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: cannot read {}: {error}", root.display());
            return ExitCode::FAILURE;
        }
    };
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    findings.dedup();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("mm: {}", floors::count(&tree));
        println!("tidy: {} files, {} rules, ok", tree.checked(), RULES.len());
        return ExitCode::SUCCESS;
    }
    println!(
        "tidy: {} findings in {} files",
        findings.len(),
        tree.checked()
    );
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::{RULES, Tree};
    use std::path::Path;

    /// So that `cargo test` looks at what only `cargo xtask tidy` did: the list of sections, the
    /// order of locks.
    #[test]
    fn this_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
        let tree = root.and_then(|root| Tree::read(root).ok());
        let Some(tree) = tree else {
            panic!("xtask is not in the repository");
        };
        assert!(tree.checked() > 100, "{} files", tree.checked());
        let findings: Vec<String> = RULES
            .iter()
            .flat_map(|rule| rule(&tree))
            .map(|finding| finding.to_string())
            .collect();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
}
