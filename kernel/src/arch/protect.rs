//! What keeps the kernel off a program's memory where the CPU can: SMEP (nothing there is
//! executed) and SMAP (nothing is reached but between STAC and CLAC, in `uaccess.s`). Intel SDM
//! volume 3, 4.6.

use core::arch::x86_64::__cpuid_count;

use x86_64::registers::control::{Cr4, Cr4Flags};

unsafe extern "C" {
    safe static stac_sites_start: [u64; 0];
    safe static stac_sites_end: [u64; 0];
    safe static clac_sites_start: [u64; 0];
    safe static clac_sites_end: [u64; 0];
}

/// An instruction of three bytes.
type Instruction = [u8; 3];
const STAC: Instruction = [0x0f, 0x01, 0xcb];
const CLAC: Instruction = [0x0f, 0x01, 0xca];

/// What the CPU has, in EBX of leaf 7.
const HAS_SMEP: u32 = 1 << 7;
const HAS_SMAP: u32 = 1 << 20;

fn features() -> u32 {
    __cpuid_count(7, 0).ebx
}

/// Puts STAC and CLAC into the code, if the CPUs have SMAP as the boot CPU has.
///
/// # Safety
/// 1. No other CPU runs, the first tables are in use, which map the code writable, and no program
///    has run.
pub(super) unsafe fn patch() {
    if features() & HAS_SMAP == 0 {
        return;
    }
    for (sites, end, instruction) in [
        (&stac_sites_start, &stac_sites_end, STAC),
        (&clac_sites_start, &clac_sites_end, CLAC),
    ] {
        let mut site = sites.as_ptr();
        while site < end.as_ptr() {
            // SAFETY: (1) between the list's ends, as the linker laid them out.
            let at = unsafe { site.read() };
            let at = core::ptr::with_exposed_provenance_mut::<Instruction>(at as usize);
            // SAFETY: (1) three bytes of the code that are there for this.
            unsafe { at.write_volatile(instruction) };
            // SAFETY: (1) the next one, or the end.
            site = unsafe { site.add(1) };
        }
    }
}

/// Whether the calling CPU has SMAP, turned on.
pub(crate) fn has_smap() -> bool {
    Cr4::read().contains(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION)
}

/// Turns on what the calling CPU has. Called once on each, after [`patch`].
pub(super) fn enable() {
    let has = features();
    let mut flags = Cr4Flags::empty();
    flags.set(
        Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION,
        has & HAS_SMEP != 0,
    );
    flags.set(
        Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION,
        has & HAS_SMAP != 0,
    );
    // SAFETY: (1) the kernel executes nothing of programs, and reaches their memory as it must.
    unsafe { Cr4::update(|old| old.insert(flags)) };
}
