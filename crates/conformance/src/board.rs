//! Words in the machine's memory that contexts of a check share.
//!
//! They lie in the first frames, which nobody has before a system is made: a simulated machine
//! keeps account of accesses to its own memory only.

use crate::{Bed, Broken, ensure};
use core::fmt;
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::{Atomic, Instance, Machine, Ordering};

/// The least memory of a machine: what the checks of frames and of systems use.
pub const RAM_BYTES: u64 = 64 << 20;

/// How often who waits for another context looks, before it says that nothing came.
const LOOKS: u32 = 8_000;
/// And how long at least, where looking costs almost nothing: in simulation.
const LEAST_NS: u64 = 2_000_000;
/// Looks without letting others run in between.
const QUICK: u32 = 200;

/// The machine of a bed.
pub(crate) type On<B> = <B as Bed>::Machine;
/// Its instances.
pub(crate) type At<B> = <On<B> as Machine>::Instance;

/// A word on a line of its own.
#[repr(C, align(128))]
pub(crate) struct Place<M: Mmu> {
    pub(crate) word: Atomic<u64, M>,
    pub(crate) half: Atomic<u32, M>,
}

/// The words.
#[repr(C)]
pub(crate) struct Board<M: Mmu> {
    /// For the check itself.
    pub(crate) places: [Place<M>; 8],
    /// Handlers of interrupts count here: CPU by CPU.
    pub(crate) taken: [Place<M>; CPUS],
    /// Where contexts meet.
    meeting: Place<M>,
}

/// CPUs that checks look at.
pub(crate) const CPUS: usize = 4;

impl<M: Mmu> Board<M> {
    /// The words of a machine in its first state: all are zero.
    pub(crate) fn of(at: &M::Instance) -> &Self {
        const { assert!(size_of::<Self>() <= 4096, "within the smallest page") };
        let first = Pfn(at.ram_phys() >> M::Paging::shift());
        let base = M::frame_ptr(at, first).cast_const().cast::<Self>();
        // SAFETY: 1 of `Mmu`: the bytes of a page are valid as long as the instance, zero, which is
        // a valid word, and aligned. No system has this memory yet, and what else looks at the
        // frame does so by words.
        unsafe { &*base }
    }

    /// Word `n`.
    pub(crate) fn word(&self, n: usize) -> &Atomic<u64, M> {
        &self.places[n].word
    }

    /// Word `n` of 32 bits.
    pub(crate) fn half(&self, n: usize) -> &Atomic<u32, M> {
        &self.places[n].half
    }

    /// How many interrupts CPU `cpu` took.
    pub(crate) fn taken(&self, cpu: u32) -> u64 {
        self.taken[cpu as usize].word.load(Ordering::Acquire)
    }

    /// Waits until word `n` is `value`.
    pub(crate) fn settle(&self, what: &'static str, n: usize, value: u64) -> Result<(), Broken> {
        settle::<M>(what, value, || self.word(n).load(Ordering::Acquire))
    }

    /// Waits until `cpus` contexts have called it as often as this one, which says how often that
    /// is: `round`, from 1.
    pub(crate) fn meet(&self, cpus: u32, round: u64) -> Result<(), Broken> {
        let all = u64::from(cpus) * round;
        let here = &self.meeting.word;
        // What came before the meeting is seen by all after it.
        let before = here.add(1, Ordering::AcqRel);
        if before + 1 >= all {
            return Ok(());
        }
        let came = || u64::from(here.load(Ordering::Acquire) >= all);
        settle::<M>("the other context did not come to the meeting", 1, came)
    }
}

impl<M: Mmu> fmt::Debug for Board<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Board")
    }
}

/// Waits until `look` gives `value`, and not for ever. Acknowledges interrupts, if they are on.
pub(crate) fn settle<M: Mmu>(
    what: &'static str,
    value: u64,
    look: impl Fn() -> u64,
) -> Result<(), Broken> {
    let began = M::clock_ns().unwrap_or(0);
    let mut found = look();
    let mut looks = 0;
    let waited = || M::clock_ns().is_none_or(|now| now - began >= LEAST_NS);
    while found != value && (looks < LOOKS || !waited()) {
        if looks >= QUICK {
            M::pass();
        }
        looks += 1;
        found = look();
    }
    ensure(what, found, value, found == value)
}
