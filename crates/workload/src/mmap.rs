//! `mmap1` and `mmap2`: map 128 MiB and unmap it, untouched, again and again.
//!
//! After the tests of that name of will-it-scale: `mmap1` maps private anonymous memory, `mmap2` a
//! file of each task's own, privately too. Nothing of the mapping is touched, so what is measured
//! is the writers of the address space, one operation a round. `mmap2` needs a target that has
//! files.
//!
//! Checked after the window: fresh memory reads 0 and keeps what is stored; a file that nobody
//! wrote reads 0, also after a private store to an earlier mapping of it.

use crate::contents::{check_fresh, checked_round, expect};
use crate::options::{Info, Opt, OptionError};
use crate::outcome::Outcome;
use crate::target::{
    Feature, Oracle, Plan, Prot, Sharing, Spaces, Stop, Target, TargetError, Worker,
};
use crate::will_it_scale::{self, NOT_BOUND, TASKS, Tasks};
use crate::workload::unsupported;
use minflt_addr::VirtAddr;

const LEN: Opt = Opt {
    name: "--len",
    value: "SIZE",
    default: "128M",
    help: "bytes mapped in each round",
};
/// Pages touched by the check.
const CHECKED: u64 = 64;

const OPTIONS: &[Opt] = &[
    LEN,
    will_it_scale::rounds("10000"),
    TASKS,
    will_it_scale::WARM_UP,
    will_it_scale::mode("threads"),
];

/// What the registry says about `mmap1`.
pub const INFO1: Info = Info {
    name: "mmap1",
    about: "tasks map and unmap 128 MiB of anonymous memory, untouched (will-it-scale)",
    threads: &[1],
    options: OPTIONS,
    refused: &[NOT_BOUND],
};

/// What the registry says about `mmap2`.
pub const INFO2: Info = Info {
    name: "mmap2",
    about: "tasks map and unmap 128 MiB of a file each, privately, untouched (will-it-scale)",
    ..INFO1
};

/// What is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Nothing: anonymous memory (`mmap1`).
    Anonymous,
    /// A file of each task's own (`mmap2`).
    File,
}

/// Either test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mmap {
    /// Which of them it is.
    pub backing: Backing,
    /// Bytes mapped in each round (`--len`).
    pub bytes: u64,
    /// Rounds, and who does them.
    pub tasks: Tasks,
}

impl Mmap {
    /// The test with its defaults.
    #[must_use]
    pub const fn new(backing: Backing) -> Self {
        Self {
            backing,
            bytes: 128 << 20,
            tasks: Tasks {
                rounds: 10_000,
                warm_up: 0,
                count: None,
                spaces: Spaces::Shared,
            },
        }
    }

    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, or its value is wrong.
    pub fn parse(backing: Backing, args: &[String]) -> Result<Self, OptionError> {
        let default = Self::new(backing);
        let given = default.info().given(args)?;
        Ok(Self {
            backing,
            bytes: given.size("--len")?.unwrap_or(default.bytes),
            tasks: Tasks::given(&given, default.tasks)?,
        })
    }

    /// What the registry says about it.
    #[must_use]
    pub const fn info(&self) -> &'static Info {
        match self.backing {
            Backing::Anonymous => &INFO1,
            Backing::File => &INFO2,
        }
    }

    /// Bytes of RAM its pages fill at once, with `threads` tasks and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        u64::from(threads)
            .saturating_mul(CHECKED)
            .saturating_mul(page_size)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, the target has no files to map, or it fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        if self.backing == Backing::File
            && let Some(why) = target.lacks(Feature::Files)
        {
            return Err(unsupported(format!(
                "mmap2: {why}; mmap1 maps anonymous memory, and linux has files"
            )));
        }
        let rate = "mmaps_per_second";
        let body = |w: &mut T::Worker<'_>| self.body(w);
        let mut outcome = self.tasks.run(self.info(), rate, target, plan, body)?;
        outcome.number("bytes", self.bytes);
        Ok(outcome)
    }

    fn body<W: Worker>(&self, w: &mut W) -> Result<(), Stop> {
        self.tasks.measure(w, 1, |w| {
            let at = self.map(w)?;
            w.unmap(at, self.bytes)
        })?;
        checked_round(w, CHECKED, 0)?;
        check_fresh(w)?;
        match self.backing {
            Backing::Anonymous => Ok(()),
            Backing::File => self.check_file(w),
        }
    }

    fn map<W: Worker>(&self, w: &mut W) -> Result<VirtAddr, Stop> {
        match self.backing {
            Backing::Anonymous => w.map(self.bytes, Prot::ReadWrite),
            Backing::File => w.map_file(self.bytes, Prot::ReadWrite, Sharing::Private),
        }
    }

    fn check_file<W: Worker>(&self, w: &mut W) -> Result<(), Stop> {
        for _ in 0..2 {
            let at = self.map(w)?;
            expect(w, at, 0)?;
            w.store(at, 1)?;
            expect(w, at, 1)?;
            w.unmap(at, self.bytes)?;
        }
        w.checked(Oracle::Contents, 4);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Backing, Mmap};
    use crate::fake::{Fake, plan};
    use crate::target::Spaces;

    fn small(backing: Backing, spaces: Spaces) -> Mmap {
        let mut test = Mmap::new(backing);
        test.tasks.rounds = 7;
        test.tasks.spaces = spaces;
        test
    }

    #[test]
    fn a_round_is_an_operation_and_touches_nothing() {
        for backing in [Backing::Anonymous, Backing::File] {
            for spaces in [Spaces::Shared, Spaces::Own] {
                let outcome = small(backing, spaces)
                    .run(&Fake::default(), &plan(3))
                    .unwrap();
                assert!(outcome.workers.iter().all(|worker| worker.ops == 7));
                assert_eq!(outcome.faults, 0);
                let rate = outcome.rates["mmaps_per_second"];
                assert!((rate - 21.0 * 1e9 / outcome.wall_ns as f64).abs() < 1e-3);
                assert!(outcome.checks["contents"] > 0);
            }
        }
    }

    #[test]
    fn a_target_without_files_is_told_so() {
        let bare = Fake {
            bare: true,
            ..Fake::default()
        };
        let run = |backing| small(backing, Spaces::Shared).run(&bare, &plan(1));
        assert!(run(Backing::Anonymous).is_ok());
        assert_eq!(
            run(Backing::File).unwrap_err().to_string(),
            "mmap2: the fake is bare; mmap1 maps anonymous memory, and linux has files"
        );
    }

    #[test]
    fn options_are_those_of_the_original_and_the_mode() {
        let args = ["-s5", "-t", "3", "--mode", "processes"].map(str::to_owned);
        let test = Mmap::parse(Backing::File, &args).unwrap();
        assert_eq!((test.tasks.rounds, test.tasks.count), (5, Some(3)));
        assert_eq!((test.tasks.spaces, test.bytes), (Spaces::Own, 128 << 20));
        let error = Mmap::parse(Backing::File, &["-m".to_owned()]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "mmap2: -m is not supported: tasks are always bound to CPUs in turn"
        );
    }
}
