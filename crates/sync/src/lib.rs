//! The machine seam, atomics, locks and grace periods that everything above is written with.
//!
//! Nothing here allocates, and nothing is static: state lies in one machine's memory, and the
//! machine itself is a type parameter. See [`machine`] for the seam.
#![no_std]
#![expect(
    clippy::disallowed_types,
    reason = "the door itself stands on the raw atomics"
)]

pub mod array;
pub mod atomic;
pub mod callback;
pub mod counter;
pub mod cpumask;
pub mod cx;
pub mod lock_seq;
pub mod lockdep;
pub mod machine;
pub mod percpu;
pub mod phase;
pub mod plain;
pub mod prim;
pub mod rcu;
pub mod ref_lock;
pub mod rwsem;
pub mod seqcount;
pub mod slab;
pub mod spin;
pub mod spin_queue;
pub mod srcu;
pub mod wait_table;
pub mod word;

pub use array::Array;
pub use atomic::{Atomic, StaticRef};
pub use callback::Callback;
pub use counter::Counter;
pub use cpumask::{CpuMask, MAX_CPUS, SharedCpuMask};
pub use cx::{Cx, SpinNode, TaskId};
pub use lock_seq::{LockSeq, LockedAt};
pub use lockdep::order;
pub use machine::{Cost, Instance, IpiHandler, Irq, Job, Kind, Machine, Ram};
pub use percpu::{Apart, PerCpu, this_cpu, this_task};
pub use phase::Phase;
pub use plain::{Own, Plain, PlainWord};
pub use prim::Ordering;
pub use rcu::{Rcu, RcuGuard};
pub use ref_lock::{Newcomers, RefGuard, RefLock, Refused};
pub use rwsem::{DowngradedGuard, ReadGuard, RwSem, RwSemPart, Succession, WriteGuard};
pub use seqcount::{Seq, SeqCount};
pub use slab::{Owned, PageSource, Slab, SpentPage};
pub use spin::{SpinGuard, SpinLock};
pub use spin_queue::SpinQueue;
pub use srcu::{Srcu, SrcuGuard};
pub use wait_table::WaitTable;
pub use word::{Rmw, Word};
