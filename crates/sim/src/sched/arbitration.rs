//! Arbitration between CPUs that wait for one cache line.
//!
//! # Problem
//! A lock's release lets all who spin for it look again, and each look is a choice between all dies
//! that wait: with hundreds of dies, a pass over them a choice is most of what a collapse costs.
//!
//! # Idea
//! What a choice asks of each die is kept as bits, a word for 64 dies: whether its cache has taken
//! up a request, whether that reads, and whether the die has a copy of the line. A choice then
//! looks at the few dies that are in question. Dies keep the order of a list whose removed members
//! the last one replaces, and random numbers are drawn in that order. While the line moves and no
//! die can serve its request by itself, a choice is in vain whatever is drawn: as many numbers are
//! left out as it would have drawn.
//!
//! # Why it is correct
//! A request that is taken up stays the first of its die until it is served, as a cache becomes
//! free only once. Who has a copy changes by accesses to the line alone, and each is told
//! ([`Queue::sees`]).
//!
//! # Cost
//! Words of bits, and the dies whose cache became free since the last choice.

use super::bits::{Marks, find};
use super::spinners::WatchId;
use crate::lines::{Came, Line};
use crate::machine_file::Arbitration;
use crate::model::{Distance, Model, Ps};
use crate::rng::Rng;
use minflt_sync::Kind;
use smallvec::SmallVec;

/// Those who wait for one line.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The dies of those who wait, in the order in which one is drawn.
    dies: Vec<u32>,
    /// When the last cache of each of `dies` can serve one more.
    free: Vec<Ps>,
    /// What is known of each of `dies`.
    marks: Marks,
    /// By die.
    of: Vec<Die>,
    /// A reader that was just served: the others of its core have the line with it.
    read: Option<u32>,
    /// When one of them was given the line that has not yet touched it.
    pub(super) granted: Option<Ps>,
}

/// Requests of one die: where dies are small, in the die's own lines of the host's memory.
type Requests = SmallVec<[Asking; 2]>;

/// Those of one die, in the order of asking.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Die {
    asking: Requests,
    /// Its place in [`Queue::dies`], plus 1, if anybody is asking.
    place: u32,
}

const _: () = assert!(size_of::<Die>() == 64);

/// One that waits for a line: to touch it, or to look at it again. Small: hundreds of them go from
/// list to queue and back with each change of a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    pub(super) task: u32,
    pub(super) cpu: u32,
    /// At most 2048 CPUs, and so dies.
    pub(super) die: u16,
    pub(super) kind: Kind,
    /// When it asked.
    pub(super) at: Ps,
    /// What it looks at, if it spins.
    pub(super) looks: Option<WatchId>,
}

impl Queue {
    /// Adds one; `shares` says whether its die has a copy of the line.
    #[inline]
    pub(super) fn join(&mut self, one: Asking, shares: impl FnOnce() -> bool) {
        let at = usize::from(one.die);
        if self.of.len() <= at {
            self.of.resize_with(at + 1, Die::default);
        }
        let die = &mut self.of[at];
        die.asking.push(one);
        if die.place == 0 {
            self.dies.push(u32::from(one.die));
            self.free.push(0);
            die.place = self.dies.len() as u32;
            self.marks.push(self.dies.len() - 1, shares());
        }
    }

    /// The CPU in whose name the queue goes on.
    pub(super) fn head(&self) -> Option<u32> {
        let die = self.dies.first()?;
        Some(self.of[*die as usize].asking[0].cpu)
    }

    /// Nobody waits here any more.
    pub(super) fn close(&mut self) {
        debug_assert!(self.dies.is_empty(), "somebody waits");
        (self.read, self.granted) = (None, None);
    }

    /// CPU `cpu` has touched the line, which `came` to it.
    #[inline]
    pub(super) fn sees(&mut self, model: &Model, cpu: u32, came: Came) {
        match came {
            Came::Not => {}
            Came::Owned => self.marks.nobody_shares(),
            Came::Shared { with } => {
                for cpu in [Some(cpu), with].into_iter().flatten() {
                    if let Some(at) = self.place(model.places[cpu as usize].die) {
                        self.marks.shares(at);
                    }
                }
            }
        }
    }

    /// Whether `task`, of die `die`, is one of them.
    pub(super) fn has(&self, die: u32, task: u32) -> bool {
        let die = self.of.get(die as usize);
        die.is_some_and(|die| die.asking.iter().any(|one| one.task == task))
    }

    #[inline]
    fn place(&self, die: u32) -> Option<usize> {
        let place = self.of.get(die as usize)?.place;
        (place as usize).checked_sub(1)
    }

    #[inline]
    fn asking(&mut self, at: usize) -> &mut Requests {
        &mut self.of[self.dies[at] as usize].asking
    }

    /// Takes the next one out, `found` being the line as it is. If nobody can be served at time
    /// `now`: who can first, if that is before `until`, and `now` becomes that time; else when that
    /// is, if there is anybody.
    pub(super) fn choose(
        &mut self,
        model: &Model,
        found: &Line,
        random: &mut Rng,
        now: &mut Ps,
        until: Ps,
    ) -> Result<Asking, Option<Ps>> {
        loop {
            match self.choose_at(model, found, random, *now) {
                Err(Some(time)) if time < until => *now = time,
                chosen => return chosen,
            }
        }
    }

    /// The same, at time `now` only.
    #[inline]
    fn choose_at(
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
        if busy > now && !self.marks.words().any(|word| word.alone() != 0) {
            // Nobody can be served, whatever is drawn.
            random.skip(match model.arbitration {
                _ if model.snoops.is_some() => 1,
                Arbitration::Fifo => 0,
                Arbitration::Random => 1,
                Arbitration::NearFirst => 2,
            });
            return Err(self.ready_at(busy, now));
        }
        let at = match model.arbitration {
            _ if model.snoops.is_some() => {
                let near = self.place(model.places[usize::from(found.last)].die);
                self.any(random, busy, now, near)
                    .or_else(|| near.filter(|at| self.is_ready(*at, busy, now)))
            }
            Arbitration::Fifo => {
                let age = |at: &usize| self.of[self.dies[*at] as usize].asking[0].at;
                let all = 0..self.dies.len();
                all.filter(|at| self.is_ready(*at, busy, now))
                    .min_by_key(age)
            }
            Arbitration::NearFirst if random.below(1000) < model.near_first_permille => {
                let near = self.place(model.places[usize::from(found.last)].die);
                near.filter(|at| self.is_ready(*at, busy, now))
                    .or_else(|| self.any(random, busy, now, None))
            }
            Arbitration::NearFirst | Arbitration::Random => self.any(random, busy, now, None),
        };
        let Some(at) = at else {
            return Err(self.ready_at(busy, now));
        };
        let (reads, shares) = self.marks.reads_and_shares(at);
        let first = self.take(at, 0, |free, first| {
            *free = now
                + if reads && !shares {
                    // A copy for the rest of the die.
                    model.transfer(model.distance(first, u32::from(found.last)))
                } else {
                    model.serve
                };
        });
        if reads && model.siblings(first.cpu).next().is_some() {
            self.read = Some(first.cpu);
        }
        Ok(first)
    }

    /// One whose core has the line anyhow: it was read for a sibling, or came for one after both
    /// had asked.
    #[inline]
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
        let one = self.asking(at).iter().position(with_it)?;
        self.read = read;
        Some(self.take(at, one, |_, _| {}))
    }

    /// Each last cache that is free takes one up: with `fifo` the first to ask, else any.
    #[inline]
    fn take_up(&mut self, model: &Model, random: &mut Rng, now: Ps) {
        for n in 0..self.dies.len().div_ceil(64) {
            let mut idle = self.marks.word(n).idle();
            while idle != 0 {
                let at = n * 64 + idle.trailing_zeros() as usize;
                if self.free[at] <= now {
                    let asking = self.asking(at);
                    match asking.len() as u64 {
                        _ if model.arbitration == Arbitration::Fifo => {}
                        // The only one, whatever is drawn.
                        1 => random.skip(1),
                        len => asking.swap(0, random.below(len) as usize),
                    }
                    let reads = !asking[0].kind.writes();
                    self.marks.takes_up(at, reads);
                }
                idle &= idle - 1;
            }
        }
    }

    /// Whether the one that a die has taken up can be served now; `busy` is until when the line
    /// moves.
    #[inline]
    fn is_ready(&self, at: usize, busy: Ps, now: Ps) -> bool {
        let servable = self.marks.word(at / 64).servable(busy <= now);
        servable >> (at % 64) & 1 == 1 && self.free[at] <= now
    }

    /// The first die but `not` that can be served from one drawn at random on, in the order of the
    /// list.
    #[inline]
    fn any(&self, random: &mut Rng, busy: Ps, now: Ps, not: Option<usize>) -> Option<usize> {
        let len = self.dies.len();
        let start = random.below(len.max(1) as u64) as usize;
        let is = |at: usize| self.free[at] <= now && Some(at) != not;
        let word = |n| self.marks.word(n).servable(busy <= now);
        find(start, len, word, is).or_else(|| find(0, start, word, is))
    }

    /// When somebody can be served, where nobody can be now.
    #[inline]
    fn ready_at(&self, busy: Ps, now: Ps) -> Option<Ps> {
        let len = self.dies.len();
        let mut first = Ps::MAX;
        // Of those that wait for the line and not for their cache, one is enough.
        let waits = |n| self.marks.word(n).waits_for_line();
        find(0, len, waits, |at| {
            let free = self.free[at];
            first = first.min(free.max(busy));
            free <= now
        });
        let others = |n| !self.marks.word(n).waits_for_line();
        find(0, len, others, |at| {
            first = first.min(self.free[at]);
            false
        });
        (len > 0).then_some(first)
    }

    /// Takes one of a die out; the die, if it was the last. Else `then` is told when the die's
    /// cache is free, and whose CPU was taken out.
    #[inline]
    fn take(&mut self, at: usize, one: usize, then: impl FnOnce(&mut Ps, u32)) -> Asking {
        let asking = &mut self.of[self.dies[at] as usize].asking;
        let taken = asking.remove(one);
        if asking.is_empty() {
            self.remove(at);
            return taken;
        }
        then(&mut self.free[at], taken.cpu);
        if one == 0 {
            self.marks.is_idle(at);
        }
        taken
    }

    fn remove(&mut self, at: usize) {
        let last = self.dies.len() - 1;
        let gone = self.dies.swap_remove(at);
        self.free.swap_remove(at);
        self.of[gone as usize].place = 0;
        if let Some(moved) = self.dies.get(at) {
            self.of[*moved as usize].place = at as u32 + 1;
        }
        self.marks.swap_remove(at, last);
    }

    /// All of a die for whom it is `vain` have looked, one after the other, for half of `serve`
    /// each; they are added to `looked`.
    #[inline]
    pub(super) fn look_in_vain(
        &mut self,
        die: u32,
        serve: Ps,
        vain: impl Fn(&Asking) -> bool,
        looked: &mut Vec<Asking>,
    ) {
        let Some(at) = self.place(die) else { return };
        let asking = &mut self.of[die as usize].asking;
        let (first, from) = (asking[0].task, looked.len());
        asking.retain(|one| {
            let vain = vain(one);
            if vain {
                looked.push(*one);
            }
            !vain
        });
        self.free[at] += serve * (looked.len() - from) as u64 / 2;
        match asking.first() {
            Some(one) if one.task == first => {}
            Some(_) => self.marks.is_idle(at),
            None => self.remove(at),
        }
    }

    /// Whether anybody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.dies.is_empty()
    }
}

#[cfg(test)]
mod tests;
