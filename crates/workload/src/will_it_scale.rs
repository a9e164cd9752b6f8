//! What the loops after will-it-scale share: their options, how they run, and what they print.
//!
//! will-it-scale (Anton Blanchard) builds each test twice, for threads of one process and for
//! processes, runs it without end, and prints the operations of each second: the least and the most
//! of any task, and the sum. Here each worker does a fixed number of rounds, so that every target
//! does the same work, and the rates are each worker's operations over its own time.
//!
//! Measured: from the first worker's window to the last's, each around all its rounds. Contents are
//! checked after the window.

use crate::options::{Given, Info, Opt, OptionError, Refused};
use crate::outcome::{self, Outcome, per_second};
use crate::target::{Plan, Spaces, Stop, Target, TargetError, Worker};
use crate::workload::agreed_threads;
use core::fmt;

/// The title of the columns.
pub const HEADER: &str = "tasks          min          max        total  operations/s";

/// Options of all the loops.
pub(crate) const TASKS: Opt = Opt {
    name: "-t",
    value: "N",
    default: "--threads",
    help: "tasks: threads, or processes",
};

/// The same of a loop whose tasks are threads.
pub(crate) const THREADS: Opt = Opt {
    help: "threads",
    ..TASKS
};

/// See [`TASKS`].
pub(crate) const NOT_BOUND: Refused = Refused {
    name: "-m",
    why: "tasks are always bound to CPUs in turn",
};

/// The option that says what a task is, and its default.
pub(crate) const fn mode(default: &'static str) -> Opt {
    Opt {
        name: "--mode",
        value: "threads|processes",
        default,
        help: "run tasks as threads or processes",
    }
}

/// The option that says how many rounds, and its default.
pub(crate) const fn rounds(default: &'static str) -> Opt {
    Opt {
        name: "-s",
        value: "N",
        default,
        help: "rounds of each task (the original's count samples of a second)",
    }
}

/// Rounds that no window has.
pub(crate) const WARM_UP: Opt = Opt {
    name: "--warm-up",
    value: "N",
    default: "none",
    help: "rounds of each task before the measured ones (the original warms up, too)",
};

/// What the loops' options say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tasks {
    /// Rounds of each task (`-s`).
    pub rounds: u32,
    /// Rounds before those (`--warm-up`).
    pub warm_up: u32,
    /// Tasks (`-t`), where given; the plan's number must be the same then.
    pub count: Option<u32>,
    /// What a task is (`--mode`).
    pub spaces: Spaces,
}

impl Tasks {
    /// Reads the options.
    pub(crate) fn given(given: &Given<'_>, default: Self) -> Result<Self, OptionError> {
        let words = [("threads", Spaces::Shared), ("processes", Spaces::Own)];
        let spaces = match given.has("--mode") {
            true => given.one_of("--mode", &words)?,
            false => None,
        };
        Ok(Self {
            rounds: given.count("-s")?.unwrap_or(default.rounds),
            warm_up: given.count("--warm-up")?.unwrap_or(default.warm_up),
            count: given.count("-t")?,
            spaces: spaces.unwrap_or(default.spaces),
        })
    }

    /// Runs `body` in each task. It opens and closes its window and reports its operations, whose
    /// rate is noted as `rate`.
    pub(crate) fn run<T, F>(
        self,
        info: &Info,
        rate: &str,
        target: &T,
        plan: &Plan,
        body: F,
    ) -> Result<Outcome, TargetError>
    where
        T: Target,
        F: for<'w> Fn(&mut T::Worker<'w>) -> Result<(), Stop> + Sync,
    {
        agreed_threads(info.name, "-t", self.count, plan)?;
        let mut outcome = Outcome {
            workload: info.name,
            ..Outcome::default()
        };
        outcome.number("rounds", self.rounds);
        outcome.number("warm_up", self.warm_up);
        let mode = match self.spaces {
            Spaces::Shared => "threads",
            Spaces::Own => "processes",
        };
        outcome.text("mode", mode);
        let plan = Plan {
            spaces: self.spaces,
            ..plan.clone()
        };
        let report = target.process(&plan, body)?;
        let all = 0..report.workers.len();
        outcome.add_windows(report, all);
        let ops = outcome.workers.iter().map(|worker| worker.ops).sum();
        outcome.rate(rate, ops, outcome.wall_ns);
        let columns = Columns::new(&outcome);
        outcome.columns = Some(outcome::Columns::WillItScale(columns));
        Ok(outcome)
    }

    /// The rounds of one task, in its window: all tasks begin together, and none goes on before all
    /// have ended. Each round reports `ops` operations.
    pub(crate) fn measure<W: Worker>(
        self,
        w: &mut W,
        ops: u64,
        mut round: impl FnMut(&mut W) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let warmed = (0..self.warm_up).try_for_each(|_| round(w));
        w.barrier();
        w.window_open();
        let looped = (0..self.rounds).try_for_each(|_| round(w));
        w.window_close();
        w.barrier();
        warmed.and(looped)?;
        w.ops(ops * u64::from(self.rounds));
        Ok(())
    }
}

/// A row under [`HEADER`].
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// Tasks.
    pub tasks: usize,
    /// The least operations per second of a task.
    pub min: f64,
    /// The most operations per second of a task.
    pub max: f64,
    /// The sum over the tasks.
    pub total: f64,
}

impl Columns {
    /// The row of a run whose workers are those of `outcome`; a task without time has no rate.
    #[must_use]
    pub fn new(outcome: &Outcome) -> Self {
        let rates: Vec<_> = outcome
            .workers
            .iter()
            .map(|worker| per_second(worker.ops, worker.end_ns.saturating_sub(worker.start_ns)))
            .map(|rate| rate.unwrap_or(0.0))
            .collect();
        Self {
            tasks: rates.len(),
            min: rates.iter().copied().reduce(f64::min).unwrap_or(0.0),
            max: rates.iter().copied().fold(0.0, f64::max),
            total: rates.iter().sum(),
        }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tasks,
            min,
            max,
            total,
        } = self;
        write!(f, "{tasks:>5} {min:>12.2} {max:>12.2} {total:>12.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;
    use crate::outcome::Outcome;
    use crate::target::WorkerReport;

    #[test]
    fn each_task_has_its_own_rate() {
        let worker = |start_ns, end_ns, ops| WorkerReport {
            start_ns,
            end_ns,
            ops,
            ..WorkerReport::default()
        };
        let outcome = Outcome {
            workers: vec![worker(0, 500, 10), worker(100, 1100, 10), worker(5, 5, 0)],
            ..Outcome::default()
        };
        let columns = Columns::new(&outcome);
        assert_eq!((columns.tasks, columns.min), (3, 0.0));
        assert!((columns.max - 20_000_000.0).abs() < 1.0);
        assert!((columns.total - 30_000_000.0).abs() < 1.0);
        let row = columns.to_string();
        assert_eq!(row, "    3         0.00  20000000.00  30000000.00");
    }
}
