//! Calls that wait for one of several open files.

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use super::{Caller, signals, time};
use crate::arch::uaccess;
use crate::fs::numbers::MOST;
use crate::fs::path::Buffer;
use crate::linux::{EFAULT, EINVAL, RESTART_IF_QUIET};
use crate::machine;
use crate::watch::{self, Ended};

/// Bytes of `struct pollfd`.
const BYTES: u64 = 8;
/// How many of them fit into a page.
const IN_PAGE: u64 = 512;

/// Looks at each file; how many have something to tell. What they have is stored when there is one,
/// or at the end.
fn look(caller: &Caller<'_, '_>, at: u64, count: u64, buffer: &mut Buffer) -> Result<u64, Errno> {
    let files = caller.process.files();
    let mut found = 0;
    let bytes = (BYTES * count) as usize;
    let entries = &mut buffer.bytes()[..bytes];
    uaccess::copy_from_user(entries, at)?;
    for entry in entries.chunks_exact_mut(BYTES as usize) {
        let fd = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
        let wanted = u32::from(u16::from_le_bytes([entry[4], entry[5]]));
        let always = abi::POLLERR | abi::POLLHUP | abi::POLLNVAL;
        let events = match u64::try_from(fd) {
            Err(_) => 0,
            Ok(fd) => match files.get(fd) {
                Ok(open) => open.poll() & (wanted | always),
                Err(_) => abi::POLLNVAL,
            },
        };
        entry[6..8].copy_from_slice(&(events as u16).to_le_bytes());
        found += u64::from(events != 0);
    }
    Ok(found)
}

fn poll_until(
    caller: &Caller<'_, '_>,
    at: u64,
    count: u64,
    deadline: Option<u64>,
) -> Result<u64, Errno> {
    let count = u64::from(count as u32);
    if count > IN_PAGE {
        return Err(EINVAL);
    }
    let mut buffer = Buffer::new()?;
    let found = watch::wait(deadline, || match look(caller, at, count, &mut buffer) {
        Ok(0) => None,
        found => Some(found),
    });
    let found = match found {
        Ok(found) => found?,
        Err(Ended::Late) => 0,
        Err(Ended::Interrupted) => return Err(RESTART_IF_QUIET),
    };
    // Of each entry the last two bytes are the answer.
    let bytes = (BYTES * count) as usize;
    for (index, entry) in buffer.bytes()[..bytes]
        .chunks_exact(BYTES as usize)
        .enumerate()
    {
        let to = at + BYTES * index as u64 + 6;
        uaccess::copy_to_user(to, &entry[6..8])?;
    }
    Ok(found)
}

/// The time until which to wait, from one to wait for in milliseconds: for ever if that is
/// negative.
fn until(milliseconds: u64) -> Option<u64> {
    let milliseconds = u64::try_from(milliseconds as i32).ok()?;
    Some(machine::now_ns().saturating_add(milliseconds * 1_000_000))
}

pub(super) fn poll(caller: &Caller<'_, '_>, at: u64, count: u64, time: u64) -> Result<u64, Errno> {
    poll_until(caller, at, count, until(time))
}

/// The time until which to wait, from one to wait for at `at`.
fn until_at(at: u64) -> Result<Option<u64>, Errno> {
    match at {
        0 => Ok(None),
        at => Ok(Some(machine::now_ns().saturating_add(time::read(at)?))),
    }
}

pub(super) fn ppoll(
    caller: &Caller<'_, '_>,
    [at, count, time, mask, bytes, _]: [u64; 6],
) -> Result<u64, Errno> {
    let deadline = until_at(time)?;
    signals::set_mask_for_call(mask, bytes)?;
    poll_until(caller, at, count, deadline)
}

/// Words of a set of numbers, of which `count` matter.
const WORDS: usize = MOST / 64;
type Numbers = [u64; WORDS];

fn load_set(at: u64, count: u64) -> Result<Numbers, Errno> {
    let mut set = [0; WORDS];
    if at != 0 {
        for (index, word) in set.iter_mut().enumerate().take(count.div_ceil(64) as usize) {
            *word = uaccess::load(at.checked_add(8 * index as u64).ok_or(EFAULT)?)?;
        }
    }
    let whole = (count / 64) as usize;
    if let Some(word) = set.get_mut(whole) {
        *word &= !(u64::MAX << (count % 64));
    }
    Ok(set)
}

fn store_set(at: u64, count: u64, set: &Numbers) -> Result<(), Errno> {
    if at != 0 {
        for (index, word) in set.iter().enumerate().take(count.div_ceil(64) as usize) {
            uaccess::store(at.checked_add(8 * index as u64).ok_or(EFAULT)?, *word)?;
        }
    }
    Ok(())
}

/// What poll says that means for each of the three sets of select. Linux: fs/select.c.
const MEANS: [u32; 3] = [
    abi::POLLIN | abi::POLLRDNORM | abi::POLLRDBAND | abi::POLLHUP | abi::POLLERR,
    abi::POLLOUT | abi::POLLWRNORM | abi::POLLWRBAND | abi::POLLERR,
    abi::POLLPRI,
];

fn select_until(
    caller: &Caller<'_, '_>,
    count: u64,
    sets: [u64; 3],
    deadline: Option<u64>,
) -> Result<u64, Errno> {
    if count >> 31 != 0 {
        return Err(EINVAL);
    }
    let count = count.min(MOST as u64);
    let wanted = [
        load_set(sets[0], count)?,
        load_set(sets[1], count)?,
        load_set(sets[2], count)?,
    ];
    let mut ready = [[0; WORDS]; 3];
    let files = caller.process.files();
    let found = watch::wait(deadline, || {
        ready = [[0; WORDS]; 3];
        let mut found = 0;
        for number in 0..count {
            let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
            if wanted.iter().all(|set| set[word] & bit == 0) {
                continue;
            }
            let events = match files.get(number) {
                Ok(open) => open.poll(),
                Err(error) => return Some(Err(error)),
            };
            for ((ready, wanted), means) in ready.iter_mut().zip(&wanted).zip(MEANS) {
                if wanted[word] & bit != 0 && events & means != 0 {
                    ready[word] |= bit;
                    found += 1;
                }
            }
        }
        (found > 0).then_some(Ok(found))
    });
    let found = match found {
        Ok(found) => found?,
        Err(Ended::Late) => 0,
        Err(Ended::Interrupted) => return Err(RESTART_IF_QUIET),
    };
    for (at, set) in sets.into_iter().zip(&ready) {
        store_set(at, count, set)?;
    }
    Ok(found)
}

/// What is left of the time is stored, as Linux does.
pub(super) fn select(
    caller: &Caller<'_, '_>,
    [count, read, write, except, time, _]: [u64; 6],
) -> Result<u64, Errno> {
    let deadline = match time {
        0 => None,
        at => Some(machine::now_ns().saturating_add(time::read_micro(at)?)),
    };
    let found = select_until(caller, count, [read, write, except], deadline)?;
    if let Some(deadline) = deadline {
        time::write_micro(time, deadline.saturating_sub(machine::now_ns()))?;
    }
    Ok(found)
}

pub(super) fn pselect(
    caller: &Caller<'_, '_>,
    [count, read, write, except, time, mask]: [u64; 6],
) -> Result<u64, Errno> {
    let deadline = until_at(time)?;
    if mask != 0 {
        let set = uaccess::load(mask)?;
        let bytes = uaccess::load(mask.checked_add(8).ok_or(EFAULT)?)?;
        signals::set_mask_for_call(set, bytes)?;
    }
    select_until(caller, count, [read, write, except], deadline)
}
