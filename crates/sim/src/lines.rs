//! The line directory: who holds which cache line, and what an access to it costs.
//!
//! # Problem
//! What limits page faults on many CPUs is lines that move. The simulator must know for every line
//! who has it, and make requesters of a moving line wait for each other.
//!
//! # Idea
//! An invalidation-based directory, as the hardware's: a line is owned by one CPU, or shared by a
//! set, or in no cache. Lines are numbered by their offset in the machine's memory, never by a host
//! address, so that every run sees the same numbers.
//!
//! # Protocol
//! ```text
//! state     load by c                          store or read-modify-write by c
//! nowhere   from memory; c owns                from memory; c owns
//! c owns    hit                                hit
//! b owns    transfer b to c; both share        transfer b to c; c owns
//! shared    hit if c shares, else transfer     max(transfer unless c shares, farthest sharer)
//!           from the nearest; c shares too       + slope x other sharers; c owns
//! ```
//! A line is busy while it moves; whoever asks meanwhile starts when it is free again, in the order
//! of asking (`fifo`: the CPU with the lowest clock always runs first, so the order of asking is
//! the order of execution). A transfer that had to wait costs `contended` more. Readers of a
//! shared line overlap and are `serve` apart; so are spinners who look again after a change. Hence
//! some of them look before the first one has acted on what it saw, and fail, and the later ones
//! see that it has.
//!
//! # Why it is correct
//! It holds no values: those live in the machine's memory, and one simulated context runs at a
//! time.
//!
//! # Cost
//! Two indexed loads an access. Not modelled: capacity, prefetch, store buffers, misses in
//! translation buffers.

use crate::machine_file::Arbitration;
use crate::model::{Distance, Model, Ps};
use minflt_sync::Kind;

/// A line's number: its offset in the machine's memory divided by the line size.
pub(crate) type LineId = usize;

/// No waiter.
pub(crate) const NOBODY: u32 = 0;

const CHUNK_SHIFT: u32 = 8;
const CHUNK: usize = 1 << CHUNK_SHIFT;

/// One line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    /// CPUs with a copy, while nobody owns it; a place in the pool on machines of over 64 CPUs.
    sharers: u64,
    /// Until when it is moving.
    busy: Ps,
    /// The CPU that owns it, plus 1.
    owner: u16,
    /// The CPU that touched it first, plus 1.
    first: u16,
    /// Whether a second CPU has ever touched it.
    pub(crate) ever_shared: bool,
    /// The task, plus 1, at the head of the list of those that spin until it changes.
    pub(crate) spinners: u32,
}

impl Line {
    /// The line serves one more reader, at `now` or when it is free.
    pub(crate) fn serve(&mut self, now: Ps, time: Ps) {
        self.busy = self.busy.max(now) + time;
    }
}

/// All lines of one machine.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// By line number / `CHUNK`: place in `lines` / `CHUNK`, plus 1.
    chunks: Vec<u32>,
    lines: Vec<Line>,
    /// Chunks in use, to forget them again.
    used: Vec<u32>,
    /// Sets of CPUs, `words` words each, for machines of over 64 CPUs.
    pool: Vec<u64>,
    words: usize,
}

/// What an access came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Access {
    /// When it is done.
    pub(crate) end: Ps,
    /// Whether the line moved.
    pub(crate) moved: bool,
    /// Of the time until then, how long it stood in the line's queue.
    pub(crate) queued: Ps,
}

impl Lines {
    /// The lines of a machine with `count` lines and `cpus` CPUs, in no cache.
    pub(crate) fn new(count: usize, cpus: u32) -> Self {
        let words = cpus.div_ceil(64) as usize;
        let chunks = vec![0; count.div_ceil(CHUNK)];
        // A place of 0 in the pool is none.
        let pool = if words > 1 {
            vec![0; words]
        } else {
            Vec::new()
        };
        Self {
            chunks,
            words,
            pool,
            ..Self::default()
        }
    }

    /// Forgets everything that was touched.
    pub(crate) fn clear(&mut self) {
        for chunk in self.used.drain(..) {
            self.chunks[chunk as usize] = 0;
        }
        self.lines.clear();
        self.pool
            .truncate(if self.words > 1 { self.words } else { 0 });
    }

    fn place(&mut self, id: LineId) -> usize {
        let (chunk, at) = (id >> CHUNK_SHIFT, id & (CHUNK - 1));
        let mut place = self.chunks[chunk];
        if place == 0 {
            self.lines.resize(self.lines.len() + CHUNK, Line::default());
            place = (self.lines.len() >> CHUNK_SHIFT) as u32;
            self.chunks[chunk] = place;
            self.used.push(chunk as u32);
        }
        ((place - 1) as usize) << CHUNK_SHIFT | at
    }

    /// A line, for its list of spinners.
    pub(crate) fn line(&mut self, id: LineId) -> &mut Line {
        let place = self.place(id);
        &mut self.lines[place]
    }

    /// Whether no CPU but `cpu` has ever touched the line.
    pub(crate) fn is_private(&mut self, id: LineId, cpu: u32) -> bool {
        let line = self.line(id);
        !line.ever_shared && (line.first == 0 || line.first == tag(cpu))
    }

    /// CPU `cpu` touches line `id`, whose memory is on node `node`, at time `now`.
    pub(crate) fn access(
        &mut self,
        model: &Model,
        id: LineId,
        node: u32,
        cpu: u32,
        kind: Kind,
        now: Ps,
    ) -> Access {
        let place = self.place(id);
        let me = tag(cpu);
        let line = &mut self.lines[place];
        if line.first == 0 {
            line.first = me;
        } else if line.first != me {
            line.ever_shared = true;
        }
        let hit = if kind == Kind::Rmw {
            model.rmw_hit
        } else {
            model.hit
        };
        if line.owner == me {
            return Access {
                end: now + hit,
                moved: false,
                queued: 0,
            };
        }
        let line = *line;
        let writes = kind.writes();
        let shares = line.owner == 0 && self.has(line, cpu);
        if shares && !writes {
            return Access {
                end: now + hit,
                moved: false,
                queued: 0,
            };
        }
        let time = if line.owner != 0 {
            model.transfer(model.distance(cpu, u32::from(line.owner) - 1))
        } else {
            self.fetch(model, line, node, cpu, shares, writes)
        };
        let (start, extra) = match model.arbitration {
            Arbitration::Fifo if line.busy > now => (line.busy, model.contended),
            Arbitration::Fifo => (now, 0),
        };
        let end = start + time + extra;
        self.settle(place, line, cpu, writes);
        // Readers of a shared line overlap: it is busy for as long as its directory is.
        let overlaps = !writes && line.owner == 0;
        self.lines[place].busy = if overlaps {
            start + model.serve.min(time)
        } else {
            end
        };
        Access {
            end: end + hit,
            moved: true,
            queued: start - now,
        }
    }

    /// What getting a line costs that nobody owns.
    fn fetch(
        &self,
        model: &Model,
        line: Line,
        node: u32,
        cpu: u32,
        shares: bool,
        writes: bool,
    ) -> Ps {
        let (mut nearest, mut farthest, mut others) = (None, None, 0u64);
        for other in self.sharers(line).filter(|other| *other != cpu) {
            let distance = model.distance(cpu, other);
            nearest = Some(nearest.map_or(distance, |d: Distance| d.min(distance)));
            farthest = Some(farthest.map_or(distance, |d: Distance| d.max(distance)));
            others += 1;
        }
        let memory = if model.places[cpu as usize].node == node {
            model.dram_local
        } else {
            model.dram_far
        };
        let fetched = match (shares, nearest) {
            (true, _) => 0,
            (false, Some(distance)) => model.transfer(distance),
            (false, None) => memory,
        };
        if !writes {
            return fetched;
        }
        let invalidate = farthest.map_or(0, |distance| model.transfer(distance));
        fetched.max(invalidate) + model.sharer * others.saturating_sub(1)
    }

    /// Notes who holds the line after `cpu` got it.
    fn settle(&mut self, place: usize, before: Line, cpu: u32, writes: bool) {
        let empty = before.owner == 0 && self.sharers(before).next().is_none();
        if writes || empty {
            self.forget_sharers(place);
            self.lines[place].owner = tag(cpu);
            return;
        }
        if before.owner != 0 {
            self.lines[place].owner = 0;
            self.forget_sharers(place);
            self.share(place, u32::from(before.owner) - 1);
        }
        self.share(place, cpu);
    }

    fn has(&self, line: Line, cpu: u32) -> bool {
        let word = if self.words > 1 {
            self.pool[line.sharers as usize + cpu as usize / 64]
        } else {
            line.sharers
        };
        word >> (cpu % 64) & 1 == 1
    }

    fn sharers(&self, line: Line) -> impl Iterator<Item = u32> + '_ {
        let pooled = self.words > 1;
        let from = if pooled { line.sharers as usize } else { 0 };
        (0..self.words).flat_map(move |at| {
            let mut rest = if pooled {
                self.pool[from + at]
            } else {
                line.sharers
            };
            core::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                (rest != 0).then(|| {
                    rest &= rest - 1;
                    at as u32 * 64 + bit
                })
            })
        })
    }

    fn forget_sharers(&mut self, place: usize) {
        let sharers = self.lines[place].sharers;
        if self.words <= 1 {
            self.lines[place].sharers = 0;
        } else if sharers != 0 {
            self.pool[sharers as usize..][..self.words].fill(0);
        }
    }

    fn share(&mut self, place: usize, cpu: u32) {
        let bit = 1 << (cpu % 64);
        if self.words <= 1 {
            self.lines[place].sharers |= bit;
            return;
        }
        if self.lines[place].sharers == 0 {
            self.lines[place].sharers = self.pool.len() as u64;
            self.pool.resize(self.pool.len() + self.words, 0);
        }
        let from = self.lines[place].sharers as usize;
        self.pool[from + cpu as usize / 64] |= bit;
    }
}

fn tag(cpu: u32) -> u16 {
    // At most 2048 CPUs.
    cpu as u16 + 1
}

#[cfg(test)]
mod tests {
    use super::Lines;
    use crate::machine_file::MachineFile;
    use crate::model::Model;
    use minflt_sync::Kind;

    const DIE: u64 = 200_000;
    const FAR1: u64 = 450_000;
    const FAR2: u64 = 600_000;
    const HIT: u64 = 700;

    fn altix(cpus: u32) -> (Model, Lines) {
        let model = Model::new(&MachineFile::shipped("altix32").unwrap(), cpus);
        (model, Lines::new(1024, cpus))
    }

    #[test]
    fn a_load_of_an_owned_line_downgrades_it() {
        for cpus in [32, 100] {
            let (model, mut lines) = altix(cpus);
            let mut at = |cpu, kind, now| lines.access(&model, 7, 0, cpu, kind, now).end - now;
            assert_eq!(at(0, Kind::Store, 0), 140_000 + HIT);
            assert_eq!(at(0, Kind::Store, 1_000_000), HIT);
            assert_eq!(at(1, Kind::Load, 2_000_000), DIE + HIT);
            assert_eq!(at(0, Kind::Load, 3_000_000), HIT, "still shared");
            assert_eq!(at(31, Kind::Load, 4_000_000), FAR2 + HIT);
            assert_eq!(
                at(30, Kind::Load, 5_000_000),
                DIE + HIT,
                "from the neighbour"
            );
            // Three others are told, the farthest beyond the group.
            assert_eq!(at(0, Kind::Rmw, 6_000_000), FAR2 + 2 * 10_000 + 13_000);
            assert_eq!(at(0, Kind::Rmw, 7_000_000), 13_000);
            assert_eq!(at(2, Kind::Store, 8_000_000), FAR1 + HIT);
        }
    }

    #[test]
    fn requesters_of_a_moving_line_queue() {
        let (model, mut lines) = altix(32);
        let mut end = |cpu, now| lines.access(&model, 7, 0, cpu, Kind::Rmw, now).end;
        let first = end(0, 0);
        assert_eq!(first, 140_000 + 13_000);
        assert_eq!(end(2, 10), 140_000 + FAR1 + 13_000);
        assert_eq!(end(4, 20), 140_000 + 2 * FAR1 + 13_000);
        assert!(!lines.is_private(7, 0));
        assert!(lines.is_private(8, 0));
    }
}
