//! System calls by number, and the few calls with structures, each behind a safe function.
//!
//! # Contract
//! They run in a forked child that does nothing else. Memory calls are given addresses of the
//! window, where nothing of the child's own lies, or such that the kernel refuses them.

use core::ffi::CStr;
use core::mem::MaybeUninit;
use core::ptr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The error number of the last call.
fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// A call with numbers only.
pub(super) fn call(number: libc::c_long, args: [u64; 6]) -> Result<u64, i32> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: 1. By the contract no memory of the child's own is named but buffers that are given
    // for writing.
    let returned = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if returned == -1 {
        return Err(errno());
    }
    Ok(returned as u64)
}

/// The address of something the kernel reads or writes.
pub(super) fn address<T>(of: &mut T) -> u64 {
    ptr::from_mut(of).expose_provenance() as u64
}

/// Maps memory without access, in place of nothing.
pub(super) fn reserve(start: u64, len: u64, share: libc::c_int) -> Result<(), i32> {
    let flags = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE | share;
    let flags = u64::from(flags.cast_unsigned());
    call(libc::SYS_mmap, [start, len, 0, flags, u64::MAX, 0]).map(drop)
}

/// Opens a file for reading, or for both.
pub(super) fn open(path: &CStr, flags: libc::c_int) -> Result<i32, i32> {
    // SAFETY: 1. The path is a C string.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

/// Opens a file in memory.
pub(super) fn memory_file() -> Result<OwnedFd, i32> {
    nameless(c"minflt", 0)
}

/// Opens a file of huge pages of 2 MiB.
pub(super) fn huge_file() -> Result<OwnedFd, i32> {
    nameless(c"minflt-huge", libc::MFD_HUGETLB | libc::MFD_HUGE_2MB)
}

fn nameless(name: &CStr, flags: libc::c_uint) -> Result<OwnedFd, i32> {
    // SAFETY: 1. The name is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | flags) };
    if fd < 0 {
        return Err(errno());
    }
    // SAFETY: 1. The call just opened it, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Reads at an offset.
pub(super) fn read_at(fd: i32, into: &mut [u8], offset: u64) -> Result<usize, i32> {
    let at = into.as_mut_ptr().cast();
    // SAFETY: 1. The buffer is ours, of this length.
    let read = unsafe { libc::pread(fd, at, into.len(), offset.cast_signed()) };
    usize::try_from(read).map_err(|_| errno())
}

/// Writes at an offset.
pub(super) fn write_at(fd: i32, from: &[u8], offset: u64) -> Result<usize, i32> {
    let at = from.as_ptr().cast();
    // SAFETY: 1. The buffer is ours, of this length.
    let written = unsafe { libc::pwrite(fd, at, from.len(), offset.cast_signed()) };
    usize::try_from(written).map_err(|_| errno())
}

/// Sets a soft limit.
pub(super) fn set_limit(which: libc::__rlimit_resource_t, soft: u64) -> Result<(), i32> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: 1. The structure is ours.
    let returned = unsafe { libc::getrlimit(which, &raw mut limit) };
    if returned != 0 {
        return Err(errno());
    }
    limit.rlim_cur = soft;
    // SAFETY: 1. The structure is ours.
    let returned = unsafe { libc::setrlimit(which, &raw const limit) };
    if returned == 0 { Ok(()) } else { Err(errno()) }
}

/// Whether memory may be locked without limit: what is asked of the hard limit where there is no
/// privilege.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Locking {
    Limited,
    Unlimited,
}

/// Gives all privileges up but that of locking memory, which is kept at hand and used or not.
pub(super) fn privileges(locking: Locking) -> Result<(), i32> {
    // CAP_IPC_LOCK, effective and permitted.
    let bit = 1 << 14;
    let effective = if locking == Locking::Unlimited {
        bit
    } else {
        0
    };
    let mut header = [0x2008_0522_u32, 0];
    let mut sets = [effective, bit, 0, 0, 0, 0];
    let args = [address(&mut header), address(&mut sets), 0, 0, 0, 0];
    call(libc::SYS_capset, args).map(drop)
}

/// Forks; 0 in the child.
pub(super) fn fork() -> Result<i32, i32> {
    // SAFETY: 1. The caller has one thread, or its child calls nothing that takes locks.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(errno()) } else { Ok(pid) }
}

/// Ends this process.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: 1. The call takes no pointer and does not return.
    unsafe { libc::_exit(code) }
}

/// Waits for a child; returns its status.
pub(super) fn wait(pid: i32) -> Result<i32, i32> {
    let mut status = 0;
    loop {
        // SAFETY: 1. The status is ours.
        let returned = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        if returned == pid {
            return Ok(status);
        }
        let errno = errno();
        if errno != libc::EINTR {
            return Err(errno);
        }
    }
}

/// Ends a child of ours.
pub(super) fn kill(pid: i32) {
    // SAFETY: 1. The call takes numbers only; the child was not waited for.
    let _gone = unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// A pipe: its end for reading and its end for writing.
pub(super) fn pipe() -> Result<[i32; 2], i32> {
    let mut ends = [0; 2];
    // SAFETY: 1. The array is ours, of the length the call writes.
    let returned = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    if returned == 0 {
        Ok(ends)
    } else {
        Err(errno())
    }
}

/// Sends one byte.
pub(super) fn send(fd: i32, byte: u8) -> Result<(), i32> {
    // SAFETY: 1. The byte is ours.
    let sent = unsafe { libc::write(fd, (&raw const byte).cast(), 1) };
    if sent == 1 { Ok(()) } else { Err(errno()) }
}

/// Waits for one byte; none when the other end is closed.
pub(super) fn receive(fd: i32) -> Option<u8> {
    let mut byte = 0_u8;
    // SAFETY: 1. The byte is ours.
    let got = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
    (got == 1).then_some(byte)
}

/// Closes a file.
pub(super) fn close(fd: i32) {
    // SAFETY: 1. The number is of a file that the caller opened and uses no more.
    let _closed = unsafe { libc::close(fd) };
}

/// What the child sets for itself: it dies with the parent, and has no huge pages.
pub(super) fn prepare() -> Result<(), i32> {
    for (option, value) in [
        (libc::PR_SET_PDEATHSIG, libc::SIGKILL as u64),
        (libc::PR_SET_THP_DISABLE, 1),
    ] {
        let option = u64::from(option.cast_unsigned());
        call(libc::SYS_prctl, [option, value, 0, 0, 0, 0])?;
    }
    Ok(())
}

/// Moves the heap, which must be empty, to `at`: nobody allocates in this process any more.
pub(super) fn move_heap(at: u64) -> Result<(), i32> {
    // struct prctl_mm_map: 11 addresses, a pointer, a size and a file.
    let somewhere = 0x1_0000;
    let mut map = [somewhere; 13];
    for (index, value) in [
        (1, somewhere + 1),
        (4, at),
        (5, at),
        (11, 0),
        (12, 0xffff_ffff_0000_0000),
    ] {
        map[index] = value;
    }
    let (option, part) = (libc::PR_SET_MM as u64, libc::PR_SET_MM_MAP as u64);
    let size = size_of_val(&map) as u64;
    call(
        libc::SYS_prctl,
        [option, part, address(&mut map), size, 0, 0],
    )
    .map(drop)
}

/// A mapping as the kernel answers for it.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
struct MapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    start: u64,
    end: u64,
    flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    sizes: [u32; 2],
    addresses: [u64; 2],
}

/// What is known of a mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Read, write, execute, shared.
    pub(super) rights: u64,
    /// Where it begins in its file, in bytes.
    pub(super) offset: u64,
    /// Its file's device and inode; zeros without a file.
    pub(super) file: [u64; 3],
}

/// The first mapping that ends after `addr`. `maps` is `/proc/self/maps`.
pub(super) fn mapping_at(maps: i32, addr: u64) -> Result<Mapping, i32> {
    // _IOWR('f', 17, struct procmap_query), and its COVERING_OR_NEXT_VMA.
    let number = 3 << 30 | (size_of::<MapQuery>() as u64) << 16 | 0x66 << 8 | 17;
    let mut query = MapQuery {
        size: size_of::<MapQuery>() as u64,
        query_flags: 0x10,
        query_addr: addr,
        ..MapQuery::default()
    };
    let args = [maps as u64, number, address(&mut query), 0, 0, 0];
    call(libc::SYS_ioctl, args)?;
    let [major, minor] = query.device.map(u64::from);
    Ok(Mapping {
        start: query.start,
        end: query.end,
        rights: query.flags & 15,
        offset: query.offset,
        file: [major, minor, query.inode],
    })
}

/// The kernel's release, as in `6.18.44`.
pub(super) fn release() -> String {
    let mut name = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: 1. The structure is ours.
    let returned = unsafe { libc::uname(name.as_mut_ptr()) };
    if returned != 0 {
        return String::new();
    }
    // SAFETY: 1. The call filled it, and zeroes are values of it, too.
    let name = unsafe { name.assume_init() };
    // SAFETY: 1. The kernel ends it with a zero.
    let release = unsafe { CStr::from_ptr(name.release.as_ptr()) };
    release.to_string_lossy().into_owned()
}
