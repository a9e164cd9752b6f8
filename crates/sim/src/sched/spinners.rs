//! Spinning tasks by cache line.
//!
//! # Problem
//! A lock's release lets all who spin for it look again, and most of them look in vain: with a
//! thousand CPUs thousands of spinners a fault go from their line's list to its queue and back. A
//! list threaded through the tasks costs a few lines of the host's memory a step.
//!
//! # Idea
//! A line that is spun on has a list of its own, in one piece, of all that a look needs to know of
//! each spinner. Going to the queue and back moves these entries and touches no task: a spinner's
//! state is the same in both, and where it is, its line says. What is looked at is one of few
//! words for all of them: an entry has its number.
//!
//! # Why it is correct
//! A list is taken out while it changes and put back at once. What is looked at is fixed while a
//! task spins, so its copies agree.
//!
//! # Cost
//! A copy of 24 bytes a move. A watch is kept for the rest of the run, some 100 bytes: of
//! a spinning lock one a word, of a ticket lock one each wait. Whoever leaves out of turn, for an
//! interrupt, is searched for.

use super::arbitration::Asking;
use super::task::Watch;
use crate::lines::NOBODY;
use core::num::NonZeroU32;
use std::collections::BTreeMap;

/// A watch of one run, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WatchId(NonZeroU32);

impl WatchId {
    /// The watch, of all those of a run.
    #[inline]
    pub(super) fn of(self, watches: &[Watch]) -> Watch {
        watches[self.0.get() as usize - 1]
    }
}

/// The lists of all lines, by number; a line knows its list's number plus 1.
#[derive(Debug, Default)]
pub(super) struct Spinners {
    lists: Vec<Vec<Asking>>,
    /// Lists without a line; they are empty.
    free: Vec<u32>,
    /// All that was ever looked at, and where in this.
    watches: Vec<Watch>,
    numbers: BTreeMap<Watch, WatchId>,
    /// The last one that was asked for: mostly it is the next, too.
    last: Option<WatchId>,
}

impl Spinners {
    /// Whether nobody spins, but for those who ask to look.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.len() == self.free.len()
    }

    /// The list of a line whose number is `head`, in the order of coming; it is to be put back.
    #[inline]
    pub(super) fn take(&mut self, head: u32) -> Vec<Asking> {
        let at = if head == NOBODY {
            self.free.last().copied()
        } else {
            Some(head - 1)
        };
        at.map_or_else(Vec::new, |at| core::mem::take(&mut self.lists[at as usize]))
    }

    /// Puts the list of a line back; its number from now on.
    #[inline]
    pub(super) fn put(&mut self, head: u32, list: Vec<Asking>) -> u32 {
        let (was, is) = (head != NOBODY, !list.is_empty());
        let at = match (was, self.free.last()) {
            (true, _) => head - 1,
            (false, Some(at)) => *at,
            (false, None) if is => {
                self.lists.push(list);
                return self.lists.len() as u32;
            }
            (false, None) => return NOBODY,
        };
        self.lists[at as usize] = list;
        match (was, is) {
            (true, false) => self.free.push(at),
            (false, true) => self.free.truncate(self.free.len() - 1),
            _ => {}
        }
        if is { at + 1 } else { NOBODY }
    }

    /// The list of a line whose number is `head`, a new one if there is none, and the watches;
    /// something is added to it.
    #[inline]
    pub(super) fn list(&mut self, head: &mut u32) -> (&mut Vec<Asking>, &[Watch]) {
        if *head == NOBODY {
            *head = self.free.pop().unwrap_or_else(|| {
                self.lists.push(Vec::new());
                self.lists.len() as u32 - 1
            }) + 1;
        }
        (&mut self.lists[*head as usize - 1], &self.watches)
    }

    /// The number of a watch.
    pub(super) fn watched(&mut self, watch: Watch) -> WatchId {
        if let Some(last) = self.last.filter(|last| self.watch(*last) == watch) {
            return last;
        }
        let next = WatchId(NonZeroU32::MIN.saturating_add(self.watches.len() as u32));
        let id = *self.numbers.entry(watch).or_insert(next);
        if id == next {
            self.watches.push(watch);
        }
        self.last = Some(id);
        id
    }

    /// The watch with a number.
    #[inline]
    pub(super) fn watch(&self, id: WatchId) -> Watch {
        id.of(&self.watches)
    }

    /// Adds `one` to the list whose number `head` is.
    pub(super) fn push(&mut self, head: &mut u32, one: Asking) {
        self.list(head).0.push(one);
    }

    /// Takes `task` out of the list whose number `head` is.
    pub(super) fn remove(&mut self, head: &mut u32, task: u32) {
        let mut list = self.take(*head);
        if let Some(at) = list.iter().position(|one| one.task == task) {
            list.remove(at);
        }
        *head = self.put(*head, list);
    }
}

#[cfg(test)]
mod tests {
    use super::Spinners;
    use crate::lines::NOBODY;
    use crate::rng::Rng;
    use crate::sched::arbitration::Asking;
    use minflt_sync::Kind;

    fn one(task: u32) -> Asking {
        Asking {
            task,
            cpu: task,
            die: 0,
            at: 0,
            kind: Kind::Load,
            looks: None,
        }
    }

    #[test]
    fn each_line_has_the_list_that_it_would_have_alone() {
        let (mut random, mut all) = (Rng::new(1), Spinners::default());
        let mut heads = [NOBODY; 5];
        let mut plain: [Vec<u32>; 5] = Default::default();
        for task in 0..20_000 {
            let line = random.below(5) as usize;
            let (head, plain) = (&mut heads[line], &mut plain[line]);
            match random.below(4) {
                0 | 1 => {
                    all.push(head, one(task));
                    plain.push(task);
                }
                2 => {
                    let which = random.below(plain.len().max(1) as u64) as usize;
                    let gone = plain.get(which).copied().unwrap_or(task);
                    all.remove(head, gone);
                    plain.retain(|task| *task != gone);
                }
                _ => {
                    let mut list = all.take(*head);
                    let tasks: Vec<u32> = list.iter().map(|one| one.task).collect();
                    assert_eq!(tasks, *plain);
                    list.retain(|one| one.task % 3 == 0);
                    plain.retain(|task| task % 3 == 0);
                    *head = all.put(*head, list);
                }
            }
            assert_eq!(*head == NOBODY, plain.is_empty());
            assert_eq!(all.is_empty(), heads.iter().all(|head| *head == NOBODY));
        }
        assert!(all.lists.len() <= 5, "lists are used again");
    }
}
