//! Marks of unfinished work.

use super::Finding;
use super::rust_source::has_word;
use super::tree::Tree;

/// Code that stands for missing code, or for a test nobody runs.
const IN_CODE: [(&str, &str); 3] = [
    (
        "todo!",
        "write it, or return an error that says what is missing",
    ),
    (
        "unimplemented!",
        "write it, or return an error that says what is missing",
    ),
    ("#[ignore", "a test runs, or goes to `cargo xtask soak`"),
];

/// Notes that belong in an issue.
const IN_COMMENTS: [&str; 2] = ["FIXME", "XXX"];

/// No file holds a placeholder.
pub(super) fn nothing_unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in &tree.rust {
        for (at, line) in source.code().iter().enumerate() {
            for (banned, instead) in IN_CODE.iter().filter(|(banned, _)| line.contains(banned)) {
                let message = format!("no `{banned}`: {instead}");
                findings.push(Finding::new(&source.path, at + 1, message));
            }
        }
        for (at, line) in source.comments().iter().enumerate() {
            for banned in IN_COMMENTS.iter().filter(|banned| has_word(line, banned)) {
                let message = format!("no {banned}: repair it, or open an issue");
                findings.push(Finding::new(&source.path, at + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::nothing_unfinished;
    use crate::tidy::tree::Tree;

    #[test]
    fn placeholders_are_found_and_strings_are_not() {
        let tree = Tree::sample(&[(
            "crates/mm/src/a.rs",
            "fn f() { todo!() }\nfn g() { unimplemented!(\"x\") }\n#[ignore = \"slow\"]\n\
             // FIXME later\n/* XXX */\nlet s = \"todo! FIXME #[ignore]\"; // XXXL\n",
        )]);
        let lines: Vec<usize> = nothing_unfinished(&tree)
            .iter()
            .map(|found| found.line)
            .collect();
        assert_eq!(lines, [1, 2, 3, 4, 5]);
    }
}
