//! What pages say of the code is there: a `Type::item` is defined, and a name "in" a linked file is
//! in that file.

use super::Finding;
use super::links::resolve;
use super::rust_source::{RustSource, has_word, is_ident};
use super::tree::{Text, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// History: names were what they were.
const PAST: [&str; 1] = ["CHANGELOG.md"];
/// Words that begin the definition of a type.
const TYPES: [&str; 4] = ["struct", "enum", "trait", "type"];

/// Each `Type::item` of a page, of a type of ours, is a word of the code.
pub(super) fn items_exist(tree: &Tree) -> Vec<Finding> {
    let types = types(tree);
    let mut words: BTreeMap<String, bool> = BTreeMap::new();
    let mut findings = Vec::new();
    for (page, line, quoted) in quotes(tree) {
        let Some((of, item)) = path(quoted) else {
            continue;
        };
        if !types.contains(of) {
            continue;
        }
        let known = words
            .entry(item.to_owned())
            .or_insert_with(|| tree.rust.iter().any(|source| says(source, item)));
        if !*known {
            let message = format!("`{quoted}` is nowhere in the code");
            findings.push(Finding::new(&page.path, line, message));
        }
    }
    findings
}

/// Names right before "in [`file`](file.rs)" are in that file.
pub(super) fn names_are_in_their_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages(tree) {
        for (at, line) in page.text.lines().enumerate() {
            for (names, target) in placed(line) {
                let path = resolve(&page.path, target);
                let Some(source) = path.and_then(|path| tree.rust_at(&path)) else {
                    continue;
                };
                let gone = names.iter().filter(|name| !says(source, name));
                findings.extend(gone.map(|name| {
                    let message = format!("`{name}` is not in {}", source.path);
                    Finding::new(&page.path, at + 1, message)
                }));
            }
        }
    }
    findings
}

fn pages(tree: &Tree) -> impl Iterator<Item = &Text> {
    let past = |page: &&Text| !PAST.contains(&page.path.as_str());
    tree.markdown.iter().filter(past)
}

/// What stands in backticks, page by page, with its line.
fn quotes(tree: &Tree) -> impl Iterator<Item = (&Text, usize, &str)> {
    pages(tree).flat_map(|page| {
        let lines = page.text.lines().enumerate();
        lines.flat_map(move |(at, line)| {
            let quoted = line.split('`').skip(1).step_by(2);
            quoted.map(move |quoted| (page, at + 1, quoted))
        })
    })
}

/// The two parts of `Type::item`, with brackets or without.
fn path(quoted: &str) -> Option<(&str, &str)> {
    let (of, item) = quoted.split_once("::")?;
    let item = item.split_once('(').map_or(item, |(item, _)| item);
    let is_type = of.starts_with(char::is_uppercase) && of.chars().all(is_ident);
    let is_item = !item.is_empty() && item.chars().all(is_ident);
    (is_type && is_item).then_some((of, item))
}

/// The types that our code defines.
fn types(tree: &Tree) -> BTreeSet<String> {
    let mut types = BTreeSet::new();
    for line in tree.rust.iter().flat_map(RustSource::code) {
        for word in TYPES {
            let Some((before, behind)) = line.split_once(&format!("{word} ")) else {
                continue;
            };
            let name: String = behind.chars().take_while(|&c| is_ident(c)).collect();
            if !before.ends_with(is_ident) && name.starts_with(char::is_uppercase) {
                types.insert(name);
            }
        }
    }
    types
}

/// Whether a file has `word` in its code.
fn says(source: &RustSource, word: &str) -> bool {
    source.code().iter().any(|line| has_word(line, word))
}

/// Of each link to a Rust file that "in" stands before, the names before that, and the target.
fn placed(line: &str) -> Vec<(Vec<&str>, &str)> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices(" in [`") {
        let before = line[..at].trim_end_matches(',');
        let Some((_, behind)) = line[at..].split_once("](") else {
            continue;
        };
        let Some((target, _)) = behind.split_once(')') else {
            continue;
        };
        let mut names = Vec::new();
        let mut rest = before;
        while let Some(open) = rest.strip_suffix('`').and_then(|rest| rest.rfind('`')) {
            let name = &rest[open + 1..rest.len() - 1];
            names.extend(name.rsplit(|c| !is_ident(c)).find(|word| !word.is_empty()));
            let more = rest[..open].trim_end();
            let more = more.strip_suffix("and").map_or(more, str::trim_end);
            rest = more.trim_end_matches(',');
        }
        if target.ends_with(".rs") && !names.is_empty() {
            found.push((names, target));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{items_exist, names_are_in_their_files, placed};
    use crate::tidy::tree::Tree;

    const CODE: (&str, &str) = ("crates/a/src/slot.rs", "struct Slot;\nfn open() {}\n");

    #[test]
    fn an_item_that_is_gone_is_found() {
        let page = "Ask `Slot::open`, `Slot::close(it)`, `Other::thing`, `std::mem`.\n";
        let findings = items_exist(&Tree::sample(&[CODE, ("docs/a.md", page)]));
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["docs/a.md:1: `Slot::close(it)` is nowhere in the code"]
        );
    }

    #[test]
    fn a_name_in_another_file_is_found() {
        let page = "See `Slot::open` and `shut`, in [`slot.rs`](../crates/a/src/slot.rs).\n";
        let findings = names_are_in_their_files(&Tree::sample(&[CODE, ("docs/a.md", page)]));
        let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["docs/a.md:1: `shut` is not in crates/a/src/slot.rs"]
        );
    }

    #[test]
    fn names_before_a_link_are_taken_and_no_others() {
        let line = "`no` here; `A::b`, `c` and `d()` in [`e`](e.rs), `f` in [`g`](g.md)";
        assert_eq!(placed(line), [(vec!["d", "c", "b"], "e.rs")]);
    }
}
