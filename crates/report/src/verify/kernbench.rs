//! kernbench: percent of a CPU from the times, and what its averages are taken over.
//!
//! The half load runs first, and the figures of the optimal load show that only its elapsed time
//! is its own: all its other averages are over the runs of both loads. With `n` runs of each, the
//! printed average is half the sum of the two loads' averages, and the sample deviation is at
//! least `|printed - half| * sqrt(2n / (2n - 1))`, however close together the runs of each load
//! are.

use crate::published::{Kind, PublishedTable};

use super::rule::number;
use super::{Finding, Findings};

const ELAPSED: &str = "Elapsed Time";
const PERCENT: &str = "Percent CPU";
/// The percentage of each run is cut off, so the average is up to one too low; twice that after
/// the half load is taken out. Below, rounding of the times.
const CUT: (f64, f64) = (-0.5, 1.5);
/// Room for the rounding of the printed averages: of 6 significant digits.
const ROUNDING: f64 = 1e-4;

pub(super) fn check(table: &PublishedTable, half: Option<&PublishedTable>) -> Findings {
    let mut findings = Vec::new();
    let columns = table
        .columns
        .windows(2)
        .filter(|pair| pair[0].kind == Kind::Number);
    for [mean, deviation] in columns.filter_map(|pair| <&[_; 2]>::try_from(pair).ok()) {
        let column = &mean.name;
        // The optimal load's own average.
        let own = |row: &str| {
            let printed = number(table, row, column)?;
            match half {
                Some(half) if row != ELAPSED => Ok(2.0 * printed - number(half, row, column)?),
                _ => Ok::<_, String>(printed),
            }
        };
        let expected = (own("User Time")? + own("System Time")?) / own(ELAPSED)? * 100.0;
        let (low, high) = (expected - CUT.1, expected - CUT.0);
        let what = match half {
            None => "(User + System) / Elapsed in percent, cut off",
            Some(_) => "(User + System) / Elapsed in percent, the half load's runs taken out",
        };
        findings.push(Finding::within(
            PERCENT,
            column,
            what,
            own(PERCENT)?,
            low,
            high,
        ));

        let Some(half) = half else { continue };
        let runs = table.params.get("runs").and_then(serde_json::Value::as_f64);
        let both = 2.0 * runs.ok_or("the table's params name no `runs`")?;
        for row in table.row_labels() {
            let apart = (number(table, &row, column)? - number(half, &row, column)?).abs();
            let floor = apart * (both / (both - 1.0)).sqrt();
            let name = &deviation.name;
            let printed = number(table, &row, name)?;
            // Elapsed time is the one that is not pooled, and its deviation shows it.
            let (what, low, high) = if row == ELAPSED {
                ("deviation of the optimal load alone", 0.0, floor)
            } else {
                (
                    "deviation, at least that of the two loads",
                    floor * (1.0 - ROUNDING),
                    f64::MAX,
                )
            };
            findings.push(Finding::within(&row, name, what, printed, low, high));
        }
    }
    Ok(findings)
}
