//! What the forked processes do. None of them allocates: all they write is on their stacks and in
//! the shared area.
//!
//! ```text
//! harness    fork ... case -> byte ................... byte -> records
//! nursery       set up, wait   fork, wait for it ..... byte, wait
//! case                         steps, exit
//! child of the case                fork step: its steps, exit
//! ```
//! The nursery's address space is full but for the window, so that whatever looks for a hole finds
//! it there. Each case is forked from it, and so starts empty.

use super::answers::{get_mempolicy, mincore};
use super::area::{Area, COUNT, DONE, RECORDS, STEP_WORDS, STEPS, USED, WINDOW};
use super::files::Numbers;
use super::remote::{remote_read, remote_write};
use super::{huge, probe, sys, userfault};
use crate::files::{FILES, HALF};
use crate::record::{MAPERR, bits};
use crate::step::{ARGS, Call, Step};
use crate::window::{
    END, HEAP, HUGE, HUGE_END, HUGE_START, PAGE, PAGES, START, Window, hot, page_of,
};

/// Exit codes of the nursery when it cannot be set up: what failed, above the error number.
pub(super) const SETUP: [&str; 7] = [
    "prctl",
    "move the heap (PR_SET_MM_MAP)",
    "lock memory without limit (capset, setrlimit)",
    "fill the address space (mmap)",
    "read /proc/self",
    "map, execute and punch a file in the temporary directory",
    "open a userfaultfd",
];

/// Bytes of stack that are touched before the address space is full.
const STACK: usize = 256 << 10;
/// Where user space ends.
const USER_END: u64 = 0x7fff_ffff_f000;

/// Runs cases until the harness goes away.
pub(super) fn nursery(mut area: Area, mut files: Numbers, commands: i32, answers: i32) -> ! {
    touch_stack();
    let outside = match set_up(&mut files) {
        Ok(outside) => outside,
        Err((what, errno)) => {
            let words = area.words();
            words[COUNT] = what;
            words[USED] = u64::from(errno.cast_unsigned());
            let _gone = sys::send(answers, 0);
            sys::exit(1)
        }
    };
    let _gone = sys::send(answers, 1);
    while sys::receive(commands).is_some() {
        let failed = match sys::fork() {
            Ok(0) => {
                let code = match Case::new(&mut area, files, outside) {
                    Ok(mut case) => case.run(),
                    Err(_) => 2,
                };
                // The pages of the file of huge pages are the whole machine's.
                if let Some(huge) = files.huge {
                    huge.empty();
                }
                sys::exit(code)
            }
            Ok(pid) => sys::wait(pid).is_ok_and(|status| status != 0),
            Err(_) => true,
        };
        if sys::send(answers, u8::from(failed)).is_err() {
            break;
        }
    }
    sys::exit(0)
}

#[inline(never)]
fn touch_stack() {
    let mut deep = [0_u8; STACK];
    core::hint::black_box(&mut deep);
}

/// Prepares the process; returns how many pages it has mapped.
fn set_up(files: &mut Numbers) -> Result<u64, (u64, i32)> {
    sys::prepare().map_err(|errno| (0, errno))?;
    sys::move_heap(HEAP).map_err(|errno| (1, errno))?;
    limit_memlock(u64::MAX).map_err(|errno| (2, errno))?;
    fill().map_err(|errno| (3, errno))?;
    let maps = sys::open(c"/proc/self/maps", libc::O_RDONLY).map_err(|errno| (4, errno))?;
    files.learn(maps).map_err(|errno| (5, errno))?;
    sys::close(maps);
    sys::close(userfault::open().map_err(|errno| (6, errno))?);
    probe::catch();
    let statm = sys::open(c"/proc/self/statm", libc::O_RDONLY).map_err(|errno| (4, errno))?;
    let mut text = [0; 32];
    let _bytes = sys::read_at(statm, &mut text, 0).map_err(|errno| (4, errno))?;
    sys::close(statm);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    Ok(digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Maps all that is free without access, but for the window. The pages at its edges are shared, so
/// that nothing in the window merges with them.
fn fill() -> Result<(), i32> {
    let maps = sys::open(c"/proc/self/maps", libc::O_RDONLY)?;
    sys::reserve(START - PAGE, PAGE, libc::MAP_SHARED)?;
    sys::reserve(END, PAGE, libc::MAP_SHARED)?;
    let mut at = PAGE;
    while at < USER_END {
        let (start, end) = match sys::mapping_at(maps, at) {
            Ok(found) => (found.start, found.end),
            Err(libc::ENOENT) => (USER_END, USER_END),
            Err(errno) => return Err(errno),
        };
        if start > at && at != START {
            // The first pages may be forbidden, the last ones below a stack are its gap.
            let privately = libc::MAP_PRIVATE;
            let full = sys::reserve(at, start - at, privately);
            if full.is_err() && at == PAGE {
                at = 1 << 16;
                continue;
            }
            full?;
        }
        at = end.min(USER_END);
    }
    sys::close(maps);
    Ok(())
}

/// Whether words that are zero are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Zeros {
    LeftOut,
    Told,
}

/// A case in its process.
struct Case<'a> {
    area: &'a mut Area,
    files: Numbers,
    /// Words of the area written so far.
    used: usize,
    outside: u64,
    maps: i32,
    pagemap: i32,
    mem: i32,
    smaps: i32,
    userfaultfd: i32,
    window: Window,
}

impl<'a> Case<'a> {
    fn new(area: &'a mut Area, files: Numbers, outside: u64) -> Result<Self, i32> {
        let window = match (area.words()[WINDOW], files.huge) {
            (1, Some(huge)) => {
                huge.reset()?;
                let whole = [HUGE_START, HUGE_END - HUGE_START, 0, 0, 0, 0];
                sys::call(libc::SYS_munmap, whole)?;
                Window::Huge
            }
            _ => {
                files.reset()?;
                Window::Small
            }
        };
        let mut case = Self {
            area,
            files,
            used: RECORDS,
            outside,
            maps: 0,
            pagemap: 0,
            mem: 0,
            smaps: 0,
            userfaultfd: userfault::open()?,
            window,
        };
        case.open()?;
        Ok(case)
    }

    /// Opens what tells of this process: anew after a fork.
    fn open(&mut self) -> Result<(), i32> {
        self.maps = sys::open(c"/proc/self/maps", libc::O_RDONLY)?;
        self.pagemap = sys::open(c"/proc/self/pagemap", libc::O_RDONLY)?;
        self.mem = sys::open(c"/proc/self/mem", libc::O_RDWR)?;
        self.smaps = sys::open(c"/proc/self/smaps", libc::O_RDONLY)?;
        Ok(())
    }

    fn run(&mut self) -> i32 {
        let count = self.area.words()[COUNT];
        let mut at = 0;
        while at < count {
            let Some(step) = self.step(at) else { return 3 };
            let outcome = self.perform(&step);
            self.record(outcome, at + 1 == count);
            at += 1;
            if step.call == Call::Fork && step.args[0] > 0 {
                let last = (at + step.args[0]).min(count);
                let code = self.child(at, last, count);
                if code != 0 {
                    return code;
                }
                at = last;
            }
        }
        self.area.words()[USED] = self.used as u64;
        0
    }

    /// Runs the steps from `at` to `last` in a child.
    fn child(&mut self, mut at: u64, last: u64, count: u64) -> i32 {
        match sys::fork() {
            Ok(0) => {}
            Ok(pid) => {
                let status = sys::wait(pid).unwrap_or(1);
                self.used = self.area.words()[USED] as usize;
                return if status == 0 { 0 } else { 4 };
            }
            Err(_) => return 5,
        }
        if self.open().is_err() {
            sys::exit(6);
        }
        while at < last {
            let Some(step) = self.step(at) else {
                sys::exit(3)
            };
            let outcome = self.perform(&step);
            self.record(outcome, at + 1 == count);
            at += 1;
        }
        self.area.words()[USED] = self.used as u64;
        sys::exit(0)
    }

    fn step(&mut self, at: u64) -> Option<Step> {
        let from = STEPS + at as usize * STEP_WORDS;
        let words = &self.area.words()[from..from + STEP_WORDS];
        let call = Call::from_number(words[0])?;
        let mut args = [0; ARGS];
        args.copy_from_slice(&words[1..=ARGS]);
        Some(Step { call, args })
    }

    /// Does it; the outcome in words.
    fn perform(&mut self, step: &Step) -> [u64; 4] {
        let [a, b, c, d, e, f] = step.args;
        let plain = |number, args: [u64; 6]| returned(sys::call(number, args));
        // The file that the argument names.
        let fd = |arg| self.files.of(arg) as u64;
        match step.call {
            Call::Mmap => returned(sys::call(libc::SYS_mmap, [a, b, c, d, u64::MAX, 0])),
            Call::Munmap => plain(libc::SYS_munmap, step.args),
            Call::Mprotect => plain(libc::SYS_mprotect, step.args),
            Call::Mremap => plain(libc::SYS_mremap, step.args),
            Call::Madvise => plain(libc::SYS_madvise, step.args),
            Call::Mlock => plain(libc::SYS_mlock, step.args),
            Call::Mlock2 => plain(libc::SYS_mlock2, step.args),
            Call::Munlock => plain(libc::SYS_munlock, step.args),
            Call::Mlockall => plain(libc::SYS_mlockall, step.args),
            Call::Munlockall => plain(libc::SYS_munlockall, step.args),
            Call::Brk => plain(libc::SYS_brk, step.args),
            Call::Mincore => mincore(a, b),
            Call::Mbind => {
                let mut nodes = d;
                let args = [a, b, c, sys::address(&mut nodes), 65, e];
                returned(sys::call(libc::SYS_mbind, args))
            }
            Call::SetMempolicy => {
                let mut nodes = b;
                let args = [a, sys::address(&mut nodes), 65, 0, 0, 0];
                returned(sys::call(libc::SYS_set_mempolicy, args))
            }
            Call::GetMempolicy => get_mempolicy(a, b),
            Call::LimitMemlock => nothing(limit_memlock(a)),
            Call::LimitAs => {
                let bytes = a.saturating_add(self.outside).saturating_mul(PAGE);
                nothing(sys::set_limit(libc::RLIMIT_AS, bytes))
            }
            Call::Load => caught(probe::load(a)),
            Call::Store => caught(probe::store(a, b).map(|()| 0)),
            Call::RemoteRead => remote_read(self.area, a, b),
            Call::RemoteWrite => remote_write(self.area, a, b, c),
            Call::ForcedRead => {
                let mut word = [0; 8];
                let read = sys::read_at(self.mem, &mut word, a);
                returned(read.map(|_| u64::from_le_bytes(word)))
            }
            Call::ForcedWrite => {
                let written = sys::write_at(self.mem, &b.to_le_bytes(), a);
                nothing(written.map(drop))
            }
            Call::Fork => [0; 4],
            Call::MmapFile => plain(libc::SYS_mmap, [a, b, c, d, fd(e), f]),
            Call::Msync => plain(libc::SYS_msync, step.args),
            Call::Ftruncate => plain(libc::SYS_ftruncate, [fd(a), b, 0, 0, 0, 0]),
            Call::Fallocate => plain(libc::SYS_fallocate, [fd(a), b, c, d, 0, 0]),
            Call::Pread => read_word(self.files.of(a), b),
            Call::Pwrite => {
                let written = sys::write_at(self.files.of(a), &c.to_le_bytes(), b);
                returned(written.map(|bytes| bytes as u64))
            }
            Call::UffdRegister
            | Call::UffdUnregister
            | Call::UffdCopy
            | Call::UffdZeropage
            | Call::UffdWriteprotect => userfault::perform(self.area, self.userfaultfd, step),
            Call::HugeMmap
            | Call::HugeMmapFile
            | Call::HugeFtruncate
            | Call::HugeFallocate
            | Call::HugePread => huge::perform(self.files.huge, step),
        }
    }

    fn put(&mut self, word: u64) {
        let at = self.used;
        if let Some(place) = self.area.words().get_mut(at) {
            *place = word;
        }
        self.used += 1;
    }

    fn record(&mut self, outcome: [u64; 4], last: bool) {
        for word in outcome {
            self.put(word);
        }
        for word in self.files.huge.map_or([0; 2], |huge| huge.counts()) {
            self.put(word);
        }
        let [private, mut of_files] = self.maps_and_presence();
        for word in private {
            self.put(word);
        }
        let mut private = private;
        if self.window == Window::Huge {
            huge::leave_out_closed(self.maps, &mut private);
            huge::leave_out_closed(self.maps, &mut of_files);
        }
        self.contents(private, Zeros::LeftOut);
        self.contents(of_files, Zeros::Told);
        self.file_contents(last);
        self.flags(last);
        let words = self.area.words();
        words[DONE] += 1;
    }

    /// The mappings of the window; and the pages that are present, private ones and the files'.
    fn maps_and_presence(&mut self) -> [[u64; 2]; 2] {
        let counted = self.used;
        self.put(0);
        let window = self.window.range();
        let mut at = window.start().0;
        let mut count = 0;
        while let Ok(found) = sys::mapping_at(self.maps, at) {
            if found.start >= window.end().0 {
                break;
            }
            let of = self.files.which(found.file);
            for word in [found.start, found.end, found.rights, of, found.offset] {
                self.put(word);
            }
            count += 1;
            at = found.end;
        }
        self.area.words()[counted] = count;
        if self.window == Window::Huge {
            return huge::presence(self.pagemap);
        }
        let mut map = [0; PAGES as usize * 8];
        let read = sys::read_at(self.pagemap, &mut map, START / PAGE * 8);
        // Present: bit 63; of a file: bit 61.
        let is =
            |page: u64, wanted: u8| read.is_ok() && map[page as usize * 8 + 7] & 0xa0 == wanted;
        let all = |wanted| bits((0..PAGES).filter(|page| is(*page, wanted)));
        [all(0x80), all(0xa0)]
    }

    /// The contents of pages that are present, none of which is brought in by looking.
    fn contents(&mut self, present: [u64; 2], zeros: Zeros) {
        let counted = self.used;
        self.put(0);
        let mut count = 0;
        for page in 0..PAGES {
            if present[page as usize / 64] >> (page % 64) & 1 == 0 {
                continue;
            }
            for half in 0..2 {
                let mut word = [0; 8];
                let at = match self.window {
                    Window::Small => START + page * PAGE + half * HALF,
                    Window::Huge => HUGE_START + hot(page) * HUGE + half * (HUGE / 2),
                };
                let read = sys::read_at(self.mem, &mut word, at);
                let word = read.map_or(u64::MAX, |_| u64::from_le_bytes(word));
                if word != 0 || zeros == Zeros::Told {
                    self.put(2 * page + half);
                    self.put(word);
                    count += 1;
                }
            }
        }
        self.area.words()[counted] = count;
    }

    /// The files, after the last step.
    fn file_contents(&mut self, last: bool) {
        let files = self.files;
        if self.window == Window::Huge {
            self.put(u64::from(last));
            if let Some(huge) = files.huge.filter(|_| last) {
                huge.read(|word| self.put(word));
            }
            return;
        }
        self.put(if last { FILES as u64 } else { 0 });
        if last {
            for file in 0..FILES {
                files.read(file, |word| self.put(word));
            }
        }
    }

    /// The text of smaps, after the last step.
    fn flags(&mut self, last: bool) {
        let counted = self.used;
        self.put(0);
        if !last {
            return;
        }
        let mut bytes = 0;
        loop {
            let mut text = [0; 4096];
            let Ok(read) = sys::read_at(self.smaps, &mut text, bytes) else {
                break;
            };
            if read == 0 {
                break;
            }
            // Reads of a text file may be short; the rest is read again, in whole words.
            let whole = if read >= 8 { read / 8 * 8 } else { read };
            for word in text[..whole.next_multiple_of(8)].chunks_exact(8) {
                let mut eight = [0; 8];
                eight.copy_from_slice(word);
                self.put(u64::from_le_bytes(eight));
            }
            bytes += whole as u64;
        }
        self.area.words()[counted] = bytes;
    }
}

/// Sets the limit. Without any the privilege is used, or else the hard limit must be none.
fn limit_memlock(bytes: u64) -> Result<(), i32> {
    if bytes == u64::MAX && sys::privileges(sys::Locking::Unlimited).is_ok() {
        return Ok(());
    }
    let _none = sys::privileges(sys::Locking::Limited);
    sys::set_limit(libc::RLIMIT_MEMLOCK, bytes)
}

/// What a call returned, in words.
pub(super) fn returned(result: Result<u64, i32>) -> [u64; 4] {
    match result {
        Ok(value) => [0, value, 0, 0],
        Err(errno) => [1, u64::from(errno.cast_unsigned()), 0, 0],
    }
}

fn nothing(result: Result<(), i32>) -> [u64; 4] {
    returned(result.map(|()| 0))
}

fn caught(result: Result<u64, i32>) -> [u64; 4] {
    match result {
        Ok(value) => [0, value, 0, 0],
        Err(code) => [2, u64::from(code.cast_unsigned()), 0, 0],
    }
}

pub(super) fn read_word(fd: i32, offset: u64) -> [u64; 4] {
    let mut word = [0; 8];
    match sys::read_at(fd, &mut word, offset) {
        Ok(bytes) => [0, bytes as u64, u64::from_le_bytes(word), 0],
        Err(errno) => returned(Err(errno)),
    }
}

const _: () = assert!(MAPERR == 1 && page_of(START) == 0);
