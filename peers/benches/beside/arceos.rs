//! What kernels like ArceOS put together: `memory_set` for mappings, `page_table_multiarch` for
//! page tables, a bitmap for frames, each behind a spin lock. The glue, a backend that maps a page
//! when it is first touched, is written here after theirs: they keep it in their kernel.

use crate::frames::{Fill, Frames};
use crate::side::{Pages, Side, Space, User};
use memory_addr::{AddrRange, PhysAddr, VirtAddr};
use memory_set::{MappingBackend, MemoryArea, MemorySet};
use minflt_addr::Pfn;
use minflt_host::RamError;
use page_table_multiarch::x86_64::X64PageTable;
use page_table_multiarch::{MappingFlags, PageSize, PagingHandler};
use spin::Mutex;
use std::sync::OnceLock;

const PAGE: usize = 4096;

/// A [`PagingHandler`] has no state of its own.
static FRAMES: OnceLock<Frames> = OnceLock::new();

fn frames() -> &'static Frames {
    FRAMES.get().expect("set by `new`")
}

const fn pfn(frame: PhysAddr) -> Pfn {
    Pfn((frame.as_usize() / PAGE) as u64)
}

/// Frames by way of the bitmap.
struct Handler;

impl PagingHandler for Handler {
    fn alloc_frames(num: usize, _align: usize) -> Option<PhysAddr> {
        assert_eq!(num, 1, "x86-64's tables have a page each");
        let frame = frames().alloc()?;
        Some(PhysAddr::from_usize(frame.0 as usize * PAGE))
    }

    fn dealloc_frames(frame: PhysAddr, _num: usize) {
        frames().free(pfn(frame));
    }

    fn phys_to_virt(frame: PhysAddr) -> VirtAddr {
        VirtAddr::from_mut_ptr_of(frames().ptr(pfn(frame)))
    }
}

type PageTable = X64PageTable<Handler>;

/// Memory that is there when it is first touched.
#[derive(Clone, Copy)]
struct Lazy;

impl Lazy {
    /// Maps a new page that `fill` fills.
    fn fault(
        at: VirtAddr,
        flags: MappingFlags,
        table: &mut PageTable,
        fill: impl FnOnce(Pfn),
    ) -> bool {
        let Some(frame) = Handler::alloc_frame() else {
            return false;
        };
        fill(pfn(frame));
        let mapped = table.cursor().map(at, frame, PageSize::Size4K, flags);
        mapped.is_ok()
    }
}

fn pages(start: VirtAddr, size: usize) -> impl Iterator<Item = VirtAddr> {
    (start.as_usize()..start.as_usize() + size)
        .step_by(PAGE)
        .map(VirtAddr::from_usize)
}

impl MappingBackend for Lazy {
    type Addr = VirtAddr;
    type Flags = MappingFlags;
    type PageTable = PageTable;

    fn map(&self, _: VirtAddr, _: usize, _: MappingFlags, _: &mut PageTable) -> bool {
        true
    }

    fn unmap(&self, start: VirtAddr, size: usize, table: &mut PageTable) -> bool {
        let mut table = table.cursor();
        for page in pages(start, size) {
            if let Ok((frame, ..)) = table.unmap(page) {
                Handler::dealloc_frame(frame);
            }
        }
        true
    }

    fn protect(&self, at: VirtAddr, size: usize, to: MappingFlags, table: &mut PageTable) -> bool {
        let mut table = table.cursor();
        for page in pages(at, size) {
            // A page that was not touched has no entry: its area says what it will grant.
            let _untouched = table.protect(page, to);
        }
        true
    }
}

/// All of the peer.
#[derive(Debug)]
pub(crate) struct ArceOs(());

impl ArceOs {
    /// Its memory stays: one such peer a program.
    pub(crate) fn new(fill: Fill) -> Result<Self, RamError> {
        assert!(FRAMES.set(Frames::new(fill)?).is_ok(), "one peer");
        Ok(Self(()))
    }
}

/// An address space.
pub(crate) struct PeerSpace {
    inner: Mutex<(MemorySet<Lazy>, PageTable)>,
    pages: Pages,
}

const DATA: MappingFlags = MappingFlags::READ
    .union(MappingFlags::WRITE)
    .union(MappingFlags::USER);

impl Side for ArceOs {
    type Space<'a> = PeerSpace;

    fn name(&self) -> String {
        "memory_set".to_owned()
    }

    fn space(&self, pages: Pages) -> PeerSpace {
        if pages != Pages::Any {
            frames().clear_free();
        }
        PeerSpace {
            inner: Mutex::new((MemorySet::new(), PageTable::try_new().expect("memory"))),
            pages,
        }
    }

    fn bytes(&self, _: &PeerSpace) -> u64 {
        crate::heap_bytes()
    }
}

impl Space for PeerSpace {
    type User<'u>
        = &'u Self
    where
        Self: 'u;

    fn on<R>(&self, _cpu: u32, run: impl FnOnce(&&Self) -> R) -> R {
        run(&self)
    }

    // ArceOS: modules/axmm/src/aspace.rs clone_or_err (oscomp/arceos, 2025). There the new page is
    // cleared before it is copied to, and looked up once more; not here.
    fn fork(&self) -> Self {
        let (areas, table) = &*self.inner.lock();
        let mut child = (MemorySet::new(), PageTable::try_new().expect("memory"));
        for area in areas.iter() {
            let copy = MemoryArea::new(area.start(), area.size(), area.flags(), Lazy);
            child.0.map(copy, &mut child.1, false).expect("free");
            for at in pages(area.start(), area.size()) {
                let Ok((from, ..)) = table.query(at) else {
                    continue;
                };
                let copy = |to| frames().copy(to, pfn(from));
                let done = Lazy::fault(at, area.flags(), &mut child.1, copy);
                assert!(done, "memory");
            }
        }
        Self {
            inner: Mutex::new(child),
            pages: self.pages,
        }
    }
}

impl PeerSpace {
    /// As a CPU walks the tables, but under the lock.
    fn walk(&self, at: u64, wants: MappingFlags) -> Option<Pfn> {
        let (_, table) = &*self.inner.lock();
        let found = table.query(VirtAddr::from_usize(at as usize)).ok();
        let (frame, flags, _) = found?;
        flags.contains(wants).then(|| pfn(frame))
    }
}

impl Drop for PeerSpace {
    fn drop(&mut self) {
        let (areas, table) = self.inner.get_mut();
        areas.clear(table).expect("a backend that does not fail");
    }
}

impl User for &PeerSpace {
    fn mmap(&self, len: u64) -> u64 {
        let (areas, table) = &mut *self.inner.lock();
        let (start, len) = (VirtAddr::from_usize(1 << 30), len as usize);
        let all = AddrRange::new(start, VirtAddr::from_usize(1 << 47));
        let at = areas.find_free_area(start, len, all, PAGE).expect("a hole");
        let area = MemoryArea::new(at, len, DATA, Lazy);
        areas.map(area, table, false).expect("free");
        at.as_usize() as u64
    }

    fn mmap_at(&self, at: u64, len: u64) {
        let (areas, table) = &mut *self.inner.lock();
        let at = VirtAddr::from_usize(at as usize);
        let area = MemoryArea::new(at, len as usize, DATA, Lazy);
        areas.map(area, table, false).expect("free");
    }

    fn munmap(&self, at: u64, len: u64) {
        let (areas, table) = &mut *self.inner.lock();
        let at = VirtAddr::from_usize(at as usize);
        areas.unmap(at, len as usize, table).expect("mapped");
    }

    fn mprotect(&self, at: u64, len: u64, writable: bool) {
        let (areas, table) = &mut *self.inner.lock();
        let at = VirtAddr::from_usize(at as usize);
        let mut to = DATA;
        to.set(MappingFlags::WRITE, writable);
        let change = |_| Some(to);
        areas
            .protect(at, len as usize, change, table)
            .expect("mapped");
    }

    fn fault(&self, at: u64) {
        let (areas, table) = &mut *self.inner.lock();
        let at = VirtAddr::from_usize(at as usize);
        let area = areas.find(at).expect("mapped");
        let flags = area.flags();
        assert!(flags.contains(MappingFlags::WRITE), "writable");
        let fill = |frame| {
            if self.pages != Pages::Clear {
                frames().clear(frame);
            }
        };
        assert!(Lazy::fault(at, flags, table, fill), "memory");
    }

    fn store(&self, at: u64, value: u64) {
        let writable = || self.walk(at, MappingFlags::WRITE);
        let frame = writable().or_else(|| {
            self.fault(at);
            writable()
        });
        frames().store(frame.expect("mapped"), value);
    }

    fn load(&self, at: u64) -> u64 {
        frames().load(self.walk(at, MappingFlags::READ).expect("mapped"))
    }
}
