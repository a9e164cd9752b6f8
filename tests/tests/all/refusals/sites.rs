//! The lines that allocate, as the source has them, and how often each was made to fail.

use core::fmt;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What an allocation looks like. The allocator's own folder is left out: what it calls of itself
/// is no allocation but part of one.
const CALLS: [&str; 17] = [
    ".alloc(",
    ".alloc_owned(",
    "Self::create(sys, ",
    ".alloc_here(",
    ".alloc_at(",
    ".alloc_block(",
    ".alloc_copy(",
    ".alloc_on(",
    "nodes.ensure(",
    "vmas.ensure(",
    "attrs.ensure(",
    "chains.ensure(",
    "links.ensure(",
    ".take_huge(",
    ".reserve_huge(",
    ".change(sys",
    ".remove(sys, index",
];
/// The maps of reservations are named by who changes them, counted objects by what they are.
const ALLOCATORS: [&str; 4] = [
    "memory/alloc/",
    "memory/counted.rs",
    "pages/reserved/reserve.rs",
    "pages/hugetlb/tests/",
];

/// Each line that allocates, `file:line`.
pub(crate) struct Sites(BTreeMap<String, Site>);

/// A line that allocates.
struct Site {
    file: String,
    /// The line, as it is written.
    code: String,
    failures: u64,
}

impl Sites {
    /// Those of mm's source, none of which has failed.
    pub(crate) fn of_the_source() -> Self {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/mm/src");
        let mut files = Vec::new();
        rust_files(&source, &mut files);
        let mut sites = BTreeMap::new();
        for file in files {
            let name = file.strip_prefix(&source).expect("below it");
            let name = name.to_str().expect("an ASCII name");
            if ALLOCATORS.iter().any(|it| name.starts_with(it)) {
                continue;
            }
            let text = fs::read_to_string(&file).expect("a source file");
            for (number, line) in text.lines().enumerate() {
                // What is tried again was refused where it was tried first.
                let passed = ["// For a control.", "// Tried again."];
                if passed.iter().any(|note| line.ends_with(note)) {
                    continue;
                }
                let code = line.split("//").next().unwrap_or_default();
                if CALLS.iter().any(|call| code.contains(call)) {
                    let site = Site {
                        file: name.to_owned(),
                        code: code.trim().to_owned(),
                        failures: 0,
                    };
                    sites.insert(format!("{name}:{}", number + 1), site);
                }
            }
        }
        Self(sites)
    }

    /// An allocation failed at `site`: a path, a line and a column.
    pub(crate) fn hit(&mut self, site: &str) {
        let (line, _column) = site.rsplit_once(':').expect("a column");
        let (_, name) = line.rsplit_once("mm/src/").expect("a file of mm");
        let failures = self.0.get_mut(name);
        let site = failures.unwrap_or_else(|| panic!("{name} allocates, unseen"));
        site.failures += 1;
    }

    /// Those that never failed.
    pub(crate) fn missed(&self) -> Vec<&String> {
        let never = self.0.iter().filter(|(_, site)| site.failures == 0);
        never.map(|(site, _)| site).collect()
    }
}

impl fmt::Display for Sites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| file of `mm` | line | refused |\n|---|---|---:|")?;
        // Not by line numbers, which say nothing.
        let mut rows: Vec<_> = self.0.values().collect();
        rows.sort_by_key(|site| (&site.file, &site.code, site.failures));
        for Site {
            file,
            code,
            failures,
        } in rows
        {
            writeln!(
                f,
                "| `{file}` | `{}` | {failures} |",
                code.replace('|', "\\|")
            )?;
        }
        Ok(())
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
}
