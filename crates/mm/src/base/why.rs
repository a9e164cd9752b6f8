//! Reasons why a lock mode of a fault falls back.

use crate::base::event::Event;

/// Why a lock mode fails. Never an error: the fault tries the next mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Why {
    VmaChanged,
    PmdChanged,
    PteLock,
    NoAnonVma,
    NotSupported,
    /// The VMA was not there, not this one, or write-locked.
    VmaLocked,
    /// The VMA's lock is not enough.
    NeedsMmapLock,
}

impl Why {
    pub(crate) const fn event(self) -> Event {
        match self {
            Self::VmaChanged => Event::SpfVmaChanged,
            Self::PmdChanged => Event::SpfPmdChanged,
            Self::PteLock => Event::SpfPteLock,
            Self::NoAnonVma => Event::SpfNoAnonVma,
            Self::NotSupported => Event::SpfNotSupported,
            Self::VmaLocked => Event::VmaLockAbort,
            Self::NeedsMmapLock => Event::VmaLockRetry,
        }
    }
}
