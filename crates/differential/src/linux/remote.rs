//! Reading and writing as another process does. The other one is the process itself: the calls are
//! the same.

use super::area::Area;
use super::child::returned;
use super::sys;
use crate::model::fold;
use crate::window::PAGE;

/// A piece of memory, as the calls that read another process take it.
#[repr(C)]
struct Piece {
    start: u64,
    len: u64,
}

/// Words behind the records, for pages on their way.
const SCRATCH: usize = 1 << 19;

fn remote(area: &mut Area, number: libc::c_long, addr: u64, len: u64) -> Result<u64, i32> {
    let scratch = sys::address(&mut area.words()[SCRATCH]);
    let mut here = Piece {
        start: scratch,
        len,
    };
    let mut there = Piece { start: addr, len };
    let pid = sys::call(libc::SYS_getpid, [0; 6])?;
    let (here, there) = (sys::address(&mut here), sys::address(&mut there));
    sys::call(number, [pid, here, 1, there, 1, 0])
}

/// Reads the window as another process does.
pub(super) fn remote_read(area: &mut Area, addr: u64, len: u64) -> [u64; 4] {
    match remote(area, libc::SYS_process_vm_readv, addr, len) {
        Ok(bytes) => {
            let words = &area.words()[SCRATCH..];
            let pages = 0..bytes.div_ceil(PAGE) as usize;
            [0, bytes, fold(pages.map(|page| words[page * 512])), 0]
        }
        Err(errno) => returned(Err(errno)),
    }
}

/// Pages of which number `i` begins with the word `value + i`; where they are.
pub(super) fn pages_of(area: &mut Area, len: u64, value: u64) -> u64 {
    let words = &mut area.words()[SCRATCH..];
    for page in 0..len.div_ceil(PAGE) as usize {
        words[page * 512..(page + 1) * 512].fill(0);
        words[page * 512] = value.wrapping_add(page as u64);
    }
    sys::address(&mut words[0])
}

/// Writes to the window as another process does.
pub(super) fn remote_write(area: &mut Area, addr: u64, len: u64, value: u64) -> [u64; 4] {
    pages_of(area, len, value);
    returned(remote(area, libc::SYS_process_vm_writev, addr, len))
}
