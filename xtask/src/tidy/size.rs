//! Files and lines stay short enough to read.

use super::Finding;
use super::rust_source::RustSource;
use super::tree::Tree;

const LINES_MAX: usize = 500;
const COLUMNS_MAX: usize = 100;

/// Files that were longer before the rule, each with the length it must not pass. Entries only
/// shrink and go; a new long file is split instead.
const RATCHET: [(&str, usize); 0] = [];

/// A file of a crate holds one concept.
pub(super) fn short_files(tree: &Tree) -> Vec<Finding> {
    let in_crate =
        |source: &&RustSource| source.path.starts_with("crates/") && source.path.contains("/src/");
    let mut findings = Vec::new();
    for source in tree.rust.iter().filter(in_crate) {
        let length = source.lines.len();
        let limit = limit_of(&source.path, &RATCHET);
        if length > limit {
            let message = format!("{length} lines, at most {limit}: split the file");
            findings.push(Finding::new(&source.path, limit + 1, message));
        }
    }
    findings
}

/// A line fits beside another one. What stands within a string does not count, nor does a link.
pub(super) fn short_lines(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.rust {
        for (at, line) in source.lines.iter().enumerate() {
            let columns = source.columns[at];
            if columns > COLUMNS_MAX && !line.contains("://") {
                let message = format!("{columns} columns, at most {COLUMNS_MAX}");
                findings.push(Finding::new(&source.path, at + 1, message));
            }
        }
    }
    findings
}

fn limit_of(path: &str, ratchet: &[(&str, usize)]) -> usize {
    ratchet
        .iter()
        .find(|(file, _)| *file == path)
        .map_or(LINES_MAX, |(_, lines)| *lines)
}

#[cfg(test)]
mod tests {
    use super::{limit_of, short_files, short_lines};
    use crate::tidy::tree::Tree;

    #[test]
    fn a_long_file_of_a_crate_is_found() {
        let long = "\n".repeat(501);
        let tree = Tree::sample(&[
            ("crates/mm/src/a.rs", long.as_str()),
            ("crates/mm/tests/a.rs", long.as_str()),
            ("crates/mm/src/b.rs", "\n"),
        ]);
        let found: Vec<String> = short_files(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            ["crates/mm/src/a.rs:501: 501 lines, at most 500: split the file"]
        );
    }

    #[test]
    fn the_ratchet_holds_a_file_at_its_length() {
        assert_eq!(limit_of("a.rs", &[("a.rs", 620)]), 620);
        assert_eq!(limit_of("b.rs", &[("a.rs", 620)]), 500);
    }

    #[test]
    fn long_lines_are_found_unless_a_string_makes_them_long() {
        let words = "word ".repeat(25);
        let code = format!("let a = {};", "b + ".repeat(30));
        let text = format!("// {words}\n{code}\nlet t = \"{words}\";\n// https://x.org/{words}\n");
        let tree = Tree::sample(&[("crates/mm/src/a.rs", text.as_str())]);
        let lines: Vec<usize> = short_lines(&tree).iter().map(|found| found.line).collect();
        assert_eq!(lines, [1, 2]);
    }
}
