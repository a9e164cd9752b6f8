//! The arrows between crates.

use super::Finding;
use super::tree::{Text, Tree};
use toml::{Table, Value};

/// Which crates of ours each folder may depend on, outside tests. Arrows point down only.
const ARROWS: [(&str, &[&str]); 21] = [
    ("crates/addr", &[]),
    ("crates/sync", &[]),
    ("crates/pgtable", &["addr", "sync"]),
    ("crates/mm", &["addr", "sync", "pgtable"]),
    ("crates/conformance", &["addr", "sync", "pgtable", "mm"]),
    ("crates/spec", &["addr"]),
    (
        "crates/differential",
        &["addr", "sync", "pgtable", "mm", "spec", "host", "report"],
    ),
    (
        "crates/fuzzing",
        &["addr", "pgtable", "mm", "differential", "sim", "report"],
    ),
    ("crates/workload", &["addr"]),
    ("crates/trace", &["addr"]),
    (
        "crates/process",
        &["addr", "sync", "pgtable", "mm", "workload"],
    ),
    ("crates/host", &MACHINE),
    ("crates/sim", &MACHINE),
    ("crates/races", &["addr", "sync", "pgtable", "mm", "sim"]),
    ("crates/report", &[]),
    ("crates/cli", &ALL),
    ("tests", &ALL),
    ("kernel", &["addr", "sync", "pgtable", "mm", "conformance"]),
    ("guest", &[]),
    ("peers", &["addr", "sync", "pgtable", "mm", "host"]),
    ("xtask", &[]),
];

/// What the machines stand on.
const MACHINE: [&str; 6] = ["addr", "sync", "pgtable", "mm", "workload", "process"];

const ALL: [&str; 13] = [
    "addr",
    "sync",
    "pgtable",
    "mm",
    "spec",
    "differential",
    "workload",
    "process",
    "trace",
    "host",
    "sim",
    "races",
    "report",
];

/// Packages outside the workspace, which cannot inherit from it.
const APART: [&str; 3] = ["kernel/", "guest/", "peers/"];

/// Every dependency between our crates is in [`ARROWS`].
pub(super) fn arrows_point_down(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in members(tree) {
        let folder = manifest.path.trim_end_matches("/Cargo.toml");
        let Some((_, allowed)) = ARROWS
            .iter()
            .find(|(crate_folder, _)| *crate_folder == folder)
        else {
            let message = "the crate is not in the table of arrows in xtask/src/tidy/deps.rs";
            findings.push(Finding::new(&manifest.path, 1, message));
            continue;
        };
        let parsed: Table = match manifest.text.parse() {
            Ok(parsed) => parsed,
            Err(error) => {
                findings.push(Finding::new(
                    &manifest.path,
                    1,
                    format!("not TOML: {error}"),
                ));
                continue;
            }
        };
        for name in dependencies(&parsed) {
            let Some(ours) = name.strip_prefix("minflt-") else {
                continue;
            };
            if !allowed.contains(&ours) {
                let message = format!("{folder} must not depend on {name}");
                findings.push(Finding::new(
                    &manifest.path,
                    line_of(manifest, &name),
                    message,
                ));
            }
        }
    }
    findings
}

/// Every member takes the workspace's lints; a package built apart cannot, and repeats them.
pub(super) fn members_inherit_lints(tree: &Tree) -> Vec<Finding> {
    let ours = tree
        .manifests
        .iter()
        .find(|manifest| manifest.path == "Cargo.toml");
    let ours: Table = ours.map(parsed).unwrap_or_default();
    let workspace = ours.get("workspace").and_then(Value::as_table);
    let shared = workspace
        .and_then(|workspace| workspace.get("lints"))
        .and_then(Value::as_table);
    let inherited = Table::from_iter([("workspace".to_owned(), Value::Boolean(true))]);

    let mut findings = Vec::new();
    for manifest in members(tree) {
        let own = parsed(manifest);
        let own = own.get("lints").and_then(Value::as_table);
        let message = if !APART.iter().any(|folder| manifest.path.starts_with(folder)) {
            (own != Some(&inherited)).then_some("`[lints] workspace = true` is missing")
        } else {
            (own != shared).then_some("the lints are not those of the workspace")
        };
        findings.extend(message.map(|message| Finding::new(&manifest.path, 1, message)));
    }
    findings
}

fn parsed(manifest: &Text) -> Table {
    manifest.text.parse().unwrap_or_default()
}

fn members(tree: &Tree) -> impl Iterator<Item = &Text> {
    let is_member = |folder: &str| {
        folder.starts_with("crates/")
            || ["tests", "xtask", "kernel", "guest", "peers"].contains(&folder)
    };
    tree.manifests
        .iter()
        .filter(move |text| text.path.strip_suffix("/Cargo.toml").is_some_and(is_member))
}

/// The package names that `[dependencies]` and `[build-dependencies]` name, on every target.
fn dependencies(manifest: &Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let per_target = targets
        .into_iter()
        .flat_map(Table::values)
        .filter_map(Value::as_table);
    let mut names = Vec::new();
    for scope in core::iter::once(manifest).chain(per_target) {
        for section in ["dependencies", "build-dependencies"] {
            let Some(section) = scope.get(section).and_then(Value::as_table) else {
                continue;
            };
            for (key, value) in section {
                let renamed = value.get("package").and_then(Value::as_str);
                names.push(renamed.unwrap_or(key).to_owned());
            }
        }
    }
    names
}

fn line_of(manifest: &Text, name: &str) -> usize {
    manifest
        .text
        .lines()
        .position(|line| line.contains(name))
        .map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::{arrows_point_down, members_inherit_lints};
    use crate::tidy::tree::Tree;

    #[test]
    fn an_arrow_up_is_found_and_one_for_tests_is_not() {
        let tree = Tree::sample(&[
            (
                "crates/mm/Cargo.toml",
                "[dependencies]\nminflt-sync = { workspace = true }\n\
                 [dev-dependencies]\nminflt-host = { workspace = true }\n",
            ),
            (
                "crates/sync/Cargo.toml",
                "[dependencies]\nminflt-mm = { workspace = true }\n",
            ),
            (
                "crates/pgtable/Cargo.toml",
                "[target.'cfg(unix)'.dependencies]\nm = { package = \"minflt-mm\", path = \"\" }\n",
            ),
            ("crates/new/Cargo.toml", ""),
        ]);
        let found: Vec<String> = arrows_point_down(&tree)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(
            found[0],
            "crates/sync/Cargo.toml:2: crates/sync must not depend on minflt-mm"
        );
        assert!(
            found[1].starts_with("crates/pgtable/Cargo.toml:2:"),
            "{found:?}"
        );
        assert!(found[2].starts_with("crates/new/Cargo.toml:1: the crate is not in the table"));
    }

    #[test]
    fn a_member_with_lints_of_its_own_is_found() {
        let tree = Tree::sample(&[
            (
                "Cargo.toml",
                "[workspace.lints.rust]\nmissing_docs = \"warn\"\n",
            ),
            ("crates/mm/Cargo.toml", "[lints]\nworkspace = true\n"),
            (
                "crates/sim/Cargo.toml",
                "[lints.rust]\nmissing_docs = \"allow\"\n",
            ),
            (
                "guest/Cargo.toml",
                "[lints.rust]\nmissing_docs = \"warn\"\n",
            ),
            ("kernel/Cargo.toml", ""),
        ]);
        let found: Vec<String> = members_inherit_lints(&tree)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "crates/sim/Cargo.toml:1: `[lints] workspace = true` is missing",
                "kernel/Cargo.toml:1: the lints are not those of the workspace",
            ]
        );
    }
}
