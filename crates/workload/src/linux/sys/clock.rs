//! Clocks and the kernel's accounting of a thread.

use core::mem::MaybeUninit;

/// What the kernel accounted to a thread or a process.
#[derive(Clone, Copy, Default, Debug)]
pub(in crate::linux) struct Usage {
    pub(in crate::linux) user_ns: u64,
    pub(in crate::linux) system_ns: u64,
    pub(in crate::linux) minor_faults: u64,
    pub(in crate::linux) major_faults: u64,
    /// Voluntary context switches.
    pub(in crate::linux) sleeps: u64,
    /// Involuntary context switches.
    pub(in crate::linux) preemptions: u64,
}

impl Usage {
    /// What came on top of `earlier`.
    pub(in crate::linux) fn since(&self, earlier: &Self) -> Self {
        Self {
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
            preemptions: self.preemptions.saturating_sub(earlier.preemptions),
        }
    }

    /// This and `other` together.
    pub(in crate::linux) fn and(&self, other: &Self) -> Self {
        Self {
            user_ns: self.user_ns + other.user_ns,
            system_ns: self.system_ns + other.system_ns,
            minor_faults: self.minor_faults + other.minor_faults,
            major_faults: self.major_faults + other.major_faults,
            sleeps: self.sleeps + other.sleeps,
            preemptions: self.preemptions + other.preemptions,
        }
    }
}

impl From<&libc::rusage> for Usage {
    fn from(raw: &libc::rusage) -> Self {
        let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
        let ns = |time: libc::timeval| {
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            let micros = u64::try_from(time.tv_usec).unwrap_or(0);
            seconds * 1_000_000_000 + micros * 1000
        };
        Self {
            user_ns: ns(raw.ru_utime),
            system_ns: ns(raw.ru_stime),
            minor_faults: count(raw.ru_minflt),
            major_faults: count(raw.ru_majflt),
            sleeps: count(raw.ru_nvcsw),
            preemptions: count(raw.ru_nivcsw),
        }
    }
}

/// Wall time since some fixed moment, the same in parent and child.
pub(in crate::linux) fn monotonic_ns() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// CPU time of this thread, user and system together.
pub(in crate::linux) fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: 1. `time` is a timespec of ours that the call may write.
    let returned = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(returned, 0, "Linux has had these clocks since 2.6.12");
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanos
}

/// What the kernel accounted to this thread so far.
pub(in crate::linux) fn thread_usage() -> Usage {
    let mut raw = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: 1. `raw` is an rusage of ours that the call may write.
    let returned = unsafe { libc::getrusage(libc::RUSAGE_THREAD, raw.as_mut_ptr()) };
    assert_eq!(returned, 0, "Linux has had RUSAGE_THREAD since 2.6.26");
    // SAFETY: 1. An rusage is integers only, for which zeroes are values.
    let raw = unsafe { raw.assume_init() };
    Usage::from(&raw)
}

#[cfg(test)]
mod tests {
    use super::{Usage, monotonic_ns, thread_cpu_ns, thread_usage};

    #[test]
    fn clocks_do_not_go_back() {
        let before = (monotonic_ns(), thread_cpu_ns());
        assert!(monotonic_ns() >= before.0 && thread_cpu_ns() >= before.1);
        assert!(before.0 > 0 && before.1 > 0);
    }

    #[test]
    fn usage_is_a_difference() {
        let earlier = Usage {
            user_ns: 5,
            minor_faults: 2,
            ..Usage::default()
        };
        let later = Usage {
            user_ns: 9,
            minor_faults: 2,
            major_faults: 1,
            ..Usage::default()
        };
        let spent = later.since(&earlier);
        assert_eq!(
            (spent.user_ns, spent.minor_faults, spent.major_faults),
            (4, 0, 1)
        );
        assert_eq!(spent.and(&spent).user_ns, 8);
        let now = thread_usage();
        assert_eq!(now.since(&now).minor_faults, 0);
    }
}
