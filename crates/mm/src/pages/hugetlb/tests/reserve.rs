use super::{X86, boot, std};
use crate::base::error::NoMemory;
use crate::memory::alloc::Refuse;
use crate::pages::reserved::reserve::Reservations;
use crate::system::System;
use minflt_pgtable::X86_64;
use proptest::prelude::{Strategy, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeSet;
use std::vec::Vec;

/// Pages that the steps are about.
const PAGES: u64 = 24;

/// A step, of a map and of its model.
#[derive(Clone, Debug)]
enum Step {
    Add(u64, u64),
    /// Prepares to add; another step comes first.
    AddAround(u64, u64, Other),
    Abort(u64, u64),
    Remove(u64, u64),
    Truncate(u64),
}

#[derive(Clone, Debug)]
enum Other {
    Add(u64, u64),
    Remove(u64, u64),
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..PAGES, 0..8_u64).prop_map(|(from, len)| (from, from + len))
}

fn step() -> impl Strategy<Value = Step> {
    let other = || {
        prop_oneof![
            range().prop_map(|(from, to)| Other::Add(from, to)),
            range().prop_map(|(from, to)| Other::Remove(from, to)),
        ]
    };
    prop_oneof![
        4 => range().prop_map(|(from, to)| Step::Add(from, to)),
        3 => (range(), other()).prop_map(|((from, to), other)| Step::AddAround(from, to, other)),
        1 => range().prop_map(|(from, to)| Step::Abort(from, to)),
        4 => range().prop_map(|(from, to)| Step::Remove(from, to)),
        1 => (0..PAGES).prop_map(Step::Truncate),
    ]
}

/// A map beside its model.
struct Both<'s> {
    sys: &'s System<X86>,
    map: Reservations<X86>,
    model: BTreeSet<u64>,
}

impl Both<'_> {
    fn missing(&self, from: u64, to: u64) -> u64 {
        (from..to).filter(|page| !self.model.contains(page)).count() as u64
    }

    fn model_add(&mut self, from: u64, to: u64) -> u64 {
        let added = self.missing(from, to);
        self.model.extend(from..to);
        added
    }

    fn add(&mut self, from: u64, to: u64) {
        let change = self.map.change(self.sys, from, to).expect("memory");
        assert_eq!(change.missing(), {
            let model = &self.model;
            (from..to).filter(|page| !model.contains(page)).count() as u64
        });
        let added = change.add();
        assert_eq!(added, self.model_add(from, to));
    }

    fn remove(&mut self, from: u64, to: u64) {
        let removed = self.map.remove(self.sys, from, to).expect("memory");
        let before = self.model.len();
        self.model.retain(|page| !(from..to).contains(page));
        assert_eq!(removed, (before - self.model.len()) as u64);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Add(from, to) => self.add(from, to),
            Step::Remove(from, to) => self.remove(from, to),
            Step::Abort(from, to) => drop(self.map.change(self.sys, from, to)),
            Step::Truncate(from) => {
                let removed = self.map.truncate(self.sys, from);
                assert_eq!(removed, self.model.split_off(&from).len() as u64);
            }
            Step::AddAround(from, to, ref other) => {
                // The map is lent to the change.
                let map = core::mem::replace(&mut self.map, Reservations::new());
                let change = map.change(self.sys, from, to).expect("memory");
                assert_eq!(change.missing(), self.missing(from, to));
                match *other {
                    Other::Add(from, to) => {
                        let added = map.change(self.sys, from, to).expect("memory").add();
                        assert_eq!(added, self.model_add(from, to));
                    }
                    Other::Remove(from, to) => {
                        map.remove(self.sys, from, to).expect("memory");
                        self.model.retain(|page| !(from..to).contains(page));
                    }
                }
                assert_eq!(change.add(), self.model_add(from, to));
                self.map = map;
            }
        }
    }

    /// Whether map and model are the same, and the map is as it should be.
    fn agree(&self) {
        let end = PAGES + 16;
        for page in 0..end {
            assert_eq!(
                (self.map.count(page, page + 1) == 1),
                self.model.contains(&page),
                "{page}"
            );
        }
        let starts = |page: &&u64| **page == 0 || !self.model.contains(&(**page - 1));
        let regions = self.model.iter().filter(starts).count() as u64;
        assert_eq!(self.map.validate().map(|found| found.0), Ok(regions));
        assert_eq!(self.sys.huge.regions.live(), regions);
        assert_eq!(self.map.count(0, u64::MAX), self.model.len() as u64);
    }
}

#[test]
fn a_map_is_a_set_of_pages() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let steps = proptest::collection::vec(step(), 1..40);
    let config = Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    };
    let ran = TestRunner::new(config).run(&steps, |steps| {
        let mut both = Both {
            sys: &sys,
            map: Reservations::new(),
            model: BTreeSet::new(),
        };
        for step in &steps {
            both.step(step);
            both.agree();
        }
        let left = both.map.remove_all(&sys);
        assert_eq!(left, both.model.len() as u64);
        assert_eq!(sys.huge.regions.live(), 0);
        Ok(())
    });
    ran.expect("the map agrees with its model");
}

#[test]
fn a_change_that_is_dropped_adds_nothing() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let map = Reservations::new();
    let change = map.change(&sys, 3, 7).expect("memory");
    assert_eq!((change.missing(), sys.huge.regions.live()), (4, 1));
    drop(change);
    assert_eq!((map.count(0, 10), sys.huge.regions.live()), (0, 0));
    assert!(sys.check_ledger(&[]).is_ok());
}

#[test]
fn two_who_reserve_the_same_pages_add_them_once() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let map = Reservations::new();
    let one = map.change(&sys, 0, 4).expect("memory");
    let other = map.change(&sys, 2, 6).expect("memory");
    assert_eq!((one.missing(), other.missing()), (4, 4));
    assert_eq!(one.add(), 4);
    // Two fewer than were missing: the caller gives back what he reserved for them.
    assert_eq!(other.add(), 2);
    assert_eq!(map.remove_all(&sys), 6);
    assert_eq!(sys.huge.regions.live(), 0);
}

#[test]
fn adding_needs_no_memory_even_if_the_map_was_changed_since() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let map = Reservations::new();
    map.change(&sys, 0, 10).expect("memory").add();
    let within = map.change(&sys, 4, 6).expect("memory");
    assert_eq!(within.missing(), 0);
    assert_eq!(map.remove(&sys, 0, 10), Ok(10));
    sys.refuse_allocations(Refuse::From(1));
    assert_eq!(within.add(), 2);
    assert_eq!(map.truncate(&sys, 5), 1);
    sys.refuse_allocations(Refuse::Nothing);
    assert_eq!(map.remove_all(&sys), 1);
}

#[test]
fn only_a_new_region_and_a_split_need_memory() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let map = Reservations::new();
    sys.refuse_allocations(Refuse::Nth(1));
    assert!(map.change(&sys, 0, 1).is_err());
    assert!(sys.refused_allocation().is_some());
    map.change(&sys, 0, 10).expect("memory").add();
    sys.refuse_allocations(Refuse::From(1));
    assert_eq!(map.remove(&sys, 4, 6), Err(NoMemory));
    assert_eq!(
        (map.count(0, 10), map.validate().map(|found| found.0)),
        (10, Ok(1))
    );
    assert_eq!(map.remove(&sys, 0, 2), Ok(2));
    assert_eq!(map.remove(&sys, 8, 20), Ok(2));
    assert_eq!(map.remove(&sys, 20, 30), Ok(0));
    assert_eq!(map.truncate(&sys, 5), 3);
    sys.refuse_allocations(Refuse::Nothing);
    assert_eq!(map.remove(&sys, 3, 4), Ok(1));
    assert_eq!(
        (map.count(0, 10), map.validate().map(|found| found.0)),
        (2, Ok(2))
    );
    assert_eq!(map.remove_all(&sys), 2);
    assert!(sys.check_ledger(&[]).is_ok());
}

#[test]
fn regions_that_nobody_has_are_seen() {
    let sys = boot::<X86_64>();
    let _cpu = sys.machine().enter(0);
    let map = Reservations::new();
    map.change(&sys, 0, 2).expect("memory").add();
    assert!(sys.check_ledger(&[]).is_err());
    map.remove_all(&sys);
    assert!(sys.check_ledger(&[]).is_ok());
}

#[test]
fn each_page_is_added_and_removed_as_often_by_threads() {
    const THREADS: u32 = 4;
    let sys = boot::<X86_64>();
    let map = Reservations::new();
    let balance = |cpu: u32| {
        let _cpu = sys.machine().enter(cpu);
        let mut balance = 0;
        for round in 0..3_000_u64 {
            let from = (round * 7 + u64::from(cpu) * 5) % PAGES;
            let to = from + 1 + round % 5;
            if (round + u64::from(cpu)) % 3 == 0 {
                balance -= map.remove(&sys, from, to).expect("memory") as i64;
            } else {
                balance += map.change(&sys, from, to).expect("memory").add() as i64;
            }
        }
        balance
    };
    let sum: i64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|cpu| scope.spawn(move || balance(cpu)))
            .collect();
        let joined = threads.into_iter().map(|it| it.join().expect("runs"));
        joined.sum()
    });
    let _cpu = sys.machine().enter(0);
    let regions = map.validate().map(|found| found.0).expect("in order");
    assert_eq!(sys.huge.regions.live(), regions);
    assert_eq!(map.remove_all(&sys) as i64, sum);
    assert!(sys.check_ledger(&[]).is_ok());
}
