//! Execute-only mappings, in formats whose entries can say so and in one whose entries cannot.

use super::manual::Manual;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_host::Host;
use minflt_mm::{
    Advice, Errno, Event, Force, HugeSize, LockWhen, MadviseError, MapRequest, Mm, Place, Populate,
    Prot, RemoteError, Running, Sharing, Signal, Swap, Thread, era, eras_of_huge_pages,
    eras_without_migration,
};
use minflt_pgtable::{Aarch64K16, Access, PowerRadix, RiscvSv39, X86_64};
use minflt_tests::world::{alone, boot_on, machine};
use std::sync::Barrier;
use std::thread;

const RAM: usize = 64 << 20;
const RX: Prot = Prot::READ.with(Prot::EXEC);
const RWX: Prot = Prot::READ_WRITE.with(Prot::EXEC);

/// A machine of format `P`.
type On<P> = Host<P, true>;

/// What a load of `word` comes to where only fetches were asked for.
fn load_of<P: Manual>(word: u64) -> Result<u64, Signal> {
    match P::EXECUTE_ONLY {
        true => Err(Signal::AccErr),
        false => Ok(word),
    }
}

/// Calls `body` with an address space and the first of eight pages of `prot`, in eras that fault by
/// each lock mode.
fn mapped<P: Manual>(prot: Prot, body: impl Fn(&Running<On<P>>, &Mm<On<P>>, VirtAddr)) {
    for name in ["linux-2.6.10", "linux-4.13", "spf-2017", "linux-6.15"] {
        let config = era(name).expect("an era").config;
        let sys = boot_on::<On<P>>(machine(1, RAM), config, Swap::of_bytes(1 << 20));
        alone(P::NAME, &sys, |mm| {
            let at = mm.mmap(Place::Any, 8 * P::PAGE, prot).expect("mapped");
            body(&sys, mm, at);
        });
    }
}

/// Calls a generic function on each of them: two ways to refuse a load, and none.
macro_rules! on_some {
    ($check:ident) => {
        $check::<RiscvSv39>();
        $check::<PowerRadix>();
        $check::<Aarch64K16>();
        $check::<X86_64>();
    };
}

fn nth<P: Manual>(at: VirtAddr, page: u64) -> VirtAddr {
    VirtAddr(at.0 + page * P::PAGE)
}

fn protect<P: Manual>(mm: &Mm<On<P>>, at: VirtAddr, prot: Prot) {
    assert_eq!(mm.mprotect(at, 8 * P::PAGE, prot), Ok(()));
}

fn maps_line<P: Manual>(mm: &Mm<On<P>>) -> String {
    let mut text = String::new();
    mm.maps(&mut text).expect("a string takes all");
    text
}

fn rights_come_and_go<P: Manual>() {
    mapped::<P>(Prot::EXEC, |_, mm, at| {
        let (id, thread) = (P::ID, mm.thread());
        assert!(maps_line(mm).contains(" --xp "), "{}", maps_line(mm));
        // Where nothing is yet, and where a fetch brought a page.
        assert_eq!(thread.load(at), load_of::<P>(0), "{id}");
        assert_eq!(thread.fetch(at), Ok(0), "{id}");
        assert_eq!(thread.load(at), load_of::<P>(0), "{id}: by the entry");
        assert_eq!(thread.store(at, 1), Err(Signal::AccErr), "{id}");
        for (prot, word) in [(RWX, 7), (Prot::READ_WRITE, 8), (Prot::WRITE, 9)] {
            protect(mm, at, prot);
            for page in [0, 1] {
                assert_eq!(thread.load(nth::<P>(at, page)).map(drop), Ok(()), "{id}");
                assert_eq!(thread.store(nth::<P>(at, page), word), Ok(()), "{id}");
            }
            // What the CPU knows of the page is gone.
            protect(mm, at, Prot::EXEC);
            for page in [0, 1] {
                let at = nth::<P>(at, page);
                assert_eq!(thread.load(at), load_of::<P>(word), "{id} {prot}");
                assert_eq!(thread.fetch(at), Ok(word), "{id} {prot}");
                assert_eq!(thread.load(at), load_of::<P>(word), "{id} {prot}");
                assert_eq!(thread.store(at, 1), Err(Signal::AccErr), "{id} {prot}");
            }
        }
        for prot in [RX, Prot::READ] {
            protect(mm, at, prot);
            assert_eq!(thread.load(at), Ok(9), "{id} {prot}: given");
            assert_eq!(thread.fetch(at).is_ok(), prot == RX, "{id} {prot}");
            protect(mm, at, Prot::NONE);
            assert_eq!(thread.fetch(at), Err(Signal::AccErr), "{id}");
            protect(mm, at, Prot::EXEC);
            assert_eq!(thread.fetch(at), Ok(9), "{id}: taken");
            assert_eq!(thread.load(at), load_of::<P>(9), "{id}: taken");
        }
    });
}

#[test]
fn a_load_needs_more_than_the_right_to_fetch() {
    on_some!(rights_come_and_go);
}

fn pages_keep_it<P: Manual>() {
    mapped::<P>(RWX, |sys, mm, at| {
        let (id, thread) = (P::ID, mm.thread());
        for page in 0..3 {
            assert_eq!(thread.store(nth::<P>(at, page), page + 1), Ok(()));
        }
        protect(mm, at, Prot::EXEC);
        let executes = |thread: &Thread<'_, On<P>>, page: u64, what: &str| {
            let (at, word) = (nth::<P>(at, page), page + 1);
            assert_eq!(thread.fetch(at), Ok(word), "{id} {what}");
            assert_eq!(thread.load(at), load_of::<P>(word), "{id} {what}");
        };
        mm.age(VirtRange::new(at, nth::<P>(at, 8)));
        executes(&thread, 0, "aged");
        let child = mm.fork().expect("memory");
        for page in 0..3 {
            executes(&child.thread(), page, "forked");
            executes(&thread, page, "the parent of a fork");
        }
        // Copied in the child, by force and by a store.
        let word = 2u64.to_le_bytes();
        assert_eq!(
            child.remote_write(nth::<P>(at, 1), &word, Force::Yes),
            Ok(8)
        );
        executes(&child.thread(), 1, "copied by force");
        protect(&child, at, RWX);
        assert_eq!(child.thread().store(at, 1), Ok(()));
        protect(&child, at, Prot::EXEC);
        executes(&child.thread(), 0, "copied");
        drop(child);
        // Away, and away when the right is taken.
        let out = || assert_eq!(mm.madvise(at, 3 * P::PAGE, Advice::PageOut), Ok(()));
        out();
        executes(&thread, 0, "swapped");
        protect(mm, at, Prot::READ);
        out();
        protect(mm, at, Prot::EXEC);
        for page in 0..3 {
            executes(&thread, page, "protected in a slot");
        }
        assert!(sys.count_of(Event::SwapIn) >= 4, "{id}: it was away");
    });
}

#[test]
fn pages_that_are_copied_or_away_stay_so() {
    on_some!(pages_keep_it);
}

fn calls_obey<P: Manual>() {
    mapped::<P>(Prot::READ_WRITE, |_, mm, at| {
        let (id, thread) = (P::ID, mm.thread());
        assert_eq!(thread.store(at, 5), Ok(()));
        protect(mm, at, Prot::EXEC);
        // The thread's own copies load; those of others ask for the right by name, unless forced.
        let mut word = [0; 8];
        let copied = thread.load_bytes(at, &mut word).map_err(Errno::from);
        let expected = load_of::<P>(5).map_err(|_| Errno::EFAULT);
        assert_eq!(copied, expected.map(drop), "{id}");
        let refused = Err(RemoteError::Fault);
        assert_eq!(mm.remote_read(at, &mut word, Force::No), refused, "{id}");
        assert_eq!(mm.remote_read(at, &mut word, Force::Yes), Ok(8), "{id}");
        assert_eq!(u64::from_le_bytes(word), 5, "{id}");
        let forced = 6u64.to_le_bytes();
        assert_eq!(mm.remote_write(at, &forced, Force::No), refused, "{id}");
        assert_eq!(mm.remote_write(at, &forced, Force::Yes), Ok(8), "{id}");
        assert_eq!(thread.fetch(at), Ok(6), "{id}");
        assert_eq!(thread.load(at), load_of::<P>(6), "{id}: by force for once");
        let pinned = thread.pin_fast(at, Access::Read);
        assert_eq!(pinned.is_some(), !P::EXECUTE_ONLY, "{id}");
        drop(pinned);
        // Faulted in where anything is allowed, as in Linux; asked to load, refused.
        let there = || {
            let mut there = [0; 8];
            assert_eq!(mm.mincore(at, 8 * P::PAGE, &mut there), Ok(()));
            there.iter().filter(|byte| **byte != 0).count()
        };
        let load = mm.madvise(nth::<P>(at, 1), P::PAGE, Advice::PopulateRead);
        assert_eq!(load, Err(MadviseError::Invalid), "{id}");
        assert_eq!(there(), 1, "{id}");
        assert_eq!(mm.mlock2(at, 8 * P::PAGE, LockWhen::Now), Ok(()), "{id}");
        assert_eq!(there(), 8, "{id}");
        assert_eq!(thread.fetch(nth::<P>(at, 7)), Ok(0), "{id}");
        assert_eq!(thread.load(nth::<P>(at, 7)), load_of::<P>(0), "{id}");
        let populated = MapRequest {
            populate: Populate::Now,
            ..MapRequest::new(Place::Any, P::PAGE, Prot::EXEC)
        };
        let other = mm.mmap_as(&populated).expect("mapped");
        let mut there = [0];
        assert_eq!(mm.mincore(other, P::PAGE, &mut there), Ok(()));
        assert_eq!(there, [1], "{id}");
        assert_eq!(thread.load(other), load_of::<P>(0), "{id}");
    });
}

#[test]
fn calls_load_where_loads_are_allowed() {
    on_some!(calls_obey);
}

/// A right that is taken is gone on every CPU when the call returns; the other CPU has the old
/// translation until then.
fn taken_everywhere<P: Manual>() {
    for era in eras_without_migration() {
        let sys = boot_on::<On<P>>(machine(2, RAM), era.config, Swap::None);
        let meet = Barrier::new(2);
        alone(era.name, &sys, |mm| {
            let at = mm.mmap(Place::Any, P::PAGE, RWX).expect("mapped");
            thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let cpu = sys.machine().enter(1);
                    let thread = mm.thread();
                    assert_eq!(thread.store(at, 3), Ok(()));
                    protect_page(mm, at, RX);
                    assert_eq!(thread.load(at), Ok(3));
                    cpu.away(|| meet.wait());
                    cpu.away(|| meet.wait());
                    assert_eq!(thread.load(at), load_of::<P>(3), "{}", era.name);
                    assert_eq!(thread.fetch(at), Ok(3), "{}", era.name);
                });
                meet.wait();
                protect_page(mm, at, Prot::EXEC);
                meet.wait();
                other.join().expect("found what it should");
            });
        });
    }
}

fn protect_page<P: Manual>(mm: &Mm<On<P>>, at: VirtAddr, prot: Prot) {
    assert_eq!(mm.mprotect(at, P::PAGE, prot), Ok(()));
}

#[test]
fn another_cpu_loads_no_more_when_the_right_is_taken() {
    taken_everywhere::<RiscvSv39>();
}

/// Pages of a file, shared and private, brought by a fetch and mapped around it.
fn of_files<P: Manual>() {
    mapped::<P>(Prot::NONE, |sys, mm, _| {
        let (id, thread) = (P::ID, mm.thread());
        let file = sys.new_file(4 * P::PAGE).expect("memory");
        for page in 0..4 {
            assert_eq!(file.write_word(page * P::PAGE, 100 + page), Ok(()));
        }
        for sharing in [Sharing::Shared, Sharing::Private] {
            let request = MapRequest::new(Place::Any, 4 * P::PAGE, Prot::EXEC);
            let at = thread
                .mmap_file(&request, &file, 0, sharing)
                .expect("mapped");
            for page in 0..4 {
                let (at, word) = (nth::<P>(at, page), 100 + page);
                assert_eq!(thread.load(at), load_of::<P>(word), "{id} {sharing:?}");
                assert_eq!(thread.fetch(at), Ok(word), "{id} {sharing:?}");
                assert_eq!(thread.load(at), load_of::<P>(word), "{id} {sharing:?}");
            }
            assert_eq!(mm.mprotect(at, 4 * P::PAGE, Prot::READ), Ok(()));
            assert_eq!(thread.load(at), Ok(100), "{id} {sharing:?}");
            assert_eq!(mm.munmap(at, 4 * P::PAGE), Ok(()));
        }
    });
}

#[test]
fn pages_of_files_are_fetched_and_not_loaded() {
    on_some!(of_files);
}

/// Huge pages, by an entry above the leaves.
fn of_huge_pages<P: Manual>() {
    for era in eras_of_huge_pages() {
        let sys = boot_on::<On<P>>(machine(1, RAM), era.config, Swap::None);
        let bytes = HugeSize::Large.bytes::<P>();
        alone(era.name, &sys, |mm| {
            assert_eq!(sys.resize_huge_pool(4), 4);
            let request = MapRequest::new(Place::Any, 2 * bytes, Prot::READ_WRITE);
            let at = mm.mmap_huge_of(HugeSize::Large, &request, Sharing::Private);
            let at = at.expect("mapped");
            let (id, thread) = (P::ID, mm.thread());
            assert_eq!(thread.store(at, 4), Ok(()));
            let protect = |prot| assert_eq!(mm.mprotect(at, 2 * bytes, prot), Ok(()));
            protect(Prot::EXEC);
            let second = VirtAddr(at.0 + bytes);
            for (at, word) in [(at, 4), (second, 0)] {
                assert_eq!(thread.load(at), load_of::<P>(word), "{id}");
                assert_eq!(thread.fetch(at), Ok(word), "{id}");
                assert_eq!(thread.load(at), load_of::<P>(word), "{id}");
            }
            let child = mm.fork().expect("memory");
            assert_eq!(child.thread().fetch(at), Ok(4), "{id}");
            assert_eq!(child.thread().load(at), load_of::<P>(4), "{id}");
            drop(child);
            protect(Prot::READ);
            assert_eq!(thread.load(at), Ok(4), "{id}");
            assert_eq!(thread.fetch(at), Err(Signal::AccErr), "{id}");
            protect(Prot::EXEC);
            assert_eq!(thread.load(at), load_of::<P>(4), "{id}");
            assert_eq!(mm.munmap(at, 2 * bytes), Ok(()));
            assert_eq!(sys.resize_huge_pool(0), 0);
        });
    }
}

#[test]
fn huge_pages_are_fetched_and_not_loaded() {
    of_huge_pages::<RiscvSv39>();
    of_huge_pages::<X86_64>();
}
