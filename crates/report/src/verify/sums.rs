//! Sums, changes in percent, and cut-off decimals.

use std::collections::BTreeMap;

use crate::published::PublishedTable;

use super::rule::number;
use super::{Find, Finding, Findings};

/// The sum's own digits bound how exact it can be.
const SUM_ROUNDING: f64 = 1e-6;

pub(super) fn sum(table: &PublishedTable, column: &str, total: &str) -> Findings {
    let mut parts = 0.0;
    for row in table.row_labels().filter(|row| row != total) {
        parts += number(table, &row, column)?;
    }
    let (low, high) = (parts - SUM_ROUNDING, parts + SUM_ROUNDING);
    let printed = number(table, total, column)?;
    let what = format!("sum of {} rows", table.rows.len().saturating_sub(1));
    Ok(vec![Finding::within(
        total, column, &what, printed, low, high,
    )])
}

pub(super) fn change(
    table: &PublishedTable,
    row: &str,
    column: &str,
    base: f64,
    percent: i32,
) -> Findings {
    let value = number(table, row, column)?;
    let found = ((value / base - 1.0) * 100.0).round();
    let what = format!("change from {base} to {value} in percent");
    let percent = f64::from(percent);
    Ok(vec![Finding::within(
        row, column, &what, found, percent, percent,
    )])
}

pub(super) fn truncated(
    table: &PublishedTable,
    source: &str,
    rows: &BTreeMap<String, String>,
    tables: &BTreeMap<String, String>,
    find: &Find<'_>,
) -> Findings {
    let mut findings = Vec::new();
    let mut rounded_differs = false;
    for (row, from_row) in rows {
        for (column, id) in tables {
            let full = number(find(id)?, from_row, source)?;
            let what = format!("{full} of {id}, cut off");
            let (value, cut) = (number(table, row, column)?, full.trunc());
            findings.push(Finding::within(row, column, &what, value, cut, cut));
            rounded_differs |= full.round() != value;
        }
    }
    let verdict = if rounded_differs {
        Ok("rounding would have printed other numbers".to_owned())
    } else {
        Err("nothing is cut off: every number is also the rounded one".to_owned())
    };
    findings.push(Finding::new("all rows", "", verdict));
    Ok(findings)
}
