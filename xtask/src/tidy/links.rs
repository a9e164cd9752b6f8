//! Links between pages lead somewhere.

use super::Finding;
use super::tree::{Text, Tree};
use std::collections::BTreeMap;

/// Every relative link of a page names a file, and its `#part` a heading of that page.
pub(super) fn targets_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in &tree.markdown {
        for (line, target) in links(&page.text) {
            if let Some(problem) = problem(tree, page, &target) {
                findings.push(Finding::new(&page.path, line, problem));
            }
        }
    }
    findings
}

fn problem(tree: &Tree, page: &Text, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, part) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() {
        Some(page.path.clone())
    } else {
        resolve(&page.path, file)
    };
    let Some(path) = path.filter(|path| path.is_empty() || tree.paths.contains(path)) else {
        return Some(format!("the link to `{target}` leads nowhere"));
    };
    let linked = tree.page_at(&path)?;
    if part.is_empty() || anchors(&linked.text).iter().any(|anchor| anchor == part) {
        return None;
    }
    Some(format!("{path} has no heading `#{part}`"))
}

/// `link` as seen from `page`, relative to the root; `None` when it leaves the tree.
pub(super) fn resolve(page: &str, link: &str) -> Option<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = if link.starts_with('/') {
        Vec::new()
    } else {
        folder.split('/').filter(|part| !part.is_empty()).collect()
    };
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The targets of `[text](target)` and of `[text]: target`, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, prose) in prose_lines(text) {
        for (at, _) in prose.match_indices("](") {
            let rest = &prose[at + 2..];
            let Some((target, _)) = rest.split_once(')') else {
                continue;
            };
            // What follows a blank is the link's title.
            found.extend(
                target
                    .split_whitespace()
                    .next()
                    .map(|t| (line, t.to_owned())),
            );
        }
        let definition = prose
            .trim_start()
            .strip_prefix('[')
            .and_then(|l| l.split_once("]:"));
        if let Some((name, target)) = definition
            && !name.starts_with('^')
        {
            found.extend(
                target
                    .split_whitespace()
                    .next()
                    .map(|t| (line, t.to_owned())),
            );
        }
    }
    found
}

/// The lines outside fenced blocks, counted from 1, with inline code blanked.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let parts = line.split('`').enumerate();
            let prose = parts.map(|(n, part)| if n % 2 == 0 { part } else { " " });
            lines.push((at + 1, prose.collect()));
        }
    }
    lines
}

/// The anchors that a page's headings get on common forges, numbered when they repeat.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let heading = line.trim_start_matches('#');
        if fenced || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = heading.trim().chars().filter_map(|c| match c {
            ' ' | '-' => Some('-'),
            '_' => Some('_'),
            c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
            _ => None,
        });
        let slug: String = kept.collect();
        let count = seen.entry(slug.clone()).or_default();
        anchors.push(if *count == 0 {
            slug
        } else {
            format!("{slug}-{count}")
        });
        *count += 1;
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::targets_exist;
    use crate::tidy::tree::Tree;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let tree = Tree::sample(&[
            (
                "docs/a.md",
                "# Top\n[b](b.md) [root](../README.md \"title\") [out](https://x.org/no)\n\
                 [gone](gone.md) `[code](no.md)`\n```\n[fenced](no.md)\n```\n[ref]: ../no.md\n\
                 [part](b.md#the-order-now) [bad](b.md#chaos) [own](#top) [src](../xtask)\n",
            ),
            ("docs/b.md", "## The order, *now*!\n"),
            ("README.md", ""),
            ("xtask/src/main.rs", ""),
        ]);
        let found: Vec<String> = targets_exist(&tree)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "docs/a.md:3: the link to `gone.md` leads nowhere",
                "docs/a.md:7: the link to `../no.md` leads nowhere",
                "docs/a.md:8: docs/b.md has no heading `#chaos`",
            ]
        );
    }

    #[test]
    fn a_repeated_heading_gets_a_number() {
        let tree = Tree::sample(&[("a.md", "# Why\n# Why\n[second](#why-1)\n[third](#why-2)\n")]);
        assert_eq!(targets_exist(&tree).len(), 1);
    }
}
