//! What the window looks like.

use super::Machine;
use super::files::Files;
use crate::files::HALF;
use crate::record::{MapLine, Snapshot, addr_of, bits, smaps_flags};
use crate::window::{PAGES, START, Window};
use minflt_addr::VirtAddr;
use minflt_mm::{Force, Mapped, Mm};
use minflt_pgtable::Paging;

/// Nothing is faulted in by looking: only pages that an entry maps are read, as a debugger reads.
/// `last`: whether the files and the flags are asked for, too.
pub(super) fn snapshot<P: Paging>(
    mm: &Mm<Machine<P>>,
    files: &Files<'_, P>,
    last: bool,
) -> Result<Snapshot, String> {
    let mut found = [Mapped::Nothing; PAGES as usize];
    mm.pagemap(VirtAddr(START), &mut found);
    let of = |kind: Mapped| {
        let pages = (0..).zip(found).filter(move |(_, found)| *found == kind);
        pages.map(|(page, _)| page)
    };
    let mut words = words_of(mm, of(Mapped::Private))?;
    words.retain(|(_, word)| *word != 0);
    let text = |print: &dyn Fn(&mut String) -> core::fmt::Result| {
        let mut text = String::new();
        print(&mut text).map_err(|error| error.to_string())?;
        Ok::<_, String>(text)
    };
    let maps = text(&|out| mm.maps(out))?;
    let flags = match last {
        true => Some(smaps_flags(&text(&|out| mm.smaps(out))?, Window::Small)),
        false => None,
    };
    Ok(Snapshot {
        maps: lines(&maps, Window::Small, |number| files.which(number))?,
        present: Some(bits(of(Mapped::Private))),
        words,
        of_files: words_of(mm, of(Mapped::OfFile))?,
        files: if last { Some(files.shots()?) } else { None },
        pool: None,
        flags,
    })
}

/// The words of pages, by their place among all.
fn words_of<P: Paging>(
    mm: &Mm<Machine<P>>,
    pages: impl Iterator<Item = u64>,
) -> Result<Vec<(u64, u64)>, String> {
    let mut words = Vec::new();
    for place in pages.flat_map(|page| [2 * page, 2 * page + 1]) {
        let at = VirtAddr(addr_of(place / 2) + place % 2 * HALF);
        let mut word = [0; 8];
        mm.remote_read(at, &mut word, Force::Yes)
            .map_err(|error| format!("page @{} is there, but not to read: {error:?}", place / 2))?;
        words.push((place, u64::from_le_bytes(word)));
    }
    Ok(words)
}

/// The mappings of the window out of the text of `maps`.
pub(super) fn lines(
    maps: &str,
    window: Window,
    which: impl Fn(u64) -> u64,
) -> Result<Vec<MapLine>, String> {
    let (start, end) = (window.range().start().0, window.range().end().0);
    let mut lines = Vec::new();
    for text in maps.lines() {
        let line = line(text, &which).ok_or_else(|| format!("no line of maps: `{text}`"))?;
        if line.start < end && line.end > start {
            lines.push(MapLine {
                start: line.start.max(start),
                end: line.end.min(end),
                ..line
            });
        }
    }
    Ok(lines)
}

fn line(text: &str, which: impl Fn(u64) -> u64) -> Option<MapLine> {
    let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
    let mut words = text.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let rights = (0..).zip(words.next()?.chars().zip("rwxs".chars()));
    let rights = rights.fold(0, |all, (bit, (has, letter))| {
        all | u64::from(has == letter) << bit
    });
    let offset = hexadecimal(words.next()?)?;
    let number = words.nth(1)?.parse().ok()?;
    Some(MapLine {
        start: hexadecimal(start)?,
        end: hexadecimal(end)?,
        rights,
        of: which(number),
        offset,
    })
}
