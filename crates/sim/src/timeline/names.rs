//! Names of objects: by kind, and numbered in the order in which they first appear.

use super::Lane;
use crate::trace::{Event, Place, Step};
use std::collections::{BTreeMap, BTreeSet};

/// What lies somewhere in the system's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thing {
    /// The kind of object.
    pub kind: &'static str,
    /// Which one of its kind.
    pub number: u64,
    /// The field; of a table, the entry in brackets. May be empty.
    pub part: String,
}

/// An entry of a page table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its value in words.
    pub text: String,
    /// The frame that it maps, if it maps one.
    pub frame: Option<u64>,
    /// The address that it maps, where that is known.
    pub addr: Option<u64>,
}

/// What the system knows of its memory.
pub trait Names {
    /// What lies at an offset in the system's memory.
    fn thing(&self, offset: u64) -> Thing;
    /// Where a value points to, if it is a pointer into the machine's memory.
    fn pointer(&self, value: u64) -> Option<Place>;
    /// The entry at `offset`, if a table is there, with `value`.
    fn entry(&self, offset: u64, value: u64) -> Option<Entry>;
    /// The offset of a frame's first byte.
    fn frame(&self, number: u64) -> Option<u64>;
}

/// An object, for comparison: of objects that have nothing in common but their place, a part.
pub(super) type Key = (&'static str, u64, String);

/// Names the objects of one run.
pub(super) struct Namer<'a> {
    names: &'a dyn Names,
    lanes: &'a [Lane],
    /// Frames that were walked as tables.
    tables: BTreeSet<u64>,
    /// Whether there is more than one address space.
    spaces: bool,
    numbers: BTreeMap<(&'static str, u64), u64>,
    counts: BTreeMap<&'static str, u64>,
}

/// Kinds whose numbers say something: those of CPUs, nodes and slots.
const NUMBERED: [&str; 6] = [
    "per-cpu",
    "zone",
    "node",
    "swap slot",
    "swap groups",
    "fault mutex",
];

/// A byte that freed objects are filled with, eight times and four times.
const POISON: [u64; 2] = [0xfefe_fefe_fefe_fefe, 0xfefe_fefe];
/// Where the host may have its own code and data.
const HOST: core::ops::Range<u64> = 1 << 40..1 << 47;

impl<'a> Namer<'a> {
    pub(super) fn new(names: &'a dyn Names, steps: &[Step], lanes: &'a [Lane]) -> Self {
        let mut tables = BTreeSet::new();
        let mut spaces = BTreeSet::new();
        for step in steps {
            let Event::Access {
                place: Place::Ram(at),
                ..
            } = step.event
            else {
                continue;
            };
            let thing = names.thing(at);
            match thing.kind {
                // Users' accesses are no accesses to shared memory: this was a table's entry.
                "page" => drop(tables.insert(thing.number)),
                "mm" => drop(spaces.insert(thing.number)),
                _ => {}
            }
        }
        Self {
            names,
            lanes,
            tables,
            spaces: spaces.len() > 1,
            numbers: BTreeMap::new(),
            counts: BTreeMap::new(),
        }
    }

    /// The object that a place is part of.
    pub(super) fn key(&self, place: Place) -> Key {
        let at = match place {
            Place::Context { task, .. } => return ("thread", u64::from(task), String::new()),
            Place::Ram(at) => at,
        };
        let thing = self.names.thing(at);
        let kind = self.kind(&thing);
        let apart = matches!(kind, "mm" | "system" | "per-cpu") || kind.ends_with("table");
        let part = match thing.part.split_once('.') {
            _ if !apart => String::new(),
            Some((first, _)) => first.to_owned(),
            None => thing.part,
        };
        (kind, thing.number, part)
    }

    /// The kind of an object: a frame and what is in it are one.
    fn kind(&self, thing: &Thing) -> &'static str {
        if !matches!(thing.kind, "frame" | "page") {
            return thing.kind;
        }
        if self.tables.contains(&thing.number) {
            return "page table";
        }
        let inside = self.names.frame(thing.number);
        match inside.map(|at| self.names.thing(at).kind) {
            Some(kind) if kind.ends_with("table") => kind,
            _ => "frame",
        }
    }

    /// The name of an object.
    pub(super) fn object(&mut self, thing: &Thing) -> String {
        let kind = match self.kind(thing) {
            "pte table" => "page table",
            kind => kind,
        };
        if kind == "system" || (kind == "mm" && !self.spaces) {
            return kind.to_owned();
        }
        if NUMBERED.contains(&kind) {
            return format!("{kind} {}", thing.number);
        }
        let known = self.numbers.get(&(kind, thing.number)).copied();
        let number = known.unwrap_or_else(|| {
            let count = self.counts.entry(kind).or_default();
            *count += 1;
            self.numbers.insert((kind, thing.number), *count);
            *count
        });
        format!("{kind}#{number}")
    }

    /// The name of a place: of an object and the part of it, or of an entry by what it maps.
    pub(super) fn place(&mut self, place: Place) -> String {
        let at = match place {
            Place::Context { task, .. } => return self.context(task),
            Place::Ram(at) => at,
        };
        if let Some(addr) = self.names.entry(at, 0).and_then(|entry| entry.addr) {
            return format!("pte {addr:#x}");
        }
        let thing = self.names.thing(at);
        let object = self.object(&thing);
        match thing.part.as_str() {
            "" => object,
            part if thing.kind.contains(part) => object,
            part if part.starts_with('[') => format!("{object}{part}"),
            part => format!("{object}.{part}"),
        }
    }

    /// The name of the object at an offset.
    pub(super) fn whole(&mut self, at: u64) -> String {
        let thing = self.names.thing(at);
        self.object(&thing)
    }

    /// The name of a thread.
    pub(super) fn thread(&self, task: u32) -> String {
        let lane = self.lanes.iter().find(|lane| lane.task == task);
        lane.map_or_else(|| format!("task {task}"), |lane| lane.name.clone())
    }

    fn context(&self, task: u32) -> String {
        format!("state of {}", self.thread(task))
    }

    /// A word in words, found at `place`.
    pub(super) fn value(&mut self, place: Place, value: u64) -> String {
        if POISON.contains(&value) {
            return "poison".to_owned();
        }
        if let Place::Ram(at) = place
            && let Some(entry) = self.names.entry(at, value)
        {
            return self.rewrite(&entry.text);
        }
        match self.names.pointer(value & !7) {
            Some(Place::Ram(at)) => self.whole(at),
            Some(Place::Context { task, .. }) => self.context(task),
            None if HOST.contains(&value) => "host pointer".to_owned(),
            None => format!("{value:#x}"),
        }
    }

    /// A remark, with the names of its frames and tables.
    pub(super) fn rewrite(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut words = text.split(' ').peekable();
        while let Some(word) = words.next() {
            let end = words
                .peek()
                .map(|next| next.trim_end_matches([',', ':', ';', '.', ')']));
            let number = end.and_then(|digits| digits.parse().ok());
            let offset = number
                .filter(|_| matches!(word, "frame" | "table"))
                .and_then(|number| self.names.frame(number));
            if let (Some(number), Some(end)) = (number, end)
                && offset.is_some()
            {
                let kind = "frame";
                let part = String::new();
                let thing = Thing { kind, number, part };
                if out.ends_with("page ") {
                    out.truncate(out.len() - "page ".len());
                }
                out += &self.object(&thing);
                let whole = words.next().unwrap_or_default();
                out += &whole[end.len()..];
            } else {
                out += word;
            }
            out.push(' ');
        }
        out.pop();
        out
    }
}
