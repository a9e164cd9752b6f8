//! `ebizzy`: threads that copy records into fresh memory and search them there.
//!
//! After ebizzy 0.3 by Valerie Henson, the first benchmark of the posting of 2017, which ran it as
//! `ebizzy -mTRp`. Thread 0 maps some *chunks*, fills them, and makes every other one read-only or
//! maps and unmaps pages between them, so that neighbours do not merge. Then each thread, until the
//! time is over:
//!
//! ```text
//! draw a chunk, with -R a size | map | -T: store a word in each page        | unmap | 1 record
//!                                    | else: copy that much, draw a key, search |
//! ```
//!
//! So `-mTRp` is a storm of mmap, first touches and munmap by many threads in one address space.
//!
//! **Two generators** ([`Generator`]). The copy in the Linux Test Project multiplies its state,
//! which starts at 0, and so always draws 0: with `-R` each record is one mapping of 8 bytes, one
//! page. Other copies compute `state * 1103515245 + 12345` from a constant that all threads start
//! with, so that all draw the same sequence, and a record has 64.5 pages of 4 KiB on average. The
//! posting does not say which it ran; its author's later covers count 0.87 to 0.97 faults a record,
//! which only the first one explains (`docs/postings/2017.md`), so its tables are simulated with
//! that. The second, which does what `-R` says, is the default here.
//!
//! **Differences.** There is no allocator, so memory is always mapped, as with `-m`. Where the
//! original's main thread sleeps and then stops the others, each thread looks at the clock before
//! each record, or does a fixed number of records. The original's `elapsed` is in whole seconds;
//! here it is the time from the first thread's start to the last one's end, so records that end
//! late lengthen it.
//!
//! Measured: from the first thread's window to the last's, around the loops. What a search finds is
//! checked within, as in the original; chunks, and a record by every thread, after it.

mod columns;
mod info;
mod random;

pub use columns::Columns;
pub use info::INFO;
pub use random::{Generator, Random};

use crate::contents::{FRESH_PAGES, check_fresh, checked_round, expect};
use crate::options::OptionError;
use crate::outcome::{self, Outcome};
use crate::target::{Feature, Oracle, Plan, Prot, Stop, Target, TargetError, Worker};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;

/// Bytes of a record, and of an entry of the chunks' table.
const WORD: u64 = 8;
/// The mailbox slot that holds the address of the chunks' table.
const TABLE: usize = 0;

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ebizzy {
    /// What keeps chunks apart (`-p`, `-P`).
    pub apart: Apart,
    /// Chunks (`-n`).
    pub chunks: u32,
    /// Bytes of a chunk (`-s`).
    pub chunk_bytes: u64,
    /// How large a record is (`-R`).
    pub sizes: Sizes,
    /// What is done with a record (`-T`, `-z`).
    pub work: Work,
    /// When to stop (`-S`, `--records`).
    pub until: Until,
    /// Records before the window (`--warm-up`).
    pub warm_up: u32,
    /// Where random numbers come from.
    pub generator: Generator,
    /// What the generator's first state is made from; 0 for the original's.
    pub seed: u32,
    /// Threads (`-t`), where given; the plan's number must be the same then.
    pub threads: Option<u32>,
}

/// What keeps neighbouring chunks apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Apart {
    /// Nothing.
    Nothing,
    /// Every other one is read-only.
    Permissions,
    /// Unmapped pages between them.
    Holes,
    /// Both.
    Both,
}

/// How large a record is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sizes {
    /// As large as a chunk.
    Whole,
    /// A random number of words, up to a chunk.
    Random,
}

/// What is done with a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A word is stored in each page.
    Touch,
    /// A chunk is copied, and a word searched by halves.
    Halves,
    /// A chunk is copied, and a word searched from the first on.
    Linear,
}

/// When a thread stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// After so many nanoseconds.
    Elapsed(u64),
    /// After so many records.
    Records(u32),
}

impl Default for Ebizzy {
    fn default() -> Self {
        Self {
            apart: Apart::Nothing,
            chunks: 10,
            chunk_bytes: 512 << 10,
            sizes: Sizes::Whole,
            work: Work::Halves,
            until: Until::Elapsed(10_000_000_000),
            warm_up: 0,
            generator: Generator::Lcg,
            seed: 0,
            threads: None,
        }
    }
}

impl Ebizzy {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, or its value is wrong.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        given.not_both("-S", "--records")?;
        given.not_both("-T", "-z")?;
        let default = Self::default();
        let until = match (given.nanos("-S")?, given.count("--records")?) {
            (_, Some(records)) => Until::Records(records),
            (Some(ns), None) => Until::Elapsed(ns),
            (None, None) => default.until,
        };
        let chunk_bytes = given.size("-s")?.unwrap_or(default.chunk_bytes);
        if chunk_bytes < WORD {
            return Err(given.error(&format!(
                "-s must be at least a record of {WORD} bytes, got {chunk_bytes}"
            )));
        }
        let generators = [("lcg", Generator::Lcg), ("ltp", Generator::Ltp)];
        let generator = given.one_of("--generator", &generators)?;
        if generator == Some(Generator::Ltp) && given.has("--seed") {
            return Err(given.error("--seed changes nothing for --generator ltp, which draws 0"));
        }
        Ok(Self {
            apart: match (given.has("-p"), given.has("-P")) {
                (false, false) => Apart::Nothing,
                (true, false) => Apart::Permissions,
                (false, true) => Apart::Holes,
                (true, true) => Apart::Both,
            },
            chunks: given.count("-n")?.unwrap_or(default.chunks),
            chunk_bytes,
            sizes: if given.has("-R") {
                Sizes::Random
            } else {
                Sizes::Whole
            },
            work: match (given.has("-T"), given.has("-z")) {
                (true, _) => Work::Touch,
                (false, true) => Work::Linear,
                (false, false) => Work::Halves,
            },
            until,
            warm_up: given.count("--warm-up")?.unwrap_or(default.warm_up),
            generator: generator.unwrap_or(default.generator),
            seed: given.count("--seed")?.unwrap_or(default.seed),
            threads: given.count("-t")?,
        })
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let chunk = self.chunk_bytes.div_ceil(page_size);
        let table = (u64::from(self.chunks) * WORD).div_ceil(page_size);
        chunk
            .max(FRESH_PAGES)
            .saturating_mul(u64::from(self.chunks) + u64::from(threads))
            .saturating_add(table)
            .saturating_mul(page_size)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, the target cannot do what they ask for, or it fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        agreed_threads(INFO.name, "-t", self.threads, plan)?;
        let lacks = target.lacks(Feature::WholePages);
        if let (Some(why), Work::Halves | Work::Linear) = (lacks, self.work) {
            return Err(unsupported(format!(
                "ebizzy: records cannot be copied and searched: {why}; give -T"
            )));
        }
        let pages = match lacks {
            Some(_) => Fill::Pages,
            None => Fill::Words,
        };
        let mut outcome = self.labelled();
        let report = target.process(plan, |w| self.body(w, pages))?;
        let all = 0..report.workers.len();
        outcome.add_windows(report, all);
        let records = outcome.workers.iter().map(|worker| worker.ops).sum();
        outcome.rate("records_per_second", records, outcome.wall_ns);
        if self.sizes == Sizes::Whole {
            let pages = self.chunk_bytes.div_ceil(target.page_size());
            outcome.pages = records.saturating_mul(pages);
        }
        let columns = Columns::new(records, &outcome);
        outcome.columns = Some(outcome::Columns::Ebizzy(columns));
        Ok(outcome)
    }

    /// An outcome that holds nothing but the name and the options.
    fn labelled(&self) -> Outcome {
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("chunks", self.chunks);
        outcome.number("chunk_bytes", self.chunk_bytes);
        let apart = match self.apart {
            Apart::Nothing => "nothing",
            Apart::Permissions => "permissions",
            Apart::Holes => "holes",
            Apart::Both => "permissions and holes",
        };
        outcome.text("apart", apart);
        let sizes = match self.sizes {
            Sizes::Whole => "whole",
            Sizes::Random => "random",
        };
        outcome.text("sizes", sizes);
        let work = match self.work {
            Work::Touch => "touch",
            Work::Halves => "copy and search",
            Work::Linear => "copy and linear search",
        };
        outcome.text("work", work);
        outcome.text("generator", self.generator.name());
        outcome.number("seed", self.seed);
        outcome.number("warm_up", self.warm_up);
        match self.until {
            Until::Elapsed(ns) => outcome.number("until_ns", ns),
            Until::Records(records) => outcome.number("records_per_thread", records),
        }
        outcome
    }

    fn body<W: Worker>(&self, w: &mut W, fill: Fill) -> Result<(), Stop> {
        let table = match w.index() {
            0 => self.set_up(w, fill),
            _ => Ok(VirtAddr(0)),
        };
        w.barrier();
        let table = match table? {
            VirtAddr(0) => VirtAddr(w.read(TABLE)),
            own => own,
        };
        if table.0 == 0 {
            // Thread 0 could not set up, and says so.
            return Ok(());
        }
        let warmed = match self.warm_up {
            0 => Ok(0),
            some => {
                let warmed = self.records(w, table, Until::Records(some));
                w.barrier();
                warmed
            }
        };
        w.window_open();
        let done = self.records(w, table, self.until);
        w.window_close();
        // Nobody looks before all have done their records.
        w.barrier();
        let records = warmed.and(done)?;
        w.ops(records);
        if self.work != Work::Touch {
            w.checked(Oracle::Contents, records);
        }
        if w.index() == 0 {
            self.check_chunks(w, table, fill)?;
        }
        let pages = self.chunk_bytes.div_ceil(w.page_size());
        checked_round(w, pages, 0)?;
        check_fresh(w)
    }

    /// Maps, fills and separates the chunks; returns and posts their table.
    fn set_up<W: Worker>(&self, w: &mut W, fill: Fill) -> Result<VirtAddr, Stop> {
        let page_size = w.page_size();
        let table = w.map(u64::from(self.chunks) * WORD, Prot::ReadWrite)?;
        let mut chunks = Vec::new();
        let mut holes = Vec::new();
        for _ in 0..self.chunks {
            chunks.push(w.map(self.chunk_bytes, Prot::ReadWrite)?);
            if matches!(self.apart, Apart::Holes | Apart::Both) {
                holes.push(w.map(page_size, Prot::ReadWrite)?);
            }
        }
        for hole in holes {
            w.unmap(hole, page_size)?;
        }
        for (number, chunk) in (0..).zip(chunks) {
            w.store(entry(table, number), chunk.0)?;
            let step = fill.step(page_size);
            for at in (0..self.chunk_bytes / WORD * WORD).step_by(step as usize) {
                w.store(VirtAddr(chunk.0 + at), at / WORD)?;
            }
            if matches!(self.apart, Apart::Permissions | Apart::Both) && number % 2 == 0 {
                w.protect(chunk, self.chunk_bytes, Prot::Read)?;
            }
        }
        w.post(TABLE, table.0);
        Ok(table)
    }

    /// The loop; returns how many records it did.
    fn records<W: Worker>(&self, w: &mut W, table: VirtAddr, until: Until) -> Result<u64, Stop> {
        let mut random = Random::new(self.generator, self.seed);
        let started = w.now_ns();
        let mut records = 0;
        loop {
            let over = match until {
                Until::Elapsed(ns) => w.now_ns() - started >= ns,
                Until::Records(limit) => records >= u64::from(limit),
            };
            if over {
                return Ok(records);
            }
            self.record(w, table, &mut random)?;
            records += 1;
        }
    }

    fn record<W: Worker>(
        &self,
        w: &mut W,
        table: VirtAddr,
        random: &mut Random,
    ) -> Result<(), Stop> {
        let chunk = random.below(u64::from(self.chunks));
        let len = match self.sizes {
            Sizes::Whole => self.chunk_bytes,
            Sizes::Random => (random.below(self.chunk_bytes / WORD) + 1) * WORD,
        };
        let copy = w.map(len, Prot::ReadWrite)?;
        if self.work == Work::Touch {
            let page_size = w.page_size();
            for at in (0..len).step_by(page_size as usize) {
                w.store(VirtAddr(copy.0 + at), u64::MAX)?;
            }
        } else {
            let source = w.load(entry(table, chunk))?;
            let words = len / WORD;
            for at in (0..words).map(|word| word * WORD) {
                let value = w.load(VirtAddr(source + at))?;
                w.store(VirtAddr(copy.0 + at), value)?;
            }
            search(w, copy, words, random.below(words), self.work)?;
        }
        w.unmap(copy, len)
    }

    /// The chunks still hold what thread 0 stored: the first word of every 61st page is read.
    fn check_chunks<W: Worker>(&self, w: &mut W, table: VirtAddr, fill: Fill) -> Result<(), Stop> {
        let step = w.page_size() * 61;
        let mut looks = 0;
        for number in 0..u64::from(self.chunks) {
            if fill == Fill::Pages && number + 1 < u64::from(self.chunks) {
                // The table's page holds its last entry only.
                continue;
            }
            let chunk = w.load(entry(table, number))?;
            for at in (0..self.chunk_bytes / WORD * WORD).step_by(step as usize) {
                expect(w, VirtAddr(chunk + at), at / WORD)?;
                looks += 1;
            }
        }
        w.checked(Oracle::Contents, looks);
        Ok(())
    }
}

/// How chunks are filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fill {
    /// Every word.
    Words,
    /// A word in each page, where pages hold one.
    Pages,
}

impl Fill {
    const fn step(self, page_size: u64) -> u64 {
        match self {
            Self::Words => WORD,
            Self::Pages => page_size,
        }
    }
}

/// Where the table holds the address of chunk `number`.
const fn entry(table: VirtAddr, number: u64) -> VirtAddr {
    VirtAddr(table.0 + number * WORD)
}

/// Searches `key` among `words` words from `at` on, each of which holds its number.
fn search<W: Worker>(w: &mut W, at: VirtAddr, words: u64, key: u64, how: Work) -> Result<(), Stop> {
    let nth = |word: u64| VirtAddr(at.0 + word * WORD);
    let (mut low, mut high) = (0, words);
    while low < high {
        let middle = match how {
            Work::Linear => low,
            Work::Touch | Work::Halves => low + (high - low) / 2,
        };
        let found = w.load(nth(middle))?;
        if found == key {
            return Ok(());
        }
        if found < key || how == Work::Linear {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    let found = w.load(nth(key))?;
    Err(Stop::Contents(nth(key), key, found))
}

#[cfg(test)]
mod tests;
