//! The host kernel's accounting of the calling thread.

const NANOS: u64 = 1_000_000_000;

/// What the kernel accounted to the calling thread so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub(crate) cpu_ns: u64,
    /// Voluntary context switches.
    pub(crate) sleeps: u64,
    /// Involuntary context switches.
    pub(crate) preemptions: u64,
}

/// See [`Usage`].
pub(crate) fn usage() -> Usage {
    // SAFETY: an rusage is integers only, for which zeroes are values.
    let mut raw: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: writes one `rusage`, which lives here.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut raw) };
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    Usage {
        cpu_ns: thread_cpu_ns(),
        sleeps: count(raw.ru_nvcsw),
        preemptions: count(raw.ru_nivcsw),
    }
}

/// Processor time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec`, which lives here.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.unsigned_abs() * NANOS + time.tv_nsec.unsigned_abs()
}

/// Keeps the calling thread on one processor, where the system allows; a wish, not a need.
pub(crate) fn pin(index: u32) {
    // Not those the calling thread may use: it may be pinned already, and so are its children.
    // SAFETY: asks for a number.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let count = usize::try_from(online).unwrap_or(1).clamp(1, 1024);
    // SAFETY: a set of processors is plain bits, and zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the number is below the set's size.
    unsafe { libc::CPU_SET(index as usize % count, &mut set) };
    // SAFETY: reads one set, which lives here; 0 is the calling thread.
    unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
}
