//! Random steps on huge pages, in and around their window.

use super::{Choice, Draw, stays_inside};
use crate::model::Running;
use crate::random::Random;
use crate::record::Record;
use crate::step::{Call, Step};
use crate::window::{HOT, HUGE, HUGE_PAGES, HUGE_START, PAGE, Window, hot};
use minflt_spec::{TASK_SIZE, abi};

/// How often each call is drawn. `remote_read` is not: Linux pins what it reads, and so copies a
/// page that a child has, which the pool's counters show.
const WEIGHTS: [(Call, u64); 14] = [
    (Call::HugeMmap, 12),
    (Call::HugeMmapFile, 16),
    (Call::Munmap, 8),
    (Call::Mprotect, 10),
    (Call::Madvise, 14),
    (Call::Load, 20),
    (Call::Store, 34),
    (Call::RemoteWrite, 8),
    (Call::ForcedRead, 6),
    (Call::ForcedWrite, 6),
    (Call::Fork, 5),
    (Call::HugeFtruncate, 4),
    (Call::HugeFallocate, 7),
    (Call::HugePread, 3),
];

/// As [`super::case`], of huge pages.
#[must_use]
pub fn huge_case(random: &mut Random, count: usize, choice: &Choice) -> (Vec<Step>, Vec<Record>) {
    let mut running = Running::of(Window::Huge, choice);
    let mut draw = Draw {
        frees: false,
        exec_alone: false,
        stores: 0,
        random,
    };
    let mut steps = Vec::with_capacity(count);
    let mut records = Vec::with_capacity(count);
    while steps.len() < count {
        let step = draw.huge_step(&running);
        if step.call == Call::Fork && running.in_child() || !stays_inside(&step) {
            continue;
        }
        if let Some(record) = choice.step(&mut running, &step) {
            records.push(record);
            steps.push(step);
        }
    }
    (steps, records)
}

impl Draw<'_> {
    fn huge_call(&mut self) -> Call {
        let sum: u64 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
        let mut at = self.random.below(sum);
        let drawn = WEIGHTS.iter().find(|(_, weight)| {
            let here = at < *weight;
            at = at.saturating_sub(*weight);
            here
        });
        drawn.map_or(Call::Load, |(call, _)| *call)
    }

    /// The number of a huge page of the window.
    fn huge_page(&mut self, running: &Running) -> u64 {
        let vmas = running.space().vmas();
        if vmas.is_empty() || self.random.once_in(4) {
            return hot(self.random.below(HOT));
        }
        let vma = &vmas[self.random.below(vmas.len() as u64) as usize];
        let page = |addr: u64| (addr - HUGE_START) / HUGE;
        let (start, end) = (page(vma.start), page(vma.end));
        let drawn = match self.random.below(8) {
            0..2 => start,
            2 => end,
            3 => end - 1,
            4 => start.saturating_sub(1 + self.random.below(3)),
            _ => start + self.random.below((end - start).min(HOT / 2)),
        };
        let drawn = drawn.min(HUGE_PAGES - 1);
        let near = |bit: &u64| hot(*bit) >= drawn;
        hot((0..HOT).find(near).unwrap_or(0))
    }

    fn huge_addr(&mut self, running: &Running) -> u64 {
        let at = HUGE_START + self.huge_page(running) * HUGE;
        match self.random.below(40) {
            0..3 => at + self.random.pick(&[PAGE, HUGE - PAGE, HUGE / 2]),
            3 => at + self.random.pick(&[1, 8, 4095]),
            _ => at,
        }
    }

    fn huge_len(&mut self) -> u64 {
        let pages = match self.random.below(8) {
            0..6 => 1 + self.random.below(4),
            6 => 1 + self.random.below(16),
            _ => 1,
        };
        match self.random.below(60) {
            0 => self
                .random
                .pick(&[0, u64::MAX, TASK_SIZE, 1 << 46, u64::MAX - HUGE]),
            1..8 => pages * HUGE - self.random.pick(&[1, PAGE, HUGE - 1, HUGE / 2]),
            8 => 513 * HUGE,
            _ => pages * HUGE,
        }
    }

    fn huge_flags(&mut self) -> u64 {
        let mut flags = self.random.pick(&[abi::MAP_PRIVATE, abi::MAP_SHARED]);
        flags |= match self.random.below(8) {
            0..4 => abi::MAP_FIXED,
            4..6 => abi::MAP_FIXED_NOREPLACE,
            _ => 0,
        };
        for (bit, one_in) in [(abi::MAP_NORESERVE, 4), (abi::MAP_POPULATE, 6)] {
            if self.random.once_in(one_in) {
                flags |= bit;
            }
        }
        flags
    }

    fn huge_prot(&mut self) -> u64 {
        self.random.pick(&[3, 3, 3, 3, 3, 3, 3, 1, 1, 0, 2])
    }

    /// A word of a huge page: its first, or the one in its middle.
    fn huge_word(&mut self) -> u64 {
        self.random.pick(&[0, 0, 0, HUGE / 2])
    }

    /// A byte of the file.
    fn huge_byte(&mut self) -> u64 {
        let page = self.random.below(8) * HUGE;
        match self.random.below(12) {
            0 => page + self.random.pick(&[1, PAGE, HUGE / 2, HUGE - PAGE]),
            1 => (508 + self.random.below(12)) * HUGE,
            _ => page,
        }
    }

    fn huge_step(&mut self, running: &Running) -> Step {
        let call = self.huge_call();
        let step = |args: &[u64]| Step::new(call, args);
        let addr = self.huge_addr(running);
        let len = self.huge_len();
        match call {
            Call::HugeMmap | Call::HugeMmapFile => {
                let mut flags = self.huge_flags();
                let (mut addr, mut len) = (addr, len);
                if self.random.once_in(12) {
                    // An interval of one table and what is around it, for which there are not
                    // so many pages.
                    flags |= abi::MAP_NORESERVE;
                    flags &= !abi::MAP_POPULATE;
                    addr = HUGE_START + self.random.below(9) * HUGE;
                    len = (512 + self.random.below(16)) * HUGE;
                }
                let hint = self.hint(flags, addr);
                let prot = self.huge_prot();
                if call == Call::HugeMmap {
                    return step(&[hint, len, prot, flags | abi::MAP_ANONYMOUS]);
                }
                let offset = match self.random.below(30) {
                    0 => self.random.pick(&[PAGE, HUGE / 2, 8]),
                    _ => self.random.pick(&[0, 0, 0, 1, 2, 3]) * HUGE,
                };
                step(&[hint, len, prot, flags, offset])
            }
            Call::Mprotect => step(&[addr, len, self.huge_prot()]),
            Call::Madvise => step(&[addr, len, self.huge_advice()]),
            Call::Load | Call::ForcedRead => step(&[self.huge_place(running)]),
            Call::Store | Call::ForcedWrite => step(&[self.huge_place(running), self.value()]),
            // Words are known where a huge page begins, and in its middle.
            Call::RemoteWrite => step(&[self.huge_place(running), PAGE, self.value()]),
            Call::Fork => step(&[1 + self.random.below(10)]),
            Call::HugeFtruncate => {
                let odd = self.random.once_in(30);
                step(&[if odd { u64::MAX } else { self.huge_byte() }])
            }
            Call::HugeFallocate => {
                let mode = self.random.pick(&[3, 3, 3, 3, 0, 0, 0, 1, 2]);
                let from = self.huge_byte();
                let pages = self.random.below(5) * HUGE;
                let some = self.random.pick(&[0, 0, 0, 0, 0, 1, PAGE, HUGE / 2]);
                step(&[mode, from, pages + some])
            }
            Call::HugePread => step(&[self.huge_byte() & !(HUGE - 1) | self.huge_word()]),
            _ => step(&[addr, len]),
        }
    }

    fn huge_place(&mut self, running: &Running) -> u64 {
        HUGE_START + self.huge_page(running) * HUGE + self.huge_word()
    }

    fn huge_advice(&mut self) -> u64 {
        match self.random.below(12) {
            0..5 => abi::MADV_DONTNEED,
            5..7 => abi::MADV_REMOVE,
            _ => self.advice(),
        }
    }
}
