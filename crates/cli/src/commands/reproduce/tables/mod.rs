//! The postings' tables, published beside simulated.

mod judge;
mod y2004;
mod y2012;
mod y2014;
mod y2017;
mod y2022;

pub(super) use judge::{judge, misses, verdict};
pub(crate) use y2004::beside_ours as pft_beside_ours;
pub(super) use y2004::simulate as simulate_2004;
pub(super) use y2012::simulate as simulate_2012;
pub(super) use y2014::simulate as simulate_2014;
pub(super) use y2017::simulate as simulate_2017;
pub(super) use y2022::simulate as simulate_2022;

use crate::experiment::Ran;
use crate::rows::checks;
use minflt_report::published::{Place, Role};
use minflt_report::{Cell, PublishedTable, Run, Status, Table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Steps of progress for the tables of 2004, of 2012, of 2014, of 2017 and of 2022.
pub(super) const STEPS: [u64; 5] = [12, 1, 15, y2017::STEPS, y2022::STEPS];

/// How groups end whose figures nothing may be fitted to.
const HELD_OUT: &str = "held out";

/// Simulated tables of one posting, with what the page says of them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Simulated {
    pub(super) intro: String,
    pub(super) tables: Vec<Table>,
    pub(super) runs: Vec<Run>,
    pub(super) figures: Figures,
}

impl Simulated {
    fn new(intro: &str) -> Self {
        Self {
            intro: intro.to_owned(),
            tables: Vec::new(),
            runs: Vec::new(),
            figures: Figures::default(),
        }
    }
}

/// The figures of simulated tables.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Figures {
    /// Those that are judged.
    pub(super) compared: Vec<Compared>,
    /// All, by their place in what was published. Where several machines may stand for the
    /// published one, the figures are those of the first.
    #[serde(with = "in_pairs")]
    pub(super) cells: BTreeMap<Place, (f64, Status)>,
}

impl Figures {
    /// Our figure for a published cell.
    fn note(
        &mut self,
        published: &PublishedTable,
        row: usize,
        column: &str,
        (figure, status): (f64, Status),
    ) {
        let place = Place {
            table: published.id.clone(),
            row: published.row_label(row),
            column: column.to_owned(),
        };
        self.cells.entry(place).or_insert((figure, status));
    }

    /// A figure that is judged.
    fn judge(&mut self, compared: Compared) {
        self.compared.push(compared);
    }
}

/// A published figure and ours for it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Compared {
    /// The posting and machine whose figures are judged together.
    pub(super) group: String,
    /// Which kernel: the table's or the column's role.
    pub(super) role: Role,
    /// The row's labels.
    pub(super) row: String,
    /// What is counted: a column, or a row of figures.
    pub(super) what: String,
    pub(super) published: f64,
    pub(super) simulated: f64,
    pub(super) status: Status,
}

fn text(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| {
        let digits = if value.abs() < 100.0 { 3 } else { 0 };
        format!("{value:.digits$}")
    })
}

/// Published, simulated with its status, and the one over the other.
fn beside(published: Option<f64>, simulated: Option<f64>, status: Status) -> [Cell; 3] {
    let ratio = match (published, simulated) {
        (Some(published), Some(simulated)) if published != 0.0 => {
            format!("{:.2}", simulated / published)
        }
        _ => "-".to_string(),
    };
    [
        Cell::from(text(published)),
        Cell::with_status(&text(simulated), status),
        Cell::from(ratio),
    ]
}

/// The oracles' looks of several runs together.
fn looked<'a>(runs: impl Iterator<Item = &'a Run>) -> String {
    let mut all: Option<Run> = None;
    for run in runs {
        match &mut all {
            None => all = Some(run.clone()),
            Some(all) => {
                for (oracle, times) in &run.checks {
                    *all.checks.entry(oracle.clone()).or_insert(0) += times;
                }
            }
        }
    }
    all.as_ref().map_or("none".into(), checks)
}

fn runs_of(ran: &[Ran]) -> impl Iterator<Item = Run> + '_ {
    ran.iter().map(|ran| ran.run.clone())
}

/// Maps as lists of pairs: a key in JSON is a string.
mod in_pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::collections::BTreeMap;

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub(super) fn deserialize<'a, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'a> + Ord,
        V: Deserialize<'a>,
        D: Deserializer<'a>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}
