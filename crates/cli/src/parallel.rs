//! Independent simulations on several of this machine's processors.
//!
//! A simulated run is the same wherever it runs, so only the order of ending differs between
//! processors; results come back in the order of what was asked.
#![expect(
    clippy::disallowed_types,
    reason = "the lock of a queue of simulations, which are on no machine of ours"
)]

use crate::machine;
use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// `work` on every item, as many at a time as there are processors; the results, in order.
///
/// # Errors
/// The first failure, in the order of the items; none is begun after it.
pub(crate) fn map<T: Sync, R: Send, E: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    map_at_most(usize::MAX, items, work)
}

/// As [`map`], but with `most` at a time: each may hold a large machine in memory.
///
/// # Errors
/// As [`map`].
pub(crate) fn map_at_most<T: Sync, R: Send, E: Send>(
    most: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let queue = Mutex::new(items.iter().enumerate());
    let worker = || {
        let mut done = Vec::new();
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((at, item)) = next else { return done };
            let result = work(item);
            if result.is_err() {
                let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
                queue.by_ref().for_each(drop);
            }
            done.push((at, result));
        }
    };
    let mut done = thread::scope(|scope| {
        let others: Vec<_> = (1..machine::cpus().min(items.len()).min(most))
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
    use super::{map, map_at_most};

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u32> = (0..100).collect();
        let squares: Vec<u32> = items.iter().map(|item| item * item).collect();
        let square = |item: &u32| Ok::<_, ()>(item * item);
        assert_eq!(map(&items, square), Ok(squares.clone()));
        assert_eq!(map_at_most(1, &items, square), Ok(squares));
        assert_eq!(map(&[], square), Ok(Vec::new()));
    }

    #[test]
    fn nothing_is_begun_after_a_failure() {
        let items: Vec<u32> = (0..100).collect();
        let begun = std::sync::mpsc::channel();
        let fails = |item: &u32| {
            begun.0.send(*item).map_err(|_| u32::MAX)?;
            if *item < 5 { Ok(()) } else { Err(*item) }
        };
        assert_eq!(map_at_most(1, &items, fails), Err(5));
        assert_eq!(begun.1.try_iter().count(), 6);
    }
}
