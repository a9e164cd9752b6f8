//! Files that users write, and rows that other programs may have written.

use minflt_report::run::{hash_rows, read_rows, write_rows};
use minflt_report::{published, verify};
use minflt_sim::MachineFile;
use minflt_sim::locks::Curves;
use minflt_sim::machine_file::Fit;

/// The text, if the bytes are one.
fn text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes).ok()
}

/// The keys of a TOML file, those in tables included; none if it is no TOML.
fn keys(text: &str) -> Option<Vec<String>> {
    fn all_of(value: &toml::Value, keys: &mut Vec<String>) {
        match value {
            toml::Value::Table(table) => {
                for (key, value) in table {
                    keys.push(key.clone());
                    all_of(value, keys);
                }
            }
            toml::Value::Array(values) => values.iter().for_each(|value| all_of(value, keys)),
            _ => {}
        }
    }
    let table: toml::Table = text.parse().ok()?;
    let mut keys = Vec::new();
    all_of(&toml::Value::Table(table), &mut keys);
    Some(keys)
}

/// An error about a file that is TOML names a key of it, or one that it lacks.
fn names_a_key(text: &str, what: &str) {
    let Some(keys) = keys(text) else { return };
    let lacks = what.contains("missing field");
    // A key with a `;` of its own is looked for in the whole message.
    let names = keys.iter().any(|key| {
        let said = if key.contains(';') {
            what
        } else {
            problem(what)
        };
        said.contains(key.as_str())
    });
    let comment = what.starts_with('#');
    assert!((lacks || names) && !comment, "no key is named: {what}");
}

/// What a message says before its remedy, which has keys of its own.
fn problem(what: &str) -> &str {
    what.split(';').next().unwrap_or(what)
}

/// A machine file.
///
/// # Panics
/// If an error names no line or no key, or what was read is not written as the same.
pub fn machine_files(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match MachineFile::parse("a file", text) {
        Ok(machine) => {
            let written = machine.to_text();
            assert_eq!(MachineFile::parse("written", &written), Ok(machine));
        }
        Err(error) => {
            let line = error.line.unwrap_or(0);
            let last = text.matches('\n').count() + 1;
            assert!((1..=last).contains(&line), "line {line} of {last}: {error}");
            names_a_key(text, &error.what);
        }
    }
}

/// A file of fitted numbers, laid over the machine it names.
///
/// # Panics
/// As [`machine_files`].
pub fn fit_files(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Fit::parse("a file", text) {
        Ok(fit) => {
            // By its text: a number that is none is not equal to itself.
            let Ok(written) = fit.to_text() else {
                panic!("{fit:?} cannot be written")
            };
            let again = Fit::parse("written", &written).map(|fit| fit.to_text());
            assert_eq!(again, Ok(Ok(written)));
            let Ok(mut machine) = MachineFile::unfitted("x86-4n32") else {
                panic!("a shipped machine is not there")
            };
            if let Err(error) = fit.apply("a file", &mut machine) {
                let keys = error.what.contains(['.', ':']);
                assert!(keys, "no key is named: {error}");
            }
        }
        Err(error) => {
            assert!(error.line.is_some(), "no line is named: {error}");
            names_a_key(text, &error.what);
        }
    }
}

/// A file of published curves.
///
/// # Panics
/// If an error names no key, or what was read lacks a figure.
pub fn lock_files(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Curves::parse("a file", text) {
        Ok(curves) => {
            let points = curves.threads.len();
            let all = curves.measured.values().all(|curve| curve.len() == points);
            assert!(all, "{curves:?}");
        }
        Err(error) => names_a_key(text, &error.to_string()),
    }
}

/// A posting's file: the experiments that `reproduce` makes again.
///
/// # Panics
/// If an error names neither table nor key, or what was read cannot be verified or shown.
pub fn experiment_files(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match published::parse("a file", text) {
        Ok(posting) => {
            let checks = verify(core::slice::from_ref(&posting));
            let shown: Vec<String> = posting
                .tables
                .iter()
                .map(|table| table.to_table().to_text())
                .collect();
            assert!(!checks.is_empty() || !shown.is_empty() || posting.tables.is_empty());
        }
        Err(error) if error.table.is_some() => {}
        Err(error) => names_a_key(text, &error.to_string()),
    }
}

/// Rows, as `--json` writes them.
///
/// # Panics
/// If rows that can be read are not written as rows that read the same.
pub fn rows(bytes: &[u8]) {
    let rows = match read_rows(bytes) {
        Ok(rows) => rows,
        Err(error) => {
            let error = error.to_string();
            let named = error.starts_with("line ") || str::from_utf8(bytes).is_err();
            assert!(named, "no line is named: {error}");
            return;
        }
    };
    let mut written = Vec::new();
    if let Err(error) = write_rows(&mut written, &rows) {
        panic!("rows that were read cannot be written: {error}");
    }
    match read_rows(written.as_slice()) {
        Ok(again) => {
            assert_eq!(again, rows);
            let hash = |rows| hash_rows(rows).ok();
            assert_eq!(hash(&again), hash(&rows));
        }
        Err(error) => panic!("what was written cannot be read: {error}"),
    }
}
