//! The lines that `numa-mem` prints for a run.

use crate::outcome::seconds;
use crate::target::WorkerReport;
use core::fmt;

/// The original's lines, from which all others follow: the times of the fastest and of the last
/// thread, and the data.
#[derive(Clone, PartialEq, Debug)]
pub struct Columns {
    /// From the first thread's beginning to the last one's end, seconds.
    pub max_s: f64,
    /// Time of the thread that was done first, seconds.
    pub min_s: f64,
    /// Mean of the threads' times, seconds.
    pub avg_s: f64,
    /// Threads of all processes.
    pub tasks: u32,
    /// Bytes that all of them used.
    pub bytes: u64,
    /// Whether it is the original's quiet mode (`-q`).
    pub quiet: bool,
    /// What each thread did, where asked for (`-d`).
    pub threads: Vec<ThreadLine>,
}

/// What one thread did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ThreadLine {
    /// 10^9 bytes per second of its time.
    pub gb_per_s: Option<f64>,
    /// User time, seconds.
    pub user_s: f64,
    /// System time, seconds.
    pub system_s: f64,
}

impl Columns {
    /// The lines of threads that reported bytes as their operations; without threads all is 0.
    #[must_use]
    pub fn new(workers: &[WorkerReport], quiet: bool, details: bool) -> Self {
        let times = || {
            workers
                .iter()
                .map(|it| it.end_ns.saturating_sub(it.start_ns))
        };
        let start = workers.iter().map(|it| it.start_ns).min().unwrap_or(0);
        let end = workers.iter().map(|it| it.end_ns).max().unwrap_or(0);
        let tasks = workers.len() as u32;
        Self {
            max_s: seconds(end.saturating_sub(start)),
            min_s: seconds(times().min().unwrap_or(0)),
            avg_s: seconds(times().sum()) / f64::from(tasks.max(1)),
            tasks,
            bytes: workers.iter().map(|it| it.ops).sum(),
            quiet,
            threads: match details {
                true => workers.iter().map(ThreadLine::new).collect(),
                false => Vec::new(),
            },
        }
    }

    /// Half of what lies between the fastest and the last thread, in percent of the last one's
    /// time; the posting of 2012 prints it with a minus sign.
    #[must_use]
    pub fn spread_percent(&self) -> f64 {
        over((self.max_s - self.min_s) / 2.0, self.max_s) * 100.0
    }

    /// Data of a thread, 10^9 bytes.
    #[must_use]
    pub fn thread_gb(&self) -> f64 {
        self.total_gb() / f64::from(self.tasks.max(1))
    }

    /// Data of all threads, 10^9 bytes.
    #[must_use]
    pub fn total_gb(&self) -> f64 {
        self.bytes as f64 / 1e9
    }

    /// Nanoseconds for a byte of each thread.
    #[must_use]
    pub fn ns_per_byte(&self) -> f64 {
        over(self.max_s, self.thread_gb())
    }

    /// 10^9 bytes per second of a thread.
    #[must_use]
    pub fn thread_gb_per_s(&self) -> f64 {
        over(self.thread_gb(), self.max_s)
    }

    /// 10^9 bytes per second of all threads.
    #[must_use]
    pub fn total_gb_per_s(&self) -> f64 {
        over(self.total_gb(), self.max_s)
    }

    fn line(
        &self,
        f: &mut fmt::Formatter<'_>,
        value: f64,
        [unit, short, long]: [&str; 3],
    ) -> fmt::Result {
        // Simulated runs may take a thousandth of the original's, so times have more digits.
        let digits = if unit == "secs" { 6 } else { 3 };
        match self.quiet {
            true => write!(f, " {value:>14.digits$} {long}"),
            false => write!(
                f,
                " {:<30} {value:>15.digits$}, {:<15} {short}",
                "main,",
                format!("{unit},")
            ),
        }
    }
}

impl ThreadLine {
    fn new(worker: &WorkerReport) -> Self {
        let time = seconds(worker.end_ns.saturating_sub(worker.start_ns));
        Self {
            gb_per_s: (time > 0.0).then(|| worker.ops as f64 / 1e9 / time),
            user_s: seconds(worker.user_ns),
            system_s: seconds(worker.system_ns),
        }
    }
}

/// `amount` over `of`, 0 where that is 0.
fn over(amount: f64, of: f64) -> f64 {
    if of == 0.0 { 0.0 } else { amount / of }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = [
            (
                self.max_s,
                [
                    "secs",
                    "runtime-max/thread",
                    "secs slowest (max) thread-runtime",
                ],
            ),
            (
                self.min_s,
                [
                    "secs",
                    "runtime-min/thread",
                    "secs fastest (min) thread-runtime",
                ],
            ),
            (
                self.avg_s,
                ["secs", "runtime-avg/thread", "secs average thread-runtime"],
            ),
            (
                self.spread_percent(),
                [
                    "%",
                    "spread-runtime/thread",
                    "% half between min and max, of max",
                ],
            ),
            (
                self.thread_gb(),
                ["GB", "data/thread", "GB data processed, per thread"],
            ),
            (
                self.total_gb(),
                ["GB", "data-total", "GB data processed, total"],
            ),
            (
                self.ns_per_byte(),
                ["nsecs", "runtime/byte/thread", "nsecs/byte/thread runtime"],
            ),
            (
                self.thread_gb_per_s(),
                ["GB/sec", "thread-speed", "GB/sec/thread speed"],
            ),
            (
                self.total_gb_per_s(),
                ["GB/sec", "total-speed", "GB/sec total speed"],
            ),
        ];
        for (at, (value, words)) in lines.into_iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            self.line(f, value, words)?;
        }
        for (index, thread) in self.threads.iter().enumerate() {
            let speed = thread
                .gb_per_s
                .map_or("-".to_owned(), |speed| format!("{speed:.3}"));
            write!(
                f,
                "\n thread {index:>4}: {speed:>9} GB/sec, {:>11.6} secs user, {:>11.6} secs system",
                thread.user_s, thread.system_s
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Columns;
    use crate::target::WorkerReport;

    /// Loops of 32 MiB by each of 32 threads.
    const BYTES: u64 = 800 * (32 << 20);

    /// Threads of which the first takes `min` and the last `max` milliseconds, and the others as
    /// long as it takes for the mean to be `avg`.
    fn run([avg, min, max]: [u64; 3]) -> Columns {
        let others = (32 * avg - min - max) / 30;
        let time = |index| match index {
            0 => min,
            31 => max,
            _ => others,
        };
        let worker = |index| WorkerReport {
            start_ns: 7_000_000,
            end_ns: 7_000_000 + time(index) * 1_000_000,
            ops: BYTES,
            ..WorkerReport::default()
        };
        let workers: Vec<_> = (0..32).map(worker).collect();
        Columns::new(&workers, false, false)
    }

    /// The two blocks of the posting of 2012: from the first three lines and the data follow the
    /// others, to the last digit.
    #[test]
    fn the_published_blocks_follow_from_their_times() {
        let figures = |it: &Columns| {
            let of = [
                it.avg_s,
                it.min_s,
                it.max_s,
                it.thread_gb(),
                it.total_gb(),
                it.ns_per_byte(),
                it.thread_gb_per_s(),
                it.total_gb_per_s(),
            ];
            of.map(|figure| format!("{figure:.3}")).join(" ")
        };
        let mainline = run([40_918, 26_051, 59_229]);
        assert_eq!(
            figures(&mainline),
            "40.918 26.051 59.229 26.844 858.993 2.206 0.453 14.503"
        );
        assert_eq!(format!("{:.1}", mainline.spread_percent()), "28.0");
        let patched = run([18_543, 17_721, 19_262]);
        assert_eq!(
            figures(&patched),
            "18.543 17.721 19.262 26.844 858.993 0.718 1.394 44.595"
        );
        assert_eq!(format!("{:.1}", patched.spread_percent()), "4.0");
    }

    #[test]
    fn lines_read_as_the_originals() {
        let mut columns = run([40_918, 26_051, 59_229]);
        let text = columns.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 9);
        assert_eq!(
            lines[0],
            " main,                                59.229000, secs,           runtime-max/thread"
        );
        assert_eq!(
            lines[3],
            " main,                                   28.008, %,              \
             spread-runtime/thread"
        );
        columns.quiet = true;
        let quiet = columns.to_string();
        assert_eq!(
            quiet.lines().nth(6),
            Some("          2.206 nsecs/byte/thread runtime")
        );
    }

    #[test]
    fn details_have_a_line_for_each_thread_and_no_time_gives_no_speed() {
        let workers = [
            WorkerReport {
                end_ns: 2_000_000_000,
                ops: 3_000_000_000,
                user_ns: 1_500_000_000,
                ..WorkerReport::default()
            },
            WorkerReport::default(),
        ];
        let text = Columns::new(&workers, false, true).to_string();
        let last: Vec<_> = text.lines().skip(9).collect();
        assert_eq!(
            last,
            [
                " thread    0:     1.500 GB/sec,    1.500000 secs user,    0.000000 secs system",
                " thread    1:         - GB/sec,    0.000000 secs user,    0.000000 secs system"
            ]
        );
        let nothing = Columns::new(&[], false, false);
        assert_eq!(
            (nothing.total_gb_per_s(), nothing.spread_percent()),
            (0.0, 0.0)
        );
    }
}
