//! What is measured: eras in pairs, one workload each.

/// Eras, and what is done to them.
pub(super) struct Pair {
    /// The posting it belongs to, as a place in what [`super::jobs`] is asked for.
    pub(super) posting: usize,
    pub(super) title: &'static str,
    pub(super) command: &'static str,
    pub(super) workload: &'static str,
    pub(super) options: &'static [&'static str],
    pub(super) eras: &'static str,
    /// What one thread is, and what two are.
    pub(super) columns: [&'static str; 2],
    /// The rate looked at: the workload's own, or faults; and its unit.
    pub(super) rate: Option<&'static str>,
    pub(super) unit: &'static str,
    pub(super) ratio: &'static str,
    /// What the other thread does meanwhile, and the rate of it.
    pub(super) beside: Option<(&'static str, &'static str)>,
    /// What two are, where that is another workload, of one thread of each kind.
    pub(super) both: Option<&'static str>,
}

pub(super) const PAIRS: [Pair; 6] = [
    Pair {
        posting: 0,
        title: "Two threads faulting in one address space (2004)",
        command: "minflt bench pft --on host,linux --threads 1,2 --era \
                  linux-2.6.10,atomic-pte-2004 -- -b 256M --measure workers",
        workload: "pft",
        options: &["-b", "256M", "--measure", "workers"],
        eras: "linux-2.6.10,atomic-pte-2004",
        columns: ["1 thread", "2 threads"],
        rate: None,
        unit: "pages/s",
        ratio: "2 threads / 1",
        beside: None,
        both: None,
    },
    Pair {
        posting: 1,
        title: "One thread faulting, one moving pages of the same mapping to and fro (2012)",
        command: "minflt bench move-pages --on host --threads 1,2 --era \
                  numa-balancing-2012,anon-vma-2012,linux-3.14,linux-6.15",
        workload: "move-pages",
        options: &[],
        eras: "numa-balancing-2012,anon-vma-2012,linux-3.14,linux-6.15",
        columns: ["alone", "concurrent"],
        rate: Some("pages_per_second"),
        unit: "pages/s",
        ratio: "concurrent / alone",
        beside: Some(("moves_per_second", "moved, pages/s")),
        both: None,
    },
    Pair {
        posting: 3,
        title: "One thread faulting, one looping {mmap 512 KiB, touch all, munmap}, their mappings \
                apart (2017)",
        command: "minflt bench disturb --on host,linux --threads 1,2 --era \
                  linux-4.13,spf-2017,linux-6.4,linux-6.15 -- --size 64M --apart",
        workload: "disturb",
        options: &["--size", "64M", "--apart"],
        eras: "linux-4.13,spf-2017,linux-6.4,linux-6.15",
        columns: ["alone", "disturbed"],
        rate: Some("pages_per_second"),
        unit: "pages/s",
        ratio: "disturbed / alone",
        beside: None,
        both: None,
    },
    Pair {
        posting: 3,
        title: "The same where each mmap merges with the mapping that is faulted in, and each munmap \
                cuts it (2017)",
        command: "minflt bench disturb --on host,linux --threads 1,2 --era \
                  linux-4.13,spf-2017,linux-6.4,linux-6.15 -- --size 64M",
        workload: "disturb",
        options: &["--size", "64M"],
        eras: "linux-4.13,spf-2017,linux-6.4,linux-6.15",
        columns: ["alone", "disturbed, merging"],
        rate: Some("pages_per_second"),
        unit: "pages/s",
        ratio: "merging / alone",
        beside: None,
        both: None,
    },
    Pair {
        posting: 3,
        title: "ebizzy -mTRp: every thread maps, touches and unmaps records of random size (2017)",
        command: "minflt bench ebizzy --on host,linux --threads 1,2 --era \
                  linux-4.13,spf-2017,linux-6.4,linux-6.15 -- -mTRp -S 0.05",
        workload: "ebizzy",
        options: &["-m", "-T", "-R", "-p", "-S", "0.05"],
        eras: "linux-4.13,spf-2017,linux-6.4,linux-6.15",
        columns: ["1 thread", "2 threads"],
        rate: Some("records_per_second"),
        unit: "records/s",
        ratio: "2 threads / 1",
        beside: None,
        both: None,
    },
    Pair {
        posting: 4,
        title: "One process faulting on a file of huge pages, one forking that maps it too (2022)",
        command: "minflt bench hugetlb-both --on host,linux --threads 1 --era \
                  linux-5.19,hugetlb-vma-lock-2022,linux-6.15 -- -S 0.05",
        workload: "hugetlb-fault",
        options: &["-S", "0.05"],
        eras: "linux-5.19,hugetlb-vma-lock-2022,linux-6.15",
        columns: ["alone", "concurrent"],
        rate: Some("faults_per_second_avg"),
        unit: "faults/s",
        ratio: "concurrent / alone",
        beside: Some(("forks_per_second_avg", "forks/s")),
        both: Some("hugetlb-both"),
    },
];
