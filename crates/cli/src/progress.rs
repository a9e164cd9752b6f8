//! Progress on a terminal; nothing in a pipe.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar of known length.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps` steps; hidden when asked for or where nobody could see it.
    pub(crate) fn new(quiet: bool, steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        if quiet || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style =
            ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed}, about {eta} to go {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// A bar for steps of unlike length, which says how long it will take.
    pub(crate) fn with_estimate(quiet: bool, effort: u64) -> Self {
        let bar = Self::new(quiet, effort);
        let template = "{bar:24} {percent}% {elapsed}, about {eta} to go; done: {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.0.set_style(style);
        }
        bar
    }

    /// So much is done.
    pub(crate) fn advance(&self, effort: u64) {
        self.0.inc(effort);
    }

    /// What is being done.
    pub(crate) fn says(&self, text: &str) {
        self.0.set_message(text.to_string());
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// All is done.
    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
}
