//! Spin-waiting for a word to change, from the waiter's side.

use crate::report::Outcome;
use crate::sched::{Handed, Peek, Spin};
use crate::trace::Event;
use crate::world::World;

/// Waits in an unwinding body after which it is given up.
const HOPELESS: u32 = 100_000;

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    pub(crate) peek: Peek,
    pub(crate) mask: u64,
    pub(crate) eq: u64,
    /// What the caller exchanges `eq`, which is the whole word then, for.
    pub(crate) takes: Option<u64>,
}

impl World<'_> {
    /// Waits until the line of a word, which was just seen with the wrong value, changes, or an
    /// interrupt was taken; what was done meanwhile of what comes next.
    pub(crate) fn spin(&self, wait: Wait) -> Handed {
        self.drain();
        let Some(offset) = self.at.offset(wait.peek.start(), 1) else {
            return Handed::Nothing;
        };
        let task = self.current.get();
        {
            let mut core = self.core.borrow_mut();
            core.record(task, || Event::Spins {
                place: self.at.place(offset),
                mask: wait.mask,
                eq: wait.eq,
            });
            let line = offset >> self.line_shift;
            let spin = Spin {
                line,
                offset,
                mask: wait.mask,
                eq: wait.eq,
                irqs_on: self.irqs_on(),
                peek: wait.peek,
                takes: wait.takes.filter(|_| core.carries_on()),
                node: self.at.node_at(line << self.line_shift),
            };
            core.spin(task, spin);
        }
        self.suspend();
        let handed = self.core.borrow_mut().handed(task);
        if handed != Handed::Taken {
            self.take_interrupts();
        }
        handed
    }

    /// Whether a wait cannot be, because a panic unwinds through the caller.
    pub(crate) fn is_lost(&self) -> bool {
        let lost = std::thread::panicking();
        if lost {
            self.hopeless.set(self.hopeless.get() + 1);
            if self.hopeless.get() > HOPELESS {
                self.stop(Outcome::Panic(
                    "it waits for what nobody will do".to_owned(),
                ));
            }
        }
        lost
    }
}
