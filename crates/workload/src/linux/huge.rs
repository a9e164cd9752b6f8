//! The kernel's pool of huge pages.

/// Bytes of a huge page, of the size that is used where none is named; `None` where the kernel has
/// none.
pub(super) fn page_size() -> Option<u64> {
    Pool::read().map(|pool| pool.page)
}

/// Whether so many huge pages can be had.
///
/// # Errors
/// Why not, and what to do about it.
pub(super) fn are_enough(count: u64) -> Result<(), String> {
    Pool::read().unwrap_or_default().has(count)
}

/// What `/proc/meminfo` says of it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Pool {
    /// Bytes of a page.
    page: u64,
    /// Pages, free or not.
    total: u64,
    /// Pages that are free and not reserved.
    free: u64,
}

impl Pool {
    fn read() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse::<u64>().ok()
        };
        let page = value("Hugepagesize:")?.checked_mul(1024)?;
        let free = value("HugePages_Free:")?.saturating_sub(value("HugePages_Rsvd:")?);
        let total = value("HugePages_Total:")?;
        Some(Self { page, total, free })
    }

    fn has(self, count: u64) -> Result<(), String> {
        let Self { total, free, .. } = self;
        if count <= free {
            return Ok(());
        }
        let enough = total + (count - free);
        Err(format!(
            "linux: the run needs {count} huge pages, and {free} are free; reserve more by: echo \
             {enough} > /proc/sys/vm/nr_hugepages"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

    const TEXT: &str = "MemFree:  5 kB\nAnonHugePages:         0 kB\nHugePages_Total:      10\n\
                        HugePages_Free:        7\nHugePages_Rsvd:        3\nHugepagesize:       \
                        2048 kB\n";

    #[test]
    fn pages_that_are_promised_are_not_free() {
        let pool = Pool::parse(TEXT).unwrap();
        assert_eq!((pool.page, pool.total, pool.free), (2 << 20, 10, 4));
        assert_eq!(pool.has(4), Ok(()));
        assert_eq!(
            pool.has(9).unwrap_err(),
            "linux: the run needs 9 huge pages, and 4 are free; reserve more by: echo 15 > \
             /proc/sys/vm/nr_hugepages"
        );
        assert_eq!(Pool::parse("MemFree: 5 kB\n"), None);
    }
}
