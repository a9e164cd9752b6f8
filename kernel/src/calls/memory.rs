//! Calls on memory: arguments as Linux has them, and what `minflt-mm` makes of them.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, Errno, Growth, Lock, LockAll, LockWhen, MapRequest, Place, Populate, Remap,
    RemapRequest, Reserve,
};

use crate::arch::paging::PAGE;
use crate::arch::uaccess;
use crate::linux::{
    self, EINVAL, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_IGNORED,
    MAP_LOCKED, MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_STACK, MAP_TYPE,
    MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE,
};
use crate::space::Space;

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
    | MAP_FIXED_NOREPLACE;

/// Private anonymous memory only.
pub(super) fn mmap(
    space: &Space<'_>,
    [addr, len, prot, flags, _, _]: [u64; 6],
) -> Result<u64, Errno> {
    if flags & !MAP_KNOWN != 0 || flags & MAP_TYPE != MAP_PRIVATE || flags & MAP_ANONYMOUS == 0 {
        return Err(EINVAL);
    }
    let at = VirtAddr(addr);
    let place = if flags & MAP_FIXED_NOREPLACE != 0 {
        Place::FixedNoReplace(at)
    } else if flags & MAP_FIXED != 0 {
        Place::Fixed(at)
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
    Ok(space.thread().mmap(&request)?.0)
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
pub(super) fn mincore(space: &Space<'_>, addr: u64, len: u64, to: u64) -> Result<u64, Errno> {
    const AT_ONCE: u64 = 128;
    let mut told = [0; AT_ONCE as usize];
    if len == 0 {
        space.mm().mincore(VirtAddr(addr), 0, &mut [])?;
    }
    let pages = len.div_ceil(PAGE);
    let mut done = 0;
    while done < pages {
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
