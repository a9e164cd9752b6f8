//! Huge pages of the machine: its pool, which the harness sets and gives back as it was; what its
//! counters say; and the file of such pages.
//!
//! The pool is the whole machine's. So one run at a time has it, by a lock on a file, and a case
//! counts only if nothing was reserved or in use before it or after it.

use super::child::{read_word, returned};
use super::sys;
use crate::files::HUGE_PAGES;
use crate::record::bits;
use crate::step::{Call, Step};
use crate::window::{HOT, HUGE, HUGE_START, PAGE, POOL, hot};
use core::time::Duration;
use minflt_spec::abi;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

const WANTED: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &core::ffi::CStr = c"/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
const RESERVED: &core::ffi::CStr = c"/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages";
/// How often it is looked whether others are done with the pool, and how long it is waited.
const LOOKS: u32 = 40;
const WAIT: Duration = Duration::from_millis(50);

/// The pool of the machine, as long as the harness has it.
#[derive(Debug)]
pub(super) struct Pool {
    /// What it was before, if that was something else.
    before: Option<String>,
    counters: [i32; 2],
    file: OwnedFd,
    inode: u64,
    _alone: File,
}

impl Pool {
    /// Takes it.
    ///
    /// # Errors
    /// Why it cannot be had, in words.
    pub(super) fn take() -> Result<Self, String> {
        let alone = lock()?;
        let failed = |what: &'static str| move |errno| format!("{what}: errno {errno}");
        let counter = |path| sys::open(path, libc::O_RDONLY);
        let counters = [
            counter(FREE).map_err(failed("huge pages of 2 MiB"))?,
            counter(RESERVED).map_err(failed("huge pages of 2 MiB"))?,
        ];
        let file = sys::huge_file().map_err(failed("memfd_create(MFD_HUGETLB)"))?;
        let file = File::from(file);
        let inode = file.metadata().map_err(|error| error.to_string())?.ino();
        let mut pool = Self {
            before: None,
            counters,
            file: file.into(),
            inode,
            _alone: alone,
        };
        let before = fs::read_to_string(WANTED).map_err(|error| format!("{WANTED}: {error}"))?;
        let surplus = fs::read_to_string("/proc/sys/vm/nr_overcommit_hugepages");
        if surplus.is_ok_and(|surplus| surplus.trim() != "0") {
            return Err("the pool may lend more pages than it has".to_owned());
        }
        if before.trim() != POOL.to_string() {
            pool.before = Some(before);
            set(&POOL.to_string())?;
        }
        if !pool.rests() {
            let [free, reserved] = counts(counters);
            return Err(format!(
                "the pool has {free} free huge pages, {reserved} of them reserved, instead of \
                 {POOL} and 0"
            ));
        }
        Ok(pool)
    }

    /// Whether nobody uses a page, after a while at the latest.
    pub(super) fn rests(&self) -> bool {
        (0..LOOKS).any(|look| {
            if look > 0 {
                std::thread::sleep(WAIT);
            }
            counts(self.counters) == [POOL, 0]
        })
    }

    /// What forked processes need of it.
    pub(super) fn numbers(&self) -> Huge {
        Huge {
            counters: self.counters,
            fd: self.file.as_raw_fd(),
            inode: self.inode,
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for fd in self.counters {
            sys::close(fd);
        }
        // Its pages go first.
        let _empty = truncate(self.file.as_raw_fd(), 0);
        if let Some(before) = &self.before {
            let _as_it_was = set(before.trim());
        }
    }
}

/// Waits until no other run has the pool.
fn lock() -> Result<File, String> {
    let path = std::env::temp_dir().join("minflt-huge-pages.lock");
    let open = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let file = open.map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

fn set(pages: &str) -> Result<(), String> {
    fs::write(WANTED, pages).map_err(|error| format!("{WANTED}: {error}"))
}

fn truncate(fd: i32, bytes: u64) -> Result<(), i32> {
    sys::call(libc::SYS_ftruncate, [fd as u64, bytes, 0, 0, 0, 0]).map(drop)
}

fn counts(counters: [i32; 2]) -> [u64; 2] {
    counters.map(|fd| {
        let mut text = [0; 32];
        let _bytes = sys::read_at(fd, &mut text, 0);
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_u64, |sum, digit| {
            sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
        })
    })
}

/// The huge pages in a process of the child.
#[derive(Clone, Copy, Debug)]
pub(super) struct Huge {
    counters: [i32; 2],
    fd: i32,
    pub(super) inode: u64,
}

impl Huge {
    /// Huge pages that are free, and those of them that are reserved.
    pub(super) fn counts(&self) -> [u64; 2] {
        counts(self.counters)
    }

    /// Makes the file what it is when a case begins.
    pub(super) fn reset(&self) -> Result<(), i32> {
        truncate(self.fd, 0)?;
        truncate(self.fd, HUGE_PAGES * HUGE)
    }

    /// Gives the pages of the file back.
    pub(super) fn empty(&self) {
        let _nothing_left = truncate(self.fd, 0);
    }

    /// What the file holds: hands out its length, and its words one after the other.
    pub(super) fn read(&self, mut put: impl FnMut(u64)) {
        let end = libc::SEEK_END as u64;
        let bytes = sys::call(libc::SYS_lseek, [self.fd as u64, 0, end, 0, 0, 0]);
        let bytes = bytes.unwrap_or(u64::MAX);
        let places = 2 * bytes.div_ceil(HUGE).min(2 * crate::window::HUGE_PAGES);
        put(bytes);
        let word = |place: u64| {
            let mut word = [0; 8];
            let read = sys::read_at(self.fd, &mut word, place * (HUGE / 2));
            read.map_or(u64::MAX, |_| u64::from_le_bytes(word))
        };
        let written = || (0..places).map(|place| (place, word(place)));
        let written = || written().filter(|(_, word)| *word != 0);
        put(2 * written().count() as u64);
        for (place, word) in written() {
            put(place);
            put(word);
        }
    }
}

/// A step that is of huge pages only.
pub(super) fn perform(huge: Option<Huge>, step: &Step) -> [u64; 4] {
    let [a, b, c, d, e, _] = step.args;
    let file = huge.map_or(-1, |huge| huge.fd);
    let fd = i64::from(file).cast_unsigned();
    let call = |number, args| returned(sys::call(number, args));
    match step.call {
        Call::HugeMmap => {
            let flags = d | abi::MAP_HUGETLB;
            call(libc::SYS_mmap, [a, b, c, flags, u64::MAX, 0])
        }
        Call::HugeMmapFile => call(libc::SYS_mmap, [a, b, c, d, fd, e]),
        Call::HugeFtruncate => call(libc::SYS_ftruncate, [fd, a, 0, 0, 0, 0]),
        Call::HugeFallocate => call(libc::SYS_fallocate, [fd, a, b, c, 0, 0]),
        _ => read_word(file, a),
    }
}

/// The huge pages that are present, private ones and files'.
pub(super) fn presence(pagemap: i32) -> [[u64; 2]; 2] {
    let is = |bit: u64, wanted: u8| {
        let mut entry = [0; 8];
        let at = (HUGE_START + hot(bit) * HUGE) / PAGE * 8;
        sys::read_at(pagemap, &mut entry, at).is_ok() && entry[7] & 0xa0 == wanted
    };
    let all = |wanted| bits((0..HOT).filter(|bit| is(*bit, wanted)));
    [all(0x80), all(0xa0)]
}

/// Leaves out what may not be accessed.
pub(super) fn leave_out_closed(maps: i32, present: &mut [u64; 2]) {
    for bit in 0..HOT {
        let found = sys::mapping_at(maps, HUGE_START + hot(bit) * HUGE);
        if found.is_ok_and(|found| found.rights & 7 == 0) {
            present[0] &= !(1 << bit);
        }
    }
}
