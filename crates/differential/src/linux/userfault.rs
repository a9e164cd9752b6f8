//! The case's userfaultfd. The numbers are those of `linux/userfaultfd.h`.

use super::area::Area;
use super::child::returned;
use super::remote::pages_of;
use super::sys;
use crate::step::{Call, Step};

/// `_IOC` of userfaultfd's calls: 1 for writing, 2 for reading, bytes of the structure, number.
const fn ioctl(direction: u64, words: u64, number: u64) -> u64 {
    (direction << 30) | (words * 8) << 16 | (0xaa << 8) | number
}
const UFFD_API: u64 = 0xaa;
const UFFD_USER_MODE_ONLY: u64 = 1;
const UFFD_FEATURE_SIGBUS: u64 = 1 << 7;
const UFFDIO_API: u64 = ioctl(3, 3, 0x3f);
const UFFDIO_REGISTER: u64 = ioctl(3, 4, 0);
const UFFDIO_UNREGISTER: u64 = ioctl(2, 2, 1);
const UFFDIO_COPY: u64 = ioctl(3, 5, 3);
const UFFDIO_ZEROPAGE: u64 = ioctl(3, 4, 4);
const UFFDIO_WRITEPROTECT: u64 = ioctl(3, 3, 6);

/// Opens one of the calling process.
pub(super) fn open() -> Result<i32, i32> {
    let flags = libc::O_CLOEXEC as u64 | UFFD_USER_MODE_ONLY;
    let fd = sys::call(libc::SYS_userfaultfd, [flags, 0, 0, 0, 0, 0])?;
    let mut api = [UFFD_API, UFFD_FEATURE_SIGBUS, 0];
    told(fd, UFFDIO_API, &mut api)?;
    Ok(fd as i32)
}

fn told<const N: usize>(fd: u64, call: u64, with: &mut [u64; N]) -> Result<u64, i32> {
    let with = sys::address(with);
    sys::call(libc::SYS_ioctl, [fd, call, with, 0, 0, 0])
}

/// A step that is the userfaultfd's.
pub(super) fn perform(area: &mut Area, fd: i32, step: &Step) -> [u64; 4] {
    let [a, b, c, d, ..] = step.args;
    let fd = fd as u64;
    let result = match step.call {
        Call::UffdRegister => told(fd, UFFDIO_REGISTER, &mut [a, b, c, 0]),
        Call::UffdUnregister => told(fd, UFFDIO_UNREGISTER, &mut [a, b]),
        Call::UffdCopy => {
            let from = pages_of(area, b, c);
            told(fd, UFFDIO_COPY, &mut [a, from, b, d, 0])
        }
        Call::UffdZeropage => told(fd, UFFDIO_ZEROPAGE, &mut [a, b, c, 0]),
        _ => told(fd, UFFDIO_WRITEPROTECT, &mut [a, b, c]),
    };
    returned(result)
}
