//! Recomputes the figures that the postings derive from others.
//!
//! Each table names the rules its figures obey; each rule says of each cell it looks at whether
//! it holds. A cell that fails is a failure of our data or of the posting. The latter are known:
//! the table lists them as suspects, and a suspect that no rule catches is a failure too.

mod bounds;
mod fault_around;
mod kernbench;
mod numa_mem;
mod pft;
mod rule;
mod sums;

use core::fmt;

use crate::published::{Posting, PublishedTable};
use crate::table::{Cell, Column, Table};

pub use rule::{Direction, Neighbours, Rule};

/// One thing verified about one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The table's id.
    pub table: String,
    /// The rule's name.
    pub rule: &'static str,
    /// The labels of the row, or what else it is about.
    pub row: String,
    /// The column; empty if the check is about the whole row.
    pub column: String,
    /// How it came out.
    pub outcome: Outcome,
    /// The arithmetic, in words and numbers.
    pub detail: String,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The arithmetic holds.
    Pass,
    /// It does not, and the table says that the printed cell cannot be right.
    Suspect,
    /// It does not, or a suspect is no longer one.
    Fail,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pass => "pass",
            Self::Suspect => "suspect",
            Self::Fail => "FAIL",
        })
    }
}

/// What a rule says of a cell, or of a row if the column is empty.
struct Finding {
    row: String,
    column: String,
    verdict: Result<String, String>,
}

impl Finding {
    fn new(row: &str, column: &str, verdict: Result<String, String>) -> Self {
        Self {
            row: row.to_owned(),
            column: column.to_owned(),
            verdict,
        }
    }

    /// A finding that holds if `value` lies in `low..=high`.
    fn within(row: &str, column: &str, what: &str, value: f64, low: f64, high: f64) -> Self {
        let bounds = match (short(low), short(high)) {
            (low, _) if high == f64::INFINITY => format!("at least {low}"),
            (low, high) if low == high => low,
            (low, high) => format!("within {low}..{high}"),
        };
        let detail = format!("{what}: {}, to be {bounds}", short(value));
        let holds = (low..=high).contains(&value);
        Self::new(row, column, if holds { Ok(detail) } else { Err(detail) })
    }
}

/// At most six decimals, and no more than are needed.
fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// What a rule finds, or why it cannot be applied to its table.
type Findings = Result<Vec<Finding>, String>;

/// Verifies all tables of `postings`, those that repeat or are held out too, in their order.
#[must_use]
pub fn verify(postings: &[Posting]) -> Vec<Check> {
    let tables = || {
        postings
            .iter()
            .flat_map(|it| it.tables.iter().chain(&it.summaries).chain(&it.held_out))
    };
    let find = |id: &str| {
        tables()
            .find(|table| table.id == id)
            .ok_or_else(|| format!("there is no table `{id}`"))
    };
    tables()
        .flat_map(|table| verify_table(table, &find))
        .collect()
}

/// Finds a table by its id.
type Find<'a> = dyn Fn(&str) -> Result<&'a PublishedTable, String> + 'a;

fn verify_table<'a>(table: &'a PublishedTable, find: &Find<'a>) -> Vec<Check> {
    let mut checks = Vec::new();
    for rule in &table.checks {
        let findings = match rule.apply(table, find) {
            Ok(findings) if findings.is_empty() => Err("matches nothing in this table".to_owned()),
            other => other,
        };
        let findings =
            findings.unwrap_or_else(|why| vec![Finding::new("the rule itself", "", Err(why))]);
        checks.extend(
            findings
                .into_iter()
                .map(|finding| judge(table, rule.name(), finding)),
        );
    }
    for suspect in &table.suspects {
        if !checks.iter().any(|it| {
            it.row == suspect.row && it.column == suspect.column && it.outcome == Outcome::Suspect
        }) {
            let why = Err("listed as suspect, but every rule accepts it".to_owned());
            let finding = Finding::new(&suspect.row, &suspect.column, why);
            checks.push(Check {
                outcome: Outcome::Fail,
                ..judge(table, "suspect", finding)
            });
        }
    }
    checks
}

fn judge(table: &PublishedTable, rule: &'static str, finding: Finding) -> Check {
    let Finding {
        row,
        column,
        verdict,
    } = finding;
    let known = table
        .suspects
        .iter()
        .find(|it| it.row == row && it.column == column);
    let (outcome, detail) = match (verdict, known) {
        (Ok(detail), _) => (Outcome::Pass, detail),
        (Err(detail), Some(known)) => (Outcome::Suspect, format!("{detail} ({})", known.why)),
        (Err(detail), None) => (Outcome::Fail, detail),
    };
    Check {
        table: table.id.clone(),
        rule,
        row,
        column,
        outcome,
        detail,
    }
}

/// The worst outcome of all; [`Outcome::Pass`] if there is none.
#[must_use]
pub fn worst(checks: &[Check]) -> Outcome {
    checks
        .iter()
        .map(|check| check.outcome)
        .max()
        .unwrap_or(Outcome::Pass)
}

/// The checks of these outcomes as a table; its title counts all of them.
#[must_use]
pub fn checks_table(checks: &[Check], shown: &[Outcome]) -> Table {
    let count = |outcome| {
        checks
            .iter()
            .filter(|check| check.outcome == outcome)
            .count()
    };
    let title = format!(
        "{} checks: {} pass, {} suspect in the posting itself, {} fail",
        checks.len(),
        count(Outcome::Pass),
        count(Outcome::Suspect),
        count(Outcome::Fail),
    );
    let columns = ["outcome", "table", "rule", "row", "column", "arithmetic"].map(Column::text);
    let mut table = Table::new(&title, columns);
    for check in checks.iter().filter(|check| shown.contains(&check.outcome)) {
        let outcome = check.outcome.to_string();
        let cells = [
            &outcome,
            &check.table,
            check.rule,
            &check.row,
            &check.column,
            &check.detail,
        ];
        table
            .rows
            .push(cells.map(|text: &str| Cell::from(text)).to_vec());
    }
    table
}

#[cfg(test)]
mod tests;
