//! The cache-line directory: owners and sharers of each line, and access costs.
//!
//! # Problem
//! Page faults on many CPUs are limited by cache-line transfers. The simulator must know for every
//! line which CPUs have it, and make requesters of a line in transit wait for each other.
//!
//! # Idea
//! An invalidation-based directory, as the hardware's: a line is owned by one CPU, or shared by a
//! set, or in no cache. Lines are numbered by their offset in the machine's memory, never by a host
//! address, so that every run sees the same numbers.
//!
//! # Protocol
//! ```text
//! state      load by c                           store or read-modify-write by c
//! nowhere    from memory; c owns                 from memory; c owns
//! c owns     hit                                 hit
//! b owns     transfer b to c; both share         transfer b to c; c owns
//! shared     hit if c shares; from the last      max(fetching it unless c shares,
//!            cache of its die if that has it;      telling the farthest sharer)
//!            else from the nearest sharer          + slope x other sharers; c owns
//! ```
//! The CPUs of a core share its caches: a line that one owns costs the other a transfer within the
//! core, and stays owned.
//!
//! A line is busy during a transfer. A CPU that requests it meanwhile waits in a queue
//! (`sched/queue.rs`), from which the machine's arbitration takes the next; that CPU pays
//! `contended` in addition to the transfer. The first reader of a die keeps a shared line busy for
//! `home`; later ones of that die get it from the die's last-level cache, even while the line is
//! busy. Where requests are broadcast to all sockets, a line that leaves its die is busy until its
//! home completes the request (`snoop.rs`).
//!
//! # Why it is correct
//! It holds no values: those live in the machine's memory, and one simulated context runs at a
//! time.
//!
//! # Cost
//! Two indexed loads an access. Not modelled: capacity, store buffers, misses in translation
//! buffers, prefetch but of lines read in order (`stream`).

mod ask;
mod stream;

pub(crate) use self::ask::{Accessed, Ask, Came};
use crate::model::{Distance, Model, Ps};
use crate::snoop::Want;
use core::ops::Range;
use minflt_sync::Kind;
use stream::Streams;

/// A line's number: its offset in the machine's memory divided by the line size.
pub(crate) type LineId = usize;

/// No list of waiters.
pub(crate) const NOBODY: u32 = 0;

const CHUNK_SHIFT: u32 = 8;
const CHUNK: usize = 1 << CHUNK_SHIFT;

/// One line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    /// CPUs with a copy, while the line has no owner; a place in the pool on machines of over 64
    /// CPUs.
    sharers: u64,
    /// Until when it is moving.
    pub(crate) busy: Ps,
    /// When it came to the core that owns it.
    came: Ps,
    /// The CPU that owns it, plus 1.
    owner: u16,
    /// The CPU that touched it first, plus 1.
    first: u16,
    /// The CPU that it was handed to last.
    pub(crate) last: u16,
    /// The node of its memory.
    home: u8,
    /// Whether a second CPU has ever touched it.
    pub(crate) ever_shared: bool,
    /// The list, plus 1, of those that spin until it changes.
    pub(crate) spinners: u32,
    /// The queue of waiting CPUs, plus 1.
    pub(crate) queue: u32,
}

impl Line {
    /// The CPU that owns it.
    pub(crate) fn owned_by(&self) -> Option<u32> {
        (self.owner != 0).then(|| u32::from(self.owner) - 1)
    }

    /// It moves no longer than until `now`.
    pub(crate) fn is_free_at(&mut self, now: Ps) {
        self.busy = self.busy.min(now);
    }

    /// Whether a core whose CPU `cpu` is among `core` asked for the line, at `at`, before it came
    /// to that core: then its CPU is served by the same visit.
    pub(crate) fn visits(&self, model: &Model, cpu: u32, at: Ps) -> bool {
        self.owner != 0
            && at <= self.came
            && model.distance(cpu, u32::from(self.owner) - 1) == Distance::Core
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
    /// By CPU, as far as any was needed.
    streams: Vec<Streams>,
}

impl Lines {
    /// The lines of a machine with `count` lines and `cpus` CPUs, in no cache.
    pub(crate) fn new(count: usize, cpus: u32) -> Self {
        let words = cpus.div_ceil(64) as usize;
        let chunks = vec![0; count.div_ceil(CHUNK)];
        // A place of 0 in the pool is none.
        let pool = vec![0; if words > 1 { words } else { 0 }];
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
        self.streams.clear();
        self.pool
            .truncate(if self.words > 1 { self.words } else { 0 });
    }

    #[inline]
    fn place(&mut self, id: LineId) -> usize {
        let (chunk, at) = (id >> CHUNK_SHIFT, id & (CHUNK - 1));
        let mut place = self.chunks[chunk];
        if place == 0 {
            place = self.first_of(chunk);
        }
        ((place - 1) as usize) << CHUNK_SHIFT | at
    }

    #[cold]
    fn first_of(&mut self, chunk: usize) -> u32 {
        self.lines.resize(self.lines.len() + CHUNK, Line::default());
        let place = (self.lines.len() >> CHUNK_SHIFT) as u32;
        self.chunks[chunk] = place;
        self.used.push(chunk as u32);
        place
    }

    /// A line, for its list of spinners.
    #[inline]
    pub(crate) fn line(&mut self, id: LineId) -> &mut Line {
        let place = self.place(id);
        &mut self.lines[place]
    }

    /// Whether no CPU but `cpu` has ever touched the line.
    pub(crate) fn is_private(&mut self, id: LineId, cpu: u32) -> bool {
        let line = self.line(id);
        !line.ever_shared && (line.first == 0 || line.first == tag(cpu))
    }

    /// A line, to look at.
    pub(crate) fn seen(&self, id: LineId) -> Line {
        match self.chunks[id >> CHUNK_SHIFT] {
            0 => Line::default(),
            place => self.lines[((place - 1) as usize) << CHUNK_SHIFT | (id & (CHUNK - 1))],
        }
    }

    /// Whether somebody of `cpu`'s die shares line `id`, so that the die's last cache has it.
    pub(crate) fn die_shares(&self, model: &Model, id: LineId, cpu: u32) -> bool {
        let line = self.seen(id);
        line.owner == 0 && self.any(&line, model.within(cpu, Distance::Die))
    }

    /// Each of `cpus` reads line `id`, which CPUs of its die share.
    pub(crate) fn share_too(&mut self, id: LineId, cpus: impl Iterator<Item = u32>) {
        let place = self.place(id);
        for cpu in cpus {
            self.share(place, cpu);
        }
    }

    /// Whether CPU `cpu` has to wait for line `id`, which is moving or is wanted by others.
    pub(crate) fn must_wait(
        &mut self,
        model: &Model,
        id: LineId,
        cpu: u32,
        kind: Kind,
        now: Ps,
    ) -> bool {
        let line = *self.line(id);
        if (line.busy <= now && line.queue == 0) || line.owner == tag(cpu) {
            return false;
        }
        let reads = line.owner == 0 && !kind.writes();
        !(reads && self.has(line, cpu))
            && (line.queue != 0 || !(reads && self.die_shares(model, id, cpu)))
    }

    /// CPU `cpu`, which waited for line `id`, looks at it at time `now`. `die_has`: whether its die
    /// has a copy. The same as [`Self::access`], which it need not ask as much as others.
    pub(crate) fn look(
        &mut self,
        model: &Model,
        id: LineId,
        cpu: u32,
        die_has: bool,
        now: Ps,
    ) -> Accessed {
        let place = self.place(id);
        let line = self.lines[place];
        let far = |lines: &Self, level| lines.any(&line, model.within(cpu, level));
        let distance = if line.owner != 0 || die_has || line.first == 0 {
            None
        } else if far(self, Distance::Group) {
            Some(Distance::Group)
        } else {
            far(self, Distance::Beyond).then_some(Distance::Beyond)
        };
        let Some(distance) = distance else {
            // The line has an owner or sharers: who changed it, at least. Its memory is not asked.
            let ask = Ask {
                id,
                node: 0,
                cpu,
                kind: Kind::Load,
                waited: true,
            };
            return self.access(model, ask, now);
        };
        let time = model.transfer(distance);
        let (time, busy) = match &model.snoops {
            None => (time, model.home.min(time)),
            Some(snoops) => {
                let from = model.places[cpu as usize].node;
                snoops.served(from, u32::from(line.home), (time, Want::Line), true)
            }
        };
        let start = line.busy.max(now);
        let start = if busy == 0 { now } else { start };
        self.share(place, cpu);
        let line = &mut self.lines[place];
        line.ever_shared |= line.first != tag(cpu);
        if busy > 0 {
            line.last = cpu as u16;
            line.busy = start + busy + model.contended;
            line.came = line.busy;
        }
        Accessed {
            end: start + time + model.contended + model.hit,
            came: Came::Shared { with: None },
            queue: line.queue,
        }
    }

    /// A CPU touches a line at time `now`, or when the line is free.
    pub(crate) fn access(&mut self, model: &Model, ask: Ask, now: Ps) -> Accessed {
        let (cpu, writes) = (ask.cpu, ask.kind.writes());
        let place = self.place(ask.id);
        let me = tag(cpu);
        let line = &mut self.lines[place];
        if line.first == 0 {
            line.first = me;
            line.home = u8::try_from(ask.node).unwrap_or(u8::MAX);
        } else if line.first != me {
            line.ever_shared = true;
        }
        let hit = if ask.kind == Kind::Rmw {
            model.rmw_hit
        } else {
            model.hit
        };
        let line = *line;
        let done = |end, came| Accessed {
            end: end + hit,
            came,
            queue: line.queue,
        };
        if line.owner == me || (line.owner == 0 && !writes && self.has(line, cpu)) {
            return done(now, Came::Not);
        }
        let mut start = line.busy.max(now);
        let distance = line.owned_by().map(|owner| model.distance(cpu, owner));
        if distance == Some(Distance::Core) {
            let line = &mut self.lines[place];
            line.owner = me;
            line.last = cpu as u16;
            line.busy = start + model.transfer(Distance::Core);
            return done(line.busy, Came::Not);
        }
        let (time, busy) = match distance {
            Some(distance) => {
                let time = model.transfer(distance);
                let far = distance > Distance::Die;
                ask.snooped(model, far, (time, Want::Line), time)
            }
            None => self.fetch(model, line, ask),
        };
        let coming = self.coming(model, ask).unwrap_or(Ps::MAX);
        let (time, busy) = (time.min(coming), busy.min(coming));
        if busy == 0 {
            start = now;
        }
        let extra = if ask.waited { model.contended } else { 0 };
        let came = self.settle(place, line, cpu, writes);
        let line = &mut self.lines[place];
        if busy > 0 {
            line.last = cpu as u16;
            line.busy = start + busy + extra;
            line.came = line.busy;
        }
        done(start + time + extra, came)
    }

    /// The cost of fetching a line without an owner, and how long that keeps it busy.
    fn fetch(&self, model: &Model, line: Line, ask: Ask) -> (Ps, Ps) {
        let cpu = ask.cpu;
        let has = self.has(line, cpu);
        let within = |level| model.within(cpu, level);
        // Whoever reads has no copy.
        let nearest = if has {
            None
        } else {
            let near = |level: &Distance| self.any(&line, within(*level));
            Distance::ALL.into_iter().find(near)
        };
        let fetched = match nearest {
            _ if has => 0,
            Some(Distance::Die) => model.llc,
            Some(distance) => model.transfer(distance),
            None if model.places[cpu as usize].node == ask.node => model.dram_local,
            None => model.dram_far,
        };
        if nearest.is_none() && !has && matches!(ask.kind, Kind::Store | Kind::PlainWrite) {
            // A line that nobody has touched yet is of something new, whose address is known
            // beforehand, and a store waits in its buffer: such misses overlap. A load may be
            // what the next address comes from, and an exchange lets nothing pass.
            let fetched = model.overlapped(fetched);
            return ask.snooped(model, true, (fetched, Want::Line), fetched);
        }
        if !ask.kind.writes() {
            let busy = match nearest {
                None => fetched,
                Some(Distance::Core | Distance::Die) => return (fetched, 0),
                Some(_) => model.home.min(fetched),
            };
            return ask.snooped(model, true, (fetched, Want::Line), busy);
        }
        let others = |level| self.count(&line, within(level)) - u64::from(has);
        let all = others(Distance::Beyond);
        // The farthest is in the smallest circle that has them all.
        let farthest = Distance::ALL
            .into_iter()
            .find(|level| others(*level) == all);
        let invalidate = match farthest {
            Some(distance) if all > 0 => model.transfer(distance),
            _ => 0,
        };
        let time = fetched.max(invalidate) + model.sharer * all.saturating_sub(1);
        let want = if all > 0 { Want::Alone } else { Want::Line };
        let far = all == 0 || farthest > Some(Distance::Die);
        ask.snooped(model, far, (time, want), time)
    }

    /// Records the line's owner or sharers after `cpu` got it.
    fn settle(&mut self, place: usize, before: Line, cpu: u32, writes: bool) -> Came {
        if writes || (before.owner == 0 && self.is_empty(before)) {
            self.forget_sharers(place);
            self.lines[place].owner = tag(cpu);
            return Came::Owned;
        }
        let with = before.owned_by();
        if let Some(owner) = with {
            self.lines[place].owner = 0;
            self.forget_sharers(place);
            self.share(place, owner);
        }
        self.share(place, cpu);
        Came::Shared { with }
    }

    /// Whether the line has no sharer.
    fn is_empty(&self, line: Line) -> bool {
        self.words_of(&line).iter().all(|word| *word == 0)
    }

    /// The set of a line's sharers.
    #[inline]
    fn words_of<'a>(&'a self, line: &'a Line) -> &'a [u64] {
        if self.words > 1 {
            &self.pool[line.sharers as usize..][..self.words]
        } else {
            core::slice::from_ref(&line.sharers)
        }
    }

    #[inline]
    fn has(&self, line: Line, cpu: u32) -> bool {
        let word = if self.words > 1 {
            self.pool[line.sharers as usize + cpu as usize / 64]
        } else {
            line.sharers
        };
        word >> (cpu % 64) & 1 == 1
    }

    /// How many CPUs of a range share the line.
    fn count(&self, line: &Line, cpus: Range<u32>) -> u64 {
        let words = self.shared_within(line, cpus);
        words.map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether some CPU of a range shares the line.
    #[inline]
    fn any(&self, line: &Line, cpus: Range<u32>) -> bool {
        let (n, shift) = (cpus.start / 64, cpus.start % 64);
        if shift + (cpus.end - cpus.start) < 64 {
            // Within a word, as cores, dies and groups mostly are.
            let mask = !(u64::MAX << (cpus.end - cpus.start)) << shift;
            let word = self.words_of(line).get(n as usize);
            return word.is_some_and(|word| word & mask != 0);
        }
        self.shared_within(line, cpus).any(|word| word != 0)
    }

    /// The words of a line's set of sharers, clipped to a range.
    #[inline]
    fn shared_within<'a>(
        &'a self,
        line: &'a Line,
        cpus: Range<u32>,
    ) -> impl Iterator<Item = u64> + 'a {
        let words = self.words_of(line);
        let (from, to) = (cpus.start, cpus.end.min(words.len() as u32 * 64));
        let last = to.div_ceil(64);
        (from / 64..last).map(move |n| {
            let mut word = words[n as usize];
            if n == from / 64 {
                word &= u64::MAX << (from % 64);
            }
            if n + 1 == last && to % 64 != 0 {
                word &= !(u64::MAX << (to % 64));
            }
            word
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

    #[inline]
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
    cpu as u16 + 1 // At most 2048 CPUs.
}

#[cfg(test)]
mod tests;
