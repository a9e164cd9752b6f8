//! What an embedder would write by hand: a `BTreeMap` of mappings, the page tables of the `x86_64`
//! crate, a bitmap for frames; a spin lock for the address space and one for all frames.

use crate::frames::{Fill, Frames};
use crate::offset::{DATA, READ_ONLY, Tables};
use crate::side::{Pages, Side, Space, User};
use core::ops::Range;
use minflt_host::RamError;
use spin::Mutex;
use std::collections::BTreeMap;
use x86_64::structures::paging::PageTableFlags;

const PAGE: usize = 4096;

/// Mappings by their first address.
#[derive(Default)]
struct Mappings(BTreeMap<u64, Mapping>);

#[derive(Clone, Copy)]
struct Mapping {
    end: u64,
    flags: PageTableFlags,
}

impl Mappings {
    /// The mapping that `at` is in.
    fn find(&self, at: u64) -> Option<&Mapping> {
        let (_, before) = self.0.range(..=at).next_back()?;
        (at < before.end).then_some(before)
    }

    /// The first hole of `len` bytes.
    fn hole(&self, len: u64) -> u64 {
        let mut at = 1 << 30;
        for (start, mapping) in &self.0 {
            if at + len <= *start {
                break;
            }
            at = at.max(mapping.end);
        }
        at
    }

    fn insert(&mut self, at: u64, len: u64) {
        let (end, flags) = (at + len, DATA);
        let before = self.0.range(..end).next_back();
        assert!(before.is_none_or(|(_, it)| it.end <= at), "free");
        self.0.insert(at, Mapping { end, flags });
    }

    /// No mapping lies on both sides of `at`.
    fn split(&mut self, at: u64) {
        if let Some((_, before)) = self.0.range_mut(..at).next_back()
            && before.end > at
        {
            let right = *before;
            before.end = at;
            self.0.insert(at, right);
        }
    }

    fn split_around(&mut self, range: &Range<u64>) {
        self.split(range.start);
        self.split(range.end);
    }

    fn remove(&mut self, range: &Range<u64>) {
        self.split_around(range);
        while let Some((&start, _)) = self.0.range(range.clone()).next() {
            self.0.remove(&start);
        }
    }

    fn protect(&mut self, range: &Range<u64>, flags: PageTableFlags) {
        self.split_around(range);
        for (_, mapping) in self.0.range_mut(range.clone()) {
            mapping.flags = flags;
        }
    }
}

fn pages(range: &Range<u64>) -> impl Iterator<Item = u64> {
    range.clone().step_by(PAGE)
}

/// All of the peer.
pub(crate) struct ByHand(Frames);

impl ByHand {
    pub(crate) fn new(fill: Fill) -> Result<Self, RamError> {
        Ok(Self(Frames::new(fill)?))
    }
}

/// An address space.
pub(crate) struct HandSpace<'a> {
    frames: &'a Frames,
    inner: Mutex<(Mappings, Tables<'a>)>,
    pages: Pages,
}

impl Side for ByHand {
    type Space<'a> = HandSpace<'a>;

    fn name(&self) -> String {
        "BTreeMap + x86_64".to_owned()
    }

    fn space(&self, pages: Pages) -> HandSpace<'_> {
        if pages != Pages::Any {
            self.0.clear_free();
        }
        HandSpace {
            frames: &self.0,
            inner: Mutex::new((Mappings::default(), Tables::new(&self.0))),
            pages,
        }
    }

    fn bytes(&self, _: &HandSpace<'_>) -> u64 {
        crate::heap_bytes()
    }
}

impl Space for HandSpace<'_> {
    type User<'u>
        = &'u Self
    where
        Self: 'u;

    fn on<R>(&self, _cpu: u32, run: impl FnOnce(&&Self) -> R) -> R {
        run(&self)
    }

    fn fork(&self) -> Self {
        let (mappings, tables) = &*self.inner.lock();
        let mut child = Tables::new(self.frames);
        for (start, mapping) in &mappings.0 {
            for at in pages(&(*start..mapping.end)) {
                if let Some((from, flags)) = tables.find(at) {
                    let to = self.frames.alloc().expect("memory");
                    self.frames.copy(to, from);
                    child.map(at, to, flags);
                }
            }
        }
        Self {
            frames: self.frames,
            inner: Mutex::new((Mappings(mappings.0.clone()), child)),
            pages: self.pages,
        }
    }
}

impl HandSpace<'_> {
    /// Unmaps the pages of a range.
    fn zap(&self, range: &Range<u64>, tables: &mut Tables<'_>) {
        for at in pages(range) {
            if let Some(frame) = tables.unmap(at) {
                self.frames.free(frame);
            }
        }
    }
}

impl Drop for HandSpace<'_> {
    fn drop(&mut self) {
        let (mappings, tables) = &mut *self.inner.lock();
        for (start, mapping) in &mappings.0 {
            self.zap(&(*start..mapping.end), tables);
        }
    }
}

impl User for &HandSpace<'_> {
    fn mmap(&self, len: u64) -> u64 {
        let (mappings, _) = &mut *self.inner.lock();
        let at = mappings.hole(len);
        mappings.insert(at, len);
        at
    }

    fn mmap_at(&self, at: u64, len: u64) {
        let (mappings, _) = &mut *self.inner.lock();
        mappings.insert(at, len);
    }

    fn munmap(&self, at: u64, len: u64) {
        let (mappings, tables) = &mut *self.inner.lock();
        let range = at..at + len;
        mappings.remove(&range);
        self.zap(&range, tables);
    }

    fn mprotect(&self, at: u64, len: u64, writable: bool) {
        let (mappings, tables) = &mut *self.inner.lock();
        let (range, flags) = (at..at + len, if writable { DATA } else { READ_ONLY });
        mappings.protect(&range, flags);
        for page in pages(&range) {
            tables.protect(page, flags);
        }
    }

    fn fault(&self, at: u64) {
        let (mappings, tables) = &mut *self.inner.lock();
        let flags = mappings.find(at).expect("mapped").flags;
        assert!(flags.contains(PageTableFlags::WRITABLE), "writable");
        let frame = self.frames.alloc().expect("memory");
        if self.pages != Pages::Clear {
            self.frames.clear(frame);
        }
        tables.map(at, frame, flags);
    }

    fn store(&self, at: u64, value: u64) {
        let writable = || {
            let (_, tables) = &*self.inner.lock();
            let (frame, flags) = tables.find(at)?;
            flags.contains(PageTableFlags::WRITABLE).then_some(frame)
        };
        let frame = writable().or_else(|| {
            self.fault(at);
            writable()
        });
        self.frames.store(frame.expect("mapped"), value);
    }

    fn load(&self, at: u64) -> u64 {
        let (_, tables) = &*self.inner.lock();
        let (frame, _) = tables.find(at).expect("mapped");
        self.frames.load(frame)
    }
}
