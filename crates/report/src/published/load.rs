//! Reading the postings' files; what is malformed is named by file and table.

use core::error::Error;
use core::fmt;
use std::collections::BTreeSet;

use super::{BY_ROW, FitTo, Kind, Mark, Posting, PublishedTable, Role, headline};
use crate::status::Status;

/// The files in the program, oldest posting first.
const FILES: [(&str, &str); 5] = [
    (
        "data/postings/2004.toml",
        include_str!("../../../../data/postings/2004.toml"),
    ),
    (
        "data/postings/2012.toml",
        include_str!("../../../../data/postings/2012.toml"),
    ),
    (
        "data/postings/2014.toml",
        include_str!("../../../../data/postings/2014.toml"),
    ),
    (
        "data/postings/2017.toml",
        include_str!("../../../../data/postings/2017.toml"),
    ),
    (
        "data/postings/2022.toml",
        include_str!("../../../../data/postings/2022.toml"),
    ),
];

/// A posting's file that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedError {
    /// The file.
    pub file: String,
    /// The table's id, if the fault lies in one.
    pub table: Option<String>,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for PublishedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if let Some(table) = &self.table {
            write!(f, "table {table}: ")?;
        }
        f.write_str(self.what.trim())
    }
}

impl Error for PublishedError {}

/// All postings that are built into the program, oldest first.
///
/// # Errors
/// A file is malformed; a test of this crate keeps that from being built.
pub fn postings() -> Result<Vec<Posting>, PublishedError> {
    FILES.iter().map(|(file, text)| parse(file, text)).collect()
}

/// Reads one posting from the text of its file.
///
/// # Errors
/// The text is no TOML, a key is missing or unknown, or a table breaks a rule of the format:
/// ids and row labels are unique, rows are as long as the columns, and figures are numbers.
pub fn parse(file: &str, text: &str) -> Result<Posting, PublishedError> {
    let fail = |table: Option<&str>, what: String| PublishedError {
        file: file.to_owned(),
        table: table.map(str::to_owned),
        what,
    };
    let posting: Posting = toml::from_str(text)
        .map_err(|error| fail(broken_table(text).as_deref(), error.to_string()))?;
    let mut ids = BTreeSet::new();
    let tables = posting.tables.iter().chain(&posting.summaries);
    for table in tables.chain(&posting.held_out) {
        if !ids.insert(&table.id) || !table.id.starts_with(&format!("{}/", posting.id)) {
            let what = format!("the id must be unique and begin with `{}/`", posting.id);
            return Err(fail(Some(&table.id), what));
        }
        check_shape(table).map_err(|what| fail(Some(&table.id), what))?;
        check_fits(table, &posting.tables).map_err(|what| fail(Some(&table.id), what))?;
        for mark in &table.marks {
            check_mark(table, mark, &posting.tables).map_err(|what| fail(Some(&table.id), what))?;
        }
    }
    if let Some(table) = posting.held_out.iter().find(|it| !it.fits.is_empty()) {
        let what = "a held-out table cannot be fitted to; delete its `fit`";
        return Err(fail(Some(&table.id), what.to_owned()));
    }
    for it in &posting.headlines {
        headline::check(&posting, it).map_err(|what| fail(None, what))?;
    }
    Ok(posting)
}

/// The id of the first table that does not fit the format, for the message.
fn broken_table(text: &str) -> Option<String> {
    let document: toml::Table = text.parse().ok()?;
    let tables = ["table", "summary", "held_out"]
        .into_iter()
        .filter_map(|key| document.get(key)?.as_array());
    let broken = tables
        .flatten()
        .find(|it| (*it).clone().try_into::<PublishedTable>().is_err())?;
    Some(
        broken
            .get("id")
            .and_then(toml::Value::as_str)
            .unwrap_or("without an id")
            .to_owned(),
    )
}

fn check_shape(table: &PublishedTable) -> Result<(), String> {
    let mut names = BTreeSet::new();
    if let Some(twice) = table
        .columns
        .iter()
        .find(|column| !names.insert(&column.name))
    {
        return Err(format!("two columns `{}`", twice.name));
    }
    if !table.columns.iter().any(|column| column.kind == Kind::Unit)
        && table.columns.iter().any(|column| column.unit == BY_ROW)
    {
        return Err("units are by row, but no column is of kind `unit`".to_owned());
    }
    let mut labels = BTreeSet::new();
    for (row, label) in table.row_labels().enumerate() {
        let (wide, cells) = (table.columns.len(), &table.rows[row]);
        if cells.len() != wide {
            return Err(format!(
                "row `{label}` has {} cells for {wide} columns",
                cells.len()
            ));
        }
        let figures = table
            .columns
            .iter()
            .zip(cells)
            .filter(|(column, _)| column.kind.is_number());
        for (column, cell) in figures {
            if cell.value.is_none() {
                let (name, printed) = (&column.name, &cell.printed);
                return Err(format!(
                    "row `{label}`, column `{name}`: `{printed}` is no number"
                ));
            }
        }
        if !labels.insert(label.clone()) {
            return Err(format!("two rows `{label}`"));
        }
    }
    if table.rows.is_empty() {
        return Err("no rows".to_owned());
    }
    table.fits.iter().try_for_each(|fit| check_fit(table, fit))
}

/// What is fitted leaves enough to predict: of the table, or where that has no three rows, of all
/// that was published of the workload, for the same rows of other kernels stand in tables of their
/// own.
fn check_fits(table: &PublishedTable, all: &[PublishedTable]) -> Result<(), String> {
    let alone = table.rows.len() >= 3;
    for fit in &table.fits {
        let same = |other: &&PublishedTable| {
            let counts = other.id == table.id || !alone && other.workload == table.workload;
            counts && other.column(&fit.column).is_some()
        };
        let (mut rows, mut fitted) = (0, 0);
        for other in all.iter().filter(same) {
            rows += other.rows.len();
            let of_column = |it: &&FitTo| it.column == fit.column;
            fitted += other.fits.iter().filter(of_column).count();
        }
        let most = (rows / 3).max(1);
        if fitted > most {
            return Err(format!(
                "fit to row `{}`, column `{}`: {fitted} fitted rows are more than {most}, a third; \
                 leave some to predict",
                fit.row, fit.column
            ));
        }
    }
    Ok(())
}

/// What is fitted is a figure of an unpatched kernel.
fn check_fit(table: &PublishedTable, fit: &FitTo) -> Result<(), String> {
    let (row, column) = (&fit.row, &fit.column);
    let cell = format!("fit to row `{row}`, column `{column}`");
    if table.value(row, column).is_none() {
        return Err(format!("{cell}: no such figure"));
    }
    if table.role_of(column) != Some(Role::Unpatched) {
        return Err(format!(
            "{cell}: only what unpatched kernels did may be fitted"
        ));
    }
    if !(fit.least > 0.0 && fit.least < fit.most) {
        let (least, most) = (fit.least, fit.most);
        return Err(format!("{cell}: no values are between {least} and {most}"));
    }
    Ok(())
}

/// A mark names cells that there are, and a pinned one the fit that pins it.
fn check_mark(table: &PublishedTable, mark: &Mark, all: &[PublishedTable]) -> Result<(), String> {
    let fail = |what: String| Err(format!("mark `{}`: {what}", mark.status));
    let no_row = |row: &&String| !table.row_labels().any(|label| label == **row);
    if let Some(row) = mark.row.as_ref().filter(no_row) {
        return fail(format!("no row `{row}`"));
    }
    if let Some(column) = mark.column.as_ref().filter(|it| table.column(it).is_none()) {
        return fail(format!("no column `{column}`"));
    }
    let is_some = |name: &String| table.column(name).is_some() || !no_row(&name);
    if let Some(except) = mark.except.iter().find(|it| !is_some(it)) {
        return fail(format!("no row or column `{except}` to leave out"));
    }
    if mark.why.is_empty() {
        return fail("say why".to_owned());
    }
    match (mark.status, &mark.key) {
        (Status::PostHoc, None) => Ok(()),
        (Status::PostHoc, Some(_)) => fail("only pinned cells have a `key`".to_owned()),
        (Status::Pinned, None) => fail("give the `key` of the fit that pins it".to_owned()),
        (Status::Pinned, Some(key)) => {
            let mut fits = all.iter().flat_map(|table| &table.fits);
            match fits.any(|fit| fit.key == *key) {
                true => Ok(()),
                false => fail(format!("nothing of the posting is fitted by `{key}`")),
            }
        }
        _ => fail("only `pinned` and `post-hoc` mark cells".to_owned()),
    }
}
