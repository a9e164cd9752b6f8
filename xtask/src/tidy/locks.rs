//! The page on locking tells the order that the code checks.

use super::Finding;
use super::rust_source::{after_closing, is_ident};
use super::tree::Tree;

/// Where the order is written once: `lock_order! { MmapLock, VmaLock, ... }`.
const CODE: &str = "crates/sync/src/lockdep/order.rs";
const PAGE: &str = "docs/locking.md";
const START: &str = "<!-- generated: lock-order -->";
/// The part ends at the next comment of the page, whatever it says.
const END: &str = "<!--";

/// The part of the page between the marks names the classes in the order of the code.
pub(super) fn page_matches_code(tree: &Tree) -> Vec<Finding> {
    match (tree.rust_at(CODE), tree.page_at(PAGE)) {
        (None, None) => Vec::new(),
        (None, Some(_)) => vec![Finding::new(PAGE, 1, format!("there is no {CODE}"))],
        (Some(_), None) => vec![Finding::new(CODE, 1, format!("there is no {PAGE}"))],
        (Some(code), Some(page)) => {
            let order = order_in_code(&code.production().join("\n"));
            if order.is_empty() {
                return vec![Finding::new(CODE, 1, "there is no `lock_order! { ... }`")];
            }
            let Some((line, told)) = order_on_page(&page.text) else {
                let message = format!("no part between `{START}` and a closing comment");
                return vec![Finding::new(PAGE, 1, message)];
            };
            let same = order.iter().zip(&told).take_while(|(a, b)| a == b).count();
            let (wanted, found) = (order.get(same), told.get(same));
            if wanted == found {
                return Vec::new();
            }
            let name = |name: Option<&String>| name.map_or("nothing", |n| n.as_str()).to_owned();
            let message = format!(
                "place {}: {}, but the code has {}",
                same + 1,
                name(found),
                name(wanted)
            );
            vec![Finding::new(PAGE, line, message)]
        }
    }
}

/// The first name of each entry in the body of `lock_order!`.
fn order_in_code(code: &str) -> Vec<String> {
    let chars: Vec<char> = code.chars().collect();
    let call: Vec<char> = "lock_order!".chars().collect();
    let calls = (0..chars.len()).filter(|&at| chars[at..].starts_with(&call));
    let bodies = calls.filter_map(|at| {
        let mut open = at + call.len();
        while chars.get(open).is_some_and(|c| c.is_whitespace()) {
            open += 1;
        }
        let is_body = matches!(chars.get(open), Some('{' | '(' | '['));
        is_body.then(|| chars[open + 1..after_closing(&chars, open) - 1].to_vec())
    });
    bodies.flat_map(|body| first_names(&body)).collect()
}

fn first_names(body: &[char]) -> Vec<String> {
    let mut names = Vec::new();
    let mut at = 0;
    let mut at_start = true;
    while let Some(&c) = body.get(at) {
        match c {
            ',' | ';' => (at, at_start) = (at + 1, true),
            '#' => at = after_closing(body, at + 1),
            '(' | '[' | '{' => at = after_closing(body, at),
            c if is_ident(c) => {
                let word: String = body[at..].iter().take_while(|&&c| is_ident(c)).collect();
                at += word.chars().count();
                if at_start && word != "pub" {
                    names.push(word);
                    at_start = false;
                }
            }
            _ => at += 1,
        }
    }
    names
}

/// The line of the mark and the names after it: every name of a line `A > B > C`, the first name
/// of any other line. In a table only names in backticks count, since its head has words of its
/// own.
fn order_on_page(text: &str) -> Option<(usize, Vec<String>)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let start = lines.iter().position(|line| *line == START)?;
    let within = &lines[start + 1..];
    let length = within.iter().position(|line| line.starts_with(END))?;
    let mut names = Vec::new();
    for line in &within[..length] {
        let text = match line.split('`').nth(1) {
            Some(quoted) if line.starts_with('|') => quoted,
            None if line.starts_with('|') => "",
            _ => line,
        };
        let words = text.split(|c| !is_ident(c));
        let mut found = words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
        if text.contains(" > ") {
            names.extend(found.map(str::to_owned));
        } else {
            names.extend(found.next().map(str::to_owned));
        }
    }
    Some((start + 1, names))
}

#[cfg(test)]
mod tests {
    use super::{CODE, PAGE, page_matches_code};
    use crate::tidy::tree::Tree;

    const ORDER: &str = "macro_rules! lock_order { ($($name:ident),*) => {} }\n\
        lock_order! {\n    /// The order's top.\n    #[doc = \"x\"]\n    MmapLock { Forked },\n\
            VmaLock = 20,\n    PageTable,\n}\n";

    fn found(page: &str) -> Vec<String> {
        let tree = Tree::sample(&[(CODE, ORDER), (PAGE, page)]);
        page_matches_code(&tree)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_page_in_the_order_of_the_code_passes() {
        let list = "# Locking\n<!-- generated: lock-order -->\n```text\n1. MmapLock  Sleeps\n\
                    2. VmaLock\n3. PageTable\n```\n<!-- end: lock-order -->\nText.\n";
        assert!(found(list).is_empty(), "{:?}", found(list));
        let chain = "<!-- generated: lock-order -->\n`MmapLock > VmaLock > PageTable`\n\
                     <!-- end: lock-order -->\n";
        assert!(found(chain).is_empty(), "{:?}", found(chain));
    }

    #[test]
    fn the_head_of_a_table_is_no_lock() {
        let table = "<!-- generated: lock-order -->\n| Rank | Class |\n|---|---|\n\
                     | 1 | `MmapLock` | Sleeps |\n| 2 | `VmaLock` |\n| 3 | `PageTable` |\n\
                     <!-- end -->\n";
        assert!(found(table).is_empty(), "{:?}", found(table));
    }

    #[test]
    fn a_page_in_another_order_is_found() {
        let page = "<!-- generated: lock-order -->\n- VmaLock\n- MmapLock\n- PageTable\n\
                    <!-- end: lock-order -->\n";
        assert_eq!(
            found(page),
            ["docs/locking.md:1: place 1: VmaLock, but the code has MmapLock"]
        );
        let short = "<!-- generated: lock-order -->\n- MmapLock\n<!-- end: lock-order -->\n";
        assert_eq!(
            found(short),
            ["docs/locking.md:1: place 2: nothing, but the code has VmaLock"]
        );
        assert!(found("no marks\n")[0].contains("no part between"));
    }

    #[test]
    fn one_without_the_other_is_found() {
        let tree = Tree::sample(&[(CODE, ORDER)]);
        assert_eq!(
            page_matches_code(&tree)[0].message,
            "there is no docs/locking.md"
        );
    }
}
