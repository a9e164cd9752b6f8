//! Who gets a line next, of those who wait for it.
//!
//! # Problem
//! A lock's release lets all who spin for it look again, and each look is a choice between all dies
//! that wait: with hundreds of dies, a pass over them a choice is most of what a collapse costs.
//!
//! # Idea
//! What a choice asks of each die is kept as bits, a word for 64 dies: whether its cache has taken
//! up a request, and whether it has a copy of the line. A choice then looks at the few dies that
//! are in question. Dies keep the order of a list whose removed members the last one replaces, and
//! random numbers are drawn in that order.
//!
//! # Why it is correct
//! A request that is taken up stays so until it is served, as [`Die::free`] passes only once. Who
//! has a copy changes by accesses to the line alone, and each is told ([`Queue::sees`]).
//!
//! # Cost
//! Words of bits, and the dies whose cache became free since the last choice.

use super::bits::{Bits, find};
use super::task::Watch;
use crate::lines::{Came, Line};
use crate::machine_file::Arbitration;
use crate::model::{Distance, Model, Ps};
use crate::rng::Rng;
use minflt_sync::Kind;
use std::collections::VecDeque;

/// Those who wait for one line.
#[derive(Debug, Default)]
pub(super) struct Queue {
    dies: Vec<Die>,
    /// When the last cache of each of `dies` can serve one more.
    free: Vec<Ps>,
    /// By die: its place in `dies`, plus 1.
    place_of: Vec<u32>,
    /// Dies whose cache has taken up the first of them, and takes no other.
    taken_up: Bits,
    /// Of these, whose first one reads.
    reading: Bits,
    /// Dies with a copy of the line, while nobody owns it.
    sharing: Bits,
    /// Lists that were used before.
    spare: Vec<VecDeque<Asking>>,
    /// A reader that was just served: the others of its core have the line with it.
    read: Option<u32>,
    /// When one of them was given the line that has not yet touched it.
    pub(super) granted: Option<Ps>,
}

/// Those of one die, in the order of asking; at least one.
#[derive(Debug)]
struct Die {
    die: u32,
    asking: VecDeque<Asking>,
}

/// One that waits for a line: to touch it, or to look at it again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    pub(super) task: u32,
    pub(super) cpu: u32,
    pub(super) die: u32,
    pub(super) kind: Kind,
    /// When it asked.
    pub(super) at: Ps,
    /// What it looks at, if it spins.
    pub(super) looks: Option<Watch>,
}

impl Queue {
    /// Adds one; `shares` says whether its die has a copy of the line.
    #[inline]
    pub(super) fn join(&mut self, asking: Asking, shares: impl FnOnce() -> bool) {
        let die = asking.die;
        match self.place(die) {
            Some(at) => self.dies[at].asking.push_back(asking),
            None => self.first_of(die, asking, shares()),
        }
    }

    fn first_of(&mut self, die: u32, asking: Asking, shares: bool) {
        if self.place_of.len() <= die as usize {
            self.place_of.resize(die as usize + 1, 0);
        }
        let mut list = self.spare.pop().unwrap_or_default();
        list.push_back(asking);
        self.dies.push(Die { die, asking: list });
        self.free.push(0);
        let len = self.dies.len();
        self.place_of[die as usize] = len as u32;
        self.taken_up.reach(len);
        self.reading.reach(len);
        self.sharing.reach(len);
        self.sharing.set(len - 1, shares);
    }

    /// The CPU in whose name the queue goes on.
    pub(super) fn head(&self) -> Option<u32> {
        self.dies.first().map(|die| die.asking[0].cpu)
    }

    /// Nobody waits here any more.
    pub(super) fn close(&mut self) {
        debug_assert!(self.dies.is_empty(), "somebody waits");
        (self.read, self.granted) = (None, None);
    }

    /// CPU `cpu` has touched the line, which `came` to it.
    pub(super) fn sees(&mut self, model: &Model, cpu: u32, came: Came) {
        match came {
            Came::Not => {}
            Came::Owned => self.sharing.clear(),
            Came::Shared { with } => {
                for cpu in [Some(cpu), with].into_iter().flatten() {
                    if let Some(at) = self.place(model.places[cpu as usize].die) {
                        self.sharing.set(at, true);
                    }
                }
            }
        }
    }

    /// Whether `task`, of die `die`, is one of them.
    pub(super) fn has(&self, die: u32, task: u32) -> bool {
        let asks = |at: usize| self.dies[at].asking.iter().any(|one| one.task == task);
        self.place(die).is_some_and(asks)
    }

    #[inline]
    fn place(&self, die: u32) -> Option<usize> {
        let place = self.place_of.get(die as usize).copied().unwrap_or(0);
        (place as usize).checked_sub(1)
    }

    /// Takes the next one out, `found` being the line as it is. If nobody can be served at time
    /// `now`: when somebody can, if there is anybody.
    pub(super) fn choose(
        &mut self,
        model: &Model,
        found: &Line,
        random: &mut Rng,
        now: Ps,
    ) -> Result<Asking, Option<Ps>> {
        if let Some(merged) = self.merged(model, found, now) {
            return Ok(merged);
        }
        self.take_up(model, random, now);
        let busy = found.busy;
        let at = match model.arbitration {
            Arbitration::Fifo => {
                let age = |at: &usize| self.dies[*at].asking[0].at;
                let all = 0..self.dies.len();
                all.filter(|at| self.is_ready(*at, busy, now))
                    .min_by_key(age)
            }
            Arbitration::NearFirst if random.below(1000) < model.near_first_permille => {
                let near = self.place(model.places[usize::from(found.last)].die);
                near.filter(|at| self.is_ready(*at, busy, now))
                    .or_else(|| self.any(random, busy, now))
            }
            Arbitration::NearFirst | Arbitration::Random => self.any(random, busy, now),
        };
        let Some(at) = at else {
            return Err(self.ready_at(busy, now));
        };
        let first = self.dies[at].asking[0];
        let reads = !first.kind.writes();
        if reads && model.siblings(first.cpu).next().is_some() {
            self.read = Some(first.cpu);
        }
        let brings = reads && !self.sharing.has(at);
        self.free[at] = now
            + if brings {
                // A copy for the rest of the die.
                model.transfer(model.distance(first.cpu, u32::from(found.last)))
            } else {
                model.serve
            };
        Ok(self.take(at, 0))
    }

    /// One whose core has the line anyhow: it was read for a sibling, or came for one after both
    /// had asked.
    fn merged(&mut self, model: &Model, found: &Line, now: Ps) -> Option<Asking> {
        let read = self.read.take();
        let owner = found.owned_by().filter(|_| found.busy <= now);
        let core = model.within(read.or(owner)?, Distance::Core);
        let at = self.place(model.places[core.start as usize].die)?;
        let with_it = |one: &Asking| {
            core.contains(&one.cpu)
                && match read {
                    Some(_) => !one.kind.writes(),
                    None => found.visits(model, one.cpu, one.at),
                }
        };
        let one = self.dies[at].asking.iter().position(with_it)?;
        self.read = read;
        Some(self.take(at, one))
    }

    /// Each last cache that is free takes one up: with `fifo` the first to ask, else any.
    fn take_up(&mut self, model: &Model, random: &mut Rng, now: Ps) {
        let (dies, free) = (&mut self.dies, &self.free);
        let (taken_up, reading) = (&mut self.taken_up, &mut self.reading);
        let len = dies.len();
        for n in 0..len.div_ceil(64) {
            let idle = !taken_up.word(n);
            let to = len.min(n * 64 + 64);
            let all = |at: usize| {
                if free[at] <= now {
                    let asking = &mut dies[at].asking;
                    if model.arbitration != Arbitration::Fifo {
                        let one = random.below(asking.len() as u64) as usize;
                        asking.swap(0, one);
                    }
                    taken_up.set(at, true);
                    reading.set(at, !asking[0].kind.writes());
                }
                false
            };
            find(n * 64, to, |_| idle, all);
        }
    }

    /// The dies, as bits, that have taken up one that they can serve now if their cache is free;
    /// `busy` is until when the line moves.
    fn servable(&self, n: usize, busy: Ps, now: Ps) -> u64 {
        if busy <= now {
            self.taken_up.word(n)
        } else {
            self.alone(n)
        }
    }

    /// The dies, as bits, whose last cache can serve the one it has taken up by itself.
    fn alone(&self, n: usize) -> u64 {
        self.taken_up.word(n) & self.sharing.word(n) & self.reading.word(n)
    }

    /// Whether the one that a die has taken up can be served now; `busy` is until when the line
    /// moves.
    fn is_ready(&self, at: usize, busy: Ps, now: Ps) -> bool {
        let servable = self.servable(at / 64, busy, now);
        servable >> (at % 64) & 1 == 1 && self.free[at] <= now
    }

    /// The first die that can be served from one drawn at random on, in the order of the list.
    fn any(&self, random: &mut Rng, busy: Ps, now: Ps) -> Option<usize> {
        let len = self.dies.len();
        let start = random.below(len.max(1) as u64) as usize;
        let is = |at: usize| self.free[at] <= now;
        let word = |n| self.servable(n, busy, now);
        find(start, len, word, is).or_else(|| find(0, start, word, is))
    }

    /// When somebody can be served, where nobody can be now.
    fn ready_at(&self, busy: Ps, now: Ps) -> Option<Ps> {
        let len = self.dies.len();
        let mut first = Ps::MAX;
        // Of those that wait for the line and not for their cache, one is enough.
        let waits = |n| self.taken_up.word(n) & !self.alone(n);
        find(0, len, waits, |at| {
            let free = self.free[at];
            first = first.min(free.max(busy));
            free <= now
        });
        let others = |n| !self.taken_up.word(n) | self.alone(n);
        find(0, len, others, |at| {
            first = first.min(self.free[at]);
            false
        });
        (len > 0).then_some(first)
    }

    /// Takes one of a die out; the die, if it was the last.
    fn take(&mut self, at: usize, one: usize) -> Asking {
        let die = &mut self.dies[at];
        let taken = die.asking[one];
        die.asking.remove(one);
        let is_empty = die.asking.is_empty();
        if one == 0 {
            self.taken_up.set(at, false);
        }
        if is_empty {
            self.remove(at);
        }
        taken
    }

    fn remove(&mut self, at: usize) {
        let last = self.dies.len() - 1;
        let gone = self.dies.swap_remove(at);
        self.free.swap_remove(at);
        self.place_of[gone.die as usize] = 0;
        if let Some(moved) = self.dies.get(at) {
            self.place_of[moved.die as usize] = at as u32 + 1;
        }
        self.taken_up.swap_remove(at, last);
        self.reading.swap_remove(at, last);
        self.sharing.swap_remove(at, last);
        let mut list = gone.asking;
        list.clear();
        self.spare.push(list);
    }

    /// All of a die for whom it is `vain` have looked, one after the other, for half of `serve`
    /// each; they are added to `looked`.
    pub(super) fn look_in_vain(
        &mut self,
        die: u32,
        serve: Ps,
        vain: impl Fn(&Asking) -> bool,
        looked: &mut Vec<Asking>,
    ) {
        let Some(at) = self.place(die) else { return };
        let asking = &mut self.dies[at].asking;
        let (first, from) = (asking[0].task, looked.len());
        asking.retain(|one| {
            let vain = vain(one);
            if vain {
                looked.push(*one);
            }
            !vain
        });
        self.free[at] += serve * (looked.len() - from) as u64 / 2;
        match asking.front() {
            Some(one) if one.task == first => {}
            Some(_) => self.taken_up.set(at, false),
            None => self.remove(at),
        }
    }

    /// Whether anybody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.dies.is_empty()
    }
}
