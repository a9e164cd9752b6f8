//! What was run: how often each call, each flag and each result.

use crate::record::Record;
use crate::step::{Kind, Step};
use crate::window::Window;
use std::collections::BTreeMap;

/// Counts by name: `mmap`, `mmap ENOMEM`, `mmap MAP_FIXED`, `madvise MADV_FREE`.
#[derive(Clone, Default, Debug)]
pub struct Histogram {
    counts: BTreeMap<String, u64>,
    results: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Histogram {
    /// Counts a case.
    pub fn add(&mut self, steps: &[Step], records: &[Record]) {
        let window = Window::of(steps);
        for (step, record) in steps.iter().zip(records) {
            self.count(step, record, window);
        }
    }

    fn count(&mut self, step: &Step, record: &Record, window: Window) {
        let call = match window {
            Window::Huge if !step.call.is_of_huge_pages() => format!("huge_{}", step.call.name()),
            _ => step.call.name().to_owned(),
        };
        let word = record.outcome.word();
        self.one(call.clone());
        self.one(format!("{call} {word}"));
        *self
            .results
            .entry(call.clone())
            .or_default()
            .entry(word)
            .or_default() += 1;
        for (kind, arg) in step.call.kinds().iter().zip(step.args) {
            let (names, values) = match kind {
                Kind::Set(names) => {
                    let set = names.names.iter().filter(|(_, bit)| arg & bit != 0);
                    let known = names.names.iter().fold(0, |all, (_, bit)| all | bit);
                    let mut values: Vec<&str> = set.map(|(name, _)| *name).collect();
                    if arg == 0 {
                        values.push("NONE");
                    }
                    if arg & !known != 0 {
                        values.push("unknown");
                    }
                    (names, values)
                }
                Kind::One(names) => {
                    let named = names.names.iter().find(|(_, value)| *value == arg);
                    (names, vec![named.map_or("unknown", |(name, _)| *name)])
                }
                Kind::Addr | Kind::Len | Kind::Number => continue,
            };
            for value in values {
                self.one(format!("{call} {}{value}", names.prefix));
            }
        }
    }

    fn one(&mut self, name: String) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// How often `name` was counted.
    #[must_use]
    pub fn of(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// The calls with how often each ended how, as a table.
    #[must_use]
    pub fn results_table(&self) -> String {
        let mut text = String::from("| call | steps | results |\n|---|---:|---|\n");
        for (call, results) in &self.results {
            let each = results
                .iter()
                .map(|(word, count)| format!("{word} {count}"));
            let each: Vec<String> = each.collect();
            let line = format!("| `{call}` | {} | {} |\n", self.of(call), each.join(", "));
            text.push_str(&line);
        }
        text
    }

    /// The flags of the calls with how often each was given, as a table.
    #[must_use]
    pub fn flags_table(&self) -> String {
        let mut text = String::from("| call | flags |\n|---|---|\n");
        for call in self.results.keys() {
            let begins = format!("{call} ");
            let ours = self.counts.iter().filter_map(|(name, count)| {
                let flag = name.strip_prefix(&begins)?;
                flag.contains('_').then_some((flag, count))
            });
            let flags: Vec<String> = ours
                .filter(|(flag, _)| !flag.starts_with("SEGV_") && !flag.starts_with("BUS_"))
                .map(|(flag, count)| format!("`{}` {count}", flag.replace('|', "\\|")))
                .collect();
            if !flags.is_empty() {
                text.push_str(&format!("| `{call}` | {} |\n", flags.join(", ")));
            }
        }
        text
    }
}
