//! Remarks for traces that are no accesses: frees, flushes, uses of a page's contents.

use crate::here;
use crate::trace::{Event, Place};
use crate::world::World;
use minflt_addr::VirtRange;

impl World<'_> {
    /// Records a step of the current task that is about the byte at `at`.
    pub(crate) fn remark(&self, at: usize, event: impl FnOnce(Place) -> Event) {
        if let Some(offset) = self.at.offset(at, 1) {
            let place = self.at.place(offset);
            let task = self.current.get();
            self.core.borrow_mut().record(task, || event(place));
        }
    }
}

/// Does something for the trace, where a run that is checked keeps one.
#[inline]
pub(crate) fn traced<const CHECKED: bool>(remark: impl FnOnce(&World<'_>)) {
    if CHECKED
        && let Some(world) = here::here()
        && world.core.borrow().trace.is_some()
    {
        remark(world);
    }
}

/// A flush of this CPU's TLB, of `range` or of everything.
#[inline]
pub(crate) fn flushes<const CHECKED: bool>(range: Option<VirtRange>) {
    traced::<CHECKED>(|world| {
        let range = range.map(|range| (range.start().0, range.end().0));
        let task = world.current.get();
        let mut core = world.core.borrow_mut();
        core.record(task, || Event::Flushes(range));
    });
}
