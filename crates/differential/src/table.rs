//! What each call and flag of `mm` is, compared with Linux: the one table, and what it says in
//! `docs/linux-compat.md`.

use crate::histogram::Histogram;
use crate::run::Ran;
use core::fmt::Write as _;
use minflt_report::replace_generated;

/// What `mm` does, compared with Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Says {
    /// The same result, errno, mappings and contents.
    Same,
    /// Something else, by design: what.
    Differs(&'static str),
    /// Not there: what happens instead.
    Unsupported(&'static str),
}

use Says::{Differs, Same, Unsupported};

/// A call, a flag of it, or a result: by the name that [`Histogram`] counts it under.
pub const ROWS: &[(&str, Says)] = &[
    ("mmap", Same),
    ("mmap MAP_PRIVATE", Same),
    ("mmap MAP_FIXED", Same),
    ("mmap MAP_FIXED_NOREPLACE", Same),
    ("mmap MAP_POPULATE", Same),
    ("mmap MAP_NORESERVE", Same),
    ("munmap", Same),
    ("mprotect", Same),
    ("mremap", Unsupported("not yet")),
];

/// The fewest steps of a run that a row which says *same* needs to be believed.
pub const HITS: u64 = 100;

/// The rows that say *same* and were hit too rarely.
#[must_use]
pub fn rare(histogram: &Histogram) -> Vec<&'static str> {
    let rows = ROWS.iter().filter(|(_, says)| *says == Same);
    let rare = rows.filter(|(name, _)| histogram.of(name) < HITS);
    rare.map(|(name, _)| *name).collect()
}

/// Fills the generated parts of the page.
///
/// # Errors
/// When the page lacks one of them.
pub fn fill(page: &str, ran: &Ran, command: &str, subjects: &[String]) -> Result<String, String> {
    let mut words = format!("`{command}`: {} steps agree among the model", ran.steps);
    for subject in subjects {
        let _written = write!(words, ", {subject}");
    }
    words.push_str(".\n");
    let parts = [
        ("differential-run", words),
        ("differential-rows", rows_table(&ran.histogram)),
        ("differential-results", ran.histogram.results_table()),
        ("differential-flags", ran.histogram.flags_table()),
    ];
    parts
        .into_iter()
        .try_fold(page.to_owned(), |page, (name, body)| {
            replace_generated(&page, name, &body).map_err(|error| format!("{name}: {error}"))
        })
}

fn rows_table(histogram: &Histogram) -> String {
    let mut text = String::from("| call, flag or result | compared with Linux | steps |\n");
    text.push_str("|---|---|---:|\n");
    for (name, says) in ROWS {
        let name_shown = name.replace('|', "\\|");
        let (says, hits) = match says {
            Same => ("same".to_owned(), histogram.of(name).to_string()),
            Differs(how) => (format!("differs: {how}"), String::new()),
            Unsupported(what) => (format!("unsupported: {what}"), String::new()),
        };
        let _written = writeln!(text, "| `{name_shown}` | {says} | {hits} |");
    }
    text
}
