//! What the library crates do without: raw atomics, statics, a heap, `std`, and configuration.

use super::Finding;
use super::rust_source::{RustSource, after_closing, is_ident, word_positions};
use super::tree::Tree;

/// The crates that run on every machine.
const LIBRARY: [&str; 4] = [
    "crates/addr/src/",
    "crates/sync/src/",
    "crates/pgtable/src/",
    "crates/mm/src/",
];

/// The only place that names the atomics of core (or of the model checker).
const PRIM: [&str; 2] = ["crates/sync/src/prim.rs", "crates/sync/src/prim/"];

/// Nobody but `prim` names `core::sync::atomic`: an access beside the door is invisible to the
/// simulator and the model checker.
pub(super) fn raw_atomics_stay_in_prim(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in library(tree).filter(|source| !is_prim(source)) {
        let code = source.production().join("\n");
        for at in word_positions(&code, "sync") {
            let before = code[..at].trim_end();
            let path_of_ours = ["crate::", "self::", "super::"]
                .iter()
                .any(|p| before.ends_with(p));
            if !path_of_ours && names_atomic(&code[at + "sync".len()..]) {
                let message = "raw atomics are named in crates/sync/src/prim.rs only; use \
                               minflt_sync's, which pass the door";
                findings.push(Finding::new(&source.path, line_at(&code, at), message));
            }
        }
    }
    findings
}

/// A static would be shared by all systems of the process.
pub(super) fn no_statics(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in library(tree) {
        for (at, line) in source.production().iter().enumerate() {
            let is_item = |&pos: &usize| !line[..pos].ends_with('\'');
            if word_positions(line, "static").any(|pos| is_item(&pos)) {
                let message = "no statics here: state belongs to a `System`";
                findings.push(Finding::new(&source.path, at + 1, message));
            }
        }
    }
    findings
}

/// Objects come from slabs, which can fail; a heap aborts.
pub(super) fn no_heap_and_no_std(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in library(tree) {
        let code = source.production();
        let is_root = source.path.ends_with("/src/lib.rs");
        if is_root && !code.iter().any(|line| line.contains("no_std")) {
            findings.push(Finding::new(&source.path, 1, "`#![no_std]` is missing"));
        }
        for (at, line) in code.iter().enumerate() {
            let is_path = |pos: usize| {
                let after = line[pos + 3..].trim_start();
                after.starts_with("::") && !line[..pos].trim_end().ends_with("::")
            };
            let heap = line.contains("extern crate alloc") || line.contains("extern crate std");
            if heap || word_positions(line, "std").any(is_path) {
                let message = "neither std nor alloc here: objects come from slabs";
                findings.push(Finding::new(&source.path, at + 1, message));
            }
        }
    }
    findings
}

/// A technique is data, a machine a type parameter; neither is a build flag.
pub(super) fn no_cfg_in_the_core(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in library(tree) {
        let code = source.production().join("\n");
        for word in ["cfg", "cfg_attr"] {
            for at in word_positions(&code, word) {
                let Some(predicate) = predicate(&code[at + word.len()..]) else {
                    continue;
                };
                let allowed = |name: &str| {
                    matches!(name, "test" | "not" | "all" | "any")
                        || (matches!(name, "loom" | "target_arch") && is_prim(source))
                };
                let mut names = predicate
                    .split(|c| !is_ident(c))
                    .filter(|name| !name.is_empty());
                if !names.all(allowed) {
                    let message = format!("no configuration but `test` here: cfg({predicate})");
                    findings.push(Finding::new(&source.path, line_at(&code, at), message));
                }
            }
        }
    }
    findings
}

fn library(tree: &Tree) -> impl Iterator<Item = &RustSource> {
    tree.rust
        .iter()
        .filter(|source| LIBRARY.iter().any(|folder| source.path.starts_with(folder)))
}

fn is_prim(source: &RustSource) -> bool {
    PRIM.iter().any(|path| source.path.starts_with(path))
}

/// Whether the path that goes on with `rest` after `sync` leads to `atomic`.
fn names_atomic(rest: &str) -> bool {
    let Some(rest) = rest.trim_start().strip_prefix("::") else {
        return false;
    };
    let rest = rest.trim_start();
    if rest.starts_with('{') {
        let group: Vec<char> = rest.chars().collect();
        let group: String = group[..after_closing(&group, 0)].iter().collect();
        return word_positions(&group, "atomic").next().is_some();
    }
    rest.strip_prefix("atomic")
        .is_some_and(|after| !after.starts_with(is_ident))
}

/// The condition of the `cfg` that goes on with `rest`; `None` when that is no `cfg`.
fn predicate(rest: &str) -> Option<String> {
    let rest = rest.strip_prefix('!').unwrap_or(rest);
    if !rest.starts_with('(') {
        return None;
    }
    let chars: Vec<char> = rest.chars().collect();
    let inner = &chars[1..after_closing(&chars, 0) - 1];
    let mut at = 0;
    while at < inner.len() && inner[at] != ',' {
        at = if inner[at] == '(' {
            after_closing(inner, at)
        } else {
            at + 1
        };
    }
    Some(inner[..at].iter().collect())
}

fn line_at(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::{no_cfg_in_the_core, no_heap_and_no_std, no_statics, raw_atomics_stay_in_prim};
    use crate::tidy::Finding;
    use crate::tidy::tree::Tree;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn atomics_beside_the_door_are_found() {
        let tree = Tree::sample(&[
            (
                "crates/sync/src/prim.rs",
                "pub use core::sync::atomic::AtomicU64;\n",
            ),
            (
                "crates/mm/src/a.rs",
                "use core::sync::atomic::AtomicU64;\n\
                 use minflt_sync::Atomic;\n\
                 use core::{sync::{atomic::AtomicU32}};\n\
                 use minflt_sync::atomic::Word;\n\
                 use crate::sync::atomic_word;\n",
            ),
            (
                "crates/host/src/a.rs",
                "use core::sync::atomic::AtomicU64;\n",
            ),
        ]);
        assert_eq!(lines(&raw_atomics_stay_in_prim(&tree)), [1, 3]);
    }

    #[test]
    fn statics_are_found_and_lifetimes_are_not() {
        let text = "static A: u8 = 0;\nfn f(x: &'static str) {}\npub static mut B: u8 = 0;\n\
                    #[cfg(test)]\nmod tests { static C: u8 = 0; }\n";
        let tree = Tree::sample(&[("crates/mm/src/a.rs", text), ("crates/sim/src/a.rs", text)]);
        assert_eq!(lines(&no_statics(&tree)), [1, 3]);
    }

    #[test]
    fn a_heap_and_std_are_found() {
        let tree = Tree::sample(&[(
            "crates/mm/src/lib.rs",
            "mod alloc;\nextern crate alloc;\nuse std::vec::Vec;\nuse crate::std::x;\n\
             #[cfg(test)]\nextern crate std;\n",
        )]);
        // Line 1: no `#![no_std]`.
        assert_eq!(lines(&no_heap_and_no_std(&tree)), [1, 2, 3]);
        let tree = Tree::sample(&[("crates/mm/src/lib.rs", "#![no_std]\nuse alloc::Buddy;\n")]);
        assert!(no_heap_and_no_std(&tree).is_empty());
    }

    #[test]
    fn configuration_is_found_outside_prim() {
        let text = "#[cfg(loom)]\nfn f() {}\n#[cfg_attr(not(test), inline)]\nfn g() {}\n\
                    fn h() { if cfg!(all(not(test), debug_assertions)) {} }\n\
                    fn cfg(cfg: &Config) {}\n";
        let tree = Tree::sample(&[("crates/mm/src/a.rs", text)]);
        let found = no_cfg_in_the_core(&tree);
        assert!(found[0].message.contains("cfg(loom)"), "{found:?}");
        assert!(
            found[1]
                .message
                .contains("cfg(all(not(test), debug_assertions))"),
            "{found:?}"
        );
        let prim = Tree::sample(&[("crates/sync/src/prim.rs", "#[cfg(not(loom))]\nmod m {}\n")]);
        assert!(no_cfg_in_the_core(&prim).is_empty());
    }
}
