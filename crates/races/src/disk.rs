//! A disk for the scenes: a word a page, slow enough that others run meanwhile.
#![expect(
    clippy::disallowed_types,
    reason = "the disk is no part of the machine; a thread of the host has its own"
)]

use core::sync::atomic::AtomicU64;
use minflt_addr::Pfn;
use minflt_mm::{FileOps, IoError};
use minflt_pgtable::Mmu;
use minflt_sync::{Kind, Ordering, lockdep};

const PAGES: usize = 4;
/// Accesses of the device to a frame: moments for others to run.
const MOMENTS: u32 = 3;

/// The words of a disk's pages, and the pages that cannot be read, as bits.
#[derive(Debug)]
pub(super) struct Disk {
    words: [AtomicU64; PAGES],
    fails: AtomicU64,
}

thread_local! {
    /// One is enough: a thread of the host plays one scene at a time.
    static DISK: &'static Disk = Box::leak(Box::new(Disk::new()));
}

impl Disk {
    fn new() -> Self {
        Self {
            words: core::array::from_fn(|_| AtomicU64::new(0)),
            fails: AtomicU64::new(0),
        }
    }

    /// The disk of the calling thread, as at the beginning of a scene: page `n` holds `100 + n`.
    pub(super) fn fresh() -> &'static Self {
        let disk = DISK.with(|disk| *disk);
        for (word, n) in disk.words.iter().zip(100..) {
            word.store(n, Ordering::Relaxed);
        }
        disk.fails.store(0, Ordering::Relaxed);
        disk
    }

    /// Page `n` cannot be read from now on.
    pub(super) fn fail(&self, n: u64) {
        self.fails.store(1 << n, Ordering::Relaxed);
    }

    /// What page `n` holds.
    pub(super) fn word(&self, n: usize) -> u64 {
        self.words[n].load(Ordering::Relaxed)
    }
}

fn moments<M: Mmu>(at: &M::Instance, pfn: Pfn, kind: Kind) {
    lockdep::might_sleep::<M>();
    for _ in 0..MOMENTS {
        M::before(M::frame_ptr(at, pfn), 8, kind);
    }
}

impl<M: Mmu> FileOps<M> for Disk {
    fn read_page(&self, at: &M::Instance, index: u64, pfn: Pfn) -> Result<(), IoError> {
        moments::<M>(at, pfn, Kind::PlainWrite);
        if self.fails.load(Ordering::Relaxed) >> index & 1 != 0 {
            return Err(IoError::Failed);
        }
        M::clear(at, pfn);
        M::user_store(at, pfn, 0, self.word(index as usize));
        Ok(())
    }

    fn write_page(&self, at: &M::Instance, index: u64, pfn: Pfn) -> Result<(), IoError> {
        moments::<M>(at, pfn, Kind::PlainRead);
        let found = M::user_load(at, pfn, 0);
        self.words[index as usize].store(found, Ordering::Relaxed);
        moments::<M>(at, pfn, Kind::PlainRead);
        Ok(())
    }
}
