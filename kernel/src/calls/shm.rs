//! Shared memory of System V.

use minflt_addr::VirtAddr;
use minflt_mm::{
    Errno, Prot, Reserve, ShmAttach, ShmCreate, ShmId, ShmKey, ShmPages, ShmPlace, ShmRequest,
    ShmRound,
};

use crate::linux::EINVAL;
use crate::space::Space;

pub(super) fn get(space: &Space<'_>, key: u64, bytes: u64, flags: u64) -> Result<u64, Errno> {
    const CREAT: u64 = 0o1000;
    const EXCL: u64 = 0o2000;
    const HUGETLB: u64 = 0o4000;
    const NORESERVE: u64 = 0o10000;
    const MODE: u64 = 0o777;
    if flags & !(CREAT | EXCL | HUGETLB | NORESERVE | MODE) != 0 {
        return Err(EINVAL);
    }
    let create = match (flags & CREAT != 0, flags & EXCL != 0) {
        (true, true) => ShmCreate::Exclusive,
        (true, false) => ShmCreate::IfMissing,
        (false, _) => ShmCreate::No,
    };
    let request = ShmRequest {
        key: ShmKey(key as u32),
        bytes,
        create,
        mode: (flags & MODE) as u16,
        reserve: if flags & NORESERVE != 0 {
            Reserve::NoReserve
        } else {
            Reserve::Charged
        },
        pages: if flags & HUGETLB != 0 {
            ShmPages::Huge
        } else {
            ShmPages::Small
        },
    };
    Ok(u64::from(space.mm().shmget(&request)?.0))
}

fn id(number: u64) -> Result<ShmId, Errno> {
    // An int.
    u32::try_from(number as u32 as i32)
        .map(ShmId)
        .map_err(|_| EINVAL)
}

pub(super) fn at(space: &Space<'_>, number: u64, addr: u64, flags: u64) -> Result<u64, Errno> {
    const RDONLY: u64 = 0o10000;
    const RND: u64 = 0o20000;
    const REMAP: u64 = 0o40000;
    const EXEC: u64 = 0o100_000;
    if flags & !(RDONLY | RND | REMAP | EXEC) != 0 {
        return Err(EINVAL);
    }
    let at = VirtAddr(addr);
    let rights = if flags & RDONLY != 0 {
        Prot::READ
    } else {
        Prot::READ_WRITE
    };
    let attach = ShmAttach {
        place: if flags & REMAP != 0 {
            ShmPlace::Over(at)
        } else {
            ShmPlace::Free(at)
        },
        round: if flags & RND != 0 {
            ShmRound::Down
        } else {
            ShmRound::No
        },
        prot: if flags & EXEC != 0 {
            rights.with(Prot::EXEC)
        } else {
            rights
        },
    };
    Ok(space.mm().shmat(id(number)?, &attach)?.0)
}

pub(super) fn dt(space: &Space<'_>, addr: u64) -> Result<u64, Errno> {
    space.mm().shmdt(VirtAddr(addr))?;
    Ok(0)
}

/// `IPC_RMID` only.
pub(super) fn ctl(space: &Space<'_>, number: u64, what: u64) -> Result<u64, Errno> {
    const RMID: u64 = 0;
    if what != RMID {
        return Err(EINVAL);
    }
    space.system().shmctl_remove(id(number)?)?;
    Ok(0)
}
