//! Systems to measure, and the clock.

use minflt_host::{Host, HostInstance, HostOptions, Prefault, RamError};
use minflt_mm::{Running, System, era};
use minflt_pgtable::X86_64;

/// The machine measured.
pub(crate) type M = Host<X86_64, false>;

pub(crate) const PAGE: u64 = 4096;

/// A machine whose memory is there from the beginning.
pub(crate) fn machine(cpus: u32, ram_bytes: usize) -> Result<HostInstance, RamError> {
    HostInstance::new(&HostOptions {
        cpus,
        ram_bytes,
        prefault: Prefault::Now,
    })
}

/// A system of one CPU in the era `name`.
pub(crate) fn system(name: &str, ram_bytes: usize) -> Result<Running<M>, RamError> {
    let machine = machine(1, ram_bytes)?;
    let era = era(name).unwrap_or_else(|| panic!("no era is called {name}"));
    Ok(System::boot(machine, era.config).unwrap_or_else(|error| panic!("{error}")))
}

/// Processor time of the calling thread: what it waits for other programs does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime(f64);

impl CpuTime {
    pub(crate) fn start() -> Self {
        Self(now_ns(libc::CLOCK_THREAD_CPUTIME_ID))
    }

    /// Since an earlier moment.
    pub(crate) fn since(self, earlier: Self) -> f64 {
        self.0 - earlier.0
    }

    pub(crate) fn ns(self) -> f64 {
        now_ns(libc::CLOCK_THREAD_CPUTIME_ID) - self.0
    }
}

/// The time of everybody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallTime(f64);

impl WallTime {
    pub(crate) fn start() -> Self {
        Self(now_ns(libc::CLOCK_MONOTONIC))
    }

    pub(crate) fn ns(self) -> f64 {
        now_ns(libc::CLOCK_MONOTONIC) - self.0
    }
}

fn now_ns(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one time, which lives here.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
