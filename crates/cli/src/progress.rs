//! Progress: a bar on a terminal; elsewhere a line now and then, so that nobody waits in silence.

use crate::out::complain;
use crate::out::outln;
use core::time::Duration;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// How often a line is written where there is no terminal.
pub(crate) const EVERY: Duration = Duration::from_secs(60);
/// The same for the command that a visitor runs first.
pub(crate) const OFTEN: Duration = Duration::from_secs(5);

/// When nothing is begun any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// After `budget`, if one is given.
    #[expect(
        clippy::disallowed_methods,
        reason = "a budget is of this machine's clock, and decides no figure"
    )]
    pub(crate) fn after(budget: Option<Duration>) -> Self {
        // What no clock can count to never comes.
        Self(budget.and_then(|budget| Instant::now().checked_add(budget)))
    }

    /// Whether there is one.
    pub(crate) const fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Whether it has come.
    #[expect(
        clippy::disallowed_methods,
        reason = "a budget is of this machine's clock, and decides no figure"
    )]
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// Says how many pieces of work a budget left out, if it did.
pub(crate) fn left_out(left: usize, of: usize, what: &str) {
    if left > 0 {
        outln!("{left} of {of} {what} left out, as --budget is over");
    }
}

/// A bar of known length.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// The thread that writes lines, until the channel is closed.
    lines: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// A bar of `steps` steps; where there is no terminal a line each minute; nothing if `quiet`.
    pub(crate) fn new(quiet: bool, steps: u64) -> Self {
        Self::every(EVERY, quiet, steps)
    }

    /// The same with a line each `period`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the thread that writes lines touches no machine, and ends with what it reports"
    )]
    pub(crate) fn every(period: Duration, quiet: bool, steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let terminal = std::io::stderr().is_terminal();
        if quiet || !terminal {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        let style = ProgressStyle::with_template(
            "{bar:24} {pos}/{len} {elapsed}, about {eta} to go {wide_msg}",
        );
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if !quiet && terminal {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        let lines = (!quiet && !terminal).then(|| {
            let (sender, ended) = mpsc::channel();
            let bar = bar.clone();
            let lines = thread::spawn(move || {
                while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                    let (done, of) = (bar.position(), bar.length().unwrap_or(0));
                    let seconds = bar.elapsed().as_secs();
                    complain(format_args!(
                        "minflt: {done} of {of} after {seconds} s: {:.60}",
                        bar.message()
                    ));
                }
            });
            (sender, lines)
        });
        Self { bar, lines }
    }

    /// A bar for steps of unlike length, which says how long it will take.
    pub(crate) fn with_estimate(quiet: bool, effort: u64) -> Self {
        let progress = Self::new(quiet, effort);
        let template = "{bar:24} {percent}% {elapsed}, about {eta} to go; done: {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.bar.set_style(style);
        }
        progress
    }

    /// So much is done.
    pub(crate) fn advance(&self, effort: u64) {
        self.bar.inc(effort);
    }

    /// What is being done.
    pub(crate) fn says(&self, text: &str) {
        self.bar.set_message(text.to_string());
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    /// Calls `print`, which writes lines, with the bar out of the way.
    pub(crate) fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// All is done.
    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
        if let Some((sender, lines)) = self.lines.take() {
            drop(sender);
            // A thread that could not write a line has nothing to add.
            let _ended = lines.join();
        }
    }
}
