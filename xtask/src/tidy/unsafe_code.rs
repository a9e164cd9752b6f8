//! `unsafe` stays where somebody looks for it.

use super::Finding;
use super::rust_source::has_word;
use super::tree::Tree;

/// Paths that may hold `unsafe`, by how they begin. Of the tests, what exchanges entries of a table
/// of its own. Of `mm`:
///
/// - what makes a guard of what keeps VMAs, nodes or tables: `space/arenas/`,
///   `space/vma_lock.rs`, `space/tree/node.rs`, `entry/walk.rs`, `pages/interval.rs`;
/// - what frees: `memory/{lifetime,counted}.rs`, `space/vma.rs`, `space/tree/change/making.rs`,
///   `entry/{table,zap}.rs`, `call/{handle,kernel_pages,munmap}.rs`, `change/`, and objects with
///   counts of their own, in `pages/file/`, `pages/segments/` and `pages/rmap/`;
/// - what lays out or owns raw memory: `boot.rs`, `memory/swap/`, and `memory/alloc/` for what
///   belongs to the CPU that it runs on;
/// - the interrupt handler `entry/shootdown.rs`, and the ledger, while nothing runs.
const ALLOWED: &[&str] = &[
    "crates/sync/",
    "crates/pgtable/",
    "crates/host/",
    "crates/sim/",
    "crates/races/",
    "crates/workload/src/linux",
    "crates/differential/src/linux/",
    "crates/mm/src/boot.rs",
    "crates/mm/src/call/handle.rs",
    "crates/mm/src/call/kernel_pages.rs",
    "crates/mm/src/change/owned.rs",
    "crates/mm/src/entry/mailbox.rs",
    "crates/mm/src/entry/shootdown.rs",
    "crates/mm/src/entry/table.rs",
    "crates/mm/src/entry/walk.rs",
    "crates/mm/src/entry/zap.rs",
    "crates/mm/src/memory/alloc/mod.rs",
    "crates/mm/src/memory/counted.rs",
    "crates/mm/src/memory/lifetime.rs",
    "crates/mm/src/memory/swap/mod.rs",
    "crates/mm/src/pages/file/index.rs",
    "crates/mm/src/pages/file/links.rs",
    "crates/mm/src/pages/file/unused.rs",
    "crates/mm/src/pages/interval.rs",
    "crates/mm/src/pages/rmap/anon_vma.rs",
    "crates/mm/src/pages/segments/mod.rs",
    "crates/mm/src/arenas.rs",
    "crates/mm/src/memory/arenas.rs",
    "crates/mm/src/space/arenas/",
    "crates/mm/src/space/tree/change/making.rs",
    "crates/mm/src/space/tree/node.rs",
    "crates/mm/src/space/vma.rs",
    "crates/mm/src/space/vma_lock.rs",
    "crates/mm/src/view/oracle/ledger.rs",
    "crates/conformance/src/board.rs",
    "crates/conformance/src/contexts.rs",
    "crates/conformance/src/interrupts.rs",
    "tests/tests/all/formats/",
    "tests/tests/conformance/",
    "kernel/",
    "guest/",
    "peers/benches/beside/offset.rs",
];

/// No `unsafe` outside [`ALLOWED`].
pub(super) fn only_where_listed(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let others = tree.rust.iter().filter(|source| !allowed(&source.path));
    for source in others {
        for (at, line) in source.code().iter().enumerate() {
            if has_word(line, "unsafe") {
                let message = "no unsafe here; the list is in xtask/src/tidy/unsafe_code.rs";
                findings.push(Finding::new(&source.path, at + 1, message));
            }
        }
    }
    findings
}

/// A crate without `unsafe` says so to the compiler.
pub(super) fn others_forbid_it(tree: &Tree) -> Vec<Finding> {
    let is_root = |path: &str| {
        let in_src = path
            .strip_suffix("/src/lib.rs")
            .or(path.strip_suffix("/src/main.rs"));
        in_src.is_some_and(|folder| folder == "xtask" || folder.starts_with("crates/"))
    };
    let holds_some = |root: &str| {
        let folder = root.rsplit_once("src/").map_or(root, |(folder, _)| folder);
        ALLOWED.iter().any(|allowed| allowed.starts_with(folder))
    };
    let roots = tree
        .rust
        .iter()
        .filter(|s| is_root(&s.path) && !holds_some(&s.path));
    let silent = roots.filter(|s| {
        !s.code()
            .iter()
            .any(|l| l.contains("#![forbid(unsafe_code)]"))
    });
    silent
        .map(|source| Finding::new(&source.path, 1, "`#![forbid(unsafe_code)]` is missing"))
        .collect()
}

fn allowed(path: &str) -> bool {
    ALLOWED.iter().any(|start| path.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::{only_where_listed, others_forbid_it};
    use crate::tidy::tree::Tree;

    #[test]
    fn unsafe_beside_the_list_is_found() {
        let text = "// unsafe\nlet x = unsafe { f() };\n#![forbid(unsafe_code)]\n";
        let tree = Tree::sample(&[
            ("crates/mm/src/fault.rs", text),
            ("crates/mm/src/space/vma.rs", text),
            ("crates/workload/src/linux.rs", text),
            ("crates/workload/src/pft.rs", text),
        ]);
        let found: Vec<String> = only_where_listed(&tree)
            .iter()
            .map(|f| format!("{}:{}", f.path, f.line))
            .collect();
        assert_eq!(
            found,
            ["crates/mm/src/fault.rs:2", "crates/workload/src/pft.rs:2"]
        );
    }

    #[test]
    fn a_crate_that_does_not_forbid_it_is_found() {
        let tree = Tree::sample(&[
            ("crates/report/src/lib.rs", "//! Tables.\n"),
            ("crates/addr/src/lib.rs", "#![forbid(unsafe_code)]\n"),
            ("crates/mm/src/lib.rs", "//! Holds some.\n"),
        ]);
        let found = others_forbid_it(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "crates/report/src/lib.rs");
    }
}
