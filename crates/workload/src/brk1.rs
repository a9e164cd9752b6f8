//! `brk1`: move the end of the heap up by a page and back, again and again.
//!
//! After test `brk1` of will-it-scale: two operations a round, and the page is not touched;
//! `--touch` stores a word in it each time. The original's threads share one heap, so that they
//! move its end under each other's feet; its processes have a heap each, and they are the default
//! here.
//!
//! Checked after the window, where each task has its own heap: a page that is there again reads 0.

use crate::contents::expect;
use crate::options::{Info, Opt, OptionError};
use crate::outcome::Outcome;
use crate::target::{Oracle, Plan, Spaces, Stop, Target, TargetError, Worker};
use crate::will_it_scale::{self, NOT_BOUND, TASKS, Tasks};
use minflt_addr::VirtAddr;

const ENOMEM: i32 = 12;

/// What the registry says about `brk1`.
pub const INFO: Info = Info {
    name: "brk1",
    about: "tasks grow their heap by a page and shrink it again (will-it-scale)",
    threads: &[1],
    options: &[
        will_it_scale::rounds("10000"),
        TASKS,
        will_it_scale::WARM_UP,
        will_it_scale::mode("processes"),
        Opt {
            name: "--touch",
            value: "",
            default: "off",
            help: "store a word to the new page in each round",
        },
    ],
    refused: &[NOT_BOUND],
};

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Brk1 {
    /// Rounds, and who does them.
    pub tasks: Tasks,
    /// What is done with the page.
    pub page: Page,
}

/// What is done with the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Page {
    /// Nothing.
    Untouched,
    /// A word is stored in it.
    Touched,
}

impl Default for Brk1 {
    fn default() -> Self {
        Self {
            tasks: Tasks {
                rounds: 10_000,
                warm_up: 0,
                count: None,
                spaces: Spaces::Own,
            },
            page: Page::Untouched,
        }
    }
}

impl Brk1 {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        let tasks = Tasks::given(&given, Self::default().tasks)?;
        let page = if given.has("--touch") {
            Page::Touched
        } else {
            Page::Untouched
        };
        if tasks.spaces == Spaces::Shared && page == Page::Touched {
            return Err(
                given.error("--touch needs --mode processes: threads take each other's page away")
            );
        }
        Ok(Self { tasks, page })
    }

    /// Bytes of RAM its pages fill at once, with `threads` tasks and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        u64::from(threads).saturating_mul(page_size)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let body = |w: &mut T::Worker<'_>| self.body(w);
        let mut outcome = self
            .tasks
            .run(&INFO, "brks_per_second", target, plan, body)?;
        if self.page == Page::Touched {
            let rounds = outcome.workers.iter().map(|worker| worker.ops / 2);
            outcome.pages = rounds.sum();
        }
        let touch = match self.page {
            Page::Untouched => "no",
            Page::Touched => "yes",
        };
        outcome.text("touch", touch);
        Ok(outcome)
    }

    fn body<W: Worker>(&self, w: &mut W) -> Result<(), Stop> {
        let start = w.brk(None);
        // The page that comes is the first whole one above.
        let page = VirtAddr(start.0.next_multiple_of(w.page_size()));
        let end = VirtAddr(page.0 + w.page_size());
        self.tasks.measure(w, 2, |w| {
            set(w, end)?;
            if self.page == Page::Touched {
                w.store(page, 1)?;
            }
            set(w, start)
        })?;
        if self.tasks.spaces == Spaces::Shared {
            // Whose page it is now nobody knows.
            return Ok(());
        }
        for value in [1, 2] {
            set(w, end)?;
            expect(w, page, 0)?;
            w.store(page, value)?;
            expect(w, page, value)?;
            set(w, start)?;
        }
        w.checked(Oracle::Contents, 4);
        Ok(())
    }
}

/// The heap ends at `at` from now on.
fn set<W: Worker>(w: &mut W, at: VirtAddr) -> Result<(), Stop> {
    if w.brk(Some(at)) == at {
        Ok(())
    } else {
        Err(Stop::Errno(ENOMEM))
    }
}

#[cfg(test)]
mod tests {
    use super::{Brk1, Page};
    use crate::fake::{Fake, plan};
    use crate::target::{Spaces, Stop, TargetError};

    fn small(page: Page) -> Brk1 {
        let mut test = Brk1 {
            page,
            ..Brk1::default()
        };
        test.tasks.rounds = 5;
        test
    }

    #[test]
    fn a_round_is_two_operations() {
        let outcome = small(Page::Untouched)
            .run(&Fake::default(), &plan(2))
            .unwrap();
        assert!(outcome.workers.iter().all(|worker| worker.ops == 10));
        assert_eq!((outcome.faults, outcome.pages), (0, 0));
        assert_eq!(outcome.checks["contents"], 2 * 4);
        assert!(outcome.rates["brks_per_second"] > 0.0);
    }

    #[test]
    fn a_page_that_is_back_is_touched_for_the_first_time() {
        let outcome = small(Page::Touched)
            .run(&Fake::default(), &plan(2))
            .unwrap();
        assert_eq!((outcome.faults, outcome.pages), (10, 10));
    }

    #[test]
    fn threads_move_one_heaps_end_and_are_not_checked() {
        let mut test = small(Page::Untouched);
        test.tasks.spaces = Spaces::Shared;
        let outcome = test.run(&Fake::default(), &plan(1)).unwrap();
        assert_eq!(outcome.checks["contents"], 0);
        let args = ["--touch", "--mode=threads"].map(str::to_owned);
        let words = Brk1::parse(&args).unwrap_err().to_string();
        assert!(words.contains("--mode processes"), "{words}");
    }

    #[test]
    fn an_old_page_is_seen() {
        let fake = Fake {
            fresh: 7,
            ..Fake::default()
        };
        let error = small(Page::Untouched).run(&fake, &plan(1)).unwrap_err();
        assert!(
            matches!(
                error,
                TargetError::Stopped {
                    why: Stop::Contents(_, 0, 7),
                    ..
                }
            ),
            "{error}"
        );
    }
}
