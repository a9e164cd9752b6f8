//! The files the rules look at.

use super::rust_source::RustSource;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// Folders that hold nothing of ours.
const SKIPPED: [&str; 3] = ["target", ".git", "node_modules"];

/// A text that is not Rust.
#[derive(Debug)]
pub(super) struct Text {
    /// Relative to the root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
}

/// The checked files, in the order of their paths.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) rust: Vec<RustSource>,
    pub(super) markdown: Vec<Text>,
    /// Every `Cargo.toml`.
    pub(super) manifests: Vec<Text>,
    /// Every file and folder, whether its text is looked at or not.
    pub(super) paths: BTreeSet<String>,
}

impl Tree {
    /// Reads what lies below `root`.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let mut paths = BTreeSet::new();
        walk(root, "", &mut paths)?;
        let mut files = Vec::new();
        for path in paths.iter().filter(|path| is_checked(path)) {
            files.push((path.clone(), std::fs::read_to_string(root.join(path))?));
        }
        let mut tree = Self::from_files(files);
        tree.paths = paths;
        Ok(tree)
    }

    fn from_files(files: Vec<(String, String)>) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            let ancestors = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
            tree.paths.extend(ancestors);
            tree.paths.insert(path.clone());
            if path.ends_with(".rs") {
                tree.rust.push(RustSource::new(path, text));
            } else if path.ends_with(".md") {
                tree.markdown.push(Text { path, text });
            } else {
                tree.manifests.push(Text { path, text });
            }
        }
        tree.mark_test_modules();
        tree
    }

    /// A tree of the given files, for the tests of the rules.
    #[cfg(test)]
    pub(super) fn sample(files: &[(&str, &str)]) -> Self {
        Self::from_files(
            files
                .iter()
                .map(|(p, t)| ((*p).to_owned(), (*t).to_owned()))
                .collect(),
        )
    }

    /// How many files the rules read.
    pub(super) fn checked(&self) -> usize {
        self.rust.len() + self.markdown.len() + self.manifests.len()
    }

    /// The Rust file at `path`.
    pub(super) fn rust_at(&self, path: &str) -> Option<&RustSource> {
        self.rust.iter().find(|source| source.path == path)
    }

    /// The page at `path`.
    pub(super) fn page_at(&self, path: &str) -> Option<&Text> {
        self.markdown.iter().find(|page| page.path == path)
    }

    /// A file that is only reached through `#[cfg(test)] mod name;` is test code as a whole.
    fn mark_test_modules(&mut self) {
        let modules: Vec<String> = self
            .rust
            .iter()
            .flat_map(RustSource::test_module_paths)
            .collect();
        for source in &mut self.rust {
            let stem = source.path.trim_end_matches(".rs").trim_end_matches("/mod");
            let inside = |module: &String| {
                stem == module || stem.strip_prefix(module.as_str()).is_some_and(below)
            };
            if modules.iter().any(inside) {
                source.mark_as_test();
            }
        }
    }
}

/// The Rust files below `root`, by path, with their texts.
pub(crate) fn rust_files(root: &Path) -> io::Result<Vec<(String, String)>> {
    let mut paths = BTreeSet::new();
    walk(root, "", &mut paths)?;
    let files = paths.into_iter().filter(|path| path.ends_with(".rs"));
    files
        .map(|path| {
            let text = std::fs::read_to_string(root.join(&path))?;
            Ok((path, text))
        })
        .collect()
}

fn below(rest: &str) -> bool {
    rest.starts_with('/')
}

fn is_checked(path: &str) -> bool {
    path.ends_with(".rs") || path.ends_with(".md") || path.ends_with("Cargo.toml")
}

fn walk(root: &Path, folder: &str, paths: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if SKIPPED.contains(&name) {
            continue;
        }
        let path = if folder.is_empty() {
            name.to_owned()
        } else {
            format!("{folder}/{name}")
        };
        let is_folder = entry.file_type()?.is_dir();
        paths.insert(path.clone());
        if is_folder {
            walk(root, &path, paths)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn modules_declared_for_tests_are_test_code() {
        let tree = Tree::sample(&[
            (
                "crates/mm/src/space/tree.rs",
                "#[cfg(test)]\nmod checks;\nmod node;\n",
            ),
            ("crates/mm/src/space/tree/checks.rs", "static A: u8 = 0;\n"),
            (
                "crates/mm/src/space/tree/checks/more.rs",
                "static B: u8 = 0;\n",
            ),
            ("crates/mm/src/space/tree/node.rs", "static C: u8 = 0;\n"),
        ]);
        let prod = |path: &str| {
            tree.rust_at(path).unwrap().production()[0]
                .trim()
                .to_owned()
        };
        assert_eq!(prod("crates/mm/src/space/tree/checks.rs"), "");
        assert_eq!(prod("crates/mm/src/space/tree/checks/more.rs"), "");
        assert_eq!(
            prod("crates/mm/src/space/tree/node.rs"),
            "static C: u8 = 0;"
        );
    }
}
