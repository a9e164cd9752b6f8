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
    /// A range of memory ([`minflt_sync::Instance::memory_ranges`]) that is not whole pages, not
    /// within RAM, or not behind the one before; or the first, which does not begin with RAM.
    BadRange {
        /// Its first byte, by physical address.
        start: u64,
        /// The first byte behind it.
        end: u64,
    },
    /// [`Swap::Memory`](crate::Swap::Memory) on a machine whose memory has holes.
    SwapAmongHoles,
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
            Self::BadRange { start, end } => write!(
                f,
                "the memory range {start:#x}..{end:#x} is not whole pages of RAM behind the last"
            ),
            Self::SwapAmongHoles => {
                f.write_str("swap in memory needs a machine whose memory has no holes")
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
