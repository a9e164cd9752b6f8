//! Calls that write down what they say.

use super::child::returned;
use super::sys;
use crate::record::bits;
use crate::window::{PAGE, PAGES};

pub(super) fn mincore(addr: u64, len: u64) -> [u64; 4] {
    let mut pages = [0_u8; 4096];
    let args = [addr, len, sys::address(&mut pages), 0, 0, 0];
    match sys::call(libc::SYS_mincore, args) {
        Ok(_) => {
            let asked = len.div_ceil(PAGE).min(PAGES);
            let present = (0..asked).filter(|page| pages[*page as usize] & 1 != 0);
            let [low, high] = bits(present);
            [0, 0, low, high]
        }
        Err(errno) => returned(Err(errno)),
    }
}

pub(super) fn get_mempolicy(addr: u64, how: u64) -> [u64; 4] {
    let mut mode = 0_i32;
    let mut nodes = [0_u64; 16];
    let (mode_at, nodes_at) = (sys::address(&mut mode), sys::address(&mut nodes));
    let args = [mode_at, nodes_at, 1024, addr, how, 0];
    match sys::call(libc::SYS_get_mempolicy, args) {
        Ok(_) => [0, u64::from(mode.cast_unsigned()), nodes[0], 0],
        Err(errno) => returned(Err(errno)),
    }
}
