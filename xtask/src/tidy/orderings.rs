//! Memory orderings name the other end of their pair.
//!
//! A comment `// ORDERING: Release; pairs with [vma-seq-read]` stands at each end of a pair, with
//! the same name; `docs/memory-model.md` lists the name as `[vma-seq-read]`, brackets included.

use super::Finding;
use super::rust_source::RustSource;
use super::tree::{Text, Tree};
use std::collections::BTreeMap;

/// The page that lists the pairs.
const PAGE: &str = "docs/memory-model.md";

/// Where a comment stands: path and line.
type Place = (String, usize);

/// A pair named at one place only pairs with nothing.
pub(super) fn pairs_have_two_ends(tree: &Tree) -> Vec<Finding> {
    let (pairs, nameless) = ends(tree);
    let lonely = pairs
        .iter()
        .filter(|(_, places)| places.len() < 2)
        .map(|(name, places)| {
            let (path, line) = &places[0];
            Finding::new(path, *line, format!("the pair [{name}] has only this end"))
        });
    let nameless = nameless.iter().map(|(path, line)| {
        Finding::new(
            path,
            *line,
            "an ORDERING comment must say `pairs with [name]`",
        )
    });
    lonely.chain(nameless).collect()
}

/// The page and the code name the same pairs.
pub(super) fn pairs_are_listed(tree: &Tree) -> Vec<Finding> {
    let (pairs, _) = ends(tree);
    let listed = tree.page_at(PAGE).map(listed_names).unwrap_or_default();
    let mut findings = Vec::new();
    for (name, places) in &pairs {
        if !listed.contains_key(name) {
            let (path, line) = &places[0];
            findings.push(Finding::new(
                path,
                *line,
                format!("{PAGE} does not list [{name}]"),
            ));
        }
    }
    for (name, line) in &listed {
        if !pairs.contains_key(name) {
            findings.push(Finding::new(
                PAGE,
                *line,
                format!("no code names the pair [{name}]"),
            ));
        }
    }
    findings
}

/// The places of every pair by name, and the ORDERING comments without one.
fn ends(tree: &Tree) -> (BTreeMap<String, Vec<Place>>, Vec<Place>) {
    let mut pairs: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    let mut nameless = Vec::new();
    for source in &tree.rust {
        for (line, text) in ordering_comments(source) {
            let place = (source.path.clone(), line);
            let names = pairs_of(&text);
            // Of a counter, or a word that a lock guards, nobody relies on the order.
            let needs_none = text.trim_start().starts_with("Relaxed") || text.contains("no pair");
            if names.is_empty() && !needs_none {
                nameless.push(place.clone());
            }
            for name in names {
                pairs.entry(name).or_default().push(place.clone());
            }
        }
    }
    (pairs, nameless)
}

/// Each ORDERING comment that names pairs: its first line (from 1), and their names.
pub(crate) fn pairs_by_line(source: &RustSource) -> Vec<(usize, Vec<String>)> {
    let comments = ordering_comments(source).into_iter();
    let named = comments.map(|(line, text)| (line, pairs_of(&text)));
    named.filter(|(_, names)| !names.is_empty()).collect()
}

/// The names behind *pairs with*.
fn pairs_of(text: &str) -> Vec<String> {
    let names = text.split_once("pairs with");
    names.map_or_else(Vec::new, |(_, rest)| bracketed(rest))
}

/// Each ORDERING comment: its first line (from 1) and its text, continuation lines included.
fn ordering_comments(source: &RustSource) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (at, comment) in source.comments().iter().enumerate() {
        let comment = comment.trim();
        // Documentation may speak about the convention; only plain comments follow it.
        let is_doc = comment.starts_with("///") || comment.starts_with("//!");
        if !is_doc && let Some((_, text)) = comment.split_once("ORDERING:") {
            found.push((at + 1, text.to_owned()));
            open = true;
        } else if comment.is_empty() || !source.code()[at].trim().is_empty() {
            open = false;
        } else if open && let Some((_, text)) = found.last_mut() {
            text.push(' ');
            text.push_str(comment.trim_start_matches('/'));
        }
    }
    found
}

/// The names that stand in brackets in `text`.
fn bracketed(text: &str) -> Vec<String> {
    let inner = text
        .split('[')
        .skip(1)
        .filter_map(|rest| rest.split_once(']'));
    inner
        .filter(|(name, after)| is_name(name) && !after.starts_with(['(', '[']))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn is_name(text: &str) -> bool {
    text.len() > 2
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// The pairs the page names, each with the line of its first mention.
fn listed_names(page: &Text) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    for (at, line) in page.text.lines().enumerate() {
        let defines_link = line.starts_with('[') && line.contains("]:");
        for name in bracketed(if defines_link { "" } else { line }) {
            names.entry(name).or_insert(at + 1);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{pairs_are_listed, pairs_have_two_ends};
    use crate::tidy::tree::Tree;

    const WRITER: &str =
        "// ORDERING: Release; the data before it;\n// pairs with [seq-read].\nx\n";
    const READER: &str = "x // ORDERING: Acquire; pairs with [seq-read] and [seq-retry]: two\n";

    #[test]
    fn a_pair_with_one_end_is_found() {
        let tree = Tree::sample(&[
            ("crates/sync/src/a.rs", WRITER),
            ("crates/sync/src/b.rs", READER),
            ("crates/sync/src/c.rs", "// ORDERING: SeqCst, to be safe\n"),
            ("crates/sync/src/d.rs", "// ORDERING: Relaxed, a counter\n"),
            (
                "crates/sync/src/e.rs",
                "//! `// ORDERING: ...; pairs with [some-name]`\n",
            ),
        ]);
        let found: Vec<String> = pairs_have_two_ends(&tree)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "crates/sync/src/b.rs:1: the pair [seq-retry] has only this end",
                "crates/sync/src/c.rs:1: an ORDERING comment must say `pairs with [name]`",
            ]
        );
    }

    #[test]
    fn the_page_lists_what_the_code_names_and_nothing_else() {
        let page =
            "| `[seq-read]` | [a link](x.md) |\n| `[long-gone]` |\n- [ ] to do\n[link]: x.md\n";
        let tree = Tree::sample(&[
            ("crates/sync/src/a.rs", WRITER),
            ("crates/sync/src/b.rs", READER),
            ("docs/memory-model.md", page),
        ]);
        let found: Vec<String> = pairs_are_listed(&tree)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "crates/sync/src/b.rs:1: docs/memory-model.md does not list [seq-retry]",
                "docs/memory-model.md:2: no code names the pair [long-gone]",
            ]
        );
    }
}
