//! The registry of workloads.

use crate::brk1::{self, Brk1};
use crate::commit::{self, Commit};
use crate::disturb::{self, Disturb};
use crate::ebizzy::{self, Ebizzy};
use crate::file::{self, File, Pattern};
use crate::fork1::{self, Fork1};
use crate::hugetlb::{self, Hugetlb, Programs};
use crate::kernbench::{self, Kernbench};
use crate::load::{self, Load};
use crate::mmap::{self, Backing, Mmap};
use crate::move_pages::{self, MovePages};
use crate::numa_mem::{self, NumaMem};
use crate::options::{Info, OptionError, SIZE_MAX};
use crate::outcome::Outcome;
use crate::page_fault1::{self, PageFault1};
use crate::page_fault2::{self, PageFault2};
use crate::pft::{self, Pft};
use crate::shootdown::{self, Shootdown};
use crate::target::{Plan, Sharing, Target, TargetError};
use crate::usemem::{self, Usemem};

/// What mapping and unmapping takes, in touched pages: the simulator needs some 95 us and 7.
const UNTOUCHED: u64 = 16;

/// A workload with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Workload {
    /// First touches by many threads.
    Pft(Pft),
    /// Map, touch, unmap.
    PageFault1(PageFault1),
    /// Map a file, store, unmap.
    PageFault2(PageFault2),
    /// Load from a file.
    File(File),
    /// One faults while the others map and unmap.
    Disturb(Disturb),
    /// Map, touch or search, unmap, by records.
    Ebizzy(Ebizzy),
    /// Many single-threaded processes.
    Kernbench(Kernbench),
    /// Many fault while one maps and protects.
    Load(Load),
    /// Map, unmap.
    Mmap(Mmap),
    /// Grow and shrink the heap.
    Brk1(Brk1),
    /// Fork, wait.
    Fork1(Fork1),
    /// One faults while the others move pages.
    MovePages(MovePages),
    /// Unmapping beside threads that compute or sleep.
    Shootdown(Shootdown),
    /// Use memory that may be far.
    NumaMem(NumaMem),
    /// Store to a file of huge pages, and fork.
    Hugetlb(Hugetlb),
    /// Store to memory that may be inherited.
    Usemem(Usemem),
    /// Commit and discard parts of one reservation.
    Commit(Commit),
}

/// All workloads there are.
#[must_use]
pub fn list() -> &'static [Info] {
    &[
        pft::INFO,
        page_fault1::INFO,
        page_fault2::INFO2,
        page_fault2::INFO3,
        file::SEQUENTIAL,
        file::RANDOM,
        file::SPARSE,
        disturb::INFO,
        ebizzy::INFO,
        kernbench::INFO,
        load::INFO,
        mmap::INFO1,
        mmap::INFO2,
        brk1::INFO,
        fork1::INFO,
        numa_mem::INFO,
        move_pages::INFO,
        shootdown::INFO,
        hugetlb::FAULT,
        hugetlb::FORK,
        hugetlb::BOTH,
        usemem::INFO,
        commit::INFO,
    ]
}

/// `$what` of whichever test `$workload` is.
macro_rules! each {
    ($workload:expr, $test:ident => $what:expr) => {
        match $workload {
            Self::Pft($test) => $what,
            Self::PageFault1($test) => $what,
            Self::PageFault2($test) => $what,
            Self::File($test) => $what,
            Self::Disturb($test) => $what,
            Self::Ebizzy($test) => $what,
            Self::Kernbench($test) => $what,
            Self::Load($test) => $what,
            Self::Mmap($test) => $what,
            Self::Brk1($test) => $what,
            Self::Fork1($test) => $what,
            Self::NumaMem($test) => $what,
            Self::MovePages($test) => $what,
            Self::Shootdown($test) => $what,
            Self::Hugetlb($test) => $what,
            Self::Usemem($test) => $what,
            Self::Commit($test) => $what,
        }
    };
}

impl Workload {
    /// The workload called `name` with the options `args`, those that follow `--`.
    ///
    /// # Errors
    /// One line that names the option, or the workload, and what would be right.
    pub fn parse(name: &str, args: &[String]) -> Result<Self, OptionError> {
        Ok(match name {
            "pft" => Self::Pft(Pft::parse(args)?),
            "page-fault1" => Self::PageFault1(PageFault1::parse(args)?),
            "page-fault2" => Self::PageFault2(PageFault2::parse(Sharing::Private, args)?),
            "page-fault3" => Self::PageFault2(PageFault2::parse(Sharing::Shared, args)?),
            "file-seq" => Self::File(File::parse(Pattern::Sequential, args)?),
            "file-rand" => Self::File(File::parse(Pattern::Random, args)?),
            "file-sparse" => Self::File(File::parse(Pattern::Sparse, args)?),
            "disturb" => Self::Disturb(Disturb::parse(args)?),
            "ebizzy" => Self::Ebizzy(Ebizzy::parse(args)?),
            "kernbench" => Self::Kernbench(Kernbench::parse(args)?),
            "load" => Self::Load(Load::parse(args)?),
            "mmap1" => Self::Mmap(Mmap::parse(Backing::Anonymous, args)?),
            "mmap2" => Self::Mmap(Mmap::parse(Backing::File, args)?),
            "brk1" => Self::Brk1(Brk1::parse(args)?),
            "fork1" => Self::Fork1(Fork1::parse(args)?),
            "numa-mem" => Self::NumaMem(NumaMem::parse(args)?),
            "move-pages" => Self::MovePages(MovePages::parse(args)?),
            "shootdown" => Self::Shootdown(Shootdown::parse(args)?),
            "hugetlb-fault" => Self::Hugetlb(Hugetlb::parse(Programs::Fault, args)?),
            "hugetlb-fork" => Self::Hugetlb(Hugetlb::parse(Programs::Fork, args)?),
            "hugetlb-both" => Self::Hugetlb(Hugetlb::parse(Programs::Both, args)?),
            "usemem" => Self::Usemem(Usemem::parse(args)?),
            "commit" => Self::Commit(Commit::parse(args)?),
            _ => {
                let names: Vec<_> = list().iter().map(|info| info.name).collect();
                let names = names.join(", ");
                let words = format!("no workload `{name}`; there are {names}");
                return Err(OptionError::new(words));
            }
        })
    }

    /// What the registry says about it.
    #[must_use]
    pub fn info(&self) -> &'static Info {
        match self {
            Self::Pft(_) => &pft::INFO,
            Self::PageFault1(_) => &page_fault1::INFO,
            Self::PageFault2(test) => test.info(),
            Self::File(test) => test.info(),
            Self::Disturb(_) => &disturb::INFO,
            Self::Ebizzy(_) => &ebizzy::INFO,
            Self::Kernbench(_) => &kernbench::INFO,
            Self::Load(_) => &load::INFO,
            Self::Mmap(test) => test.info(),
            Self::Brk1(_) => &brk1::INFO,
            Self::Fork1(_) => &fork1::INFO,
            Self::NumaMem(_) => &numa_mem::INFO,
            Self::MovePages(_) => &move_pages::INFO,
            Self::Shootdown(_) => &shootdown::INFO,
            Self::Hugetlb(test) => test.info(),
            Self::Usemem(_) => &usemem::INFO,
            Self::Commit(_) => &commit::INFO,
        }
    }

    /// Sets its main size in bytes, as the command line's `--size` does: what `pft` and `load`
    /// touch in all, `page-fault1` to `page-fault3`, `mmap1` and `mmap2` map in each round, the
    /// file of `file-seq` and its siblings, what `disturb` touches in thread 0, a chunk of
    /// `ebizzy`, the largest unit of `kernbench`, what a task of `fork1` has touched,
    /// each thread's own memory of `numa-mem`, what thread 0 of `move-pages` touches and of
    /// `shootdown` maps, the file of `hugetlb-fault` and its siblings, what each worker of `usemem`
    /// uses, a part of `commit`.
    ///
    /// # Errors
    /// When the size is 0, less than the workload can do with, or more than 128 TiB, or it has
    /// none.
    pub fn set_size(&mut self, bytes: u64) -> Result<(), OptionError> {
        let least = match self {
            Self::Ebizzy(_) => 8,
            _ => 1,
        };
        if !(least..=SIZE_MAX).contains(&bytes) {
            let unit = if least == 1 { "byte" } else { "bytes" };
            let words = format!("the size must be from {least} {unit} to 128T, got {bytes} bytes");
            return Err(OptionError::new(words));
        }
        match self {
            Self::Pft(pft) => pft.bytes = bytes,
            Self::PageFault1(test) => test.bytes = bytes,
            Self::PageFault2(test) => test.bytes = bytes,
            Self::File(test) => test.bytes = bytes,
            Self::Disturb(test) => test.bytes = bytes,
            Self::Ebizzy(test) => test.chunk_bytes = bytes,
            Self::Kernbench(test) => test.unit_bytes = bytes,
            Self::Load(test) => test.bytes = bytes,
            Self::Mmap(test) => test.bytes = bytes,
            Self::Brk1(_) => {
                return Err(OptionError::new(
                    "brk1 grows the heap by one page; it has no size",
                ));
            }
            Self::Fork1(test) => test.bytes = bytes,
            Self::NumaMem(test) => test.memory.thread = bytes,
            Self::MovePages(test) => test.bytes = bytes,
            Self::Shootdown(test) => test.bytes = bytes,
            Self::Hugetlb(test) => test.bytes = bytes,
            Self::Usemem(test) => test.bytes = bytes.next_multiple_of(8),
            Self::Commit(test) => test.bytes = bytes,
        }
        Ok(())
    }

    /// Lowers the rounds of a loop, to no less than one, until its threads together touch no more
    /// than `most` pages of `page_size` bytes; a mapping that is not touched counts as
    /// 16 pages. The rounds before and after, if they were lowered.
    pub fn limit_rounds(&mut self, threads: u32, page_size: u64, most: u64) -> Option<(u32, u32)> {
        let (rounds, pages) = match self {
            Self::PageFault1(test) => (&mut test.rounds, test.bytes.div_ceil(page_size)),
            Self::PageFault2(test) => (&mut test.tasks.rounds, test.bytes.div_ceil(page_size)),
            Self::Fork1(test) => (&mut test.tasks.rounds, test.bytes.div_ceil(page_size)),
            Self::Commit(test) => (&mut test.tasks.rounds, test.bytes.div_ceil(page_size)),
            Self::Mmap(test) => (&mut test.tasks.rounds, UNTOUCHED),
            Self::Brk1(test) => (&mut test.tasks.rounds, UNTOUCHED),
            _ => return None,
        };
        let round = pages.max(UNTOUCHED).saturating_mul(threads.max(1).into());
        let (before, fits) = (*rounds, (most / round).max(1));
        *rounds = before.min(u32::try_from(fits).unwrap_or(u32::MAX));
        (*rounds < before).then_some((before, *rounds))
    }

    /// The number of threads its own options ask for, if they do. [`Workload::run`] refuses a plan
    /// with another.
    #[must_use]
    pub fn threads(&self) -> Option<u32> {
        match self {
            Self::Pft(pft) => pft.threads,
            Self::PageFault1(test) => test.threads,
            Self::PageFault2(test) => test.tasks.count,
            Self::Ebizzy(test) => test.threads,
            Self::Kernbench(test) => test.optimal,
            Self::Mmap(test) => test.tasks.count,
            Self::Brk1(test) => test.tasks.count,
            Self::Fork1(test) => test.tasks.count,
            Self::NumaMem(test) => test.tasks(),
            Self::Hugetlb(test) => test.instances,
            Self::Usemem(test) => test.count,
            Self::Commit(test) => test.tasks.count,
            Self::Disturb(_)
            | Self::Load(_)
            | Self::File(_)
            | Self::MovePages(_)
            | Self::Shootdown(_) => None,
        }
    }

    /// The most workers it starts at once with a plan of `threads` on `cpus` CPUs.
    #[must_use]
    pub fn most_workers(&self, threads: u32, cpus: u32) -> u32 {
        match self {
            Self::Kernbench(test) => test.most_jobs(threads, cpus),
            Self::Hugetlb(test) => test.workers(threads),
            _ => threads,
        }
    }

    /// Bytes of RAM its pages fill at once, with `threads` threads and pages of `page_size` bytes;
    /// page tables, stacks and the system's own needs come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        each!(self, test => test.bytes_needed(threads, page_size))
    }

    /// Huge pages that it uses at once, with `threads` threads on `target`; `None` where it uses
    /// none, or there are none.
    #[must_use]
    pub fn huge_pages_needed<T: Target>(&self, threads: u32, target: &T) -> Option<u64> {
        let page = target.huge_page_size()?;
        match self {
            Self::Hugetlb(test) => Some(test.bytes.div_ceil(page)),
            Self::Usemem(test) => test.huge_pages(threads, page),
            _ => None,
        }
    }

    /// Memory nodes that it is about: on a machine of one it does nothing, or is refused.
    #[must_use]
    pub const fn nodes(&self) -> u32 {
        match self {
            Self::NumaMem(_) | Self::MovePages(_) => 2,
            _ => 1,
        }
    }

    /// Runs it on `target`.
    ///
    /// # Errors
    /// When the plan does not fit the options or the target, or the run fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        each!(self, test => test.run(target, plan))
    }
}

/// The plan's number of threads, unless it is 0 or the workload's option `option` says another.
pub(crate) fn agreed_threads(
    workload: &str,
    option: &str,
    asked: Option<u32>,
    plan: &Plan,
) -> Result<u32, TargetError> {
    let threads = plan.threads;
    match asked {
        _ if threads == 0 => Err(unsupported(format!("{workload}: needs at least 1 thread"))),
        Some(asked) if asked != threads => Err(unsupported(format!(
            "{workload}: {option} {asked} and --threads {threads} differ; give one of them"
        ))),
        _ => Ok(threads),
    }
}

/// An error of what cannot be done.
pub(crate) fn unsupported(words: String) -> TargetError {
    TargetError::Unsupported(words)
}

#[cfg(test)]
mod tests {
    use super::{UNTOUCHED, Workload, list};
    use crate::contents::Touch;
    use crate::ebizzy::Until;
    use crate::fake::{Fake, plan};
    use crate::pft::{Definition, Pft};

    fn parse(line: &str) -> Result<Workload, String> {
        let mut words = line.split_whitespace().map(str::to_owned);
        let name = words.next().unwrap();
        let args: Vec<_> = words.collect();
        Workload::parse(&name, &args).map_err(|error| error.to_string())
    }

    #[test]
    fn the_posted_command_lines_parse() {
        let Ok(Workload::Pft(pft)) = parse("pft -g2 -r3 -f8") else {
            panic!()
        };
        assert_eq!(
            (pft.bytes, pft.repetitions, pft.threads),
            (2 << 30, 3, Some(8))
        );
        assert_eq!(
            (pft.touch, pft.definition),
            (Touch::Lines(1), Definition::Process)
        );
        let Ok(Workload::Pft(pft)) = parse("pft -b 64K -c 4 --measure=workers") else {
            panic!()
        };
        assert_eq!((pft.bytes, pft.touch), (65_536, Touch::Lines(4)));
        assert_eq!(pft.definition, Definition::Workers);
        assert!(parse("page-fault1 -s 5 -t 2 --len 1M").is_ok());
        assert!(parse("disturb --size 64M --chunk 256K").is_ok());
    }

    #[test]
    fn rounds_are_lowered_to_what_fits_and_never_to_none() {
        let limited = |line: &str, threads, most| {
            let mut workload = parse(line).expect("options");
            workload.limit_rounds(threads, 4096, most)
        };
        assert_eq!(
            limited("mmap1", 64, 64 * UNTOUCHED * 500),
            Some((10_000, 500))
        );
        assert_eq!(limited("brk1", 1, 1 << 20), None);
        assert_eq!(limited("page-fault1", 2, 1 << 17), Some((8, 2)));
        assert_eq!(limited("page-fault3 -s 3", 1, 1), Some((3, 1)));
        assert_eq!(limited("fork1", 1, 256 * 20), Some((200, 20)));
        assert_eq!(limited("pft", 64, 1), None);
    }

    #[test]
    fn wrong_options_are_told_in_one_line() {
        for (line, says) in [
            (
                "pfft",
                "no workload `pfft`; there are pft, page-fault1, page-fault2, page-fault3, \
                 file-seq, file-rand, file-sparse, disturb, ebizzy, kernbench, load, mmap1, \
                 mmap2, brk1, fork1, numa-mem, move-pages, shootdown, hugetlb-fault, hugetlb-fork, \
                 hugetlb-both, usemem, commit",
            ),
            ("pft -b 1M -g 1", "pft: -b and -g are mutually exclusive"),
            ("pft -z -c 2", "pft: -c and -z are mutually exclusive"),
            ("pft -g 200000", "pft: -g must be at most 131072"),
            (
                "pft --measure x",
                "pft: --measure must be process or workers, got `x`",
            ),
            (
                "pft -t",
                "pft: -t is not supported: the title line is always printed; threads are -f",
            ),
            (
                "disturb --chunk 0",
                "disturb: --chunk must be from 1 byte to 128T, got `0`",
            ),
        ] {
            assert_eq!(parse(line), Err(says.to_owned()));
        }
    }

    #[test]
    fn every_listed_workload_parses_with_its_defaults_and_runs() {
        for info in list() {
            let mut workload = parse(info.name).unwrap();
            assert_eq!(workload.info().name, info.name);
            let sized = workload.set_size(1 << 20).is_ok();
            assert_eq!(sized, info.name != "brk1");
            match &mut workload {
                Workload::Ebizzy(test) => test.until = Until::Records(2),
                Workload::Kernbench(test) => test.units = Some(5),
                Workload::Mmap(test) => test.tasks.rounds = 5,
                Workload::Brk1(test) => test.tasks.rounds = 5,
                Workload::PageFault2(test) => test.tasks.rounds = 2,
                Workload::Fork1(test) => test.tasks.rounds = 5,
                Workload::NumaMem(test) => test.loops = Some(1),
                Workload::Hugetlb(test) => test.until_ns = 50_000,
                _ => assert!(workload.bytes_needed(1, 4096) >= 1 << 20),
            }
            assert!(workload.bytes_needed(1, 4096) > 0);
            for &threads in info.threads {
                assert!(workload.most_workers(threads, threads) >= threads);
                let outcome = workload.run(&Fake::default(), &plan(threads)).unwrap();
                assert_eq!(outcome.workload, info.name);
                assert!(outcome.checks["contents"] > 0);
                assert!(outcome.pages > 0 || !outcome.rates.is_empty());
                assert!(!outcome.params.is_empty());
            }
            assert!(workload.set_size(0).is_err());
        }
    }

    #[test]
    fn threads_asked_for_twice_must_agree() {
        let pft = Workload::Pft(Pft {
            threads: Some(2),
            bytes: 1 << 20,
            ..Pft::default()
        });
        let words = pft.run(&Fake::default(), &plan(1)).unwrap_err().to_string();
        assert_eq!(words, "pft: -f 2 and --threads 1 differ; give one of them");
        assert!(pft.run(&Fake::default(), &plan(2)).is_ok());
        assert!(pft.run(&Fake::default(), &plan(0)).is_err());
    }
}
