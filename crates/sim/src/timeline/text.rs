//! Steps in words, and what each touches.

use super::names::{Key, Namer};
use crate::trace::{Event, Place, Step};
use minflt_sync::Kind;

/// What a step has to do with an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    Reads,
    Changes,
}

/// The object that a step touches.
#[derive(Clone, Debug)]
pub(super) struct Touched {
    pub(super) key: Key,
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) used: Use,
}

/// A step, for comparison with others.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) task: u32,
    pub(super) touched: Option<Touched>,
}

impl Namer<'_> {
    /// What a step touches.
    pub(super) fn see(&mut self, step: &Step) -> Seen {
        let (place, used) = match &step.event {
            Event::Access {
                kind,
                place,
                old,
                new,
                ..
            } => match kind.writes() && (old.is_none() || old != new) {
                true => (*place, Use::Changes),
                false => (*place, Use::Reads),
            },
            Event::Holds { place, .. } | Event::Drains { place, .. } => (*place, Use::Changes),
            Event::Frees { place, .. } => (*place, Use::Changes),
            Event::Spins { place, .. } => (*place, Use::Reads),
            Event::Data { stores, place, .. } => match stores {
                true => (*place, Use::Changes),
                false => (*place, Use::Reads),
            },
            Event::Copies { to, .. } => (*to, Use::Changes),
            _ => {
                return Seen {
                    task: step.task,
                    touched: None,
                };
            }
        };
        let key = self.key(place);
        let name = match (&step.event, place) {
            (Event::Data { .. } | Event::Copies { .. } | Event::Frees { .. }, Place::Ram(at)) => {
                self.whole(at)
            }
            _ => self.place(place),
        };
        Seen {
            task: step.task,
            touched: Some(Touched {
                key,
                name,
                place,
                used,
            }),
        }
    }

    /// What a step is; `None` for work that touches nothing.
    pub(super) fn text(&mut self, step: &Step) -> Option<String> {
        Some(match &step.event {
            Event::Note(text) => format!("# {}", self.rewrite(text)),
            Event::Spins { place, mask, eq } => {
                let name = self.place(*place);
                let eq = self.value(*place, *eq);
                match mask {
                    &u64::MAX | 0xffff_ffff => format!("spins until {name} = {eq}"),
                    mask => format!("spins until {name} & {mask:#x} = {eq}"),
                }
            }
            Event::Holds { place, value, .. } => {
                let (name, value) = (self.place(*place), self.value(*place, *value));
                format!("{name}: {value} in the store buffer")
            }
            Event::Drains {
                place, old, new, ..
            } => format!("{}, drained", self.change(*place, *old, *new)),
            Event::Sleeps => "sleeps".to_owned(),
            Event::Wakes(task) => format!("wakes {}", self.thread(*task)),
            Event::SendsInterrupt(cpus) => {
                let cpus: Vec<_> = cpus.iter().map(u32::to_string).collect();
                format!("interrupts CPU {}", cpus.join(", "))
            }
            Event::Interrupt => "takes an interrupt".to_owned(),
            Event::Ends => "ends".to_owned(),
            Event::Charge(_) => return None,
            Event::Data {
                stores,
                place,
                value,
            } => {
                let frame = self.frame(*place);
                match stores {
                    true => format!("user stores {value} to {frame}"),
                    false => format!("user loads {value} from {frame}"),
                }
            }
            Event::Copies { from, to } => {
                let from = self.frame(*from);
                format!("copies {from} to {}", self.frame(*to))
            }
            Event::Flushes(Some((from, to))) => format!("flushes TLB [{from:#x}, {to:#x})"),
            Event::Flushes(None) => "flushes TLB".to_owned(),
            Event::Frees { place, .. } => format!("frees {}", self.frame(*place)),
            Event::Stops(text) => format!("! {}", self.rewrite(text)),
            Event::Access {
                kind,
                place,
                old,
                new,
                ..
            } => match (kind, old, new) {
                (Kind::Load, _, Some(new)) => {
                    format!("{} is {}", self.place(*place), self.value(*place, *new))
                }
                (Kind::Rmw, Some(old), Some(new)) if old == new => {
                    format!("{} stays {}", self.place(*place), self.value(*place, *new))
                }
                (_, Some(old), Some(new)) => self.change(*place, *old, *new),
                (Kind::PlainRead | Kind::Load, ..) => format!("reads {}", self.place(*place)),
                _ => format!("writes {}", self.place(*place)),
            },
        })
    }

    fn change(&mut self, place: Place, old: u64, new: u64) -> String {
        let (old, new) = (self.value(place, old), self.value(place, new));
        format!("{}: {old} -> {new}", self.place(place))
    }

    /// The name of the object at a place, without its part.
    fn frame(&mut self, place: Place) -> String {
        match place {
            Place::Ram(at) => self.whole(at),
            Place::Context { .. } => self.place(place),
        }
    }
}
