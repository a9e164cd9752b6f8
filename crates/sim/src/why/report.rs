//! The result of time accounting.

use super::ledger::Ledger;
use super::record::{Cpus, Record};
use super::samples::{Sample, Samples};
use super::totals::{Activity, Cause, PhaseRow};
use super::{Name, Stage};
use std::collections::BTreeMap;

/// Lines of one kind: those whose costliest words have the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineRow {
    /// The name of the costliest word ([`Name::kind`]).
    pub name: String,
    /// The lock whose word that is.
    pub lock: Option<&'static str>,
    /// Lines.
    pub lines: u64,
    /// What lies in them: each name with the time it cost, picoseconds, the costliest first.
    pub fields: Vec<(String, u64)>,
    /// CPUs that wrote one of them.
    pub writers: u32,
    /// CPUs that waited for one of them.
    pub waiters: u32,
    /// How often one moved.
    pub moves: u64,
    /// Time in their queues, picoseconds.
    pub queued: u64,
    /// Time in which they moved.
    pub moved: u64,
    /// Time spun for their words.
    pub spun: u64,
    /// Time slept for their locks.
    pub slept: u64,
    /// The longest that one of them was on its way.
    pub busiest: u64,
}

impl LineRow {
    /// Time they cost, picoseconds.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.queued + self.moved + self.spun + self.slept
    }
}

/// Locks of one class.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockRow {
    /// The class.
    pub lock: &'static str,
    /// Their words' moves.
    pub moves: u64,
    /// Time in which their words moved or were queued for, picoseconds.
    pub moving: u64,
    /// Time spun for them.
    pub spun: u64,
    /// Time slept for them.
    pub slept: u64,
}

impl LockRow {
    /// Time they cost, picoseconds.
    #[must_use]
    pub const fn time(&self) -> u64 {
        self.moving + self.spun + self.slept
    }
}

/// Lines of one kind that several CPUs touch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedRow {
    /// The name of the first word that was touched ([`Name::kind`]).
    pub name: String,
    /// Writes to them.
    pub writes: u64,
    /// The same, each line counted once for an entry into the kernel that writes it.
    pub written: u64,
}

/// What limits a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Limit {
    /// Lines, by the name of their costliest word, and how many there are.
    Line(String, u64),
    /// A memory node's bandwidth.
    Memory,
    /// Nothing that is shared: most time goes to this.
    Own(Cause),
}

/// Where the time of a run went. All times are picoseconds of tasks, added up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// From the run's start to its end.
    pub length: u64,
    /// The part of it in which one task was left.
    pub alone: u64,
    /// Tasks.
    pub tasks: u32,
    /// Time by activity within the measured windows, or of the whole run if it has none.
    pub within: Vec<PhaseRow>,
    /// The same before the windows.
    pub before: Vec<PhaseRow>,
    /// The same after the windows.
    pub after: Vec<PhaseRow>,
    /// Lines within the windows, the costliest first.
    pub lines: Vec<LineRow>,
    /// Locks within the windows, the costliest first.
    pub locks: Vec<LockRow>,
    /// Writes within the windows to lines that more than one CPU touched there.
    pub shared_writes: u64,
    /// The same, each line counted once for an entry into the kernel that writes it.
    pub shared_written: u64,
    /// Whether a line was found that was to be free.
    pub freed: bool,
    /// The lines that these were to, those that were written most first.
    pub shared: Vec<SharedRow>,
    /// Time within the windows by activity, cause and, where it belongs to lines, the name of the
    /// word: what a flame graph is made of.
    pub stacks: Vec<(Activity, Cause, Option<String>, u64)>,
    /// Samples, if they were asked for.
    pub samples: Samples,
}

/// A tenth of the tasks' time has to go to a shared thing that limits.
const LIMITS: u64 = 10;

impl Why {
    /// Time within the windows.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.within.iter().map(PhaseRow::time).sum()
    }

    /// What limits it: the lines, or the memory, that cost most, if that is at least a tenth of the
    /// time; else what most time goes to.
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.limit_beside("")
    }

    /// What would limit it if nobody had waited for the lines of that name.
    #[must_use]
    pub fn limit_beside(&self, name: &str) -> Limit {
        let of = |cause: Cause| -> u64 {
            let rows = self.within.iter();
            rows.map(|row| row.by_cause[cause as usize]).sum()
        };
        let (left_out, lines): (Vec<_>, Vec<_>) =
            self.lines.iter().partition(|line| line.name == name);
        let gone: u64 = left_out.iter().map(|line| line.time()).sum();
        let memory = of(Cause::Node);
        let line = lines.first().filter(|line| line.time() >= memory);
        let most = line.map_or(memory, |line| line.time());
        if most > 0 && most >= (self.time() - gone) / LIMITS {
            return match line {
                Some(line) => Limit::Line(line.name.clone(), line.lines),
                None => Limit::Memory,
            };
        }
        let own = Cause::ALL.iter().filter(|cause| !cause.is_wait());
        let most = own.max_by_key(|cause| (of(**cause), core::cmp::Reverse(**cause)));
        Limit::Own(*most.unwrap_or(&Cause::Other))
    }

    pub(crate) fn of(ledger: &Ledger) -> Self {
        let shared = shared(ledger);
        let [before, within, after] = [Stage::Before, Stage::Within, Stage::After]
            .map(|stage| sorted(&ledger.totals[stage as usize]));
        Self {
            length: ledger.length(),
            alone: ledger.alone(),
            tasks: ledger.tasks(),
            within,
            before,
            after,
            lines: lines(ledger),
            locks: locks(ledger),
            shared_writes: shared.iter().map(|row| row.writes).sum(),
            shared_written: shared.iter().map(|row| row.written).sum(),
            shared,
            stacks: stacks(ledger),
            freed: ledger.records.iter().any(|record| record.free),
            samples: samples(ledger),
        }
    }
}

/// Rows with time, the longest first.
fn sorted(rows: &[PhaseRow]) -> Vec<PhaseRow> {
    let mut rows: Vec<_> = rows.iter().filter(|row| row.time() > 0).cloned().collect();
    rows.sort_by_key(|row| (core::cmp::Reverse(row.time()), row.activity));
    rows
}

/// Lines of one kind, being added up.
#[derive(Default)]
struct Group {
    lock: Option<&'static str>,
    lines: u64,
    fields: BTreeMap<String, u64>,
    writers: Cpus,
    waiters: Cpus,
    sums: [u64; 5],
    busiest: u64,
}

impl Group {
    fn add(&mut self, ledger: &Ledger, record: &Record) {
        self.lines += 1;
        self.writers.add(&record.writers);
        self.waiters.add(&record.waiters);
        for part in &record.parts {
            let name = name_of(ledger, record, part.word).kind();
            *self.fields.entry(name).or_default() += part.time();
            let parts = [part.moves, part.queued, part.moved, part.spun, part.slept];
            for (sum, part) in self.sums.iter_mut().zip(parts) {
                *sum += part;
            }
        }
        let moved = record.parts.iter().map(|part| part.moved).sum();
        self.busiest = self.busiest.max(moved);
    }
}

fn name_of(ledger: &Ledger, record: &Record, word: u8) -> Name {
    ledger.names[record.name_of(word).unwrap_or(0) as usize]
}

fn lines(ledger: &Ledger) -> Vec<LineRow> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for record in ledger.records.iter().filter(|record| record.time() > 0) {
        let Some(word) = record.costliest() else {
            continue;
        };
        let name = name_of(ledger, record, word);
        let group = groups.entry(name.kind()).or_default();
        group.lock = name.lock;
        group.add(ledger, record);
    }
    let row = |(name, group): (String, Group)| {
        let [moves, queued, moved, spun, slept] = group.sums;
        let mut fields: Vec<_> = group.fields.into_iter().collect();
        fields.sort_by_key(|(name, time)| (core::cmp::Reverse(*time), name.clone()));
        LineRow {
            name,
            lock: group.lock,
            lines: group.lines,
            fields,
            writers: group.writers.count(),
            waiters: group.waiters.count(),
            moves,
            queued,
            moved,
            spun,
            slept,
            busiest: group.busiest,
        }
    };
    let mut rows: Vec<_> = groups.into_iter().map(row).collect();
    rows.sort_by_key(|row| (core::cmp::Reverse(row.time()), row.name.clone()));
    rows
}

fn locks(ledger: &Ledger) -> Vec<LockRow> {
    let mut locks: BTreeMap<&'static str, LockRow> = BTreeMap::new();
    for record in &ledger.records {
        for part in &record.parts {
            let Some(lock) = name_of(ledger, record, part.word).lock else {
                continue;
            };
            let row = locks.entry(lock).or_insert(LockRow {
                lock,
                moves: 0,
                moving: 0,
                spun: 0,
                slept: 0,
            });
            row.moves += part.moves;
            row.moving += part.queued + part.moved;
            row.spun += part.spun;
            row.slept += part.slept;
        }
    }
    let mut rows: Vec<_> = locks.into_values().filter(|row| row.time() > 0).collect();
    rows.sort_by_key(|row| (core::cmp::Reverse(row.time()), row.lock));
    rows
}

fn shared(ledger: &Ledger) -> Vec<SharedRow> {
    let mut rows: BTreeMap<String, SharedRow> = BTreeMap::new();
    let records = ledger.records.iter();
    for record in records.filter(|it| it.writes > 0 && it.touched.count() > 1) {
        let first = record.words.first().map_or(0, |(word, _)| *word);
        let name = name_of(ledger, record, first).kind();
        let row = rows.entry(name.clone()).or_insert(SharedRow {
            name,
            writes: 0,
            written: 0,
        });
        row.writes += record.writes;
        row.written += record.written_by_ops;
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    rows.sort_by_key(|row| (core::cmp::Reverse(row.writes), row.name.clone()));
    rows
}

fn stacks(ledger: &Ledger) -> Vec<(Activity, Cause, Option<String>, u64)> {
    let mut stacks: BTreeMap<(Activity, Cause, Option<String>), u64> = BTreeMap::new();
    for row in &ledger.totals[Stage::Within as usize] {
        for cause in Cause::ALL.into_iter().filter(|cause| !cause.is_of_lines()) {
            let time = row.by_cause[cause as usize];
            *stacks.entry((row.activity, cause, None)).or_default() += time;
        }
    }
    for record in &ledger.records {
        for part in &record.parts {
            let activity = ledger.activities[part.activity as usize];
            let name = name_of(ledger, record, part.word).kind();
            let times = [
                (Cause::Queue, part.queued),
                (Cause::Move, part.moved),
                (Cause::Spin, part.spun),
                (Cause::Sleep, part.slept),
            ];
            for (cause, time) in times {
                let stack = (activity, cause, Some(name.clone()));
                *stacks.entry(stack).or_default() += time;
            }
        }
    }
    let some = stacks.into_iter().filter(|(_, time)| *time > 0);
    some.map(|((activity, cause, name), time)| (activity, cause, name, time))
        .collect()
}

fn samples(ledger: &Ledger) -> Samples {
    let sampler = &ledger.sampler;
    let sample = |stretch: &super::samples::Stretch| Sample {
        task: stretch.task,
        cpu: stretch.cpu,
        from: stretch.from,
        to: stretch.to,
        activity: ledger.activities[stretch.activity as usize],
        cause: stretch.cause,
        place: stretch.place.map(|(at, word)| {
            let record = &ledger.records[at as usize];
            name_of(ledger, record, word)
        }),
    };
    Samples {
        period: sampler.period,
        list: sampler.kept.iter().map(sample).collect(),
    }
}
