//! The step-by-step trace of a run.

use minflt_sync::{Cost, Kind};

/// A place in the machine's memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Bytes from the start of the context of this task.
    Context {
        /// The task, from 1.
        task: u32,
        /// Bytes from the context's start.
        offset: u32,
    },
    /// Bytes from the start of the memory that the system uses.
    Ram(u64),
}

/// One step of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// When, on the CPU's clock. In explored schedules: the number of the step.
    pub at_ns: u64,
    /// The CPU.
    pub cpu: u32,
    /// The task, from 1.
    pub task: u32,
    /// What.
    pub event: Event,
}

/// What a step was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// An access to shared memory.
    Access {
        /// What kind.
        kind: Kind,
        /// Where.
        place: Place,
        /// How many bytes.
        len: u32,
        /// The word before, where a word was changed.
        old: Option<u64>,
        /// The word that was read, or stands there now.
        new: Option<u64>,
    },
    /// A store stays in the CPU's buffer.
    Holds {
        /// Where.
        place: Place,
        /// How many bytes.
        len: u32,
        /// What was stored.
        value: u64,
    },
    /// The oldest store of the CPU's buffer reaches memory.
    Drains {
        /// Where.
        place: Place,
        /// How many bytes.
        len: u32,
        /// The word before.
        old: u64,
        /// The word now.
        new: u64,
    },
    /// The task spins until `word & mask == eq`.
    Spins {
        /// The word.
        place: Place,
        /// The mask.
        mask: u64,
        /// What it waits for.
        eq: u64,
    },
    /// The task sleeps.
    Sleeps,
    /// The task wakes another one.
    Wakes(u32),
    /// The task interrupts other CPUs.
    SendsInterrupt(Vec<u32>),
    /// The CPU takes an interrupt.
    Interrupt,
    /// Fixed work.
    Charge(Cost),
    /// A remark by the code that runs.
    Note(String),
    /// A word of a page is loaded or stored by a user's access.
    Data {
        /// Whether it is stored.
        stores: bool,
        /// Where.
        place: Place,
        /// What was loaded or stored.
        value: u64,
    },
    /// A page's contents are copied.
    Copies {
        /// The source's first byte.
        from: Place,
        /// The copy's first byte.
        to: Place,
    },
    /// The CPU removes translations of this range from its TLB; of everything, if there is none.
    Flushes(Option<(u64, u64)>),
    /// An object is freed; of a frame, its descriptor says so.
    Frees {
        /// Where.
        place: Place,
        /// How many bytes.
        len: u32,
    },
    /// An oracle ends the run here.
    Stops(String),
    /// The task's body has ended.
    Ends,
}
