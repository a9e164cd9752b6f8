//! Fitted numbers: what `minflt calibrate` found, laid over a machine file.
//!
//! A machine file says what is known of a machine; a few of its numbers are guesses that the
//! unpatched rows of a posting say something about. `minflt calibrate` searches for the values at
//! which the simulated rows agree with those, and writes them into `data/fit/MACHINE.toml`: nobody
//! else does. The same check as for the machine file runs over the result, so that a fit cannot
//! contradict what is known.

use super::check::{Key, consistent, key_at, line_at};
use super::{MachineFile, MachineFileError, Source, Sourced};
use serde::{Deserialize, Serialize};

/// The fits that come with the program: machine and text of each file.
pub const FITS: &[(&str, &str)] = &[
    ("altix32", include_str!("../../../../data/fit/altix32.toml")),
    (
        "x86-4n32",
        include_str!("../../../../data/fit/x86-4n32.toml"),
    ),
    (
        "ivb-ex120",
        include_str!("../../../../data/fit/ivb-ex120.toml"),
    ),
    ("kvm16", include_str!("../../../../data/fit/kvm16.toml")),
    (
        "power8-80",
        include_str!("../../../../data/fit/power8-80.toml"),
    ),
    (
        "icx-vm48",
        include_str!("../../../../data/fit/icx-vm48.toml"),
    ),
    (
        "milan-vm48",
        include_str!("../../../../data/fit/milan-vm48.toml"),
    ),
];

/// What was fitted for one machine.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// The machine.
    pub machine: String,
    /// The numbers, in the order in which they were fitted.
    pub fitted: Vec<Fitted>,
}

/// A number of the machine file that was fitted.
#[derive(Clone, PartialEq, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Table and key of the machine file: `ns.wake`.
    pub key: String,
    /// Its value, in the unit of its table.
    pub value: f64,
    /// The figure it was fitted to: table, row and column.
    pub to: String,
    /// That figure as published.
    pub published: f64,
    /// That figure as simulated with all fitted numbers.
    pub simulated: f64,
    /// Why it is this number that the figure says most about.
    pub why: String,
}

impl Fit {
    /// Reads the text of a fit in `file`.
    ///
    /// # Errors
    /// When it is no TOML, or lacks a key or has one too many.
    pub fn parse(file: &str, text: &str) -> Result<Self, MachineFileError> {
        toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let said = error.message().replace('\n', "; ");
            MachineFileError {
                file: file.to_owned(),
                line: Some(line_at(text, start)),
                what: format!(
                    "{}{said}; do not edit it: `minflt calibrate` writes it",
                    key_at(text, start)
                ),
            }
        })
    }

    /// The text of its file.
    ///
    /// # Errors
    /// When a number cannot be written as TOML.
    pub fn to_text(&self) -> Result<String, toml::ser::Error> {
        const HEAD: &str =
            "# Written by `minflt calibrate`, from unpatched rows only. Do not edit.\n\n";
        toml::to_string(self).map(|text| HEAD.to_owned() + &text)
    }

    /// Lays the numbers over `machine`.
    ///
    /// # Errors
    /// When the machine has no such number, or with it contradicts itself.
    pub fn apply(&self, file: &str, machine: &mut MachineFile) -> Result<(), MachineFileError> {
        let wrong = |what| MachineFileError {
            file: file.to_owned(),
            line: None,
            what,
        };
        for fitted in &self.fitted {
            let Some(number) = machine.number_mut(&fitted.key) else {
                return Err(wrong(format!("{}: unknown machine parameter", fitted.key)));
            };
            *number = Sourced {
                value: fitted.value,
                src: Source::Fitted,
                cite: format!("fitted to {}: {}", fitted.to, fitted.why),
            };
        }
        let nowhere = |_: Key| 1;
        consistent(machine, &nowhere)
            .map_err(|(_, what)| wrong(format!("{what}; `minflt calibrate` writes it anew")))
    }
}
