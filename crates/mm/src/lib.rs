//! A virtual-memory subsystem with scalable page faults: address spaces, faults and their parts.
//!
//! Start with [`System::boot`], make an address space with [`System::new_mm`], become one of its
//! threads with [`Mm::thread`]. How faults are synchronized is a [`Config`], chosen when the system
//! starts; [`ERAS`] names the generations of Linux's, and this project's own.
//!
//! # What is called where
//!
//! | on | is |
//! |---|---|
//! | [`System`] | what concerns the whole machine: files, swap, huge-page pools, limits, ledger |
//! | [`Mm`] | what changes or asks an address space, for any CPU: its thread or not |
//! | [`Thread`] | what acts as the running thread: accesses by words and bytes, faults, policy |
//!
//! So every call with an address is on [`Mm`]. Those that may fault pages in are on [`Thread`],
//! too, under the same name: [`Thread::mmap`], [`Thread::mmap_file`], [`Thread::madvise`],
//! [`Thread::mremap`], [`Thread::mlock`] and its like. There the pages come from where the thread's
//! memory policy says, and are counted in the thread's share; on [`Mm`] they come from where the
//! mapping's policy says and are counted at once. Threads that fault much use those of [`Thread`].
//!
//! Exceptions: [`Mm::mmap`] is a short form, and [`Mm::mmap_as`] is what [`Thread::mmap`] is to a
//! thread. Asking for the node of a page ([`Thread::node_at`]) faults it in, as a load of the
//! thread, and is on [`Thread`] only. A call that may be made for another address space than the
//! caller's ([`Mm::remote_read`], [`Mm::pin`]) is on [`Mm`]; [`Thread::pin_fast`] relies on
//! being a CPU that has run the address space.
//!
//! Handles ([`MmHandle`], [`FileHandle`]) may be dropped by anybody. All else needs a CPU.
#![no_std]

mod arenas;
mod base;
mod boot;
mod call;
mod change;
mod entry;
mod fault;
mod memory;
mod mm;
mod pages;
mod space;
mod system;
mod view;

pub use base::config;
pub use view::describe;

pub use base::attrs::{Prot, VmaFlags, VmaView};
pub use base::check::Check;
pub use base::config::{
    Config, ERAS, Era, Illegal, LockMode, NegativeControl, era, eras_of_huge_pages,
    eras_of_migration, eras_without_files, eras_without_migration,
};
pub use base::error::{
    BootError, Errno, FileError, HeapError, MadviseError, MempolicyError, MincoreError, MlockError,
    MmapError, MovePageError, MprotectError, MremapError, MsyncError, MunmapError, NoMemory,
    RemoteError, ShmatError, ShmctlError, ShmdtError, ShmgetError, UffdError,
};
pub use base::event::Event;
pub use base::file::{FileKey, IoError};
pub use base::huge_size::HugeSize;
pub use base::policy::{NodeMask, Policy, PolicyMode};
pub use base::vma_lock_ops::{OwnLock, VmaLockOps, Word, Words};
pub use boot::Running;
pub use call::file_copy::FrameBytes;
pub use call::handle::MmHandle;
pub use call::kernel_pages::{Gfp, KernelPages, MAX_PAGE_ORDER};
pub use call::madvise::Advice;
pub use call::mempolicy::Misplaced;
pub use call::mlock::LockAll;
pub use call::mmap::{Growth, Lock, MapRequest, Populate};
pub use call::move_pages::Which;
pub use call::mremap::{Remap, RemapRequest};
pub use call::msync::Msync;
pub use call::pin::Pin;
pub use call::place::Place;
pub use call::shm::{ShmAttach, ShmCreate, ShmPlace, ShmRequest, ShmRound};
pub use call::thread::{CopyError, CopyStop, Thread};
pub use call::userfaultfd::{Uffd, UffdMode, Wake};
pub use fault::remote::Force;
pub use fault::{Done, FaultOutcome, Kind as FaultKind, Signal};
pub use memory::alloc::Refuse;
pub use memory::alloc::pool::{NodeCounters, PoolCounters};
pub use memory::commit::{Overcommit, Reserve};
pub use memory::frame::Frame;
pub use memory::locks::LockWhen;
pub use memory::rss::BATCH as RSS_BATCH;
pub use memory::swap::{Swap, SwapDevice};
pub use mm::Mm;
pub use pages::file::{FileAccess, FileHandle, FileOps, Sharing};
pub use pages::numa::NumaKnobs;
pub use pages::segments::{ShmId, ShmKey, ShmLimits, ShmPages, ShmStatus};
pub use pages::userfault::{Message, Reason, UffdFaults, WriteProtected};
pub use space::arenas::look::Mappings;
pub use space::tree::Mapping;
pub use space::vma::{Attrs, Vma};
pub use system::System;
pub use view::oracle::{Ledger, Unbalanced};
pub use view::proc::{FileId, FileNames, Mapped};
