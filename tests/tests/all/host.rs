//! `mm` on real threads: every era, both formats, with the ledger at the end.

use minflt_addr::VirtAddr;
use minflt_host::{Host, HostInstance};
use minflt_mm::config::Reclamation;
use minflt_mm::{
    Advice, BootError, Check, Config, ERAS, Event, Mm, MmapError, MprotectError, MunmapError,
    NegativeControl, Overcommit, Place, Prot, Signal, Swap, System, era, eras_without_migration,
};
use minflt_pgtable::{Altix16K, Mmu, Paging, S390x, X86_64};
use minflt_tests::world::{boot_on, machine};

type X86 = Host<X86_64, true>;
type Altix = Host<Altix16K, true>;

fn instance<P: Paging>(sys: &System<Host<P, true>>) -> &HostInstance {
    sys.machine()
}

/// Without processes every frame is free or the system's own.
fn ledger<P: Paging>(era: &str, sys: &System<Host<P, true>>) {
    let _cpu = sys.machine().enter(0);
    sys.check_ledger(&[])
        .unwrap_or_else(|e| panic!("{era}: {e}"));
}

/// Every era, and what no era has.
fn configs() -> impl Iterator<Item = (&'static str, Config)> {
    let speculative_rcu = Config {
        reclamation: Reclamation::Rcu,
        ..era("spf-2017").expect("an era").config
    };
    eras_without_migration()
        .map(|era| (era.name, era.config))
        .chain([("spf-2017 with RCU", speculative_rcu)])
}

/// Runs `body` in every era on both formats.
fn everywhere(
    x86: impl Fn(&'static str, &System<X86>),
    altix: impl Fn(&'static str, &System<Altix>),
) {
    everywhere_in(4096, x86, altix);
}

/// The same with so many pages of memory.
fn everywhere_in(
    pages: usize,
    x86: impl Fn(&'static str, &System<X86>),
    altix: impl Fn(&'static str, &System<Altix>),
) {
    for (name, config) in configs() {
        let sys = boot_on::<X86>(machine(4, pages << 12), config, Swap::None);
        x86(name, &sys);
        ledger(name, &sys);
        let sys = boot_on::<Altix>(machine(4, pages << 14), config, Swap::None);
        altix(name, &sys);
        ledger(name, &sys);
    }
}

fn first_touch<M: Mmu<Instance = HostInstance>>(era: &str, sys: &System<M>) {
    let _cpu = sys.machine().enter(0);
    let page = M::Paging::page();
    let mm = sys.new_mm().expect("memory");
    let thread = mm.thread();
    let at = mm
        .mmap(Place::Any, 8 * page, Prot::READ_WRITE)
        .expect("a hole");
    for i in 0..8 {
        let here = VirtAddr(at.0 + i * page);
        assert_eq!(thread.load(here), Ok(0), "{era}");
        assert_eq!(thread.store(here, 100 + i), Ok(()));
        assert_eq!(thread.load(here), Ok(100 + i));
    }
    assert_eq!(sys.count_of(Event::AnonRead), 8);
    assert_eq!(sys.count_of(Event::ZeroPageCow), 8);
    drop(thread);
    assert_eq!(mm.resident_pages_sum(), 8);
    let ledger = sys.check_ledger(&[&mm]).expect("adds up");
    assert_eq!(ledger.anon, 8);
    let thread = mm.thread();
    mm.madvise(VirtAddr(at.0 + page), 2 * page, Advice::DontNeed)
        .expect("mapped");
    assert_eq!(thread.load(at), Ok(100));
    assert_eq!(thread.load(VirtAddr(at.0 + page)), Ok(0));
    mm.munmap(at, page).expect("mapped");
    assert_eq!(thread.load(at), Err(Signal::MapErr));
    assert_eq!(thread.load(VirtAddr(at.0 + 7 * page)), Ok(107));
    assert!(sys.looks_of(Check::Translation) > 0);
}

#[test]
fn first_touch_discard_and_unmap_in_every_era() {
    everywhere(first_touch::<X86>, first_touch::<Altix>);
}

fn protect<M: Mmu<Instance = HostInstance>>(era: &str, sys: &System<M>) {
    let _cpu = sys.machine().enter(1);
    let page = M::Paging::page();
    let mm = sys.new_mm().expect("memory");
    let thread = mm.thread();
    let at = mm
        .mmap(Place::Any, 6 * page, Prot::READ_WRITE)
        .expect("a hole");
    let nth = |i: u64| VirtAddr(at.0 + i * page);
    (0..6).for_each(|i| thread.store(nth(i), i + 1).expect("mapped"));
    // rrrrrr -> rr--rr -> rrrrrr, the contents stay
    mm.mprotect(nth(2), 2 * page, Prot::NONE).expect("mapped");
    assert_eq!(thread.load(nth(2)), Err(Signal::AccErr), "{era}");
    assert_eq!(thread.load(nth(1)), Ok(2));
    assert_eq!(thread.store(nth(4), 50), Ok(()));
    mm.mprotect(nth(2), 2 * page, Prot::READ).expect("mapped");
    assert_eq!(thread.load(nth(3)), Ok(4));
    assert_eq!(thread.store(nth(3), 9), Err(Signal::AccErr));
    mm.mprotect(at, 6 * page, Prot::READ_WRITE).expect("mapped");
    assert_eq!(thread.store(nth(3), 9), Ok(()));
    assert_eq!(thread.load(nth(3)), Ok(9));
    assert_eq!(thread.load(nth(2)), Ok(3));
    assert_eq!(
        mm.mprotect(at, 7 * page, Prot::READ),
        Err(MprotectError::NoMemory)
    );
    drop(thread);
    sys.check_ledger(&[&mm]).expect("adds up");
}

#[test]
fn protection_keeps_contents_in_every_era() {
    everywhere(protect::<X86>, protect::<Altix>);
}

#[test]
fn calls_refuse_what_linux_refuses() {
    let sys = boot_on::<X86>(machine(1, 16 << 20), ERAS[0].config, Swap::None);
    let _cpu = instance(&sys).enter(0);
    let mm = sys.new_mm().expect("memory");
    let any = |len| mm.mmap(Place::Any, len, Prot::READ);
    assert_eq!(any(0), Err(MmapError::Invalid));
    assert_eq!(any(1 << 60), Err(MmapError::OutOfRange));
    let at = any(3 << 12).expect("a hole");
    let inside = VirtAddr(at.0 + 4096);
    assert_eq!(
        mm.mmap(Place::FixedNoReplace(inside), 4096, Prot::READ),
        Err(MmapError::Exists)
    );
    assert_eq!(
        mm.mmap(Place::Fixed(VirtAddr(at.0 + 1)), 4096, Prot::READ),
        Err(MmapError::Invalid)
    );
    assert_eq!(
        mm.mmap(Place::Fixed(VirtAddr(1 << 62)), 4096, Prot::READ),
        Err(MmapError::OutOfRange)
    );
    assert_eq!(
        mm.mmap(Place::Fixed(inside), 4096, Prot::READ_WRITE),
        Ok(inside)
    );
    let elsewhere = mm
        .mmap(Place::Hint(inside), 4096, Prot::READ)
        .expect("a hole");
    assert_ne!(elsewhere, inside);
    assert_eq!(
        mm.munmap(VirtAddr(at.0 + 5), 4096),
        Err(MunmapError::Invalid)
    );
    assert_eq!(mm.munmap(at, 0), Err(MunmapError::Invalid));
    assert_eq!(mm.munmap(at, 3 << 12), Ok(()));
    assert_eq!(
        mm.munmap(at, 3 << 12),
        Ok(()),
        "unmapping nothing is no error"
    );
    assert!(mm.madvise(at, 4096, Advice::DontNeed).is_err());
}

#[test]
fn thousands_of_mappings_come_and_go() {
    for name in ["linux-4.13", "spf-2017", "linux-6.15"] {
        let sys = boot_on::<X86>(
            machine(1, 64 << 20),
            era(name).expect("an era").config,
            Swap::None,
        );
        let _cpu = instance(&sys).enter(0);
        let mm = sys.new_mm().expect("memory");
        let thread = mm.thread();
        let base = 1u64 << 32;
        let place = |i: u64| VirtAddr(base + i * 3 * 4096);
        // A permutation of 0..4096, so that insertion is in no order.
        let order = |i: u64| i * 1309 % 4096;
        for i in (0..4096).map(order) {
            mm.mmap(Place::Fixed(place(i)), 4096, Prot::READ_WRITE)
                .expect("room");
            thread.store(place(i), i + 1).expect("mapped");
        }
        let mut seen = 0;
        mm.for_each_mapping(|range, _| {
            assert_eq!(range.start(), place(seen));
            seen += 1;
        });
        assert_eq!(seen, 4096);
        for i in (0..4096).map(order) {
            assert_eq!(thread.load(place(i)), Ok(i + 1));
            assert_eq!(
                thread.load(VirtAddr(place(i).0 + 4096)),
                Err(Signal::MapErr)
            );
            if i % 5 != 0 {
                mm.munmap(place(i), 4096).expect("mapped");
                assert_eq!(thread.load(place(i)), Err(Signal::MapErr));
            }
        }
        let mut left = Vec::new();
        mm.for_each_mapping(|range, _| left.push(range.start()));
        assert!(
            left.iter()
                .copied()
                .eq((0..4096).filter(|i| i % 5 == 0).map(place)),
            "{name}"
        );
        drop(thread);
        sys.check_ledger(&[&mm])
            .unwrap_or_else(|e| panic!("{name}: {e}"));
    }
}

/// Threads fault in one address space while one maps, protects, discards and unmaps beside them.
fn storm<M: Mmu<Instance = HostInstance>>(era: &str, sys: &System<M>) {
    let page = M::Paging::page();
    let boot = sys.machine().enter(3);
    let mm = sys.new_mm().expect("memory");
    let shared = mm
        .mmap(Place::Any, 64 * page, Prot::READ_WRITE)
        .expect("a hole");
    drop(boot);
    std::thread::scope(|scope| {
        for cpu in 0..3u32 {
            let mm = &mm;
            scope.spawn(move || {
                let _cpu = sys.machine().enter(cpu);
                let thread = mm.thread();
                for round in 0..40u64 {
                    let own = mm
                        .mmap(Place::Any, 16 * page, Prot::READ_WRITE)
                        .expect("a hole");
                    for i in 0..16 {
                        let at = VirtAddr(own.0 + i * page);
                        let tag = round << 8 | u64::from(cpu) << 4 | i;
                        thread.store(at, tag).expect("mapped");
                        assert_eq!(thread.load(at), Ok(tag));
                        let word = VirtAddr(shared.0 + (i * 7 % 64) * page + 8 * u64::from(cpu));
                        thread.store(word, tag).expect("mapped");
                    }
                    if cpu == 0 {
                        mm.madvise(shared, 32 * page, Advice::DontNeed)
                            .expect("mapped");
                    }
                    mm.mprotect(own, 4 * page, Prot::READ).expect("mapped");
                    assert_eq!(thread.store(own, 1), Err(Signal::AccErr));
                    mm.munmap(own, 16 * page).expect("mapped");
                }
            });
        }
    });
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.machine().failed(), None, "{era}");
    sys.check_ledger(&[&mm])
        .unwrap_or_else(|e| panic!("{era}: {e}"));
    assert!(sys.count_of(Event::Shootdowns) > 0);
    // The address space is torn down by a CPU.
    drop(mm);
}

#[test]
fn a_storm_of_calls_and_faults_in_every_era() {
    everywhere(storm::<X86>, storm::<Altix>);
}

/// In two address spaces mappings of one page come and go, beside a thread of each that faults in
/// them: their VMAs are made of each other's memory.
fn two_storms<M: Mmu<Instance = HostInstance>>(era: &str, sys: &System<M>) {
    const PLACES: u64 = 4;
    let page = M::Paging::page();
    let boot = sys.machine().enter(3);
    let both = [0, 1].map(|_| sys.new_mm().expect("memory"));
    drop(boot);
    let at = |n: u64| VirtAddr((1 << 32) + n * page);
    std::thread::scope(|scope| {
        for (mm, first) in both.iter().zip([0, 2u32]) {
            let tag = u64::from(first) + 7;
            scope.spawn(move || {
                let _cpu = sys.machine().enter(first);
                let thread = mm.thread();
                for round in 0..1_000u64 {
                    let here = at(round % PLACES);
                    mm.mmap(Place::FixedNoReplace(here), page, Prot::READ_WRITE)
                        .expect("free");
                    let found = thread.load(here).expect("mapped");
                    assert!(found == 0 || found == tag, "{era}: {found}");
                    mm.munmap(here, page).expect("mapped");
                    assert_eq!(thread.load(here), Err(Signal::MapErr), "{era}");
                }
            });
            scope.spawn(move || {
                let _cpu = sys.machine().enter(first + 1);
                let thread = mm.thread();
                for round in 0..2_000u64 {
                    let here = at(round % PLACES);
                    match thread.store(here, tag) {
                        Ok(()) | Err(Signal::MapErr) => {}
                        Err(other) => panic!("{era}: {other:?}"),
                    }
                }
            });
        }
    });
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.machine().failed(), None, "{era}");
    sys.check_ledger(&both.each_ref().map(|mm| &**mm))
        .unwrap_or_else(|e| panic!("{era}: {e}"));
    drop(both);
}

#[test]
fn storms_in_two_address_spaces_that_share_a_slab() {
    // Each of 2,000 rounds retires a page, its tables, a VMA and its record. On a crowded machine
    // a reader may not run again, and so no grace period end, before all rounds are over, and a
    // fault does not wait for one: there is memory for all of them.
    everywhere_in(16_384, two_storms::<X86>, two_storms::<Altix>);
}

#[test]
fn a_lock_can_stand_in_for_the_exchange_where_no_hardware_writes_entries() {
    let emulated = Config {
        exchange: minflt_mm::config::ExchangeBy::Emulated,
        ..ERAS[1].config
    };
    let sys = boot_on::<Altix>(machine(4, 64 << 20), emulated, Swap::None);
    storm::<Altix>("emulated", &sys);
    ledger("emulated", &sys);
    let machine = machine(2, 16 << 20);
    let refused = System::<X86>::boot(machine, emulated).err();
    assert_eq!(
        refused,
        Some(BootError::Illegal(Config::EMULATED_BESIDE_HARDWARE))
    );
}

fn runs_out<P: Paging>() {
    for (name, config) in configs() {
        let sys = boot_on::<Host<P, true>>(machine(1, 2 << 20), config, Swap::None);
        sys.set_overcommit(Overcommit::Always);
        let _cpu = instance(&sys).enter(0);
        let mm = sys.new_mm().expect("memory");
        let thread = mm.thread();
        let fill = || {
            let at = mm
                .mmap(Place::Any, 4 << 20, Prot::READ_WRITE)
                .expect("a hole");
            let full = (0..1024)
                .find(|i| thread.store(VirtAddr(at.0 + i * 4096), 1) == Err(Signal::OutOfMemory));
            (at, full.expect("2 MiB are not 4 MiB"))
        };
        let (at, full) = fill();
        mm.munmap(at, 4 << 20).expect("mapped");
        sys.drain_deferred();
        let (_, again) = fill();
        assert!(
            again + 2 >= full,
            "{} {name}: {full} {again}",
            P::about().id
        );
        drop(thread);
        sys.check_ledger(&[&mm])
            .unwrap_or_else(|e| panic!("{} {name}: {e}", P::about().id));
    }
}

#[test]
fn memory_runs_out_as_a_value_and_comes_back() {
    runs_out::<X86_64>();
    // With tables larger than a page.
    runs_out::<S390x>();
}

/// Tables of four frames are found among what single pages left behind, and merge again.
#[test]
fn tables_larger_than_a_page_come_and_go() {
    for era in eras_without_migration() {
        let sys = boot_on::<Host<S390x, true>>(machine(4, 4 << 20), era.config, Swap::None);
        sys.set_overcommit(Overcommit::Always);
        storm("s390x", &sys);
        ledger(era.name, &sys);
        let _cpu = instance(&sys).enter(0);
        let mm = sys.new_mm().expect("memory");
        let thread = mm.thread();
        let before = sys.check_ledger(&[&mm]).expect("adds up");
        assert_eq!(before.tables, 4, "the root is a block of four frames");
        // Every page there is, and all of it given back: what the CPU keeps of it stands in the
        // way of whole blocks.
        let at = mm
            .mmap(Place::Any, 4 << 20, Prot::READ_WRITE)
            .expect("a hole");
        let touched = (0..1024)
            .take_while(|i| thread.store(VirtAddr(at.0 + i * 4096), 1) == Ok(()))
            .count();
        mm.munmap(at, 4 << 20).expect("mapped");
        drop(thread);
        sys.drain_deferred();
        let mut others = Vec::new();
        while let Ok(other) = sys.new_mm() {
            others.push(other);
        }
        // Each takes four frames, and its objects some; others are left over because no four of
        // them are together.
        let all: Vec<&Mm<_>> = others.iter().chain([&mm]).map(|it| &**it).collect();
        let full = sys.check_ledger(&all).expect("adds up");
        let taken = full.tables + full.slab - before.tables - before.slab;
        let touched = touched as u64;
        assert!(taken + touched / 8 > touched, "{full:?} of {touched}");
        drop(others);
        let after = sys.check_ledger(&[&mm]).expect("adds up");
        assert_eq!(after.tables, before.tables, "{}", era.name);
    }
}

#[test]
fn a_system_refuses_too_little_memory_and_unsound_mixes() {
    let tiny = machine(2, 64 << 10);
    let refused = System::<X86>::boot(tiny, ERAS[0].config).err();
    assert!(
        matches!(refused, Some(BootError::TooSmall { .. })),
        "{refused:?}"
    );
    let unsound = Config {
        protocol: minflt_mm::config::Protocol::CompareExchange,
        ..era("spf-2017").expect("an era").config
    };
    let machine = machine(2, 16 << 20);
    assert!(matches!(
        System::<X86>::boot(machine, unsound),
        Err(BootError::Illegal(_))
    ));
}

#[test]
fn the_ledger_sees_a_map_count_raised_too_late() {
    // One thread cannot race; but a count that is never raised must show.
    let config = ERAS[1]
        .config
        .with_negative_control(Some(NegativeControl::MapCountAfterExchange));
    let sys = boot_on::<X86>(machine(1, 16 << 20), config, Swap::None);
    let _cpu = instance(&sys).enter(0);
    let mm = sys.new_mm().expect("memory");
    let thread = mm.thread();
    let at = mm.mmap(Place::Any, 4096, Prot::READ_WRITE).expect("a hole");
    thread.store(at, 7).expect("mapped");
    drop(thread);
    assert_eq!(sys.check_ledger(&[&mm]).map(|ledger| ledger.anon), Ok(1));
}

#[test]
fn two_machines_run_at_once() {
    let run = |name: &'static str| {
        let sys = boot_on::<X86>(
            machine(4, 16 << 20),
            era(name).expect("an era").config,
            Swap::None,
        );
        storm::<X86>(name, &sys);
        ledger(name, &sys);
        sys.count_of(Event::PageFaults)
    };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| run("linux-2.6.10"));
        let two = scope.spawn(|| run("spf-2017"));
        assert!(one.join().expect("no panic") > 0 && two.join().expect("no panic") > 0);
    });
}

#[test]
fn descriptors_keep_their_size() {
    assert!(size_of::<minflt_mm::Frame<X86>>() <= 64);
    assert!(size_of::<minflt_mm::Vma<X86>>() <= 128);
    assert!(size_of::<minflt_mm::Attrs>() <= 64);
}
