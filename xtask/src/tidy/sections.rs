//! The page on locking lists every section in which a VMA is changed, and only those.
//!
//! A function that opens a section, or asks for one to be opened, has a row in the table behind the
//! mark: the file and the function in backticks. Without that list nobody could say whether *every*
//! place that changes a VMA takes part.

use super::Finding;
use super::rust_source::{RustSource, word_positions};
use super::tree::Tree;
use std::collections::BTreeMap;

const PAGE: &str = "docs/locking.md";
const MARK: &str = "<!-- write sections -->";
const SOURCE: &str = "crates/mm/src/";
/// Calls that open a section, by the word they begin with and what stands around it.
const OPENS: [&str; 4] = [
    "writers.begin(",
    "writers.begin_all(",
    "modify(",
    "add_vma(",
];
/// Where the seam itself is.
const SEAM: &str = "crates/mm/src/change/writers.rs";

/// A file below [`SOURCE`] and a function in it.
type Place = (String, String);

/// Code and page name the same places.
pub(super) fn page_lists_sections(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.page_at(PAGE) else {
        return Vec::new();
    };
    let Some(listed) = listed(&page.text) else {
        return vec![Finding::new(PAGE, 1, format!("there is no `{MARK}`"))];
    };
    let opened = opened(tree);
    let unlisted = opened.iter().filter(|(at, _)| !listed.contains_key(*at));
    let unlisted = unlisted.map(|((file, function), line)| {
        let message = format!("`{function}` opens a section that {PAGE} does not list");
        Finding::new(&format!("{SOURCE}{file}"), *line, message)
    });
    let gone = listed.iter().filter(|(at, _)| !opened.contains_key(*at));
    let gone = gone.map(|((file, function), line)| {
        Finding::new(
            PAGE,
            *line,
            format!("no section is opened in `{file}` `{function}`"),
        )
    });
    unlisted.chain(gone).collect()
}

/// The functions that open sections, with the line of the first.
fn opened(tree: &Tree) -> BTreeMap<Place, usize> {
    let mut places = BTreeMap::new();
    for source in tree.rust.iter().filter(|it| it.path != SEAM) {
        if let Some(file) = source.path.strip_prefix(SOURCE) {
            for (function, line) in functions_that_open(source) {
                places.entry((file.to_owned(), function)).or_insert(line);
            }
        }
    }
    places
}

fn functions_that_open(source: &RustSource) -> Vec<(String, usize)> {
    let mut function = String::new();
    let mut found = Vec::new();
    for (at, line) in source.production().iter().enumerate() {
        if let Some(name) = defined(line) {
            function = name;
            continue;
        }
        if OPENS.iter().any(|call| calls(line, call)) {
            found.push((function.clone(), at + 1));
        }
    }
    found
}

/// Whether `line` holds `call`, not as the end of a longer word.
fn calls(line: &str, call: &str) -> bool {
    let word = call.trim_end_matches('(');
    let (first, _) = word.split_once('.').unwrap_or((word, ""));
    word_positions(line, first).any(|at| line[at..].starts_with(call))
}

/// The function that a line begins to define.
fn defined(line: &str) -> Option<String> {
    let at = word_positions(line, "fn").next()?;
    let name = line[at + 2..].trim_start();
    let name: String = name
        .chars()
        .take_while(|&c| super::rust_source::is_ident(c))
        .collect();
    (!name.is_empty()).then_some(name)
}

/// The places in the rows behind the mark, each with its line.
fn listed(text: &str) -> Option<BTreeMap<Place, usize>> {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.trim() == MARK)?;
    let rows = lines.iter().enumerate().skip(start + 1);
    let rows = rows.take_while(|(_, line)| line.is_empty() || line.starts_with('|'));
    let mut places = BTreeMap::new();
    for (at, row) in rows {
        let mut quoted = row.split('`').skip(1).step_by(2);
        if let (Some(file), Some(function)) = (quoted.next(), quoted.next()) {
            places.insert((file.to_owned(), function.to_owned()), at + 1);
        }
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::page_lists_sections;
    use crate::tidy::tree::Tree;

    const CODE: &str = "fn protect<M>(mm: &Mm<M>) {\n    let held = writers.begin(vma);\n}\n\
                        fn lock() {\n    let it = modify(mm, part);\n}\n\
                        fn premodify() { premodify(1); }\n";
    const HEAD: &str = "# Locking\n<!-- write sections -->\n\n| section | opened in |\n|---|---|\n";

    fn found(rows: &str) -> Vec<String> {
        let page = format!("{HEAD}{rows}\nText with `a` `b`.\n");
        let code = ("crates/mm/src/call/x.rs", CODE);
        let tree = Tree::sample(&[code, ("docs/locking.md", &page)]);
        let findings = page_lists_sections(&tree);
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_page_that_lists_them_all_passes() {
        let rows = "| a | `call/x.rs` `protect` |\n| b | `call/x.rs` `lock`, always |\n";
        assert!(found(rows).is_empty(), "{:?}", found(rows));
    }

    #[test]
    fn a_section_that_is_not_listed_is_found() {
        assert_eq!(
            found("| a | `call/x.rs` `protect` |\n"),
            [
                "crates/mm/src/call/x.rs:5: `lock` opens a section that docs/locking.md does not list"
            ]
        );
    }

    #[test]
    fn a_row_without_a_section_is_found() {
        let rows = "| a | `call/x.rs` `protect` |\n| b | `call/x.rs` `lock` |\n\
                    | c | `call/y.rs` `gone` |\n";
        assert_eq!(
            found(rows),
            ["docs/locking.md:8: no section is opened in `call/y.rs` `gone`"]
        );
    }

    #[test]
    fn a_page_without_the_mark_is_found() {
        let tree = Tree::sample(&[("docs/locking.md", "# Locking\n")]);
        let findings = page_lists_sections(&tree);
        assert_eq!(findings[0].message, "there is no `<!-- write sections -->`");
    }
}
