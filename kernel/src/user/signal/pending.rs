//! Signals that are to come: a set of them, and what is told of each.

use core::cell::UnsafeCell;

use super::{BY_KILL, FIRST_QUEUED, Info, Set};
use crate::pool::{Pool, Pooled, Ref};

/// What is told about a signal that is to come.
pub(crate) struct Queued(UnsafeCell<(Info, Option<Ref<Queued>>)>);

// SAFETY: (1) touched by the one who takes it from the pool, and then under the lock of the list
// that it is in.
unsafe impl Sync for Queued {}

pub(super) static POOL: Pool<Queued> = Pool::new();

impl Pooled for Queued {
    fn new() -> Self {
        Self(UnsafeCell::new((Info::default(), None)))
    }

    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    fn clean(&self) {}
}

/// What is to come.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(super) set: Set,
    /// What is told, in the order in which it was sent.
    first: Option<Ref<Queued>>,
    /// The thread or process has ended: nothing is queued any more.
    closed: bool,
}

impl Pending {
    /// Nothing.
    pub(crate) const fn new() -> Self {
        Self {
            set: Set(0),
            first: None,
            closed: false,
        }
    }

    /// Adds one, with `node` for what it tells; what is left over.
    pub(super) fn add(&mut self, info: Info, node: Option<Ref<Queued>>) -> Option<Ref<Queued>> {
        if self.closed {
            return node;
        }
        let again = self.set.has(info.number) && info.number < FIRST_QUEUED;
        self.set = self.set.with(Set::one(info.number));
        let node = node?;
        if again {
            return Some(node);
        }
        // SAFETY: (1) the caller has it to itself.
        unsafe { *node.0.get() = (info, None) };
        let mut at = &mut self.first;
        while let Some(next) = at {
            // SAFETY: (1) the list's lock is held.
            at = &mut unsafe { &mut *next.0.get() }.1;
        }
        *at = Some(node);
        None
    }

    /// Takes the one to be handled first out, if it is not held back; and its place in the list.
    pub(super) fn take(&mut self, mask: Set) -> Option<(Info, Option<Ref<Queued>>)> {
        let ready = self.set.without(mask);
        let first = if ready.0 & Set::OWN.0 != 0 {
            ready.0 & Set::OWN.0
        } else {
            ready.0
        };
        if first == 0 {
            return None;
        }
        let number = first.trailing_zeros() + 1;
        let mut taken = None;
        let mut more = false;
        let mut at = &mut self.first;
        loop {
            let is_it = match at {
                None => break,
                // SAFETY: (1) the list's lock is held.
                Some(node) => unsafe { &*node.0.get() }.0.number == number,
            };
            if is_it && taken.is_some() {
                more = true;
                break;
            }
            if is_it {
                let node = at.take();
                if let Some(node) = &node {
                    // SAFETY: (1) the list's lock is held.
                    *at = unsafe { &mut *node.0.get() }.1.take();
                }
                taken = node;
                continue;
            }
            let Some(node) = at else { break };
            // SAFETY: (1) the list's lock is held.
            at = &mut unsafe { &mut *node.0.get() }.1;
        }
        if !more {
            self.set = self.set.without(Set::one(number));
        }
        let info = match &taken {
            // SAFETY: (1) it was taken out of the list.
            Some(node) => unsafe { &*node.0.get() }.0,
            None => Info {
                number,
                code: BY_KILL,
                words: [0; 4],
            },
        };
        Some((info, taken))
    }

    /// Takes all out; from now on nothing is added, or it may be again.
    #[must_use]
    pub(super) fn close(&mut self, closed: bool) -> Option<Ref<Queued>> {
        self.closed = closed;
        self.drop_all(Set(u64::MAX))
    }

    /// Takes all of these out; what was told of them.
    #[must_use]
    pub(super) fn drop_all(&mut self, gone: Set) -> Option<Ref<Queued>> {
        self.set = self.set.without(gone);
        let mut dropped = None;
        let mut at = &mut self.first;
        loop {
            let goes = match at {
                None => return dropped,
                // SAFETY: (1) the list's lock is held.
                Some(node) => gone.has(unsafe { &*node.0.get() }.0.number),
            };
            if goes {
                let Some(node) = at.take() else { continue };
                // SAFETY: (1) the list's lock is held.
                let next = unsafe { &mut *node.0.get() };
                *at = next.1.take();
                next.1 = dropped.replace(node);
                continue;
            }
            let Some(node) = at else { continue };
            // SAFETY: (1) the list's lock is held.
            at = &mut unsafe { &mut *node.0.get() }.1;
        }
    }
}

/// Frees what was told, node by node.
pub(super) fn free(list: Option<Ref<Queued>>) {
    let mut at = list;
    while let Some(node) = at {
        // SAFETY: (1) it was taken out of its list.
        at = unsafe { &mut *node.0.get() }.1.take();
    }
}
