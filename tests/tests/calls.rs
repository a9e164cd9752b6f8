//! Random sequences of calls and accesses against a model of pages, in every era, with shrinking.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_addr::VirtAddr;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{Advice, ERAS, Place, Prot, Signal, System};
use minflt_pgtable::X86_64;
use proptest::prelude::{Strategy, prop_oneof, proptest};
use proptest::test_runner::Config;
use std::collections::BTreeMap;

type Machine = Host<X86_64, true>;

const PAGES: u64 = 24;
const PAGE: u64 = 4096;
/// Two tables meet in the middle of the window.
const BASE: u64 = (1 << 30) - PAGES / 2 * PAGE;

#[derive(Clone, Copy, Debug)]
enum Op {
    Map(u64, u64, Prot),
    MapIfFree(u64, u64, Prot),
    Unmap(u64, u64),
    Protect(u64, u64, Prot),
    Discard(u64, u64),
    Load(u64),
    Store(u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let prot = || {
        prop_oneof![
            proptest::strategy::Just(Prot::None),
            proptest::strategy::Just(Prot::Read),
            proptest::strategy::Just(Prot::ReadWrite),
        ]
    };
    let from = || 0..PAGES;
    let len = || 1..8u64;
    prop_oneof![
        (from(), len(), prot()).prop_map(|(a, n, p)| Op::Map(a, n, p)),
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

/// What the window holds: for each mapped page its protection and its word.
type Model = BTreeMap<u64, (Prot, u64)>;

/// What a call or access comes to, in the words of both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    Done,
    Failed,
    Word(u64),
    Signal(Signal),
}

fn on_model(model: &mut Model, op: Op) -> Came {
    let whole = |model: &Model, a: u64, n: u64| (a..a + n).all(|page| model.contains_key(&page));
    match op {
        Op::Map(a, n, prot) => {
            (a..a + n).for_each(|page| {
                model.insert(page, (prot, 0));
            });
            Came::Done
        }
        Op::MapIfFree(a, n, prot) => {
            if model.range(a..a + n).next().is_some() {
                return Came::Failed;
            }
            on_model(model, Op::Map(a, n, prot))
        }
        Op::Unmap(a, n) => {
            model.retain(|page, _| !(a..a + n).contains(page));
            Came::Done
        }
        Op::Protect(a, n, prot) => {
            let all = whole(model, a, n);
            // What lies before a hole is changed all the same.
            for page in (a..a + n)
                .take_while(|page| model.contains_key(page))
                .collect::<Vec<_>>()
            {
                model.entry(page).and_modify(|entry| entry.0 = prot);
            }
            if all { Came::Done } else { Came::Failed }
        }
        Op::Discard(a, n) => {
            let all = whole(model, a, n);
            model.range_mut(a..a + n).for_each(|(_, entry)| entry.1 = 0);
            if all { Came::Done } else { Came::Failed }
        }
        Op::Load(a) => match model.get(&a) {
            None => Came::Signal(Signal::MapErr),
            Some((Prot::None, _)) => Came::Signal(Signal::AccErr),
            Some((_, word)) => Came::Word(*word),
        },
        Op::Store(a, value) => match model.get_mut(&a) {
            None => Came::Signal(Signal::MapErr),
            Some((Prot::ReadWrite, word)) => {
                *word = value;
                Came::Done
            }
            Some(_) => Came::Signal(Signal::AccErr),
        },
    }
}

fn on_mm(thread: &minflt_mm::Thread<'_, Machine>, op: Op) -> Came {
    let at = |page: u64| VirtAddr(BASE + page * PAGE);
    let done = |ok: bool| if ok { Came::Done } else { Came::Failed };
    let mm = thread.mm();
    match op {
        Op::Map(a, n, prot) => done(mm.mmap(Place::Fixed(at(a)), n * PAGE, prot) == Ok(at(a))),
        Op::MapIfFree(a, n, prot) => {
            done(mm.mmap(Place::FixedNoReplace(at(a)), n * PAGE, prot) == Ok(at(a)))
        }
        Op::Unmap(a, n) => done(mm.munmap(at(a), n * PAGE).is_ok()),
        Op::Protect(a, n, prot) => done(mm.mprotect(at(a), n * PAGE, prot).is_ok()),
        Op::Discard(a, n) => done(mm.madvise(at(a), n * PAGE, Advice::DontNeed).is_ok()),
        Op::Load(a) => thread.load(at(a)).map_or_else(Came::Signal, Came::Word),
        Op::Store(a, value) => thread
            .store(at(a), value)
            .map_or_else(Came::Signal, |()| Came::Done),
    }
}

fn agree(ops: &[Op]) {
    for era in ERAS {
        let options = HostOptions {
            cpus: 1,
            ram_bytes: 4 << 20,
            prefault: Prefault::OnTouch,
        };
        let machine = HostInstance::new(&options).expect("memory");
        let sys = System::<Machine>::boot(machine, era.config).expect("boots");
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let thread = mm.thread();
        let mut model = Model::new();
        for (step, op) in ops.iter().enumerate() {
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
            .iter()
            .map(|(page, (prot, _))| (*page, *prot))
            .collect();
        assert_eq!(mapped, expected, "{}", era.name);
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
    on_model(&mut model, Op::Map(0, 1, Prot::Read));
    assert_eq!(
        on_model(&mut model, Op::Store(0, 1)),
        Came::Signal(Signal::AccErr)
    );
    assert_eq!(on_model(&mut model, Op::Load(0)), Came::Word(0));
}
