//! Minor faults by fault-around order: never fewer than the touched pages over the pages one fault
//! maps, and not many more. With many threads more faults are needed, presumably because a page
//! that another thread has locked is not mapped along.

use crate::published::PublishedTable;

use super::bounds::rows_of;
use super::{Finding, Findings, Neighbours};

const METRIC: &str = "minor-faults";

/// `surplus`: faults on top at one thread, and the share on top with more.
pub(super) fn check(
    table: &PublishedTable,
    touches: f64,
    neighbours: Neighbours,
    surplus: (f64, f64),
) -> Findings {
    let mut findings = Vec::new();
    for (row, figures) in rows_of(table, METRIC) {
        let at = table
            .row_labels()
            .position(|label| label == row)
            .unwrap_or_default();
        let threads = table.row_param(at, "threads").and_then(|cell| cell.value);
        let threads = threads.ok_or("no column gives the `threads`")?;
        for (column, faults) in figures {
            let order = table
                .column(column)
                .and_then(|it| it.params.get("fault_around_order"));
            let order = order
                .and_then(serde_json::Value::as_u64)
                .filter(|order| *order < 32);
            let order = order.ok_or_else(|| format!("column `{column}` names no order"))?;
            let mapped = match neighbours {
                Neighbours::Touched => (1_u64 << order) as f64,
                Neighbours::Untouched => 1.0,
            };
            let floor = touches * threads / mapped;
            let most = if threads == 1.0 {
                floor + surplus.0
            } else {
                floor * (1.0 + surplus.1)
            };
            let what = format!("{touches} pages x {threads} threads, {mapped} saved by each fault");
            findings.push(Finding::within(&row, column, &what, faults, floor, most));
        }
    }
    Ok(findings)
}
