//! What the MMU of each CPU has: the root that it walks from, and the address spaces whose
//! translations it keeps under process-context identifiers (PCIDs).
//!
//! Which identifier is whose, and why no stale translation is used, is in
//! [`Asids`](minflt_pgtable::Asids), which knows no hardware. This is the part that does: bits of
//! CR3. Where the CPU has no PCIDs, or with `nopcid`, each load of a root flushes all, and what is
//! left is that a CPU with nothing to run, or a task without an address space, leaves the root
//! where it is.
//!
//! An address space that is divided into arenas is walked from a root of the CPU's own
//! (`roots.rs`).
//!
//! PCID 0 is that of the kernel's own root, whose lower half is empty. The upper half is the same
//! below all roots and never changes while programs run, so its translations are right under each.
//!
//! Linux: arch/x86/mm/tlb.c (`switch_mm_irqs_off`, `choose_new_asid`).

use core::cell::UnsafeCell;

use minflt_addr::{Pfn, VirtAddr, VirtRange};
use minflt_mm::Mm;
use minflt_pgtable::{Asids, Facts, SpaceId, Switch, X86_64};
use minflt_sync::{Machine, Ordering};
use x86_64::instructions::interrupts;

use crate::acpi::MAX_CPUS;
use crate::arch::kernel_map;
use crate::arch::paging::{self, PAGE, Pcid, Table};
use crate::machine::Kernel;
use crate::roots::{self, Links};
use crate::shared::StaticWord;
use crate::task;

/// The MMU of a CPU.
#[derive(Debug)]
struct Loaded {
    asids: Asids,
    /// What its own root leads to.
    links: Links,
    /// Whether the handler of interrupts runs.
    in_handler: bool,
}

struct OnCpu(UnsafeCell<Loaded>);

// SAFETY: (1) the CPU's own, with interrupts off.
unsafe impl Sync for OnCpu {}

static CPUS: [OnCpu; MAX_CPUS] = [const {
    OnCpu(UnsafeCell::new(Loaded {
        asids: Asids::one(),
        links: Links::new(),
        in_handler: false,
    }))
}; MAX_CPUS];

/// 1 where CPUs use PCIDs.
static PCIDS: StaticWord = StaticWord::new(0);

/// The frame of the root that each CPU has loaded, 0 for the kernel's own: for an oracle.
static ROOTS: [StaticWord; MAX_CPUS] = [const { StaticWord::new(0) }; MAX_CPUS];

/// The CPUs are to use PCIDs if they have them. Called on the boot CPU, before others are started
/// and before there are programs.
pub(crate) fn use_pcids() {
    if paging::has_pcids() {
        PCIDS.store(1, Ordering::Relaxed);
    }
}

/// Whether CPUs use PCIDs.
#[inline(always)]
pub(crate) fn uses_pcids() -> bool {
    PCIDS.load(Ordering::Relaxed) == 1
}

/// Sets the calling CPU up: once on each, after [`use_pcids`], with the kernel's root loaded.
pub(crate) fn init() {
    if uses_pcids() {
        assert!(paging::has_pcids(), "all CPUs have what the boot CPU has");
        // SAFETY: (1) the kernel's root, as its caller says, and that is loaded without any bits.
        unsafe { paging::enable_pcids() };
        interrupts::without_interrupts(|| with_loaded(|loaded| loaded.asids = Asids::several()));
    }
}

/// What the MMU of the calling CPU has. The caller has interrupts off.
fn with_loaded<R>(look: impl FnOnce(&mut Loaded) -> R) -> R {
    let cpu = task::current().cpu() as usize;
    // SAFETY: (1) the CPU's own, with interrupts off, and no caller calls it within `look`.
    look(unsafe { &mut *CPUS[cpu].0.get() })
}

/// Makes `mm` the address space of the calling CPU: it joins those that `mm` interrupts before it
/// can fill a translation. The only way to a root of a program. The caller has interrupts off.
///
/// What is loaded when the running task has no address space stays: there is no other end of this
/// than [`leave`].
pub(crate) fn load(mm: &Mm<Kernel>) {
    mm.activate();
    let root = if mm.has_own_roots() {
        let cpu = task::current().cpu();
        with_loaded(|loaded| loaded.links.root_for(cpu, mm.space()))
    } else {
        // SAFETY: (1) the root stays a table as long as `mm`; (2) `mm` changes the entries of the
        // user's half only.
        unsafe { Table::new(mm.root_table().phys(X86_64::SHIFT).0) }
    };
    let pcid = match with_loaded(|loaded| loaded.asids.switch(mm.space(), root.phys())) {
        Switch::Stays => return,
        _ if !uses_pcids() => Pcid::Flush(0),
        Switch::Keep(asid) => Pcid::Keep(number(asid)),
        Switch::Flush(asid) => Pcid::Flush(number(asid)),
    };
    root.share_kernel_half(kernel_map::root());
    note_root(root.phys() / PAGE);
    // SAFETY: (1) the root has the kernel's half, and below it is what `mm` maps; (2) the
    // identifier is kept if `Asids` says that what it has is of this root and address space, and
    // right.
    unsafe { root.activate(pcid) };
}

/// A fault of `mm`, which is loaded, at `addr` was resolved: where the CPU walks from a root of its
/// own, what was found is linked there. If another CPU is the one by now, it takes the fault again.
///
/// # Context
/// Interrupts are on.
#[inline]
pub(crate) fn link(mm: &Mm<Kernel>, addr: u64) {
    // A hint here: where it comes too late, the program takes another fault.
    if mm.has_own_roots() {
        interrupts::without_interrupts(|| link_here(mm, addr));
    }
}

fn link_here(mm: &Mm<Kernel>, addr: u64) {
    // The address space may have been divided a moment ago, and this CPU is about to be told.
    let misses = |loaded: &mut Loaded| {
        let links = &loaded.links;
        loaded.asids.is_current(mm.space()) && links.are_of(mm.space()) && !links.has(addr)
    };
    if !with_loaded(misses) {
        return;
    }
    if let Some(entry) = mm.upper_entry(VirtAddr(addr))
        && !with_loaded(|loaded| loaded.links.add(addr, entry))
    {
        paging::flush_current();
    }
}

/// The PCID of a tag: 0 is the kernel's.
const fn number(asid: usize) -> u16 {
    asid as u16 + 1
}

/// Whether the running task has `space`, and goes back to it after an interrupt.
pub(crate) fn runs(space: SpaceId) -> bool {
    let active = task::current().active();
    active.is_some_and(|mm| mm.space() == space)
}

/// The calling CPU uses no translation of `space` any more, nor its root, until [`load`].
pub(crate) fn leave(space: SpaceId) {
    interrupts::without_interrupts(|| {
        let within = task::current().space();
        if within.is_some_and(|it| it.mm().space() == space) {
            Kernel::violation(format_args!("a CPU leaves {space:?}, which its task is in"));
        }
        leave_root(space);
    });
}

/// The same whatever the task is in. The caller has interrupts off.
fn leave_root(space: SpaceId) {
    let was_loaded = with_loaded(|loaded| {
        let was_loaded = loaded.asids.leave(space);
        loaded.links.forget(space);
        was_loaded
    });
    if was_loaded {
        load_kernel();
    }
}

/// Flushes all translations of `space` on the calling CPU, and what its own root leads to of
/// `range`. If `space` was divided, the CPU goes over to that root.
pub(crate) fn flush(space: SpaceId, range: VirtRange) {
    interrupts::without_interrupts(|| {
        let active = task::current().active().filter(|mm| mm.space() == space);
        let Some(mm) = active.filter(|_| with_loaded(|it| it.asids.is_current(space))) else {
            // Nothing runs there: the root is left, before it may have to be another one.
            return leave_root(space);
        };
        with_loaded(|loaded| loaded.links.drop_within(range));
        paging::flush_current();
        load(mm);
    });
}

/// The same if its root is not loaded.
#[cold]
pub(crate) fn forget_dormant(space: SpaceId) {
    interrupts::without_interrupts(|| {
        with_loaded(|loaded| {
            if !loaded.asids.is_current(space) {
                loaded.asids.forget_dormant(space);
            }
        });
    });
}

/// Flushes all translations of the lower half on the calling CPU. A root that nothing runs below is
/// left, too: its address space may be about to end.
pub(crate) fn flush_everything() {
    interrupts::without_interrupts(|| {
        let active = task::current().active().map(Mm::space);
        let stays = with_loaded(|loaded| {
            loaded.asids.forget_all_dormant();
            loaded.links.clear();
            let stays = active.is_some_and(|space| loaded.asids.is_current(space));
            if !stays {
                loaded.asids.leave_current();
            }
            stays
        });
        if stays {
            paging::flush_current();
        } else {
            load_kernel();
        }
    });
}

fn load_kernel() {
    // SAFETY: (1) it is the kernel's half, and the lower half is empty; (2) nothing is kept.
    unsafe { kernel_map::root().activate(Pcid::Flush(0)) };
    note_root(0);
}

fn note_root(pfn: u64) {
    if Kernel::CHECKED {
        ROOTS[task::current().cpu() as usize].store(pfn as u32, Ordering::Relaxed);
    }
}

/// An oracle: `pfn` gets new contents, so it is no root that a CPU has loaded, and no table that it
/// has a link to. One that its address space gave back would be, if a CPU had not left it.
#[inline(always)]
pub(crate) fn is_no_table(pfn: Pfn) {
    if Kernel::CHECKED {
        let has = |root: &StaticWord| u64::from(root.load(Ordering::Relaxed)) == pfn.0;
        if let Some(cpu) = ROOTS.iter().position(has) {
            Kernel::violation(format_args!(
                "frame {pfn} is used again, and CPU {cpu}'s root"
            ));
        }
    }
    roots::is_not_linked(pfn);
}

/// Runs `work` as the handler of what another CPU asks for. The caller has interrupts off.
pub(crate) fn in_handler(work: impl FnOnce()) {
    with_loaded(|loaded| loaded.in_handler = true);
    work();
    with_loaded(|loaded| loaded.in_handler = false);
}

/// Whether that runs.
pub(crate) fn is_in_handler() -> bool {
    with_loaded(|loaded| loaded.in_handler)
}
