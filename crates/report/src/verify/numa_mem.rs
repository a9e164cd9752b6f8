//! Figures that `perf bench numa mem` derives: all follow from the times of the fastest and of
//! the last thread and from the data each thread has processed.

use crate::published::PublishedTable;

use super::rule::number;
use super::{Finding, Findings};

const VALUE: &str = "Value";
/// Half a unit of the last of the three decimals it prints.
const ROUNDING: f64 = 0.000_5;

pub(super) fn check(table: &PublishedTable, tasks: f64, bytes_per_task: f64) -> Findings {
    let number = |row| number(table, row, VALUE);
    let min = number("fastest (min) thread time")?;
    let max = number("elapsed (max) thread time")?;
    let mean = "runtime/thread";
    let gigabytes = bytes_per_task / 1e9;

    let mut findings = vec![Finding::within(
        mean,
        VALUE,
        "the mean of all threads",
        number(mean)?,
        min,
        max,
    )];
    // The formula's result, exact but for the time's own rounding.
    let mut derived = |row, what: &str, at: [f64; 2], rounding: f64| {
        let (low, high) = (at[0].min(at[1]) - rounding, at[0].max(at[1]) + rounding);
        findings.push(Finding::within(row, VALUE, what, number(row)?, low, high));
        Ok::<_, String>(())
    };
    let over = |amount: f64| [amount / (max + ROUNDING), amount / (max - ROUNDING)];
    let times = |factor: f64| [(max - ROUNDING) * factor, (max + ROUNDING) * factor];
    let total = gigabytes * tasks;
    derived(
        "data processed, per thread",
        "bytes / 10^9",
        [gigabytes; 2],
        ROUNDING,
    )?;
    derived(
        "data processed, total",
        "bytes / 10^9 x threads",
        [total; 2],
        ROUNDING,
    )?;
    derived(
        "nsecs/byte/thread",
        "max / bytes",
        times(1.0 / gigabytes),
        ROUNDING,
    )?;
    derived(
        "GB/sec/thread",
        "bytes / 10^9 / max",
        over(gigabytes),
        ROUNDING,
    )?;
    derived(
        "GB/sec total",
        "bytes / 10^9 x threads / max",
        over(total),
        ROUNDING,
    )?;
    // One decimal, and a sign that stands for plus or minus.
    let spread = (max - min) / 2.0 / max * 100.0;
    derived(
        "spread",
        "-(max - min) / 2 / max in percent",
        [-spread; 2],
        0.05,
    )?;
    Ok(findings)
}
