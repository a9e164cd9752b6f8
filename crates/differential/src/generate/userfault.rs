//! Random arguments of what a userfaultfd is told.

use super::Draw;
use crate::model::Running;
use crate::step::{Call, Step};
use crate::window::PAGE;
use minflt_spec::{Flags, abi};

impl Draw<'_> {
    /// A call of the userfaultfd.
    pub(super) fn of_userfaultfd(&mut self, running: &Running, call: Call, addr: u64) -> Step {
        let len = match self.random.below(40) {
            0 => 0,
            1 => PAGE / 2,
            _ => (1 + self.random.below(4)) * PAGE,
        };
        let addr = match call {
            Call::UffdRegister | Call::UffdUnregister => addr,
            _ => self.watched(running).unwrap_or(addr),
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

    /// A page that is watched, most of the time.
    fn watched(&mut self, running: &Running) -> Option<u64> {
        let vmas = running.space().vmas();
        let watched: Vec<_> = vmas
            .iter()
            .filter(|vma| vma.flags.has(Flags::UFFD))
            .collect();
        if watched.is_empty() || self.random.once_in(6) {
            return None;
        }
        let vma = watched[self.random.below(watched.len() as u64) as usize];
        Some(vma.start + self.random.below(vma.pages()) * PAGE)
    }
}
