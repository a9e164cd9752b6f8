//! What `docs/memory-model.md` says of the orderings that no model notices.

use super::Survivor;
use std::collections::BTreeSet;

/// The page.
pub(super) const PAGE: &str = "docs/memory-model.md";
/// The heading of its table.
const HEADING: &str = "## Orderings that no model notices, and why";

/// What the page says.
#[derive(Debug)]
pub(super) struct Page {
    /// The first two cells of each row, as [`key`] writes them, and the line.
    reasons: Vec<(String, usize)>,
    /// The pairs whose last cell says *argued*.
    argued: BTreeSet<String>,
    /// All pairs with a row.
    listed: BTreeSet<String>,
}

/// The cells of a row that name a survivor.
pub(super) fn key(survivor: &Survivor<'_>) -> String {
    let site = survivor.site;
    let ordinal = match site.ordinal {
        1 => String::new(),
        n => format!(" {n}"),
    };
    let pairs: Vec<String> = site.pairs.iter().map(|pair| format!("[{pair}]")).collect();
    format!(
        "| `{}`: `{}`{ordinal} | {} | {} |",
        site.file,
        site.function,
        pairs.join(", "),
        change(&site.order, survivor.to)
    )
}

/// A change in words.
pub(super) fn change(order: &str, to: &str) -> String {
    match to {
        "Removed" => format!("{order} removed"),
        weaker => format!("{order} to {weaker}"),
    }
}

impl Page {
    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self {
            reasons: Vec::new(),
            argued: BTreeSet::new(),
            listed: BTreeSet::new(),
        };
        let mut heading = "";
        for (at, line) in text.lines().enumerate() {
            if line.starts_with("## ") {
                heading = line;
            }
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            if heading == HEADING {
                // Before and behind the outer bars stands nothing.
                if let ["", site, pair, change, reason, ""] = cells[..]
                    && site.starts_with('`')
                    && !reason.is_empty()
                {
                    page.reasons
                        .push((format!("| {site} | {pair} | {change} |"), at + 1));
                }
            } else if let [_, pair, .., checked, _] = cells[..]
                && let Some(pair) = pair.strip_prefix('[').and_then(|it| it.strip_suffix(']'))
            {
                page.listed.insert(pair.to_owned());
                if checked.contains("argued") {
                    page.argued.insert(pair.to_owned());
                }
            }
        }
        page
    }

    /// What is missing or untrue. `files` are those whose orderings were tried.
    pub(super) fn findings(&self, survivors: &[Survivor<'_>], files: &[String]) -> Vec<String> {
        let mut findings = Vec::new();
        let keys: Vec<String> = survivors.iter().map(key).collect();
        for (survivor, key) in survivors.iter().zip(&keys) {
            if self.reasons.iter().all(|(reason, _)| reason != key) {
                findings.push(format!(
                    "crates/sync/src/{}:{}: no model notices it, and {PAGE} has no row {key}",
                    survivor.site.file, survivor.site.line
                ));
            }
            for pair in &survivor.site.pairs {
                if self.listed.contains(pair) && !self.argued.contains(pair) {
                    findings.push(format!(
                        "{PAGE}: the row of [{pair}] does not say what of it is argued"
                    ));
                }
            }
        }
        for (reason, line) in &self.reasons {
            let tried = |file: &String| reason.starts_with(&format!("| `{file}`: "));
            if files.iter().any(tried) && !keys.contains(reason) {
                findings.push(format!("{PAGE}:{line}: a model notices it by now"));
            }
        }
        findings.sort();
        findings.dedup();
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::Page;
    use crate::tidy::RustSource;
    use crate::weaken::{Survivor, sites};

    const CODE: &str = "\
fn f(&self) {
    // ORDERING: Acquire; pairs with [a-b].
    self.word.load(Ordering::Acquire);
    // ORDERING: Release; pairs with [c-d].
    self.word.store(1, Ordering::Release);
}
";

    #[test]
    fn a_survivor_needs_a_row_and_a_row_needs_a_survivor() {
        let page = "\
| pair | checked by |
|---|---|
| [a-b] | `model_x.rs` |
| [c-d] | `model_x.rs`; the store is argued |

## Orderings that no model notices, and why
| ordering | pair | change | why |
|---|---|---|---|
| `x.rs`: `f` 2 | [c-d] | Release to Relaxed | because |
| `x.rs`: `g` | [c-d] | Release to Relaxed | because |
| `y.rs`: `g` | [c-d] | Release to Relaxed | not tried |
";
        let source = RustSource::new("crates/sync/src/x.rs".to_owned(), CODE.to_owned());
        let sites = sites::find(&source, "x.rs");
        let survivors: Vec<Survivor<'_>> = sites
            .iter()
            .map(|site| Survivor {
                site,
                to: "Relaxed",
            })
            .collect();
        let findings = Page::parse(page).findings(&survivors, &["x.rs".to_owned()]);
        assert_eq!(
            findings,
            [
                "crates/sync/src/x.rs:3: no model notices it, and docs/memory-model.md has no row \
                 | `x.rs`: `f` | [a-b] | Acquire to Relaxed |",
                "docs/memory-model.md: the row of [a-b] does not say what of it is argued",
                "docs/memory-model.md:10: a model notices it by now",
            ]
        );
    }
}
