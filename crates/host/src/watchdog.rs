//! Watchdog: reports CPUs that do not handle an interrupt.
//!
//! # Problem
//! A thread that is a CPU and blocks in the host, outside of [`CpuGuard::away`], takes no
//! interrupts. Who waits for its answer (munmap on another CPU, say) waits as long as that takes,
//! perhaps for ever, and nothing shows why.
//!
//! # Idea
//! Whoever waits for answers looks at the clock between looks at the word it waits for. After a
//! bound it reports itself and the CPUs whose interrupt is still to be taken, once, and goes on
//! waiting: a thread that was only slow answers later.
//!
//! # Cost
//! Nothing for answers that come within the first wait. Then a reading of the clock for each wait.
//!
//! Linux: kernel/smp.c csd_lock_wait, `CONFIG_CSD_LOCK_WAIT_DEBUG`.
//!
//! [`CpuGuard::away`]: crate::CpuGuard::away

use crate::context::with_current;
use crate::instance::{HostInstance, now};
use core::fmt;
use core::time::Duration;
use minflt_sync::{CpuMask, Ordering};
use std::time::Instant;

/// The default time after which a wait is reported.
const BOUND: Duration = Duration::from_secs(5);

/// A CPU waits for others, which do not take the interrupt that it sent them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unanswered {
    /// The CPU that waits.
    pub waiting: u32,
    /// Those that it waits for.
    pub silent: Vec<u32>,
    /// How long it has waited.
    pub waited: Duration,
}

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CPU {} has waited {:.3} s for its interrupt to be handled, and is still waiting for CPU",
            self.waiting,
            self.waited.as_secs_f64()
        )?;
        for (at, cpu) in self.silent.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma} {cpu}")?;
        }
        f.write_str(
            ": a CPU thread that blocks in the host must do so inside `CpuGuard::away`, or it \
             handles no interrupts",
        )
    }
}

/// After how long a wait is reported, and to whom.
pub(crate) struct Watchdog {
    bound: Duration,
    report: Box<dyn Fn(&Unanswered) + Send + Sync>,
}

impl Watchdog {
    /// On the standard error, after some seconds.
    pub(crate) fn new() -> Self {
        Self {
            bound: BOUND,
            report: Box::new(|unanswered| eprintln!("minflt: {unanswered}")),
        }
    }
}

impl HostInstance {
    /// The same machine with another watchdog: when a CPU has waited for `bound` for others to
    /// answer its interrupt, `report` is called, once a wait, on the thread that waits. As long as
    /// nothing is said, that is 5 seconds, and the report is a line on the standard error.
    ///
    /// `report` uses nothing of the machine: its caller may hold locks.
    #[must_use]
    pub fn with_watchdog(
        self,
        bound: Duration,
        report: impl Fn(&Unanswered) + Send + Sync + 'static,
    ) -> Self {
        let mut machine = self;
        machine.watchdog = Watchdog {
            bound,
            report: Box::new(report),
        };
        machine
    }

    /// Waits until `done`, for CPUs that were interrupted.
    pub(crate) fn await_cpus(&self, asked: &CpuMask, done: impl Fn() -> bool, wait: impl Fn()) {
        let mut watch = Watch::new(self);
        while !done() {
            wait();
            watch.look(asked);
        }
    }

    /// Those of `asked` that have an interrupt to take.
    fn silent(&self, asked: &CpuMask) -> Vec<u32> {
        let pending = |cpu: &u32| {
            let context = self.shared().contexts.get(*cpu as usize);
            context.is_some_and(|it| it.pending.0.load(Ordering::Relaxed) != 0)
        };
        asked.iter().filter(pending).collect()
    }
}

/// One wait.
struct Watch<'a> {
    machine: &'a HostInstance,
    began: Option<Instant>,
    reported: bool,
}

impl<'a> Watch<'a> {
    const fn new(machine: &'a HostInstance) -> Self {
        Self {
            machine,
            began: None,
            reported: false,
        }
    }

    #[cold]
    fn look(&mut self, asked: &CpuMask) {
        if self.reported {
            return;
        }
        let now = now();
        let waited = now.duration_since(*self.began.get_or_insert(now));
        let Watchdog { bound, report } = &self.machine.watchdog;
        if waited < *bound {
            return;
        }
        // Where all have taken it their handlers run: the answers come.
        let silent = self.machine.silent(asked);
        if !silent.is_empty() {
            self.reported = true;
            let waiting = with_current(|here| here.cx.cpu.get());
            report(&Unanswered {
                waiting,
                silent,
                waited,
            });
        }
    }
}
