//! Checks of order: rising rows, repeated cells, `min <= avg <= max`.

use crate::published::{Kind, PublishedTable};

use super::rule::number;
use super::{Direction, Finding, Findings};

/// The rows that carry `metric` as one of their labels: their labels and their figures by column.
pub(super) fn rows_of<'a>(
    table: &'a PublishedTable,
    metric: &str,
) -> Vec<(String, Vec<(&'a str, f64)>)> {
    let labels = |row: usize| {
        let cells = table.columns.iter().zip(&table.rows[row]);
        cells
            .filter(|(column, _)| column.kind == Kind::Label)
            .map(|(_, cell)| &cell.printed)
    };
    let figures = |row: usize| {
        let cells = table.columns.iter().zip(&table.rows[row]);
        cells
            .filter(|(column, _)| column.kind == Kind::Number)
            .filter_map(|(column, cell)| Some((column.name.as_str(), cell.value?)))
            .collect()
    };
    (0..table.rows.len())
        .filter(|row| labels(*row).any(|label| label == metric))
        .map(|row| (table.row_label(row), figures(row)))
        .collect()
}

pub(super) fn monotone(table: &PublishedTable, metric: &str, direction: Direction) -> Findings {
    let (sign, word) = match direction {
        Direction::Rising => (1.0, "rises"),
        Direction::Falling => (-1.0, "falls"),
    };
    let mut findings = Vec::new();
    for (row, mut figures) in rows_of(table, metric) {
        let wrong = take_disordered(&mut figures, sign);
        if wrong.is_empty() {
            let what = format!("{metric} {word} over {} columns", figures.len());
            findings.push(Finding::new(&row, "", Ok(what)));
        }
        for (column, value) in wrong {
            let what = format!("{value} is out of order: {metric} {word} without it");
            findings.push(Finding::new(&row, column, Err(what)));
        }
    }
    Ok(findings)
}

/// Takes out the figures that are in disorder with most of the others, until the rest is ordered.
fn take_disordered<'a>(figures: &mut Vec<(&'a str, f64)>, sign: f64) -> Vec<(&'a str, f64)> {
    let mut taken = Vec::new();
    loop {
        let disorder = |at: usize| {
            let value = sign * figures[at].1;
            let left = figures[..at].iter().filter(|it| sign * it.1 >= value);
            let right = figures[at + 1..].iter().filter(|it| sign * it.1 <= value);
            left.count() + right.count()
        };
        match (0..figures.len()).max_by_key(|at| disorder(*at)) {
            Some(worst) if disorder(worst) > 0 => taken.push(figures.remove(worst)),
            _ => return taken,
        }
    }
}

pub(super) fn distinct(table: &PublishedTable, metric: &str) -> Findings {
    let cells: Vec<_> = rows_of(table, metric)
        .into_iter()
        .flat_map(|(row, figures)| {
            figures
                .into_iter()
                .map(move |(column, value)| (row.clone(), column, value))
        })
        .collect();
    let mut findings = Vec::new();
    for (at, (row, column, value)) in cells.iter().enumerate() {
        let twin = cells
            .iter()
            .enumerate()
            .find(|(other, cell)| *other != at && cell.2 == *value);
        if let Some((_, (other_row, other_column, _))) = twin {
            let what = format!("{value} stands in row `{other_row}`, column `{other_column}` too");
            findings.push(Finding::new(row, column, Err(what)));
        }
    }
    if findings.is_empty() && !cells.is_empty() {
        let what = format!("{} cells, no two equal", cells.len());
        findings.push(Finding::new(metric, "", Ok(what)));
    }
    Ok(findings)
}

pub(super) fn min_avg_max(table: &PublishedTable) -> Findings {
    let mut findings = Vec::new();
    for (at, row) in table.row_labels().enumerate() {
        let number = |column| number(table, &row, column);
        let (min, max, avg) = (number("min")?, number("max")?, number("avg")?);
        let instances = table.row_param(at, "instances").and_then(|cell| cell.value);
        let instances = instances.ok_or("no column gives the `instances`")?;
        // One instance: the maximum is the minimum.
        let most = if instances == 1.0 { min } else { f64::INFINITY };
        findings.push(Finding::within(
            &row,
            "max",
            "max against min",
            max,
            min,
            most,
        ));
        let (low, high) = (six_digits(min), six_digits(max));
        findings.push(Finding::within(
            &row,
            "avg",
            "avg against min and max",
            avg,
            low,
            high,
        ));
    }
    Ok(findings)
}

/// The number rounded to six significant digits, as awk prints it.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

pub(super) fn less(table: &PublishedTable, left: &[String; 2], right: &[String; 2]) -> Findings {
    let (small, large) = (
        number(table, &left[0], &left[1])?,
        number(table, &right[0], &right[1])?,
    );
    let what = format!(
        "{small} against {large} in row `{}`, column `{}`",
        right[0], right[1]
    );
    let verdict = if small < large {
        Ok(what)
    } else {
        Err(format!("{what}: not below it"))
    };
    Ok(vec![Finding::new(&left[0], &left[1], verdict)])
}

#[cfg(test)]
mod tests {
    use super::{six_digits, take_disordered};

    #[test]
    fn the_fewest_cells_are_blamed() {
        let mut row = vec![("a", 1.0), ("b", 5.0), ("c", 2.0), ("d", 3.0), ("e", 4.0)];
        assert_eq!(take_disordered(&mut row, 1.0), [("b", 5.0)]);
        assert_eq!(take_disordered(&mut row, 1.0), []);
        assert_eq!(take_disordered(&mut row, -1.0).len(), 3);
        assert_eq!(
            take_disordered(&mut vec![("a", 1.0), ("b", 1.0)], 1.0).len(),
            1
        );
        assert_eq!(take_disordered(&mut Vec::new(), 1.0), []);
    }

    #[test]
    fn averages_have_six_digits() {
        assert_eq!(six_digits(3546.404513), 3546.4);
        assert_eq!(six_digits(491608.876328), 491609.0);
        assert_eq!(six_digits(477994.366435), 477994.0);
        assert_eq!(six_digits(0.0), 0.0);
    }
}
