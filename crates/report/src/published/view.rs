//! Published tables as tables to show.

use crate::table::{Cell, Column, Table};

use super::{BY_ROW, Posting, PublishedTable};

impl PublishedTable {
    /// The table as it was printed, its traps as footnotes.
    #[must_use]
    pub fn to_table(&self) -> Table {
        let columns = self.columns.iter().enumerate().map(|(at, column)| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(at));
            let unit = if column.unit == BY_ROW {
                ""
            } else {
                &column.unit
            };
            if cells.all(|cell| cell.value.is_some()) {
                Column::number(&column.name, unit)
            } else {
                Column::text(&column.name)
            }
        });
        let mut table = Table::new(&format!("{}: {}", self.id, self.title), columns);
        for cells in &self.rows {
            table.rows.push(
                cells
                    .iter()
                    .map(|cell| Cell::from(cell.printed.as_str()))
                    .collect(),
            );
        }
        table.footnotes.push(format!("Machine: {}.", self.machine));
        table.footnotes.extend(self.notes.iter().cloned());
        table.footnotes.extend(self.suspects.iter().map(|suspect| {
            format!(
                "Suspect: row `{}`, column `{}`: {}.",
                suspect.row, suspect.column, suspect.why
            )
        }));
        table
    }
}

/// One posting's tables as printed, in its order.
#[must_use]
pub fn posting_tables(posting: &Posting) -> Vec<Table> {
    posting
        .tables
        .iter()
        .map(PublishedTable::to_table)
        .collect()
}

/// The list of all published tables with their status, and the command for each.
#[must_use]
pub fn overview(postings: &[Posting]) -> Table {
    let columns = [
        Column::text("table"),
        Column::text("what"),
        Column::number("figures", ""),
        Column::text("status"),
        Column::text("command, or what is missing"),
    ];
    let all = || postings.iter().flat_map(|posting| &posting.tables);
    let figures: usize = all().map(PublishedTable::figures).sum();
    let title = format!("{} published tables, {figures} figures", all().count());
    let mut table = Table::new(&title, columns);
    for published in all() {
        let note = match (published.status_note.as_str(), &published.command) {
            (_, Some(command)) => format!("`{command}`"),
            (note, None) => note.to_owned(),
        };
        table.rows.push(vec![
            Cell::from(published.id.as_str()),
            Cell::from(published.title.as_str()),
            Cell::from(published.figures().to_string()),
            Cell::with_status(&published.status.to_string(), published.status),
            Cell::from(note),
        ]);
    }
    table
}
