//! The same calls in a child of this process, on the kernel we run on, and on our own address
//! space: the same results and error numbers.

use super::{M, boot};
use core::mem::MaybeUninit;
use minflt_addr::VirtAddr;
use minflt_mm::{Errno, MapRequest, Mm, Place, Prot, Reserve, eras_without_migration};

const PAGE: i64 = 4096;
/// More than any machine has that tests run on, and less than half of user space.
const HUGE: i64 = 1 << 34;

/// A call, its addresses as bytes from a page of the heap on.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Moves the break.
    Brk(i64),
    /// Asks for the break.
    Ask,
    /// Moves the break to an address that cannot be.
    BrkTo(u64),
    /// Maps pages there if nothing is, with that right.
    Map(i64, i64, Prot),
    /// Maps pages in place of what is there.
    MapOver(i64, i64, Prot),
    /// Maps so many pages anywhere and unmaps them again.
    Anywhere(i64, Prot, Reserve),
    Protect(i64, i64, Prot),
    Unmap(i64, i64),
    /// Lets so many pages more be mapped than are.
    Allow(i64),
}

use Op::{Allow, Anywhere, Ask, Brk, BrkTo, Map, MapOver, Protect, Unmap};

const OPS: &[Op] = &[
    Ask,
    Brk(5),
    Brk(PAGE),
    Brk(3 * PAGE + 1),
    Ask,
    BrkTo(0),
    BrkTo(1),
    BrkTo(u64::MAX),
    BrkTo(1 << 60),
    // The page before another mapping stays free.
    Map(8 * PAGE, 1, Prot::READ),
    Brk(9 * PAGE),
    Brk(8 * PAGE),
    Brk(7 * PAGE + 1),
    Brk(7 * PAGE),
    Map(6 * PAGE, 1, Prot::READ),
    // Down over a hole: all of it, part of it.
    Unmap(5 * PAGE, 2),
    Brk(6 * PAGE),
    Brk(4 * PAGE),
    Protect(PAGE, 1, Prot::READ),
    Brk(6 * PAGE),
    Brk(PAGE),
    Brk(0),
    Unmap(8 * PAGE, 1),
    // The size.
    Map(20 * PAGE, 4, Prot::READ),
    Allow(4),
    Brk(5 * PAGE),
    Brk(4 * PAGE),
    Brk(4 * PAGE + 1),
    Map(30 * PAGE, 1, Prot::NONE),
    Anywhere(1, Prot::READ_WRITE, Reserve::NoReserve),
    MapOver(20 * PAGE, 5, Prot::READ_WRITE),
    MapOver(20 * PAGE, 4, Prot::READ_WRITE),
    Protect(20 * PAGE, 4, Prot::READ),
    Brk(2 * PAGE),
    Map(30 * PAGE, 3, Prot::READ),
    Map(30 * PAGE, 2, Prot::READ),
    Allow(-1),
    Map(40 * PAGE, 1, Prot::READ),
    MapOver(30 * PAGE, 2, Prot::READ),
    Unmap(30 * PAGE, 2),
    Map(40 * PAGE, 1, Prot::READ),
    Anywhere(HUGE, Prot::READ, Reserve::Charged),
    Brk(0),
    Ask,
];

/// What more memory than there is comes to where the kernel's heuristic guards it.
const PROMISES: &[Op] = &[
    Anywhere(HUGE, Prot::READ_WRITE, Reserve::Charged),
    Anywhere(HUGE, Prot::READ_WRITE, Reserve::NoReserve),
    Anywhere(HUGE, Prot::READ, Reserve::Charged),
    Anywhere(16, Prot::READ_WRITE, Reserve::Charged),
];

/// On our own address space; a heap's start, and an error as a negative number.
fn on_mm(mm: &Mm<M>, base: i64, op: Op) -> i64 {
    let at = |offset: i64| VirtAddr((base + offset) as u64);
    let bytes = |pages: i64| (pages * PAGE) as u64;
    let failed = |errno: Errno| i64::from(-errno.0);
    let mapped = |place, pages, prot| {
        mm.mmap(place, bytes(pages), prot)
            .map_or_else(|error| failed(error.into()), |_| 0)
    };
    match op {
        Brk(offset) => mm.brk(Some(at(offset))).0 as i64 - base,
        BrkTo(to) => mm.brk(Some(VirtAddr(to))).0 as i64 - base,
        Ask => mm.brk(None).0 as i64 - base,
        Map(offset, pages, prot) => mapped(Place::FixedNoReplace(at(offset)), pages, prot),
        MapOver(offset, pages, prot) => mapped(Place::Fixed(at(offset)), pages, prot),
        Anywhere(pages, prot, reserve) => {
            let request = MapRequest {
                reserve,
                ..MapRequest::new(Place::Any, bytes(pages), prot)
            };
            let mapped = mm.thread().mmap(&request).map_err(Errno::from);
            let gone = mapped.and_then(|at| mm.munmap(at, bytes(pages)).map_err(Errno::from));
            gone.map_or_else(failed, |()| 0)
        }
        Protect(offset, pages, prot) => mm
            .mprotect(at(offset), bytes(pages), prot)
            .map_or_else(|error| failed(error.into()), |()| 0),
        Unmap(offset, pages) => mm
            .munmap(at(offset), bytes(pages))
            .map_or_else(|error| failed(error.into()), |()| 0),
        Allow(pages) => {
            mm.set_limit_as((mm.mapped_bytes() as i64 + pages * PAGE) as u64);
            0
        }
    }
}

/// A system call; an error as a negative number.
fn call(number: i64, args: [i64; 4]) -> i64 {
    let [first, second, third, fourth] = args;
    // SAFETY: 1. Only `on_linux` calls, in a child that is about to end: memory calls over a heap
    // that nothing in the child uses, and `setrlimit` with a struct of its own.
    let returned = unsafe { libc::syscall(number, first, second, third, fourth, -1, 0) };
    if returned == -1 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        -i64::from(errno.unwrap_or(0))
    } else {
        returned
    }
}

fn bits(prot: Prot) -> i64 {
    i64::from(prot.bits())
}

/// Bytes that this process has mapped, by the kernel's account.
fn mapped_here() -> i64 {
    let mut text = [0_u8; 32];
    // SAFETY: 1. A path that ends with a zero.
    let file = unsafe { libc::open(c"/proc/self/statm".as_ptr(), libc::O_RDONLY) };
    // SAFETY: 1. Bytes of ours, as many as said.
    unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: 1. Opened above.
    unsafe { libc::close(file) };
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |pages, digit| pages * 10 + i64::from(digit - b'0')) * PAGE
}

fn on_linux(base: i64, op: Op) -> i64 {
    let brk = |to| call(libc::SYS_brk, [to, 0, 0, 0]) - base;
    let flags = i64::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let map = |at, pages: i64, prot, more: i32| {
        let args = [at, pages * PAGE, bits(prot), flags | i64::from(more)];
        call(libc::SYS_mmap, args)
    };
    match op {
        Brk(offset) => brk(base + offset),
        BrkTo(to) => brk(to as i64),
        Ask => brk(0),
        Map(offset, pages, prot) => {
            map(base + offset, pages, prot, libc::MAP_FIXED_NOREPLACE).min(0)
        }
        MapOver(offset, pages, prot) => map(base + offset, pages, prot, libc::MAP_FIXED).min(0),
        Anywhere(pages, prot, reserve) => {
            let more = match reserve {
                Reserve::Charged => 0,
                Reserve::NoReserve => libc::MAP_NORESERVE,
            };
            let at = map(0, pages, prot, more);
            if at < 0 {
                return at;
            }
            call(libc::SYS_munmap, [at, pages * PAGE, 0, 0])
        }
        Protect(offset, pages, prot) => call(
            libc::SYS_mprotect,
            [base + offset, pages * PAGE, bits(prot), 0],
        ),
        Unmap(offset, pages) => call(libc::SYS_munmap, [base + offset, pages * PAGE, 0, 0]),
        Allow(pages) => {
            let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
            // SAFETY: 1. A struct of ours that the call may write.
            unsafe { libc::getrlimit(libc::RLIMIT_AS, limit.as_mut_ptr()) };
            // SAFETY: 1. Integers only, for which zeroes are values.
            let mut limit = unsafe { limit.assume_init() };
            limit.rlim_cur = (mapped_here() + pages * PAGE) as u64;
            // SAFETY: 1. A struct of ours.
            i64::from(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) })
        }
    }
}

/// Runs the calls in a child. It takes no lock and no memory, since it has only this thread.
fn in_child(ops: &[Op]) -> Vec<i64> {
    let mut ends = [0; 2];
    // SAFETY: 1. Room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: 1. The child never leaves this function. 2. It makes system calls only.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be had");
    if child == 0 {
        let heap = call(libc::SYS_brk, [0; 4]);
        let base = (heap + PAGE - 1) / PAGE * PAGE + 4 * PAGE;
        call(libc::SYS_brk, [base, 0, 0, 0]);
        for op in ops {
            let result = on_linux(base, *op).to_ne_bytes();
            // SAFETY: 1. Bytes of ours, as many as said; a pipe holds them all.
            unsafe { libc::write(ends[1], result.as_ptr().cast(), result.len()) };
        }
        // SAFETY: 1. Takes no pointer and does not return.
        unsafe { libc::_exit(0) };
    }
    // SAFETY: 1. The descriptor is ours.
    unsafe { libc::close(ends[1]) };
    let mut results = Vec::new();
    let mut word = [0_u8; 8];
    // SAFETY: 1. Bytes of ours, as many as said.
    while unsafe { libc::read(ends[0], word.as_mut_ptr().cast(), 8) } == 8 {
        results.push(i64::from_ne_bytes(word));
    }
    // SAFETY: 1. The descriptor is ours.
    unsafe { libc::close(ends[0]) };
    let mut status = 0;
    // SAFETY: 1. `status` is ours, and the call may write it.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child ends well");
    results
}

/// Runs the calls on a fresh address space of each era, and compares.
fn compare(ops: &[Op]) -> Vec<i64> {
    let linux = in_child(ops);
    assert_eq!(linux.len(), ops.len());
    for era in eras_without_migration() {
        let sys = boot(1, era.name);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().unwrap();
        let base = mm.brk(None).0 as i64 + 4 * PAGE;
        mm.brk(Some(VirtAddr(base as u64)));
        for (step, (op, linux)) in ops.iter().zip(&linux).enumerate() {
            let ours = on_mm(&mm, base, *op);
            assert_eq!(ours, *linux, "{}: step {step}: {op:?}", era.name);
        }
        sys.check_ledger(&[&mm]).unwrap();
    }
    linux
}

#[test]
fn brk_and_the_limit_of_size_mean_what_they_mean_on_linux() {
    let linux = compare(OPS);
    let failed = linux.iter().filter(|result| **result < 0).count();
    assert!(failed >= 5, "the calls come near the limits: {linux:?}");
}

#[test]
fn the_heuristic_refuses_what_linux_refuses() {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    if mode.is_ok_and(|mode| mode.trim() == "0") {
        let linux = compare(PROMISES);
        assert_eq!(linux[0], -i64::from(libc::ENOMEM));
    }
}
