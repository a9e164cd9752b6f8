//! Negative controls: fixes that can be switched off, on machines compiled with controls.
//!
//! # Problem
//! A test of a race proves something only if it is seen failing without the fix; but a kernel
//! should not ask at each step of a fault whether it is being tested.
//!
//! # Idea
//! Each fix has a name ([`Broken`]), and the code that it guards asks [`System::lacks`] of it. The
//! answer is a constant on machines without controls, so that the compiler removes question and
//! guarded code; a system that is to lack a fix does not start there.
//!
//! # Cost
//! None without controls: a test compares the instructions of a fault. Else a load and a comparison
//! a question, of a word that nobody writes.

use crate::base::config::{Broken, Config};
use crate::base::error::BootError;
use crate::system::System;
use minflt_pgtable::Mmu;
use minflt_sync::Machine;

/// Whether a system may be what `config` says, on a machine that can lack what it lacks.
pub(crate) fn check<M: Machine>(config: &Config) -> Result<(), BootError> {
    config.check().map_err(BootError::Illegal)?;
    match config.broken {
        Some(fix) if !M::CONTROLS => Err(BootError::NoControls(fix)),
        _ => Ok(()),
    }
}

impl<M: Mmu> System<M> {
    /// The fix that is switched off, if any.
    #[inline(always)]
    pub(crate) const fn switched_off(&self) -> Option<Broken> {
        self.config.switched_off::<M>()
    }

    /// Whether this fix is switched off.
    #[inline(always)]
    pub(crate) fn lacks(&self, fix: Broken) -> bool {
        self.config.lacks::<M>(fix)
    }

    /// Whether a fault counts its entry only after that is there.
    #[inline(always)]
    pub(crate) fn counts_late(&self) -> bool {
        self.lacks(Broken::MapCountAfterExchange) || self.lacks(Broken::FoundBeforeCounted)
    }
}
