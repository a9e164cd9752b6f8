//! Independent simulations on all of this machine's processors.
//!
//! A simulated run is the same wherever it runs, so only the order of ending differs between
//! processors; results come back in the order of what was asked.

#![expect(
    clippy::disallowed_types,
    reason = "the lock of a queue of simulations, which are on no machine of ours"
)]

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// `work` on every item, as many at a time as there are processors; the results, in order.
pub(crate) fn map<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(items.iter().enumerate());
    let worker = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((at, item)) = next else { return done };
            done.push((at, work(item)));
        }
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..processors.min(items.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let mut done = worker();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::map;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        let squares: Vec<u32> = items.iter().map(|item| item * item).collect();
        assert_eq!(map(&items, |item| item * item), squares);
        assert!(map(&[] as &[u32], |item| *item).is_empty());
    }
}
