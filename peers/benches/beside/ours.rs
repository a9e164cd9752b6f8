//! The library, on the host target without checks.

use crate::common::machine::{M, machine};
use crate::side::{MEMORY, Pages, Side, Space, User};
use minflt_addr::VirtAddr;
use minflt_host::RamError;
use minflt_mm::{FaultOutcome, MmHandle, Place, Prot, Running, System, Thread, era};
use minflt_pgtable::Access;

/// What it does that the peer does not.
pub(crate) const IN_ADDITION: &str = "\
minflt does in addition: in each call and fault a lock that readers share, limits, accounting of
memory that is committed and resident, counts of events; in each mmap a search from the top of the
address space and a merge with what is alike beside it, in each munmap the end of page tables that
nothing is mapped below; in each first touch a reference and a map count of the page, and what
finds its mappings from the page (anon_vma); in each mprotect a split or merge and its charge; a
flush of the software TLB of each CPU that runs the address space (an interrupt for the other).
Its clear asks for the lines of the frame that is cleared next; the peer's does not.
On two threads of a system that does not shoot down translations, munmap would be unsafe.";

/// One era's system.
pub(crate) struct Ours {
    era: &'static str,
    system: Running<M>,
}

impl Ours {
    pub(crate) fn new(name: &'static str) -> Result<Self, RamError> {
        let machine = machine(2, MEMORY as usize)?;
        let era = era(name).unwrap_or_else(|| panic!("no era is called {name}"));
        let system = System::boot(machine, era.config).unwrap_or_else(|error| panic!("{error}"));
        Ok(Self { era: name, system })
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
        if pages == Pages::Clear {
            self.system.clear_free_frames();
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
}
