//! A run as a timeline: one lane for each thread, time running down, objects by name.
//!
//! A [`Timeline`] is data: lanes, rows, marks and what may be folded. [`Timeline::draw`] makes text
//! of it. Equal runs have equal timelines on any host: no row contains a host address.
//!
//! Most steps of a run have nothing to do with a race. A row is *kept* if it is a remark, a wait or
//! an interrupt, uses a page's contents, is marked, or touches an object that another thread
//! touches too and that changes during the run. The others are folded. Of a word that a thread
//! reads again between two context switches, with the same result, one row is shown.

mod draw;
mod marks;
mod names;
mod text;

pub use draw::{Colour, Look, Steps};
pub use marks::{Mark, Shape};
pub use names::{Entry, Names, Thing};

use crate::trace::{Event, Step};
use names::Namer;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use text::{Seen, Use};

/// A run, to be drawn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Timeline {
    /// The threads, and the CPUs whose interrupt handlers ran beside them.
    pub lanes: Vec<Lane>,
    /// The steps, in order.
    pub rows: Vec<Row>,
    /// Rows to be folded: those that are not kept, between two that are or two context switches.
    pub folds: Vec<Fold>,
}

/// One thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Lane {
    /// What it does in the scene.
    pub name: String,
    /// The task, from 1.
    pub task: u32,
    /// The CPU that it runs on.
    pub cpu: u32,
}

/// One step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// The number of the scheduling point before it; in virtual time, nanoseconds.
    pub step: u64,
    /// Its thread, by place among [`Timeline::lanes`].
    pub lane: usize,
    /// What it is.
    pub text: String,
    /// The object that it touches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Whether another thread touches that object too, and it changes during the run.
    pub shared: bool,
    /// Whether it is shown where steps are folded.
    pub kept: bool,
    /// The row that says the same, of those between two context switches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<usize>,
    /// What it has to do with the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
}

/// Rows of one thread that do not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Fold {
    /// The thread.
    pub lane: usize,
    /// The first of them.
    pub first: usize,
    /// The last one.
    pub last: usize,
}

impl Timeline {
    /// The timeline of `steps`. The threads are called by `lanes`, in the order of their numbers;
    /// marked is what `shape` looks for, if the run failed.
    #[must_use]
    pub fn of(steps: &[Step], lanes: &[&str], names: &dyn Names, shape: Option<Shape>) -> Self {
        let lanes = lanes_of(steps, lanes);
        let mut namer = Namer::new(names, steps, &lanes);
        let seen: Vec<_> = steps.iter().map(|step| namer.see(step)).collect();
        let shared = shared(&seen);
        let mut rows = Vec::new();
        let mut row_of = BTreeMap::new();
        for (number, (step, seen)) in steps.iter().zip(&seen).enumerate() {
            let Some(text) = namer.text(step) else {
                continue;
            };
            let shared = seen
                .touched
                .as_ref()
                .is_some_and(|it| shared.contains(&it.key));
            row_of.insert(number, rows.len());
            rows.push(Row {
                step: step.at_ns,
                lane: lane_of(&lanes, step.task),
                text,
                object: seen.touched.as_ref().map(|it| it.name.clone()),
                shared,
                kept: shared || speaks(&step.event),
                repeats: None,
                mark: None,
            });
        }
        let marks = shape.map(|shape| marks::of(shape, steps, &seen, names));
        for (number, mark) in marks.into_iter().flatten() {
            if let Some(row) = row_of.get(&number).map(|row| &mut rows[*row]) {
                row.mark = Some(mark);
                row.kept = true;
            }
        }
        let seen_of: BTreeMap<usize, &Seen> = row_of
            .iter()
            .map(|(step, row)| (*row, &seen[*step]))
            .collect();
        repeats(&mut rows, &seen_of);
        let folds = folds(&rows);
        Self { lanes, rows, folds }
    }
}

/// Whether a step is shown whatever it touches.
fn speaks(event: &Event) -> bool {
    !matches!(
        event,
        Event::Access { .. }
            | Event::Holds { .. }
            | Event::Drains { .. }
            | Event::Frees { .. }
            | Event::Charge(_)
    )
}

/// The lanes of the threads named, and of all others that have a step.
fn lanes_of(steps: &[Step], names: &[&str]) -> Vec<Lane> {
    let mut found: BTreeMap<u32, u32> = BTreeMap::new();
    for step in steps {
        found.entry(step.task).or_insert(step.cpu);
    }
    let lane = |(task, cpu): (u32, u32)| Lane {
        name: match names.get(task as usize - 1) {
            Some(name) => (*name).to_owned(),
            None if names.is_empty() => format!("task {task}"),
            None => "interrupts".to_owned(),
        },
        task,
        cpu,
    };
    found.into_iter().map(lane).collect()
}

fn lane_of(lanes: &[Lane], task: u32) -> usize {
    let found = lanes.iter().position(|lane| lane.task == task);
    found.unwrap_or(0)
}

/// The objects that more than one thread touches and at least one changes.
fn shared(seen: &[Seen]) -> BTreeSet<names::Key> {
    let mut objects: BTreeMap<&names::Key, (u32, bool, bool)> = BTreeMap::new();
    for seen in seen {
        let Some(it) = &seen.touched else {
            continue;
        };
        let entry = objects.entry(&it.key).or_insert((seen.task, false, false));
        entry.1 |= entry.0 != seen.task;
        entry.2 |= it.used == Use::Changes;
    }
    let shared = objects
        .into_iter()
        .filter(|(_, (_, several, changes))| *several && *changes);
    shared.map(|(key, _)| key.clone()).collect()
}

/// Finds rows that read a word once more, with the same result, before another thread runs.
fn repeats(rows: &mut [Row], seen: &BTreeMap<usize, &Seen>) {
    let mut read: BTreeMap<String, usize> = BTreeMap::new();
    let mut lane = usize::MAX;
    for row in 0..rows.len() {
        if rows[row].lane != lane {
            read.clear();
            lane = rows[row].lane;
        }
        let Some(touched) = seen.get(&row).and_then(|seen| seen.touched.as_ref()) else {
            continue;
        };
        if touched.used == Use::Changes {
            read.retain(|_, first| rows[*first].object != rows[row].object);
            continue;
        }
        match read.get(&rows[row].text) {
            Some(first) if rows[row].mark.is_none() => rows[row].repeats = Some(*first),
            _ => {
                read.insert(rows[row].text.clone(), row);
            }
        }
    }
}

/// Runs of rows of one lane that are not kept.
fn folds(rows: &[Row]) -> Vec<Fold> {
    let mut folds: Vec<Fold> = Vec::new();
    let mut open = false;
    for (number, row) in rows.iter().enumerate() {
        match folds.last_mut() {
            _ if row.kept => open = false,
            Some(fold) if open && fold.lane == row.lane => fold.last = number,
            _ => {
                open = true;
                folds.push(Fold {
                    lane: row.lane,
                    first: number,
                    last: number,
                });
            }
        }
    }
    folds
}
