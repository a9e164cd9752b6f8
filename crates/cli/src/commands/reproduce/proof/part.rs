//! What was measured: tables, rows, and what an era gained over another.

use super::Figure;
use minflt_report::published::Here;
use minflt_report::{Run, Status, Table};
use serde::{Deserialize, Serialize};

/// What was measured of eras on one workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    /// The posting.
    pub(crate) posting: String,
    pub(crate) table: Table,
    pub(crate) runs: Vec<Run>,
    /// A line for each side: its rate and what it gains.
    pub(crate) lines: Vec<String>,
    pub(crate) gains: Vec<Gain>,
}

/// By which factor an era is better than the first of those measured with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gain {
    pub(crate) of: Here,
    pub(crate) factor: Figure,
    /// Why it is no figure, if it is none.
    pub(crate) noise: Option<String>,
}

impl Gain {
    /// The factor with its interval, or why there is none.
    pub(crate) fn shown(&self) -> String {
        match &self.noise {
            Some(why) => format!("too noisy ({why})"),
            None if self.factor.shows_no_difference() => {
                format!("x{}, no difference detectable", self.factor.shown(2))
            }
            None => format!("x{}", self.factor.shown(2)),
        }
    }
}

/// What was measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proof {
    pub(crate) parts: Vec<Part>,
}

impl Proof {
    pub(crate) fn tables(&self) -> Vec<&Table> {
        self.parts.iter().map(|part| &part.table).collect()
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.parts.iter().flat_map(|part| &part.runs)
    }

    /// What was measured of a comparison.
    pub(crate) fn gain(&self, of: &Here) -> Option<&Gain> {
        let mut gains = self.parts.iter().flat_map(|part| &part.gains);
        gains.find(|gain| gain.of == *of)
    }

    /// Whether the first table's row of `era` is too noisy.
    pub(crate) fn is_noisy(&self, era: &str) -> bool {
        let mut rows = self.parts.iter().take(1).flat_map(|part| &part.table.rows);
        let row = rows.find(|row| row.first().is_some_and(|cell| cell.text == era));
        row.and_then(|row| row.get(super::RATE))
            .and_then(|it| it.status)
            == Some(Status::TooNoisy)
    }
}
