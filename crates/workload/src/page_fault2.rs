//! `page-fault2` and `page-fault3`: map a file, store to every page, unmap, again and again.
//!
//! After the tests of that name of will-it-scale. Each task has a file of its own, in memory here
//! (the originals make one in the temporary directory): `page-fault2` maps it privately, so that
//! every store copies a page of the file, `page-fault3` shared, so that every store is one to the
//! file. Stores are never served by mapping around a fault.
//!
//! Measured: from the first task's window to the last's, each around all its rounds, mapping and
//! unmapping included. Contents are checked in one more round after the window, which no count
//! includes: what was stored is there; it is in the file if the mapping was shared, and only then.

use crate::contents::{Region, SAMPLE, Touch, expect};
use crate::options::{Info, Opt, OptionError};
use crate::outcome::Outcome;
use crate::target::{
    Feature, Oracle, Plan, Prot, Sharing, Spaces, Stop, Target, TargetError, Worker,
};
use crate::will_it_scale::{self, NOT_BOUND, TASKS, Tasks};
use crate::workload::unsupported;
use minflt_addr::VirtAddr;

const OPTIONS: &[Opt] = &[
    Opt {
        name: "--len",
        value: "SIZE",
        default: "128M",
        help: "bytes of each task's file, all of them mapped in each round",
    },
    will_it_scale::rounds("8"),
    TASKS,
    will_it_scale::WARM_UP,
    will_it_scale::mode("threads"),
];

/// What the registry says about `page-fault2`.
pub const INFO2: Info = Info {
    name: "page-fault2",
    about: "tasks map 128 MiB of a file each, privately, and store to every page (will-it-scale)",
    threads: &[1],
    options: OPTIONS,
    refused: &[NOT_BOUND],
};

/// What the registry says about `page-fault3`.
pub const INFO3: Info = Info {
    name: "page-fault3",
    about: "tasks map 128 MiB of a file each, shared, and store to every page (will-it-scale)",
    ..INFO2
};

/// Either test with its options.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageFault2 {
    /// Which of them it is: `page-fault2` where private, `page-fault3` where shared.
    pub sharing: Sharing,
    /// Bytes of each task's file (`--len`), rounded up to pages.
    pub bytes: u64,
    /// Rounds, and who does them.
    pub tasks: Tasks,
}

impl PageFault2 {
    /// The test with its defaults.
    #[must_use]
    pub const fn new(sharing: Sharing) -> Self {
        Self {
            sharing,
            bytes: 128 << 20,
            tasks: Tasks {
                rounds: 8,
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
    pub fn parse(sharing: Sharing, args: &[String]) -> Result<Self, OptionError> {
        let default = Self::new(sharing);
        let given = default.info().given(args)?;
        Ok(Self {
            sharing,
            bytes: given.size("--len")?.unwrap_or(default.bytes),
            tasks: Tasks::given(&given, default.tasks)?,
        })
    }

    /// What the registry says about it.
    #[must_use]
    pub const fn info(&self) -> &'static Info {
        match self.sharing {
            Sharing::Private => &INFO2,
            Sharing::Shared => &INFO3,
        }
    }

    /// Bytes of RAM its pages fill at once, with `threads` tasks and pages of `page_size` bytes;
    /// page tables and stacks come on top.
    #[must_use]
    pub fn bytes_needed(&self, threads: u32, page_size: u64) -> u64 {
        // Pages of the file, and copies of them.
        let times = match self.sharing {
            Sharing::Private => 2,
            Sharing::Shared => 1,
        };
        let pages = self.bytes.div_ceil(page_size);
        pages
            .saturating_mul(page_size * times)
            .saturating_mul(u64::from(threads))
    }

    /// Runs it.
    ///
    /// # Errors
    /// When the plan does not fit the options, the target has no files to map, or it fails.
    pub fn run<T: Target>(&self, target: &T, plan: &Plan) -> Result<Outcome, TargetError> {
        let info = self.info();
        if let Some(why) = target.lacks(Feature::Files) {
            let words = format!(
                "{}: {why}; page-fault1 stores to anonymous memory",
                info.name
            );
            return Err(unsupported(words));
        }
        let pages = self.bytes.div_ceil(target.page_size());
        let body = |w: &mut T::Worker<'_>| self.body(w, pages);
        let rate = "pages_per_second";
        let mut outcome = self.tasks.run(info, rate, target, plan, body)?;
        outcome.number("bytes", self.bytes);
        outcome.pages = outcome.workers.iter().map(|worker| worker.ops).sum();
        Ok(outcome)
    }

    fn body<W: Worker>(&self, w: &mut W, pages: u64) -> Result<(), Stop> {
        let mut repetition = 0;
        self.tasks.measure(w, pages, |w| {
            let region = self.map(w, pages, repetition)?;
            repetition += 1;
            region.fill(w)?;
            unmap(w, &region)
        })?;
        self.check(w, pages, repetition)
    }

    fn map<W: Worker>(&self, w: &mut W, pages: u64, repetition: u32) -> Result<Region, Stop> {
        let len = pages * w.page_size();
        Ok(Region {
            at: w.map_file(len, Prot::ReadWrite, self.sharing)?,
            pages,
            touch: Touch::Lines(1),
            repetition,
        })
    }

    fn check<W: Worker>(&self, w: &mut W, pages: u64, repetition: u32) -> Result<(), Stop> {
        let region = self.map(w, pages, repetition)?;
        region.fill(w)?;
        region.check(w)?;
        unmap(w, &region)?;
        // Another mapping shows what the file holds.
        let len = pages * w.page_size();
        let at = w.map_file(len, Prot::Read, Sharing::Private)?;
        let again = Region { at, ..region };
        match self.sharing {
            Sharing::Shared => again.check(w)?,
            Sharing::Private => {
                let mut looks = 0;
                for page in (0..pages).step_by(SAMPLE as usize) {
                    expect(w, VirtAddr(at.0 + page * w.page_size()), 0)?;
                    looks += 1;
                }
                w.checked(Oracle::Contents, looks);
            }
        }
        unmap(w, &again)
    }
}

fn unmap<W: Worker>(w: &mut W, region: &Region) -> Result<(), Stop> {
    let len = region.pages * w.page_size();
    w.unmap(region.at, len)
}

#[cfg(test)]
mod tests {
    use super::PageFault2;
    use crate::fake::{Fake, plan};
    use crate::target::{Sharing, Spaces, Stop, TargetError};

    fn small(sharing: Sharing, spaces: Spaces) -> PageFault2 {
        let mut test = PageFault2::new(sharing);
        test.bytes = 64 << 10;
        test.tasks.rounds = 3;
        test.tasks.spaces = spaces;
        test
    }

    #[test]
    fn every_round_faults_once_a_page_and_no_fault_maps_around() {
        let fake = Fake {
            around: 4,
            ..Fake::default()
        };
        for sharing in [Sharing::Private, Sharing::Shared] {
            for spaces in [Spaces::Shared, Spaces::Own] {
                let outcome = small(sharing, spaces).run(&fake, &plan(2)).unwrap();
                assert_eq!((outcome.pages, outcome.faults), (2 * 3 * 16, 2 * 3 * 16));
                assert!(outcome.rates["pages_per_second"] > 0.0);
                // Three looks at the first page and the last, and the file again.
                let file = if sharing == Sharing::Shared { 6 } else { 1 };
                assert_eq!(outcome.checks["contents"], 2 * (6 + file));
            }
        }
    }

    #[test]
    fn stores_that_reach_the_wrong_place_are_seen() {
        let stopped = |sharing, fake: &Fake| {
            let error = small(sharing, Spaces::Shared).run(fake, &plan(1));
            matches!(
                error.unwrap_err(),
                TargetError::Stopped {
                    worker: 0,
                    why: Stop::Contents(..)
                }
            )
        };
        // The fourth round is the checked one.
        let lost = Fake {
            lose_store: Some(3 * 16),
            ..Fake::default()
        };
        assert!(stopped(Sharing::Private, &lost));
        assert!(stopped(Sharing::Shared, &lost));
        let mixed = Fake {
            mixes_sharing: true,
            ..Fake::default()
        };
        assert!(stopped(Sharing::Private, &mixed));
        assert!(stopped(Sharing::Shared, &mixed));
    }

    #[test]
    fn a_target_without_files_is_told_so() {
        let bare = Fake {
            bare: true,
            ..Fake::default()
        };
        let error = small(Sharing::Shared, Spaces::Shared).run(&bare, &plan(1));
        assert_eq!(
            error.unwrap_err().to_string(),
            "page-fault3: the fake is bare; page-fault1 stores to anonymous memory"
        );
    }

    #[test]
    fn copies_need_room_beside_the_file() {
        let needs = |sharing| PageFault2::new(sharing).bytes_needed(2, 4096);
        assert_eq!(needs(Sharing::Private), 512 << 20);
        assert_eq!(needs(Sharing::Shared), 256 << 20);
    }
}
