//! A run drawn as text: one column for each CPU, time running down.
//!
//! Most steps of a run say nothing about a race. Drawn are remarks, waits, interrupts, and accesses
//! to words that more than one task touches and at least one changes.

use crate::run::describe;
use crate::trace::{Event, Place, Step};
use core::fmt;
use minflt_sync::Kind;
use std::collections::BTreeMap;

/// The steps of a run, to be drawn.
#[derive(Clone, Copy)]
pub struct Timeline<'a> {
    /// The steps.
    pub steps: &'a [Step],
    /// Names a place, given as its offset in the machine's memory.
    pub describe: Option<&'a dyn Fn(u64) -> String>,
    /// Characters in a column; longer texts are cut.
    pub width: usize,
}

/// Accesses that stand in the same place are told apart in units of a word.
const WORD: u64 = 8;

impl<'a> Timeline<'a> {
    /// A drawing of `steps` with columns of 44 characters.
    #[must_use]
    pub fn new(steps: &'a [Step]) -> Self {
        Self {
            steps,
            describe: None,
            width: 44,
        }
    }

    /// Names places by `names`.
    #[must_use]
    pub fn describe(self, names: &'a dyn Fn(u64) -> String) -> Self {
        Self {
            describe: Some(names),
            ..self
        }
    }

    /// For each word touched: the one task that touches it (0 if several do), and whether it is
    /// changed.
    fn touched(&self) -> BTreeMap<(u32, u64), (u32, bool)> {
        let mut words = BTreeMap::new();
        for step in self.steps {
            let (place, len, changes) = match &step.event {
                Event::Access {
                    kind,
                    place,
                    len,
                    old,
                    new,
                } => (place, len, kind.writes() && (old.is_none() || old != new)),
                Event::Holds { place, len, .. } | Event::Drains { place, len, .. } => {
                    (place, len, true)
                }
                _ => continue,
            };
            for word in words_of(*place, *len) {
                let entry = words.entry(word).or_insert((step.task, false));
                if entry.0 != step.task {
                    entry.0 = 0;
                }
                entry.1 |= changes;
            }
        }
        words
    }

    fn text(&self, step: &Step, touched: &BTreeMap<(u32, u64), (u32, bool)>) -> Option<String> {
        let name = |place| describe(place, self.describe);
        Some(match &step.event {
            Event::Note(text) => format!("# {text}"),
            Event::Spins {
                place,
                mask: u64::MAX | 0xffff_ffff,
                eq,
            } => {
                format!("spins: {} = {eq:#x}?", name(*place))
            }
            Event::Spins { place, mask, eq } => {
                format!("spins: {} & {mask:#x} = {eq:#x}?", name(*place))
            }
            Event::Holds { place, value, .. } => {
                format!("{}: {value:#x} held back", name(*place))
            }
            Event::Drains {
                place, old, new, ..
            } => format!("{}: {old:#x} -> {new:#x}, drained", name(*place)),
            Event::Sleeps => "sleeps".to_owned(),
            Event::Wakes(task) => format!("wakes task {task}"),
            Event::SendsInterrupt(cpus) => format!("interrupts CPUs {cpus:?}"),
            Event::Interrupt => "takes an interrupt".to_owned(),
            Event::Ends => "ends".to_owned(),
            Event::Charge(_) => return None,
            Event::Access {
                kind,
                place,
                len,
                old,
                new,
            } => {
                let shared = |word| touched.get(&word) == Some(&(0, true));
                if !words_of(*place, *len).any(shared) {
                    return None;
                }
                let place = name(*place);
                match (kind, old, new) {
                    (Kind::Load, _, Some(new)) => format!("{place} is {new:#x}"),
                    (Kind::Rmw, Some(old), Some(new)) if old == new => {
                        format!("{place} stays {new:#x}")
                    }
                    (_, Some(old), Some(new)) => format!("{place}: {old:#x} -> {new:#x}"),
                    (Kind::PlainRead | Kind::Load, ..) => format!("reads {place}"),
                    _ => format!("writes {place}"),
                }
            }
        })
    }
}

impl fmt::Display for Timeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus: Vec<u32> = self.steps.iter().map(|step| step.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let touched = self.touched();
        let width = self.width;
        let mut head = format!("{:>8}", "step");
        for cpu in &cpus {
            head += &format!("  {:width$}", format!("CPU {cpu}"));
        }
        writeln!(f, "{}", head.trim_end())?;
        let several = |cpu: u32| {
            let mut tasks = self
                .steps
                .iter()
                .filter(|step| step.cpu == cpu)
                .map(|step| step.task);
            let first = tasks.next();
            tasks.any(|task| Some(task) != first)
        };
        let many: Vec<bool> = cpus.iter().map(|cpu| several(*cpu)).collect();
        for step in self.steps {
            let Some(mut text) = self.text(step, &touched) else {
                continue;
            };
            let column = cpus.iter().position(|cpu| *cpu == step.cpu).unwrap_or(0);
            if many[column] {
                text = format!("[{}] {text}", step.task);
            }
            if text.chars().count() > width {
                text = text.chars().take(width - 1).chain(['~']).collect();
            }
            let line = format!(
                "{:>8}{:indent$}  {text}",
                step.at_ns,
                "",
                indent = column * (width + 2)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Timeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timeline({} steps)", self.steps.len())
    }
}

/// The words that `len` bytes at `place` touch.
fn words_of(place: Place, len: u32) -> impl Iterator<Item = (u32, u64)> {
    let (task, from) = match place {
        Place::Context { task, offset } => (task + 1, u64::from(offset)),
        Place::Ram(offset) => (0, offset),
    };
    let last = (from + u64::from(len.max(1)) - 1) / WORD;
    (from / WORD..=last).map(move |word| (task, word))
}
