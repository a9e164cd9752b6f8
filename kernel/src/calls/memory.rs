//! Calls on memory: arguments as Linux has them, and what `minflt-mm` makes of them.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Errno, Growth, HugeSize, Lock, LockAll, LockWhen, MapRequest, Msync, Place, Populate,
    Remap, RemapRequest, Reserve, Sharing,
};

use super::{Caller, threads};
use crate::arch::paging::PAGE;
use crate::arch::uaccess;
use crate::fs::device::Device;
use crate::fs::numbers;
use crate::fs::open::Kind;
use crate::linux::EBADF;
use crate::linux::{
    self, EINVAL, EOPNOTSUPP, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN,
    MAP_HUGE_SHIFT, MAP_HUGETLB, MAP_IGNORED, MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE,
    MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE,
    MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE,
};
use crate::space::Space;
use crate::user;

/// Flags of mmap that are understood.
const MAP_KNOWN: u64 = MAP_TYPE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_GROWSDOWN
    | MAP_IGNORED
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | MAP_FIXED_NOREPLACE;
/// Those that say how large huge pages are.
const HUGE_SIZE: u64 = 63 << MAP_HUGE_SHIFT;

pub(super) fn mmap(
    caller: &Caller<'_, '_>,
    [addr, len, prot, flags, fd, offset]: [u64; 6],
) -> Result<u64, Errno> {
    let sharing = match flags & MAP_TYPE {
        MAP_PRIVATE => Sharing::Private,
        MAP_SHARED => Sharing::Shared,
        MAP_SHARED_VALIDATE if flags & !MAP_KNOWN == 0 => Sharing::Shared,
        MAP_SHARED_VALIDATE => return Err(EOPNOTSUPP),
        _ => return Err(EINVAL),
    };
    // Linux ignores what it does not know; here, what it would do is not to be missed in silence.
    if flags & !(MAP_KNOWN | HUGE_SIZE) != 0 {
        return Err(EINVAL);
    }
    let at = VirtAddr(addr);
    let place = if flags & MAP_FIXED_NOREPLACE != 0 {
        Place::FixedNoReplace(at)
    } else if flags & MAP_FIXED != 0 {
        Place::Fixed(at)
    } else if addr == 0 && flags & MAP_STACK != 0 {
        Place::Stack
    } else if addr == 0 {
        Place::Any
    } else {
        Place::Hint(at)
    };
    let mut request = MapRequest::new(place, len, linux::prot(prot)?);
    if flags & MAP_POPULATE != 0 && flags & MAP_NONBLOCK == 0 {
        request.populate = Populate::Now;
    }
    if flags & MAP_NORESERVE != 0 {
        request.reserve = Reserve::NoReserve;
    }
    if flags & MAP_LOCKED != 0 {
        request.lock = Lock::Yes;
    }
    if flags & MAP_GROWSDOWN != 0 {
        request.growth = Growth::Down;
    }
    let thread = caller.space.thread();
    match (flags & MAP_ANONYMOUS != 0, flags & MAP_HUGETLB != 0) {
        (true, true) => {
            let size = match flags >> MAP_HUGE_SHIFT & 63 {
                0 | 21 => HugeSize::Large,
                30 => HugeSize::Giant,
                _ => return Err(EINVAL),
            };
            let mm = caller.space.mm();
            return Ok(mm.mmap_huge_of(size, &request, sharing)?.0);
        }
        (true, false) if sharing == Sharing::Private => return Ok(thread.mmap(&request)?.0),
        (true, false) => {
            let bytes = len.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
            let file = caller.space.system().new_file(bytes)?;
            return Ok(thread.mmap_file(&request, &file, 0, sharing)?.0);
        }
        (false, _) => {}
    }
    map_file(caller, &request, sharing, flags, (fd, offset))
}

/// Maps the file that `fd` stands for.
fn map_file(
    caller: &Caller<'_, '_>,
    request: &MapRequest,
    sharing: Sharing,
    flags: u64,
    (fd, offset): (u64, u64),
) -> Result<u64, Errno> {
    let thread = caller.space.thread();
    if !offset.is_multiple_of(PAGE) {
        return Err(EINVAL);
    }
    let open = caller.process.files().get(fd)?;
    open.check_readable().map_err(|_| Errno::EACCES)?;
    match open.kind() {
        Kind::File(file) if flags & MAP_HUGETLB != 0 && !file.is_huge() => Err(EINVAL),
        Kind::File(file) => {
            // What was not opened to be written is not, by a shared mapping.
            let file = if open.check_writable().is_ok() {
                file
            } else {
                file.read_only()
            };
            Ok(thread.mmap_file(request, &file, offset, sharing)?.0)
        }
        Kind::Place => Err(EBADF),
        Kind::Device(Device::Zero) if sharing == Sharing::Private => Ok(thread.mmap(request)?.0),
        _ => Err(Errno::ENODEV),
    }
}

pub(super) fn munmap(space: &Space<'_>, addr: u64, len: u64) -> Result<u64, Errno> {
    space.mm().munmap(VirtAddr(addr), len)?;
    Ok(0)
}

pub(super) fn mprotect(space: &Space<'_>, addr: u64, len: u64, prot: u64) -> Result<u64, Errno> {
    space
        .mm()
        .mprotect(VirtAddr(addr), len, linux::prot(prot)?)?;
    Ok(0)
}

pub(super) fn mremap(
    space: &Space<'_>,
    [old, old_len, new_len, flags, to, _]: [u64; 6],
) -> Result<u64, Errno> {
    const MOVES_TO: u64 = MREMAP_MAYMOVE | MREMAP_FIXED;
    const KEEPS: u64 = MREMAP_MAYMOVE | MREMAP_DONTUNMAP;
    const BOTH: u64 = MOVES_TO | MREMAP_DONTUNMAP;
    let to = VirtAddr(to);
    let how = match flags {
        0 => Remap::InPlace,
        MREMAP_MAYMOVE => Remap::MayMove,
        MOVES_TO => Remap::Fixed(to),
        KEEPS => Remap::DontUnmap(to),
        BOTH => Remap::FixedDontUnmap(to),
        _ => return Err(EINVAL),
    };
    let request = RemapRequest {
        old: VirtAddr(old),
        old_len,
        new_len,
        how,
    };
    Ok(space.thread().mremap(&request)?.0)
}

pub(super) fn madvise(space: &Space<'_>, addr: u64, len: u64, advice: u64) -> Result<u64, Errno> {
    let advice = u32::try_from(advice).ok().and_then(Advice::from_number);
    let advice = advice.ok_or(EINVAL)?;
    space.mm().madvise(VirtAddr(addr), len, advice)?;
    Ok(0)
}

/// The new break, or the old one where that cannot be.
pub(super) fn brk(space: &Space<'_>, at: u64) -> Result<u64, Errno> {
    Ok(space.mm().brk(Some(VirtAddr(at))).0)
}

/// Some pages at a time, as Linux does: what was told before a bad address stays.
pub(super) fn mincore(caller: &Caller<'_, '_>, addr: u64, len: u64, to: u64) -> Result<u64, Errno> {
    let space = caller.space;
    const AT_ONCE: u64 = 128;
    let mut told = [0; AT_ONCE as usize];
    if len == 0 {
        space.mm().mincore(VirtAddr(addr), 0, &mut [])?;
    }
    let pages = len.div_ceil(PAGE);
    let mut done = 0;
    while done < pages && user::may_go_on() {
        let count = (pages - done).min(AT_ONCE);
        let told = &mut told[..count as usize];
        let at = addr.checked_add(done * PAGE).ok_or(Errno::ENOMEM)?;
        space.mm().mincore(VirtAddr(at), count * PAGE, told)?;
        uaccess::copy_to_user(to.checked_add(done).ok_or(Errno::EFAULT)?, told)?;
        done += count;
    }
    Ok(0)
}

/// `MLOCK_ONFAULT` is the only flag.
pub(super) fn mlock(space: &Space<'_>, addr: u64, len: u64, flags: u64) -> Result<u64, Errno> {
    let when = match flags {
        0 => LockWhen::Now,
        1 => LockWhen::OnFault,
        _ => return Err(EINVAL),
    };
    space.thread().mlock2(VirtAddr(addr), len, when)?;
    Ok(0)
}

pub(super) fn munlock(space: &Space<'_>, addr: u64, len: u64) -> Result<u64, Errno> {
    space.mm().munlock(VirtAddr(addr), len)?;
    Ok(0)
}

pub(super) fn mlockall(space: &Space<'_>, flags: u64) -> Result<u64, Errno> {
    let flags = u32::try_from(flags).map_err(|_| EINVAL)?;
    space.thread().mlockall(LockAll::from_bits(flags))?;
    Ok(0)
}

pub(super) fn munlockall(space: &Space<'_>) -> Result<u64, Errno> {
    space.mm().munlockall();
    Ok(0)
}

pub(super) fn msync(space: &Space<'_>, addr: u64, len: u64, flags: u64) -> Result<u64, Errno> {
    let how = u32::try_from(flags).ok().and_then(Msync::from_bits);
    space.mm().msync(VirtAddr(addr), len, how.ok_or(EINVAL)?)?;
    Ok(0)
}

/// The limits of address space, locked memory and stack, of the caller's process. What there is no
/// more of than Linux's default is unlimited, and cannot be limited.
pub(super) fn prlimit(
    caller: &Caller<'_, '_>,
    [number, what, new, old, ..]: [u64; 6],
) -> Result<u64, Errno> {
    const STACK: u64 = 3;
    const CORE: u64 = 4;
    const FILES: u64 = 7;
    const MEMLOCK: u64 = 8;
    const AS: u64 = 9;
    const RESOURCES: u64 = 16;
    let mm = caller.space.mm();
    if number != 0 && number != threads::getpid()? {
        return Err(Errno::EPERM);
    }
    let now = match what {
        STACK => mm.limit_stack(),
        MEMLOCK => mm.limit_memlock(),
        AS => mm.limit_as(),
        FILES => numbers::MOST as u64,
        CORE => 0,
        _ if what < RESOURCES => u64::MAX,
        _ => return Err(EINVAL),
    };
    if new != 0 {
        let bytes = uaccess::load(new)?;
        if bytes > uaccess::load(new.checked_add(8).ok_or(Errno::EFAULT)?)? {
            return Err(EINVAL);
        }
        match what {
            STACK => mm.set_limit_stack(bytes),
            MEMLOCK => mm.set_limit_memlock(bytes),
            AS => mm.set_limit_as(bytes),
            // As many as there are, or no fewer than they are.
            _ if bytes == now => {}
            _ => return Err(Errno::EPERM),
        }
    }
    if old != 0 {
        uaccess::store(old, now)?;
        uaccess::store(old.checked_add(8).ok_or(Errno::EFAULT)?, u64::MAX)?;
    }
    Ok(0)
}
