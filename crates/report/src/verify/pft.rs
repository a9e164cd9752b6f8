//! The columns of pft as posted in 2004.
//!
//! Faults are not counted but computed, `bytes * repetitions / page`. Times are cut off at their
//! last digit, not rounded, so each rate must lie between the rates for the printed time and for
//! the printed time plus one unit of its last digit.

use crate::published::PublishedTable;

use super::rule::number;
use super::{Finding, Findings};

/// Resolution of `User` and `System`, in seconds.
const CPU_STEP: f64 = 0.001;
/// Resolution of `Wall`, in seconds.
const WALL_STEP: f64 = 0.01;
/// Half a unit of the last digit of a printed rate.
const RATE_ROUNDING: f64 = 0.000_5;

pub(super) fn check(table: &PublishedTable, page_bytes: u64) -> Findings {
    let mut findings = Vec::new();
    for row in table.row_labels() {
        let number = |column| number(table, &row, column);
        let wall = number("Wall")?;
        let printed = table.cell(&row, "Wall").map_or("", |cell| &cell.printed);
        findings.push(Finding::new(&row, "Wall", wall_means(printed, wall)));

        let pages = number("Gb")? * f64::from(1 << 30) * number("Rep")? / page_bytes as f64;
        let cpu = number("User")? + number("System")?;
        let mut rate = |column, seconds: f64, step: f64| {
            let what = format!("{pages} faults in {seconds:.3} to {:.3} s", seconds + step);
            let (low, high) = (pages / (seconds + step), pages / seconds);
            let (low, high) = (low - RATE_ROUNDING, high + RATE_ROUNDING);
            findings.push(Finding::within(
                &row,
                column,
                &what,
                number(column)?,
                low,
                high,
            ));
            Ok::<_, String>(())
        };
        rate("flt/cpu/s", cpu, 2.0 * CPU_STEP)?;
        rate("fault/wsec", wall, WALL_STEP)?;
    }
    Ok(findings)
}

/// Whether `printed`, read as whole seconds and padded hundredths, is `wall` seconds.
fn wall_means(printed: &str, wall: f64) -> Result<String, String> {
    let decoded = printed
        .strip_suffix('s')
        .and_then(|text| text.split_once(".0"));
    let decoded = decoded.and_then(|(seconds, hundredths)| {
        (hundredths.len() == 2)
            .then(|| format!("{seconds}.{hundredths}"))?
            .parse::<f64>()
            .ok()
    });
    match decoded {
        Some(seconds) if seconds == wall => Ok(format!("{printed} means {wall} s")),
        Some(seconds) => Err(format!("{printed} means {seconds} s, not {wall} s")),
        None => Err(format!(
            "{printed} is not seconds and hundredths padded to three digits"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::wall_means;

    #[test]
    fn wall_prints_hundredths_padded_to_three_digits() {
        assert!(wall_means("370.082s", 370.82).is_ok());
        assert!(wall_means("77.000s", 77.0).is_ok());
        assert!(wall_means("370.082s", 370.082).is_err());
        assert!(wall_means("370.82s", 370.82).is_err());
        assert!(wall_means("370.182s", 370.82).is_err());
        assert!(wall_means("", 0.0).is_err());
    }
}
