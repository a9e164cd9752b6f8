//! Histories of a page that several threads use at once, and whether some order of their steps
//! explains them.
//!
//! # Problem
//! Calls and accesses overlap, so there is no one right result. But each page must look as if all
//! that was done to it had been done in some order, in which a step that ended before another began
//! comes first.
//!
//! # Idea
//! A call on a range is one step on each of its pages: Linux promises no more. So each page has a
//! history of its own, short enough for every order to be tried; what is left to do and what the
//! page holds decide how it can go on, and each such pair is looked at once.
//!
//! # Cost
//! Exponential in the steps that overlap. Histories are cut where all threads rest, and go on with
//! every state that the page may be in there.

use std::collections::BTreeSet;

/// What may be done to a page: Linux's `PROT_` bits.
pub type Rights = u64;

/// What a page is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// Not mapped.
    Nothing,
    /// Mapped, with these rights and this word.
    Mapped(Rights, u64),
}

/// What was done, and what came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// A store of this word.
    Stored(u64),
    /// A load that found this word.
    Loaded(u64),
    /// An access that found nothing mapped.
    FoundNothing,
    /// A load that was not allowed.
    LoadRefused,
    /// A store that was not allowed.
    StoreRefused,
    /// The contents were thrown away.
    Discarded,
    /// Mapped anew, in place of whatever there was.
    Mapped(Rights),
    /// Unmapped.
    Unmapped,
    /// Its rights were changed.
    Protected(Rights),
    /// A call that would have changed its rights failed, maybe after it did.
    MaybeProtected(Rights),
}

/// A step on a page, from one moment to a later one. No two moments are the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The page.
    pub page: u64,
    /// When it began.
    pub from: u64,
    /// When it had ended.
    pub to: u64,
    /// What it was.
    pub did: Did,
}

const WRITE: Rights = minflt_spec::abi::PROT_WRITE;

impl Did {
    /// What the page is afterwards, in each way it can have happened.
    fn after(self, state: State) -> [Option<State>; 2] {
        let allowed = |one: bool| [one.then_some(state), None];
        let one = |state: State| [Some(state), None];
        match (self, state) {
            (Self::Mapped(rights), _) => one(State::Mapped(rights, 0)),
            (Self::Unmapped, _) => one(State::Nothing),
            (Self::FoundNothing, _) => allowed(state == State::Nothing),
            (Self::Stored(word), State::Mapped(rights, _)) if rights & WRITE != 0 => {
                one(State::Mapped(rights, word))
            }
            (Self::Loaded(word), State::Mapped(rights, there)) => {
                allowed(rights != 0 && word == there)
            }
            (Self::LoadRefused, State::Mapped(rights, _)) => allowed(rights == 0),
            (Self::StoreRefused, State::Mapped(rights, _)) => allowed(rights & WRITE == 0),
            (Self::Discarded, State::Mapped(rights, _)) => one(State::Mapped(rights, 0)),
            (Self::Protected(rights), State::Mapped(_, word)) => one(State::Mapped(rights, word)),
            (Self::MaybeProtected(rights), State::Mapped(_, word)) => {
                [Some(state), Some(State::Mapped(rights, word))]
            }
            (Self::Discarded | Self::Protected(_) | Self::MaybeProtected(_), State::Nothing) => {
                one(state)
            }
            _ => [None, None],
        }
    }
}

/// The states that a page may be in after `events`, of which there are at most 64, when it was in
/// one of `before`; none if no order explains what was seen.
#[must_use]
pub fn explain(before: &BTreeSet<State>, events: &[Event]) -> BTreeSet<State> {
    assert!(events.len() <= 64, "a history is cut where threads rest");
    let all = match events.len() {
        64 => u64::MAX,
        some => (1 << some) - 1,
    };
    let mut ends = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<(u64, State)> = before.iter().map(|state| (0, *state)).collect();
    while let Some((done, state)) = open.pop() {
        if !seen.insert((done, state)) {
            continue;
        }
        if done == all {
            ends.insert(state);
            continue;
        }
        let left = |at: &usize| done >> at & 1 == 0;
        let rest = || (0..events.len()).filter(left);
        let first_end = rest().map(|at| events[at].to).min().unwrap_or(u64::MAX);
        for at in rest().filter(|at| events[*at].from < first_end) {
            let next = events[at].did.after(state);
            let next = next.into_iter().flatten();
            open.extend(next.map(|state| (done | 1 << at, state)));
        }
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::{Did, Event, State, explain};
    use std::collections::BTreeSet;

    const RW: u64 = 3;

    fn ends(events: &[(u64, u64, Did)]) -> Vec<State> {
        let before = BTreeSet::from([State::Mapped(RW, 0)]);
        let event = |(from, to, did): &(u64, u64, Did)| Event {
            page: 0,
            from: *from,
            to: *to,
            did: *did,
        };
        let events: Vec<Event> = events.iter().map(event).collect();
        explain(&before, &events).into_iter().collect()
    }

    /// ```text
    /// A  store 1 |---|       |---| load 1
    /// B     store 2 |---|
    /// ```
    #[test]
    fn a_store_that_overlaps_may_come_first_or_last() {
        let events = [
            (0, 3, Did::Stored(1)),
            (2, 5, Did::Stored(2)),
            (6, 7, Did::Loaded(1)),
        ];
        assert_eq!(ends(&events), [State::Mapped(RW, 1)]);
        let both = ends(&events[..2]);
        assert_eq!(both, [State::Mapped(RW, 1), State::Mapped(RW, 2)]);
    }

    #[test]
    fn a_lost_store_has_no_order() {
        assert!(ends(&[(0, 1, Did::Stored(1)), (2, 3, Did::Loaded(0))]).is_empty());
    }

    #[test]
    fn what_was_discarded_does_not_come_back() {
        let events = [
            (0, 1, Did::Stored(1)),
            (2, 5, Did::Discarded),
            (3, 4, Did::Loaded(0)),
            (6, 7, Did::Loaded(1)),
        ];
        assert!(ends(&events).is_empty());
        assert_eq!(ends(&events[..3]), [State::Mapped(RW, 0)]);
    }

    #[test]
    fn rights_count_from_the_call_on() {
        let refused = [(0, 1, Did::Protected(1)), (2, 3, Did::Stored(1))];
        assert!(ends(&refused).is_empty());
        let beside = [(0, 3, Did::Protected(1)), (2, 4, Did::Stored(1))];
        assert_eq!(ends(&beside), [State::Mapped(1, 1)]);
        let gone = [(0, 1, Did::Unmapped), (2, 3, Did::FoundNothing)];
        assert_eq!(ends(&gone), [State::Nothing]);
    }
}
