//! The MMU interface: what page tables and page contents need of a machine, beyond `Machine`.

use crate::bytes;
use crate::paging::{Feature, Paging};
use crate::tlb::Tlb;
use minflt_addr::{Pfn, VirtRange};
use minflt_sync::Machine;

/// An address space, to a translation buffer: unique within a system, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct SpaceId(pub u64);

/// What becomes of an entry, for machines that keep account of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryPoint {
    /// The caller is about to read it, and decides by it and by other words what it will become.
    Sampled,
    /// The caller is about to read it, and goes on in the table that it names.
    Followed,
    /// It has come to name another page, or none.
    Renamed,
    /// The caller is about to exchange it, as it decided after its last sample: has it named
    /// another page since?
    Decided,
}

/// A machine with frames of memory and translation buffers.
///
/// Page contents are reached by verbs only, never as a slice: a simulated frame of a terabyte
/// machine holds a stamp, not bytes.
///
/// # Safety
/// An implementer guarantees:
/// 1. [`Mmu::frame_ptr`] is valid for a page's bytes as long as the instance lives, the same each
///    time, zero until first written, aligned to the page size; frames of neighbouring numbers lie
///    one behind the other, and a pointer to the first of several may be used for all;
/// 2. [`Mmu::flush_local`] returns only when this CPU will use no translation of the range that it
///    buffered before;
/// 3. the contents verbs touch only the frame named;
/// 4. [`Mmu::flush_everywhere`], where [`Mmu::broadcasts`] is true, returns only when no CPU will
///    use a translation of the range that it buffered before, or is in a walk begun before.
pub unsafe trait Mmu: Machine {
    /// The format of the page tables.
    type Paging: Paging;

    /// Whether an oracle may look into all translation buffers at any moment, because nothing else
    /// runs while it looks. True in simulation.
    const STOPS_THE_WORLD: bool = false;

    /// Whether a user frame keeps one word, the last one stored, and not a page of bytes. True in
    /// simulation, where copies of more bytes than one word's are refused.
    const ONE_WORD: bool = false;

    /// Whether each CPU can walk from a root of its own, into which it links tables after faults:
    /// for hardware that walks by itself. Then masks of CPUs may be kept for parts of an address
    /// space.
    const OWN_ROOTS: bool = false;

    /// Whether the machine's CPUs have `feature`; new ones have all.
    #[inline(always)]
    fn cpu_has(_at: &Self::Instance, _feature: Feature) -> bool {
        true
    }

    /// Makes what was written to frame `pfn` visible to the CPUs' fetching of instructions; called
    /// before an entry names it, on formats that want it so.
    #[inline(always)]
    fn flush_frame(_at: &Self::Instance, _pfn: Pfn) {}

    /// Where the kernel reaches frame `pfn`: for tables and slabs, which always have bytes.
    fn frame_ptr(at: &Self::Instance, pfn: Pfn) -> *mut u8;

    /// Asks for the line at `offset` of a user frame, to be written soon: a hint, and no access.
    #[inline(always)]
    fn prefetch_user(_at: &Self::Instance, _pfn: Pfn, _offset: u64) {}

    /// Fills a user frame with zeros. Charges the machine for it.
    fn clear(at: &Self::Instance, pfn: Pfn);

    /// The same, and asks for the lines of `next`, which is likely cleared soon: a hint, and no
    /// access.
    #[inline(always)]
    fn clear_before(at: &Self::Instance, pfn: Pfn, _next: Option<Pfn>) {
        Self::clear(at, pfn);
    }

    /// Copies a user frame. Charges the machine for it.
    fn copy(at: &Self::Instance, to: Pfn, from: Pfn);

    /// The same, and asks for the lines of `next`, which is likely copied into soon: a hint, and no
    /// access.
    #[inline(always)]
    fn copy_before(at: &Self::Instance, to: Pfn, from: Pfn, _next: Option<Pfn>) {
        Self::copy(at, to, from);
    }

    /// Loads the word at `offset` (a multiple of 8) of a user frame. Never a scheduling point: the
    /// translation was looked up just before.
    fn user_load(at: &Self::Instance, pfn: Pfn, offset: u64) -> u64;

    /// Stores the word at `offset` (a multiple of 8) of a user frame. Never a scheduling point.
    fn user_store(at: &Self::Instance, pfn: Pfn, offset: u64, value: u64);

    /// Stores the bytes of `value` that `mask` has set, whole ones, into the word at `offset` (a
    /// multiple of 8) of a user frame; the others are unchanged, also under concurrent stores to
    /// them. Never a scheduling point.
    ///
    /// This default is for machines on which nothing else runs meanwhile.
    #[inline]
    fn user_merge(at: &Self::Instance, pfn: Pfn, offset: u64, value: u64, mask: u64) {
        let kept = Self::user_load(at, pfn, offset) & !mask;
        Self::user_store(at, pfn, offset, kept | (value & mask));
    }

    /// Loads `to.len()` bytes from `offset` on of a user frame, within it. Bytes of one word are
    /// loaded at once; others may store to the frame meanwhile. Never a scheduling point.
    #[inline]
    fn read_bytes(at: &Self::Instance, pfn: Pfn, offset: u64, to: &mut [u8]) {
        bytes::read_by_words::<Self>(at, pfn, offset, to);
    }

    /// Stores the bytes of `from` from `offset` on of a user frame, within it. Bytes of one word
    /// are stored at once, and its other bytes are unchanged, as by [`Mmu::user_merge`]. Never a
    /// scheduling point.
    #[inline]
    fn write_bytes(at: &Self::Instance, pfn: Pfn, offset: u64, from: &[u8]) {
        bytes::write_by_words::<Self>(at, pfn, offset, from);
    }

    /// Copies a user frame to which others may store meanwhile: of what they do, any part is seen.
    /// Charges the machine for it.
    #[inline]
    fn copy_in_use(at: &Self::Instance, to: Pfn, from: Pfn) {
        Self::copy(at, to, from);
    }

    /// Something becomes of the entry at `at`. A machine that explores schedules prefers to switch
    /// after a sample, and keeps account of what entries name. True is the answer to
    /// [`EntryPoint::Decided`] only. Never a scheduling point.
    #[inline(always)]
    fn entry_point(_at: *const u8, _what: EntryPoint) -> bool {
        false
    }

    /// Before each user access: a place where other contexts may run and interrupts are taken.
    #[inline(always)]
    fn user_point(_at: &Self::Instance) {}

    /// Forgets this CPU's buffered translations of `range` in `space`.
    fn flush_local(at: &Self::Instance, space: SpaceId, range: VirtRange);

    /// Whether what the caller, which handles an interrupt, goes back to may use `space`, which its
    /// CPU activated last. If not, the CPU leaves the CPU mask of `space`.
    #[inline(always)]
    fn runs(_at: &Self::Instance, _space: SpaceId) -> bool {
        !Self::is_idle()
    }

    /// This CPU leaves the CPU mask of `space`, or `space` ends: what it has buffered of it is not
    /// to be used any more, and its root not to be loaded when this returns. For hardware that
    /// walks from a root ahead of accesses, and keeps translations of roots that are not loaded;
    /// what software buffers is flushed by [`Mmu::flush_local`].
    #[inline(always)]
    fn leave_space(_at: &Self::Instance, _space: SpaceId) {}

    /// Whether one CPU can flush the TLBs of all others without interrupting them.
    #[inline(always)]
    fn broadcasts(_at: &Self::Instance) -> bool {
        false
    }

    /// Forgets the translations of `range` in `space` on all CPUs. Called only where
    /// [`Mmu::broadcasts`] is true.
    #[inline(always)]
    fn flush_everywhere(_at: &Self::Instance, _space: SpaceId, _range: VirtRange) {}

    /// Forgets all of this CPU's buffered translations.
    fn flush_everything(at: &Self::Instance);

    /// The software translation buffer of CPU `cpu`; `None` where the hardware has its own. The
    /// caller is that CPU, or an oracle while nothing runs.
    fn tlb(at: &Self::Instance, cpu: u32) -> Option<&Tlb>;
}
