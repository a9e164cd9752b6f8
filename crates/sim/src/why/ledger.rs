//! Time accounting during a run.

use super::places::Places;
use super::record::Record;
use super::samples::{Sampler, Stretch};
use super::totals::{Activity, Cause, PhaseRow};
use super::{Name, WhyOptions, Windows};
use crate::lines::LineId;
use crate::model::Ps;
use minflt_sync::{Kind, Phase};
use std::collections::BTreeMap;

/// Where a task stands to its window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Before,
    Within,
    After,
}

/// Who does something: a task on a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) task: u32,
    pub(crate) cpu: u32,
}

/// What an access to a line came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    /// When it is done.
    pub(crate) end: Ps,
    /// Whether the line moved.
    pub(crate) moved: bool,
    /// Whether it stood in the line's queue until now.
    pub(crate) waited: bool,
}

/// What a task does on one level: in user mode, or since an entry into the kernel.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// What the entry was for.
    base: u8,
    now: u8,
}

#[derive(Clone, Debug)]
struct Book {
    /// Until when its time is accounted.
    since: Ps,
    stage: Stage,
    levels: Vec<Level>,
    /// What the next entry into the kernel is for, if it is a call.
    call: Option<u8>,
    /// Lines written since it last entered the kernel from user mode, as places in `records`.
    wrote: Vec<u32>,
    parked: bool,
    /// The word of the lock that it sleeps for.
    sleeps_for: Option<usize>,
    pub(super) end: Ps,
}

const USER: u8 = 0;
const FAULT: u8 = 1;
const INTERRUPT: u8 = 2;

/// The account of one run.
#[derive(Debug)]
pub(crate) struct Ledger {
    windows: Windows,
    line_shift: u32,
    started: Ps,
    /// Tasks with a body.
    tasks: Vec<Book>,
    pub(super) activities: Vec<Activity>,
    /// By stage, then by activity.
    pub(super) totals: [Vec<PhaseRow>; 3],
    /// By line: places in `records`, plus 1.
    places: Places,
    pub(super) records: Vec<Record>,
    pub(super) names: Vec<Name>,
    by_name: BTreeMap<Name, u32>,
    /// Words that were touched and have no name yet: record, word, offset.
    unnamed: Vec<(u32, u8, usize)>,
    free: Option<String>,
    /// The word that the running access is to.
    at: usize,
    pub(super) sampler: Sampler,
}

impl Ledger {
    pub(crate) fn new(options: &WhyOptions<'_>, line_shift: u32, tasks: u32, now: Ps) -> Self {
        let stage = match options.windows {
            Windows::None => Stage::Within,
            Windows::Opened => Stage::Before,
        };
        let user = Level {
            base: USER,
            now: USER,
        };
        let book = Book {
            since: now,
            stage,
            levels: vec![user],
            call: None,
            wrote: Vec::new(),
            parked: false,
            sleeps_for: None,
            end: now,
        };
        let mut ledger = Self {
            windows: options.windows,
            line_shift,
            started: now,
            tasks: vec![book; tasks as usize],
            activities: Vec::new(),
            totals: [const { Vec::new() }; 3],
            places: Places::default(),
            records: Vec::new(),
            names: vec![Name::UNKNOWN],
            by_name: BTreeMap::from([(Name::UNKNOWN, 0)]),
            unnamed: Vec::new(),
            free: options.free.map(str::to_owned),
            at: 0,
            sampler: Sampler::new(options.samples),
        };
        for activity in [Activity::User, Activity::Fault, Activity::Interrupt] {
            ledger.activity(activity);
        }
        ledger
    }

    /// Tasks there are.
    pub(super) fn tasks(&self) -> u32 {
        self.tasks.len() as u32
    }

    /// From the end of the last task but one to the end of the run.
    pub(super) fn alone(&self) -> Ps {
        let mut ends: Vec<Ps> = self.tasks.iter().map(|book| book.end).collect();
        ends.sort_unstable();
        match ends[..] {
            [.., before, last] => last - before,
            _ => 0,
        }
    }

    /// From the run's start until its last task ended.
    pub(super) fn length(&self) -> Ps {
        let last = self.tasks.iter().map(|book| book.end).max();
        last.map_or(0, |end| end - self.started)
    }

    fn activity(&mut self, activity: Activity) -> u8 {
        if let Some(at) = self.activities.iter().position(|it| *it == activity) {
            return at as u8;
        }
        self.activities.push(activity);
        for totals in &mut self.totals {
            totals.push(PhaseRow::new(activity));
        }
        self.activities.len() as u8 - 1
    }

    fn record(&self, line: LineId) -> Option<usize> {
        (self.places.get(line) as usize).checked_sub(1)
    }

    fn record_or_new(&mut self, line: LineId) -> usize {
        let slot = self.places.slot(line);
        if *slot == 0 {
            self.records.push(Record::default());
            *slot = self.records.len() as u32;
        }
        *slot as usize - 1
    }

    /// The word within its line of an offset.
    fn word(&self, offset: usize) -> u8 {
        (offset % (1 << self.line_shift) / 8) as u8
    }

    /// The next access is to the word at `offset`.
    pub(crate) fn is_about(&mut self, offset: usize) {
        self.at = offset;
    }

    /// Whether accesses to a line cost a hit.
    pub(crate) fn is_free(&self, line: LineId) -> bool {
        self.free.is_some() && self.record(line).is_some_and(|at| self.records[at].free)
    }

    /// The time of `who` until `clock` went to `cause`; to the word at `offset`, if it did.
    pub(crate) fn until(&mut self, who: Who, clock: Ps, cause: Cause, offset: Option<usize>) {
        let Some(book) = self.tasks.get_mut(who.task as usize) else {
            return;
        };
        let (from, stage) = (book.since, book.stage);
        let time = clock.saturating_sub(from);
        if time == 0 {
            return;
        }
        book.since = clock;
        let activity = book.levels.last().map_or(USER, |level| level.now);
        self.totals[stage as usize][activity as usize].by_cause[cause as usize] += time;
        let mut place = None;
        if stage == Stage::Within
            && let Some(offset) = offset
        {
            let at = self.record_or_new(offset >> self.line_shift);
            let word = self.word(offset);
            place = Some((at as u32, word));
            if !matches!(cause, Cause::Move) {
                self.records[at].waiters.insert(who.cpu);
            }
            let part = self.records[at].part(word, activity);
            match cause {
                Cause::Queue => part.queued += time,
                Cause::Move => part.moved += time,
                Cause::Spin => part.spun += time,
                _ => part.slept += time,
            }
        }
        self.sampler.add(Stretch {
            task: who.task,
            cpu: who.cpu,
            from: from - self.started,
            to: clock - self.started,
            activity,
            cause,
            place,
        });
    }

    /// `who` touched a line at `now`.
    pub(crate) fn access(
        &mut self,
        who: Who,
        line: LineId,
        kind: Kind,
        now: Ps,
        hit: Ps,
        access: Access,
    ) {
        let Some(book) = self.tasks.get(who.task as usize) else {
            return;
        };
        let stage = book.stage;
        // The first line of an access that touches several is that of its word.
        let offset = if self.at >> self.line_shift == line {
            self.at
        } else {
            line << self.line_shift
        };
        if stage == Stage::Within {
            self.touched(who, offset, kind, access.moved);
        }
        if access.waited {
            self.until(who, now, Cause::Queue, Some(offset));
        } else {
            self.until(who, now, Cause::Other, None);
        }
        if access.moved {
            self.until(who, access.end - hit, Cause::Move, Some(offset));
        }
        self.until(who, access.end, Cause::Hit, None);
    }

    fn touched(&mut self, who: Who, offset: usize, kind: Kind, moved: bool) {
        let at = self.record_or_new(offset >> self.line_shift);
        let word = self.word(offset);
        let book = &mut self.tasks[who.task as usize];
        let activity = book.levels.last().map_or(USER, |level| level.now);
        let record = &mut self.records[at];
        record.touched.insert(who.cpu);
        if kind.writes() {
            record.writers.insert(who.cpu);
            record.writes += 1;
            if !book.wrote.contains(&(at as u32)) {
                book.wrote.push(at as u32);
                record.written_by_ops += 1;
            }
        }
        if moved {
            record.part(word, activity).moves += 1;
        }
        if record.name_of(word).is_none() {
            record.words.push((word, 0));
            self.unnamed.push((at as u32, word, offset));
        }
    }

    /// A word that needs a name, as its offset in the machine's memory.
    pub(crate) fn next_unnamed(&self) -> Option<usize> {
        self.unnamed.last().map(|(_, _, offset)| *offset)
    }

    /// Names the word that [`Self::next_unnamed`] gave.
    pub(crate) fn name(&mut self, name: Name) {
        let Some((at, word, _)) = self.unnamed.pop() else {
            return;
        };
        let next = self.names.len() as u32;
        let number = *self.by_name.entry(name).or_insert(next);
        if number == next {
            self.names.push(name);
        }
        let record = &mut self.records[at as usize];
        if let Some(entry) = record.words.iter_mut().find(|(it, _)| *it == word) {
            entry.1 = number;
        }
        if self.free.as_ref().is_some_and(|free| *free == name.kind()) {
            record.free = true;
        }
    }

    /// A remark of `task`; `sleeps_for` is the offset of the lock that a remark names.
    pub(crate) fn phase(&mut self, task: u32, phase: Phase, sleeps_for: Option<usize>) {
        let activity = match phase {
            Phase::Call(name) => Some(Activity::Call(name)),
            other => Activity::of(other),
        };
        let number = activity.map(|activity| self.activity(activity));
        let Some(book) = self.tasks.get_mut(task as usize) else {
            return;
        };
        let outside = book.levels.len() == 1;
        let Some(level) = book.levels.last_mut() else {
            return;
        };
        match (phase, number) {
            (Phase::Call(_), Some(call)) if outside => book.call = Some(call),
            (Phase::Call(_), Some(call)) => {
                *level = Level {
                    base: call,
                    now: call,
                }
            }
            (Phase::Back, _) => level.now = level.base,
            (Phase::Sleep(_), _) => book.sleeps_for = sleeps_for,
            (_, Some(now)) if !outside => level.now = now,
            _ => {}
        }
    }

    /// `task` enters the kernel.
    pub(crate) fn enter(&mut self, task: u32) {
        if let Some(book) = self.tasks.get_mut(task as usize) {
            if book.levels.len() == 1 {
                book.wrote.clear();
            }
            let base = book.call.take().unwrap_or(FAULT);
            book.levels.push(Level { base, now: base });
            book.sleeps_for = None;
        }
    }

    /// The entry just made is for an interrupt.
    pub(crate) fn interrupted(&mut self, task: u32) {
        let book = self.tasks.get_mut(task as usize);
        if let Some(level) = book.and_then(|book| book.levels.last_mut()) {
            *level = Level {
                base: INTERRUPT,
                now: INTERRUPT,
            };
        }
    }

    /// `task` leaves the kernel, or an interrupt.
    pub(crate) fn leave(&mut self, task: u32) {
        if let Some(book) = self.tasks.get_mut(task as usize) {
            if book.levels.len() > 1 {
                book.levels.pop();
            }
            if book.levels.len() == 1 {
                book.sleeps_for = None;
            }
        }
    }

    /// `who` goes to sleep.
    pub(crate) fn parks(&mut self, who: Who, clock: Ps) {
        self.until(who, clock, Cause::Other, None);
        if let Some(book) = self.tasks.get_mut(who.task as usize) {
            book.parked = true;
        }
    }

    /// `who` has a CPU again.
    pub(crate) fn runs(&mut self, who: Who, clock: Ps) {
        let Some(book) = self.tasks.get_mut(who.task as usize) else {
            return;
        };
        let parked = core::mem::take(&mut book.parked);
        let lock = if parked { book.sleeps_for.take() } else { None };
        let cause = match lock {
            _ if !parked => Cause::Ready,
            Some(_) => Cause::Sleep,
            None => Cause::Barrier,
        };
        self.until(who, clock, cause, lock);
    }

    /// `who` has ended.
    pub(crate) fn ends(&mut self, who: Who, clock: Ps) {
        self.until(who, clock, Cause::Other, None);
        if let Some(book) = self.tasks.get_mut(who.task as usize) {
            book.end = clock;
        }
    }

    /// `who` opens or closes its window.
    pub(crate) fn window(&mut self, who: Who, clock: Ps, stage: Stage) {
        self.until(who, clock, Cause::Other, None);
        if let Some(book) = self.tasks.get_mut(who.task as usize)
            && self.windows == Windows::Opened
        {
            book.stage = stage;
        }
    }
}
