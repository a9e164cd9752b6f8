//! What a posting claims in one sentence, as two cells of its tables.

use super::{Posting, PublishedCell, PublishedTable};
use serde::{Deserialize, Serialize};

/// A posting's claim: one figure without its change and with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Headline {
    /// What is claimed, in a few words, with the number of threads and the machine.
    pub claim: String,
    /// The cell without the change.
    pub before: Place,
    /// The cell with the change.
    pub after: Place,
    /// Whether less of it is better: times, and counts of faults.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub less: bool,
    /// What a machine with two processors can measure of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<Here>,
    /// Why nothing can be measured of it on a machine with two processors.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_here: String,
}

/// The address of a published cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The table's id.
    pub table: String,
    /// The row's labels.
    pub row: String,
    /// The column's name.
    pub column: String,
}

/// A measured comparison of two eras.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Here {
    /// The workload.
    pub workload: String,
    /// What is measured of it.
    pub rate: String,
    /// The era without the change.
    pub before: String,
    /// The era with it.
    pub after: String,
}

impl Headline {
    /// By which factor the change is better: more of what is good, or less of what is bad.
    #[must_use]
    pub fn factor(&self, before: f64, after: f64) -> f64 {
        match self.less {
            true => before / after,
            false => after / before,
        }
    }
}

impl Posting {
    /// The table and the cell at `place`.
    #[must_use]
    pub fn at(&self, place: &Place) -> Option<(&PublishedTable, &PublishedCell)> {
        let table = self.tables.iter().find(|table| table.id == place.table)?;
        Some((table, table.cell(&place.row, &place.column)?))
    }
}

/// Both cells are figures, and a claim that nothing is measured of says why.
pub(super) fn check(posting: &Posting, headline: &Headline) -> Result<(), String> {
    let claim = &headline.claim;
    if claim.is_empty() {
        return Err("headline: the `claim` is empty".to_owned());
    }
    for place in [&headline.before, &headline.after] {
        let value = posting.at(place).and_then(|(_, cell)| cell.value);
        if !value.is_some_and(|value| value > 0.0) {
            let Place { table, row, column } = place;
            return Err(format!(
                "headline `{claim}`: no figure in table `{table}`, row `{row}`, column `{column}`"
            ));
        }
    }
    if headline.here.is_some() != headline.not_here.is_empty() {
        return Err(format!(
            "headline `{claim}`: give either `here` or `not_here`"
        ));
    }
    Ok(())
}
