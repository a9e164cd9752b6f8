//! `usemem`: processes or threads store to every word of private memory, in order.
//!
//! After `usemem` of vm-scalability, whose options these are. The posting of 2022 ran
//! `usemem -n 48 --prealloc --prefault -O -U 3448054972`: the first process maps the memory, of
//! huge pages that are faulted in at once, and forks 48; each stores to every word, and so copies
//! every page.
//!
//! ```text
//! first process   map, populate, fork, fork, ...                        wait for all
//! process 0                |#### store to every word, again (-r) ... ####|          check
//! process 1                |#### store to every word, again (-r) ... ####|          check
//!                       barrier                                       barrier
//! ```
//!
//! Measured: each worker's stores, over its own time, and its mapping where it makes one itself;
//! the whole, from the first to begin to the last to end. What is printed of each is the
//! original's line.
//!
//! What differs:
//! - Each word is stored the number of its worker, page and round, not its index, so that a store
//!   that reached another worker is seen; threads that share memory (`-t` with `--prealloc`) all
//!   store the same. From the second round on what a page held is looked at first, as the original
//!   looks at each word, and after the last round a sample of the pages.
//! - A page at a time is stored to where the step is a word. Where a page keeps one word (*sim*)
//!   that is the first, and steps are words or whole pages.
//! - Memory is mapped for stores with `-o`, too. Without `-U`, and without `--prealloc`,
//!   `--prefault` stores a zero to each page.
//! - Without `-n` and `-t` there is a process for each of `--threads`.

mod columns;
mod given;
mod info;

pub use columns::{Columns, Line};
pub use info::INFO;

use crate::contents::{SAMPLE, WORD, expect, tag};
use crate::hugetlb::huge_page_size;
use crate::outcome::{self, Outcome};
use crate::target::{
    Feature, HugePages, Inherited, Oracle, Pages, Plan, Populate, Prot, Spaces, Stop, Target,
    TargetError, Use, Worker,
};
use crate::workload::{agreed_threads, unsupported};
use minflt_addr::VirtAddr;

/// The test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Usemem {
    /// Bytes that each worker uses, rounded up to words.
    pub bytes: u64,
    /// Workers (`-n`, `-t`), where given; the plan's number must be the same then.
    pub count: Option<u32>,
    /// Whether they are processes (`-n`) or threads of one (`-t`).
    pub spaces: Spaces,
    /// Who maps the memory (`--prealloc`).
    pub mapped_by: MappedBy,
    /// When its pages are faulted in (`--prefault`).
    pub populate: Populate,
    /// What its pages are (`-U`).
    pub pages: Pages,
    /// What is done with the words (`-o`).
    pub how: Use,
    /// Bytes from one word that is used to the next (`-j`), a multiple of 8.
    pub step: u64,
    /// How often all of it is used (`-r`).
    pub rounds: u32,
}

/// Who maps the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MappedBy {
    /// Each worker for itself.
    Workers,
    /// The first process, before it forks (`--prealloc`).
    First,
}

impl Default for Usemem {
    fn default() -> Self {
        Self {
            bytes: 8 << 20,
            count: None,
            spaces: Spaces::Own,
            mapped_by: MappedBy::Workers,
            populate: Populate::OnTouch,
            pages: Pages::Base,
            how: Use::Store,
            step: WORD,
            rounds: 1,
        }
    }
}

/// What a worker needs to know beside the options.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Bytes of a page.
    page: u64,
    /// Bytes that are mapped, whole pages.
    len: u64,
    /// Whether a page keeps all its words.
    whole: bool,
}

impl Usemem {
    const fn len(&self, page: u64) -> u64 {
        self.bytes.div_ceil(page) * page
    }

    /// Copies of the memory that there are at once.
    fn copies(&self, workers: u32) -> u64 {
        let workers = u64::from(workers);
        match (self.mapped_by, self.spaces, self.how) {
            (MappedBy::Workers, ..) => workers,
            (MappedBy::First, Spaces::Shared, _) | (MappedBy::First, _, Use::Load) => 1,
            (MappedBy::First, Spaces::Own, _) => workers + 1,
        }
    }

    /// How many workers take a fault for each page, or copy it.
    fn first_touches(&self, workers: u32) -> u64 {
        let workers = u64::from(workers);
        match (self.mapped_by, self.spaces, self.populate, self.how) {
            (MappedBy::First, Spaces::Shared, Populate::Now, _)
            | (MappedBy::First, _, Populate::Now, Use::Load) => 0,
            (MappedBy::First, Spaces::Shared, Populate::OnTouch, _) => 1,
            _ => workers,
        }
    }

    /// Bytes of RAM its pages fill at once, with `threads` workers and pages of `page_size` bytes,
    /// huge ones as large as what a table of pages covers; page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        let page = match self.pages {
            Pages::Base => page_size,
            Pages::Huge => page_size * (page_size / 8),
        };
        self.len(page).saturating_mul(self.copies(threads))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, the target cannot do what they ask for, or it fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let option = match self.spaces {
            Spaces::Own => "-n",
            Spaces::Shared => "-t",
        };
        let workers = agreed_threads(INFO.name, option, self.count, plan)?;
        let place = self.place(target)?;
        let plan = self.plan(plan, workers, &place);
        let report = target.process(&plan, |w| self.body(w, &place))?;
        let mut outcome = self.labelled();
        let all = 0..report.workers.len();
        outcome.add_windows(report, all);
        let pages = self.bytes.div_ceil(place.page);
        outcome.pages = pages.saturating_mul(self.first_touches(workers));
        let columns = Columns::new(&outcome.workers);
        for (name, rate) in [
            ("min", columns.min()),
            ("max", columns.max()),
            ("avg", columns.avg()),
        ] {
            let name = format!("kb_per_second_{name}");
            outcome.rates.insert(name, rate);
        }
        outcome.columns = Some(outcome::Columns::Usemem(columns));
        Ok(outcome)
    }

    fn place<T: Target>(&self, target: &T) -> Result<Place, TargetError> {
        let page = match self.pages {
            Pages::Base => target.page_size(),
            Pages::Huge => huge_page_size(INFO.name, target)?,
        };
        let lacks = target.lacks(Feature::WholePages);
        if let Some(why) = lacks
            && self.step != WORD
            && !self.step.is_multiple_of(target.page_size())
        {
            return Err(unsupported(format!(
                "usemem: -j must be a word of 8 bytes or whole pages: {why}"
            )));
        }
        Ok(Place {
            page,
            len: self.len(page),
            whole: lacks.is_none(),
        })
    }

    /// Huge pages of `page` bytes that it uses at once.
    pub(crate) fn huge_pages(&self, workers: u32, page: u64) -> Option<u64> {
        let count = self.bytes.div_ceil(page) * self.copies(workers);
        (self.pages == Pages::Huge).then_some(count)
    }

    fn plan(&self, plan: &Plan, workers: u32, place: &Place) -> Plan {
        let huge = self.huge_pages(workers, place.page);
        Plan {
            spaces: self.spaces,
            huge: huge.map(|count| HugePages {
                count,
                file_bytes: None,
            }),
            inherited: (self.mapped_by == MappedBy::First).then_some(Inherited {
                bytes: place.len,
                pages: self.pages,
                populate: self.populate,
            }),
            ..plan.clone()
        }
    }

    /// An outcome that holds nothing but the name and the options.
    fn labelled(&self) -> Outcome {
        let mut outcome = Outcome {
            workload: INFO.name,
            ..Outcome::default()
        };
        outcome.number("bytes", self.bytes);
        let workers = match self.spaces {
            Spaces::Own => "processes",
            Spaces::Shared => "threads",
        };
        outcome.text("workers", workers);
        let mapped_by = match self.mapped_by {
            MappedBy::Workers => "each",
            MappedBy::First => "first process",
        };
        outcome.text("mapped_by", mapped_by);
        let populate = match self.populate {
            Populate::OnTouch => "on touch",
            Populate::Now => "when mapped",
        };
        outcome.text("populated", populate);
        let pages = match self.pages {
            Pages::Base => "base",
            Pages::Huge => "huge",
        };
        outcome.text("pages", pages);
        let how = match self.how {
            Use::Load => "load",
            Use::Store | Use::Update => "store",
        };
        outcome.text("use", how);
        outcome.number("step", self.step);
        outcome.number("rounds", self.rounds);
        outcome
    }

    fn body<W: Worker>(&self, w: &mut W, place: &Place) -> Result<(), Stop> {
        w.barrier();
        w.window_open();
        let used = self.use_all(w, place);
        w.window_close();
        w.barrier();
        let at = used?;
        w.ops(self.bytes * u64::from(self.rounds));
        self.check(w, place, at)
    }

    fn use_all<W: Worker>(&self, w: &mut W, place: &Place) -> Result<VirtAddr, Stop> {
        let at = match self.mapped_by {
            MappedBy::First => w.inherited()?,
            MappedBy::Workers => self.map(w, place)?,
        };
        for round in 0..self.rounds {
            self.round(w, place, at, round)?;
        }
        Ok(at)
    }

    /// The worker maps memory of its own.
    fn map<W: Worker>(&self, w: &mut W, place: &Place) -> Result<VirtAddr, Stop> {
        if self.pages == Pages::Huge {
            return w.map_huge(place.len, self.populate);
        }
        let at = w.map(place.len, Prot::ReadWrite)?;
        if self.populate == Populate::Now {
            for page in (0..place.len).step_by(place.page as usize) {
                w.store(VirtAddr(at.0 + page), 0)?;
            }
        }
        Ok(at)
    }

    /// What is stored to words of page `page` in round `round`, and found there after it.
    fn value<W: Worker>(&self, w: &W, page: u64, round: u32) -> u64 {
        let worker = match (self.mapped_by, self.spaces) {
            (MappedBy::First, Spaces::Shared) => 0,
            _ => w.index(),
        };
        match self.how {
            Use::Load => 0,
            Use::Store | Use::Update => tag(worker, page, round),
        }
    }

    /// Uses all of it once. What an earlier round stored must be there.
    fn round<W: Worker>(
        &self,
        w: &mut W,
        place: &Place,
        at: VirtAddr,
        round: u32,
    ) -> Result<(), Stop> {
        let mut offset = 0;
        while offset < self.bytes {
            let page = offset / place.page;
            // Threads that share the memory may be a round ahead.
            let looks = round > 0 && !self.shared();
            let how = match (self.how, looks) {
                (Use::Store, true) => Use::Update,
                (how, _) => how,
            };
            let bytes = match self.step {
                WORD => (self.bytes - offset).min(place.page),
                _ => WORD,
            };
            let here = VirtAddr(at.0 + offset);
            let found = w.use_data(here, bytes, how, self.value(w, page, round))?;
            let expected = match self.how {
                Use::Load => Some(0),
                _ if looks => Some(self.value(w, page, round - 1)),
                _ => None,
            };
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                return Err(Stop::Contents(here, expected, found));
            }
            offset += bytes.max(self.step);
        }
        Ok(())
    }

    fn shared(&self) -> bool {
        self.mapped_by == MappedBy::First && self.spaces == Spaces::Shared
    }

    /// The words that were used first and last of every 61st page, and of the last, hold what the
    /// last round stored.
    fn check<W: Worker>(&self, w: &mut W, place: &Place, at: VirtAddr) -> Result<(), Stop> {
        let last = (self.bytes - 1) / place.page;
        let mut looks = 0;
        for page in (0..last).step_by(SAMPLE as usize).chain([last]) {
            let (from, to) = (page * place.page, (page + 1) * place.page);
            let used = from.next_multiple_of(self.step);
            let end = to.min(self.bytes);
            if used >= end {
                continue;
            }
            let value = self.value(w, page, self.rounds - 1);
            expect(w, VirtAddr(at.0 + used), value)?;
            looks += 1;
            if place.whole {
                let last_used = (end - 1) / self.step * self.step;
                expect(w, VirtAddr(at.0 + last_used), value)?;
                looks += 1;
            }
        }
        w.checked(Oracle::Contents, looks);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
