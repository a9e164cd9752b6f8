//! The workloads that curves are drawn of, and how they are made small.

use crate::error::{Error, usage};
use minflt_workload::Workload;

/// A workload of which curves are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// What one operation is.
    pub(crate) unit: &'static str,
    /// What it does, for the page.
    pub(crate) about: &'static str,
    /// Its options; `PAGES` stands for the bytes of [`Kind::pages`] pages a thread, all threads
    /// together.
    options: &'static [&'static str],
    /// Pages that a thread touches, where the options ask for it.
    pages: u64,
    /// Whether it touches pages.
    pub(crate) touches: bool,
    /// Unmappings of each thread.
    pub(crate) unmaps: u32,
}

/// All of them.
pub(crate) const KINDS: &[Kind] = &[
    Kind {
        name: "pft",
        unit: "faults/s",
        about: "each thread touches 512 pages of its own, all in one mapping; only the touching is \
                measured",
        options: &["--measure", "workers", "-b", "PAGES"],
        pages: 512,
        touches: true,
        unmaps: 0,
    },
    Kind {
        name: "page-fault1",
        unit: "pages/s",
        about: "each thread maps 256 KiB, touches its pages and unmaps it, eight times after \
                two that are not measured (the original: 128 MiB, without end)",
        options: &["--len", "256K", "-s", "8", "--warm-up", "2"],
        pages: 0,
        touches: true,
        unmaps: 8,
    },
    Kind {
        name: "ebizzy",
        unit: "records/s",
        about: "each thread maps a record of one page, touches it and unmaps it, eight times after two \
                that are not measured (-mTRp; the original: for ten seconds)",
        options: &[
            "-mTRp",
            "--generator",
            "ltp",
            "--records",
            "8",
            "--warm-up",
            "2",
        ],
        pages: 0,
        touches: true,
        unmaps: 8,
    },
    Kind {
        name: "mmap1",
        unit: "mmaps/s",
        about: "each thread maps 128 MiB and unmaps it untouched, eight times after two that are not \
                measured",
        options: &["-s", "8", "--warm-up", "2"],
        pages: 0,
        touches: false,
        unmaps: 1,
    },
];

/// The same with as many rounds before the measured ones as a thread needs until it uses again what
/// it freed, grace periods included: some 1,500 of calls that leave a few objects each.
pub(crate) const STEADY: &[Kind] = &[
    KINDS[0],
    Kind {
        about: "each thread maps 256 KiB, touches its pages and unmaps it, 32 times after 32 that are \
                not measured",
        options: &["--len", "256K", "-s", "32", "--warm-up", "32"],
        ..KINDS[1]
    },
    Kind {
        about: "each thread maps a record of one page, touches it and unmaps it, 256 times after \
                1,536 that are not measured (-mTRp)",
        options: &[
            "-mTRp",
            "--generator",
            "ltp",
            "--records",
            "256",
            "--warm-up",
            "1536",
        ],
        ..KINDS[2]
    },
    Kind {
        about: "each thread maps 128 MiB and unmaps it untouched, 256 times after 1,536 that are not \
                measured",
        options: &["-s", "256", "--warm-up", "1536"],
        ..KINDS[3]
    },
];

impl Kind {
    /// The workload for so many threads and pages of `page` bytes.
    pub(crate) fn workload(&self, threads: u32, page: u64) -> Result<Workload, Error> {
        let options = self.options(threads, page);
        Workload::parse(self.name, &options).map_err(|error| usage(error.to_string()))
    }

    fn options(&self, threads: u32, page: u64) -> Vec<String> {
        let bytes = (self.pages * page * u64::from(threads)).to_string();
        let word = |word: &&str| match *word {
            "PAGES" => bytes.clone(),
            other => other.to_owned(),
        };
        self.options.iter().map(word).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{KINDS, STEADY};

    #[test]
    fn every_kind_is_a_workload_with_options_it_knows() {
        for kind in KINDS.iter().chain(STEADY) {
            let workload = kind.workload(8, 4096).expect("options");
            assert_eq!(workload.info().name, kind.name);
        }
        assert_eq!(KINDS[0].options(2, 4096)[3], (2 * 512 * 4096).to_string());
    }
}
