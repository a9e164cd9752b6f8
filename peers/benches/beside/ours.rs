//! The library, on the host target without checks.

use crate::common::machine::{M, PAGE, machine};
use crate::side::{MEMORY, PAGES, Pages, Side, Space, User};
use minflt_addr::VirtAddr;
use minflt_host::RamError;
use minflt_mm::config::Prefetch;
use minflt_mm::{Config, FaultOutcome, MmHandle, Place, Prot, Running, System, Thread, era};
use minflt_pgtable::Access;

/// Bytes of a mapping among those that use all memory.
const PIECE: u64 = 2 << 20;

/// One era's system.
pub(crate) struct Ours {
    era: &'static str,
    system: Running<M>,
}

impl Ours {
    pub(crate) fn new(name: &'static str) -> Result<Self, RamError> {
        let machine = machine(2, MEMORY as usize)?;
        let era = era(name).unwrap_or_else(|| panic!("no era is called {name}"));
        // As `--prefetch nothing`: the peers prefetch nothing in a first touch either.
        let config = Config {
            prefetch: Prefetch::Nothing,
            ..era.config
        };
        let system = System::boot(machine, config).unwrap_or_else(|error| panic!("{error}"));
        Ok(Self { era: name, system })
    }

    /// Stores to every free page, so that each has to be cleared again.
    fn use_free_frames(&self) {
        let mm = self.system.new_mm().expect("memory");
        let thread = mm.thread();
        let mut touched = 0;
        // A mapping larger than memory is refused.
        'all: for _ in 0..MEMORY / PIECE {
            let at = mm.mmap(Place::Any, PIECE, Prot::READ_WRITE);
            let at = at.expect("a hole").0;
            for page in (at..at + PIECE).step_by(PAGE as usize) {
                match thread.fault(VirtAddr(page), Access::Write) {
                    FaultOutcome::Done(_) => touched += 1,
                    _ => break 'all,
                }
            }
        }
        assert!(touched > 2 * PAGES, "{touched} pages are not all");
        drop(thread);
        drop(mm);
        self.system.drain_deferred();
    }
}

/// An address space.
pub(crate) struct OurSpace<'a> {
    system: &'a Running<M>,
    mm: MmHandle<'a, M>,
}

/// A thread in it.
pub(crate) struct OurUser<'u> {
    mm: &'u MmHandle<'u, M>,
    thread: Thread<'u, M>,
}

impl Side for Ours {
    type Space<'a> = OurSpace<'a>;

    fn name(&self) -> String {
        format!("minflt, {}", self.era)
    }

    fn space(&self, pages: Pages) -> OurSpace<'_> {
        let _cpu = self.system.machine().enter(0);
        self.system.drain_deferred();
        match pages {
            Pages::Any => {}
            Pages::Used => self.use_free_frames(),
            Pages::Clear => self.system.clear_free_frames(),
        }
        OurSpace {
            system: &self.system,
            mm: self.system.new_mm().expect("memory"),
        }
    }

    fn bytes(&self, space: &OurSpace<'_>) -> u64 {
        let _cpu = self.system.machine().enter(0);
        let ledger = self.system.check_ledger(&[&space.mm]);
        ledger.unwrap_or_else(|error| panic!("{error}")).slab * 4096
    }
}

impl Space for OurSpace<'_> {
    type User<'u>
        = OurUser<'u>
    where
        Self: 'u;

    fn on<R>(&self, cpu: u32, run: impl FnOnce(&OurUser<'_>) -> R) -> R {
        let _cpu = self.system.machine().enter(cpu);
        run(&OurUser {
            mm: &self.mm,
            thread: self.mm.thread(),
        })
    }

    fn fork(&self) -> Self {
        Self {
            system: self.system,
            mm: self.mm.fork().expect("memory"),
        }
    }
}

impl User for OurUser<'_> {
    fn mmap(&self, len: u64) -> u64 {
        let at = self.mm.mmap(Place::Any, len, Prot::READ_WRITE);
        at.expect("a hole").0
    }

    fn mmap_at(&self, at: u64, len: u64) {
        let place = Place::FixedNoReplace(VirtAddr(at));
        let mapped = self.mm.mmap(place, len, Prot::READ_WRITE);
        assert_eq!(mapped, Ok(VirtAddr(at)), "free");
    }

    fn munmap(&self, at: u64, len: u64) {
        self.mm.munmap(VirtAddr(at), len).expect("mapped");
    }

    fn mprotect(&self, at: u64, len: u64, writable: bool) {
        let prot = if writable {
            Prot::READ_WRITE
        } else {
            Prot::READ
        };
        self.mm.mprotect(VirtAddr(at), len, prot).expect("mapped");
    }

    fn fault(&self, at: u64) {
        let outcome = self.thread.fault(VirtAddr(at), Access::Write);
        assert!(matches!(outcome, FaultOutcome::Done(_)), "{outcome:?}");
    }

    fn store(&self, at: u64, value: u64) {
        self.thread.store(VirtAddr(at), value).expect("mapped");
    }

    fn load(&self, at: u64) -> u64 {
        self.thread.load(VirtAddr(at)).expect("mapped")
    }
}
