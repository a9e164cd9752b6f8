//! The program that stores to every page.

use super::File;
use crate::contents::{SAMPLE, expect, tag};
use crate::target::{Oracle, Prot, Stop, Worker};

/// One instance. What it stored in a page says in which of its passes it did.
pub(super) fn body<W: Worker>(w: &mut W, file: &File) -> Result<(), Stop> {
    let ready = file
        .settle(w)
        .and_then(|()| pass(w, file, (0, u64::MAX)).map(|_| ()));
    let mut touched = 0;
    file.measure(w, ready, |w, end_ns| {
        let done = pass(w, file, (touched / file.pages + 1, end_ns))?;
        touched += done;
        Ok(done)
    })?;
    check(w, file, touched)
}

/// Maps the file, stores to its pages until `end_ns`, at least to one, and unmaps it. Returns to
/// how many it stored.
fn pass<W: Worker>(w: &mut W, file: &File, (number, end_ns): (u64, u64)) -> Result<u64, Stop> {
    let at = w.map_huge_common(Prot::ReadWrite)?;
    let mut done = 0;
    while done < file.pages {
        let value = tag(w.index(), done, repetition(number));
        w.store(file.place(at, done), value)?;
        done += 1;
        if w.now_ns() >= end_ns {
            break;
        }
    }
    w.unmap(at, file.bytes())?;
    Ok(done)
}

/// What a tag has room for.
const fn repetition(pass: u64) -> u32 {
    (pass & 0x7fff) as u32
}

/// Every 61st page, and the last, must hold what the last pass that came to it stored; pass 0 came
/// to all.
fn check<W: Worker>(w: &mut W, file: &File, touched: u64) -> Result<(), Stop> {
    let at = w.map_huge_common(Prot::Read)?;
    let (whole, rest) = (touched / file.pages, touched % file.pages);
    let last = file.pages - 1;
    let mut looks = 0;
    for page in (0..last).step_by(SAMPLE as usize).chain([last]) {
        let pass = whole + u64::from(page < rest);
        let value = tag(w.index(), page, repetition(pass));
        expect(w, file.place(at, page), value)?;
        looks += 1;
    }
    w.checked(Oracle::Contents, looks);
    w.unmap(at, file.bytes())
}
