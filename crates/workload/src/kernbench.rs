//! `kernbench`: many single-threaded processes, the control of the speculative-fault posting.
//!
//! After kernbench 0.50 by Con Kolivas, which builds a Linux kernel several times at several loads
//! and prints what `time` says of each. **The build here is synthetic**: no compiler runs. A run
//! starts *jobs*, each a process of one thread like make's; each takes the next *unit* until none
//! is left, and forks a child that compiles it:
//!
//! ```text
//! job     1 MiB touched | take a unit | fork ... wait | take a unit | ...
//! child                   store in every 64 KiB of the job's | map, touch | compute | check
//!                         | discard half, touch a quarter again | exit
//! ```
//!
//! Memory is counted in bytes: a job touches as much whatever the page size is. What a unit needs
//! is drawn from its number alone ([`Unit::of`]): with u uniform in 0..1, the memory is the largest
//! unit's times (1 + 15 u^3) / 16, many small and few large ones, 0.30 of the largest on average;
//! the time is `--ns-per-kib` for each KiB ([`NS_PER_KIB`]). A build has 16 units for each job of
//! the optimal load, unless `--units` is given, so all loads build the same.
//!
//! Loads, in the original's order, and their jobs:
//!
//! | load | jobs |
//! |---|---|
//! | single (`-s`) | 1 |
//! | half | half the CPUs, 3 instead of 2; left out where that is 1 |
//! | optimal | `-o`, which is `--threads` (0.42: 4 times the CPUs; 0.50: the CPUs) |
//! | maximal | 4 times as many, at most the units (the original: no limit) |
//!
//! **Measured**: each run, from before its first process starts until the last is gone, user and
//! system time and context switches of all processes with their children: what `time -f "%e %U %S
//! %P %c %w"` prints. *Context switches* are the involuntary ones, *sleeps* the voluntary ones. The
//! original's averages of all rows but the first run on from one load into the next (see the tables
//! of the posting); here each load has its own.
//!
//! What a child stored is checked within the run, some 3 loads for every 61 pages.

mod columns;
mod unit;

pub use columns::{Average, Columns, LoadColumns};
pub use unit::{NS_PER_KIB, Unit};

use crate::contents::{Region, Touch, expect};
use crate::options::{Info, Opt, OptionError, Refused};
use crate::outcome::{self, Outcome};
use crate::target::{Oracle, Plan, Prot, Spaces, Stop, Target, TargetError, Worker};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;

/// The mailbox slot that units are taken from.
const NEXT: usize = 0;
/// Bytes that a job has touched before it forks.
const OWN_BYTES: u64 = 1 << 20;
/// A child stores a word in every so many bytes of its parent's memory.
const COPY_EVERY: u64 = 64 << 10;
/// Units for each job of the optimal load.
const UNITS_PER_JOB: u32 = 16;
const RUNS: u32 = 5;
const FAST_RUNS: u32 = 3;

/// What the registry says about `kernbench`.
pub const INFO: Info = Info {
    name: "kernbench",
    about: "a synthetic build by single-threaded processes at several loads; counts are of jobs",
    threads: &[2],
    options: &[
        Opt {
            name: "-n",
            value: "N",
            default: "5, 3 with -f",
            help: "runs of each load",
        },
        Opt {
            name: "-o",
            value: "N",
            default: "--threads",
            help: "jobs of the optimal load",
        },
        Opt {
            name: "-s",
            value: "",
            default: "off",
            help: "runs of a single job, too",
        },
        Opt {
            name: "-H",
            value: "",
            default: "off",
            help: "no half load",
        },
        Opt {
            name: "-O",
            value: "",
            default: "off",
            help: "no optimal load",
        },
        Opt {
            name: "-M",
            value: "",
            default: "off",
            help: "no maximal load",
        },
        Opt {
            name: "-f",
            value: "",
            default: "off",
            help: "no warm-up run, and fewer runs",
        },
        Opt {
            name: "--half",
            value: "N",
            default: "half the CPUs",
            help: "jobs of the half load",
        },
        Opt {
            name: "--units",
            value: "N",
            default: "16 a job of --threads",
            help: "compile units of a run",
        },
        Opt {
            name: "--unit",
            value: "SIZE",
            default: "8M",
            help: "memory of the largest unit",
        },
        Opt {
            name: "--ns-per-kib",
            value: "NS",
            default: "7000",
            help: "computing time for each KiB of a unit's memory",
        },
    ],
    refused: &[
        Refused {
            name: "-h",
            why: "`minflt workloads` lists the options",
        },
        Refused {
            name: "-v",
            why: "`minflt --version` has the version",
        },
    ],
};

/// A load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// One job.
    Single,
    /// Half as many jobs as CPUs.
    Half,
    /// As many as are asked for.
    Optimal,
    /// Many.
    Maximal,
}

/// Whether each load begins warm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Warmth {
    /// A run that is not counted comes first.
    WarmUp,
    /// Not so (`-f`).
    Cold,
}

/// The benchmark with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernbench {
    /// Runs of each load (`-n`).
    pub runs: u32,
    /// The loads, in order.
    pub loads: Vec<Load>,
    /// Jobs of the optimal load (`-o`), where given; the plan's number must be the same then.
    pub optimal: Option<u32>,
    /// Jobs of the half load (`--half`), where given.
    pub half: Option<u32>,
    /// Units of a run (`--units`), where given; see [`Kernbench::units`].
    pub units: Option<u32>,
    /// Bytes of the largest unit (`--unit`).
    pub unit_bytes: u64,
    /// Computing time for each KiB of a unit's memory (`--ns-per-kib`).
    pub ns_per_kib: u32,
    /// Whether a run comes first that is not counted.
    pub warmth: Warmth,
}

impl Default for Kernbench {
    fn default() -> Self {
        Self {
            runs: RUNS,
            loads: vec![Load::Half, Load::Optimal, Load::Maximal],
            optimal: None,
            half: None,
            units: None,
            unit_bytes: 8 << 20,
            ns_per_kib: NS_PER_KIB,
            warmth: Warmth::WarmUp,
        }
    }
}

impl Kernbench {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, or its value is wrong, or no load is left.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        given.not_both("--half", "-H")?;
        let default = Self::default();
        let (warmth, runs) = if given.has("-f") {
            (Warmth::Cold, FAST_RUNS)
        } else {
            (Warmth::WarmUp, RUNS)
        };
        let chosen = [
            (Load::Single, given.has("-s")),
            (Load::Half, !given.has("-H")),
            (Load::Optimal, !given.has("-O")),
            (Load::Maximal, !given.has("-M")),
        ];
        let loads: Vec<_> = chosen
            .iter()
            .filter_map(|(load, chosen)| chosen.then_some(*load))
            .collect();
        if loads.is_empty() {
            return Err(given.error("-H, -O and -M leave no load; leave one of them out"));
        }
        Ok(Self {
            runs: given.count("-n")?.unwrap_or(runs),
            loads,
            optimal: given.count("-o")?,
            half: given.count("--half")?,
            units: given.count("--units")?,
            unit_bytes: given.size("--unit")?.unwrap_or(default.unit_bytes),
            ns_per_kib: given.count("--ns-per-kib")?.unwrap_or(default.ns_per_kib),
            warmth,
        })
    }

    /// Units of each run with `threads` jobs in the optimal load.
    #[must_use]
    pub fn units(&self, threads: u32) -> u32 {
        let units = threads.saturating_mul(UNITS_PER_JOB);
        self.units.unwrap_or(units)
    }

    /// Jobs of `load` with `threads` jobs in the optimal one and `cpus` CPUs; `None` where the load
    /// is left out, because it is no more than a single job.
    #[must_use]
    pub fn jobs(&self, load: Load, threads: u32, cpus: u32) -> Option<u32> {
        match (load, self.half) {
            (Load::Single, _) => Some(1),
            (Load::Half, Some(half)) => Some(half),
            (Load::Half, None) => match cpus / 2 {
                0 | 1 => None,
                2 => Some(3),
                half => Some(half),
            },
            (Load::Optimal, _) => Some(threads),
            (Load::Maximal, _) => {
                let units = self.units(threads);
                Some(threads.saturating_mul(4).min(units).max(threads))
            }
        }
    }

    /// The most jobs of any load.
    #[must_use]
    pub fn most_jobs(&self, threads: u32, cpus: u32) -> u32 {
        let jobs = |load: &Load| self.jobs(*load, threads, cpus);
        self.loads.iter().filter_map(jobs).max().unwrap_or(threads)
    }

    /// Bytes of RAM its pages fill at once, with `threads` jobs in the optimal load and pages of
    /// `page_size` bytes; page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let unit = self.unit_bytes.div_ceil(page_size);
        let own = OWN_BYTES.div_ceil(page_size);
        (unit + own + own.div_ceil(copy_every_pages(page_size)) + 1)
            .saturating_mul(page_size)
            .saturating_mul(u64::from(self.most_jobs(threads, threads)))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, or the target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let threads = agreed_threads(INFO.name, "-o", self.optimal, plan)?;
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("runs", self.runs);
        let units = self.units(threads);
        outcome.number("units", units);
        outcome.number("unit_bytes", self.unit_bytes);
        outcome.number("ns_per_kib", self.ns_per_kib);
        let start = |jobs: u32| {
            // As many CPUs as there are workers on, where the plan has no fewer CPUs than workers.
            let cpus = match plan.cpus >= plan.threads {
                true => jobs.min(target.cpus()),
                false => plan.cpus.min(jobs),
            };
            let plan = Plan {
                threads: jobs,
                cpus,
                spaces: Spaces::Own,
                ..plan.clone()
            };
            target.process(&plan, |w| self.job(w, units))
        };
        if self.warmth == Warmth::WarmUp {
            start(threads)?;
        }
        let mut columns = Columns::default();
        for load in &self.loads {
            let Some(jobs) = self.jobs(*load, threads, plan.cpus) else {
                continue;
            };
            let mut runs = Vec::new();
            let mut wall_ns = 0;
            for _ in 0..self.runs {
                let report = start(jobs)?;
                wall_ns += report.wall_ns;
                runs.push(columns::Point::of(&report));
                outcome.add_process(report);
            }
            let name = load.name();
            outcome.number(&format!("{name}_jobs"), jobs);
            let built = u64::from(units) * u64::from(self.runs);
            outcome.rate(&format!("{name}_load_units_per_second"), built, wall_ns);
            columns.loads.push(LoadColumns::of(*load, jobs, &runs));
        }
        if columns.loads.is_empty() {
            return Err(unsupported(format!(
                "kernbench: the half load of {} CPUs is no more than a single job, and no other \
                 is asked for; give --half, or more --cpus",
                plan.cpus
            )));
        }
        let forks = outcome.workers.iter().map(|worker| worker.ops).sum();
        outcome.rate("forks_per_second", forks, outcome.wall_ns);
        outcome.pages = self.first_touches(units, target.page_size())
            * u64::from(self.runs)
            * columns.loads.len() as u64;
        outcome.columns = Some(outcome::Columns::Kernbench(columns));
        Ok(outcome)
    }

    /// First touches of a run's units, by calculation: without the jobs' own pages, and without
    /// those copied.
    fn first_touches(&self, units: u32, page_size: u64) -> u64 {
        let pages = |unit| Unit::of(unit, self.unit_bytes, page_size).pages;
        (0..u64::from(units))
            .map(|unit| pages(unit) + pages(unit) / 4)
            .sum()
    }

    /// A job: takes units until there are no more.
    fn job<W: Worker>(&self, w: &mut W, units: u32) -> Result<(), Stop> {
        w.window_open();
        let pages = OWN_BYTES.div_ceil(w.page_size());
        let own = Region {
            at: w.map(pages * w.page_size(), Prot::ReadWrite)?,
            pages,
            touch: Touch::Lines(1),
            repetition: 0,
        };
        own.fill(w)?;
        loop {
            let number = w.claim(NEXT);
            if number >= u64::from(units) {
                break;
            }
            let unit = Unit::of(number, self.unit_bytes, w.page_size());
            w.fork(|child| compile(child, &own, &unit, self.ns_per_kib))?;
            w.ops(1);
        }
        // Nothing that the children stored has come here.
        own.check(w)?;
        w.window_close();
        Ok(())
    }
}

impl Load {
    const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Half => "half",
            Self::Optimal => "optimal",
            Self::Maximal => "maximal",
        }
    }
}

/// [`COPY_EVERY`] in pages, at least one.
const fn copy_every_pages(page_size: u64) -> u64 {
    let pages = COPY_EVERY / page_size;
    if pages == 0 { 1 } else { pages }
}

/// The child: compiles a unit.
fn compile<W: Worker>(
    w: &mut W,
    parents: &Region,
    unit: &Unit,
    ns_per_kib: u32,
) -> Result<(), Stop> {
    let page_size = w.page_size();
    let every = copy_every_pages(page_size);
    for page in (0..parents.pages).step_by(every as usize) {
        let word = VirtAddr(parents.at.0 + page * page_size + page_size - 8);
        expect(w, word, 0)?;
        w.store(word, 1)?;
        expect(w, word, 1)?;
    }
    w.checked(Oracle::Contents, 2 * parents.pages.div_ceil(every));
    let repetition = unit.number as u32;
    let region = Region {
        at: w.map(unit.pages * page_size, Prot::ReadWrite)?,
        pages: unit.pages,
        touch: Touch::Lines(1),
        repetition,
    };
    region.fill(w)?;
    w.compute(unit.compute_ns(ns_per_kib));
    region.check(w)?;
    let half = unit.pages.div_ceil(2);
    w.discard(region.at, half * page_size)?;
    let again = Region {
        pages: unit.pages / 4,
        repetition: repetition + 1,
        ..region
    };
    again.fill(w)?;
    again.check(w)
}

#[cfg(test)]
mod tests;
