//! Per-CPU data: one `T` per CPU, each on cache lines of its own.

use crate::cx::TaskId;
use crate::machine::Machine;
use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Line size that keeps neighbours apart on every machine modelled (prefetchers pair 64-byte
/// lines).
pub const APART: usize = 128;

/// In a `repr(C)` struct: fields after this share no cache line with fields before.
#[derive(Clone, Copy, Debug)]
#[repr(align(128))]
pub struct Apart;

const _: () = assert!(align_of::<Apart>() == APART && size_of::<Apart>() == 0);

/// One `T` for each CPU.
pub struct PerCpu<T, M> {
    base: NonNull<T>,
    cpus: u32,
    machine: PhantomData<fn() -> M>,
}

// SAFETY: hands out shared references only, to a `T` that may be shared.
unsafe impl<T: Sync, M> Sync for PerCpu<T, M> {}
// SAFETY: as above; it owns no thread-bound state.
unsafe impl<T: Sync, M> Send for PerCpu<T, M> {}

impl<T, M: Machine> PerCpu<T, M> {
    const STRIDE: usize = size_of::<T>().next_multiple_of(APART);

    /// Bytes that `cpus` areas need, to be aligned to [`APART`].
    #[must_use]
    pub const fn bytes(cpus: u32) -> usize {
        Self::STRIDE * cpus as usize
    }

    /// Builds the areas in place, each from `init(cpu)`.
    ///
    /// # Safety
    /// 1. `at` is valid for [`PerCpu::bytes`] bytes, aligned to [`APART`], used by nobody else, and
    ///    outlives the value.
    pub unsafe fn build(at: NonNull<u8>, cpus: u32, mut init: impl FnMut(u32) -> T) -> Self {
        for cpu in 0..cpus {
            // SAFETY: 1 of this function: the area lies within the bytes given.
            let area = unsafe { at.add(Self::STRIDE * cpu as usize) }.cast::<T>();
            // SAFETY: 1 of this function: nobody else uses the area.
            unsafe { area.write(init(cpu)) };
        }
        Self {
            base: at.cast(),
            cpus,
            machine: PhantomData,
        }
    }

    /// How many CPUs there are.
    #[inline(always)]
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.cpus
    }

    /// The area of `cpu`.
    ///
    /// # Panics
    /// If the machine has no such CPU.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, cpu: u32) -> &T {
        if cpu >= self.cpus {
            no_cpu(cpu, self.cpus);
        }
        // SAFETY: `build` wrote `cpus` areas.
        let area = unsafe { self.base.byte_add(Self::STRIDE * cpu as usize) };
        // SAFETY: written by `build`, shared from then on.
        unsafe { area.as_ref() }
    }

    /// The area of the CPU the caller runs on.
    #[inline(always)]
    #[must_use]
    pub fn this(&self) -> &T {
        self.get(this_cpu::<M>())
    }

    /// Whose area a host address lies in, and how many bytes into it: for names.
    #[must_use]
    pub fn find(&self, at: usize) -> Option<(u32, usize)> {
        let offset = at.checked_sub(self.base.as_ptr() as usize)?;
        let cpu = offset / Self::STRIDE.max(1);
        (cpu < self.cpus as usize).then_some((cpu as u32, offset % Self::STRIDE.max(1)))
    }

    /// All areas, by CPU.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.cpus).map(|cpu| self.get(cpu))
    }
}

/// Takes numbers, not references: those would have to lie in memory on the way that is good.
#[cold]
#[inline(never)]
fn no_cpu(cpu: u32, cpus: u32) -> ! {
    if cpu == u32::MAX {
        panic!("this needs a CPU, and the calling thread is none of the machine's {cpus}");
    }
    panic!("no CPU {cpu}: the machine has {cpus}")
}

/// The CPU the caller runs on.
#[inline(always)]
#[must_use]
pub fn this_cpu<M: Machine>() -> u32 {
    // SAFETY: duty 1 of `Machine`.
    unsafe { (*M::cx()).cpu.get() }
}

/// The task the caller is.
#[inline(always)]
#[must_use]
pub fn this_task<M: Machine>() -> TaskId {
    // SAFETY: duty 1 of `Machine`.
    unsafe { (*M::cx()).task.get() }
}

impl<T, M> fmt::Debug for PerCpu<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PerCpu({})", self.cpus)
    }
}
