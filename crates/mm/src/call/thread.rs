//! A thread of an address space: user accesses and the faults that they take.
//!
//! On a machine whose MMU is software, [`Thread::load`] and [`Thread::store`] *are* the user's
//! accesses: buffered translation, hardware walk, trap. A kernel calls [`Thread::fault`] from its
//! trap handler instead.

mod copy;

pub use copy::{CopyError, CopyStop};

use crate::base::config::NegativeControl;
use crate::base::event::Event;
use crate::entry::translation;
use crate::entry::walk::AsHardware;
use crate::fault::{FaultOutcome, Signal};
use crate::memory::rss::Share;
use crate::mm::Mm;
use core::cell::Cell;
use core::marker::PhantomData;
use minflt_addr::{Pfn, VirtAddr};
use minflt_pgtable::{
    Access, Exchange, Hardware, Leaf, Mmu, Paging, Pte, Rights, Translation, with_bits,
};
use minflt_sync::{Cost, this_cpu};

/// Accesses are of words of 2^this bytes.
const WORD_SHIFT: u32 = 3;

/// One thread, of the context that made it, on whichever CPU that runs.
#[derive(Debug)]
pub struct Thread<'m, M: Mmu> {
    mm: &'m Mm<M>,
    pub(crate) share: Share,
    faults: Cell<u64>,
    not_send: PhantomData<*mut ()>,
}

impl<M: Mmu> Mm<M> {
    /// The calling context becomes a thread of this address space.
    pub fn thread(&self) -> Thread<'_, M> {
        self.thread_comes();
        let irq = M::irq_save();
        self.activate();
        M::irq_restore(irq);
        Thread {
            mm: self,
            share: Share::default(),
            faults: Cell::new(0),
            not_send: PhantomData,
        }
    }
}

impl<'m, M: Mmu> Thread<'m, M> {
    /// The address space.
    #[must_use]
    pub const fn mm(&self) -> &'m Mm<M> {
        self.mm
    }

    /// Page faults that it took.
    #[must_use]
    pub const fn faults(&self) -> u64 {
        self.faults.get()
    }

    /// Loads the word at `addr`, a multiple of 8.
    ///
    /// # Errors
    /// The signal the access raises: [`Signal::Misaligned`] where `addr` is no multiple of 8,
    /// [`Signal::MapErr`] also beyond user space.
    #[inline]
    pub fn load(&self, addr: VirtAddr) -> Result<u64, Signal> {
        let at = &self.mm.system().at;
        self.access(addr, Access::Read, |pfn, offset| {
            M::user_load(at, pfn, offset)
        })
    }

    /// Stores the word at `addr`, a multiple of 8.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[inline]
    pub fn store(&self, addr: VirtAddr, value: u64) -> Result<(), Signal> {
        let at = &self.mm.system().at;
        self.access(addr, Access::Write, |pfn, offset| {
            M::user_store(at, pfn, offset, value)
        })
    }

    /// Fetches the instruction at `addr`, a multiple of 8: what would be executed there.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[inline]
    pub fn fetch(&self, addr: VirtAddr) -> Result<u64, Signal> {
        let at = &self.mm.system().at;
        self.access(addr, Access::Execute, |pfn, offset| {
            M::user_load(at, pfn, offset)
        })
    }

    /// Handles a page fault, from trap to return.
    ///
    /// # Context
    /// From user mode; holds nothing. May sleep.
    pub fn fault(&self, addr: VirtAddr, access: Access) -> FaultOutcome {
        M::enter_kernel();
        M::charge(Cost::Trap);
        self.faults.set(self.faults.get() + 1);
        self.mm.joins_arena(addr);
        let outcome = self.mm.handle_fault(&self.share, addr, access);
        self.mm.system().run_deferred();
        M::leave_kernel();
        outcome
    }

    #[inline]
    fn access<T>(
        &self,
        addr: VirtAddr,
        access: Access,
        mut verb: impl FnMut(Pfn, u64) -> T,
    ) -> Result<T, Signal> {
        // The walk and the translation buffer look at the bits that tables resolve, and no others.
        if addr.0 >= M::Paging::user_end() {
            return Err(Signal::MapErr);
        }
        if !addr.is_aligned(WORD_SHIFT) {
            return Err(Signal::Misaligned);
        }
        let at = &self.mm.system().at;
        let page = addr.page(M::Paging::shift());
        let offset = addr.page_offset(M::Paging::shift());
        loop {
            M::user_point(at);
            if let Some(tlb) = M::tlb(at, this_cpu::<M>())
                && let Some(hit) = tlb.lookup(self.mm.space, page)
                && hit.rights.serve::<M::Paging>(access)
            {
                translation::translation_live(self.mm.system(), &hit, addr, access);
                return Ok(verb(hit.pfn, offset));
            }
            // Interrupts are off from the walk to the access, which are one step in hardware: no
            // TLB flush can intervene between reading a PTE and caching it.
            let mut walked = Hardware::Fault;
            if let Some(as_hardware) = self.mm.as_hardware(addr) {
                walked = as_hardware.tables().hardware_walk(addr, access);
                if let Hardware::Hit { pfn, rights } = walked {
                    self.fill(page, pfn, rights);
                    return Ok(verb(pfn, offset));
                }
            }
            match walked {
                Hardware::WantsBits => self.set_access_bits(addr, access),
                _ => match self.fault(addr, access) {
                    FaultOutcome::Done(_) => {}
                    FaultOutcome::Signal(signal) => return Err(signal),
                    FaultOutcome::Oom => return Err(Signal::OutOfMemory),
                },
            }
        }
    }

    #[inline]
    fn fill(&self, page: u64, pfn: Pfn, rights: Rights) {
        let sys = self.mm.system();
        if M::CHECKED {
            translation::contents_flushed(sys, pfn);
        }
        if let Some(tlb) = M::tlb(&sys.at, this_cpu::<M>()) {
            let generation = if M::CHECKED {
                sys.frames.get(pfn).generation()
            } else {
                0
            };
            let filled = sys.moment();
            let space = self.mm.space;
            tlb.fill(Translation {
                space,
                page,
                pfn,
                rights,
                generation,
                filled,
            });
        }
    }

    /// Exchanges with interrupts off. Where a lock emulates that, it is only tried: its holder may
    /// be waiting for this CPU.
    fn exchange_unlocked(
        &self,
        leaf: Leaf<'_, M>,
        old: Pte<M::Paging>,
        new: Pte<M::Paging>,
    ) -> bool {
        match self.mm.exchange() {
            Exchange::Emulated(_) => {
                let held = self.mm.table_lock(leaf.table).try_lock();
                held.is_some() && leaf.entry.cas(Exchange::Held, old, new).is_ok()
            }
            how => leaf.entry.cas(how, old, new).is_ok(),
        }
    }

    /// The low-level handler of machines whose hardware sets no accessed and dirty bits. It takes
    /// no lock: it exchanges the PTE, and if the PTE changed meanwhile the access is retried.
    fn set_access_bits(&self, addr: VirtAddr, access: Access) {
        let sys = self.mm.system();
        M::enter_kernel();
        M::charge(Cost::Trap);
        sys.count(Event::AccessBits);
        let as_hardware = self.mm.as_hardware(addr);
        let tables = as_hardware.as_ref().map(AsHardware::tables);
        if let Some(leaf) = tables.and_then(|tables| tables.leaf(addr)) {
            let found = leaf.entry.load();
            if found.lets(access) {
                let used = with_bits(found, access);
                if sys.lacks(NegativeControl::StaleAccessBits) {
                    leaf.entry.store(used);
                    M::note(format_args!("handler stores {used:?} at {addr}"));
                } else if !self.exchange_unlocked(leaf, found, used) {
                    sys.count(Event::CasFlags);
                }
            }
        }
        drop(as_hardware);
        M::leave_kernel();
    }
}

impl<M: Mmu> Drop for Thread<'_, M> {
    fn drop(&mut self) {
        self.mm.rss.sync(&self.share);
        self.mm.thread_goes();
    }
}
