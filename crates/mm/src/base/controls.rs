//! Negative controls: fixes that can be switched off, on machines compiled with controls.
//!
//! # Problem
//! A race test proves something only if it is seen to fail without the fix, but a production kernel
//! must not test at each step of a fault whether a control is set.
//!
//! # Idea
//! Each fix has a name ([`NegativeControl`]), and the code that it guards tests [`System::lacks`].
//! The result is a constant on machines without controls, so the compiler removes the test and the
//! guarded code; boot refuses a configuration with a control there.
//!
//! # Cost
//! None without controls: a test compares the instructions of a fault. With controls, each test is
//! a load of a read-only word and a comparison.

use crate::base::config::{Config, NegativeControl};
use crate::base::error::BootError;
use crate::system::System;
use minflt_pgtable::Mmu;
use minflt_sync::Machine;

/// Whether a system may be what `config` says, on a machine that can lack what it lacks.
pub(crate) fn check<M: Machine>(config: &Config) -> Result<(), BootError> {
    config.check().map_err(BootError::Illegal)?;
    match config.negative_control {
        Some(fix) if !M::CONTROLS => Err(BootError::NoControls(fix)),
        _ => Ok(()),
    }
}

impl<M: Mmu> System<M> {
    /// The fix that is switched off, if any.
    #[inline(always)]
    pub(crate) const fn switched_off(&self) -> Option<NegativeControl> {
        self.config.switched_off::<M>()
    }

    /// Whether this fix is switched off.
    #[inline(always)]
    pub(crate) fn lacks(&self, fix: NegativeControl) -> bool {
        self.config.lacks::<M>(fix)
    }

    /// Whether a fault counts its entry only after that is there.
    #[inline(always)]
    pub(crate) fn counts_late(&self) -> bool {
        self.lacks(NegativeControl::MapCountAfterExchange)
            || self.lacks(NegativeControl::FoundBeforeCounted)
    }
}
