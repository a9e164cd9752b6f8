//! `hugetlb-fault`, `hugetlb-fork` and `hugetlb-both`: processes fault on one file of huge pages,
//! and fork while they map it.
//!
//! After the two programs of the 2022 posting, which were not published; each instance is a process
//! and loops until its time is over:
//!
//! - `hugetlb-fault`: map the shared file, store a word in every huge page, unmap;
//! - `hugetlb-fork`: map it, store a word in a few pages, fork a child that exits at once, unmap;
//! - `hugetlb-both`: as many instances of the one as of the other, at the same time.
//!
//! ```text
//! faulting   all pages once |#### map, store, store, ... unmap, map, store, ... ####|        check
//! forking    a few once     |## map, store, fork, unmap, map, store, fork, unmap ###|        check
//!                        barrier                                                 barrier
//! ```
//!
//! The file's pages are made and cleared before anything is measured, as one pass of a loop without
//! end would have done; what is measured is finding and mapping them. An instance stores to a word
//! of its own in each page, so that a store that was lost, or went to another page, is seen after
//! the loops. A child that exits at once stores nothing; one more of each forking instance, after
//! the loops, looks at what its parent stored, and its parent at what it stored.
//!
//! Measured: each instance's own operations (pages stored to, children waited for) over its own
//! time, mapping and unmapping included; of these the least, the most and the mean, as posted. The
//! posting's file had 250 GB; how large it is decides how often an instance maps, and from 1 GiB on
//! (what one table of huge entries covers) whether tables can be shared: by instances that map the
//! file at the same offset from a whole GiB, as those that are forked from one program do. Those
//! that are started one by one do not, where addresses are randomized (`--apart`).

mod columns;
mod fault;
mod fork;

pub use columns::{Columns, HEADER, Row};

use crate::options::{Info, Opt, OptionError};
use crate::outcome::{self, Outcome};
use crate::target::{
    Feature, HugePages, Plan, ProcessReport, Prot, Spaces, Stop, Target, TargetError, Worker,
};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;

const SIZE: Opt = Opt {
    name: "--size",
    value: "SIZE",
    default: "64M",
    help: "bytes of the file that all instances map",
};
const SECONDS: Opt = Opt {
    name: "-S",
    value: "SECONDS",
    default: "0.2",
    help: "duration of each instance's loop",
};
const FEW: Opt = Opt {
    name: "--pages",
    value: "N",
    default: "4",
    help: "huge pages that a forking instance stores to before it forks",
};
const APART: Opt = Opt {
    name: "--apart",
    value: "",
    default: "off",
    help: "map the file at different offsets within a GiB, as independently started programs \
           do; so page tables are not shared",
};
const INSTANCES: Opt = Opt {
    name: "-n",
    value: "N",
    default: "--threads",
    help: "instances (of each kind)",
};

/// What the registry says about `hugetlb-fault`.
pub const FAULT: Info = Info {
    name: "hugetlb-fault",
    about: "processes map one file of huge pages, store to every page, unmap (2022)",
    threads: &[1],
    options: &[SIZE, SECONDS, APART, INSTANCES],
    refused: &[],
};

/// What the registry says about `hugetlb-fork`.
pub const FORK: Info = Info {
    name: "hugetlb-fork",
    about: "processes map one file of huge pages, store to a few, fork a child that exits (2022)",
    options: &[SIZE, FEW, SECONDS, APART, INSTANCES],
    ..FAULT
};

/// What the registry says about `hugetlb-both`.
pub const BOTH: Info = Info {
    name: "hugetlb-both",
    about: "as many of hugetlb-fault as of hugetlb-fork at the same time, on the same file (2022)",
    options: &[SIZE, FEW, SECONDS, APART, INSTANCES],
    ..FAULT
};

/// Which of them it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Programs {
    /// `hugetlb-fault`.
    Fault,
    /// `hugetlb-fork`.
    Fork,
    /// `hugetlb-both`.
    Both,
}

/// What an instance does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It stores to every page.
    Fault,
    /// It forks.
    Fork,
}

/// One of the three with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hugetlb {
    /// Which of them it is.
    pub programs: Programs,
    /// Bytes of the file (`--size`), rounded up to huge pages.
    pub bytes: u64,
    /// Huge pages that a forking instance stores to (`--pages`), as far as the file has them.
    pub few: u32,
    /// How long each instance loops, nanoseconds (`-S`). It ends with the page, or the child, that
    /// it is at.
    pub until_ns: u64,
    /// Whether each instance maps the file where it cannot share tables with others (`--apart`).
    pub apart: bool,
    /// Instances of each kind (`-n`), where given; the plan's number must be the same then.
    pub instances: Option<u32>,
}

/// The file's pages, as an instance sees them.
#[derive(Clone, Copy, Debug)]
struct File {
    /// Bytes of a page.
    page: u64,
    /// Pages.
    pages: u64,
    /// Where in each page the instance's own word is.
    word: u64,
    /// When the instance is to end, as time from its start.
    until_ns: u64,
    /// Whether it is mapped where no tables can be shared.
    apart: bool,
}

impl Hugetlb {
    /// The test with its defaults.
    #[must_use]
    pub const fn new(programs: Programs) -> Self {
        Self {
            programs,
            bytes: 64 << 20,
            few: 4,
            until_ns: 200_000_000,
            apart: false,
            instances: None,
        }
    }

    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, or its value is wrong.
    pub fn parse(programs: Programs, args: &[String]) -> Result<Self, OptionError> {
        let default = Self::new(programs);
        let given = default.info().given(args)?;
        Ok(Self {
            programs,
            bytes: given.size("--size")?.unwrap_or(default.bytes),
            few: given.count("--pages")?.unwrap_or(default.few),
            until_ns: given.nanos("-S")?.unwrap_or(default.until_ns),
            apart: given.has("--apart"),
            instances: given.count("-n")?,
        })
    }

    /// What the registry says about it.
    #[must_use]
    pub const fn info(&self) -> &'static Info {
        match self.programs {
            Programs::Fault => &FAULT,
            Programs::Fork => &FORK,
            Programs::Both => &BOTH,
        }
    }

    /// Workers with a plan of so many instances of each kind.
    #[must_use]
    pub const fn workers(&self, threads: u32) -> u32 {
        match self.programs {
            Programs::Fault | Programs::Fork => threads,
            Programs::Both => threads.saturating_mul(2),
        }
    }

    /// Bytes of RAM that the file fills, with huge pages as large as what a table of pages of
    /// `page_size` bytes covers; page tables and stacks come on top.
    #[must_use]
    pub const fn bytes_needed(&self, _threads: u32, page_size: u64) -> u64 {
        self.bytes.next_multiple_of(page_size * (page_size / 8))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, the target has no huge pages, or too few of them, or
    /// it fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let name = self.info().name;
        let instances = agreed_threads(name, "-n", self.instances, plan)?;
        let page = huge_page_size(name, target)?;
        let workers = self.workers(instances);
        let words = page / target.page_size();
        if u64::from(workers) > words {
            return Err(unsupported(format!(
                "{name}: {workers} processes are more than the {words} words of a huge page that \
                 they can have apart; give fewer"
            )));
        }
        let pages = self.bytes.div_ceil(page);
        let plan = self.plan(target, plan, workers, (pages, page));
        let report = target.process(&plan, |w| {
            let file = File {
                page,
                pages,
                word: u64::from(w.index()) * w.page_size(),
                until_ns: self.until_ns,
                apart: self.apart,
            };
            match self.kind_of(w.index(), instances) {
                Kind::Fault => fault::body(w, &file),
                Kind::Fork => fork::body(w, &file, u64::from(self.few).min(pages)),
            }
        })?;
        Ok(self.outcome(report, instances, (pages, page)))
    }

    /// The plan of the processes: as many CPUs as there are workers on, where the plan given has no
    /// fewer CPUs than instances.
    fn plan<T: Target>(
        &self,
        target: &T,
        plan: &Plan,
        workers: u32,
        (pages, page): (u64, u64),
    ) -> Plan {
        let cpus = match plan.cpus >= plan.threads {
            true => workers.min(target.cpus()).max(plan.cpus),
            false => plan.cpus,
        };
        Plan {
            threads: workers,
            cpus,
            spaces: Spaces::Own,
            huge: Some(HugePages {
                count: pages,
                file_bytes: Some(pages * page),
            }),
            ..plan.clone()
        }
    }

    fn kind_of(&self, worker: u32, instances: u32) -> Kind {
        match self.programs {
            Programs::Fault => Kind::Fault,
            Programs::Fork => Kind::Fork,
            Programs::Both if worker < instances => Kind::Fault,
            Programs::Both => Kind::Fork,
        }
    }

    fn outcome(&self, report: ProcessReport, instances: u32, (pages, page): (u64, u64)) -> Outcome {
        let few = u64::from(self.few).min(pages);
        let mut outcome = Outcome {
            workload: self.info().name,
            ..Outcome::default()
        };
        outcome.number("bytes", pages * page);
        outcome.number("until_ns", self.until_ns);
        outcome.text("tables", if self.apart { "apart" } else { "shared" });
        if self.programs != Programs::Fault {
            outcome.number("pages", few);
        }
        let all = 0..report.workers.len();
        outcome.add_windows(report, all);
        let mut columns = Columns::default();
        // As the posting has them: forks above faults.
        for (kind, what) in [(Kind::Fork, "forks"), (Kind::Fault, "faults")] {
            let workers = (0..).zip(&outcome.workers);
            let of_kind = workers.filter(|(at, _)| self.kind_of(*at, instances) == kind);
            let reports: Vec<_> = of_kind.map(|(_, worker)| *worker).collect();
            if reports.is_empty() {
                continue;
            }
            let row = Row::of(what, &reports);
            for (name, rate) in [("min", row.min), ("max", row.max), ("avg", row.avg)] {
                let name = format!("{what}_per_second_{name}");
                outcome.rates.insert(name, rate);
            }
            let ops: u64 = reports.iter().map(|worker| worker.ops).sum();
            outcome.pages += match kind {
                Kind::Fault => ops,
                Kind::Fork => ops * few,
            };
            columns.rows.push(row);
        }
        outcome.columns = Some(outcome::Columns::Hugetlb(columns));
        outcome
    }
}

/// Bytes of a huge page of the target, or why there are none.
pub(crate) fn huge_page_size<T: Target>(workload: &str, target: &T) -> Result<u64, TargetError> {
    match (target.lacks(Feature::HugePages), target.huge_page_size()) {
        (None, Some(bytes)) => Ok(bytes),
        (why, _) => Err(unsupported(format!(
            "{workload}: {}",
            why.unwrap_or("the target has no huge pages")
        ))),
    }
}

impl File {
    /// Bytes of it.
    const fn bytes(&self) -> u64 {
        self.pages * self.page
    }

    /// Where the instance's word of page `page` is, of the file that is mapped at `at`.
    const fn place(&self, at: VirtAddr, page: u64) -> VirtAddr {
        VirtAddr(at.0 + page * self.page + self.word)
    }

    /// Takes the place that the file is not to be mapped at: of each instance another length, below
    /// which the file comes to lie.
    fn settle<W: Worker>(&self, w: &mut W) -> Result<(), Stop> {
        if self.apart {
            w.map((1 + u64::from(w.index())) * self.page, Prot::Read)?;
        }
        Ok(())
    }

    /// Runs `round`, which maps, unmaps and counts, over and over until the instance's time is
    /// over, and returns what it counted. All instances begin together, and none goes on before all
    /// have ended, whatever happened to it.
    fn measure<W: Worker>(
        &self,
        w: &mut W,
        ready: Result<(), Stop>,
        mut round: impl FnMut(&mut W, u64) -> Result<u64, Stop>,
    ) -> Result<u64, Stop> {
        w.barrier();
        w.window_open();
        let end_ns = w.now_ns() + self.until_ns;
        let mut looped = || {
            ready?;
            let mut done = 0;
            while done == 0 || w.now_ns() < end_ns {
                done += round(w, end_ns)?;
            }
            Ok(done)
        };
        let looped = looped();
        w.window_close();
        w.barrier();
        w.ops(looped.unwrap_or(0));
        looped
    }
}

#[cfg(test)]
mod tests;
