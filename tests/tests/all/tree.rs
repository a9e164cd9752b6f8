//! The tree of mappings against an ordinary map: lookups, the next one, holes; deep enough that
//! nodes split, fill and merge on more than one level.

use minflt_addr::VirtAddr;
use minflt_mm::{ERAS, Mm, MmapError, Place, Prot, eras_without_migration};
use minflt_tests::world::{Machine, PAGE, boot};
use proptest::prelude::{Strategy, prop_oneof, proptest};
use proptest::test_runner::Config;
use std::collections::BTreeMap;

/// Pages of the window that the calls name. Three gigabytes in: no table's border.
const FIRST: u64 = 0xc0000;
const PAGES: u64 = 4096;

/// Every mapped page, and what may be done there.
type Model = BTreeMap<u64, Prot>;

#[derive(Clone, Copy, Debug)]
enum Op {
    Map(u64, u64, Prot),
    Unmap(u64, u64),
    Protect(u64, u64, Prot),
    /// Wherever so many pages fit.
    Anywhere(u64),
    /// Every second page of the window, from one page on, in a scattered order.
    Scatter(u64, u64),
    /// Takes every `n`th mapped page out.
    Thin(u64),
    /// Maps pages of a narrow window, or unmaps them where they are mapped, in no order.
    Churn(u64, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let prot = || {
        prop_oneof![
            proptest::strategy::Just(Prot::NONE),
            proptest::strategy::Just(Prot::READ),
            proptest::strategy::Just(Prot::READ_WRITE),
        ]
    };
    let from = || 0..PAGES - 64;
    prop_oneof![
        8 => (from(), 1..40u64, prot()).prop_map(|(a, n, p)| Op::Map(a, n, p)),
        8 => (from(), 1..64u64).prop_map(|(a, n)| Op::Unmap(a, n)),
        4 => (from(), 1..8u64, prot()).prop_map(|(a, n, p)| Op::Protect(a, n, p)),
        4 => (1..50u64).prop_map(Op::Anywhere),
        2 => (from(), 1..500u64).prop_map(|(a, n)| Op::Scatter(a, n)),
        1 => (1..5u64).prop_map(Op::Thin),
        4 => (from(), 0..u64::MAX).prop_map(|(a, seed)| Op::Churn(a, seed)),
    ]
}

fn page_at(page: u64) -> VirtAddr {
    VirtAddr((FIRST + page) * PAGE)
}

/// The highest hole of `len` pages: where it starts.
fn highest_hole(model: &Model, len: u64) -> Option<u64> {
    let user = Mm::<Machine>::user_range();
    let mut end = user.end().0 / PAGE;
    for page in model.keys().rev() {
        if end - (page + 1) >= len {
            return Some(end - len);
        }
        end = *page;
    }
    (end - user.start().0 / PAGE >= len).then(|| end - len)
}

fn both(mm: &Mm<Machine>, model: &mut Model, op: Op) {
    match op {
        Op::Map(a, n, prot) => {
            let mapped = mm.mmap(Place::Fixed(page_at(a)), n * PAGE, prot);
            mapped.expect("memory");
            model.extend((FIRST + a..FIRST + a + n).map(|page| (page, prot)));
        }
        Op::Unmap(a, n) => {
            mm.munmap(page_at(a), n * PAGE).expect("memory");
            model.retain(|page, _| !(FIRST + a..FIRST + a + n).contains(page));
        }
        Op::Protect(a, n, prot) => {
            let whole = (FIRST + a..FIRST + a + n).take_while(|page| model.contains_key(page));
            let whole: Vec<u64> = whole.collect();
            let all = whole.len() as u64 == n;
            assert_eq!(mm.mprotect(page_at(a), n * PAGE, prot).is_ok(), all);
            model.extend(whole.into_iter().map(|page| (page, prot)));
        }
        Op::Anywhere(n) => {
            let at = mm.mmap(Place::Any, n * PAGE, Prot::READ).expect("a hole");
            let hole = highest_hole(model, n).expect("a hole");
            assert_eq!(at.0 / PAGE, hole, "{n} pages fit higher up, or do not fit");
            model.extend((hole..hole + n).map(|page| (page, Prot::READ)));
        }
        Op::Scatter(a, n) => {
            for step in 0..n {
                // 509 is prime: every place below it once.
                let page = (a + step * 211 % 509 * 2) % PAGES;
                let place = Place::FixedNoReplace(page_at(page));
                let mapped = mm.mmap(place, PAGE, Prot::READ_WRITE);
                let free = !model.contains_key(&(FIRST + page));
                assert_eq!(mapped.is_ok(), free, "page {page}");
                model.entry(FIRST + page).or_insert(Prot::READ_WRITE);
            }
        }
        Op::Churn(a, seed) => {
            let mut state = seed | 1;
            for _ in 0..96 {
                // Knuth's generator (MMIX), of which the upper bits are the better ones.
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let page = (a + (state >> 33) % 256) % PAGES;
                if model.contains_key(&(FIRST + page)) {
                    both(mm, model, Op::Unmap(page, 1));
                } else {
                    // Neighbours do not become one.
                    let prot = [Prot::READ, Prot::READ_WRITE][page as usize % 2];
                    both(mm, model, Op::Map(page, 1, prot));
                }
            }
        }
        Op::Thin(n) => {
            let out: Vec<u64> = model.keys().copied().step_by(n as usize).collect();
            for page in out {
                mm.munmap(VirtAddr(page * PAGE), PAGE).expect("memory");
                model.remove(&page);
            }
        }
    }
}

/// Whether the address space holds what the model holds, asked in every way.
fn agree(mm: &Mm<Machine>, model: &Model) -> Result<(), String> {
    let mut mapped = Model::new();
    mm.for_each_mapping(|range, prot| {
        let pages = range.start().0 / PAGE..range.end().0 / PAGE;
        mapped.extend(pages.map(|page| (page, prot)));
    });
    if mapped != *model {
        return Err(format!("{} pages instead of {}", mapped.len(), model.len()));
    }
    let held = mm.mappings();
    let edges = model.keys().flat_map(|page| [page - 1, *page, page + 1]);
    for page in edges.chain([0, FIRST, 1 << 34, u64::MAX / PAGE]) {
        let expected = model.get(&page).copied();
        let addr = VirtAddr((page * PAGE).saturating_add(page % PAGE));
        let by_word = held.at(addr).map(|it| it.prot);
        let by_vma = held.vma_at(addr).map(|it| it.prot);
        if (by_word, by_vma) != (expected, expected) {
            return Err(format!("{addr}: {by_word:?}, {by_vma:?}, not {expected:?}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: 128, failure_persistence: None, ..Config::default() })]

    #[test]
    fn the_tree_holds_what_a_map_holds(ops in proptest::collection::vec(op(), 1..60)) {
        for era in eras_without_migration() {
            let sys = boot(era.config, 1, 16 << 20);
            let _cpu = sys.machine().enter(0);
            let mm = sys.new_mm().expect("memory");
            let mut model = Model::new();
            for (step, op) in ops.iter().enumerate() {
                both(&mm, &mut model, *op);
                if step % 8 == 0 || step + 1 == ops.len() {
                    agree(&mm, &model).unwrap_or_else(|error| panic!("{}: {error}", era.name));
                }
            }
            sys.check_ledger(&[&mm]).unwrap_or_else(|error| panic!("{}: {error}", era.name));
        }
    }
}

/// What cannot be had changes nothing, wherever in a change the memory ends.
#[test]
fn a_tree_that_finds_no_memory_is_as_before() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 1, 4 << 20);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().expect("memory");
        let mut model = Model::new();
        let mut refused = 0;
        // From above and from below by turns, so that different nodes are full.
        for step in 0u64.. {
            let half = step / 2 * 2;
            let page = if step % 2 == 0 {
                half
            } else {
                (1 << 20) - half
            };
            match mm.mmap(Place::FixedNoReplace(page_at(page)), PAGE, Prot::READ) {
                Ok(_) => {
                    model.insert(FIRST + page, Prot::READ);
                }
                Err(error) => {
                    assert_eq!(error, MmapError::NoMemory, "{}", era.name);
                    agree(&mm, &model).unwrap_or_else(|error| panic!("{}: {error}", era.name));
                    refused += 1;
                }
            }
            if refused == 8 {
                break;
            }
        }
        assert!(model.len() > 1000, "{}: {} fit", era.name, model.len());
        drop(mm);
        sys.check_ledger(&[])
            .unwrap_or_else(|error| panic!("{}: {error}", era.name));
    }
}

/// A full leaf shares with a neighbour before it splits: split halves alone are 0.757 full here.
#[test]
fn leaves_that_fill_in_no_order_are_four_fifths_full() {
    let sys = boot(ERAS[0].config, 1, 16 << 20);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    sys.set_max_map_count(1 << 20);
    const MAPPINGS: u64 = 10_007;
    for step in 0..MAPPINGS {
        // A prime number of places: each once.
        let place = Place::FixedNoReplace(page_at(step * 6_007 % MAPPINGS * 2));
        mm.mmap(place, PAGE, Prot::READ).expect("memory");
    }
    let full = MAPPINGS as f64 / (18 * mm.mapping_leaves()) as f64;
    assert!(full > 0.8, "{full:.3} of the leaves");
}

/// What is below an inner node may come to start before its first key did when that was made. Two
/// leaves that share what they have, most of it before that, get a border that is before it, too.
#[test]
fn leaves_share_what_lies_before_the_first_key_of_their_parent() {
    let sys = boot(ERAS[0].config, 1, 16 << 20);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let mut model = Model::new();
    let map = |page| Op::Map(page, 1, Prot::READ);
    // Two leaves, in order: of 15, most of which go again, and the rest.
    for at in 0..20 {
        both(&mm, &mut model, map(2000 + 2 * at));
    }
    both(&mm, &mut model, Op::Unmap(2010, 20));
    // Before them, first the lowest, then every place between.
    for step in 0..32 {
        both(&mm, &mut model, map(1000 + step * 23 % 32 * 2));
        assert_eq!(agree(&mm, &model), Ok(()), "step {step}");
    }
    sys.check_ledger(&[&mm]).expect("balanced");
}

/// A mapping grows down over what was the first key of the node above, and is found all over.
#[test]
fn a_mapping_grows_down_past_the_first_key_of_its_parent() {
    let sys = boot(ERAS[0].config, 1, 16 << 20);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let mut model = Model::new();
    for at in 0..20 {
        both(&mm, &mut model, Op::Map(2000 + 2 * at, 1, Prot::READ));
    }
    // What is left of the first leaf ends below where it began.
    both(&mm, &mut model, Op::Unmap(2010, 20));
    for at in 0..5 {
        both(&mm, &mut model, Op::Map(1000 + 2 * at, 1, Prot::READ));
    }
    both(&mm, &mut model, Op::Unmap(2000, 10));
    // One with the first mapping of the second leaf.
    both(&mm, &mut model, Op::Map(1500, 530, Prot::READ));
    assert_eq!(agree(&mm, &model), Ok(()));
    both(&mm, &mut model, Op::Unmap(1600, 7));
    assert_eq!(agree(&mm, &model), Ok(()));
    sys.check_ledger(&[&mm]).expect("balanced");
}

/// The comparison sees a page too many, one too few, and another protection.
#[test]
fn the_comparison_is_no_echo() {
    let sys = boot(ERAS[0].config, 1, 4 << 20);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    let mut model = Model::new();
    both(&mm, &mut model, Op::Scatter(0, 100));
    assert_eq!(agree(&mm, &model), Ok(()));
    let page = *model.keys().nth(50).expect("100 pages");
    for other in [Some(Prot::NONE), None] {
        let mut wrong = model.clone();
        wrong.remove(&page);
        wrong.extend(other.map(|prot| (page, prot)));
        assert_ne!(agree(&mm, &wrong), Ok(()), "{other:?}");
    }
    model.insert(page + 1, Prot::READ);
    assert_ne!(agree(&mm, &model), Ok(()));
    assert_eq!(highest_hole(&Model::new(), 1), Some((1 << 35) - 2));
}
