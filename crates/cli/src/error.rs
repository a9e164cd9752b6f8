//! Errors, and their exit statuses.

use core::fmt;

/// Why a command did not do what it was asked to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Error {
    /// It ran and failed: exit status 1.
    Failed(String),
    /// It was asked for what is not there: exit status 2.
    Usage(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) | Self::Usage(text) => f.write_str(text),
        }
    }
}

impl core::error::Error for Error {}

/// A failure of the run, with what it was about.
pub(crate) fn failed(what: impl fmt::Display) -> impl Fn(&dyn fmt::Display) -> Error {
    let what = what.to_string();
    move |error| Error::Failed(format!("{what}: {error}"))
}

/// A usage error.
pub(crate) fn usage(text: impl Into<String>) -> Error {
    Error::Usage(text.into())
}
