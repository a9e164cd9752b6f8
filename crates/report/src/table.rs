//! A table as a value, and its two plain forms: text for a terminal and markdown for the docs.
//!
//! No form uses colour; the status of a number stands in words, in the heading of its column or,
//! where a cell differs from its column, behind the number.

use core::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};
use serde::{Deserialize, Serialize};

use crate::status::Status;

/// A table to show: strings, already formatted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// What it shows; may be empty.
    pub title: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows, each with one cell a column.
    pub rows: Vec<Vec<Cell>>,
    /// Remarks under it, one sentence or more each.
    pub footnotes: Vec<String>,
    /// The command that prints it; may be empty.
    pub command: String,
}

/// A column's heading and how its cells are set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// The heading.
    pub name: String,
    /// The unit, shown with the heading; may be empty.
    pub unit: String,
    /// Where its cells are set.
    pub align: Align,
    /// The status of all its cells that have none of their own.
    pub status: Option<Status>,
}

/// Where the cells of a column are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Align {
    /// To the left: words.
    Left,
    /// To the right: numbers.
    Right,
}

/// A cell's text and the status of the number in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// What to show.
    pub text: String,
    /// Its status, if it differs from its column's.
    pub status: Option<Status>,
}

impl Column {
    /// A column of words.
    #[must_use]
    pub fn text(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            unit: String::new(),
            align: Align::Left,
            status: None,
        }
    }

    /// A column of numbers in `unit`, which may be empty.
    #[must_use]
    pub fn number(name: &str, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
            align: Align::Right,
            status: None,
        }
    }

    /// The same column, with a status for all its cells.
    #[must_use]
    pub fn with_status(self, status: Status) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    /// Name, unit and status, as the lines of a heading.
    pub(crate) fn heading(&self) -> Vec<String> {
        let unit = (!self.unit.is_empty()).then(|| format!("({})", self.unit));
        let status = self.status.map(|status| format!("[{status}]"));
        [Some(self.name.clone()), unit, status]
            .into_iter()
            .flatten()
            .collect()
    }
}

impl Cell {
    /// A cell whose number has a status of its own.
    #[must_use]
    pub fn with_status(text: &str, status: Status) -> Self {
        Self {
            text: text.to_owned(),
            status: Some(status),
        }
    }

    /// The status to print behind the text: what neither its column nor the text says already.
    pub(crate) fn label(&self, column: &Column) -> Option<Status> {
        self.status
            .filter(|it| Some(*it) != column.status && it.to_string() != self.text)
    }

    fn shown(&self, column: &Column) -> String {
        match self.label(column) {
            Some(status) => format!("{} [{status}]", self.text),
            None => self.text.clone(),
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            status: None,
        }
    }
}

/// Only a rule under the heading.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('-').junction(' '));

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(title: &str, columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The table as text, as wide as it needs to be, ended by a line feed.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.text(&mut comfy_table::Table::new())
    }

    /// The table as text of at most `width` characters a line where its words can be broken.
    #[must_use]
    pub fn to_text_within(&self, width: u16) -> String {
        let mut layout = comfy_table::Table::new();
        layout
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
        self.text(&mut layout)
    }

    /// The table as text of at most `width` characters a line: headings are broken into several
    /// lines, and the columns that still do not fit are left out and named below. Rows are never
    /// broken, unless the first column alone is too wide; remarks are.
    #[must_use]
    pub fn to_text_fitted(&self, width: usize) -> String {
        let widths = self.widths();
        let mut narrow = self.clone();
        for (column, width) in narrow.columns.iter_mut().zip(&widths) {
            column.name = folded(&column.name, *width, 0, 0);
        }
        // Each column has a space on either side, and one between it and the next.
        let fits = |count: usize| {
            let sum: usize = widths[..count].iter().map(|width| width + 3).sum();
            sum <= width + 1
        };
        let kept = (1..=widths.len()).rev().find(|count| fits(*count));
        let Some(kept) = kept else {
            return self.to_text_within(u16::try_from(width).unwrap_or(u16::MAX));
        };
        let left_out = narrow.columns.split_off(kept);
        narrow.rows.iter_mut().for_each(|row| row.truncate(kept));
        if !left_out.is_empty() {
            let all = &self.columns[kept..];
            let names: Vec<_> = all.iter().map(|column| column.name.as_str()).collect();
            narrow.footnotes.push(format!(
                "not shown, as the terminal is too narrow: {}",
                names.join("; ")
            ));
        }
        let title = self.title.lines().map(|line| folded(line, width, 0, 0));
        narrow.title = title.collect::<Vec<_>>().join("\n");
        for note in &mut narrow.footnotes {
            *note = folded(note, width, 4, 4);
        }
        narrow.text(&mut comfy_table::Table::new())
    }

    /// The width that each column needs where its heading may be broken at spaces.
    fn widths(&self) -> Vec<usize> {
        let of = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            let cells = cells.map(|cell| chars(&cell.shown(column)));
            let words = column.name.split(' ').map(chars);
            let rest = column.heading().into_iter().skip(1).map(|it| chars(&it));
            cells.chain(words).chain(rest).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(of).collect()
    }

    fn text(&self, layout: &mut comfy_table::Table) -> String {
        layout.load_style(STYLE);
        layout.set_header(
            self.columns
                .iter()
                .map(|column| column.heading().join("\n")),
        );
        for row in &self.rows {
            layout.add_row(
                row.iter()
                    .zip(&self.columns)
                    .map(|(cell, column)| cell.shown(column)),
            );
        }
        for (column, set) in self.columns.iter().zip(layout.column_iter_mut()) {
            if column.align == Align::Right {
                set.set_cell_alignment(CellAlignment::Right);
            }
        }
        let title = self.title.lines().map(str::to_owned);
        let body = layout.trim_fmt();
        let notes = self.footnotes.iter().map(|note| format!("  * {note}"));
        let mut lines: Vec<_> = title
            .chain(body.lines().map(|line| line.trim_end().to_owned()))
            .chain(notes)
            .collect();
        lines.push(String::new());
        lines.join("\n")
    }

    /// The table as markdown: its title in bold, the table, its footnotes as a list.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut out = String::new();
        if !self.title.is_empty() {
            out += &format!("**{}**\n\n", markdown(&self.title));
        }
        line(
            &mut out,
            self.columns
                .iter()
                .map(|column| markdown(&column.heading().join(" "))),
        );
        line(
            &mut out,
            self.columns.iter().map(|column| match column.align {
                Align::Left => "---".to_owned(),
                Align::Right => "---:".to_owned(),
            }),
        );
        for row in &self.rows {
            let cells = row.iter().zip(&self.columns);
            line(
                &mut out,
                cells.map(|(cell, column)| markdown(&cell.shown(column))),
            );
        }
        if !self.footnotes.is_empty() {
            out.push('\n');
        }
        for note in &self.footnotes {
            out += &format!("- {}\n", markdown(note));
        }
        out
    }
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

/// The text in lines of at most `width` characters, where its words are no longer. On the first
/// line `used` characters are taken; those after it are indented.
#[must_use]
pub fn folded(text: &str, width: usize, mut used: usize, indent: usize) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        let long = chars(word);
        if !out.is_empty() && used + 1 + long > width {
            out.push('\n');
            out.extend(core::iter::repeat_n(' ', indent));
            used = indent;
        } else if !out.is_empty() {
            out.push(' ');
            used += 1;
        }
        out += word;
        used += long;
    }
    out
}

fn line(out: &mut String, cells: impl Iterator<Item = String>) {
    out.push('|');
    for cell in cells {
        // Writing to a string can't fail.
        let _: core::fmt::Result = write!(out, " {cell} |");
    }
    out.push('\n');
}

fn markdown(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::{Cell, Column, Table};
    use crate::status::Status;

    fn sample() -> Table {
        Table {
            rows: vec![
                vec!["1".into(), "56553.456".into(), "51000".into()],
                vec![
                    "16".into(),
                    "9.5".into(),
                    Cell::with_status("8", Status::Fitted),
                ],
                vec![
                    "a|<b>".into(),
                    "".into(),
                    Cell::with_status("9", Status::Predicted),
                ],
            ],
            footnotes: vec!["A remark.".to_owned()],
            ..Table::new(
                "Faults",
                [
                    Column::text("threads"),
                    Column::number("posting", "faults/s"),
                    Column::number("here", "faults/s").with_status(Status::Predicted),
                ],
            )
        }
    }

    #[test]
    fn text_sets_numbers_to_the_right() {
        let expected = "\
Faults
 threads     posting         here
            (faults/s)     (faults/s)
                          [predicted]
--------- ------------ -------------
";
        let text = sample().to_text();
        assert_eq!(text.lines().next(), expected.lines().next());
        assert_eq!(
            text.lines().nth(4).unwrap().matches('-').count(),
            9 + 12 + 13,
            "{text}"
        );
        assert!(
            text.contains("\n 1          56553.456         51000\n"),
            "{text}"
        );
        assert!(
            text.contains("\n 16               9.5    8 [fitted]\n"),
            "{text}"
        );
        assert!(text.ends_with("\n  * A remark.\n"), "{text}");
        assert!(text.is_ascii() && !text.contains('\x1b'));
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    }

    #[test]
    fn narrow_text_breaks_its_words() {
        let mut table = sample();
        table.rows.push(vec![
            "many words that do not fit".into(),
            "1".into(),
            "2".into(),
        ]);
        assert!(table.to_text().lines().any(|line| line.len() > 48));
        assert!(
            table
                .to_text_within(48)
                .lines()
                .all(|line| line.len() <= 48)
        );
    }

    #[test]
    fn fitted_text_leaves_columns_out_and_names_them() {
        let mut table = sample();
        table.columns[1].name = "as the posting printed it".into();
        table
            .footnotes
            .push("A remark of many words, which are broken.".into());
        let whole = table.to_text_fitted(100);
        assert!(
            whole.contains("[predicted]") && !whole.contains("not shown"),
            "{whole}"
        );
        for width in 12..60 {
            let text = table.to_text_fitted(width);
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(
                widest.is_some_and(|widest| widest <= width.max(13)),
                "{width}: {text}"
            );
            assert_eq!(text.contains("56553.456"), width >= 22, "{width}: {text}");
        }
        let narrow = table.to_text_fitted(30);
        assert!(
            narrow.contains("56553.456") && narrow.contains("narrow: here"),
            "{narrow}"
        );
    }

    #[test]
    fn markdown_escapes_and_aligns() {
        assert_eq!(
            sample().to_markdown(),
            "**Faults**\n\n\
             | threads | posting (faults/s) | here (faults/s) [predicted] |\n\
             | --- | ---: | ---: |\n\
             | 1 | 56553.456 | 51000 |\n\
             | 16 | 9.5 | 8 [fitted] |\n\
             | a\\|&lt;b> |  | 9 |\n\n\
             - A remark.\n"
        );
    }

    #[test]
    fn a_status_is_not_said_twice() {
        let cell = Cell::with_status("not yet", Status::NotYet);
        assert_eq!(cell.shown(&Column::text("status")), "not yet");
    }
}
