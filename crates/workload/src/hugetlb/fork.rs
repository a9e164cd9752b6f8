//! The program that forks.

use super::File;
use crate::contents::{expect, tag};
use crate::target::{Oracle, Prot, Stop, Worker};
use minflt_addr::VirtAddr;

/// One instance.
pub(super) fn body<W: Worker>(w: &mut W, file: &File, few: u64) -> Result<(), Stop> {
    // The pages are there when the loop begins.
    let ready = file.settle(w).and_then(|()| {
        let at = w.map_huge_common(Prot::ReadWrite)?;
        fill(w, file, at, (few, 0))?;
        w.unmap(at, file.bytes())
    });
    let mut round = 0;
    file.measure(w, ready, |w, _| {
        round += 1;
        let at = w.map_huge_common(Prot::ReadWrite)?;
        fill(w, file, at, (few, round))?;
        w.fork(|_| Ok(()))?;
        w.unmap(at, file.bytes())?;
        Ok(1)
    })?;
    check(w, file, (few, round))
}

fn fill<W: Worker>(
    w: &mut W,
    file: &File,
    at: VirtAddr,
    (few, round): (u64, u32),
) -> Result<(), Stop> {
    (0..few).try_for_each(|page| w.store(file.place(at, page), tag(w.index(), page, round)))
}

fn all_hold<W: Worker>(
    w: &mut W,
    file: &File,
    at: VirtAddr,
    (few, round): (u64, u32),
) -> Result<(), Stop> {
    for page in 0..few {
        let value = tag(w.index(), page, round);
        expect(w, file.place(at, page), value)?;
    }
    w.checked(Oracle::Contents, few);
    Ok(())
}

/// A child sees what its parent stored before it forked, and the parent what the child stored: the
/// memory is shared.
fn check<W: Worker>(w: &mut W, file: &File, (few, round): (u64, u32)) -> Result<(), Stop> {
    let at = w.map_huge_common(Prot::ReadWrite)?;
    all_hold(w, file, at, (few, round))?;
    let by_child = round.wrapping_add(1);
    w.fork(|child| {
        all_hold(child, file, at, (few, round))?;
        fill(child, file, at, (few, by_child))
    })?;
    all_hold(w, file, at, (few, by_child))?;
    w.unmap(at, file.bytes())
}
