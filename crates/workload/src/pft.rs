//! `pft`: how many first touches of anonymous memory a machine serves per second.
//!
//! Christoph Lameter's page fault test came with his posting of 2004 about faults without the page
//! table lock. Two programs bear the name, and they measure different things, so both definitions
//! are here ([`Definition`]):
//!
//! ```text
//! process   |fork|start threads| map, touch (each its own) |exit, tear down|   wall: all of it
//! workers    map once |start|   ####touch####                                 wall: first opening
//!                           |     ####touch#####                                  to last closing
//! ```
//!
//! Faults are calculated from the size, as the original does; the faults the target counted stand
//! beside them in [`Outcome::faults`]. Contents are checked once a thread has touched its pages. In
//! the definition *process* the measured time includes that, some 3 loads for every 61 pages; in
//! the definition *workers* it does not.

mod columns;

pub use columns::{Columns, HEADER};

use crate::contents::{LINE, Region, Touch, check_fresh};
use crate::options::{Info, Opt, OptionError, Refused, SIZE_MAX};
use crate::outcome::{self, Outcome};
use crate::target::{Feature, Plan, Prot, Stop, Target, TargetError, Worker};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;

const GIB: u64 = 1 << 30;
/// The mailbox slot that holds the shared region's address.
const REGION: usize = 0;

/// What the registry says about `pft`.
pub const INFO: Info = Info {
    name: "pft",
    about: "first touches of anonymous memory by many threads (Lameter's page fault test, 2004)",
    threads: &[1],
    options: &[
        Opt {
            name: "-b",
            value: "SIZE",
            default: "256M",
            help: "total bytes; the original's default is 16384, one page of its machine",
        },
        Opt {
            name: "-g",
            value: "N",
            default: "none",
            help: "total GiB, instead of -b",
        },
        Opt {
            name: "-f",
            value: "N",
            default: "--threads",
            help: "threads",
        },
        Opt {
            name: "-r",
            value: "N",
            default: "1",
            help: "repetitions, each a process of its own",
        },
        Opt {
            name: "-c",
            value: "N",
            default: "1",
            help: "cachelines of 64 bytes touched per page, one word in each",
        },
        Opt {
            name: "-z",
            value: "",
            default: "off",
            help: "store every word of each page (the original's bzero)",
        },
        Opt {
            name: "--measure",
            value: "process|workers",
            default: "process",
            help: "what is timed: the whole process, each thread mapping its share (2004); or the touch \
                   loops only, over one region mapped beforehand (Schermerhorn's)",
        },
    ],
    refused: &[
        Refused {
            name: "-s",
            why: "threads do not sleep before they exit; omit it",
        },
        Refused {
            name: "-t",
            why: "the title line is always printed; threads are -f",
        },
        Refused {
            name: "-T",
            why: "the title line is always printed; omit it",
        },
        Refused {
            name: "-v",
            why: "calculated and counted faults are always both reported",
        },
        Refused {
            name: "-H",
            why: "`minflt workloads` lists the options",
        },
        Refused {
            name: "-m",
            why: "give the size with -b or -g",
        },
        Refused {
            name: "-n",
            why: "threads of one process are measured, not processes; use -f",
        },
        Refused {
            name: "-l",
            why: "memory is not locked; pages are touched by stores",
        },
        Refused {
            name: "-p",
            why: "there is no memory policy to set",
        },
        Refused {
            name: "-S",
            why: "only anonymous memory is measured, no shared segments",
        },
        Refused {
            name: "-L",
            why: "only anonymous memory is measured, no shared segments",
        },
        Refused {
            name: "-a",
            why: "threads are always bound to CPUs in turn",
        },
        Refused {
            name: "-Z",
            why: "memory is mapped anonymously, never from /dev/zero",
        },
    ],
};

/// The page fault test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pft {
    /// Bytes touched in all (`-b`, or `-g` in GiB).
    pub bytes: u64,
    /// Threads (`-f`), where given; the plan's number must be the same then.
    pub threads: Option<u32>,
    /// Repetitions (`-r`), each a process of its own.
    pub repetitions: u32,
    /// What is stored in each page (`-c`, `-z`).
    pub touch: Touch,
    /// What is measured.
    pub definition: Definition,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Definition {
    /// The program of 2004: each thread maps and touches its own share. Wall time is that of the
    /// processes from before their start until they are torn down, user and system time theirs.
    Process,
    /// Lee Schermerhorn's later program: thread 0 maps one region, and each thread touches the same
    /// number of its pages (rounded up). Only the touch loops are measured: wall time from the
    /// first opening to the last closing, user and system time summed over the threads.
    Workers,
}

impl Default for Pft {
    fn default() -> Self {
        Self {
            bytes: 256 << 20,
            threads: None,
            repetitions: 1,
            touch: Touch::Lines(1),
            definition: Definition::Process,
        }
    }
}

/// How the pages are dealt out.
#[derive(Clone, Copy, Debug)]
struct Shares {
    /// Pages each thread touches.
    pages: u64,
    /// Bytes the size stands for; in the definition *workers* rounded up.
    bytes: u64,
    /// First touches by calculation, all repetitions.
    calculated: u64,
}

impl Pft {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        given.not_both("-b", "-g")?;
        given.not_both("-c", "-z")?;
        let mut pft = Self {
            threads: given.count("-f")?,
            ..Self::default()
        };
        if let Some(bytes) = given.size("-b")? {
            pft.bytes = bytes;
        }
        if let Some(gib) = given.count("-g")? {
            pft.bytes = u64::from(gib) * GIB;
            if pft.bytes > SIZE_MAX {
                return Err(given.error(&format!("-g must be at most {}", SIZE_MAX / GIB)));
            }
        }
        if let Some(repetitions) = given.count("-r")? {
            pft.repetitions = repetitions;
        }
        if let Some(lines) = given.count("-c")? {
            pft.touch = Touch::Lines(lines);
        }
        if given.has("-z") {
            pft.touch = Touch::Whole;
        }
        pft.definition = match given.text("--measure") {
            None | Some("process") => Definition::Process,
            Some("workers") => Definition::Workers,
            Some(other) => {
                return Err(given.error(&format!(
                    "--measure must be process or workers, got `{other}`"
                )));
            }
        };
        Ok(pft)
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let shares = self.shares(threads.max(1), page_size);
        (shares.pages + crate::contents::FRESH_PAGES)
            .saturating_mul(u64::from(threads.max(1)))
            .saturating_mul(page_size)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, a thread has less than a page to touch, or the
    /// target fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let threads = agreed_threads(INFO.name, "-f", self.threads, plan)?;
        let page_size = target.page_size();
        self.touch.fits(page_size)?;
        if let Some(why) = target.lacks(Feature::WholePages)
            && self.touch != Touch::Lines(1)
        {
            let words = format!("pft: {why}, so one word per page is touched; omit -c and -z");
            return Err(unsupported(words));
        }
        let shares = self.shares(threads, page_size);
        if self.bytes / u64::from(threads) < page_size {
            return Err(unsupported(format!(
                "pft: {} bytes are less than a page of {page_size} bytes for each of {threads} \
                 threads; give at least -b {}",
                self.bytes,
                page_size * u64::from(threads)
            )));
        }
        let mut outcome = self.labelled();
        for repetition in 0..self.repetitions {
            match self.definition {
                Definition::Process => outcome.add_process(
                    target.process(plan, |w| touch_own(w, shares.pages, self.touch, repetition))?,
                ),
                Definition::Workers => {
                    let report = target.process(plan, |w| {
                        touch_carved(w, shares.pages, self.touch, repetition)
                    })?;
                    let all = 0..report.workers.len();
                    outcome.add_windows(report, all);
                }
            }
        }
        outcome.pages = shares.calculated;
        let columns = Columns::new(shares.bytes, self.repetitions, threads, &outcome);
        outcome.columns = Some(outcome::Columns::Pft(columns));
        Ok(outcome)
    }

    fn shares(&self, threads: u32, page_size: u64) -> Shares {
        let threads = u64::from(threads);
        let (pages, bytes) = match self.definition {
            Definition::Process => ((self.bytes / threads).div_ceil(page_size), self.bytes),
            Definition::Workers => {
                let pages = self.bytes.div_ceil(page_size).div_ceil(threads);
                (
                    pages,
                    pages.saturating_mul(threads).saturating_mul(page_size),
                )
            }
        };
        let calculated = u128::from(bytes) * u128::from(self.repetitions) / u128::from(page_size);
        Shares {
            pages,
            bytes,
            calculated: u64::try_from(calculated).unwrap_or(u64::MAX),
        }
    }

    /// An outcome that holds nothing but the name and the options.
    fn labelled(&self) -> Outcome {
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("bytes", self.bytes);
        outcome.number("repetitions", self.repetitions);
        match self.touch {
            Touch::Lines(lines) => outcome.number("cachelines", lines),
            Touch::Whole => outcome.text("cachelines", "all words"),
        }
        let measure = match self.definition {
            Definition::Process => "process",
            Definition::Workers => "workers",
        };
        outcome.text("measure", measure);
        outcome
    }
}

/// A thread of the program of 2004: wait for the start, map a share, touch it.
fn touch_own<W: Worker>(w: &mut W, pages: u64, touch: Touch, repetition: u32) -> Result<(), Stop> {
    w.barrier();
    let at = w.map(pages * w.page_size(), Prot::ReadWrite)?;
    let region = Region {
        at,
        pages,
        touch,
        repetition,
    };
    w.window_open();
    region.fill(w)?;
    w.window_close();
    w.ops(pages);
    region.check(w)
}

/// A thread of the later program: touch one's part of the region that thread 0 mapped.
fn touch_carved<W: Worker>(
    w: &mut W,
    pages: u64,
    touch: Touch,
    repetition: u32,
) -> Result<(), Stop> {
    let share = pages * w.page_size();
    let mut mapped = Ok(());
    if w.index() == 0 {
        match w.map(share * u64::from(w.threads()), Prot::ReadWrite) {
            Ok(at) => w.post(REGION, at.0),
            Err(stop) => mapped = Err(stop),
        }
    }
    w.barrier();
    mapped?;
    let base = w.read(REGION);
    if base == 0 {
        // Thread 0 could not map, and says so.
        return Ok(());
    }
    let at = VirtAddr(base + share * u64::from(w.index()));
    let region = Region {
        at,
        pages,
        touch,
        repetition,
    };
    w.window_open();
    let filled = region.fill(w);
    w.window_close();
    // Nobody looks before all have touched.
    w.barrier();
    filled?;
    w.ops(pages);
    region.check(w)?;
    check_fresh(w)
}

const _: () = assert!(LINE == 64, "the help of -c says 64");

#[cfg(test)]
mod tests;
