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
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
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
