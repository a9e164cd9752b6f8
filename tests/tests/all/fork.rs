//! fork: random families of address spaces against a model that copies everything at once.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Done, Event, FaultKind, FaultOutcome, Mm, MmHandle, NegativeControl, Overcommit, Place,
    Prot, Signal, Swap, Unbalanced, era, eras_without_migration,
};
use minflt_pgtable::Access;
use minflt_tests::world::{Machine, PAGE, boot, boot_on, machine};
use proptest::prelude::{Strategy, prop_oneof, proptest};
use std::collections::BTreeMap;

const PAGES: u64 = 12;
/// Two tables meet in the middle of the window.
const BASE: u64 = (1 << 30) - PAGES / 2 * PAGE;
const FAMILY: usize = 5;

fn page(n: u64) -> VirtAddr {
    VirtAddr(BASE + n * PAGE)
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Map(u64, u64),
    Unmap(u64, u64),
    Protect(u64, u64, Prot),
    Discard(u64, u64),
    PageOut(u64, u64),
    Load(u64),
    Store(u64, u64),
    Fork,
    Exit,
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let (from, len) = (|| 0..PAGES, || 1..6u64);
    let prot = prop_oneof![
        proptest::strategy::Just(Prot::NONE),
        proptest::strategy::Just(Prot::READ),
        proptest::strategy::Just(Prot::READ_WRITE),
        proptest::strategy::Just(Prot::READ_WRITE),
    ];
    let op = prop_oneof![
        2 => (from(), len()).prop_map(|(a, n)| Op::Map(a, n)),
        1 => (from(), len()).prop_map(|(a, n)| Op::Unmap(a, n)),
        2 => (from(), len(), prot).prop_map(|(a, n, p)| Op::Protect(a, n, p)),
        1 => (from(), len()).prop_map(|(a, n)| Op::Discard(a, n)),
        2 => (from(), len()).prop_map(|(a, n)| Op::PageOut(a, n)),
        5 => from().prop_map(Op::Load),
        8 => (from(), 1..1000u64).prop_map(|(a, v)| Op::Store(a, v)),
        3 => proptest::strategy::Just(Op::Fork),
        2 => proptest::strategy::Just(Op::Exit),
    ];
    (0..FAMILY, op)
}

/// For each mapped page its protection and its word.
type Model = BTreeMap<u64, (Prot, u64)>;

fn calls(mm: &Mm<Machine>, model: &mut Model, op: Op) {
    match op {
        Op::Map(a, n) => {
            let mapped = mm.mmap(Place::Fixed(page(a)), n * PAGE, Prot::READ_WRITE);
            assert_eq!(mapped, Ok(page(a)));
            model.extend((a..a + n).map(|page| (page, (Prot::READ_WRITE, 0))));
        }
        Op::Unmap(a, n) => {
            assert_eq!(mm.munmap(page(a), n * PAGE), Ok(()));
            model.retain(|page, _| !(a..a + n).contains(page));
        }
        Op::Protect(a, n, prot) => {
            let whole = (a..a + n).take_while(|page| model.contains_key(page));
            let whole = whole.count() as u64;
            let done = mm.mprotect(page(a), n * PAGE, prot);
            assert_eq!(done.is_ok(), whole == n);
            model.range_mut(a..a + whole).for_each(|(_, e)| e.0 = prot);
        }
        Op::Discard(a, n) => {
            let _some = mm.madvise(page(a), n * PAGE, Advice::DontNeed);
            model.range_mut(a..a + n).for_each(|(_, entry)| entry.1 = 0);
        }
        Op::PageOut(a, n) => {
            let _some = mm.madvise(page(a), n * PAGE, Advice::PageOut);
        }
        Op::Load(a) => {
            let expected = match model.get(&a) {
                None => Err(Signal::MapErr),
                Some((Prot::NONE, _)) => Err(Signal::AccErr),
                Some((_, word)) => Ok(*word),
            };
            assert_eq!(mm.thread().load(page(a)), expected, "page {a}");
        }
        Op::Store(a, value) => {
            let expected = match model.get_mut(&a) {
                None => Err(Signal::MapErr),
                Some((Prot::READ_WRITE, word)) => {
                    *word = value;
                    Ok(())
                }
                Some(_) => Err(Signal::AccErr),
            };
            assert_eq!(mm.thread().store(page(a), value), expected, "page {a}");
        }
        Op::Fork | Op::Exit => {}
    }
}

fn agree(ops: &[(usize, Op)]) {
    for era in eras_without_migration() {
        let sys = boot_on::<Machine>(machine(1, 8 << 20), era.config, Swap::Memory { pages: 40 });
        let _cpu = sys.machine().enter(0);
        let mut family: [Option<(MmHandle<'_, Machine>, Model)>; FAMILY] = Default::default();
        family[0] = Some((sys.new_mm().expect("memory"), Model::new()));
        for (who, op) in ops {
            let free = family.iter().position(Option::is_none);
            match (*op, &mut family[*who], free) {
                (Op::Fork, Some((mm, model)), Some(free)) => {
                    let child = mm.fork().expect("memory");
                    let copy = model.clone();
                    family[free] = Some((child, copy));
                }
                (Op::Exit, _, _) => family[*who] = None,
                (op, Some((mm, model)), _) => calls(mm, model, op),
                (_, None, _) => {}
            }
        }
        for (mm, model) in family.iter_mut().flatten() {
            for a in 0..PAGES {
                calls(mm, model, Op::Load(a));
            }
        }
        let alive: Vec<&Mm<Machine>> = family.iter().flatten().map(|(mm, _)| &**mm).collect();
        sys.check_ledger(&alive)
            .unwrap_or_else(|error| panic!("{}: {error}", era.name));
        drop(alive);
        drop(family);
        sys.check_ledger(&[])
            .unwrap_or_else(|error| panic!("{}: {error}", era.name));
    }
}

proptest! {
    #![proptest_config(proptest::test_runner::Config {
        cases: 512,
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    })]

    #[test]
    fn a_family_holds_what_a_copy_of_everything_would(
        ops in proptest::collection::vec(op(), 1..160),
    ) {
        agree(&ops);
    }
}

/// A store of the parent or the child copies once; whoever is left alone copies nothing.
#[test]
fn a_store_copies_what_is_shared_and_takes_what_is_not() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 1, 8 << 20);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let at = mm.mmap(Place::Any, 4 * PAGE, Prot::READ_WRITE);
        let at = at.expect("a hole");
        let thread = mm.thread();
        for n in 0..4 {
            assert_eq!(thread.store(VirtAddr(at.0 + n * PAGE), 10 + n), Ok(()));
        }
        drop(thread);
        let child = mm.fork().expect("memory");
        assert_eq!(sys.count_of(Event::ForkEntries), 4, "{}", era.name);
        let ledger = sys.check_ledger(&[&mm, &child]).expect("adds up");
        assert_eq!(ledger.anon, 4, "shared, not copied");
        let store =
            |mm: &Mm<Machine>, n: u64| mm.thread().fault(VirtAddr(at.0 + n * PAGE), Access::Write);
        let kind = |outcome| match outcome {
            FaultOutcome::Done(Done { kind, .. }) => Some(kind),
            _ => None,
        };
        assert_eq!(kind(store(&child, 0)), Some(FaultKind::Cow));
        assert_eq!(kind(store(&mm, 0)), Some(FaultKind::Reuse), "left alone");
        assert_eq!(kind(store(&mm, 1)), Some(FaultKind::Cow));
        assert_eq!(kind(store(&child, 1)), Some(FaultKind::Reuse));
        let ledger = sys.check_ledger(&[&mm, &child]).expect("adds up");
        assert_eq!(ledger.anon, 6);
        drop(child);
        assert_eq!(kind(store(&mm, 2)), Some(FaultKind::Reuse));
        assert_eq!(sys.count_of(Event::Cow), 2);
        for n in 0..4 {
            assert_eq!(mm.thread().load(VirtAddr(at.0 + n * PAGE)), Ok(10 + n));
        }
    }
}

/// Processes that share an address space, as after vfork, see each other's stores; the last one to
/// go takes it down.
#[test]
fn a_shared_address_space_is_one() {
    let sys = boot(era("linux-4.13").expect("an era").config, 1, 4 << 20);
    let _cpu = sys.machine().enter(0);
    let parent = sys.new_mm().expect("memory");
    let at = parent.mmap(Place::Any, PAGE, Prot::READ_WRITE);
    let at = at.expect("a hole");
    let child = parent.share();
    assert_eq!(child.space(), parent.space());
    assert_eq!(child.thread().store(at, 5), Ok(()));
    drop(parent);
    assert_eq!(child.thread().load(at), Ok(5));
    assert!(sys.check_ledger(&[&child]).is_ok());
    drop(child);
    let ledger = sys.check_ledger(&[]).expect("adds up");
    assert_eq!((ledger.anon, ledger.tables), (0, 0));
}

/// A thread ends while others go on: its share of the count is in, nobody waits for it.
#[test]
fn one_of_many_threads_ends() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 3, 8 << 20);
        let mm = {
            let _cpu = sys.machine().enter(0);
            sys.new_mm().expect("memory")
        };
        let at = {
            let _cpu = sys.machine().enter(0);
            mm.mmap(Place::Any, 192 * PAGE, Prot::READ_WRITE)
                .expect("a hole")
        };
        std::thread::scope(|scope| {
            for cpu in 0..3 {
                let (sys, mm) = (&sys, &mm);
                scope.spawn(move || {
                    let _cpu = sys.machine().enter(cpu);
                    let thread = mm.thread();
                    let first = u64::from(cpu) * 64;
                    // One ends early, one late.
                    for n in first..first + 1 + u64::from(cpu) * 30 {
                        assert_eq!(thread.store(VirtAddr(at.0 + n * PAGE), 1), Ok(()));
                    }
                });
            }
        });
        let _cpu = sys.machine().enter(0);
        assert_eq!(mm.resident_pages_sum(), 1 + 31 + 61, "{}", era.name);
        mm.munmap(at, 192 * PAGE).expect("mapped");
        assert_eq!(mm.resident_pages_sum(), 0, "{}", era.name);
        drop(mm);
        sys.check_ledger(&[])
            .unwrap_or_else(|error| panic!("{}: {error}", era.name));
    }
}

/// fork fails for lack of memory at whatever step, and leaves everything as it was.
#[test]
fn fork_without_memory_leaves_nothing_behind() {
    for era in eras_without_migration() {
        let mut failed = 0;
        for filled in (100..256).step_by(3) {
            let sys = boot(era.config, 1, 1 << 20);
            sys.set_overcommit(Overcommit::Always);
            let _cpu = sys.machine().enter(0);
            let mm = sys.new_mm().expect("memory");
            let thread = mm.thread();
            mm.mmap(Place::Fixed(page(0)), PAGES * PAGE, Prot::READ_WRITE)
                .expect("the window");
            for n in 0..PAGES {
                assert_eq!(thread.store(page(n), n + 1), Ok(()));
            }
            let rest = mm.mmap(Place::Any, 256 * PAGE, Prot::READ_WRITE);
            let rest = rest.expect("a hole");
            for n in 0..filled {
                if thread.store(VirtAddr(rest.0 + n * PAGE), 1).is_err() {
                    break;
                }
            }
            let child = mm.fork();
            failed += u32::from(child.is_err());
            for n in 0..PAGES {
                assert_eq!(thread.load(page(n)), Ok(n + 1), "{}", era.name);
            }
            drop(child);
            drop(thread);
            sys.check_ledger(&[&mm])
                .unwrap_or_else(|error| panic!("{}: {error}", era.name));
        }
        assert!(failed > 3, "{}: memory was never short", era.name);
    }
}

#[test]
fn the_ledger_sees_objects_that_nobody_reaches() {
    let config = era("linux-4.13").expect("an era").config;
    let sys = boot(
        config.with_negative_control(Some(NegativeControl::ChainsStay)),
        1,
        4 << 20,
    );
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let at = mm.mmap(Place::Any, PAGE, Prot::READ_WRITE).expect("a hole");
    assert_eq!(mm.thread().store(at, 1), Ok(()));
    assert!(sys.check_ledger(&[&mm]).is_ok());
    mm.munmap(at, PAGE).expect("mapped");
    let leaked = Unbalanced::Objects {
        what: "anon_vma_chain",
        live: 1,
        reachable: 0,
    };
    assert_eq!(sys.check_ledger(&[&mm]), Err(leaked));
}

/// Each of a chain of processes is linked to the anon_vmas of all before it. Checking takes a few
/// steps for each of these links, not for each two of a tree.
#[test]
fn the_ledger_of_a_chain_of_a_thousand_forks_takes_a_few_steps_a_link() {
    const FORKS: u64 = 1000;
    let config = era("linux-6.15").expect("an era").config;
    let sys = boot(config, 1, 160 << 20);
    sys.set_overcommit(Overcommit::Always);
    let _cpu = sys.machine().enter(0);
    let mut all = vec![sys.new_mm().expect("memory")];
    all[0]
        .mmap(Place::Fixed(page(0)), 2 * PAGE, Prot::READ_WRITE)
        .expect("the window");
    assert_eq!(all[0].thread().store(page(0), 7), Ok(()));
    for n in 0..FORKS {
        let last = all.last().expect("the first");
        // A page that all share, and one of its own.
        assert_eq!(last.thread().store(page(1), n), Ok(()));
        let child = last.fork().expect("memory");
        all.push(child);
    }
    let alive: Vec<&Mm<Machine>> = all.iter().map(|mm| &**mm).collect();
    let found = sys.check_ledger(&alive).expect("adds up");
    let links = (FORKS + 1) * (FORKS + 2) / 2;
    assert!(found.link_steps >= links, "{} steps", found.link_steps);
    assert!(found.link_steps <= 4 * links, "{} steps", found.link_steps);
    drop(all);
    let left = sys.check_ledger(&[]).expect("nothing is left");
    assert_eq!((left.anon, left.tables), (0, 0));
}

#[test]
fn the_ledger_sees_a_page_that_is_shared_and_writable() {
    let config = era("linux-4.13").expect("an era").config;
    let sys = boot(
        config.with_negative_control(Some(NegativeControl::ForkLeavesWritable)),
        1,
        4 << 20,
    );
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let at = mm.mmap(Place::Any, PAGE, Prot::READ_WRITE).expect("a hole");
    assert_eq!(mm.thread().store(at, 1), Ok(()));
    let child = mm.fork().expect("memory");
    let unbalanced = sys.check_ledger(&[&mm, &child]);
    assert_eq!(unbalanced, Err(Unbalanced::WritableShared(at)));
}
