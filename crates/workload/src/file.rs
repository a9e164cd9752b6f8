//! `file-seq`, `file-rand` and `file-sparse`: threads load from a file that is in the page cache.
//!
//! After the synthetic tests of the 2014 posting, whose program was not published. All threads
//! belong to one process, each maps the whole file for itself, and each loads
//!
//! - `file-seq`: the first word of every page, in the order of the file;
//! - `file-rand`: the same in random order, each thread in one of its own;
//! - `file-sparse`: the first word of one page in each table of entries, in order, so that every
//!   page that a fault maps beside its own is mapped in vain; with `--stride`, of one page in so
//!   many bytes.
//!
//! The posting's loops load every word, which `--every-word` does: `file-seq` word after word,
//! `file-rand` all words of the file in random order. It makes no other faults. Where a page holds
//! one word only (*sim*), words in order cost what reading a page costs on the machine; words in
//! random order are refused, and `--page-ns` stands for what loading a page's words takes.
//!
//! The file is in the page cache before anything is measured, or with `--cache cold` on a disk.
//!
//! Measured: with `--measure workers` each thread's loop, from the first to begin to the last to
//! end; with `--measure process` all of the process, mapping and teardown too, as a command run
//! under `perf stat` is. All words are summed up in the loop, the sum and a sample of the pages are
//! checked after it. The sample is present by then, so checking makes no faults.

mod columns;
mod order;

pub use columns::{Columns, HEADER};

use crate::contents::{SAMPLE, WORD, expect, file_word};
use crate::options::{Info, Opt, OptionError};
use crate::outcome::{self, Outcome};
use crate::pft::Definition;
use crate::target::{
    Cache, CommonFile, Feature, Oracle, Plan, Prot, Sharing, Stop, Target, TargetError, Use, Worker,
};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;
use order::Order;

const SIZE: Opt = Opt {
    name: "--size",
    value: "SIZE",
    default: "256M",
    help: "bytes of the file",
};
const EVERY_WORD: Opt = Opt {
    name: "--every-word",
    value: "",
    default: "off",
    help: "load every word instead of one per page",
};
const PAGE_NS: Opt = Opt {
    name: "--page-ns",
    value: "NS",
    default: "none",
    help: "compute time per page in nanoseconds",
};
const CACHE: Opt = Opt {
    name: "--cache",
    value: "warm|cold",
    default: "warm",
    help: "start with the file in the page cache, or on disk",
};
const MEASURE: Opt = Opt {
    name: "--measure",
    value: "workers|process",
    default: "workers",
    help: "what is timed: the threads' loops, or the whole process",
};
const STRIDE: Opt = Opt {
    name: "--stride",
    value: "SIZE",
    default: "what a page table maps",
    help: "stride between loads in bytes, rounded up to pages",
};
const SEED: Opt = Opt {
    name: "--seed",
    value: "N",
    default: "1",
    help: "seed of the random orders",
};

/// What the registry says about `file-seq`.
pub const SEQUENTIAL: Info = Info {
    name: "file-seq",
    about: "each thread maps a file and loads a word of every page, in order (2014)",
    threads: &[1],
    options: &[SIZE, EVERY_WORD, PAGE_NS, CACHE, MEASURE],
    refused: &[],
};

/// What the registry says about `file-rand`.
pub const RANDOM: Info = Info {
    name: "file-rand",
    about: "each thread maps a file and loads a word of every page, in random order (2014)",
    options: &[SIZE, EVERY_WORD, PAGE_NS, CACHE, MEASURE, SEED],
    ..SEQUENTIAL
};

/// What the registry says about `file-sparse`.
pub const SPARSE: Info = Info {
    name: "file-sparse",
    about: "each thread maps a file and loads one word per page table, or per stride (2014)",
    options: &[SIZE, STRIDE, PAGE_NS, CACHE, MEASURE],
    ..SEQUENTIAL
};

/// Which pages are loaded from, and in what order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pattern {
    /// All, in the order of the file (`file-seq`).
    Sequential,
    /// All, in random order (`file-rand`).
    Random,
    /// One in each table of entries, or in each stride, in order (`file-sparse`).
    Sparse,
}

/// What is loaded of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Words {
    /// The first word.
    First,
    /// All of them (`--every-word`).
    Every,
}

/// One of the three with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Which of them it is.
    pub pattern: Pattern,
    /// Bytes of the file (`--size`), rounded up to pages.
    pub bytes: u64,
    /// Bytes from one load of `file-sparse` to the next, rounded up to pages (`--stride`); `None`
    /// for what a table of entries maps.
    pub stride: Option<u64>,
    /// What is loaded of a page (`--every-word`).
    pub words: Words,
    /// Nanoseconds of computing at each page (`--page-ns`).
    pub page_ns: u64,
    /// Where the pages are beforehand (`--cache`).
    pub cache: Cache,
    /// What is measured (`--measure`).
    pub definition: Definition,
    /// What the random orders begin with (`--seed`).
    pub seed: u64,
}

impl File {
    /// The test with its defaults.
    #[must_use]
    pub const fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            bytes: 256 << 20,
            stride: None,
            words: Words::First,
            page_ns: 0,
            cache: Cache::Warm,
            definition: Definition::Workers,
            seed: 1,
        }
    }

    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, or its value is wrong.
    pub fn parse(pattern: Pattern, args: &[String]) -> Result<Self, OptionError> {
        let default = Self::new(pattern);
        let given = default.info().given(args)?;
        let mut test = default;
        if let Some(bytes) = given.size("--size")? {
            test.bytes = bytes;
        }
        test.stride = given.size("--stride")?;
        if given.has("--every-word") {
            test.words = Words::Every;
        }
        if let Some(ns) = given.count("--page-ns")? {
            test.page_ns = u64::from(ns);
        }
        let caches = [("warm", Cache::Warm), ("cold", Cache::Cold)];
        if let Some(cache) = given.one_of("--cache", &caches)? {
            test.cache = cache;
        }
        let measures = [
            ("workers", Definition::Workers),
            ("process", Definition::Process),
        ];
        if let Some(definition) = given.one_of("--measure", &measures)? {
            test.definition = definition;
        }
        if let Some(seed) = given.count("--seed")? {
            test.seed = u64::from(seed);
        }
        Ok(test)
    }

    /// What the registry says about it.
    #[must_use]
    pub const fn info(&self) -> &'static Info {
        match self.pattern {
            Pattern::Sequential => &SEQUENTIAL,
            Pattern::Random => &RANDOM,
            Pattern::Sparse => &SPARSE,
        }
    }

    /// Bytes of RAM that the file and the threads' tables of entries fill, with pages of
    /// `page_size` bytes; tables of tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let bytes = self.bytes.next_multiple_of(page_size);
        // An entry of eight bytes a page, and a table that is begun.
        let tables = (bytes / page_size * 8).next_multiple_of(page_size) + page_size;
        tables
            .saturating_mul(u64::from(threads))
            .saturating_add(bytes)
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan has no threads, the target lacks what the options want, or it fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let name = self.info().name;
        let threads = agreed_threads(name, "", None, plan)?;
        self.refuse(target)?;
        let whole = target.lacks(Feature::WholePages).is_none();
        let walk = Walk::new(self, target.page_size(), target.table_bytes(), whole);
        let mut outcome = self.labelled(target);
        let plan = Plan {
            file: Some(CommonFile {
                bytes: self.bytes,
                cache: self.cache,
            }),
            ..plan.clone()
        };
        let report = target.process(&plan, |w| walk.body(w))?;
        match self.definition {
            Definition::Process => outcome.add_process(report),
            Definition::Workers => {
                let all = 0..report.workers.len();
                outcome.add_windows(report, all);
            }
        }
        outcome.pages = walk.pages.saturating_mul(u64::from(threads));
        outcome.rate("pages_per_second", outcome.pages, outcome.wall_ns);
        let columns = Columns::new(self.bytes, threads, &outcome);
        outcome.columns = Some(outcome::Columns::File(columns));
        Ok(outcome)
    }

    fn refuse<T: Target>(&self, target: &T) -> Result<(), TargetError> {
        let name = self.info().name;
        if let Some(why) = target.lacks(Feature::Files) {
            return Err(unsupported(format!("{name}: {why}; linux has files")));
        }
        if self.cache == Cache::Cold
            && let Some(why) = target.lacks(Feature::ColdFiles)
        {
            return Err(unsupported(format!("{name}: {why}; omit --cache cold")));
        }
        if (self.words, self.pattern) == (Words::Every, Pattern::Random)
            && let Some(why) = target.lacks(Feature::WholePages)
        {
            return Err(unsupported(format!(
                "{name}: {why}; omit --every-word, and give the time of loading a page's words \
                 by --page-ns"
            )));
        }
        Ok(())
    }

    /// An outcome that holds nothing but the name and the options.
    fn labelled<T: Target>(&self, target: &T) -> Outcome {
        let mut outcome = Outcome {
            workload: self.info().name,
            ..Outcome::default()
        };
        outcome.number("bytes", self.bytes);
        outcome.number("page_ns", self.page_ns);
        if let Some(stride) = self.stride {
            outcome.number("stride", stride);
        }
        outcome.text(
            "words",
            match self.words {
                Words::First => "first of each page",
                Words::Every => "every",
            },
        );
        outcome.text(
            "cache",
            match self.cache {
                Cache::Warm => "warm",
                Cache::Cold => "cold",
            },
        );
        outcome.text(
            "measure",
            match self.definition {
                Definition::Process => "process",
                Definition::Workers => "workers",
            },
        );
        if self.pattern == Pattern::Random {
            outcome.number("seed", self.seed);
        }
        match target.fault_around_bytes() {
            Some(bytes) => outcome.number("fault_around_bytes", bytes),
            None => outcome.text("fault_around_bytes", "unknown"),
        }
        outcome
    }
}

/// What each thread does.
#[derive(Clone, Copy, Debug)]
struct Walk {
    pattern: Pattern,
    seed: u64,
    page_ns: u64,
    page_size: u64,
    /// Pages that are loaded from.
    pages: u64,
    /// Bytes from one of them to the next in the file.
    stride: u64,
    /// Words that are loaded of each.
    words: u64,
    /// Whether a page holds all its words, not the first one only.
    whole: bool,
}

impl Walk {
    fn new(file: &File, page_size: u64, table_bytes: u64, whole: bool) -> Self {
        let stride = match file.pattern {
            Pattern::Sequential | Pattern::Random => page_size,
            Pattern::Sparse => match file.stride {
                Some(stride) => stride.next_multiple_of(page_size),
                None => table_bytes,
            },
        };
        Self {
            pattern: file.pattern,
            seed: file.seed,
            page_ns: file.page_ns,
            page_size,
            pages: file.bytes.div_ceil(stride),
            stride,
            words: match file.words {
                Words::First => 1,
                Words::Every => page_size / WORD,
            },
            whole,
        }
    }

    fn body<W: Worker>(&self, w: &mut W) -> Result<(), Stop> {
        let at = w.map_common(Prot::Read, Sharing::Shared)?;
        // Nobody's mapping is in the way of another's faults.
        w.barrier();
        w.window_open();
        let sum = match self.pattern {
            Pattern::Sequential | Pattern::Sparse => self.in_order(w, at),
            Pattern::Random => self.at_random(w, at),
        };
        w.window_close();
        let sum = sum?;
        w.ops(self.pages);
        self.check(w, at, sum)
    }

    /// The sum of the words, page after page.
    fn in_order<W: Worker>(&self, w: &mut W, at: VirtAddr) -> Result<u64, Stop> {
        let mut sum = 0_u64;
        for page in 0..self.pages {
            let base = at.0 + page * self.stride;
            if self.whole || self.words == 1 {
                for word in 0..self.words {
                    sum = sum.wrapping_add(w.load(VirtAddr(base + word * WORD))?);
                }
            } else {
                // Takes the time of all words, and gives the first.
                let bytes = self.words * WORD;
                sum = sum.wrapping_add(w.use_data(VirtAddr(base), bytes, Use::Load, 0)?);
            }
            if self.page_ns > 0 {
                w.compute(self.page_ns);
            }
        }
        Ok(sum)
    }

    /// The sum of the words, each once, in an order of the thread's own.
    fn at_random<W: Worker>(&self, w: &mut W, at: VirtAddr) -> Result<u64, Stop> {
        let step = self.stride / self.words;
        let seed = self.seed << 32 | u64::from(w.index());
        let mut sum = 0_u64;
        for place in Order::new(self.pages * self.words, seed) {
            sum = sum.wrapping_add(w.load(VirtAddr(at.0 + place * step))?);
            if self.page_ns > 0 {
                w.compute(self.page_ns / self.words);
            }
        }
        Ok(sum)
    }

    /// The sum must be that of the file, and every 61st page and the last one still there.
    fn check<W: Worker>(&self, w: &mut W, at: VirtAddr, sum: u64) -> Result<(), Stop> {
        let of_page = |page: u64| file_word(page * self.stride / self.page_size);
        let words = (0..self.pages).map(of_page);
        let expected = words.fold(0, u64::wrapping_add);
        if sum != expected {
            return Err(Stop::Contents(at, expected, sum));
        }
        let mut looks = 1;
        let last = self.pages.saturating_sub(1);
        for page in (0..last).step_by(SAMPLE as usize).chain([last]) {
            expect(w, VirtAddr(at.0 + page * self.stride), of_page(page))?;
            looks += 1;
        }
        w.checked(Oracle::Contents, looks);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
