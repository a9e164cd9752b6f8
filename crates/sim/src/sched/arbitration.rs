//! Who gets a line next, of those who wait for it.

use crate::lines::{LineId, Lines};
use crate::machine_file::Arbitration;
use crate::model::{Distance, Model, Ps};
use crate::rng::Rng;
use minflt_sync::Kind;

/// Those who wait for one line.
#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) dies: Vec<Die>,
    /// A reader that was just served: the others of its core have the line with it.
    pub(super) read: Option<u32>,
    /// When one of them was given the line that has not yet touched it.
    pub(super) granted: Option<Ps>,
}

/// Those of one die, in the order of asking; at least one.
#[derive(Debug)]
pub(super) struct Die {
    pub(super) die: u32,
    /// When its last cache can serve one more.
    pub(super) free: Ps,
    /// When the first of them can be served, as far as is known.
    ready: Ps,
    /// Whether the first of them was taken up by the cache, which then takes no other.
    pub(super) taken_up: bool,
    pub(super) asking: Vec<Asking>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Asking {
    pub(super) task: u32,
    pub(super) cpu: u32,
    pub(super) at: Ps,
    pub(super) kind: Kind,
}

impl Queue {
    /// Adds one.
    pub(super) fn join(&mut self, die: u32, asking: Asking) {
        let at = self.dies.iter().position(|one| one.die == die);
        let at = at.unwrap_or_else(|| {
            self.dies.push(Die {
                die,
                free: 0,
                ready: 0,
                taken_up: false,
                asking: Vec::new(),
            });
            self.dies.len() - 1
        });
        self.dies[at].asking.push(asking);
    }

    /// Takes the next one out. If nobody can be served at time `now`: when somebody can, if there
    /// is anybody.
    pub(super) fn choose(
        &mut self,
        model: &Model,
        lines: &Lines,
        random: &mut Rng,
        line: LineId,
        now: Ps,
    ) -> Result<Asking, Option<Ps>> {
        if let Some(merged) = self.merged(model, lines, line, now) {
            return Ok(merged);
        }
        self.take_up(model, lines, random, line, now);
        let found = lines.seen(line);
        let last = model.places[usize::from(found.last)].die;
        let dies = &self.dies;
        let ready = |at: &usize| dies[*at].ready <= now;
        let any = |random: &mut Rng| {
            let start = random.below(dies.len().max(1) as u64) as usize;
            (start..dies.len()).chain(0..start).find(ready)
        };
        let at = match model.arbitration {
            Arbitration::Fifo => {
                let age = |at: &usize| dies[*at].asking[0].at;
                (0..dies.len()).filter(ready).min_by_key(age)
            }
            Arbitration::NearFirst if random.below(1000) < model.near_first_permille => {
                let near = dies.iter().position(|one| one.die == last);
                near.filter(ready).or_else(|| any(random))
            }
            Arbitration::NearFirst | Arbitration::Random => any(random),
        };
        let Some(at) = at else {
            return Err(dies.iter().map(|one| one.ready).min());
        };
        let first = dies[at].asking[0];
        let reads = !first.kind.writes();
        if reads && model.siblings(first.cpu).next().is_some() {
            self.read = Some(first.cpu);
        }
        let brings = reads && !lines.die_shares(model, line, first.cpu);
        self.dies[at].free = now
            + if brings {
                // A copy for the rest of the die.
                model.transfer(model.distance(first.cpu, u32::from(found.last)))
            } else {
                model.serve
            };
        Ok(take(&mut self.dies, at, 0))
    }

    /// One whose core has the line anyhow: it was read for a sibling, or came for one after both
    /// had asked.
    fn merged(&mut self, model: &Model, lines: &Lines, line: LineId, now: Ps) -> Option<Asking> {
        let found = lines.seen(line);
        let read = self.read.take();
        let owner = found.owned_by().filter(|_| found.busy <= now);
        let die = model.places[read.or(owner)? as usize].die;
        let at = self.dies.iter().position(|one| one.die == die)?;
        let with_it = |one: &Asking| match read {
            Some(cpu) => !one.kind.writes() && model.distance(one.cpu, cpu) == Distance::Core,
            None => found.visits(model, one.cpu, one.at),
        };
        let one = self.dies[at].asking.iter().position(with_it)?;
        self.read = read;
        Some(take(&mut self.dies, at, one))
    }

    /// Each last cache that is free takes one up: with `fifo` the first to ask, else any. Notes
    /// when each can be served: at once, if the last cache can do it alone.
    fn take_up(&mut self, model: &Model, lines: &Lines, random: &mut Rng, line: LineId, now: Ps) {
        let busy = lines.seen(line).busy;
        for die in &mut self.dies {
            if !die.taken_up && die.free <= now {
                if model.arbitration != Arbitration::Fifo {
                    let one = random.below(die.asking.len() as u64) as usize;
                    die.asking.swap(0, one);
                }
                die.taken_up = true;
            }
            let first = die.asking[0];
            let alone = die.free >= busy
                || !die.taken_up
                || !first.kind.writes() && lines.die_shares(model, line, first.cpu);
            die.ready = if alone { die.free } else { busy };
        }
    }
}

/// Takes one of a die out; the die, if it was the last.
fn take(dies: &mut Vec<Die>, at: usize, one: usize) -> Asking {
    let die = &mut dies[at];
    let taken = die.asking.remove(one);
    die.taken_up &= one != 0;
    if die.asking.is_empty() {
        dies.swap_remove(at);
    }
    taken
}
