//! Frames: where they are, and the verbs that reach what is in them.

use crate::board::{At, Board, On};
use crate::{Bed, Broken, Check, RAM_BYTES, ensure, same};
use minflt_addr::Pfn;
use minflt_pgtable::{Mmu, Paging};
use minflt_sync::Instance;

/// What is checked here.
pub(crate) const fn checks<B: Bed>() -> [Check<B>; 9] {
    [
        Check::new(
            1,
            "layout",
            "memory is zero, aligned, and one frame behind the other",
            layout,
        ),
        Check::new(
            1,
            "ranges",
            "what is said to be memory is pages that keep what is stored",
            ranges,
        ),
        Check::new(
            1,
            "nodes",
            "CPUs have nodes, and nodes have distances",
            nodes,
        ),
        Check::new(1, "words", "a store touches the word named", words),
        Check::new(1, "clear", "a cleared frame is zero, and no other", clear),
        Check::new(1, "copy", "a copy is equal to the last word", copy),
        Check::new(
            1,
            "bytes",
            "a bulk copy is of the bytes named, and no others",
            bytes,
        ),
        Check::new(
            2,
            "bytes-beside",
            "a bulk store leaves the other bytes of its first and last word",
            bytes_beside,
        ),
        Check::new(2, "merge", "a store of some bytes leaves the others", merge),
    ]
}

/// The page of the machine's format.
fn page<B: Bed>() -> u64 {
    <On<B> as Mmu>::Paging::page()
}

/// Frame `n` of the machine's memory.
fn frame<B: Bed>(at: &At<B>, n: u64) -> Pfn {
    Pfn((at.ram_phys() >> <On<B> as Mmu>::Paging::shift()) + n)
}

/// The frames that a check of contents uses: neighbours, a few pages in.
fn some<B: Bed>(at: &At<B>) -> [Pfn; 3] {
    [20, 21, 22].map(|n| frame::<B>(at, n))
}

/// Offsets that are looked at: both ends, and one between. A machine that keeps one word of each
/// frame is asked for the one that was stored last.
fn offsets<B: Bed>() -> [u64; 3] {
    [0, 1928, page::<B>() - 8]
}

/// Memory is as large as promised, aligned, zero, and has its frames one behind the other.
fn layout<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let ram = at.ram();
    let bytes = first_range::<B>(&at);
    ensure("bytes of memory", bytes, RAM_BYTES, bytes >= RAM_BYTES)?;
    let page = page::<B>();
    same("bytes beyond the last whole page", bytes % page, 0)?;
    let large = page.max(64 << 10);
    same(
        "the first byte's address beyond a large page's",
        ram.base as usize as u64 % large,
        0,
    )?;
    same(
        "its physical address beyond a page's",
        at.ram_phys() % page,
        0,
    )?;
    for n in [0, 1, 2, 77, bytes / page - 1] {
        let pfn = frame::<B>(&at, n);
        let there = On::<B>::frame_ptr(&at, pfn) as usize as u64;
        same(
            "where a frame is",
            there,
            ram.base as usize as u64 + n * page,
        )?;
        for offset in offsets::<B>() {
            same(
                "a word of unused memory",
                On::<B>::user_load(&at, pfn, offset),
                0,
            )?;
        }
    }
    Ok(())
}

/// Bytes up to the first hole.
fn first_range<B: Bed>(at: &At<B>) -> u64 {
    let mut first = None;
    at.memory_ranges(&mut |range| first = first.or(Some(range.end - range.start)));
    first.unwrap_or(0)
}

/// The ranges of memory are whole pages behind each other, the first at the start of RAM; each has
/// memory from its first frame to its last.
fn ranges<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let (page, start) = (page::<B>(), at.ram_phys());
    let end = start + at.ram().bytes as u64;
    let (mut before, mut result) = (None, Ok(()));
    at.memory_ranges(&mut |range| {
        let follows = before.map_or(range.start == start, |before| range.start > before);
        before = Some(range.end);
        let examined = ensure("where a range begins", range.start, start, follows)
            .and_then(|()| same("bytes before its first page", range.start % page, 0))
            .and_then(|()| same("bytes behind its last page", range.end % page, 0))
            .and_then(|()| ensure("where it ends", range.end, end, range.end <= end))
            .and_then(|()| bed.alone(&at, || keeps::<B>(&at, range.start, range.end)));
        result = result.and(examined);
    });
    result?;
    ensure("ranges of memory", 0, 1, before.is_some())
}

/// The first and the last frame of a range are different memory, which keeps what is stored.
fn keeps<B: Bed>(at: &At<B>, start: u64, end: u64) -> Result<(), Broken> {
    let shift = <On<B> as Mmu>::Paging::shift();
    let both = [start >> shift, (end >> shift) - 1].map(Pfn);
    for pfn in both {
        same("a word of unused memory", On::<B>::user_load(at, pfn, 0), 0)?;
        On::<B>::user_store(at, pfn, 0, pfn.0 + 1);
    }
    for pfn in both {
        let found = On::<B>::user_load(at, pfn, 0);
        same("what was stored at an end of a range", found, pfn.0 + 1)?;
        On::<B>::user_store(at, pfn, 0, 0);
    }
    Ok(())
}

/// Memory nodes: each CPU is on one, distances are as ACPI wants them.
fn nodes<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let nodes = at.nodes();
    ensure("memory nodes", nodes.into(), 1, nodes >= 1)?;
    same("CPUs", at.cpus().into(), bed.cpus().into())?;
    for cpu in 0..at.cpus() {
        let node = at.node_of(cpu);
        ensure(
            "the node of a CPU",
            node.into(),
            u64::from(nodes) - 1,
            node < nodes,
        )?;
    }
    for a in 0..nodes {
        same("a node's distance to itself", at.distance(a, a).into(), 10)?;
        for b in 0..nodes {
            let far = at.distance(a, b);
            ensure("a distance", far.into(), 10, far >= 10)?;
        }
        same(
            "how many nodes there are by distance",
            at.near_first(a).count() as u64,
            nodes.into(),
        )?;
    }
    Ok(())
}

/// What is stored in a frame is there, and nowhere else.
fn words<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let [below, here, above] = some::<B>(&at);
    bed.alone(&at, || {
        for offset in offsets::<B>() {
            On::<B>::user_store(&at, here, offset, offset + 7);
            same(
                "what was stored",
                On::<B>::user_load(&at, here, offset),
                offset + 7,
            )?;
            untouched::<B>(&at, &[below, above])?;
        }
        Ok(())
    })
}

/// Nothing was stored in these frames.
fn untouched<B: Bed>(at: &At<B>, frames: &[Pfn]) -> Result<(), Broken> {
    for pfn in frames {
        for offset in offsets::<B>() {
            let found = On::<B>::user_load(at, *pfn, offset);
            same("a word of a frame that was not named", found, 0)?;
        }
    }
    Ok(())
}

/// Fills a frame as far as the machine keeps what is in it.
fn fill<B: Bed>(at: &At<B>, pfn: Pfn) {
    let last = page::<B>() - 8;
    let first = if On::<B>::ONE_WORD { last } else { 0 };
    (first..=last)
        .step_by(8)
        .for_each(|offset| On::<B>::user_store(at, pfn, offset, !offset));
}

/// What [`fill`] left at `offset`.
fn filled<B: Bed>(offset: u64) -> u64 {
    let kept = !On::<B>::ONE_WORD || offset == page::<B>() - 8;
    if kept { !offset } else { 0 }
}

/// The words of `pfn`, all of them, are as `wanted` says.
fn all_are<B: Bed>(
    at: &At<B>,
    pfn: Pfn,
    what: &'static str,
    wanted: impl Fn(u64) -> u64,
) -> Result<(), Broken> {
    for offset in (0..page::<B>()).step_by(8) {
        same(what, On::<B>::user_load(at, pfn, offset), wanted(offset))?;
    }
    Ok(())
}

/// A cleared frame is zero from the first word to the last, and no other is.
fn clear<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let [below, here, above] = some::<B>(&at);
    bed.alone(&at, || {
        for clear_next in [None, Some(above)] {
            [below, here, above]
                .iter()
                .for_each(|pfn| fill::<B>(&at, *pfn));
            match clear_next {
                None => On::<B>::clear(&at, here),
                next => On::<B>::clear_before(&at, here, next),
            }
            all_are::<B>(&at, here, "a word of a cleared frame", |_| 0)?;
            for beside in [below, above] {
                all_are::<B>(&at, beside, "a word beside a cleared frame", filled::<B>)?;
            }
        }
        Ok(())
    })
}

/// A way to copy: to the first from the second; the third is likely next.
type Way<B> = fn(&At<B>, Pfn, Pfn, Pfn);

/// A copied frame is like the other from the first word to the last.
fn copy<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let [to, from, next] = some::<B>(&at);
    bed.alone(&at, || {
        fill::<B>(&at, from);
        let ways: [Way<B>; 3] = [
            |at, to, from, _| On::<B>::copy(at, to, from),
            |at, to, from, next| On::<B>::copy_before(at, to, from, Some(next)),
            |at, to, from, _| On::<B>::copy_in_use(at, to, from),
        ];
        for way in ways {
            On::<B>::clear(&at, to);
            way(&at, to, from, next);
            all_are::<B>(&at, to, "a word of a copy", filled::<B>)?;
            all_are::<B>(&at, from, "a word of what was copied", filled::<B>)?;
            untouched::<B>(&at, &[next])?;
        }
        Ok(())
    })
}

/// Stores of some bytes of a word leave the others, also those that another CPU stores meanwhile.
fn merge<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let [_, here, _] = some::<B>(&at);
    let board = Board::<On<B>>::of(&at);
    let offset = 8;
    bed.run(&at, 2, &|cpu| {
        let shift = 32 * u64::from(cpu);
        let mask = 0xffff_ffff << shift;
        let mine = || (On::<B>::user_load(&at, here, offset) & mask) >> shift;
        for n in 1..=500 {
            board.meet(2, 2 * n - 1)?;
            On::<B>::user_merge(&at, here, offset, n << shift, mask);
            board.meet(2, 2 * n)?;
            same("this CPU's bytes of a word that two stored to", mine(), n)?;
        }
        Ok(())
    })
}

/// Byte `at` of what bulk stores store.
const fn byte(at: u64) -> u8 {
    (at * 7 + at / 251 + 1) as u8
}

/// Bulk loads and stores at odd offsets and of odd lengths, to the end of the page and across many
/// words, where the machine keeps them.
fn bytes<B: Bed>(bed: &B) -> Result<(), Broken> {
    const MOST: usize = 300;
    let at = bed.machine();
    let [below, here, above] = some::<B>(&at);
    let end = page::<B>();
    bed.alone(&at, || {
        for (offset, len) in [
            (0, 8),
            (3, 4),
            (16, 1),
            (5, MOST),
            (64, 256),
            (end - 299, 299),
            (end - 8, 8),
        ] {
            if On::<B>::ONE_WORD && offset % 8 + len as u64 > 8 {
                continue;
            }
            On::<B>::clear(&at, here);
            let mut buffer = [0; MOST];
            (offset..)
                .zip(&mut buffer)
                .for_each(|(at, it)| *it = byte(at));
            On::<B>::write_bytes(&at, here, offset, &buffer[..len]);
            let mut read = [0; MOST];
            On::<B>::read_bytes(&at, here, offset, &mut read[..len]);
            for (found, wanted) in read.iter().zip(&buffer[..len]) {
                same("a byte that was stored", (*found).into(), (*wanted).into())?;
            }
            let stored = |at: u64| (offset..offset + len as u64).contains(&at);
            all_are::<B>(&at, here, "a word where bytes were stored", |word| {
                let bytes = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| word + n);
                let bytes = bytes.map(|at| if stored(at) { byte(at) } else { 0 });
                u64::from_ne_bytes(bytes)
            })?;
            untouched::<B>(&at, &[below, above])?;
        }
        Ok(())
    })
}

/// Bulk stores that share their first and last word with those of another CPU.
fn bytes_beside<B: Bed>(bed: &B) -> Result<(), Broken> {
    let at = bed.machine();
    let [_, here, _] = some::<B>(&at);
    let board = Board::<On<B>>::of(&at);
    // The first has bytes 8 to 12, the other one the rest of that word, and more where it is kept.
    let len = if On::<B>::ONE_WORD { 3 } else { 20 };
    let parts = [(8, 5), (13, len)];
    bed.run(&at, 2, &|cpu| {
        let (offset, len) = parts[cpu as usize];
        for n in 1..=200_u8 {
            board.meet(2, 2 * u64::from(n) - 1)?;
            On::<B>::write_bytes(&at, here, offset, &[n; 20][..len]);
            board.meet(2, 2 * u64::from(n))?;
            let mut read = [0; 20];
            On::<B>::read_bytes(&at, here, offset, &mut read[..len]);
            for found in &read[..len] {
                same(
                    "a byte of a word that two stored to",
                    (*found).into(),
                    n.into(),
                )?;
            }
        }
        Ok(())
    })
}
