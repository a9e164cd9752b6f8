//! The figures that the five postings published, as data.
//!
//! One TOML file a posting, in `data/postings/`, built into the program:
//!
//! - the posting: `id title author date list source notes`;
//! - `[[headline]]`, what it claims, as two cells of its tables, and what can be measured of it;
//! - `[[table]]`, one each: `id title workload params machine preset also role era status
//!   status_note command notes columns rows checks`, `[[table.suspect]]` for a cell that the
//!   author printed but that cannot be right, `[[table.fit]]` for a cell that a parameter of the
//!   machine is fitted to, and `[[table.mark]]` for cells that are no predictions for another
//!   reason;
//! - `[[summary]]`, of the same shape: figures that only repeat other tables. They are checked,
//!   but they are not counted among the thirty;
//! - `[[held_out]]`, of the same shape: figures of the same author's other postings of the series.
//!   Nothing may ever be fitted to them, and they are not counted either.
//!
//! A row is a list of cells. A cell is the text as printed, thousands' commas and units included;
//! where the print misleads, it is `{ printed = "370.082s", value = 370.82 }`. Columns that name
//! a row are of kind `label`, and a row is addressed by its labels, joined by a comma: `8, time`.
//! What the checks of a table mean stands at [`Rule`].

mod headline;
mod load;
mod view;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::status::Status;
use crate::verify::Rule;

pub use headline::{Headline, Here, Place};
pub use load::{PublishedError, parse, postings};
pub use view::{overview, posting_tables};

/// Settings of a workload or of a configuration, by name.
pub type Params = BTreeMap<String, Value>;

/// One posting with everything it printed in tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Posting {
    /// Its year, by which commands name it.
    pub id: String,
    /// Its subject line.
    pub title: String,
    /// Who posted it.
    pub author: String,
    /// The day it was posted, as far as it is known: `2004-11-20`.
    pub date: String,
    /// The mailing list.
    pub list: String,
    /// What the text is and what is uncertain about it.
    pub source: String,
    /// What holds for all of its tables, traps included.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What it claims.
    #[serde(rename = "headline", default, skip_serializing_if = "Vec::is_empty")]
    pub headlines: Vec<Headline>,
    /// Its tables, in the order of the posting.
    #[serde(rename = "table")]
    pub tables: Vec<PublishedTable>,
    /// Tables that only repeat figures of others.
    #[serde(rename = "summary", default, skip_serializing_if = "Vec::is_empty")]
    pub summaries: Vec<PublishedTable>,
    /// Tables of the author's other postings, to judge by only: a fit to one is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out: Vec<PublishedTable>,
}

/// One published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedTable {
    /// The posting's id, a slash, and a name: `2004/unpatched`.
    pub id: String,
    /// What was run, in one line.
    pub title: String,
    /// The workload, by our name for it where we have one.
    pub workload: String,
    /// The workload's settings.
    #[serde(default)]
    pub params: Params,
    /// The machine, as the posting describes it.
    pub machine: String,
    /// The simulated machine used for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Others that may stand for it: the posting does not say which it was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// Which kernel was measured.
    pub role: Role,
    /// The era used for that kernel, unless each column names its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub era: Option<String>,
    /// The table's status here.
    pub status: Status,
    /// What the status needs said: the missing part, or the reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status_note: String,
    /// The command that reproduces it, where one exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What one should know before comparing, traps included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Its columns, as printed.
    pub columns: Vec<PublishedColumn>,
    /// Its rows, each with one cell a column.
    pub rows: Vec<Vec<PublishedCell>>,
    /// The arithmetic that its figures must satisfy.
    #[serde(default)]
    pub checks: Vec<Rule>,
    /// Printed cells that cannot be right; a check must catch each.
    #[serde(rename = "suspect", default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<Suspect>,
    /// Cells that the simulated machine is fitted to.
    #[serde(rename = "fit", default, skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<FitTo>,
    /// Cells that are no predictions although nothing is fitted to them; the rest are predictions.
    #[serde(rename = "mark", default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// A column of a published table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedColumn {
    /// The heading, as printed.
    pub name: String,
    /// What its cells are.
    #[serde(default)]
    pub kind: Kind,
    /// The unit of its numbers; [`BY_ROW`] if each row has its own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The setting that a label gives: `threads`, `instances`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// Which kernel was measured, where the table holds several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The era used for that kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub era: Option<String>,
    /// Settings of this column alone.
    #[serde(default, skip_serializing_if = "Params::is_empty")]
    pub params: Params,
}

/// The unit of a column whose rows differ in unit: look into the column of kind `unit`.
pub const BY_ROW: &str = "by row";

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A name, or a number that names: it is part of the row's address.
    Label,
    /// The unit of the row's numbers; ours, where the posting has it in the label.
    Unit,
    /// A figure.
    #[default]
    Number,
    /// The standard deviation of the figure to its left.
    Deviation,
}

/// Which kernel a table or a column measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The kernel before the posting's change.
    Unpatched,
    /// The kernel with the change.
    Patched,
    /// An older form of the kernel, put back for comparison.
    Reverted,
    /// Several: each column has its own role.
    Both,
}

/// A printed cell that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suspect {
    /// Its row's labels.
    pub row: String,
    /// Its column's name.
    pub column: String,
    /// What is wrong with it.
    pub why: String,
}

/// A cell that one parameter of the machine's cost model is fitted to.
///
/// Only cells of unpatched kernels can be: what a change brings is to be predicted. At most a third
/// of a column's rows are, or one; a table of fewer than three rows counts with those of the same
/// workload on other kernels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitTo {
    /// Its row's labels.
    pub row: String,
    /// Its column's name.
    pub column: String,
    /// The parameter, as table and key of the machine file: `ns.contended`.
    pub key: String,
    /// The least value that is believable.
    pub least: f64,
    /// The greatest value that is believable.
    pub most: f64,
    /// Why it is this parameter that the cell says most about.
    pub why: String,
}

/// Cells of which a simulated figure is no prediction, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    /// [`Status::Pinned`] or [`Status::PostHoc`].
    pub status: Status,
    /// The row's labels; left out, all rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// The column's name; left out, all columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
    /// Rows, by their labels, and columns, by their names, that it leaves out all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub except: Vec<String>,
    /// Of pinned cells, the fitted number that decides them: a key of some fit of the posting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// What decides them, or what was chosen with them in sight.
    pub why: String,
}

impl Mark {
    /// Whether it is about this cell.
    fn covers(&self, row: &str, column: &str) -> bool {
        let same = |named: &Option<String>, other| named.as_deref().is_none_or(|it| it == other);
        let left_out = |name: &String| name == row || name == column;
        same(&self.row, row) && same(&self.column, column) && !self.except.iter().any(left_out)
    }
}

/// A cell: what was printed, and the number it means.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "CellForm", into = "CellForm")]
pub struct PublishedCell {
    /// The text, as printed.
    pub printed: String,
    /// The number in the column's unit, if the text is one.
    pub value: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum CellForm {
    Plain(String),
    Decoded { printed: String, value: f64 },
}

impl From<CellForm> for PublishedCell {
    fn from(form: CellForm) -> Self {
        match form {
            CellForm::Plain(printed) => Self {
                value: plain_number(&printed),
                printed,
            },
            CellForm::Decoded { printed, value } => Self {
                printed,
                value: Some(value),
            },
        }
    }
}

impl From<PublishedCell> for CellForm {
    fn from(PublishedCell { printed, value }: PublishedCell) -> Self {
        match value {
            Some(value) if plain_number(&printed) != Some(value) => {
                Self::Decoded { printed, value }
            }
            _ => Self::Plain(printed),
        }
    }
}

/// Reads `1,234`, `3.966s` and `-28.0%` as the numbers they look like.
fn plain_number(printed: &str) -> Option<f64> {
    let bare = printed
        .strip_suffix(['s', '%'])
        .unwrap_or(printed)
        .replace(',', "");
    bare.parse().ok().filter(|number: &f64| number.is_finite())
}

impl PublishedTable {
    /// The simulated machines that may stand for the published one.
    pub fn presets(&self) -> impl Iterator<Item = &str> {
        let others = self.also.iter().map(String::as_str);
        self.preset.as_deref().into_iter().chain(others)
    }

    /// The address of row `row`: its labels, joined by a comma and a space.
    #[must_use]
    pub fn row_label(&self, row: usize) -> String {
        let labels = self
            .columns
            .iter()
            .zip(self.rows.get(row).into_iter().flatten());
        let labels = labels.filter(|(column, _)| column.kind == Kind::Label);
        labels
            .map(|(_, cell)| cell.printed.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// The addresses of all rows, in order.
    pub fn row_labels(&self) -> impl Iterator<Item = String> {
        (0..self.rows.len()).map(|row| self.row_label(row))
    }

    /// The column of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&PublishedColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The cell in the row with these labels, in the column of this name.
    #[must_use]
    pub fn cell(&self, row: &str, column: &str) -> Option<&PublishedCell> {
        let row = self.row_labels().position(|label| label == row)?;
        self.cell_at(row, column)
    }

    /// The cell in row number `row`, in the column of this name.
    #[must_use]
    pub fn cell_at(&self, row: usize, column: &str) -> Option<&PublishedCell> {
        let column = self.columns.iter().position(|it| it.name == column)?;
        self.rows.get(row)?.get(column)
    }

    /// The number of the cell in the row with these labels, in the column of this name.
    #[must_use]
    pub fn value(&self, row: &str, column: &str) -> Option<f64> {
        self.cell(row, column)?.value
    }

    /// The value that row number `row` gives to a setting by its labels: its `threads`, say.
    #[must_use]
    pub fn row_param(&self, row: usize, param: &str) -> Option<&PublishedCell> {
        let column = self
            .columns
            .iter()
            .position(|it| it.param.as_deref() == Some(param))?;
        self.rows.get(row)?.get(column)
    }

    /// The unit of the number in row number `row`, in the column of this name.
    #[must_use]
    pub fn unit(&self, row: usize, column: &str) -> Option<&str> {
        let unit = self.column(column)?.unit.as_str();
        if unit != BY_ROW {
            return Some(unit);
        }
        let units = self.columns.iter().position(|it| it.kind == Kind::Unit)?;
        Some(&self.rows.get(row)?.get(units)?.printed)
    }

    /// The role of the column of this name: its own, or the table's.
    #[must_use]
    pub fn role_of(&self, column: &str) -> Option<Role> {
        Some(self.column(column)?.role.unwrap_or(self.role))
    }

    /// The era of the column of this name: its own, or the table's.
    #[must_use]
    pub fn era_of(&self, column: &str) -> Option<&str> {
        self.column(column)?.era.as_deref().or(self.era.as_deref())
    }

    /// Whether the machine is fitted to row number `row` as the kernel of this column gave it. A
    /// row's other figures for the same kernel come from the same run: they are no predictions.
    #[must_use]
    pub fn is_fitted(&self, row: usize, column: &str) -> bool {
        let label = self.row_label(row);
        let same_kernel = |fit: &FitTo| self.era_of(&fit.column) == self.era_of(column);
        let mut fits = self.fits.iter();
        fits.any(|fit| fit.row == label && same_kernel(fit))
    }

    /// What a simulated figure beside the cell is, on a machine that is or is not fitted. Of two
    /// marks of a cell the first one counts. A choice made in sight of it is one on any machine.
    #[must_use]
    pub fn simulated_status(&self, row: usize, column: &str, machine_is_fitted: bool) -> Status {
        let label = self.row_label(row);
        let mut marks = self.marks.iter();
        let mark = marks.find(|mark| mark.covers(&label, column));
        match (machine_is_fitted, mark.map(|mark| mark.status)) {
            (true, _) if self.is_fitted(row, column) => Status::Fitted,
            (true, Some(status)) => status,
            (true, None) => Status::Predicted,
            (false, Some(Status::PostHoc)) => Status::PostHoc,
            (false, _) => Status::Uncalibrated,
        }
    }

    /// How many figures it holds, deviations included and labels not.
    #[must_use]
    pub fn figures(&self) -> usize {
        let numbers = self
            .columns
            .iter()
            .filter(|column| column.kind.is_number())
            .count();
        numbers * self.rows.len()
    }
}

impl Kind {
    /// Whether cells of this kind are figures.
    #[must_use]
    pub const fn is_number(self) -> bool {
        matches!(self, Self::Number | Self::Deviation)
    }
}

#[cfg(test)]
mod tests;
