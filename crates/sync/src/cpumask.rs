//! Sets of CPUs.

use crate::atomic::Atomic;
use crate::machine::Machine;
use crate::prim::Ordering;

/// The most CPUs a machine can have.
pub const MAX_CPUS: u32 = 2048;
const WORDS: usize = (MAX_CPUS / 64) as usize;

/// A private set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuMask {
    words: [u64; WORDS],
}

impl CpuMask {
    /// The empty set.
    #[must_use]
    pub const fn empty() -> Self {
        Self { words: [0; WORDS] }
    }

    /// Adds `cpu`, which is below [`MAX_CPUS`].
    pub const fn insert(&mut self, cpu: u32) {
        self.words[(cpu / 64) as usize] |= 1 << (cpu % 64);
    }

    /// Takes `cpu` out.
    pub const fn remove(&mut self, cpu: u32) {
        self.words[(cpu / 64) as usize] &= !(1 << (cpu % 64));
    }

    /// Whether `cpu` is in the set.
    #[must_use]
    pub const fn contains(&self, cpu: u32) -> bool {
        self.words[(cpu / 64) as usize] >> (cpu % 64) & 1 == 1
    }

    /// Whether the set is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The CPUs in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            core::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                (rest != 0).then(|| {
                    rest &= rest - 1;
                    at as u32 * 64 + bit
                })
            })
        })
    }
}

/// A shared set of CPUs: those that may hold translations of an address space.
#[derive(Debug)]
pub struct SharedCpuMask<M: Machine> {
    words: [Atomic<u64, M>; WORDS],
}

impl<M: Machine> SharedCpuMask<M> {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self {
            words: core::array::from_fn(|_| Atomic::new(0)),
        }
    }

    /// Adds `cpu`; a set that holds it already is only read.
    pub fn insert(&self, cpu: u32) {
        let (word, bit) = (&self.words[(cpu / 64) as usize], 1 << (cpu % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            // ORDERING: SeqCst; pairs with [mm-cpumask]: a CPU that reads a table entry after this
            // is seen by whoever changed the entry before reading the mask.
            word.or(bit, Ordering::SeqCst);
        }
    }

    /// Whether it holds `cpu`, which the caller is.
    #[inline]
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        let word = self.words[(cpu / 64) as usize].load(Ordering::Relaxed);
        word >> (cpu % 64) & 1 == 1
    }

    /// Leaves in `others` only what is in this set, too, as far as `cpus` CPUs; whether that is
    /// any.
    pub fn retain(&self, cpus: u32, others: &mut CpuMask) -> bool {
        let words = cpus.div_ceil(64) as usize;
        let mut any = false;
        for (to, from) in others.words.iter_mut().zip(&self.words).take(words) {
            if *to != 0 {
                // ORDERING: SeqCst; pairs with [mm-cpumask].
                *to &= from.load(Ordering::SeqCst);
                any |= *to != 0;
            }
        }
        any
    }

    /// Takes `cpu` out, which the caller is: it holds no translation any more.
    pub fn remove(&self, cpu: u32) {
        // ORDERING: SeqCst; pairs with [mm-cpumask]: as in `insert`, when the CPU comes back.
        self.words[(cpu / 64) as usize].and(!(1 << (cpu % 64)), Ordering::SeqCst);
    }

    /// Adds who is in the set, but for `me`, to `others`, as far as `cpus` CPUs; whether `me` is in
    /// it, and whether anybody else is.
    #[inline]
    pub fn split(&self, me: u32, cpus: u32, others: &mut CpuMask) -> (bool, bool) {
        let (mut here, mut any) = (false, false);
        let words = cpus.div_ceil(64) as usize;
        for (at, (to, from)) in others
            .words
            .iter_mut()
            .zip(&self.words)
            .enumerate()
            .take(words)
        {
            // ORDERING: SeqCst; pairs with [mm-cpumask].
            let mut word = from.load(Ordering::SeqCst);
            if at == (me / 64) as usize {
                here = word >> (me % 64) & 1 == 1;
                word &= !(1 << (me % 64));
            }
            any |= word != 0;
            *to |= word;
        }
        (here, any)
    }
}

impl<M: Machine> Default for SharedCpuMask<M> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::CpuMask;

    #[test]
    fn members_come_back_in_order() {
        let mut mask = CpuMask::empty();
        for cpu in [1023, 0, 64, 63] {
            mask.insert(cpu);
        }
        mask.remove(63);
        assert!(mask.iter().eq([0, 64, 1023]));
        assert!(mask.contains(64) && !mask.contains(63));
    }
}
