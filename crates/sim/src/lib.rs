//! Simulated machines: any number of CPUs, in virtual time or under a scheduler that looks for
//! races, always deterministic.
//!
//! ```text
//! machine_file  topology and costs with their sources     model     the same in picoseconds
//! instance      one machine: memory, buffers, clock       lines     who holds which cache line
//! sched         CPUs, tasks, whose turn it is             policy    who runs next
//! world         a run as the contexts in it see it        machine   the seam that `sync` sees
//! run           running tasks                             report    what a run came to
//! trace         what happened, step by step               timeline  a lane for each thread
//! why           where time went, and which line limits
//! explore       many schedules of one scenario    minimize  a failing schedule, made short
//! schedule      choices as text                   fuzz      clocks that run unevenly
//! buffer        stores that reach memory later    data      what using a page's words costs
//! chosen        a page-table format picked at run time
//! ```
//!
//! A simulated figure is a claim about a cost model, and is to be labelled so wherever it is shown.

mod broadcast;
mod buffer;
mod chosen;
mod data;
mod explore;
mod fuzz;
mod here;
mod instance;
mod lease;
mod lines;
pub mod locks;
mod machine;
pub mod machine_file;
mod memory;
mod minimize;
mod model;
mod policy;
mod remarks;
mod report;
mod rng;
mod run;
mod sched;
mod schedule;
mod snoop;
mod spin;
mod stops;
mod target;
mod timeline;
mod trace;
pub mod why;
mod worker;
mod world;

#[cfg(test)]
mod tests;

pub use chosen::{Chosen, Held};
pub use explore::{Budget, Explored, Failure, How, Mix, explore, explore_mix};
pub use instance::{SimInstance, Size};
pub use machine::Sim;
pub use machine_file::{MachineFile, MachineFileError, Source};
pub use minflt_sync::MAX_CPUS;
pub use minimize::{Minimized, minimize};
pub use policy::{Memory, Policy};
pub use report::{Outcome, RunReport, TaskTimes};
pub use rng::Rng;
pub use run::{RunOptions, TaskSpec, run};
pub use schedule::{Choice, Schedule, ScheduleError, To};
pub use target::{Asked, Placing, SimTarget, Simulated, StartError};
pub use timeline::{
    Colour, Entry, Fold, Lane, Look, Mark, Names, Row, Shape, Steps, Thing, Timeline,
};
pub use trace::{Event, Place, Step};
pub use why::{Why, WhyOptions};
pub use worker::SimWorker;
