//! What the MMU of each CPU has: the root that it walks from, and the address spaces whose
//! translations it keeps under process-context identifiers (PCIDs).
//!
//! Which identifier is whose, and why no stale translation is used, is in
//! [`Asids`](minflt_pgtable::Asids), which knows no hardware. This is the part that does: bits of
//! CR3. Where the CPU has no PCIDs, or with `nopcid`, each load of a root flushes all, and what is
//! left is that a CPU with nothing to run, or a task without an address space, leaves the root
//! where it is.
//!
//! PCID 0 is that of the kernel's own root, whose lower half is empty. The upper half is the same
//! below all roots and never changes while programs run, so its translations are right under each.
//!
//! Linux: arch/x86/mm/tlb.c (`switch_mm_irqs_off`, `choose_new_asid`).

use core::cell::UnsafeCell;

use minflt_addr::Pfn;
use minflt_mm::Mm;
use minflt_pgtable::{Asids, Facts, SpaceId, Switch, X86_64};
use minflt_sync::{Machine, Ordering};
use x86_64::instructions::interrupts;

use crate::acpi::MAX_CPUS;
use crate::arch::kernel_map;
use crate::arch::paging::{self, PAGE, Pcid, Table};
use crate::machine::Kernel;
use crate::shared::StaticWord;
use crate::task;

/// The MMU of a CPU.
#[derive(Debug)]
struct Loaded {
    asids: Asids,
    /// Whether the handler of interrupts runs.
    in_handler: bool,
}

struct OnCpu(UnsafeCell<Loaded>);

// SAFETY: (1) the CPU's own, with interrupts off.
unsafe impl Sync for OnCpu {}

static CPUS: [OnCpu; MAX_CPUS] = [const {
    OnCpu(UnsafeCell::new(Loaded {
        asids: Asids::one(),
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
    let root = mm.root_table().phys(X86_64::SHIFT).0;
    let pcid = match with_loaded(|loaded| loaded.asids.switch(mm.space(), root)) {
        Switch::Stays => return,
        _ if !uses_pcids() => Pcid::Flush(0),
        Switch::Keep(asid) => Pcid::Keep(number(asid)),
        Switch::Flush(asid) => Pcid::Flush(number(asid)),
    };
    // SAFETY: (1) the root stays a table as long as `mm`; (2) `mm` changes the entries of the
    // user's half only.
    let root = unsafe { Table::new(root) };
    root.share_kernel_half(kernel_map::root());
    note_root(root.phys() / PAGE);
    // SAFETY: (1) the root has the kernel's half, and `mm` maps below it what is the program's; (2)
    // the identifier is kept if `Asids` says that what it has is of this root, and right.
    unsafe { root.activate(pcid) };
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
        if with_loaded(|loaded| loaded.asids.leave(space)) {
            load_kernel();
        }
    });
}

/// Flushes all translations of `space` on the calling CPU.
pub(crate) fn flush(space: SpaceId) {
    interrupts::without_interrupts(|| {
        let is_current = with_loaded(|loaded| {
            let is_current = loaded.asids.is_current(space);
            if !is_current {
                loaded.asids.forget_dormant(space);
            }
            is_current
        });
        if is_current {
            paging::flush_current();
        }
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

/// An oracle: `pfn` gets new contents, so it is no root that a CPU has loaded. One that its address
/// space gave back would be, if a CPU had not left it.
#[inline(always)]
pub(crate) fn is_no_root(pfn: Pfn) {
    if Kernel::CHECKED {
        let has = |root: &StaticWord| u64::from(root.load(Ordering::Relaxed)) == pfn.0;
        if let Some(cpu) = ROOTS.iter().position(has) {
            Kernel::violation(format_args!(
                "frame {pfn} is used again, and CPU {cpu}'s root"
            ));
        }
    }
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
