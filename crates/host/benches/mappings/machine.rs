//! Systems to measure, and the clock.

use crate::M;
use minflt_host::{HostInstance, HostOptions, Prefault, RamError};
use minflt_mm::{Running, System, era};
use std::time::Instant;

pub(crate) const PAGE: u64 = 4096;

/// A system of one CPU in the era `name`.
pub(crate) fn system(name: &str, ram_bytes: usize) -> Result<Running<M>, RamError> {
    let options = HostOptions {
        cpus: 1,
        ram_bytes,
        prefault: Prefault::Now,
    };
    let machine = HostInstance::new(&options)?;
    let era = era(name).unwrap_or_else(|| panic!("no era is called {name}"));
    Ok(System::boot(machine, era.config).unwrap_or_else(|error| panic!("{error}")))
}

/// Time that passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seconds(Instant);

impl Seconds {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn ns(self) -> f64 {
        self.0.elapsed().as_nanos() as f64
    }
}
