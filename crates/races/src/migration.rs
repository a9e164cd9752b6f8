//! What happens in the races about pages that are moved to another frame while those who have them
//! go on.
//!
//! Pages are moved by their address, under `mmap_lock` for reading, as from a fault; or by the
//! frame they are in, by somebody who holds nothing. A move that finds the page in use gives up,
//! which is no mistake while the tasks run. When they have ended nothing is in use, and every scene
//! ends with a move that has to succeed ([`moves_at_last`]).

use super::disk::Disk;
use super::entries::leaf;
use super::files::File;
use super::forks::Child;
use super::pins;
use super::scenes::{Body, boxed, expect, tasks};
use super::stage::{Checked, Script, Stage};
use core::cell::{Cell, RefCell};
use minflt_addr::{Pfn, VirtAddr};
use minflt_mm::{Event, Mm, MovePageError, Prot, Remap, RemapRequest, Sharing, Signal};
use minflt_pgtable::{Access, Paging};
use minflt_sync::{Instance, Machine};
use std::rc::Rc;

/// The node that pages are moved to.
pub(super) const FAR: u32 = 1;
/// Where mappings are moved to.
const THERE: u64 = 8;

/// Maps pages `from..to`, of which each holds its number.
pub(super) fn touched<P: Paging>(stage: Stage<'_, P>, from: u64, to: u64) {
    stage.map(from, to);
    let thread = stage.thread();
    for n in from..to {
        assert!(thread.store(stage.page(n), n).is_ok(), "alone, and mapped");
    }
}

/// The frame of page `n`, which is there, and which nobody uses yet.
pub(super) fn frame_of<P: Paging>(stage: Stage<'_, P>, n: u64) -> Pfn {
    leaf(stage, n).load().pfn()
}

/// Whether a move may end so, while others may use the page.
pub(super) fn fine(moved: Result<(), MovePageError>) {
    use MovePageError::{Busy, NoNode, NotThere};
    // A machine of one CPU has one node.
    let fine = matches!(moved, Ok(()) | Err(Busy | NotThere | NoNode));
    assert!(fine, "{moved:?}");
}

/// Moves what is in frame `pfn`.
pub(super) fn mover<'s, P: Paging>(stage: Stage<'s, P>, pfn: Pfn) -> Body<'s> {
    boxed(move || fine(stage.sys.move_frame(pfn, FAR)))
}

/// Moves the page at page `n` of an address space there and back.
fn move_to_and_fro<P: Paging>(stage: Stage<'_, P>, mm: &Mm<Checked<P>>, n: u64) {
    for node in [FAR, 0] {
        fine(mm.move_page(stage.page(n), node));
    }
}

/// When the tasks have ended: all adds up, of these address spaces; and page `n` of the first holds
/// `expected`, before and after it is moved once more.
pub(super) fn left<P: Paging>(
    stage: Stage<'_, P>,
    alive: &[&Mm<Checked<P>>],
    n: u64,
    expected: Result<u64, Signal>,
) -> Result<(), String> {
    adds_up(stage, alive, n, expected)?;
    moves_at_last(stage, alive[0], stage.page(n))?;
    holds(stage, alive[0], n, expected)
}

/// The same of a page that is not moved.
pub(super) fn adds_up<P: Paging>(
    stage: Stage<'_, P>,
    alive: &[&Mm<Checked<P>>],
    n: u64,
    expected: Result<u64, Signal>,
) -> Result<(), String> {
    // Whoever loads a page that nobody puts back waits for ever.
    let ledger = stage.sys.check_ledger(alive);
    ledger.map_err(|error| format!("ledger: {error}"))?;
    holds(stage, alive[0], n, expected)
}

/// Page `n` of an address space holds `expected`.
fn holds<P: Paging>(
    stage: Stage<'_, P>,
    mm: &Mm<Checked<P>>,
    n: u64,
    expected: Result<u64, Signal>,
) -> Result<(), String> {
    let found = mm.thread().load(stage.page(n));
    if found == expected {
        return Ok(());
    }
    Err(format!(
        "contents: page {n} holds {found:?}, not {expected:?}"
    ))
}

/// The tasks have ended, so nothing refers to the page at `addr` but what maps it: it is moved to
/// the other node and back, if there is one.
pub(super) fn moves_at_last<P: Paging>(
    stage: Stage<'_, P>,
    mm: &Mm<Checked<P>>,
    addr: VirtAddr,
) -> Result<(), String> {
    if stage.sys.machine().nodes() < 2 {
        return Ok(());
    }
    let before = stage.sys.count_of(Event::PagesMigrated);
    for node in [FAR, 0] {
        let moved = mm.move_page(addr, node);
        moved.map_err(|error| format!("move: nobody else uses {addr}, and it says {error:?}"))?;
    }
    // One of the two nodes was where it was already.
    match stage.sys.count_of(Event::PagesMigrated) - before {
        0 => Err(format!("move: {addr} was moved, and no page was")),
        _ => Ok(()),
    }
}

/// P10: a page that a child shares is moved, while the child takes a part of its mapping out, which
/// splits it, and ends.
pub(super) fn child<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 3);
    let child = Child::of(stage);
    let bodies = vec![
        boxed(move || move_to_and_fro(stage, stage.mm, 2)),
        boxed(move || {
            let done = child.mm().munmap(stage.page(1), P::page());
            assert!(done.is_ok(), "mapped");
            child.exit();
        }),
    ];
    tasks(bodies, move || left(stage, &[stage.mm], 2, Ok(2)))
}

/// P11: a page is moved under `mmap_lock` for reading, while the first store to a mapping between
/// its own and another brings that under their anon_vma.
pub(super) fn first_fault<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 3);
    stage.unmap(1, 1);
    // Numbers of mappings say where their spans stand: after these the next one stands above both.
    for _ in 0..LATER {
        stage.map(THERE, THERE + 1);
        stage.unmap(THERE, 1);
    }
    let place = minflt_mm::Place::FixedNoReplace(stage.page(1));
    // Not one with its neighbours, and yet alike.
    let prot = Prot::READ_WRITE.with(Prot::EXEC);
    assert!(stage.mm.mmap(place, P::page(), prot).is_ok(), "free");
    let bodies = vec![
        boxed(move || move_to_and_fro(stage, stage.mm, 2)),
        boxed(move || {
            let thread = stage.thread();
            let stored = thread.store(stage.page(1), 7);
            expect(stage, &thread, 1, stored.map(|()| 7));
        }),
    ];
    tasks(bodies, move || left(stage, &[stage.mm], 2, Ok(2)))
}

/// Mappings made and taken out before that of [`first_fault`].
const LATER: u64 = 4;

/// P12: mremap moves the mapping of a page that is being moved back to where it was split off:
/// there it is part of a mapping that a walk comes to before the one that it leaves.
pub(super) fn remap<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 2);
    protect_page(stage, 1, Prot::READ);
    move_mapping(stage, 1, THERE);
    protect_page(stage, THERE, Prot::READ_WRITE);
    let pfn = frame_of(stage, THERE);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || move_mapping(stage, THERE, 1)),
    ];
    tasks(bodies, move || left(stage, &[stage.mm], 1, Ok(1)))
}

/// mprotect of one page.
pub(super) fn protect_page<P: Paging>(stage: Stage<'_, P>, n: u64, prot: Prot) {
    let done = stage.mm.mprotect(stage.page(n), P::page(), prot);
    assert!(done.is_ok(), "mapped: {done:?}");
}

/// mremap of one page.
pub(super) fn move_mapping<P: Paging>(stage: Stage<'_, P>, from: u64, to: u64) {
    let moved = stage.thread().mremap(&RemapRequest {
        old: stage.page(from),
        old_len: P::page(),
        new_len: P::page(),
        how: Remap::Fixed(stage.page(to)),
    });
    assert_eq!(moved, Ok(stage.page(to)));
}

/// P13: fork while a page is moved. Child and parent then store to it.
pub(super) fn fork<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 1);
    let pfn = frame_of(stage, 0);
    let born = Rc::new(RefCell::new(None));
    let child = Rc::clone(&born);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            let child = Child::of(stage);
            assert!(stage.thread().store(stage.page(0), 7).is_ok(), "mapped");
            *born.borrow_mut() = Some(child);
        }),
    ];
    tasks(bodies, move || {
        let Some(child) = child.take() else {
            return Err("fork did not return".into());
        };
        left(stage, &[child.mm(), stage.mm], 0, Ok(0))?;
        left(stage, &[stage.mm, child.mm()], 0, Ok(7))?;
        child.end(stage)
    })
}

/// P14: mprotect(READ) while a page is moved that was stored to.
pub(super) fn protect<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 1);
    let pfn = frame_of(stage, 0);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            protect_page(stage, 0, Prot::READ);
            let thread = stage.thread();
            expect(stage, &thread, 0, Ok(0));
            if thread.store(stage.page(0), 6) != Err(Signal::AccErr) {
                Checked::<P>::violation(format_args!(
                    "protection: a store succeeded after mprotect(READ) returned"
                ));
            }
        }),
    ];
    tasks(bodies, move || left(stage, &[stage.mm], 0, Ok(0)))
}

/// P15: a page is moved while one thread stores to it all the time, and another loads.
pub(super) fn store<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 1);
    let pfn = frame_of(stage, 0);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            let thread = stage.thread();
            for value in 1..5 {
                let stored = thread.store(stage.page(0), value);
                expect(stage, &thread, 0, stored.map(|()| value));
            }
        }),
        boxed(move || grows(stage, 0)),
    ];
    tasks(bodies, move || left(stage, &[stage.mm], 0, Ok(4)))
}

/// What page 0 holds becomes larger, and is `before` at first.
pub(super) fn grows<P: Paging>(stage: Stage<'_, P>, mut before: u64) {
    let thread = stage.thread();
    for _ in 0..3 {
        let found = thread.load(stage.page(0));
        match found {
            Ok(found) if found >= before => before = found,
            _ => Checked::<P>::violation(format_args!(
                "contents: page 0 holds {found:?} after {before}"
            )),
        }
    }
}

/// A page is moved while somebody pins it without a lock, and stores by the pin.
pub(super) fn pin<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    touched(stage, 0, 1);
    let pfn = frame_of(stage, 0);
    let pinned = Rc::new(Cell::new(false));
    let was = Rc::clone(&pinned);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            let thread = stage.thread();
            let Some(pin) = thread.pin_fast(stage.page(0), Access::Write) else {
                return;
            };
            was.set(true);
            for value in [5, 6] {
                assert!(pin.store(0, value).is_ok(), "pinned for stores");
                expect(stage, &thread, 0, Ok(value));
            }
        }),
    ];
    tasks(bodies, move || {
        let expected = if pinned.get() { 6 } else { 0 };
        left(stage, &[stage.mm], 0, Ok(expected))
    })
}

/// A page of a file is moved while one stores to it by a mapping, and another writes it back.
pub(super) fn written<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let disk = Disk::fresh();
    let file = File::on(stage, disk);
    file.map(stage, 0, 1, Prot::READ_WRITE, Sharing::Shared);
    assert!(stage.thread().store(stage.page(0), 1).is_ok(), "alone");
    let pfn = frame_of(stage, 0);
    let syncer = Rc::clone(&file);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            let thread = stage.thread();
            for value in 2..4 {
                let stored = thread.store(stage.page(0), value);
                expect(stage, &thread, 0, stored.map(|()| value));
            }
        }),
        boxed(move || syncer.write_back()),
    ];
    tasks(bodies, move || {
        left(stage, &[stage.mm], 0, Ok(3))?;
        file.write_back();
        let found = disk.word(0);
        if found != 3 {
            return Err(format!(
                "writeback: {found} is on the disk, and 3 was stored"
            ));
        }
        file.end()
    })
}

/// A page of a file is moved while a hole is made of it.
pub(super) fn hole<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let file = File::in_memory(stage);
    file.map(stage, 0, 2, Prot::READ_WRITE, Sharing::Shared);
    assert!(stage.thread().store(stage.page(1), 1).is_ok(), "alone");
    let pfn = frame_of(stage, 1);
    let cut = Rc::clone(&file);
    let bodies = vec![
        mover(stage, pfn),
        boxed(move || {
            cut.punch(1);
            expect(stage, &stage.thread(), 1, Ok(0));
        }),
    ];
    tasks(bodies, move || {
        left(stage, &[stage.mm], 1, Ok(0))?;
        file.end()
    })
}

/// A page is moved while a handler protects it and reads it twice, beside one who stores to it.
pub(super) fn watched<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let mut script = pins::protect_copy(stage);
    if P::bits().uffd_wp != 0 {
        script.tasks.push(mover(stage, frame_of(stage, 0)));
        moved_at_the_end(stage, &mut script, 0);
    }
    script
}

/// Whatever has to be true at the end of a script: and page `n` can be moved.
fn moved_at_the_end<'s, P: Paging>(stage: Stage<'s, P>, script: &mut Script<'s>, n: u64) {
    let at_end = core::mem::replace(&mut script.at_end, Box::new(|| Ok(())));
    script.at_end = Box::new(move || {
        at_end()?;
        moves_at_last(stage, stage.mm, stage.page(n))
    });
}

/// A page is moved while somebody pins it without a lock, and another forks.
pub(super) fn pin_fork<'s, P: Paging>(stage: Stage<'s, P>) -> Script<'s> {
    let mut script = pins::fork_pin(stage);
    script.tasks.push(mover(stage, frame_of(stage, 0)));
    moved_at_the_end(stage, &mut script, 0);
    script
}
