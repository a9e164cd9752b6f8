//! What a workload needs of a machine.
//!
//! A workload is written once, generic over [`Target`], and runs on real threads over the software
//! MMU (*host*), in virtual time (*sim*) and over real system calls (*linux*).
//!
//! What runs is a group of *workers*: the threads of one process, or as many processes of one
//! thread each ([`Spaces`]). Barrier, mailbox and clock reach across all of them either way.

mod ended;

pub use ended::{ProcessReport, Stop, TargetError, WorkerReport};

use crate::contents::WORD;
use minflt_addr::VirtAddr;

/// What cannot be mapped here, as Linux numbers it.
const ENODEV: i32 = 19;

/// A machine that can run processes made of threads.
pub trait Target {
    /// One worker, as its body sees it.
    type Worker<'w>: Worker;

    /// The target's name as the command line spells it: `host`, `sim` or `linux`.
    fn name(&self) -> &'static str;

    /// Bytes per page.
    fn page_size(&self) -> u64;

    /// CPUs that workers can run on.
    fn cpus(&self) -> u32;

    /// Why it cannot do `feature`; `None` where it can.
    fn lacks(&self, feature: Feature) -> Option<&'static str>;

    /// Bytes of a huge page, where there are any ([`Feature::HugePages`]).
    fn huge_page_size(&self) -> Option<u64> {
        None
    }

    /// Bytes of addresses that one table of leaf entries covers.
    fn table_bytes(&self) -> u64 {
        // Entries of eight bytes, and tables of a page.
        self.page_size() * (self.page_size() / 8)
    }

    /// Up to how many bytes around its address a fault on a file maps; `None` where that is not
    /// known, or changes.
    fn fault_around_bytes(&self) -> Option<u64> {
        None
    }

    /// Starts `plan.threads` workers, as one process or as a process each, runs `body` in each,
    /// waits for all, and tears the processes down.
    ///
    /// The body must not carry results out through captured state: on *linux* it runs in a forked
    /// child. Results leave by the [`Worker`]'s methods.
    ///
    /// # Errors
    /// When the process cannot be started, or a body returns an error.
    fn process<F>(&self, plan: &Plan, body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync;
}

/// How a process is to be started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Workers: threads in the process, or processes.
    pub threads: u32,
    /// CPUs they run on.
    pub cpus: u32,
    /// Who clears the pages, and when.
    pub clear: Clear,
    /// What has an address space of its own.
    pub spaces: Spaces,
    /// A file that all workers can map ([`Worker::map_common`]); it is made before the process
    /// starts, outside all measured time, and gone when the process has ended.
    pub file: Option<CommonFile>,
    /// The huge pages that the workers use, reserved for nobody until they are mapped.
    pub huge: Option<HugePages>,
    /// Memory that each worker finds mapped when it starts ([`Worker::inherited`]).
    pub inherited: Option<Inherited>,
}

impl Plan {
    /// Threads of one process that clear pages in their faults, and have only their memory in
    /// common.
    #[must_use]
    pub const fn new(threads: u32, cpus: u32) -> Self {
        Self {
            threads,
            cpus,
            clear: Clear::InFault,
            spaces: Spaces::Shared,
            file: None,
            huge: None,
            inherited: None,
        }
    }
}

/// The huge pages that a process uses. A target that has too few of them refuses the plan, or sees
/// to it that there are enough before the process starts, outside all measured time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HugePages {
    /// How many it uses at once at the most, in all: those of the file, those inherited and their
    /// copies, and those that workers map.
    pub count: u64,
    /// Bytes of a file of huge pages that all workers can map ([`Worker::map_huge_common`]), a
    /// multiple of [`Target::huge_page_size`]; `None` for no such file. It is made before the
    /// process starts, has no pages yet, and is gone when the process has ended.
    pub file_bytes: Option<u64>,
}

/// Private anonymous memory that the first process of a plan maps before anything is measured.
/// Threads of one process have it in common. Processes are forked from the first one, which stays
/// until they have ended, so that a store of theirs copies a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// Its length, a multiple of its page size.
    pub bytes: u64,
    /// What its pages are.
    pub pages: Pages,
    /// When they are faulted in.
    pub populate: Populate,
}

/// What the pages of a mapping are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// As small as there are ([`Target::page_size`]).
    Base,
    /// Huge ([`Target::huge_page_size`]).
    Huge,
}

/// When the pages of a mapping are faulted in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Populate {
    /// When they are touched.
    OnTouch,
    /// By the call that maps them (`MAP_POPULATE`).
    Now,
}

/// A file that all workers of a process can map.
///
/// Page `n` of it begins with the word that [`file_word`](crate::file_word) says; all other words
/// are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommonFile {
    /// Its length; the last page is filled up.
    pub bytes: u64,
    /// Where its pages are when the first worker starts.
    pub cache: Cache,
}

/// Where the pages of a file are before anybody maps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cache {
    /// All of them in the page cache.
    Warm,
    /// On a disk only, as far as the system lets us make it so.
    Cold,
}

/// What has an address space of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spaces {
    /// All workers together: they are the threads of one process.
    Shared,
    /// Each worker: it is a process of one thread.
    Own,
}

/// What not every target can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// Files to map ([`Worker::map_file`], [`Worker::map_common`]).
    Files,
    /// Files whose pages have to be read first ([`Cache::Cold`]).
    ColdFiles,
    /// Pages that keep all their words, so that memory can be copied word by word.
    WholePages,
    /// Two memory nodes, between which pages can be moved ([`Worker::move_page`]).
    Nodes,
    /// Huge pages ([`Worker::map_huge`], [`Worker::map_huge_common`]).
    HugePages,
}

/// When fresh pages are cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clear {
    /// Inside the fault, as usual.
    InFault,
    /// Before the process starts, so that the clear is not part of any measured time. A target that
    /// cannot do so (*linux*) refuses the plan.
    Beforehand,
}

/// Access rights of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prot {
    /// No access.
    None,
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// What is done with the words of a stretch of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// All are loaded.
    Load,
    /// All are stored to.
    Store,
    /// Each is loaded, then stored to.
    Update,
}

/// Whose stores a mapping of a file shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sharing {
    /// Its own only: a store copies the page (`MAP_PRIVATE`).
    Private,
    /// Everybody's: a store is one to the file (`MAP_SHARED`).
    Shared,
}

/// One worker: a thread of the process, or a process. All addresses are in its address space.
pub trait Worker {
    /// The worker as a forked child sees itself.
    type Child<'c>: Worker;

    /// The worker's number, from 0. A forked child has its parent's.
    fn index(&self) -> u32;

    /// Workers there are.
    fn threads(&self) -> u32;

    /// Bytes per page.
    fn page_size(&self) -> u64;

    /// Maps `len` bytes of private anonymous memory where the system likes.
    ///
    /// # Errors
    /// The system's error number.
    fn map(&mut self, len: u64, prot: Prot) -> Result<VirtAddr, Stop>;

    /// Maps `len` bytes of a file of the worker's own. The file is that long, of zeros at first,
    /// and has no name; it is made at the first call, and again when `len` is another.
    ///
    /// # Errors
    /// The system's error number; ENODEV on a target that lacks [`Feature::Files`].
    fn map_file(&mut self, len: u64, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        let _no_files = (len, prot, sharing);
        Err(Stop::Errno(ENODEV))
    }

    /// Maps the file that all workers have in common ([`Plan::file`]) from its start, all of it.
    ///
    /// # Errors
    /// The system's error number; ENODEV where the plan has no file.
    fn map_common(&mut self, prot: Prot, sharing: Sharing) -> Result<VirtAddr, Stop> {
        let _no_file = (prot, sharing);
        Err(Stop::Errno(ENODEV))
    }

    /// Maps `len` bytes of private anonymous huge pages where the system likes (`MAP_HUGETLB`).
    /// `len` is a multiple of [`Target::huge_page_size`].
    ///
    /// # Errors
    /// The system's error number; ENODEV on a target that lacks [`Feature::HugePages`].
    fn map_huge(&mut self, len: u64, populate: Populate) -> Result<VirtAddr, Stop> {
        let _no_huge_pages = (len, populate);
        Err(Stop::Errno(ENODEV))
    }

    /// Maps the file of huge pages that all workers have in common ([`HugePages::file_bytes`]) from
    /// its start, all of it. Stores reach the file (`MAP_SHARED`).
    ///
    /// # Errors
    /// The system's error number; ENODEV where the plan has no such file.
    fn map_huge_common(&mut self, prot: Prot) -> Result<VirtAddr, Stop> {
        let _no_huge_file = prot;
        Err(Stop::Errno(ENODEV))
    }

    /// Where the memory lies that the worker found mapped when it started ([`Plan::inherited`]). It
    /// is the same address in all workers.
    ///
    /// # Errors
    /// ENODEV where the plan has none.
    fn inherited(&mut self) -> Result<VirtAddr, Stop> {
        Err(Stop::Errno(ENODEV))
    }

    /// Unmaps `[at, at + len)`. Of huge pages only whole ones can be.
    ///
    /// # Errors
    /// The system's error number.
    fn unmap(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop>;

    /// Changes the protection of `[at, at + len)`.
    ///
    /// # Errors
    /// The system's error number.
    fn protect(&mut self, at: VirtAddr, len: u64, prot: Prot) -> Result<(), Stop>;

    /// Throws the pages of `[at, at + len)` away (`MADV_DONTNEED`).
    ///
    /// # Errors
    /// The system's error number.
    fn discard(&mut self, at: VirtAddr, len: u64) -> Result<(), Stop>;

    /// Moves the end of the heap to `at`, as the system call `brk` does, and returns where it is
    /// now: unchanged where it could not be moved, or where `at` is `None`.
    fn brk(&mut self, at: Option<VirtAddr>) -> VirtAddr;

    /// Forks the calling process, runs `child` in the child to its end, and waits for the child's
    /// exit. The child has one thread, the worker's. It does not come to barriers and opens no
    /// window; what it counts by [`Worker::ops`] and [`Worker::checked`] is the worker's, and so is
    /// its time.
    ///
    /// # Errors
    /// The error number of fork, or what the child stopped with.
    fn fork<F>(&mut self, child: F) -> Result<(), Stop>
    where
        F: for<'c> FnOnce(&mut Self::Child<'c>) -> Result<(), Stop>;

    /// Stores a 64-bit word, faulting the page in where need be. `at` is a multiple of 8.
    ///
    /// # Errors
    /// A signal that the access raised. (On *linux* a signal ends the process instead.)
    fn store(&mut self, at: VirtAddr, value: u64) -> Result<(), Stop>;

    /// Loads a 64-bit word, faulting the page in where need be. `at` is a multiple of 8.
    ///
    /// # Errors
    /// A signal that the access raised. (On *linux* a signal ends the process instead.)
    fn load(&mut self, at: VirtAddr) -> Result<u64, Stop>;

    /// Uses all words of the `bytes` bytes at `at`, which lie in one page; both are multiples of 8,
    /// and there is at least one word. What is stored is `value`, in every word. Returns what the
    /// first word held where words are loaded, else 0.
    ///
    /// Where a page holds one word (*sim*) that is the first of them, and what it costs is what all
    /// of them cost from the memory in which the page lies.
    ///
    /// # Errors
    /// A signal that the access raised. (On *linux* a signal ends the process instead.)
    fn use_data(&mut self, at: VirtAddr, bytes: u64, how: Use, value: u64) -> Result<u64, Stop> {
        let mut first = 0;
        for word in (0..bytes).step_by(WORD as usize) {
            let at = VirtAddr(at.0 + word);
            if how != Use::Store {
                let found = self.load(at)?;
                if word == 0 {
                    first = found;
                }
            }
            if how != Use::Load {
                self.store(at, value)?;
            }
        }
        Ok(first)
    }

    /// Moves the page at `at` to memory node `node`; false where that could not be done now, since
    /// somebody else uses the page in a way that keeps it where it is.
    ///
    /// # Errors
    /// The system's error number; ENODEV on a target that lacks [`Feature::Nodes`].
    fn move_page(&mut self, at: VirtAddr, node: u32) -> Result<bool, Stop>;

    /// Does `ns` nanoseconds of user computation that touches no shared memory. Time in which the
    /// worker has no CPU does not count.
    fn compute(&mut self, ns: u64);

    /// Waits until every worker has come here.
    fn barrier(&mut self);

    /// Sets slot `slot` (0..8) of the mailbox, which all workers see.
    fn post(&mut self, slot: usize, value: u64);

    /// Reads slot `slot` (0..8) of the mailbox; 0 before anybody posted.
    fn read(&mut self, slot: usize) -> u64;

    /// Adds 1 to slot `slot` (0..8) of the mailbox and returns what it held: no two claims of a
    /// slot return the same number. Orders nothing else.
    fn claim(&mut self, slot: usize) -> u64;

    /// Wall time in nanoseconds since some fixed moment; virtual time on *sim*.
    fn now_ns(&mut self) -> u64;

    /// Opens this worker's measured window: wall, user and system time and faults count from here.
    fn window_open(&mut self);

    /// Closes the window.
    fn window_close(&mut self);

    /// Adds `n` operations of the workload's own kind to this worker's report.
    fn ops(&mut self, n: u64);

    /// Adds `n` looks of oracle `oracle` to the report's `checks`.
    fn checked(&mut self, oracle: Oracle, n: u64);
}

/// An oracle a workload itself can consult.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oracle {
    /// A load returned the last store.
    Contents,
}
