//! Requests of `mm` out of the arguments that Linux's calls have.

use minflt_addr::VirtAddr;
use minflt_mm::{Growth, Lock, MapRequest, Place, Populate, Prot, Reserve, Sharing};
use minflt_spec::abi;

/// The mode of fallocate that makes a hole.
pub(super) const PUNCH: u64 = abi::FALLOC_FL_PUNCH_HOLE | abi::FALLOC_FL_KEEP_SIZE;

/// Shared or private, if mmap's flags say one of them.
pub(super) const fn shares(flags: u64) -> Option<Sharing> {
    match flags & abi::MAP_TYPE {
        abi::MAP_PRIVATE => Some(Sharing::Private),
        abi::MAP_SHARED => Some(Sharing::Shared),
        _ => None,
    }
}

/// The request of mmap's arguments.
pub(super) fn request(addr: u64, len: u64, prot: Prot, flags: u64) -> MapRequest {
    let has = |flag| flags & flag != 0;
    let place = if has(abi::MAP_FIXED_NOREPLACE) {
        Place::FixedNoReplace(VirtAddr(addr))
    } else if has(abi::MAP_FIXED) {
        Place::Fixed(VirtAddr(addr))
    } else if addr == 0 {
        Place::Any
    } else {
        Place::Hint(VirtAddr(addr))
    };
    let populate = match (has(abi::MAP_POPULATE), has(abi::MAP_NONBLOCK)) {
        (true, true) => Populate::NonBlock,
        (true, false) => Populate::Now,
        (false, _) => Populate::OnTouch,
    };
    let reserve = if has(abi::MAP_NORESERVE) {
        Reserve::NoReserve
    } else {
        Reserve::Charged
    };
    let lock = if has(abi::MAP_LOCKED) {
        Lock::Yes
    } else {
        Lock::AsSaid
    };
    let growth = if has(abi::MAP_GROWSDOWN) {
        Growth::Down
    } else {
        Growth::Fixed
    };
    MapRequest {
        populate,
        reserve,
        lock,
        growth,
        ..MapRequest::new(place, len, prot)
    }
}
