//! Splits a thread's CPU time into user and system time.
//!
//! Its sum is known to the nanosecond (`CLOCK_THREAD_CPUTIME_ID`). Its parts come from `getrusage`,
//! which many kernels sample by the timer tick: the two parts stand in the ratio of the ticks that
//! hit the one and the other, and a thread that no tick hit in the kernel counts as user time
//! throughout. So a window of many ticks is split in its own ratio, and a shorter one in that of
//! the whole process, whose threads collect ticks together.

use super::sys::clock::Usage;
use crate::target::WorkerReport;

/// CPU time from which a window is split in its own ratio: ten ticks of the slowest timer there is.
const LONG_NS: u64 = 100_000_000;

/// A thread's window as the thread itself knows it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Window {
    /// What the parent will report; user and system time are what `getrusage` says.
    pub(super) report: WorkerReport,
    /// User and system time together, exactly.
    pub(super) cpu_ns: u64,
}

impl Window {
    /// The report, with the exact sum split in two. `process` is what the kernel accounted to the
    /// whole process.
    pub(super) fn split(&self, process: &Usage) -> WorkerReport {
        let (user, system) = if self.cpu_ns >= LONG_NS {
            (self.report.user_ns, self.report.system_ns)
        } else {
            (process.user_ns, process.system_ns)
        };
        let share = match user + system {
            0 => 0,
            sum => u128::from(self.cpu_ns) * u128::from(user) / u128::from(sum),
        };
        // At most the whole, as `user` is at most the sum.
        let user_ns = share as u64;
        WorkerReport {
            user_ns,
            system_ns: self.cpu_ns - user_ns,
            ..self.report
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LONG_NS, Window};
    use crate::linux::sys::clock::Usage;
    use crate::target::WorkerReport;

    fn split(cpu_ns: u64, own: (u64, u64), process: (u64, u64)) -> (u64, u64) {
        let report = WorkerReport {
            user_ns: own.0,
            system_ns: own.1,
            ..WorkerReport::default()
        };
        let process = Usage {
            user_ns: process.0,
            system_ns: process.1,
            ..Usage::default()
        };
        let report = Window { report, cpu_ns }.split(&process);
        (report.user_ns, report.system_ns)
    }

    #[test]
    fn long_windows_go_by_their_own_ratio_and_short_ones_by_the_process() {
        let (quarter, half) = ((1, 3), (5, 5));
        assert_eq!(split(1000, quarter, half), (500, 500));
        assert_eq!(
            split(LONG_NS, quarter, half),
            (LONG_NS / 4, LONG_NS / 4 * 3)
        );
    }

    #[test]
    fn the_parts_sum_to_the_whole_whatever_the_ratio() {
        assert_eq!(split(1001, (0, 0), (1, 2)), (333, 668));
        assert_eq!(split(1000, (0, 0), (0, 0)), (0, 1000));
        assert_eq!(split(u64::MAX, (1 << 60, 0), (0, 1)), (u64::MAX, 0));
    }
}
