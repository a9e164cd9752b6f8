//! Which steps `mm` runs, and which of them differ from Linux by design.

use super::request::{PUNCH, shares};
use crate::files::opened;
use crate::generate::Choice;
use crate::record::{Outcome, Record};
use crate::step::{Call, Step};
use minflt_mm::{Advice, Sharing};
use minflt_spec::{ExecAlone, Flags, Space, Vma, abi};

/// Whether `mm` has the call with these flags at all: what it lacks stands in
/// `docs/linux-compat.md`.
fn has(step: &Step) -> bool {
    let [_, _, third, fourth, ..] = step.args;
    match step.call {
        Call::Mmap => {
            let known = abi::MAP_PRIVATE
                | abi::MAP_ANONYMOUS
                | abi::MAP_FIXED
                | abi::MAP_FIXED_NOREPLACE
                | abi::MAP_POPULATE
                | abi::MAP_NONBLOCK
                | abi::MAP_NORESERVE
                | abi::MAP_LOCKED
                | abi::MAP_GROWSDOWN;
            fourth & !(known | abi::MAP_SHARED) == 0 && shares(fourth).is_some()
        }
        // A handle is no descriptor: what is private does not show through which it was mapped.
        Call::MmapFile => {
            let known = abi::MAP_FIXED
                | abi::MAP_FIXED_NOREPLACE
                | abi::MAP_POPULATE
                | abi::MAP_NONBLOCK
                | abi::MAP_NORESERVE
                | abi::MAP_LOCKED
                | abi::MAP_GROWSDOWN;
            let sharing = shares(fourth);
            let both = abi::MAP_PRIVATE | abi::MAP_SHARED;
            let shown = opened(step.args[4]).writable || sharing == Some(Sharing::Shared);
            fourth & !(known | both) == 0 && sharing.is_some() && shown
        }
        Call::Fallocate => matches!(step.args[1], 0 | PUNCH),
        Call::HugeFallocate => matches!(step.args[0], 0 | PUNCH),
        Call::Mprotect => third & !7 == 0,
        Call::Madvise => Advice::from_number(third as u32).is_some(),
        Call::Mbind => plain_mode(third),
        Call::SetMempolicy => plain_mode(step.args[0]),
        // Whether a privilege or the lack of a limit lets all be locked shows where it wraps.
        Call::Mlock | Call::Mlock2 => step.args[1] < 1 << 50,
        _ => true,
    }
}

/// Whether a mode is without flags.
const fn plain_mode(mode: u64) -> bool {
    mode & (abi::MPOL_F_STATIC_NODES | abi::MPOL_F_RELATIVE_NODES | abi::MPOL_F_NUMA_BALANCING) == 0
}

/// Whether what a step came to differs by design.
///
/// - An mmap that is refused because too much would be mapped has cut the mappings at the edges of
///   its range in Linux; in `mm` a call that fails has changed nothing.
/// - The node of a page that is there but may not be loaded: Linux tells it, if no lock is needed.
/// - Of several mappings that mprotect makes writable Linux fills a locked one before it goes on to
///   the next, which then does not merge with it; `mm` fills it when all are changed.
/// - A range that ends within a huge page: Linux has cut the mapping where the range begins.
/// - What is mapped in place of huge pages: Linux has what a private mapping reserved for it, and
///   what a shared one had not even for populating it.
/// - What a locked mapping leaves behind when its pages are moved away: Linux goes on counting it
///   as locked, though it is not.
fn differs(step: &Step, before: &Space, record: &Record) -> bool {
    let failed = matches!(record.outcome, Outcome::Errno(_));
    let looks = abi::MPOL_F_NODE | abi::MPOL_F_ADDR;
    let [addr, len, ..] = step.args;
    let was = || before.vmas().iter().map(|vma| (vma.start, vma.end));
    let is = || record.after.maps.iter().map(|line| (line.start, line.end));
    if step.is_of_huge_pages() && failed && !was().eq(is()) {
        let found = before.at(addr);
        let in_one = found.is_some_and(|vma| addr.saturating_add(len) < vma.end);
        return in_one || !matches!(step.call, Call::Mprotect | Call::Madvise);
    }
    match step.call {
        Call::Mmap | Call::MmapFile | Call::HugeMmap | Call::HugeMmapFile => {
            let flags = step.args[3];
            let wants = flags & abi::MAP_NORESERVE == 0 || flags & abi::MAP_POPULATE != 0;
            let replaces =
                flags & abi::MAP_FIXED != 0 && in_range(before, addr, len).next().is_some();
            let late = !failed && wants && replaces && !before.has_huge_pages_for(len);
            failed && !was().eq(is()) || step.is_of_huge_pages() && late
        }
        Call::GetMempolicy => {
            let found = before.at(addr);
            let loads = found.is_some_and(|vma| vma.flags.has(Flags::READ));
            step.args[1] == looks && !failed && !loads
        }
        Call::Mprotect if step.args[2] & abi::PROT_WRITE != 0 => {
            let filled = |vma: &Vma| {
                let not = Flags::WRITE.with(Flags::LOCKONFAULT);
                vma.flags.has(Flags::LOCKED) && !vma.flags.has(not)
            };
            let vmas = || in_range(before, addr, len);
            vmas().count() > 1 && vmas().any(filled)
        }
        Call::Mremap => {
            let locked = |vma: &Vma| vma.flags.has(Flags::LOCKED);
            step.args[3] & abi::MREMAP_DONTUNMAP != 0 && in_range(before, addr, len).any(locked)
        }
        _ => false,
    }
}

/// The mappings of which part lies in the range.
fn in_range(space: &Space, addr: u64, len: u64) -> impl Iterator<Item = &Vma> {
    let end = addr.saturating_add(len);
    let inside = move |vma: &&Vma| vma.start < end && vma.end > addr;
    space.vmas().iter().filter(inside)
}

/// The steps that `mm` has and whose results do not differ by design.
pub const CHOICE: Choice = Choice {
    has,
    differs,
    exec_alone: None,
};

/// The same with `PROT_EXEC` alone, in formats whose entries can refuse loads there.
pub const CHOICE_EXECUTE_ONLY: Choice = Choice {
    exec_alone: Some(ExecAlone::Fetches),
    ..CHOICE
};
