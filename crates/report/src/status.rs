//! The status of a published cell: simulated, measured or not reproduced, and in what sense.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// The status of a published cell, or of the number we set beside it.
///
/// Every number that is shown beside a published one carries its status, so that a claim about a
/// cost model is never mistaken for a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Simulated with parameters fitted to other cells than this one.
    Predicted,
    /// Simulated with parameters fitted to this very cell, among others.
    Fitted,
    /// Simulated; another cell than this one was fitted, and its number decides this one as well.
    Pinned,
    /// Simulated; something of the model was chosen with this cell's published figure in sight.
    PostHoc,
    /// Simulated before any fit.
    Uncalibrated,
    /// Arithmetic or a count of events; no cost model.
    Counted,
    /// From the recording of a real program, replayed.
    Replayed,
    /// Timed on real threads of a real machine.
    Measured,
    /// Timed on real threads, but its rounds differ too much, or its threads were kept waiting for
    /// processors: no figure to rely on.
    TooNoisy,
    /// Not reproduced, for a reason that is stated.
    PublishedOnly,
    /// To be reproduced by a part that is missing.
    NotYet,
}

impl Status {
    /// Every status, in the order of a legend.
    pub const ALL: [Self; 11] = [
        Self::Predicted,
        Self::Fitted,
        Self::Pinned,
        Self::PostHoc,
        Self::Uncalibrated,
        Self::Counted,
        Self::Replayed,
        Self::Measured,
        Self::TooNoisy,
        Self::PublishedOnly,
        Self::NotYet,
    ];

    /// The name as one word: in data files and as a class of style sheets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Fitted => "fitted",
            Self::Pinned => "pinned",
            Self::PostHoc => "post-hoc",
            Self::Uncalibrated => "uncalibrated",
            Self::Counted => "counted",
            Self::Replayed => "replayed",
            Self::Measured => "measured",
            Self::TooNoisy => "too-noisy",
            Self::PublishedOnly => "published-only",
            Self::NotYet => "not-yet",
        }
    }

    /// What the status claims, in one phrase for a legend.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Predicted => "simulated; the cost model was fitted to other cells",
            Self::Fitted => "simulated; the cost model was fitted to this cell",
            Self::Pinned => "simulated; a number fitted to another cell decides this one",
            Self::PostHoc => "simulated; the model was chosen with this cell in sight",
            Self::Uncalibrated => "simulated; the cost model is not fitted yet",
            Self::Counted => "arithmetic or a count of events, no cost model",
            Self::Replayed => "from a recording of a real program",
            Self::Measured => "timed on real threads",
            Self::TooNoisy => "timed on real threads that other work disturbed; no figure",
            Self::PublishedOnly => "not reproduced, for the reason given",
            Self::NotYet => "to come with the part that is named",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::TooNoisy => "too noisy",
            Self::PostHoc => "post hoc",
            Self::NotYet => "not yet",
            other => other.name(),
        })
    }
}

/// A text that names no status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseStatusError(String);

impl fmt::Display for ParseStatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown status `{}`; statuses are:", self.0)?;
        Status::ALL
            .iter()
            .try_for_each(|status| write!(f, " {}", status.name()))
    }
}

impl core::error::Error for ParseStatusError {}

impl FromStr for Status {
    type Err = ParseStatusError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.replace(' ', "-");
        Self::ALL
            .into_iter()
            .find(|status| status.name() == name)
            .ok_or_else(|| ParseStatusError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn every_status_reads_back() {
        for status in Status::ALL {
            assert_eq!(status.to_string().parse(), Ok(status));
            assert_eq!(status.name().parse(), Ok(status));
            let json = serde_json::to_string(&status).unwrap();
            assert_eq!(json, format!("\"{}\"", status.name()));
        }
    }

    #[test]
    fn a_wrong_name_lists_the_right_ones() {
        let error = "guessed".parse::<Status>().unwrap_err().to_string();
        assert!(
            error.contains("guessed") && error.contains("published-only"),
            "{error}"
        );
    }
}
