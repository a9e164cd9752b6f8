//! Random arguments of what a userfaultfd is told.

use super::Draw;
use crate::model::Running;
use crate::step::{Call, Step};
use crate::window::PAGE;
use minflt_spec::{Flags, Vma, abi};

impl Draw<'_> {
    /// A call of the userfaultfd.
    pub(super) fn of_userfaultfd(&mut self, running: &Running, call: Call, addr: u64) -> Step {
        let (addr, len) = match self.random.below(30) {
            0 => (addr, 0),
            1 => (addr, PAGE / 2),
            2..8 => (addr, (1 + self.random.below(4)) * PAGE),
            _ => self.part_of_one(running, call).unwrap_or((addr, PAGE)),
        };
        let step = |args: &[u64]| Step::new(call, args);
        match call {
            Call::UffdRegister => step(&[addr, len, self.random.pick(&[1, 1, 2, 3, 3, 3, 3, 0])]),
            Call::UffdUnregister => step(&[addr, len]),
            Call::UffdCopy => {
                let mode = self.random.pick(&[0, 0, 1, 2, 2, 3]);
                step(&[addr, len, self.value(), mode])
            }
            Call::UffdZeropage => step(&[addr, len, self.random.pick(&[0, 1])]),
            _ => {
                let protects = abi::UFFDIO_WRITEPROTECT_MODE_WP;
                let mode = self.random.pick(&[protects, protects, protects, 0, 2, 3]);
                step(&[addr, len, mode])
            }
        }
    }

    /// A range within one mapping that the call is likely to do something to.
    fn part_of_one(&mut self, running: &Running, call: Call) -> Option<(u64, u64)> {
        let space = running.space();
        let wanted = |vma: &&Vma| match call {
            Call::UffdRegister => vma.file.is_none(),
            Call::UffdWriteprotect => vma.flags.has(Flags::UFFD_WP),
            _ => vma.flags.has(Flags::UFFD),
        };
        let found: Vec<&Vma> = space.vmas().iter().filter(wanted).collect();
        let there = |page: u64| space.pages().any(|(number, _)| number == page);
        let fills = matches!(call, Call::UffdCopy | Call::UffdZeropage);
        // A hole before a page that is there, so that only a part is filled.
        if fills && self.random.once_in(3) {
            let mut pages = found
                .iter()
                .flat_map(|vma| vma.start / PAGE..vma.end / PAGE - 1);
            let half = pages.find(|page| !there(*page) && there(page + 1));
            if let Some(page) = half {
                return Some((page * PAGE, 2 * PAGE));
            }
        }
        let at = self.random.below(found.len() as u64) as usize;
        let vma = found.get(at)?;
        let mut first = vma.start / PAGE + self.random.below(vma.pages());
        // Holes are filled, most of the time.
        if fills && !self.random.once_in(4) {
            let mut pages = vma.start / PAGE..vma.end / PAGE;
            first = pages.find(|page| !there(*page))?;
        }
        let most = (vma.end / PAGE - first).min(4);
        Some((first * PAGE, (1 + self.random.below(most)) * PAGE))
    }
}
