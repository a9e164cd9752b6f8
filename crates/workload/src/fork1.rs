//! `fork1`: fork a child that exits at once, and wait for it, again and again.
//!
//! In the manner of will-it-scale, which has no test of this name: each task touches some memory
//! and then forks, one operation a child. What a fork costs is the copying of page tables and, for
//! the parent, breaking the sharing; the child touches nothing.
//!
//! On *linux* the task has what this program had mapped besides, and that is copied, too; so its
//! figure is to be compared with its own only.
//!
//! Checked after the window: a child sees what its parent stored, what it stores itself does not
//! reach the parent, and the parent can store again.

use crate::contents::{Region, Touch};
use crate::options::{Info, Opt, OptionError};
use crate::outcome::Outcome;
use crate::target::{Plan, Prot, Spaces, Stop, Target, TargetError, Worker};
use crate::will_it_scale::{self, NOT_BOUND, TASKS, Tasks};

/// What the registry says about `fork1`.
pub const INFO: Info = Info {
    name: "fork1",
    about: "tasks fork a child that exits at once, and wait for it",
    threads: &[1],
    options: &[
        Opt {
            name: "--resident",
            value: "SIZE",
            default: "1M",
            help: "bytes that each task touches before it forks",
        },
        will_it_scale::rounds("200"),
        TASKS,
        will_it_scale::WARM_UP,
        will_it_scale::mode("processes"),
    ],
    refused: &[NOT_BOUND],
};

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fork1 {
    /// Bytes that a task has touched before it forks (`--resident`), rounded up to pages.
    pub bytes: u64,
    /// Rounds, and who does them.
    pub tasks: Tasks,
}

impl Default for Fork1 {
    fn default() -> Self {
        Self {
            bytes: 1 << 20,
            tasks: Tasks {
                rounds: 200,
                warm_up: 0,
                count: None,
                spaces: Spaces::Own,
            },
        }
    }
}

impl Fork1 {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        let default = Self::default();
        Ok(Self {
            bytes: given.size("--resident")?.unwrap_or(default.bytes),
            tasks: Tasks::given(&given, default.tasks)?,
        })
    }

    /// Bytes of RAM its pages fill at once, with `threads` tasks and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        // The check's child has a copy of its own.
        let pages = self.bytes.div_ceil(page_size).saturating_mul(2);
        pages
            .saturating_mul(page_size)
            .saturating_mul(u64::from(threads))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let pages = self.bytes.div_ceil(target.page_size());
        let body = |w: &mut T::Worker<'_>| self.body(w, pages);
        let mut outcome = self
            .tasks
            .run(&INFO, "forks_per_second", target, plan, body)?;
        outcome.number("resident_bytes", self.bytes);
        Ok(outcome)
    }

    fn body<W: Worker>(&self, w: &mut W, pages: u64) -> Result<(), Stop> {
        let region = touch(w, pages);
        self.tasks.measure(w, 1, |w| w.fork(|_| Ok(())))?;
        let region = region?;
        let by_child = Region {
            repetition: 1,
            ..region
        };
        w.fork(|child| {
            region.check(child)?;
            by_child.fill(child)?;
            by_child.check(child)
        })?;
        region.check(w)?;
        let again = Region {
            repetition: 2,
            ..region
        };
        again.fill(w)?;
        again.check(w)
    }
}

fn touch<W: Worker>(w: &mut W, pages: u64) -> Result<Region, Stop> {
    let region = Region {
        at: w.map(pages * w.page_size(), Prot::ReadWrite)?,
        pages,
        touch: Touch::Lines(1),
        repetition: 0,
    };
    region.fill(w)?;
    Ok(region)
}

#[cfg(test)]
mod tests {
    use super::Fork1;
    use crate::fake::{Fake, plan};
    use crate::target::{Spaces, Stop, TargetError};

    fn small() -> Fork1 {
        let mut test = Fork1 {
            bytes: 64 << 10,
            ..Fork1::default()
        };
        test.tasks.rounds = 5;
        test
    }

    #[test]
    fn a_fork_is_an_operation_and_the_check_is_none() {
        for spaces in [Spaces::Own, Spaces::Shared] {
            let mut test = small();
            test.tasks.spaces = spaces;
            let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
            assert!(outcome.workers.iter().all(|worker| worker.ops == 5));
            assert_eq!(outcome.sleeps, 2 * 6);
            assert_eq!(outcome.faults, 0);
            // Pages 0 and 15, three words each, four times by each task.
            assert_eq!(outcome.checks["contents"], 2 * 4 * 2 * 3);
            assert!(outcome.rates["forks_per_second"] > 0.0);
        }
    }

    #[test]
    fn a_childs_store_that_reaches_the_parent_is_seen() {
        let fake = Fake {
            leaky_fork: true,
            ..Fake::default()
        };
        let error = small().run(&fake, &plan(1)).unwrap_err();
        assert!(
            matches!(
                error,
                TargetError::Stopped {
                    worker: 0,
                    why: Stop::Contents(_, _, _)
                }
            ),
            "{error}"
        );
    }
}
