//! Per-CPU counters: updated often, read rarely; folded into a total in batches.
//!
//! # Problem
//! The cache line of a single shared word that every fault or call updates bounces between all
//! CPUs.
//!
//! # Idea
//! Each CPU adds to its own part. A part that would reach the batch is folded into the total,
//! together with the update that made it so.
//!
//! # Protocol
//! Only its own CPU changes a part, with CPU migration disabled, never from an interrupt. The total
//! is one atomic word. Both are signed numbers in wrapping words.
//!
//! # Why it is correct
//! Nothing is ever dropped: what leaves a part was added to the whole before. So while nobody adds,
//! whole and parts sum up to the number, and each part is smaller than the batch either way (the
//! largest there was, where batches change): the whole alone is off by less than `batch * CPUs`.
//! While others add, a sum is off by no more than what they add meanwhile, and by the parts that
//! are just on their way, which it may see twice.
//!
//! # Cost
//! A load and a store of a line that the CPU has; one exclusive access to a shared line in `batch`
//! changes of 1.
//!
//! Linux: lib/percpu_counter.c, without the lock that its exact sum takes.

use core::cmp::Ordering as Compared;
use minflt_pgtable::Mmu;
use minflt_sync::{Atomic, Ordering};

/// The smallest batch on a machine with `cpus` CPUs. Linux: `percpu_counter_batch`.
pub(crate) const fn batch(cpus: u32) -> u64 {
    let cpus = cpus as u64 * 2;
    if cpus < 32 { 32 } else { cpus }
}

/// Adds `change` to `part`, which is this CPU's, or both to the whole. Linux:
/// `percpu_counter_add_batch`.
#[inline]
pub(crate) fn add<M: Mmu>(whole: &Atomic<u64, M>, part: &Atomic<u64, M>, change: i64, batch: u64) {
    let old = part.load(Ordering::Relaxed) as i64;
    let new = old.wrapping_add(change);
    if new.unsigned_abs() < batch {
        part.add_local(change as u64, Ordering::Relaxed);
        return;
    }
    whole.add(new as u64, Ordering::Relaxed);
    part.add_local(old.wrapping_neg() as u64, Ordering::Relaxed);
}

/// The whole and all parts.
pub(crate) fn sum<'a, M: Mmu>(
    whole: &Atomic<u64, M>,
    parts: impl Iterator<Item = &'a Atomic<u64, M>>,
) -> i64 {
    let whole = whole.load(Ordering::Relaxed) as i64;
    parts.fold(whole, |sum, part| {
        sum.wrapping_add(part.load(Ordering::Relaxed) as i64)
    })
}

/// How the number compares with `limit`: by the whole where that is far enough away, else by the
/// sum. Linux: `__percpu_counter_compare`.
pub(crate) fn compare<'a, M: Mmu>(
    whole: &Atomic<u64, M>,
    parts: impl ExactSizeIterator<Item = &'a Atomic<u64, M>>,
    limit: i64,
    batch: u64,
) -> Compared {
    let rough = whole.load(Ordering::Relaxed) as i64;
    let error = batch.saturating_mul(parts.len() as u64);
    if rough.abs_diff(limit) > error {
        rough.cmp(&limit)
    } else {
        sum(whole, parts).cmp(&limit)
    }
}
