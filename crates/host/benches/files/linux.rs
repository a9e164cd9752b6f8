//! The same by real system calls.

use crate::WINDOW;
use crate::common::machine::{CpuTime, PAGE};
use std::io;

/// The rows, in the order of what [`measure`] returns.
pub(crate) const ROWS: [&str; 2] = [
    "pieces of a page: ns a load",
    "pieces of 16 pages: ns a load",
];

/// Pieces that are mapped at a time.
const PIECES: u64 = 1024;

/// Nanoseconds, one number a row.
pub(crate) fn measure(pages: u64) -> io::Result<Vec<f64>> {
    // SAFETY: the name is a string that ends.
    let file = unsafe { libc::memfd_create(c"files".as_ptr(), 0) };
    check(file)?;
    let bytes = (pages * PAGE) as i64;
    // SAFETY: a file of ours; all of its memory is taken.
    check(unsafe { libc::fallocate(file, 0, 0, bytes) })?;
    let one = pieces(file, 1, pages)?;
    let window = pieces(file, WINDOW, pages)?;
    // SAFETY: a file of ours, used no more.
    check(unsafe { libc::close(file) })?;
    Ok(vec![one, window])
}

/// Maps pieces of so many pages, the last of the file first, so that no two merge; loads once from
/// each.
fn pieces(file: i32, pages: u64, all: u64) -> io::Result<f64> {
    let count = (all / WINDOW).min(PIECES);
    let len = (pages * PAGE) as usize;
    // The addresses ahead, so that each piece stands where a window begins.
    let area = (count * WINDOW * PAGE) as usize;
    // SAFETY: a new anonymous mapping, wherever the kernel likes, overlaps nothing.
    let base = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            area + (WINDOW * PAGE) as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let aligned = (base.addr() as u64).next_multiple_of(WINDOW * PAGE);
    for piece in 0..count {
        let at = core::ptr::without_provenance_mut((aligned + piece * WINDOW * PAGE) as usize);
        let offset = ((count - 1 - piece) * WINDOW * PAGE) as i64;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        // SAFETY: within the area, where nothing is used.
        let mapped = unsafe { libc::mmap(at, len, libc::PROT_READ, flags, file, offset) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
    }
    let start = CpuTime::start();
    for piece in 0..count {
        let at = (aligned + piece * WINDOW * PAGE) as usize;
        let at: *const u64 = core::ptr::with_exposed_provenance(at);
        // SAFETY: mapped above, within the file.
        core::hint::black_box(unsafe { at.read_volatile() });
    }
    let ns = start.ns() / count as f64;
    // SAFETY: mapped above, and nothing in it is used any more.
    check(unsafe { libc::munmap(base, area + (WINDOW * PAGE) as usize) })?;
    Ok(ns)
}

fn check(returned: i32) -> io::Result<()> {
    if returned < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
