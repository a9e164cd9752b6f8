//! The statistics of one cache line.

use crate::model::Ps;

/// A set of CPUs; nothing is allocated for one of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cpus {
    /// The first CPU to come, plus 1.
    first: u32,
    /// All of them, once there is a second.
    bits: Vec<u64>,
}

impl Cpus {
    pub(crate) fn insert(&mut self, cpu: u32) {
        if self.first == cpu + 1 {
            return;
        }
        if self.first == 0 {
            self.first = cpu + 1;
            return;
        }
        if self.bits.is_empty() {
            self.set(self.first - 1);
        }
        self.set(cpu);
    }

    fn set(&mut self, cpu: u32) {
        let word = cpu as usize / 64;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (cpu % 64);
    }

    pub(crate) fn count(&self) -> u32 {
        if self.bits.is_empty() {
            u32::from(self.first != 0)
        } else {
            self.bits.iter().map(|word| word.count_ones()).sum()
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        if other.first == 0 {
            return;
        }
        self.insert(other.first - 1);
        for (at, word) in other.bits.iter().enumerate() {
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                self.insert(at as u32 * 64 + bit);
            }
        }
    }
}

/// Time that a word cost, in one activity.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) word: u8,
    pub(crate) activity: u8,
    pub(crate) moves: u64,
    pub(crate) queued: Ps,
    pub(crate) moved: Ps,
    pub(crate) spun: Ps,
    pub(crate) slept: Ps,
}

impl Part {
    pub(crate) const fn time(&self) -> Ps {
        self.queued + self.moved + self.spun + self.slept
    }
}

/// One line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The name of each word touched, as a number.
    pub(crate) words: Vec<(u8, u32)>,
    pub(crate) parts: Vec<Part>,
    pub(crate) touched: Cpus,
    pub(crate) writers: Cpus,
    /// CPUs that waited: in the queue, spinning or asleep.
    pub(crate) waiters: Cpus,
    pub(crate) writes: u64,
    /// Operations that wrote it, each counted once.
    pub(crate) written_by_ops: u64,
    /// Accesses cost a hit.
    pub(crate) free: bool,
}

impl Record {
    pub(crate) fn part(&mut self, word: u8, activity: u8) -> &mut Part {
        let same = |part: &Part| part.word == word && part.activity == activity;
        let at = match self.parts.iter().position(same) {
            Some(at) => at,
            None => {
                self.parts.push(Part {
                    word,
                    activity,
                    ..Part::default()
                });
                self.parts.len() - 1
            }
        };
        &mut self.parts[at]
    }

    pub(crate) fn name_of(&self, word: u8) -> Option<u32> {
        let found = self.words.iter().find(|(at, _)| *at == word);
        found.map(|(_, name)| *name)
    }

    pub(crate) fn time(&self) -> Ps {
        self.parts.iter().map(Part::time).sum()
    }

    /// The word that cost most.
    pub(crate) fn costliest(&self) -> Option<u8> {
        let words = self.words.iter().map(|(word, _)| *word);
        let cost = |word: u8| -> Ps {
            let parts = self.parts.iter().filter(|part| part.word == word);
            parts.map(Part::time).sum()
        };
        words.max_by_key(|word| (cost(*word), u8::MAX - *word))
    }
}

#[cfg(test)]
mod tests {
    use super::Cpus;

    #[test]
    fn a_set_counts_each_cpu_once() {
        let mut cpus = Cpus::default();
        for cpu in [3, 3, 700, 3, 0, 700] {
            cpus.insert(cpu);
        }
        assert_eq!(cpus.count(), 3);
        let mut one = Cpus::default();
        one.insert(5);
        one.add(&cpus);
        one.add(&Cpus::default());
        assert_eq!(one.count(), 4);
    }
}
