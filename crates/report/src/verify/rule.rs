//! The rules a table's figures may obey, as its data names them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::published::PublishedTable;

use super::{Find, Findings, bounds, fault_around, kernbench, numa_mem, pft, sums};

/// A rule of arithmetic, with the numbers it needs.
///
/// Rows are addressed by their labels, columns by their names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "rule", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// The columns of pft in 2004: faults are computed from the size, rates from the faults and
    /// the times, and `Wall` prints its hundredths of a second padded to three digits.
    Pft {
        /// Bytes the test touches one byte of.
        page_bytes: u64,
    },
    /// The rows that `perf bench numa mem` derives from the run time and the data of a thread.
    NumaMem {
        /// Threads.
        tasks: u64,
        /// Bytes each thread has processed.
        bytes_per_task: u64,
    },
    /// One row is the sum of all others.
    Sum {
        /// The column of the numbers.
        column: String,
        /// The row of the sum.
        total: String,
    },
    /// Minor faults are the touched pages over the pages a fault maps, and a surplus.
    MinorFaults {
        /// Pages each thread touches.
        touches: u64,
        /// Whether the pages around a touched one are touched too.
        neighbours: Neighbours,
        /// Faults on top at one thread, at most.
        surplus: u64,
        /// Faults on top with more threads, at most, in percent.
        surplus_percent: u64,
    },
    /// The numbers of a row of this metric rise (or fall) from column to column.
    Monotone {
        /// The label that such rows carry.
        metric: String,
        /// Which way.
        direction: Direction,
    },
    /// No two cells in the rows of this metric are equal: they are times with many digits.
    Distinct {
        /// The label that such rows carry.
        metric: String,
    },
    /// `min <= avg <= max`; with one instance all three are one number, and `avg` has six
    /// significant digits.
    MinAvgMax {},
    /// One cell is below another.
    Less {
        /// Row and column of the smaller.
        left: [String; 2],
        /// Row and column of the larger.
        right: [String; 2],
    },
    /// A cell differs from its counterpart by so many percent, rounded.
    Change {
        /// The row of both.
        row: String,
        /// The cell's column.
        column: String,
        /// The counterpart's column, if it is another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base_column: Option<String>,
        /// The counterpart's table, if it is another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base_table: Option<String>,
        /// The change, in percent of the counterpart.
        percent: i32,
    },
    /// Percent CPU is (User + System) / Elapsed, and averages of the optimal load include the
    /// half load.
    Kernbench {
        /// The table of the half load, for that of the optimal load.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        half: Option<String>,
    },
    /// Each cell is a cell of another table without its decimals, and not its rounded value.
    Truncated {
        /// The column of the other tables.
        source: String,
        /// The row of the other tables for each row here.
        rows: BTreeMap<String, String>,
        /// The other table for each column here.
        tables: BTreeMap<String, String>,
    },
}

/// Whether the pages that fault-around maps besides the wanted one are touched later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Neighbours {
    /// They are: each fault saves others.
    Touched,
    /// They are not: no fault is saved.
    Untouched,
}

/// Which way the numbers of a row go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Each is larger than the one to its left.
    Rising,
    /// Each is smaller than the one to its left.
    Falling,
}

impl Rule {
    /// The rule's name, as in the data.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pft { .. } => "pft",
            Self::NumaMem { .. } => "numa-mem",
            Self::Sum { .. } => "sum",
            Self::MinorFaults { .. } => "minor-faults",
            Self::Monotone { .. } => "monotone",
            Self::Distinct { .. } => "distinct",
            Self::MinAvgMax {} => "min-avg-max",
            Self::Less { .. } => "less",
            Self::Change { .. } => "change",
            Self::Kernbench { .. } => "kernbench",
            Self::Truncated { .. } => "truncated",
        }
    }

    pub(super) fn apply<'a>(&self, table: &'a PublishedTable, find: &Find<'a>) -> Findings {
        match self {
            Self::Pft { page_bytes } => pft::check(table, *page_bytes),
            Self::NumaMem {
                tasks,
                bytes_per_task,
            } => numa_mem::check(table, *tasks as f64, *bytes_per_task as f64),
            Self::Sum { column, total } => sums::sum(table, column, total),
            Self::MinorFaults {
                touches,
                neighbours,
                surplus,
                surplus_percent,
            } => {
                let surplus = (*surplus as f64, *surplus_percent as f64 / 100.0);
                fault_around::check(table, *touches as f64, *neighbours, surplus)
            }
            Self::Monotone { metric, direction } => bounds::monotone(table, metric, *direction),
            Self::Distinct { metric } => bounds::distinct(table, metric),
            Self::MinAvgMax {} => bounds::min_avg_max(table),
            Self::Less { left, right } => bounds::less(table, left, right),
            Self::Change {
                row,
                column,
                base_column,
                base_table,
                percent,
            } => {
                let base = base_table.as_deref().map_or(Ok(table), find)?;
                let base_column = base_column.as_ref().unwrap_or(column);
                let base = number(base, row, base_column)?;
                sums::change(table, row, column, base, *percent)
            }
            Self::Kernbench { half } => {
                kernbench::check(table, half.as_deref().map(find).transpose()?)
            }
            Self::Truncated {
                source,
                rows,
                tables,
            } => sums::truncated(table, source, rows, tables, find),
        }
    }
}

/// The number in this row and column, or a sentence that names what is missing.
pub(super) fn number(table: &PublishedTable, row: &str, column: &str) -> Result<f64, String> {
    table.value(row, column).ok_or_else(|| {
        format!(
            "table {} has no number in row `{row}`, column `{column}`",
            table.id
        )
    })
}
