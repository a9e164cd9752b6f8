//! The numbers of a process's open files. Linux: `struct files_struct`, of which each process has
//! its own here.

use core::cell::UnsafeCell;

use minflt_mm::Errno;
use minflt_sync::SpinLock;
use minflt_sync::order::WaitLock;

use super::open::Open;
use crate::linux::{EBADF, EINVAL, EMFILE};
use crate::machine::Kernel;
use crate::pool::{Pool, Pooled, Ref};

/// Numbers in a part of the table.
const IN_PART: usize = 64;
/// Parts of it.
const PARTS: usize = 16;
/// As many numbers as there can be. Linux: `INR_OPEN_CUR`, which may be raised.
pub(crate) const MOST: usize = IN_PART * PARTS;

/// What becomes of a number in execve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtExec {
    /// It stays.
    Kept,
    /// It is closed.
    Closed,
}

/// A number that is used.
#[derive(Debug)]
struct Used {
    open: Ref<Open>,
    at_exec: AtExec,
}

/// Some numbers. Guarded by: the lock of the table that they are in.
pub(crate) struct Part(UnsafeCell<[Option<Used>; IN_PART]>);

// SAFETY: (1) touched under the lock of the one table that has it.
unsafe impl Sync for Part {}

static POOL: Pool<Part> = Pool::new();

impl Pooled for Part {
    fn new() -> Self {
        Self(UnsafeCell::new([const { None }; IN_PART]))
    }

    fn pool() -> &'static Pool<Self> {
        &POOL
    }

    /// All numbers were closed.
    fn clean(&self) {}
}

/// A table of numbers.
#[derive(Debug)]
pub(crate) struct Numbers(SpinLock<Table, WaitLock, Kernel>);

#[derive(Debug)]
struct Table {
    parts: [Option<Ref<Part>>; PARTS],
    /// A bit for each number that is used, by part.
    used: [u64; PARTS],
}

impl Table {
    /// What a number stands for; `None` where its part is missing. Its bit in `used`
    /// is for the caller to set.
    fn slot(&mut self, number: usize) -> Option<&mut Option<Used>> {
        let part = self.parts.get(number / IN_PART)?.as_ref()?;
        // SAFETY: (1) the table's lock is held, and `self` is borrowed.
        let slots = unsafe { &mut *part.0.get() };
        Some(&mut slots[number % IN_PART])
    }

    fn used(&mut self, number: u64) -> Result<&mut Used, Errno> {
        let number = usize::try_from(number).map_err(|_| EBADF)?;
        self.slot(number).and_then(Option::as_mut).ok_or(EBADF)
    }

    /// The lowest number from `from` on that is used, if `used`, or free.
    fn find(&self, from: usize, used: bool) -> Option<usize> {
        let mut part = from / IN_PART;
        let mut mask = u64::MAX << (from % IN_PART);
        while part < PARTS {
            let bits = if used {
                self.used[part]
            } else {
                !self.used[part]
            };
            if bits & mask != 0 {
                return Some(part * IN_PART + (bits & mask).trailing_zeros() as usize);
            }
            mask = u64::MAX;
            part += 1;
        }
        None
    }

    /// Puts something where there is room; what was there.
    fn set(&mut self, number: usize, new: Option<Used>) -> Option<Used> {
        let bit = 1 << (number % IN_PART);
        if new.is_some() {
            self.used[number / IN_PART] |= bit;
        } else {
            self.used[number / IN_PART] &= !bit;
        }
        match self.slot(number) {
            Some(slot) => core::mem::replace(slot, new),
            None => panic!("number {number} has no room"),
        }
    }
}

impl Numbers {
    /// None.
    pub(crate) fn new() -> Self {
        Self(SpinLock::new(Table {
            parts: [const { None }; PARTS],
            used: [0; PARTS],
        }))
    }

    /// The same as those of another process, whose own thread calls. Sleeps.
    pub(crate) fn copy_from(&self, other: &Self) -> Result<(), Errno> {
        for index in 0..PARTS {
            if other.0.lock().parts[index].is_none() {
                continue;
            }
            let part = POOL.take()?;
            self.0.lock().parts[index] = Some(part);
        }
        let mut theirs = other.0.lock();
        let mut mine = self.0.lock_second();
        let mut from = 0;
        while let Some(number) = theirs.find(from, true) {
            from = number + 1;
            let used = theirs.used(number as u64)?;
            let copy = Used {
                open: used.open.share(),
                at_exec: used.at_exec,
            };
            // A part that came meanwhile has only what another thread has opened meanwhile.
            if mine.slot(number).is_some() {
                let _nothing = mine.set(number, Some(copy));
            }
        }
        Ok(())
    }

    /// Closes all, or those that execve closes.
    fn close_where(&self, all: bool) {
        let mut from = 0;
        loop {
            let mut table = self.0.lock();
            let Some(number) = table.find(from, true) else {
                return;
            };
            from = number + 1;
            let goes = all
                || table
                    .used(number as u64)
                    .is_ok_and(|it| it.at_exec == AtExec::Closed);
            let closed = if goes { table.set(number, None) } else { None };
            drop(table);
            drop(closed);
        }
    }

    /// Closes all, at the process's end.
    pub(crate) fn close_all(&self) {
        self.close_where(true);
        for index in 0..PARTS {
            let part = self.0.lock().parts[index].take();
            drop(part);
        }
    }

    /// Closes what is not to outlast execve.
    pub(crate) fn exec(&self) {
        self.close_where(false);
    }

    /// What a number stands for. It stays open while the caller has it, also if another thread
    /// closes the number.
    pub(crate) fn get(&self, number: u64) -> Result<Ref<Open>, Errno> {
        // What is given is an int.
        let number = u64::from(number as u32);
        Ok(self.0.lock().used(number)?.open.share())
    }

    /// What becomes of a number in execve.
    pub(crate) fn at_exec(&self, number: u64) -> Result<AtExec, Errno> {
        Ok(self.0.lock().used(u64::from(number as u32))?.at_exec)
    }

    /// Sets that.
    pub(crate) fn set_at_exec(&self, number: u64, at_exec: AtExec) -> Result<(), Errno> {
        self.0.lock().used(u64::from(number as u32))?.at_exec = at_exec;
        Ok(())
    }

    /// Gives an open file the lowest number from `from` on that is free. Sleeps.
    ///
    /// # Errors
    /// `EMFILE` where there is none, `ENOMEM`.
    pub(crate) fn add(&self, open: Ref<Open>, from: usize, at_exec: AtExec) -> Result<u64, Errno> {
        loop {
            let mut table = self.0.lock();
            let Some(number) = table.find(from, false) else {
                drop(table);
                return Err(EMFILE);
            };
            if table.slot(number).is_some() {
                let _nothing = table.set(number, Some(Used { open, at_exec }));
                return Ok(number as u64);
            }
            drop(table);
            self.add_part(number / IN_PART)?;
        }
    }

    /// Makes a part of the table, unless another thread has made it meanwhile.
    fn add_part(&self, index: usize) -> Result<(), Errno> {
        let part = POOL.take()?;
        let mut table = self.0.lock();
        let other = if table.parts[index].is_none() {
            table.parts[index].replace(part)
        } else {
            Some(part)
        };
        drop(table);
        drop(other);
        Ok(())
    }

    /// Gives an open file this number, and closes what had it.
    pub(crate) fn put(&self, open: Ref<Open>, number: u64, at_exec: AtExec) -> Result<(), Errno> {
        let number = number as u32 as usize;
        if number >= MOST {
            return Err(EBADF);
        }
        loop {
            let mut table = self.0.lock();
            if table.slot(number).is_some() {
                let before = table.set(number, Some(Used { open, at_exec }));
                drop(table);
                drop(before);
                return Ok(());
            }
            drop(table);
            self.add_part(number / IN_PART)?;
        }
    }

    /// Takes a number back.
    pub(crate) fn close(&self, number: u64) -> Result<(), Errno> {
        let number = u64::from(number as u32);
        let mut table = self.0.lock();
        let _used = table.used(number)?;
        let closed = table.set(number as usize, None);
        drop(table);
        drop(closed);
        Ok(())
    }

    /// Takes back all from `first` to `last`, or says that execve is to.
    pub(crate) fn close_range(
        &self,
        first: u64,
        last: u64,
        at_exec_only: bool,
    ) -> Result<(), Errno> {
        if first > last {
            return Err(EINVAL);
        }
        for number in first..=last.min(MOST as u64 - 1) {
            let _was_open = if at_exec_only {
                self.set_at_exec(number, AtExec::Closed)
            } else {
                self.close(number)
            };
        }
        Ok(())
    }

    /// The lowest number from `from` on that is used.
    pub(crate) fn next_used(&self, from: u64) -> Option<u64> {
        let from = usize::try_from(from).unwrap_or(MOST);
        self.0.lock().find(from, true).map(|number| number as u64)
    }
}

/// How many parts of tables are left, for the last account of memory.
pub(crate) fn forget() -> u64 {
    POOL.forget()
}
