//! The table of lines that faults share which have nothing to do with each other.

use crate::choice::plain_eras;
use crate::error::{Error, failed};
use minflt_report::{Cell, Column, Table};
use minflt_sim::why::{Disjoint, Ranges, disjoint};

/// CPUs that fault at once.
const CPUS: [u32; 2] = [4, 16];

/// Shared lines that a fault writes, by era.
pub(super) fn table() -> Result<Table, Error> {
    let mut columns = vec![Column::text("era")];
    for what in ["one mapping", "own mappings"] {
        for cpus in CPUS {
            columns.push(Column::number(&format!("{what}, {cpus} CPUs"), "lines"));
        }
    }
    columns.push(Column::text("writes in one mapping, 16 CPUs"));
    let mut table = Table::new("Shared lines that a fault writes", columns);
    for era in plain_eras() {
        let cannot = failed(format!("{}: shared lines", era.name));
        let mut row = vec![Cell::from(era.name.as_str())];
        let mut writes = String::new();
        for ranges in [Ranges::OneMapping, Ranges::OwnMappings] {
            for cpus in CPUS {
                let found = disjoint(era.config, cpus, ranges).map_err(|error| cannot(&error))?;
                row.push(Cell::from(per(found.lines, &found)));
                if ranges == Ranges::OneMapping {
                    writes = described(&found);
                }
            }
        }
        row.push(Cell::from(writes));
        table.rows.push(row);
    }
    table.footnotes.push(
        "Each CPU faults in 448 pages of its own, below a table of its own. A line is shared if more \
         than one CPU accessed it during the run, and counts once per fault. Fractions come from \
         counters updated in batches, and from frames taken in blocks."
            .into(),
    );
    Ok(table)
}

fn per(count: u64, found: &Disjoint) -> String {
    format!("{:.2}", count as f64 / found.faults.max(1) as f64)
}

/// The writes, and to what most of them are.
fn described(found: &Disjoint) -> String {
    let all = per(found.writes, found);
    let most = found
        .rows
        .iter()
        .filter(|row| row.writes * 10 > found.faults);
    let most: Vec<_> = most
        .map(|row| format!("{} {}", row.name, per(row.writes, found)))
        .collect();
    if most.is_empty() {
        all
    } else {
        format!("{all}: {}", most.join(", "))
    }
}
