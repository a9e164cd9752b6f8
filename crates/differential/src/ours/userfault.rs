//! The case's userfaultfd, by Linux's numbers.

use super::{Machine, nothing};
use crate::record::Outcome;
use crate::step::{Call, Step};
use crate::window::PAGE;
use minflt_addr::VirtAddr;
use minflt_mm::{Errno, Uffd, UffdMode, Wake, WriteProtected};
use minflt_pgtable::Paging;
use minflt_spec::abi;

/// A step that is the userfaultfd's.
pub(super) fn perform<P: Paging>(uffd: &Uffd<'_, Machine<P>>, step: &Step) -> Outcome {
    let [a, b, c, d, ..] = step.args;
    let at = VirtAddr(a);
    let refused = Outcome::Errno(Errno::EINVAL.0);
    let protect = |bits: u64, bit: u64| match bits & bit {
        0 => WriteProtected::No,
        _ => WriteProtected::Yes,
    };
    let wake = |bits: u64, bit: u64| if bits & bit == 0 { Wake::Yes } else { Wake::No };
    match step.call {
        Call::UffdRegister => {
            const BOTH: u64 = abi::UFFDIO_REGISTER_MODE_MISSING | abi::UFFDIO_REGISTER_MODE_WP;
            let mode = match c {
                abi::UFFDIO_REGISTER_MODE_MISSING => UffdMode::Missing,
                abi::UFFDIO_REGISTER_MODE_WP => UffdMode::WriteProtect,
                BOTH => UffdMode::Both,
                _ => return refused,
            };
            nothing(uffd.register(at, b, mode))
        }
        Call::UffdUnregister => nothing(uffd.unregister(at, b)),
        Call::UffdCopy => {
            let mut bytes = vec![0; b as usize];
            for (page, word) in bytes.chunks_mut(PAGE as usize).zip(c..) {
                if let Some(first) = page.first_chunk_mut::<8>() {
                    *first = word.to_le_bytes();
                }
            }
            let protect = protect(d, abi::UFFDIO_COPY_MODE_WP);
            let wake = wake(d, abi::UFFDIO_COPY_MODE_DONTWAKE);
            nothing(uffd.copy(at, &bytes, protect, wake))
        }
        Call::UffdZeropage => {
            nothing(uffd.zeropage(at, b, wake(c, abi::UFFDIO_ZEROPAGE_MODE_DONTWAKE)))
        }
        _ => {
            let protect = protect(c, abi::UFFDIO_WRITEPROTECT_MODE_WP);
            let wake = wake(c, abi::UFFDIO_WRITEPROTECT_MODE_DONTWAKE);
            nothing(uffd.writeprotect(at, b, protect, wake))
        }
    }
}
