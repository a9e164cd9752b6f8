//! State outside memory that workers of a process, or process group, share.

use crate::Host;
use minflt_mm::System;
use minflt_pgtable::X86_64;
use minflt_process::Common;
use minflt_sync::Machine;
use minflt_sync::prim::{AtomicU64, Ordering};

const SLOTS: usize = 8;
const ARRIVED: u64 = 1 << 32;

/// What the workers share beside memory.
#[derive(Debug)]
pub(crate) struct Shared<'s, const CHECKED: bool> {
    pub(crate) system: &'s System<Host<X86_64, CHECKED>>,
    pub(crate) workers: u32,
    /// What all workers have in common.
    pub(crate) common: &'s Common<'s, Host<X86_64, CHECKED>>,
    mailbox: [AtomicU64; SLOTS],
    /// Workers that may still come to the barrier, in the low half; those that have, in the high.
    barrier: AtomicU64,
    /// Times the barrier opened.
    opened: AtomicU64,
}

impl<'s, const CHECKED: bool> Shared<'s, CHECKED> {
    pub(crate) fn new(
        system: &'s System<Host<X86_64, CHECKED>>,
        workers: u32,
        common: &'s Common<'s, Host<X86_64, CHECKED>>,
    ) -> Self {
        Self {
            system,
            workers,
            common,
            mailbox: [const { AtomicU64::new(0) }; SLOTS],
            barrier: AtomicU64::new(u64::from(workers)),
            opened: AtomicU64::new(0),
        }
    }

    /// Waits for all workers that have not ended; acknowledges interrupts meanwhile.
    pub(crate) fn wait(&self) {
        // ORDERING: Acquire here and below; pairs with [host-barrier].
        let round = self.opened.load(Ordering::Acquire);
        let now = self.barrier.fetch_add(ARRIVED, Ordering::AcqRel) + ARRIVED;
        if !self.open_if_complete(now) {
            while self.opened.load(Ordering::Acquire) == round {
                Host::<X86_64, CHECKED>::wait_until::<u64>(&self.opened, u64::MAX, round + 1);
            }
        }
    }

    /// See [`minflt_workload::Worker::post`].
    pub(crate) fn post(&self, slot: usize, value: u64) {
        // ORDERING: Release; pairs with [host-mailbox].
        self.mailbox[slot].store(value, Ordering::Release);
    }

    /// See [`minflt_workload::Worker::read`].
    pub(crate) fn read(&self, slot: usize) -> u64 {
        // ORDERING: Acquire; pairs with [host-mailbox].
        self.mailbox[slot].load(Ordering::Acquire)
    }

    /// See [`minflt_workload::Worker::claim`].
    pub(crate) fn claim(&self, slot: usize) -> u64 {
        self.mailbox[slot].fetch_add(1, Ordering::Relaxed)
    }

    /// The worker ends, and nobody has to wait for it any more.
    pub(crate) fn leave(&self) {
        let now = self.barrier.fetch_sub(1, Ordering::AcqRel) - 1;
        if now != 0 {
            self.open_if_complete(now);
        }
    }

    fn open_if_complete(&self, now: u64) -> bool {
        let complete = now >> 32 == now & (ARRIVED - 1);
        if complete {
            // Everybody alive waits here, so nobody changes the word between the two lines.
            // ORDERING: Release, AcqRel; pairs with [host-barrier].
            self.barrier.store(now & (ARRIVED - 1), Ordering::Release);
            self.opened.fetch_add(1, Ordering::AcqRel);
        }
        complete
    }
}
