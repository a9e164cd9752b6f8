//! The table of segments, and its limit.

use super::{Held, NewSegment, Segment, ShmId, ShmKey, ShmPages};
use crate::base::config::Config;
use crate::base::config::NegativeControl;
use crate::base::error::{FileError, NoMemory, ShmgetError};
use crate::base::huge_size::HugeSize;
use crate::memory::commit::{Overcommit, Reserve};
use crate::pages::file::{FileAccess, FileHandle, pages_of};
use crate::system::System;
use core::iter::successors;
use core::ptr::NonNull;
use minflt_addr::VirtAddr;
use minflt_pgtable::Mmu;
use minflt_sync::order::ShmLock;
use minflt_sync::slab::{Magazine, Pages};
use minflt_sync::{Atomic, Ordering, PerCpu, RwSem, Slab, WriteGuard};

/// How much shared memory there may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShmLimits {
    /// Bytes of one segment (`kernel.shmmax`).
    pub bytes: u64,
    /// Pages of all of them (`kernel.shmall`).
    pub pages: u64,
    /// How many there are (`kernel.shmmni`), at most 32768.
    pub segments: u64,
}

/// Linux's: as good as none, but for the number of segments.
impl Default for ShmLimits {
    fn default() -> Self {
        // Linux: SHMMAX, SHMALL, SHMMNI.
        let most = u64::MAX - (1 << 24);
        Self {
            bytes: most,
            pages: most,
            segments: 4096,
        }
    }
}

/// Linux: IPCMNI.
const MOST_SEGMENTS: u64 = 1 << 15;

/// What a system keeps of them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Segments<M: Mmu> {
    pub(crate) slab: Slab<Segment<M>, M>,
    /// Guards what follows but the limits. Linux: `ids.rwsem`.
    lock: RwSem<ShmLock, M>,
    /// The address of the first, 0 for none.
    first: Atomic<u64, M>,
    count: Atomic<u64, M>,
    /// Of all of them.
    pages: Atomic<u64, M>,
    next_id: Atomic<u32, M>,
    most_bytes: Atomic<u64, M>,
    most_pages: Atomic<u64, M>,
    most: Atomic<u64, M>,
}

/// The table, locked.
pub(crate) struct Table<'s, M: Mmu> {
    pub(super) sys: &'s System<M>,
    _held: WriteGuard<'s, ShmLock, M>,
}

impl<M: Mmu> Segments<M> {
    /// None, with Linux's limits; the slab's magazines.
    pub(crate) fn new(magazines: PerCpu<Magazine<M>, M>, config: &Config) -> Self {
        let limits = ShmLimits::default();
        Self {
            slab: Slab::new(11, magazines, Pages::Leave),
            lock: RwSem::new(config.sleeping_locks.of_semaphore()),
            first: Atomic::new(0),
            count: Atomic::new(0),
            pages: Atomic::new(0),
            next_id: Atomic::new(0),
            most_bytes: Atomic::new(limits.bytes),
            most_pages: Atomic::new(limits.pages),
            most: Atomic::new(limits.segments),
        }
    }
}

impl<M: Mmu> System<M> {
    /// How much shared memory there may be from now on. What there is stays.
    pub fn set_shm_limits(&self, limits: ShmLimits) {
        let most = limits.segments.min(MOST_SEGMENTS);
        self.shm.most_bytes.store(limits.bytes, Ordering::Relaxed);
        self.shm.most_pages.store(limits.pages, Ordering::Relaxed);
        self.shm.most.store(most, Ordering::Relaxed);
    }

    /// How much shared memory there may be.
    #[must_use]
    pub fn shm_limits(&self) -> ShmLimits {
        ShmLimits {
            bytes: self.shm.most_bytes.load(Ordering::Relaxed),
            pages: self.shm.most_pages.load(Ordering::Relaxed),
            segments: self.shm.most.load(Ordering::Relaxed),
        }
    }

    /// The table, locked.
    pub(crate) fn segments(&self) -> Table<'_, M> {
        Table {
            sys: self,
            _held: self.shm.lock.write(),
        }
    }

    /// Calls `visit` with each segment. For oracles, while nothing runs.
    pub(crate) fn each_segment(&self, mut visit: impl FnMut(&Segment<M>)) {
        let mut at = self.shm.first.peek();
        while let Some(segment) = Segment::<M>::at(at) {
            at = segment.next.peek();
            visit(segment);
        }
    }
}

impl<'s, M: Mmu> Table<'s, M> {
    fn each(&self) -> impl Iterator<Item = &'s Segment<M>> {
        let at = |at: &Atomic<u64, M>| Segment::at(at.load(Ordering::Relaxed));
        successors(at(&self.sys.shm.first), move |segment: &&Segment<M>| {
            at(&segment.next)
        })
    }

    /// The segment with a key that is not private. Linux: ipc_findkey.
    pub(crate) fn named(&self, key: ShmKey) -> Option<&'s Segment<M>> {
        let mut each = self.each();
        each.find(|segment| segment.key.load(Ordering::Relaxed) == key.0)
    }

    /// The segment with a number, removed or not.
    pub(crate) fn numbered(&self, id: ShmId) -> Option<&'s Segment<M>> {
        self.each().find(|segment| segment.id == id)
    }

    /// Makes a segment, and puts it in.
    ///
    /// # Errors
    /// `Invalid`, `NoSpace`, `NoMemory`.
    ///
    /// Linux: newseg, ipc_addid.
    pub(crate) fn add(&self, new: &NewSegment) -> Result<ShmId, ShmgetError> {
        let (sys, shm) = (self.sys, &self.sys.shm);
        let limits = sys.shm_limits();
        let too_long = new.bytes > limits.bytes || i64::try_from(new.bytes).is_err();
        if new.bytes == 0 || too_long {
            return Err(ShmgetError::Invalid);
        }
        let pages = pages_of::<M>(new.bytes);
        let all = shm.pages.load(Ordering::Relaxed).checked_add(pages);
        let all = all.filter(|all| *all <= limits.pages);
        let all = all.ok_or(ShmgetError::NoSpace)?;
        let promised = match (new.pages, new.reserve, sys.overcommit()) {
            // They are reserved.
            (ShmPages::Huge | ShmPages::HugeOf(_), ..) => 0,
            (_, Reserve::NoReserve, Overcommit::Heuristic | Overcommit::Always) => 0,
            _ => pages,
        };
        sys.charge(promised)?;
        let count = shm.count.load(Ordering::Relaxed);
        let segment = self.file_of(new).and_then(|file| {
            let room = count < limits.segments;
            room.then_some(file).ok_or(ShmgetError::NoSpace)
        });
        let segment = segment.and_then(|file| Ok(self.make(new, &file, promised)?));
        let segment = segment.inspect_err(|_| sys.uncharge(promised))?;
        segment
            .cache()
            .segment
            .store(segment.address(), Ordering::Relaxed);
        segment
            .next
            .store(shm.first.load(Ordering::Relaxed), Ordering::Relaxed);
        shm.first.store(segment.address(), Ordering::Relaxed);
        shm.count.store(count + 1, Ordering::Relaxed);
        shm.pages.store(all, Ordering::Relaxed);
        Ok(segment.id)
    }

    /// The memory of a new segment.
    fn file_of(&self, new: &NewSegment) -> Result<FileHandle<'s, M>, ShmgetError> {
        let sys = self.sys;
        let size = match new.pages {
            ShmPages::Small => return Ok(sys.make_file(None, new.bytes, None)?),
            ShmPages::Huge => Some(HugeSize::Large),
            ShmPages::HugeOf(shift) => HugeSize::of_shift::<M::Paging>(shift),
        };
        let size = size.ok_or(ShmgetError::Invalid)?;
        let end = VirtAddr(new.bytes).align_up(size.shift::<M::Paging>());
        let bytes = end.ok_or(ShmgetError::Invalid)?.0;
        let file = sys.new_huge_file_of(size, bytes).map_err(|why| match why {
            FileError::Invalid => ShmgetError::Invalid,
            _ => ShmgetError::NoMemory,
        })?;
        if new.reserve == Reserve::Charged {
            file.cache().reserve_all()?;
        }
        Ok(file)
    }

    fn make(
        &self,
        new: &NewSegment,
        file: &FileHandle<'s, M>,
        promised: u64,
    ) -> Result<&'s Segment<M>, NoMemory> {
        let sys = self.sys;
        let segment = Segment {
            cache: file.cache.as_ptr(),
            id: self.free_id(),
            mode: new.mode,
            bytes: new.bytes,
            promised,
            creator: new.creator,
            key: Atomic::new(new.key.0),
            removed: Atomic::new(0),
            attached: Atomic::new(0),
            last: Atomic::new(0),
            next: Atomic::new(0),
        };
        let segment = sys.shm.slab.alloc(segment, sys).map_err(|_| NoMemory)?;
        // The segment's own, beside the handle's.
        file.cache().hold();
        Segment::at(segment.as_ptr() as u64).ok_or(NoMemory)
    }

    /// A number that no segment has, as late as can be one that another had.
    fn free_id(&self) -> ShmId {
        let next = &self.sys.shm.next_id;
        loop {
            let id = ShmId(next.load(Ordering::Relaxed));
            next.store((id.0 + 1) & i32::MAX.cast_unsigned(), Ordering::Relaxed);
            if self.numbered(id).is_none() {
                return id;
            }
        }
    }

    /// Counts one more, who keeps the segment; with a handle of its file.
    pub(crate) fn hold(&self, segment: &'s Segment<M>, access: FileAccess) -> Held<'s, M> {
        let sys = self.sys;
        let counted = (!sys.lacks(NegativeControl::AttachUncounted)).then_some(segment);
        if let Some(segment) = counted {
            segment.attached.add(1, Ordering::Relaxed);
        }
        Held {
            file: FileHandle {
                sys,
                cache: segment.cache().keep(),
                access,
            },
            counted: counted.map(NonNull::from),
        }
    }

    pub(super) fn take_out(&self, gone: &Segment<M>) {
        let shm = &self.sys.shm;
        let after = |it: &&Segment<M>| it.next.load(Ordering::Relaxed) == gone.address();
        let before = self.each().find(after);
        let next = gone.next.load(Ordering::Relaxed);
        let place = before.map_or(&shm.first, |before| &before.next);
        place.store(next, Ordering::Relaxed);
        shm.count.sub(1, Ordering::Relaxed);
        shm.pages.sub(pages_of::<M>(gone.bytes), Ordering::Relaxed);
    }
}
