//! A whole system on the machine: translations, and that no CPU uses one that is gone.

use crate::board::{On, settle};
use crate::{Bed, Broken, Check, ensure, same};
use minflt_addr::VirtAddr;
use minflt_mm::{Advice, MmHandle, Place, Prot, Running, Signal, System, Thread};
use minflt_pgtable::{Mmu, Paging};

/// What is checked here.
pub(crate) const fn checks<B: Bed>() -> [Check<B>; 6] {
    [
        Check::new(
            1,
            "own-flush",
            "a CPU does not use what it took away itself",
            own_flush,
        ),
        Check::new(
            2,
            "munmap-elsewhere",
            "nor what another unmapped",
            unmapped_elsewhere,
        ),
        Check::new(
            2,
            "mprotect-elsewhere",
            "nor writes what another made read-only",
            protected_elsewhere,
        ),
        Check::new(
            2,
            "discard-elsewhere",
            "nor reads what another discarded",
            discarded_elsewhere,
        ),
        Check::new(
            2,
            "fork-elsewhere",
            "nor writes what another's fork shared",
            forked_elsewhere,
        ),
        Check::new(2, "storm", "each finds what it stored", storm),
    ]
}

/// Where the words lie that contexts tell each other things by: a page each.
const BOARD: u64 = 0x2000_0000;
/// How many there are.
const WORDS: u64 = 8;
/// Where is what a check is about.
const BASE: u64 = 0x4000_0000;
/// Rounds of a check.
const ROUNDS: u64 = 50;

/// A system, and what could not be had of it.
fn boot<B: Bed>(bed: &B) -> Result<Running<On<B>>, Broken> {
    System::boot(bed.machine(), bed.config()).map_err(|_| Broken {
        what: "a system could not start: its machine is too small, or has not what its config needs",
        found: 0,
        wanted: 1,
    })
}

fn page<B: Bed>() -> u64 {
    <On<B> as Mmu>::Paging::page()
}

/// Page `n` of what a check is about.
fn at<B: Bed>(n: u64) -> VirtAddr {
    VirtAddr(BASE + n * page::<B>())
}

/// The address of word `n`. A small translation buffer, which a page's number selects a slot of,
/// can hold it beside what a check is about.
fn word<B: Bed>(n: u64) -> VirtAddr {
    VirtAddr(BOARD + (128 + n) * page::<B>())
}

/// A call of the system that must succeed, without its error's text.
fn done<T, E>(what: &'static str, result: Result<T, E>) -> Result<T, Broken> {
    result.map_err(|_| Broken {
        what,
        found: 0,
        wanted: 1,
    })
}

/// Runs `work` on a fresh address space with the words mapped; everything is accounted for after.
fn in_a_space<B: Bed>(
    bed: &B,
    cpus: u32,
    work: impl Fn(u32, &User<'_, '_, B>) -> Result<(), Broken> + Sync,
) -> Result<(), Broken> {
    let system = boot(bed)?;
    let mm = bed.alone(system.machine(), || {
        let mm = done("an address space", system.new_mm())?;
        let words = Place::Fixed(word::<B>(0));
        done(
            "a mapping",
            mm.mmap(words, WORDS * page::<B>(), Prot::READ_WRITE),
        )?;
        Ok(mm)
    })?;
    let user = || User {
        bed,
        thread: mm.thread(),
        mm: &mm,
    };
    // The words' pages are there from now on: what a check finds is not about them.
    bed.run(system.machine(), 1, &|_| {
        let user = user();
        (0..WORDS).try_for_each(|n| user.write(word::<B>(n), 0))
    })?;
    bed.run(system.machine(), cpus, &|cpu| work(cpu, &user()))?;
    bed.alone(system.machine(), || {
        drop(mm);
        let ledger = done("the ledger balances", system.check_ledger(&[]))?;
        let left = ledger.anon + ledger.file + ledger.tables;
        same("frames in use when all is over", left, 0)
    })
}

/// A context as a user's thread.
struct User<'u, 's, B: Bed> {
    bed: &'u B,
    mm: &'u MmHandle<'s, On<B>>,
    thread: Thread<'u, On<B>>,
}

impl<B: Bed> User<'_, '_, B> {
    fn load(&self, at: VirtAddr) -> Result<u64, Signal> {
        self.bed.load(&self.thread, at)
    }

    fn store(&self, at: VirtAddr, value: u64) -> Result<(), Signal> {
        self.bed.store(&self.thread, at, value)
    }

    /// A load of a page that must be there.
    fn read(&self, at: VirtAddr) -> Result<u64, Broken> {
        done("a load of a mapped page", self.load(at))
    }

    /// A store to a page that must be there.
    fn write(&self, at: VirtAddr, value: u64) -> Result<(), Broken> {
        done("a store to a mapped page", self.store(at, value))
    }

    /// Waits until word `n` is `value`.
    fn settle(&self, what: &'static str, n: u64, value: u64) -> Result<(), Broken> {
        settle::<On<B>>(what, value, || self.load(word::<B>(n)).unwrap_or(u64::MAX))
    }

    fn map(&self, n: u64, pages: u64, prot: Prot) -> Result<(), Broken> {
        let place = Place::Fixed(at::<B>(n));
        done("a mapping", self.mm.mmap(place, pages * page::<B>(), prot)).map(|_| ())
    }
}

/// One CPU: what was unmapped, protected, discarded or moved is so at once.
fn own_flush<B: Bed>(bed: &B) -> Result<(), Broken> {
    in_a_space(bed, 1, |_, user| {
        let len = page::<B>();
        for round in 1..=ROUNDS {
            user.map(0, 2, Prot::READ_WRITE)?;
            user.write(at::<B>(0), round)?;
            user.write(at::<B>(1), !round)?;
            done(
                "madvise",
                user.mm.madvise(at::<B>(0), len, Advice::DontNeed),
            )?;
            same("a discarded page", user.read(at::<B>(0))?, 0)?;
            same("the page beside it", user.read(at::<B>(1))?, !round)?;
            done("mprotect", user.mm.mprotect(at::<B>(1), len, Prot::READ))?;
            let stored = user.store(at::<B>(1), 5);
            same(
                "a store to a page that is read-only now",
                stored.is_ok().into(),
                0,
            )?;
            same("what it left", user.read(at::<B>(1))?, !round)?;
            done("munmap", user.mm.munmap(at::<B>(0), 2 * len))?;
            for n in 0..2 {
                let loaded = user.load(at::<B>(n));
                same(
                    "a load of a page that is unmapped now",
                    loaded.is_ok().into(),
                    0,
                )?;
            }
        }
        Ok(())
    })
}

/// Who is to lose a translation.
const VICTIM: u32 = 1;
/// The word by which the victim says that it has one.
const HAS: u64 = 0;
/// The word by which the other says that it has taken it away.
const GONE: u64 = 1;
/// The word by which the victim says that it looked.
const LOOKED: u64 = 2;

/// CPU 1 uses a page; CPU 0 takes it away by `take`, and gives it back by `again`. From the moment
/// at which `take` has returned CPU 1 must find what `check` says.
fn taken_away<B: Bed>(
    bed: &B,
    take: impl Fn(&User<'_, '_, B>) -> Result<(), Broken> + Sync,
    check: impl Fn(&User<'_, '_, B>, u64) -> Result<(), Broken> + Sync,
) -> Result<(), Broken> {
    in_a_space(bed, 2, |cpu, user| {
        for round in 1..=ROUNDS {
            if cpu == VICTIM {
                user.settle("the page was mapped", GONE, 2 * round - 1)?;
                user.write(at::<B>(0), round)?;
                user.write(word::<B>(HAS), round)?;
                user.settle("the page was taken away", GONE, 2 * round)?;
                check(user, round)?;
                user.write(word::<B>(LOOKED), round)?;
            } else {
                user.map(0, 1, Prot::READ_WRITE)?;
                user.write(word::<B>(GONE), 2 * round - 1)?;
                user.settle("the other CPU used the page", HAS, round)?;
                take(user)?;
                user.write(word::<B>(GONE), 2 * round)?;
                user.settle("the other CPU looked", LOOKED, round)?;
            }
        }
        Ok(())
    })
}

/// Another CPU's munmap.
fn unmapped_elsewhere<B: Bed>(bed: &B) -> Result<(), Broken> {
    let take = |user: &User<'_, '_, B>| done("munmap", user.mm.munmap(at::<B>(0), page::<B>()));
    taken_away(bed, take, |user, _| {
        let stored = user.store(at::<B>(0), 1);
        same(
            "a store to a page that another CPU unmapped",
            stored.is_ok().into(),
            0,
        )
    })
}

/// Another CPU's mprotect.
fn protected_elsewhere<B: Bed>(bed: &B) -> Result<(), Broken> {
    let take = |user: &User<'_, '_, B>| {
        done(
            "mprotect",
            user.mm.mprotect(at::<B>(0), page::<B>(), Prot::READ),
        )
    };
    taken_away(bed, take, |user, round| {
        let stored = user.store(at::<B>(0), 0);
        same(
            "a store to a page that another CPU made read-only",
            stored.is_ok().into(),
            0,
        )?;
        same("what is in it", user.read(at::<B>(0))?, round)
    })
}

/// Another CPU's MADV_DONTNEED: the page's next content is zero, never the old frame's.
fn discarded_elsewhere<B: Bed>(bed: &B) -> Result<(), Broken> {
    let take = |user: &User<'_, '_, B>| {
        done(
            "madvise",
            user.mm.madvise(at::<B>(0), page::<B>(), Advice::DontNeed),
        )
    };
    taken_away(bed, take, |user, _| {
        same(
            "a load of a page that another CPU discarded",
            user.read(at::<B>(0))?,
            0,
        )
    })
}

/// Another CPU's fork: a store after it is not the child's.
fn forked_elsewhere<B: Bed>(bed: &B) -> Result<(), Broken> {
    in_a_space(bed, 2, |cpu, user| user_of_both(cpu, user))
}

fn user_of_both<B: Bed>(cpu: u32, user: &User<'_, '_, B>) -> Result<(), Broken> {
    for round in 1..=ROUNDS {
        if cpu == VICTIM {
            user.settle("the page was mapped", GONE, 2 * round - 1)?;
            user.write(at::<B>(0), round)?;
            user.write(word::<B>(HAS), round)?;
            user.settle("the other CPU forked", GONE, 2 * round)?;
            user.write(at::<B>(0), !round)?;
            user.write(word::<B>(LOOKED), round)?;
            continue;
        }
        user.map(0, 1, Prot::READ_WRITE)?;
        user.write(word::<B>(GONE), 2 * round - 1)?;
        user.settle("the other CPU stored", HAS, round)?;
        let child = done("fork", user.mm.fork())?;
        user.write(word::<B>(GONE), 2 * round)?;
        user.settle("the other CPU stored again", LOOKED, round)?;
        let of_child = User {
            bed: user.bed,
            thread: child.thread(),
            mm: &child,
        };
        let found = of_child.read(at::<B>(0))?;
        same(
            "the child's copy of what another CPU stored after the fork",
            found,
            round,
        )?;
        drop(of_child);
        drop(child);
        same("what the parent stored", user.read(at::<B>(0))?, !round)?;
    }
    Ok(())
}

/// Up to four CPUs map, store, look and unmap beside each other: each finds what it stored.
fn storm<B: Bed>(bed: &B) -> Result<(), Broken> {
    in_a_space(bed, bed.cpus().min(4), |cpu, user| {
        let mine = 16 * (1 + u64::from(cpu));
        for round in 1..=4 * ROUNDS {
            let pages = 1 + round % 7;
            user.map(mine, pages, Prot::READ_WRITE)?;
            let value = |n: u64| round << 16 | mine << 8 | n;
            for n in 0..pages {
                user.write(at::<B>(mine + n), value(n))?;
            }
            for n in 0..pages {
                same(
                    "what this CPU stored",
                    user.read(at::<B>(mine + n))?,
                    value(n),
                )?;
            }
            let len = pages * page::<B>();
            done("munmap", user.mm.munmap(at::<B>(mine), len))?;
            let gone = user.load(at::<B>(mine));
            ensure(
                "a load of an unmapped page",
                gone.is_ok().into(),
                0,
                gone.is_err(),
            )?;
        }
        Ok(())
    })
}
