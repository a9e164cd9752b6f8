//! How many numbers are fitted, and which: what all pages say of it comes from `data/fit`.

use crate::error::{Error, failed};
use minflt_report::{Cell, Column, Table};
use minflt_sim::machine_file::{FITS, Fit};

fn fits() -> Result<Vec<Fit>, Error> {
    let read = |(name, text): &(&str, &str)| Fit::parse(&format!("data/fit/{name}.toml"), text);
    let fits: Result<_, _> = FITS.iter().map(read).collect();
    fits.map_err(|error| failed("fits")(&error))
}

/// Every fitted number: its value, and the one published figure that decided it.
pub(crate) fn table() -> Result<Table, Error> {
    let columns = [
        Column::text("machine"),
        Column::text("number"),
        Column::number("value", ""),
        Column::text("fitted to"),
        Column::number("published", ""),
        Column::number("simulated", ""),
    ];
    let fits = fits()?;
    let title = format!("The fitted numbers: {}", counts(&fits));
    let mut table = Table::new(&title, columns);
    for fit in &fits {
        for number in &fit.fitted {
            let row = [
                fit.machine.clone(),
                number.key.clone(),
                number.value.to_string(),
                number.to.clone(),
                number.published.to_string(),
                number.simulated.to_string(),
            ];
            table.rows.push(row.map(Cell::from).into());
        }
    }
    table.footnotes.push(
        "`least` and `most` of each, and why it is this number, stand beside the cell in \
         data/postings; all cells are of unpatched kernels: minflt calibrate"
            .into(),
    );
    Ok(table)
}

/// The same in one sentence, for the pages that only say how many.
pub(crate) fn sentence() -> Result<String, Error> {
    let fits = fits()?;
    let each = fits.iter().map(|fit| {
        let count = fit.fitted.len();
        format!("{} {count}", fit.machine)
    });
    let each: Vec<_> = each.collect();
    Ok(format!(
        "Fitted to unpatched rows of the postings: {} ({}).",
        counts(&fits),
        each.join(", ")
    ))
}

fn counts(fits: &[Fit]) -> String {
    let all: usize = fits.iter().map(|fit| fit.fitted.len()).sum();
    format!("{all} numbers of {} machines", fits.len())
}

#[cfg(test)]
mod tests {
    use super::{sentence, table};
    use minflt_sim::machine_file::FITS;

    #[test]
    fn the_sentence_counts_what_the_table_lists() {
        let (table, said) = (table().expect("readable"), sentence().expect("readable"));
        let count = format!("{} numbers of {} machines", table.rows.len(), FITS.len());
        assert!(table.title.ends_with(&count), "{}", table.title);
        assert!(said.contains(&count), "{said}");
        for (name, text) in FITS {
            let keys = text.matches("[[fitted]]").count();
            assert!(said.contains(&format!("{name} {keys}")), "{said}");
        }
    }
}
