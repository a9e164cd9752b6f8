//! Slabs: an object belongs to one owner at a time, wherever it is freed.

use super::{M, machine, on_all_cpus, per_cpu};
use crate::HostInstance;
use core::ptr::NonNull;
use minflt_sync::order::FilesLock;
use minflt_sync::slab::Pages::{Leave, Stay};
use minflt_sync::slab::{Kept, Magazine, PageSource, SlabObject, SpentPage};
use minflt_sync::{Atomic, Instance, Ordering, Slab, SpinLock};

struct Object {
    /// Overwritten while free.
    _link: u64,
    owner: u64,
    check: u64,
}

impl SlabObject for Object {}

/// Hands out pages from byte `1 << 20` of the machine's memory on.
struct Pages<'a> {
    at: &'a HostInstance,
    given: Atomic<u64, M>,
    back: Atomic<u64, M>,
    most: u64,
}

impl<'a> Pages<'a> {
    fn new(at: &'a HostInstance, most: u64) -> Self {
        Self {
            at,
            given: Atomic::new(0),
            back: Atomic::new(0),
            most,
        }
    }
}

impl PageSource for Pages<'_> {
    fn slab_page(&self, slab: u8) -> Option<NonNull<[u8]>> {
        assert_eq!(slab, 3);
        let number = self.given.add(1, Ordering::Relaxed);
        if number >= self.most {
            return None;
        }
        // SAFETY: within the machine's memory.
        let page = unsafe { self.at.ram().base.add((1 << 20) + number as usize * 4096) };
        Some(NonNull::slice_from_raw_parts(NonNull::new(page)?, 4096))
    }

    fn slab_page_back(&self, slab: u8, page: SpentPage) {
        let (page, callback) = (page.base(), page.callback());
        assert_eq!(slab, 3);
        let first = self.at.ram().base.addr() + (1 << 20);
        let offset = page.addr().get() - first;
        assert!(offset.is_multiple_of(4096) && offset >> 12 < self.given.peek() as usize);
        assert_eq!(callback.addr().get() >> 12, page.addr().get() >> 12);
        self.back.add(1, Ordering::Relaxed);
    }

    fn has(&self, slab: u8, at: NonNull<u8>) -> bool {
        let first = self.at.ram().base.addr() + (1 << 20);
        slab == 3 && (at.addr().get() - first) >> 12 < self.given.peek() as usize
    }
}

struct Owned(NonNull<Object>);

// SAFETY: an owned object is its owner's alone.
unsafe impl Send for Owned {}

#[test]
fn objects_have_one_owner_and_none_is_lost() {
    /// More than fill the list, so that some are freed.
    const ROUNDS: u64 = if cfg!(miri) { 16 } else { 20_000 };
    // A CPU keeps few, which are taken one by one, or some more, which are taken by the page.
    for (keeps, most) in [(0, 4), (40, 8)] {
        let given = pass_objects_on(keeps, ROUNDS);
        // 40 in the list, and each CPU may keep some: far less than the 80,000 allocated.
        assert!(given <= most, "{given} pages");
    }
}

/// Each of 4 CPUs allocates so many objects, and frees those of others. Returns the pages that were
/// needed.
fn pass_objects_on(keeps: u16, rounds: u64) -> u64 {
    let at = machine(4);
    let slab: Slab<Object, M> = Slab::new(3, per_cpu(&at, 0, |_| Magazine::new()), Leave);
    let slab = slab.keeping((keeps, 1 << 12));
    let pages = Pages::new(&at, 64);
    let passed: SpinLock<Vec<Owned>, FilesLock, M> = SpinLock::new(Vec::new());
    on_all_cpus(&at, |cpu| {
        for round in 0..rounds {
            let owner = u64::from(cpu) << 32 | round;
            let object = Object {
                _link: 0,
                owner,
                check: !owner,
            };
            let object = slab
                .alloc(object, &pages)
                .ok()
                .expect("64 pages are enough");
            // Free what another one allocated, whenever there is something.
            let mut list = passed.lock();
            list.push(Owned(object));
            let taken = (list.len() > 40).then(|| list.swap_remove(round as usize % 40));
            drop(list);
            if let Some(Owned(object)) = taken {
                // SAFETY: owned by us: it is in no list any more.
                let seen = unsafe { object.as_ref() };
                assert_eq!(seen.owner, !seen.check, "two owners");
                // SAFETY: 1: allocated above and taken out of the list once; 2: nobody else has it.
                unsafe { slab.free(object, &pages) };
            }
        }
    });
    pages.given.peek()
}

#[test]
fn an_owned_object_is_taken_out_of_its_list_and_put_back() {
    struct Number {
        next: Option<minflt_sync::Owned<Self>>,
        number: u64,
    }
    impl SlabObject for Number {}
    let at = machine(1);
    let slab: Slab<Number, M> = Slab::new(3, per_cpu(&at, 0, |_| Magazine::new()), Leave);
    let pages = Pages::new(&at, 1);
    let _cpu = at.enter(0);
    let mut list = None;
    for number in 0..4 {
        let next = list.take();
        let new = slab.alloc_owned(Number { next, number }, &pages);
        list = Some(new.ok().expect("one page is enough"));
    }
    let mut take = |wanted: u64| {
        let taken =
            minflt_sync::Owned::take_out(&mut list, |it| it.number == wanted, |it| &mut it.next);
        taken.map(|it| {
            let number = it.number;
            slab.put_back(it, &pages);
            number
        })
    };
    let numbers = [2, 2, 0, 3, 7, 1, 1].map(&mut take);
    assert_eq!(
        numbers,
        [Some(2), None, Some(0), Some(3), None, Some(1), None]
    );
    assert!(list.is_none() && slab.live() == 0);
}

#[test]
fn memory_that_runs_out_gives_the_value_back() {
    let at = machine(1);
    let slab: Slab<Object, M> = Slab::new(3, per_cpu(&at, 0, |_| Magazine::new()), Leave);
    let pages = Pages::new(&at, 1);
    let _cpu = at.enter(0);
    let mut placed = 0;
    let back = loop {
        match slab.alloc(
            Object {
                _link: 0,
                owner: placed,
                check: 0,
            },
            &pages,
        ) {
            Ok(_) => placed += 1,
            Err(back) => break back,
        }
    };
    assert_eq!(
        (back.owner, placed),
        (placed, (4096 - 64) / Slab::<Object, M>::SLOT as u64)
    );
}

#[test]
fn pages_without_objects_go_back() {
    /// Some pages of them.
    const OBJECTS: u64 = if cfg!(miri) { 1_000 } else { 10_000 };
    let at = machine(1);
    let slab: Slab<Object, M> = Slab::new(3, per_cpu(&at, 0, |_| Magazine::new()), Leave);
    let stays: Slab<Object, M> = Slab::new(3, per_cpu(&at, 1 << 12, |_| Magazine::new()), Stay);
    let keeps: Slab<Object, M> = Slab::new(3, per_cpu(&at, 2 << 12, |_| Magazine::new()), Leave);
    let keeps = keeps.keeping((40, 1 << 12));
    let _cpu = at.enter(0);
    let pages = Pages::new(&at, 1 << 10);
    for (slab, some_left) in [
        (&slab, false),
        (&slab, true),
        (&stays, false),
        (&keeps, false),
        (&keeps, true),
    ] {
        let before = [&pages.given, &pages.back].map(Atomic::peek);
        let object = |owner| Object {
            _link: 0,
            owner,
            check: !owner,
        };
        let make = |owner| {
            slab.alloc(object(owner), &pages)
                .ok()
                .expect("enough pages")
        };
        let all: Vec<_> = (0..OBJECTS).map(make).collect();
        // One of each page stays, or none.
        let mut kept = std::collections::BTreeMap::new();
        for object in all {
            if some_left && !kept.contains_key(&(object.addr().get() >> 12)) {
                kept.insert(object.addr().get() >> 12, object);
                continue;
            }
            // SAFETY: 1, 2: allocated above, and nobody else has it.
            unsafe { slab.free(object, &pages) };
        }
        let given = pages.given.peek() - before[0];
        let back = pages.back.peek() - before[1];
        match (core::ptr::eq(slab, &raw const stays), some_left) {
            (true, _) => assert_eq!(back, 0, "of {given}"),
            (false, true) => assert_eq!(back, 0, "of {given}, an object in each"),
            // Some that the slab keeps, and those of what the CPU keeps.
            (false, false) => assert!(
                back + 4 >= given && given > OBJECTS / 200,
                "{back} of {given}"
            ),
        }
        for object in kept.into_values() {
            // SAFETY: as above.
            unsafe { slab.free(object, &pages) };
        }
    }
}

/// An object whose last words are looked at by readers of an earlier life.
#[repr(C)]
struct Lasting {
    _link: u64,
    own: u64,
    kept: Atomic<u64, M>,
    also_own: u64,
}

impl SlabObject for Lasting {
    // SAFETY: 1: the field `kept`. 2: a word, which is set atomically.
    const KEPT: Kept = unsafe { Kept::new(16, 24) };
}

#[test]
fn what_is_kept_outlives_the_object_and_starts_as_zero() {
    let at = machine(1);
    // SAFETY: within the machine's memory.
    let page = unsafe { at.ram().base.add(1 << 20) };
    // What was in the page before must not show.
    // SAFETY: nobody uses it yet.
    unsafe { page.write_bytes(0x5a, 4096) };
    let slab: Slab<Lasting, M> = Slab::new(3, per_cpu(&at, 0, |_| Magazine::new()), Leave);
    let pages = Pages::new(&at, 1);
    let _cpu = at.enter(0);
    let make = |own| {
        let object = Lasting {
            _link: 0,
            own,
            kept: Atomic::new(77),
            also_own: !own,
        };
        slab.alloc(object, &pages).ok().expect("a page is enough")
    };
    let first = make(1);
    // SAFETY: allocated above; shared from here on, but for the free below.
    let seen = unsafe { first.as_ref() };
    assert_eq!((seen.own, seen.also_own, seen.kept.peek()), (1, !1, 0));
    seen.kept.store(5, Ordering::Relaxed);
    // SAFETY: 1, 2: allocated above, and nobody uses it but for what is kept.
    unsafe { slab.free(first, &pages) };
    // SAFETY: a free object's kept words are still words.
    let kept = unsafe { &(*first.as_ptr()).kept };
    assert_eq!(kept.peek(), 5);
    let second = (0..128).map(|_| make(2)).find(|slot| *slot == first);
    let second = second.expect("there is one page of slots");
    // SAFETY: allocated above.
    let seen = unsafe { second.as_ref() };
    assert_eq!((seen.own, seen.also_own, seen.kept.peek()), (2, !2, 5));
}
