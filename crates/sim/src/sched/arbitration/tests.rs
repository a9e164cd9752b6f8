//! The queue beside one that keeps no bits and passes over all dies for each choice.

use super::{Asking, Queue};
use crate::lines::{Ask, Line, LineId, Lines};
use crate::machine_file::{Arbitration, MachineFile};
use crate::model::{Distance, Model, Ps};
use crate::rng::Rng;
use crate::sched::spinners::Spinners;
use crate::sched::task::{Peek, Watch};
use minflt_sync::Kind;

const LINE: LineId = 3;

struct PlainDie {
    die: u16,
    free: Ps,
    taken_up: bool,
    asking: Vec<Asking>,
}

#[derive(Default)]
struct Plain {
    dies: Vec<PlainDie>,
    read: Option<u32>,
}

impl Plain {
    fn join(&mut self, one: Asking) {
        if let Some(die) = self.dies.iter_mut().find(|die| die.die == one.die) {
            return die.asking.push(one);
        }
        self.dies.push(PlainDie {
            die: one.die,
            free: 0,
            taken_up: false,
            asking: vec![one],
        });
    }

    fn merged(&mut self, model: &Model, line: &Line, now: Ps) -> Option<Asking> {
        let read = self.read.take();
        let owner = line.owned_by().filter(|_| line.busy <= now);
        let core = model.within(read.or(owner)?, Distance::Core);
        for at in 0..self.dies.len() {
            let with_it = |one: &Asking| {
                let served = match read {
                    Some(_) => !one.kind.writes(),
                    None => line.visits(model, one.cpu, one.at),
                };
                core.contains(&one.cpu) && served
            };
            if let Some(one) = self.dies[at].asking.iter().position(with_it) {
                self.read = read;
                return Some(self.take(at, one));
            }
        }
        None
    }

    fn take(&mut self, at: usize, one: usize) -> Asking {
        let die = &mut self.dies[at];
        let taken = die.asking.remove(one);
        die.taken_up &= one != 0;
        if die.asking.is_empty() {
            self.dies.swap_remove(at);
        }
        taken
    }

    fn choose(
        &mut self,
        model: &Model,
        lines: &Lines,
        random: &mut Rng,
        now: Ps,
    ) -> Result<Asking, Option<Ps>> {
        let line = lines.seen(LINE);
        if let Some(merged) = self.merged(model, &line, now) {
            return Ok(merged);
        }
        for die in self.dies.iter_mut().filter(|die| !die.taken_up) {
            if die.free <= now {
                if model.arbitration != Arbitration::Fifo {
                    let one = random.below(die.asking.len() as u64) as usize;
                    die.asking.swap(0, one);
                }
                die.taken_up = true;
            }
        }
        let shares = |die: &PlainDie| lines.die_shares(model, LINE, die.asking[0].cpu);
        let when = |die: &PlainDie| {
            let alone = !die.taken_up || shares(die) && !die.asking[0].kind.writes();
            if alone {
                die.free
            } else {
                die.free.max(line.busy)
            }
        };
        let ready = |at: &usize| self.dies[*at].taken_up && when(&self.dies[*at]) <= now;
        let len = self.dies.len();
        let any = |random: &mut Rng| {
            let start = random.below(len.max(1) as u64) as usize;
            (start..len).chain(0..start).find(ready)
        };
        let at = match model.arbitration {
            _ if model.snoops.is_some() => {
                let last = model.places[usize::from(line.last)].die as u16;
                let start = random.below(len.max(1) as u64) as usize;
                let all = || (start..len).chain(0..start).filter(ready);
                let other = all().find(|at| self.dies[*at].die != last);
                other.or_else(|| all().next())
            }
            Arbitration::Fifo => {
                let all = (0..len).filter(ready);
                all.min_by_key(|at| self.dies[*at].asking[0].at)
            }
            Arbitration::NearFirst if random.below(1000) < model.near_first_permille => {
                let near = model.places[usize::from(line.last)].die as u16;
                let near = self.dies.iter().position(|die| die.die == near);
                near.filter(ready).or_else(|| any(random))
            }
            _ => any(random),
        };
        let Some(at) = at else {
            return Err(self.dies.iter().map(when).min());
        };
        let first = self.dies[at].asking[0];
        let reads = !first.kind.writes();
        if reads && model.siblings(first.cpu).next().is_some() {
            self.read = Some(first.cpu);
        }
        self.dies[at].free = now
            + if reads && !shares(&self.dies[at]) {
                model.transfer(model.distance(first.cpu, u32::from(line.last)))
            } else {
                model.serve
            };
        Ok(self.take(at, 0))
    }

    fn look_in_vain(&mut self, die: u16, serve: Ps) -> Vec<u32> {
        let Some(at) = self.dies.iter().position(|it| it.die == die) else {
            return Vec::new();
        };
        let die = &mut self.dies[at];
        let first = die.asking[0].task;
        let (looked, left): (Vec<Asking>, _) =
            die.asking.drain(..).partition(|one| one.looks.is_some());
        die.asking = left;
        die.free += serve * looked.len() as u64 / 2;
        match die.asking.first() {
            Some(one) => die.taken_up &= one.task == first,
            None => drop(self.dies.swap_remove(at)),
        }
        looked.iter().map(|one| one.task).collect()
    }
}

fn agree(machine: &str, arbitration: Arbitration, seed: u64) {
    let mut model = Model::new(&MachineFile::shipped(machine).unwrap(), 300);
    model.arbitration = arbitration;
    let word = 0_u64;
    let watch = Watch {
        peek: Peek::U64(&raw const word),
        mask: u64::MAX,
        eq: 1,
        irqs_on: false,
    };
    let watch = Spinners::default().watched(watch);
    let (mut dice, mut lines) = (Rng::new(seed), Lines::new(8, 300));
    let (mut left, mut right) = (Rng::new(7), Rng::new(7));
    let (mut queue, mut plain) = (Queue::default(), Plain::default());
    let (mut now, mut waits) = (0, vec![false; 300]);
    for _ in 0..20_000 {
        let cpu = dice.below(300) as u32;
        if dice.below(3) > 0 && !waits[cpu as usize] {
            let kind = [Kind::Load, Kind::Load, Kind::Rmw][dice.below(3) as usize];
            let one = Asking {
                task: cpu,
                cpu,
                die: model.places[cpu as usize].die as u16,
                kind,
                at: now,
                looks: (kind == Kind::Load && dice.below(8) > 0).then_some(watch),
            };
            waits[cpu as usize] = true;
            queue.join(one, || lines.die_shares(&model, LINE, cpu));
            plain.join(one);
            continue;
        }
        let until = now + dice.below(300_000);
        let mut time = now;
        let fast = queue.choose(&model, &lines.seen(LINE), &mut left, &mut time, until);
        let slow = loop {
            match plain.choose(&model, &lines, &mut right, now) {
                Err(Some(at)) if at < until => now = at,
                slow => break slow,
            }
        };
        let tell = |one: Result<Asking, _>| one.map(|one| (one.task, one.kind, one.at));
        assert_eq!((time, tell(fast)), (now, tell(slow)));
        let Ok(one) = fast else {
            now = until;
            continue;
        };
        waits[one.cpu as usize] = false;
        let ask = Ask {
            id: LINE,
            node: 0,
            cpu: one.cpu,
            kind: one.kind,
            waited: true,
        };
        let done = lines.access(&model, ask, now);
        queue.sees(&model, one.cpu, done.came);
        if one.looks.is_some() && lines.seen(LINE).owned_by().is_none() {
            let mut looked = Vec::new();
            let die = u32::from(one.die);
            queue.look_in_vain(die, model.serve, |it| it.looks.is_some(), &mut looked);
            let tasks: Vec<u32> = looked.iter().map(|one| one.task).collect();
            assert_eq!(tasks, plain.look_in_vain(one.die, model.serve));
            lines.share_too(LINE, tasks.iter().copied());
            tasks.iter().for_each(|task| waits[*task as usize] = false);
        }
    }
    assert_eq!(left.draw(), right.draw());
}

#[test]
fn it_chooses_as_one_that_passes_over_all_dies_does() {
    let all = [
        Arbitration::Fifo,
        Arbitration::NearFirst,
        Arbitration::Random,
    ];
    for machine in ["altix512", "next1024", "rome256", "wsm-ex8"] {
        for (seed, arbitration) in (0..).zip(all) {
            agree(machine, arbitration, seed);
        }
    }
}
