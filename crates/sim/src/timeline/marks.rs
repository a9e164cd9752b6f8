//! Which steps of a failing run made it fail.
//!
//! Each shape of failure leaves steps in a known order: an object is freed, then used; a page is
//! stored to, then the exchange that drops it. The last such steps before the end are marked. This
//! is a search for a pattern, not a proof: where none is found the run's end alone is marked.

use super::names::Names;
use super::text::{Seen, Touched, Use};
use crate::trace::{Event, Place, Step};
use serde::Serialize;

/// How a run fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// An object is used after it was freed.
    UseAfterFree,
    /// A store is in a page that no entry maps any more, or in one that was copied before.
    LostStore,
    /// A CPU uses or keeps a translation that the entry does not grant any more.
    StaleTranslation,
    /// A thread acts on what it read of a word, which another has changed since.
    StaleRead,
    /// Threads wait for each other, or for what they may not wait for.
    Wait,
}

/// What a step has to do with a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// The object is freed.
    Freed,
    /// The object is used though it was freed, or what was read is used though it changed.
    Used,
    /// The store that is lost.
    Stored,
    /// The exchange that loses it.
    Lost,
    /// The contents are copied too early.
    Copied,
    /// A word is read.
    Read,
    /// Another thread changes it.
    Changed,
    /// A translation is read into a TLB.
    Cached,
    /// The entry does not grant it any more.
    Zapped,
    /// A thread waits here.
    Waits,
    /// An oracle finds the failure.
    Found,
}

impl Mark {
    /// What is written beside the step.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Freed => "freed here",
            Self::Used => "used here",
            Self::Stored => "stored here",
            Self::Lost => "lost here",
            Self::Copied => "copied here",
            Self::Read => "read here",
            Self::Changed => "changed here",
            Self::Cached => "cached here",
            Self::Zapped => "zapped here",
            Self::Waits => "waits here",
            Self::Found => "found here",
        }
    }
}

/// Steps that are searched, from the end: of each two some pattern looks at both.
const LAST: usize = 3_000;

/// The marks of a failing run, by place among its steps.
pub(super) fn of(
    shape: Shape,
    steps: &[Step],
    seen: &[Seen],
    names: &dyn Names,
) -> Vec<(usize, Mark)> {
    let from = steps.len().saturating_sub(LAST);
    let (steps, seen) = (&steps[from..], &seen[from..]);
    let search = Search { steps, seen, names };
    let stop = steps
        .iter()
        .rposition(|step| matches!(step.event, Event::Stops(_)));
    let found = match shape {
        Shape::UseAfterFree => search.use_after_free(),
        Shape::LostStore => search.lost_store(),
        Shape::StaleTranslation => search.stale_translation(),
        Shape::StaleRead => None,
        Shape::Wait => Some(search.waits()),
    };
    let mut marks = found.or_else(|| search.stale_read()).unwrap_or_default();
    if let Some(stop) = stop
        && marks.iter().all(|(step, _)| *step != stop)
    {
        marks.push((stop, Mark::Found));
    }
    let marks = marks.into_iter();
    marks.map(|(step, mark)| (from + step, mark)).collect()
}

struct Search<'a> {
    steps: &'a [Step],
    seen: &'a [Seen],
    names: &'a dyn Names,
}

impl<'a> Search<'a> {
    /// The steps that touch something.
    fn touches(&self) -> impl DoubleEndedIterator<Item = (usize, u32, &'a Touched)> {
        let steps = self.seen.iter().enumerate();
        steps.filter_map(|(step, seen)| Some((step, seen.task, seen.touched.as_ref()?)))
    }

    fn last_of(&self, task: u32) -> Option<usize> {
        self.steps.iter().rposition(|step| step.task == task)
    }

    /// The last use of an object that another thread freed, by a thread that knew it before or that
    /// uses nothing after it; and the free. A thread may come to know an object after its free: by
    /// a pointer whose change is still in another CPU's store buffer.
    fn use_after_free(&self) -> Option<Vec<(usize, Mark)>> {
        let frees = self.touches().filter(|(step, ..)| self.is_free(*step));
        let pairs = frees.filter_map(|(free, task, freed)| {
            let uses = |(step, other, it): &(usize, u32, &Touched)| {
                *other != task && is_same(it, freed) && self.is_use_of(*step, it)
            };
            let used = self
                .touches()
                .rfind(|it| it.0 > free && uses(it) && !self.is_free(it.0))?;
            // A table is known by the entry that names it, and need not have been touched.
            let knew = self.touches().any(|it| it.0 < free && uses(&it));
            let last = self.touches().next_back().is_some_and(|it| it.0 == used.0);
            (knew || last || freed.key.0.ends_with("table")).then_some((free, used.0))
        });
        let pair = pairs.max_by_key(|(free, used)| (*used, *free))?;
        Some(vec![(pair.0, Mark::Freed), (pair.1, Mark::Used)])
    }

    fn is_free(&self, step: usize) -> bool {
        matches!(self.steps[step].event, Event::Frees { .. })
    }

    /// Whether a step uses an object itself: of a frame its contents, not its descriptor.
    fn is_use_of(&self, step: usize, it: &Touched) -> bool {
        match it.key.0 {
            "frame" => matches!(self.steps[step].event, Event::Data { .. }),
            kind if kind.ends_with("table") => it.key.2.starts_with('['),
            _ => true,
        }
    }

    /// The last store to a page whose entry another thread changes after that, so that it maps
    /// something else; or the last copy of a page before a store to it.
    fn lost_store(&self) -> Option<Vec<(usize, Mark)>> {
        let stores = self.stores();
        let (last, expected) = (stores.last()?, self.expected());
        let wanted = stores
            .iter()
            .rfind(|(_, _, value)| Some(*value) == expected);
        let (store, frame, _) = *wanted.unwrap_or(last);
        let by = self.steps[store].task;
        let drops = |step: &usize| self.steps[*step].task != by && self.drops(*step, frame);
        if let Some(lost) = (store + 1..self.steps.len()).find(drops) {
            return Some(vec![(store, Mark::Stored), (lost, Mark::Lost)]);
        }
        let copied = (0..store).rev().find(|step| {
            matches!(self.steps[*step].event, Event::Copies { from, .. }
                if self.frame_at(from) == Some(frame))
        });
        if let Some(copied) = copied {
            return Some(vec![(copied, Mark::Copied), (store, Mark::Stored)]);
        }
        let lost = (0..store).rev().find(drops)?;
        Some(vec![(lost, Mark::Zapped), (store, Mark::Stored)])
    }

    /// Users' stores: the step, the frame, and what was stored.
    fn stores(&self) -> Vec<(usize, u64, u64)> {
        let steps = self.steps.iter().enumerate();
        let stores = steps.filter_map(|(number, step)| match step.event {
            Event::Data {
                stores: true,
                place,
                value,
            } => Some((number, self.frame_at(place)?, value)),
            _ => None,
        });
        stores.collect()
    }

    /// The value that an oracle missed: the last number of what it says.
    fn expected(&self) -> Option<u64> {
        let text = self.stopped()?;
        let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
        numbers.rfind(|part| !part.is_empty())?.parse().ok()
    }

    fn stopped(&self) -> Option<&'a str> {
        self.steps.iter().rev().find_map(|step| match &step.event {
            Event::Stops(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The frame at a place in a page.
    fn frame_at(&self, place: Place) -> Option<u64> {
        match place {
            Place::Ram(at) => Some(self.names.thing(at).number),
            Place::Context { .. } => None,
        }
    }

    /// What an entry maps before and after a step that changes it.
    fn entry(&self, step: usize) -> Option<(Option<u64>, Option<u64>)> {
        let (place, old, new) = match self.steps[step].event {
            Event::Access {
                place, old, new, ..
            } => (place, old?, new?),
            Event::Drains {
                place, old, new, ..
            } => (place, old, new),
            _ => return None,
        };
        let Place::Ram(at) = place else {
            return None;
        };
        let [old, new] = [old, new].map(|value| Some(self.names.entry(at, value)?.frame));
        Some((old?, new?))
    }

    /// Whether a step changes an entry so that it does not map a frame any more.
    fn drops(&self, step: usize, frame: u64) -> bool {
        let maps = Some(frame);
        self.entry(step)
            .is_some_and(|(old, new)| old == maps && new != maps)
    }

    /// The frame that an oracle speaks of.
    fn spoken_of(&self) -> Option<u64> {
        let (_, rest) = self.stopped()?.split_once("frame ")?;
        let end = rest.find(|letter: char| !letter.is_ascii_digit());
        rest[..end.unwrap_or(rest.len())].parse().ok()
    }

    /// The step by which a CPU could know a translation, the exchange that took it away, the free
    /// of its page, and its use.
    fn stale_translation(&self) -> Option<Vec<(usize, Mark)>> {
        let frame = self.spoken_of()?;
        let mut marks = Vec::new();
        let zapped = (0..self.steps.len())
            .rev()
            .find(|step| self.drops(*step, frame));
        if let Some(zapped) = zapped {
            marks.push((zapped, Mark::Zapped));
            let by = self.steps[zapped].task;
            let cached = (0..zapped).rev().find(|step| {
                let data = matches!(self.steps[*step].event, Event::Data { place, .. }
                    if self.frame_at(place) == Some(frame));
                self.steps[*step].task != by && data
            });
            marks.extend(cached.map(|step| (step, Mark::Cached)));
        }
        let freed = (0..self.steps.len()).rev().find(|step| {
            matches!(self.steps[*step].event, Event::Frees { place, .. }
                if self.frame_at(place) == Some(frame))
        });
        let stop = self
            .steps
            .iter()
            .rposition(|step| matches!(step.event, Event::Stops(_)))?;
        marks.extend(freed.map(|step| (step, Mark::Freed)));
        if freed.is_some() {
            marks.push((stop, Mark::Used));
        }
        (!marks.is_empty()).then_some(marks)
    }

    /// Where each thread that has not ended waits.
    fn waits(&self) -> Vec<(usize, Mark)> {
        let mut tasks: Vec<u32> = self.steps.iter().map(|step| step.task).collect();
        tasks.sort_unstable();
        tasks.dedup();
        let waits = |step: &usize| {
            matches!(
                self.steps[*step].event,
                Event::Spins { .. } | Event::Sleeps | Event::Stops(_)
            )
        };
        let ends = tasks.into_iter().filter_map(|task| self.last_of(task));
        ends.filter(waits).map(|step| (step, Mark::Waits)).collect()
    }

    /// A thread reads a word, another one changes it, and the first changes something then without
    /// having read it again; or changes the word itself. Entries of tables come first, locks last.
    fn stale_read(&self) -> Option<Vec<(usize, Mark)>> {
        let mut best: Option<(u32, usize, [usize; 3])> = None;
        for (change, by, it) in self.touches() {
            let rank = rank(it);
            if it.used != Use::Changes || rank == 0 {
                continue;
            }
            let word = |at: &Touched| at.place == it.place;
            // The other's last look at the word before, and its next one.
            let Some((read, task, _)) = self
                .touches()
                .rfind(|(step, task, at)| *step < change && *task != by && word(at))
            else {
                continue;
            };
            let mut next = self
                .touches()
                .filter(|(step, other, _)| *step > change && *other == task);
            let used = next.find(|(_, _, at)| word(at) || self.acts(at));
            let Some((used, _, at)) = used else {
                continue;
            };
            // Reading it again is what it should do.
            if word(at) && at.used == Use::Reads {
                continue;
            }
            let rank = rank + u32::from(word(at));
            if best.is_none_or(|(most, at, _)| (rank, change) >= (most, at)) {
                best = Some((rank, change, [read, change, used]));
            }
        }
        let [read, change, used] = best?.2;
        Some(vec![
            (read, Mark::Read),
            (change, Mark::Changed),
            (used, Mark::Used),
        ])
    }

    /// Whether a thread changes something that matters.
    fn acts(&self, at: &Touched) -> bool {
        at.used == Use::Changes && rank(at) > 1
    }
}

/// Whether two steps touch one object, whatever part of it.
fn is_same(one: &Touched, other: &Touched) -> bool {
    (one.key.0, one.key.1) == (other.key.0, other.key.1)
}

/// How likely a word is what a race is about; of a lock, or of what a CPU has for itself: not at
/// all.
fn rank(at: &Touched) -> u32 {
    let (kind, _, _) = &at.key;
    let name = &at.name;
    let lock = ["lock", "queue", "srcu", "rcu", "mailbox", "seq"];
    match *kind {
        "thread" | "system" | "per-cpu" | "zone" => 0,
        _ if lock
            .iter()
            .any(|part| name.rsplit('.').next() != Some(name) && name.contains(part)) =>
        {
            0
        }
        kind if kind.ends_with("table") => 4,
        "vma" | "tree node" | "attrs" | "anon_vma" | "anon_vma_chain" => 2,
        _ => 1,
    }
}
