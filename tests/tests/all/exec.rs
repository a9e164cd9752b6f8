//! The right to fetch instructions, from the mapping to the entry and to translations.

use minflt_host::Host;
use minflt_mm::{Advice, Mm, Place, Prot, Signal, Swap, era, eras_without_migration};
use minflt_pgtable::{Aarch64K16, Facts, Mmu, RiscvSv39};
use minflt_tests::world::{Machine, PAGE, alone, boot, boot_on, in_each_era, machine, map, page};
use std::sync::Barrier;
use std::thread;

const RX: Prot = Prot::READ.with(Prot::EXEC);
const RWX: Prot = Prot::READ_WRITE.with(Prot::EXEC);
const RAM: usize = 16 << 20;

fn protect(mm: &Mm<Machine>, n: u64, pages: u64, prot: Prot) {
    assert_eq!(mm.mprotect(page(n), pages * PAGE, prot), Ok(()));
}

#[test]
fn a_fetch_needs_the_right_by_name() {
    in_each_era(1, RAM, |era, _, mm| {
        let thread = mm.thread();
        map(mm, 0, 4, Prot::READ_WRITE);
        assert_eq!(thread.fetch(page(0)), Err(Signal::AccErr), "{era}");
        assert_eq!(thread.store(page(0), 7), Ok(()));
        assert_eq!(thread.fetch(page(0)), Err(Signal::AccErr), "{era}: mapped");
        protect(mm, 0, 4, RX);
        assert_eq!(thread.fetch(page(0)), Ok(7), "{era}");
        // The zero page, and one that is found by a load first.
        assert_eq!(thread.fetch(page(1)), Ok(0), "{era}");
        assert_eq!(thread.load(page(2)), Ok(0));
        assert_eq!(thread.fetch(page(2)), Ok(0), "{era}");
        assert_eq!(thread.store(page(0), 1), Err(Signal::AccErr), "{era}");
        protect(mm, 0, 4, Prot::READ);
        for n in 0..4 {
            assert_eq!(thread.fetch(page(n)), Err(Signal::AccErr), "{era} {n}");
        }
        assert_eq!(thread.load(page(0)), Ok(7));
        protect(mm, 0, 4, Prot::NONE);
        assert_eq!(thread.fetch(page(0)), Err(Signal::AccErr), "{era}");
        protect(mm, 0, 4, RWX);
        assert_eq!(thread.fetch(page(0)), Ok(7), "{era}: given back");
        assert_eq!(thread.store(page(1), 8), Ok(()));
        assert_eq!(
            thread.fetch(page(1)),
            Ok(8),
            "{era}: copied from the zero page"
        );
        assert_eq!(thread.fetch(page(9)), Err(Signal::MapErr), "{era}");
    });
}

#[test]
fn a_child_fetches_what_its_parent_did() {
    in_each_era(1, RAM, |era, _, mm| {
        map(mm, 0, 2, RWX);
        map(mm, 8, 1, Prot::READ_WRITE);
        let thread = mm.thread();
        for n in [0, 1, 8] {
            assert_eq!(thread.store(page(n), n + 1), Ok(()));
        }
        let child = mm.fork().expect("memory");
        let forked = child.thread();
        assert_eq!(forked.fetch(page(0)), Ok(1), "{era}");
        assert_eq!(forked.fetch(page(8)), Err(Signal::AccErr), "{era}");
        // Copied, on either side.
        assert_eq!(forked.store(page(0), 5), Ok(()));
        assert_eq!(forked.fetch(page(0)), Ok(5), "{era}");
        assert_eq!(thread.store(page(1), 6), Ok(()));
        assert_eq!(thread.fetch(page(1)), Ok(6), "{era}");
        assert_eq!(forked.store(page(8), 5), Ok(()));
        assert_eq!(forked.fetch(page(8)), Err(Signal::AccErr), "{era}: a copy");
        drop(forked);
        drop(child);
    });
}

#[test]
fn a_page_that_was_away_comes_back_with_its_mappings_right() {
    for era in eras_without_migration() {
        let sys = boot_on::<Machine>(machine(1, RAM), era.config, Swap::of_bytes(1 << 20));
        alone(era.name, &sys, |mm| {
            map(mm, 0, 2, RWX);
            let thread = mm.thread();
            for n in 0..2 {
                assert_eq!(thread.store(page(n), n + 1), Ok(()));
            }
            let out = || mm.madvise(page(0), 2 * PAGE, Advice::PageOut);
            assert_eq!(out(), Ok(()));
            assert_eq!(thread.fetch(page(0)), Ok(1), "{}", era.name);
            assert_eq!(out(), Ok(()));
            protect(mm, 0, 2, Prot::READ_WRITE);
            for n in 0..2 {
                assert_eq!(thread.load(page(n)), Ok(n + 1), "{}", era.name);
                assert_eq!(thread.fetch(page(n)), Err(Signal::AccErr), "{}", era.name);
            }
        });
    }
}

/// A right that is taken is gone on every CPU when the call returns; the other CPU has the old
/// translation until then.
#[test]
fn another_cpu_fetches_no_more_when_the_right_is_taken() {
    for era in eras_without_migration() {
        let sys = boot(era.config, 2, RAM);
        let meet = Barrier::new(2);
        alone(era.name, &sys, |mm| {
            map(mm, 0, 1, RWX);
            thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let cpu = sys.machine().enter(1);
                    let thread = mm.thread();
                    assert_eq!(thread.store(page(0), 3), Ok(()));
                    assert_eq!(thread.fetch(page(0)), Ok(3));
                    cpu.away(|| meet.wait());
                    cpu.away(|| meet.wait());
                    assert_eq!(thread.fetch(page(0)), Err(Signal::AccErr), "{}", era.name);
                    assert_eq!(thread.load(page(0)), Ok(3));
                });
                meet.wait();
                protect(mm, 0, 1, Prot::READ_WRITE);
                meet.wait();
                // Nothing is asked of this CPU meanwhile.
                other.join().expect("found what it should");
            });
        });
    }
}

/// Formats that grant a fetch by a bit, refuse it by a bit, and whose large pages are blocks.
#[test]
fn other_formats_say_it_as_well() {
    fn on<P: Facts>()
    where
        Host<P, true>: Mmu<Instance = minflt_host::HostInstance, Paging = P>,
    {
        for name in ["linux-4.13", "spf-2017", "linux-6.15"] {
            let config = era(name).expect("an era").config;
            let sys = boot_on::<Host<P, true>>(machine(1, RAM), config, Swap::None);
            alone(P::NAME, &sys, |mm| {
                let thread = mm.thread();
                let at = mm.mmap(Place::Any, 2 * P::PAGE, RWX).expect("mapped");
                assert_eq!(thread.store(at, 4), Ok(()));
                assert_eq!(thread.fetch(at), Ok(4), "{}", P::NAME);
                assert_eq!(mm.mprotect(at, 2 * P::PAGE, Prot::READ), Ok(()));
                assert_eq!(thread.fetch(at), Err(Signal::AccErr), "{}", P::NAME);
                assert_eq!(thread.load(at), Ok(4), "{}", P::NAME);
            });
        }
    }
    on::<RiscvSv39>();
    on::<Aarch64K16>();
}
