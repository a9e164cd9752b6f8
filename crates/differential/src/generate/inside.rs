//! Which steps may be run: they change nothing outside the window, and what they come to hangs on
//! nothing but the steps.

use crate::files;
use crate::record::Outcome;
use crate::step::{Call, Step};
use crate::window::{END, HUGE, HUGE_END, HUGE_PAGES, HUGE_START, PAGE, START};
use minflt_spec::{File, Flags, HALF, Space, TASK_SIZE, Vma, abi};

/// Whether what a step comes to hangs on more than the steps before it.
///
/// - Which pages of a file are in memory: on readahead and on writeback.
/// - A policy for a file in memory is the file's, for all who map it.
/// - Whether a file may be watched: on what it lies. Here none may.
/// - A userfaultfd's marks that outlive its watching for them: in Linux, until somebody watches for
///   them again.
/// - An anon_vma that a hole is given, though nobody watches it.
/// - What stood beside a watched mapping when it was moved: it is watched no more afterwards, but
///   Linux asks before that which neighbours it goes with.
/// - What is stored behind the end of a file, in its last page: each file system has its own idea
///   of when that goes.
pub(super) fn hangs_on_more(step: &Step, before: &Space, after: &Space, outcome: &Outcome) -> bool {
    let [addr, len, ..] = step.args;
    let in_range = |len: u64| {
        let end = addr.saturating_add(len);
        let inside = move |vma: &&Vma| vma.start < end && vma.end > addr;
        before.vmas().iter().filter(inside)
    };
    let of_file = |len: u64| in_range(len).any(|vma| vma.file.is_some());
    match step.call {
        Call::Mincore | Call::Mbind => of_file(len),
        Call::GetMempolicy => len & abi::MPOL_F_ADDR != 0 && of_file(1),
        Call::UffdRegister | Call::UffdUnregister => {
            let loses = step.args[2] & abi::UFFDIO_REGISTER_MODE_WP == 0;
            let marked = |vma: &Vma| loses && vma.flags.has(Flags::UFFD_WP);
            of_file(len) || step.call == Call::UffdRegister && in_range(len).any(marked)
        }
        Call::UffdCopy | Call::UffdZeropage => {
            let found = before.at(addr);
            found.is_some_and(|vma| !vma.has_anon() && !vma.flags.has(Flags::UFFD))
                || after.at(addr) != found && after.pages().eq(before.pages())
        }
        Call::Mremap => {
            let watched = |vma: &Vma| vma.flags.has(Flags::UFFD);
            let Outcome::Done(to, _) = outcome else {
                return false;
            };
            let round = step.args[2].div_ceil(PAGE) * PAGE;
            let end = to + round;
            let beside = |vma: &Vma| {
                (vma.start < *to && vma.end >= *to) || (vma.start <= end && vma.end > end)
            };
            *to != addr && in_range(len.max(1)).any(watched) && before.vmas().iter().any(beside)
        }
        Call::Store | Call::ForcedWrite | Call::RemoteWrite => {
            after.files().iter().any(File::has_tail)
        }
        _ => false,
    }
}

/// Whether a step changes nothing outside the window, whatever is mapped: it lies in the window, or
/// the kernel refuses it before it acts.
#[must_use]
pub fn stays_inside(step: &Step) -> bool {
    match step.is_of_huge_pages() {
        true => huge_stays_inside(step),
        false => small_stays_inside(step),
    }
}

fn small_stays_inside(step: &Step) -> bool {
    let [addr, len, third, fourth, fifth, _] = step.args;
    let aligned = addr.is_multiple_of(PAGE);
    let rounded = len.checked_add(PAGE - 1).map_or(0, |len| len & !(PAGE - 1));
    let inside =
        |addr: u64, len: u64| addr >= START && addr.checked_add(len).is_some_and(|end| end <= END);
    let wraps = addr.checked_add(rounded).is_none();
    match step.call {
        Call::Mmap | Call::MmapFile => {
            let fixed = fourth & (abi::MAP_FIXED | abi::MAP_FIXED_NOREPLACE) != 0;
            let refused = rounded == 0
                || rounded > TASK_SIZE
                || (addr > TASK_SIZE - rounded.min(TASK_SIZE))
                || !aligned;
            let hint = addr == 0 || addr >= TASK_SIZE || inside(addr & !(PAGE - 1), 0);
            if fixed {
                refused || inside(addr, rounded)
            } else {
                hint
            }
        }
        Call::Munmap => {
            let refused = !aligned || addr > TASK_SIZE || len > TASK_SIZE - addr || len == 0;
            refused || inside(addr, rounded)
        }
        Call::Mprotect => {
            let grows = abi::PROT_GROWSDOWN | abi::PROT_GROWSUP;
            let refused = !aligned || third & grows == grows || (len > 0 && rounded == 0);
            refused || wraps || inside(addr, rounded)
        }
        Call::Mremap => remap_stays_inside([addr, len, third, fourth, fifth]),
        Call::Madvise | Call::Mbind | Call::Msync => {
            !aligned || (len > 0 && rounded == 0) || wraps || inside(addr, rounded)
        }
        Call::Mlock | Call::Mlock2 | Call::Munlock => {
            let within = addr % PAGE;
            let rounded = len.wrapping_add(within).checked_add(PAGE - 1);
            let rounded = rounded.map_or(0, |len| len & !(PAGE - 1));
            let start = addr - within;
            start.checked_add(rounded).is_none() || inside(start, rounded)
        }
        Call::Mincore => {
            let beyond = addr.checked_add(len).is_none_or(|end| end > TASK_SIZE);
            !aligned || beyond || (inside(addr, rounded) && rounded > 0) || len == 0
        }
        Call::Brk => true,
        Call::GetMempolicy => len & abi::MPOL_F_ADDR == 0 || inside(addr, 1),
        Call::Load | Call::Store | Call::ForcedRead | Call::ForcedWrite => {
            addr.is_multiple_of(HALF) && inside(addr, HALF)
        }
        Call::RemoteRead | Call::RemoteWrite => {
            aligned && rounded == len && len <= 64 * PAGE && inside(addr, len)
        }
        Call::UffdCopy if len > 64 * PAGE => false,
        call if call.is_of_userfaultfd() => {
            let refused = !aligned || rounded != len || len == 0 || wraps;
            refused || inside(addr, len)
        }
        Call::Ftruncate => len <= files::PAGES * PAGE || len > i64::MAX as u64,
        Call::Fallocate => {
            let known = abi::FALLOC_FL_KEEP_SIZE | abi::FALLOC_FL_PUNCH_HOLE;
            let end = third.checked_add(fourth);
            let refused = third > i64::MAX as u64 || fourth > i64::MAX as u64 || fourth == 0;
            len & !known == 0 && (refused || end.is_some_and(|end| end <= files::PAGES * PAGE))
        }
        Call::Pread | Call::Pwrite => len.is_multiple_of(HALF) && len < files::PAGES * PAGE,
        _ => true,
    }
}

/// The same of huge pages: lengths of mappings are rounded up to these.
fn huge_stays_inside(step: &Step) -> bool {
    let [addr, len, third, fourth, ..] = step.args;
    let range = |unit: u64| {
        let len = len.checked_next_multiple_of(unit).unwrap_or(0);
        let end = addr.checked_add(len);
        (
            len,
            addr >= HUGE_START && end.is_some_and(|end| end <= HUGE_END),
        )
    };
    let aligned = addr.is_multiple_of(PAGE);
    let (rounded, inside) = range(PAGE);
    let wraps = addr.checked_add(rounded).is_none();
    match step.call {
        Call::HugeMmap | Call::HugeMmapFile => {
            let (rounded, inside) = range(HUGE);
            let fixed = fourth & (abi::MAP_FIXED | abi::MAP_FIXED_NOREPLACE) != 0;
            let refused = rounded == 0
                || rounded > TASK_SIZE
                || fixed && (!addr.is_multiple_of(HUGE) || addr > TASK_SIZE - rounded);
            // What finds no hole elsewhere finds none.
            let free = !fixed && (addr == 0 || addr >= TASK_SIZE || range(1).0 == len);
            refused || free || inside
        }
        Call::HugeFtruncate => addr <= HUGE_PAGES * HUGE || addr > i64::MAX as u64,
        Call::HugeFallocate => {
            let end = len.checked_add(third);
            let refused = len > i64::MAX as u64 || third > i64::MAX as u64 || third == 0;
            addr < 4 && (refused || end.is_some_and(|end| end <= HUGE_PAGES * HUGE))
        }
        Call::HugePread => addr.is_multiple_of(HUGE / 2) && addr < HUGE_PAGES * HUGE,
        Call::Munmap => {
            let refused = !aligned || addr > TASK_SIZE || len > TASK_SIZE - addr || len == 0;
            refused || inside
        }
        Call::Mprotect | Call::Madvise => !aligned || (len > 0 && rounded == 0) || wraps || inside,
        Call::Load | Call::Store | Call::ForcedRead | Call::ForcedWrite => {
            addr.is_multiple_of(HUGE / 2) && inside && addr < HUGE_END
        }
        Call::RemoteWrite => addr.is_multiple_of(HUGE / 2) && len == PAGE && inside,
        _ => false,
    }
}

fn remap_stays_inside([addr, old, new, flags, to]: [u64; 5]) -> bool {
    let round = |len: u64| len.checked_add(PAGE - 1).map_or(0, |len| len & !(PAGE - 1));
    let (old, new) = (round(old), round(new));
    let inside =
        |addr: u64, len: u64| addr >= START && addr.checked_add(len).is_some_and(|end| end <= END);
    if flags & !7 != 0 || !addr.is_multiple_of(PAGE) || new == 0 || new > TASK_SIZE {
        return true;
    }
    let fixed = flags & abi::MREMAP_FIXED != 0;
    if fixed && (to > TASK_SIZE - new || !to.is_multiple_of(PAGE)) {
        return true;
    }
    let target = if fixed {
        inside(to, new)
    } else {
        to == 0 || to >= TASK_SIZE || inside(to & !(PAGE - 1), 0)
    };
    inside(addr, old.max(PAGE)) && target
}
