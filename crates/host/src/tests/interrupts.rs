//! Interrupts reach every CPU once asked for, whatever it does at the moment.

use super::{M, machine, me, on_all_cpus, rounds};
use crate::HostInstance;
use core::ptr;
use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_pgtable::{Exec, Mmu, Rights, SpaceId, Translation};
use minflt_sync::order::{PageTableLock, ShootdownLock};
use minflt_sync::{Atomic, CpuMask, Instance, IpiHandler, Machine, Ordering, SpinLock, TaskId};
use std::sync::Barrier;

const SPACE: SpaceId = SpaceId(1);

/// A page whose frame changes, and the invalidation that goes with it.
struct Shootdown<'a> {
    at: &'a HostInstance,
    asked: Vec<SpinLock<u64, ShootdownLock, M>>,
    done: Vec<Atomic<u64, M>>,
    /// What the page table says.
    version: Atomic<u64, M>,
    /// No CPU may use an older version than this.
    floor: Atomic<u64, M>,
    changing: SpinLock<(), PageTableLock, M>,
}

impl<'a> Shootdown<'a> {
    fn new(at: &'a HostInstance) -> Box<Self> {
        let cpus = || 0..at.cpus();
        let this = Box::new(Self {
            at,
            asked: cpus().map(|_| SpinLock::new(0)).collect(),
            done: cpus().map(|_| Atomic::new(0)).collect(),
            version: Atomic::new(1),
            floor: Atomic::new(1),
            changing: SpinLock::new(()),
        });
        let arg = ptr::from_ref(&*this).cast();
        at.set_ipi_handler(Some(IpiHandler {
            call: Self::interrupted,
            arg,
        }));
        this
    }

    /// # Safety
    /// 1. `arg` is a live `Shootdown`.
    unsafe fn interrupted(arg: *const ()) {
        // SAFETY: 1 of this function.
        let this = unsafe { &*arg.cast::<Shootdown<'_>>() };
        this.acknowledge();
    }

    fn acknowledge(&self) {
        assert!(me().irq_off.get() > 0);
        let cpu = me().cpu.get() as usize;
        let asked = *self.asked[cpu].lock();
        let range = VirtRange::new(VirtAddr(0), VirtAddr(4096));
        M::flush_local(self.at, SPACE, range);
        self.done[cpu].store(asked, Ordering::Release);
    }

    /// Has the CPUs forget, and waits until they have.
    fn flush_others(&self) {
        let mut mask = CpuMask::empty();
        let mut wait_for = Vec::new();
        for cpu in (0..self.at.cpus()).filter(|cpu| *cpu != me().cpu.get()) {
            let irq = M::irq_save();
            let mut asked = self.asked[cpu as usize].lock();
            *asked += 1;
            wait_for.push((cpu as usize, *asked));
            drop(asked);
            M::irq_restore(irq);
            mask.insert(cpu);
        }
        M::send_ipi(self.at, &mask);
        for (cpu, number) in wait_for {
            while self.done[cpu].load(Ordering::Acquire) < number {
                self.done[cpu].wait_until(u64::MAX, number);
            }
        }
    }

    /// Changes the page's frame, as an unmap would.
    fn change(&self) {
        let _lock = self.changing.lock();
        let version = self.version.add(1, Ordering::SeqCst) + 1;
        let irq = M::irq_save();
        self.forget();
        M::irq_restore(irq);
        self.flush_others();
        self.floor.store(version, Ordering::Release);
    }

    fn forget(&self) {
        M::flush_local(self.at, SPACE, VirtRange::new(VirtAddr(0), VirtAddr(4096)));
    }

    /// A user access: never through a translation that was given up before.
    fn access(&self) {
        let floor = self.floor.load(Ordering::Acquire);
        M::user_point(self.at);
        let tlb = M::tlb(self.at, me().cpu.get()).unwrap();
        let generation = match tlb.lookup(SPACE, 0) {
            Some(translation) => translation.generation,
            None => {
                let generation = self.version.load(Ordering::SeqCst) as u32;
                let (space, page, pfn) = (SPACE, 0, Pfn(0));
                let fill = Translation {
                    space,
                    page,
                    pfn,
                    rights: Rights {
                        writable: true,
                        exec: Exec::No,
                    },
                    generation,
                    filled: 0,
                };
                tlb.fill(fill);
                generation
            }
        };
        assert!(
            u64::from(generation) >= floor,
            "a stale translation: {generation} < {floor}"
        );
    }
}

#[test]
fn no_cpu_uses_a_translation_after_its_invalidation_returned() {
    for cpus in [2, 5] {
        let at = machine(cpus);
        let page = Shootdown::new(&at);
        let working = Atomic::<u64, M>::new(u64::from(cpus));
        on_all_cpus(&at, |cpu| {
            for round in 0..rounds(2_000) {
                if (round + u64::from(cpu)).is_multiple_of(8) {
                    page.change();
                } else {
                    page.access();
                }
            }
            // Those who are done first wait, and still acknowledge.
            working.sub(1, Ordering::Relaxed);
            while working.load(Ordering::Relaxed) != 0 {
                working.wait_until(u64::MAX, 0);
            }
        });
        assert_eq!(at.failed(), None);
    }
}

#[test]
fn sleepers_spinners_and_absent_cpus_acknowledge() {
    let at = machine(6);
    let page = Shootdown::new(&at);
    let held: SpinLock<(), PageTableLock, M> = SpinLock::new(());
    let stop = Atomic::<u64, M>::new(0);
    let (changed, all) = (Atomic::<u64, M>::new(0), 2 * rounds(150));
    std::thread::scope(|scope| {
        // 0 and 1 change the page at once; one of them with a lock held that 2 spins for.
        for cpu in [0, 1] {
            let (at, page, held, stop, changed) = (&at, &page, &held, &stop, &changed);
            scope.spawn(move || {
                let _cpu = at.enter(cpu);
                for _ in 0..rounds(150) {
                    if cpu == 0 {
                        let _held = held.lock();
                        page.flush_others();
                    } else {
                        page.change();
                    }
                    changed.add(1, Ordering::Relaxed);
                }
                while changed.load(Ordering::Relaxed) < all {
                    changed.wait_until(u64::MAX, all);
                }
                if cpu == 0 {
                    stop.store(1, Ordering::Release);
                    M::unpark(TaskId(4));
                }
            });
        }
        let running = |cpu: u32, body: fn(&Shootdown<'_>, &SpinLock<(), PageTableLock, M>)| {
            let (at, page, held, stop) = (&at, &page, &held, &stop);
            scope.spawn(move || {
                let _cpu = at.enter(cpu);
                while stop.load(Ordering::Acquire) == 0 {
                    body(page, held);
                }
            });
        };
        running(2, |page, held| {
            drop(held.lock());
            page.access();
        });
        running(3, |_, _| M::park());
        running(4, |page, _| {
            let irq = M::irq_save();
            let before = me().irq_off.get();
            page.done[4].load(Ordering::Relaxed);
            assert_eq!(me().irq_off.get(), before);
            M::irq_restore(irq);
        });
        // 5 comes and goes.
        let (at, page, stop) = (&at, &page, &stop);
        scope.spawn(move || {
            while stop.load(Ordering::Acquire) == 0 {
                let _cpu = at.enter(5);
                for _ in 0..10 {
                    page.access();
                }
            }
        });
    });
    assert_eq!(at.failed(), None);
    // Everybody has left: the handler runs on the sender's thread, as the CPU asked.
    page.flush_others();
    assert_eq!((me().cpu.get(), me().task.get()), (u32::MAX, TaskId(0)));
}

#[test]
fn an_interrupt_waits_until_interrupts_are_on() {
    let at = machine(2);
    let page = Shootdown::new(&at);
    let _cpu = at.enter(0);
    let mut own = CpuMask::empty();
    own.insert(0);
    let (outer, inner) = (M::irq_save(), M::irq_save());
    *page.asked[0].lock() += 1;
    M::send_ipi(&at, &own);
    M::user_point(&at);
    M::irq_restore(inner);
    M::enter_kernel();
    assert_eq!(page.done[0].peek(), 0);
    M::irq_restore(outer);
    assert_eq!(page.done[0].peek(), 1);
}

#[test]
fn a_token_left_early_is_not_lost_and_an_interrupt_is_no_token() {
    let at = machine(3);
    let page = Shootdown::new(&at);
    let turn = Atomic::<u64, M>::new(0);
    on_all_cpus(&at, |cpu| {
        // 0 and 1 pass a turn to and fro; each waits for its turn by tokens alone.
        for round in 0..rounds(10_000) {
            if cpu == 2 {
                if round % 10 == 0 && turn.load(Ordering::Relaxed) < 2 * rounds(10_000) {
                    page.flush_others();
                }
                continue;
            }
            while turn.load(Ordering::Acquire) % 2 != u64::from(cpu) {
                M::park();
            }
            turn.add(1, Ordering::Release);
            M::unpark(TaskId(2 - cpu));
        }
    });
    assert_eq!(turn.load(Ordering::Relaxed), 2 * rounds(10_000));
}

/// A thread that is in a call of the host acknowledges: else the call here would never return.
#[test]
fn interrupts_of_a_cpu_that_is_away_are_served() {
    let at = machine(2);
    let shootdown = Shootdown::new(&at);
    let (gone, may_come) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _cpu = at.enter(1);
            shootdown.access();
            let before = me().task.get();
            crate::context::with_current(|here| {
                here.away(|| {
                    gone.wait();
                    may_come.wait();
                });
            });
            assert_eq!(me().task.get(), before);
            // The buffer was searched meanwhile.
            shootdown.access();
        });
        let _cpu = at.enter(0);
        gone.wait();
        assert!(!M::is_running(TaskId(2)));
        shootdown.change();
        may_come.wait();
    });
    at.set_ipi_handler(None);
}

#[test]
fn a_cpu_whose_thread_is_away_cannot_be_entered() {
    let at = machine(2);
    let (gone, may_come) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _cpu = at.enter(1);
            crate::context::with_current(|here| {
                here.away(|| {
                    gone.wait();
                    may_come.wait();
                });
            });
        });
        gone.wait();
        let words = super::words_of(|| drop(at.enter(1)));
        assert!(words.contains("another thread"), "{words}");
        may_come.wait();
    });
}
