//! Random sequences of calls and accesses against a model of pages, in every era, with shrinking.

use core::ops::Range;
use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Errno, MapRequest, Overcommit, Place, Populate, Prot, Reserve, Signal,
    eras_without_migration,
};
use minflt_tests::world::{Machine, PAGE, boot};
use proptest::prelude::{Strategy, prop_oneof, proptest};
use proptest::test_runner::Config;
use std::collections::BTreeMap;

const PAGES: u64 = 24;
/// Two tables meet in the middle of the window.
const BASE: u64 = (1 << 30) - PAGES / 2 * PAGE;

#[derive(Clone, Copy, Debug)]
enum Op {
    Map(u64, u64, Prot, Reserve, Populate),
    MapIfFree(u64, u64, Prot),
    Unmap(u64, u64),
    Protect(u64, u64, Prot),
    Discard(u64, u64),
    Load(u64),
    Store(u64, u64),
    /// Moves the break, by bytes from where the heap starts: in the middle of the window.
    Brk(u64),
    /// So many pages may be mapped.
    Limit(u64),
    /// Fewer than so many pages may be promised, or any.
    Promise(Option<u64>),
}

/// The page of the window that the heap starts at.
const HEAP: u64 = PAGES / 2;

fn op() -> impl Strategy<Value = Op> {
    let prot = || {
        prop_oneof![
            proptest::strategy::Just(Prot::NONE),
            proptest::strategy::Just(Prot::READ),
            proptest::strategy::Just(Prot::READ_WRITE),
        ]
    };
    let from = || 0..PAGES;
    let len = || 1..8u64;
    let reserve = || {
        prop_oneof![
            proptest::strategy::Just(Reserve::Charged),
            proptest::strategy::Just(Reserve::NoReserve),
        ]
    };
    let populate = || {
        prop_oneof![
            proptest::strategy::Just(Populate::OnTouch),
            proptest::strategy::Just(Populate::Now),
        ]
    };
    prop_oneof![
        (from(), len(), prot(), reserve(), populate())
            .prop_map(|(a, n, p, r, now)| Op::Map(a, n, p, r, now)),
        (0..8 * PAGE).prop_map(Op::Brk),
        (0..8u64).prop_map(|pages| Op::Brk(pages * PAGE)),
        (0..PAGES).prop_map(Op::Limit),
        (0..PAGES).prop_map(|pages| Op::Promise(Some(pages))),
        proptest::strategy::Just(Op::Promise(None)),
        (from(), len(), prot()).prop_map(|(a, n, p)| Op::MapIfFree(a, n, p)),
        (from(), len()).prop_map(|(a, n)| Op::Unmap(a, n)),
        (from(), len(), prot()).prop_map(|(a, n, p)| Op::Protect(a, n, p)),
        (from(), len()).prop_map(|(a, n)| Op::Discard(a, n)),
        from().prop_map(Op::Load),
        from().prop_map(Op::Load),
        (from(), 1..1000u64).prop_map(|(a, v)| Op::Store(a, v)),
        (from(), 1..1000u64).prop_map(|(a, v)| Op::Store(a, v)),
    ]
}

/// Whether a page is promised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Promised {
    No,
    Yes,
    /// `MAP_NORESERVE`.
    Never,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    prot: Prot,
    word: u64,
    promised: Promised,
}

/// What the window holds, by page; the break, in bytes behind the heap's start; the limits.
#[derive(Debug)]
struct Model {
    pages: BTreeMap<u64, Page>,
    heap: u64,
    limit: u64,
    promise: Option<u64>,
}

/// What a call or access comes to, in the words of both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    Done,
    Failed(Errno),
    Word(u64),
    Signal(Signal),
}

const NO_MEMORY: Came = Came::Failed(Errno::ENOMEM);

impl Model {
    fn new() -> Self {
        Self {
            pages: BTreeMap::new(),
            heap: 0,
            limit: u64::MAX,
            promise: None,
        }
    }

    fn promised(&self, pages: Range<u64>) -> u64 {
        let pages = self.pages.range(pages);
        pages
            .filter(|(_, page)| page.promised == Promised::Yes)
            .count() as u64
    }

    fn whole(&self, pages: &Range<u64>) -> bool {
        pages.clone().all(|page| self.pages.contains_key(&page))
    }

    /// Whether `more` pages can be promised on top.
    fn can_promise(&self, more: u64) -> bool {
        let all = self.promised(0..u64::MAX) + more;
        more == 0 || self.promise.is_none_or(|limit| all < limit)
    }

    /// The pages of a mapped start of the range that a protection would newly promise.
    fn protect_promises(&self, pages: Range<u64>) -> u64 {
        let mapped = pages.map_while(|page| self.pages.get(&page));
        let newly = |page: &&Page| page.promised == Promised::No && page.prot != Prot::READ_WRITE;
        mapped.filter(newly).count() as u64
    }

    fn map(&mut self, pages: Range<u64>, prot: Prot, reserve: Reserve) -> Came {
        let len = pages.end - pages.start;
        let promised = match (reserve, self.promise, prot) {
            (Reserve::NoReserve, None, _) => Promised::Never,
            (_, _, Prot::READ_WRITE) => Promised::Yes,
            _ => Promised::No,
        };
        let there = self.pages.range(pages.clone()).count() as u64;
        let need = if promised == Promised::Yes { len } else { 0 };
        let more = need.saturating_sub(self.promised(pages.clone()));
        if self.pages.len() as u64 + len - there > self.limit || !self.can_promise(more) {
            return NO_MEMORY;
        }
        let page = Page {
            prot,
            word: 0,
            promised,
        };
        self.pages.extend(pages.map(|at| (at, page)));
        Came::Done
    }

    fn brk(&mut self, to: u64) -> Came {
        let page = |bytes: u64| HEAP + bytes.div_ceil(PAGE);
        let (old, new) = (page(self.heap), page(to));
        let done = if new < old {
            let mapped = self.pages.range(new..old).next().is_some();
            self.pages.retain(|page, _| !(new..old).contains(page));
            mapped
        } else {
            // One page more stays free before the next mapping.
            let free = new == old || self.pages.range(old..new + 1).next().is_none();
            free && (new == old
                || self.map(old..new, Prot::READ_WRITE, Reserve::Charged) == Came::Done)
        };
        if done {
            self.heap = to;
        }
        Came::Word(self.heap)
    }
}

fn on_model(model: &mut Model, op: Op) -> Came {
    match op {
        Op::Map(a, n, prot, reserve, _) => model.map(a..a + n, prot, reserve),
        Op::MapIfFree(a, n, prot) => {
            if model.pages.range(a..a + n).next().is_some() {
                return Came::Failed(Errno::EEXIST);
            }
            model.map(a..a + n, prot, Reserve::Charged)
        }
        Op::Unmap(a, n) => {
            model.pages.retain(|page, _| !(a..a + n).contains(page));
            Came::Done
        }
        Op::Protect(a, n, prot) => {
            let all = model.whole(&(a..a + n));
            // What lies before a hole is changed all the same.
            for at in a..a + n {
                let Some(page) = model.pages.get_mut(&at) else {
                    break;
                };
                let newly = prot == Prot::READ_WRITE && page.prot != prot;
                if newly && page.promised == Promised::No {
                    page.promised = Promised::Yes;
                }
                page.prot = prot;
            }
            if all { Came::Done } else { NO_MEMORY }
        }
        Op::Discard(a, n) => {
            let all = model.whole(&(a..a + n));
            let pages = model.pages.range_mut(a..a + n);
            pages.for_each(|(_, page)| page.word = 0);
            if all { Came::Done } else { NO_MEMORY }
        }
        Op::Load(a) => match model.pages.get(&a) {
            None => Came::Signal(Signal::MapErr),
            Some(page) if page.prot == Prot::NONE => Came::Signal(Signal::AccErr),
            Some(page) => Came::Word(page.word),
        },
        Op::Store(a, value) => match model.pages.get_mut(&a) {
            None => Came::Signal(Signal::MapErr),
            Some(page) if page.prot == Prot::READ_WRITE => {
                page.word = value;
                Came::Done
            }
            Some(_) => Came::Signal(Signal::AccErr),
        },
        Op::Brk(to) => model.brk(to),
        Op::Limit(pages) => {
            model.limit = pages;
            Came::Done
        }
        Op::Promise(pages) => {
            model.promise = pages;
            Came::Done
        }
    }
}

fn on_mm(thread: &minflt_mm::Thread<'_, Machine>, op: Op) -> Came {
    fn done<T, E: Into<Errno>>(result: Result<T, E>) -> Came {
        result.map_or_else(|error| Came::Failed(error.into()), |_| Came::Done)
    }
    let at = |page: u64| VirtAddr(BASE + page * PAGE);
    let mm = thread.mm();
    match op {
        Op::Map(a, n, prot, reserve, populate) => {
            let place = Place::Fixed(at(a));
            let request = MapRequest {
                reserve,
                populate,
                ..MapRequest::new(place, n * PAGE, prot)
            };
            let mapped = thread.mmap(&request);
            assert!(mapped.is_err() || mapped == Ok(at(a)));
            done(mapped)
        }
        Op::MapIfFree(a, n, prot) => {
            let mapped = mm.mmap(Place::FixedNoReplace(at(a)), n * PAGE, prot);
            assert!(mapped.is_err() || mapped == Ok(at(a)));
            done(mapped)
        }
        Op::Unmap(a, n) => done(mm.munmap(at(a), n * PAGE)),
        Op::Protect(a, n, prot) => {
            // What was never stored to loses its promise when stores are forbidden, which depends
            // on what was ever one mapping. The model does not know that; here all has been.
            for page in a..a + n {
                if let Ok(word) = thread.load(at(page)) {
                    let _stored = thread.store(at(page), word);
                }
            }
            done(mm.mprotect(at(a), n * PAGE, prot))
        }
        Op::Discard(a, n) => done(mm.madvise(at(a), n * PAGE, Advice::DontNeed)),
        Op::Load(a) => thread.load(at(a)).map_or_else(Came::Signal, Came::Word),
        Op::Store(a, value) => thread
            .store(at(a), value)
            .map_or_else(Came::Signal, |()| Came::Done),
        Op::Brk(to) => Came::Word(mm.brk(Some(VirtAddr(at(HEAP).0 + to))).0 - at(HEAP).0),
        Op::Limit(pages) => {
            mm.set_limit_as(pages * PAGE);
            Came::Done
        }
        Op::Promise(pages) => {
            let sys = mm.system();
            sys.set_overcommit_ratio(0);
            sys.set_swap_pages(pages.unwrap_or(0));
            sys.set_overcommit(pages.map_or(Overcommit::Always, |_| Overcommit::Never));
            Came::Done
        }
    }
}

fn agree(ops: &[Op]) {
    for era in eras_without_migration() {
        let sys = boot(era.config, 1, 4 << 20);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let heap = VirtAddr(BASE + HEAP * PAGE);
        mm.set_start_brk(heap).expect("unused");
        let thread = mm.thread();
        let mut model = Model::new();
        for (step, op) in ops.iter().enumerate() {
            // What part of a range is protected before its promise is refused depends on where one
            // mapping ends and the next begins, which the model does not know.
            if let Op::Protect(a, n, Prot::READ_WRITE) = *op
                && !model.can_promise(model.protect_promises(a..a + n))
            {
                continue;
            }
            let expected = on_model(&mut model, *op);
            assert_eq!(
                on_mm(&thread, *op),
                expected,
                "{}: step {step}: {op:?}",
                era.name
            );
        }
        let mut mapped = BTreeMap::new();
        mm.for_each_mapping(|range, prot| {
            for page in 0..range.len() / PAGE {
                mapped.insert((range.start().0 - BASE) / PAGE + page, prot);
            }
        });
        let expected: BTreeMap<_, _> = model
            .pages
            .iter()
            .map(|(at, page)| (*at, page.prot))
            .collect();
        assert_eq!(mapped, expected, "{}", era.name);
        assert_eq!(mm.mapped_bytes(), expected.len() as u64 * PAGE);
        assert_eq!(sys.committed_pages(), model.promised(0..u64::MAX));
        drop(thread);
        sys.check_ledger(&[&mm])
            .unwrap_or_else(|error| panic!("{}: {error}", era.name));
    }
}

proptest! {
    #![proptest_config(Config { cases: 1024, failure_persistence: None, ..Config::default() })]

    #[test]
    fn every_era_means_what_the_model_means(ops in proptest::collection::vec(op(), 1..120)) {
        agree(&ops);
    }
}

#[test]
fn the_model_is_no_echo() {
    // A store to a read-only page must be seen to fail.
    let mut model = Model::new();
    on_model(&mut model, Op::MapIfFree(0, 1, Prot::READ));
    assert_eq!(
        on_model(&mut model, Op::Store(0, 1)),
        Came::Signal(Signal::AccErr)
    );
    assert_eq!(on_model(&mut model, Op::Load(0)), Came::Word(0));
}

/// What an embedder passes on with `?` and prints.
#[test]
fn an_error_of_a_call_says_what_its_documentation_says() {
    let all: [(Box<dyn core::error::Error>, &str); 4] = [
        (
            Box::new(minflt_mm::MmapError::NoMemory),
            "No hole of that length, or no memory for the VMA",
        ),
        (
            Box::new(minflt_mm::MunmapError::NoMemory),
            "No memory to split a VMA",
        ),
        (
            Box::new(minflt_mm::FileError::ReadOnly),
            "The handle is for loads only",
        ),
        (Box::new(minflt_mm::NoMemory), "no memory"),
    ];
    for (error, text) in all {
        assert_eq!(error.to_string(), text);
    }
}
