//! Which era stands for a kernel that people run, and what that kernel has that the era lacks.

use minflt_report::{Cell, Column, Table};

/// A kernel and the era nearest to it.
pub(crate) struct Kernel {
    /// The release: long-term ones, which is what most machines run.
    pub(crate) release: &'static str,
    pub(crate) era: &'static str,
    /// What changed in faults, mmap and munmap since the one before, with the release it came in.
    changed: &'static str,
    /// What the era does differently.
    differs: &'static str,
}

/// Oldest first.
pub(crate) const KERNELS: [Kernel; 4] = [
    Kernel {
        release: "5.15",
        era: "linux-5.19",
        changed: "munmap zaps with mmap_lock downgraded to shared (4.20, Y. Shi); every fault takes \
                  mmap_lock shared",
        differs: "VMAs are in a B+ tree here; in 5.15 in a red-black tree with a list",
    },
    Kernel {
        release: "6.1",
        era: "hugetlb-vma-lock-2022",
        changed: "the maple tree (6.1, L. Howlett); a lock in each hugetlb mapping (6.1, M. Kravetz)",
        differs: "mmap_lock is handed over as in 5.19; nothing else in faults is known to differ",
    },
    Kernel {
        release: "6.12",
        era: "linux-6.4",
        changed: "a lock in each VMA: anonymous faults (6.4), swap and userfaultfd (6.6), file and \
                  hugetlb faults (6.7; S. Baghdasaryan, M. Wilcox, V. Moola)",
        differs: "the era has the lock for the kinds of faults that 6.12 has it for; it came in 6.4 \
                  for anonymous ones only",
    },
    Kernel {
        release: "6.18",
        era: "linux-6.15",
        changed: "the VMA lock is a reference count in the VMA, whose memory is reused at once (6.15, \
                  S. Baghdasaryan)",
        differs: "nothing in faults, mmap or munmap is known to differ",
    },
];

/// The kernels that an era stands for.
pub(crate) fn of_era(era: &str) -> String {
    let releases = KERNELS.iter().filter(|kernel| kernel.era == era);
    let releases: Vec<_> = releases.map(|kernel| kernel.release).collect();
    releases.join(" and ")
}

/// All of them.
pub(crate) fn table() -> Table {
    let columns = [
        Column::text("kernel"),
        Column::text("nearest era"),
        Column::text("changed in faults, mmap and munmap"),
        Column::text("differs from the era"),
    ];
    let mut table = Table::new("Kernels that people run", columns);
    for kernel in &KERNELS {
        let row = [kernel.release, kernel.era, kernel.changed, kernel.differs];
        table.rows.push(row.map(Cell::from).into());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::{KERNELS, of_era};
    use minflt_mm::era;

    #[test]
    fn every_kernel_has_an_era_that_is_there() {
        for kernel in &KERNELS {
            assert!(era(kernel.era).is_some(), "{}", kernel.era);
        }
        assert_eq!(of_era("linux-6.15"), "6.18");
        assert_eq!(of_era("spf-2017"), "");
    }
}
