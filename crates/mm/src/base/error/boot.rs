//! Errors of system boot.

use crate::base::config::{Illegal, NegativeControl};
use crate::base::policy::MAX_NODES;
use core::fmt;

/// Why a system could not be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BootError {
    /// The configuration is an unsound mix.
    Illegal(Illegal),
    /// The machine's memory is too small: bytes it has, bytes it needs at least.
    TooSmall {
        /// Bytes there are.
        has: u64,
        /// Bytes the system itself takes, with a few pages to use.
        needs: u64,
    },
    /// More memory nodes than supported.
    TooManyNodes(u32),
    /// This fix is to be switched off, on a machine that has no controls
    /// ([`minflt_sync::Machine::CONTROLS`]).
    NoControls(NegativeControl),
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoControls(fix) => write!(
                f,
                "{fix} cannot be switched off on a machine without controls: take a checked one"
            ),
            Self::Illegal(illegal) => illegal.fmt(f),
            Self::TooSmall { has, needs } => {
                write!(f, "{has} bytes of RAM are too few: give at least {needs}")
            }
            Self::TooManyNodes(nodes) => {
                write!(
                    f,
                    "{nodes} memory nodes are more than the {MAX_NODES} supported"
                )
            }
        }
    }
}

impl core::error::Error for BootError {}
