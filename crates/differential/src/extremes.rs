//! Arguments that no program means: addresses and lengths near 0, the end of user space, half and
//! all of what a word holds, and any others. Whatever a call is given, it answers, and touches
//! nothing it was not asked for: beside what the calls map lies a page that none of them may
//! change, and at the end the ledger adds up.
//!
//! Calls are drawn from a seed by the test, and from bytes by the fuzzer.

use core::ops::Range;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{
    Advice, Config, FileHandle, Force, Growth, LockAll, LockWhen, MapRequest, Mapped, Misplaced,
    Mm, Msync, NodeMask, Place, Policy, PolicyMode, Populate, Prot, Remap, RemapRequest, Reserve,
    Running, Sharing, System, Thread, UffdMode, Wake, Which, WriteProtected,
};
use minflt_pgtable::{Access, Paging};

/// Where nothing may be touched; at its start lies the page that is looked at after each call.
pub const KEPT: Range<u64> = 0x20_0000..0x20_0000 + (1 << 16);
/// What that page holds.
pub const WORD: u64 = 0x1234_5678_9abc_def0;
/// How many kinds of calls there are.
pub const KINDS: u64 = 42;
/// Near these something begins or ends.
const EDGES: [u64; 10] = [
    0,
    KEPT.start,
    1 << 31,
    1 << 32,
    1 << 38,
    1 << 39,
    1 << 47,
    1 << 48,
    1 << 63,
    u64::MAX,
];

/// One call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Which of the [`KINDS`].
    pub kind: u64,
    /// Addresses, lengths and offsets.
    pub args: [u64; 3],
    /// Chooses among protections, places and the like.
    pub small: u64,
}

impl Call {
    /// A call of `kind` on pages of `page` bytes; `below(n)` is any number below n.
    pub fn draw(kind: u64, small: u64, page: u64, mut below: impl FnMut(u64) -> u64) -> Self {
        Self {
            kind: kind % KINDS,
            args: [(); 3].map(|()| extreme(page, &mut below)),
            small,
        }
    }

    /// Calls out of any bytes.
    #[must_use]
    pub fn all_of(bytes: &[u8], page: u64) -> Vec<Self> {
        let mut bytes = bytes.iter().copied().peekable();
        let mut calls = Vec::new();
        while bytes.peek().is_some() && calls.len() < CALLS_MAX {
            let mut byte = || u64::from(bytes.next().unwrap_or_default());
            let (kind, small) = (byte(), byte());
            calls.push(Self::draw(kind, small, page, |n| byte() % n));
        }
        calls
    }

    /// Whether the pages from the first argument on, as many bytes as the second, are not kept.
    fn is_apart(&self) -> bool {
        let [from, len, _] = self.args;
        from >= KEPT.end || from.saturating_add(len) <= KEPT.start - (1 << 16)
    }
}

/// The most calls of one input.
const CALLS_MAX: usize = 48;

/// A value near one of the edges, seldom any.
fn extreme(page: u64, below: &mut impl FnMut(u64) -> u64) -> u64 {
    let edge = below(EDGES.len() as u64 + 1) as usize;
    let Some(edge) = EDGES.get(edge) else {
        return (0..8).fold(0, |word, _| word << 8 | below(256));
    };
    let alias = match below(4) {
        // The same low bits as the page that is kept.
        0 => KEPT.start,
        _ => 0,
    };
    let steps = [0, 1, 8, page, 2 * page, 3 * page - 1, 511 * page];
    let step = steps[below(steps.len() as u64) as usize];
    match below(2) {
        0 => (edge | alias).wrapping_add(step),
        _ => (edge | alias).wrapping_sub(step),
    }
}

/// A machine for such calls.
#[derive(Debug)]
pub struct Bench<P: Paging> {
    system: Running<Host<P, true>>,
}

impl<P: Paging> Bench<P> {
    /// Starts one with so much memory.
    ///
    /// # Errors
    /// When the host does not have it, in words.
    pub fn start(config: Config, ram_bytes: usize) -> Result<Self, String> {
        let options = HostOptions {
            cpus: 1,
            ram_bytes,
            prefault: Prefault::OnTouch,
        };
        let machine = HostInstance::new(&options).map_err(|error| error.to_string())?;
        let system = System::boot(machine, config).map_err(|error| error.to_string())?;
        Ok(Self { system })
    }

    /// Makes the calls in a fresh address space. What each answers does not matter, but that it
    /// does.
    ///
    /// # Errors
    /// When the page that is kept changed, or the ledger does not add up.
    pub fn run(&self, calls: impl IntoIterator<Item = Call>) -> Result<(), String> {
        let system: &Running<Host<P, true>> = &self.system;
        let _cpu = system.machine().enter(0);
        let no_memory = |_| "no memory to begin with".to_owned();
        let mm = system.new_mm().map_err(no_memory)?;
        let kept = VirtAddr(KEPT.start);
        mm.mmap(Place::FixedNoReplace(kept), P::page(), Prot::READ_WRITE)
            .map_err(|error| format!("the page that is kept: {error}"))?;
        let file = system.new_file(8 * P::page()).map_err(no_memory)?;
        let thread = mm.thread();
        thread
            .store(kept, WORD)
            .map_err(|signal| format!("the page that is kept: {signal:?}"))?;
        for call in calls {
            make(&mm, &thread, &file, &call);
            let found = thread.load(kept);
            if found != Ok(WORD) {
                return Err(format!(
                    "{found:x?} in the page that is kept, after {call:x?}"
                ));
            }
        }
        drop(thread);
        let adds_up = |alive: &[&Mm<Host<P, true>>]| {
            let ledger = system.check_ledger(alive);
            ledger.map(drop).map_err(|error| format!("ledger: {error}"))
        };
        adds_up(&[&mm])?;
        drop(mm);
        drop(file);
        adds_up(&[])
    }
}

/// What a call answered, which does not matter here.
fn answered<T>(_: T) {}

/// Makes the call.
#[expect(clippy::too_many_lines, reason = "a line for each call")]
fn make<P: Paging>(
    mm: &Mm<Host<P, true>>,
    thread: &Thread<'_, Host<P, true>>,
    file: &FileHandle<'_, Host<P, true>>,
    call: &Call,
) {
    let Call { args, small, .. } = *call;
    let [a, b, c] = args;
    let at = VirtAddr(a);
    let access = [Access::Read, Access::Write][small as usize % 2];
    let prot = [Prot::NONE, Prot::READ, Prot::READ_WRITE][small as usize % 3];
    let place = [
        Place::Any,
        Place::Hint(VirtAddr(c)),
        Place::FixedNoReplace(VirtAddr(c)),
    ][small as usize % 3];
    let request = MapRequest {
        growth: [Growth::Fixed, Growth::Down][small as usize % 2],
        reserve: Reserve::NoReserve,
        populate: Populate::OnTouch,
        ..MapRequest::new(place, b, prot)
    };
    match call.kind {
        0 => answered(thread.load(at)),
        1 => answered(thread.fault(at, access)),
        2 => answered(thread.mmap(&request)),
        3 => answered(thread.mmap_file(&request, file, a, Sharing::Private)),
        4 => answered(thread.mmap_file(&request, file, a, Sharing::Shared)),
        5 => answered(mm.mmap_huge(&request, Sharing::Private)),
        6 => answered(mm.mprotect(VirtAddr(c), 0, prot)),
        7 => answered(thread.madvise(at, b, Advice::WillNeed)),
        8 => answered(thread.madvise(at, b, Advice::Cold)),
        9 => {
            let how = [Remap::InPlace, Remap::MayMove][small as usize % 2];
            let request = RemapRequest {
                old: at,
                old_len: b,
                new_len: c,
                how,
            };
            // Of what is not the kept page: that may be moved where it is mapped.
            if call.is_apart() {
                answered(thread.mremap(&request));
            }
        }
        10 => answered(mm.mincore(at, b.min(1 << 20), &mut [0; 256])),
        11 => answered(mm.msync(
            at,
            b,
            Msync {
                wait: true,
                begin: false,
                invalidate: false,
            },
        )),
        12 => answered(thread.mlock2(at, b, LockWhen::OnFault)),
        13 => answered(thread.mm().munlock(at, b)),
        14 => answered(thread.mlockall(LockAll::from_bits(5))),
        15 => thread.mm().munlockall(),
        16 => answered(mm.mbind(
            at,
            b,
            Policy::new(PolicyMode::Bind, NodeMask::of(c as u32)),
            Misplaced::Stay,
        )),
        17 => answered(mm.get_mempolicy_at(at)),
        18 => answered(mm.move_pages([(at, c as u32)], Which::Own, |_| ())),
        19 => mm.page_nodes([at], |_| ()),
        20 => answered(mm.remote_read(at, &mut [0; 64], Force::Yes)),
        21 => answered(mm.pin(at, Access::Read).map(|pin| pin.load(b))),
        22 => answered(thread.pin_fast(at, Access::Read)),
        23 => answered(thread.node_at(at)),
        24 => mm.pagemap(at, &mut [Mapped::Nothing; 8]),
        25 => answered(mm.brk(Some(at))),
        26 => answered(mm.set_start_brk(at)),
        27 => mm.set_limit_stack(b),
        28 => answered(file.truncate(a % (1 << 40))),
        29 => answered(file.punch_hole(a, b)),
        30 => answered(file.read_word(a)),
        31 => answered(file.write_word(a, b)),
        32 => answered(mm.shmdt(at)),
        33 => answered(mm.age(VirtRange::new(VirtAddr(a.min(b)), VirtAddr(a.max(b))))),
        34 => answered(mm.mapping_at(at)),
        35 if call.is_apart() => answered(mm.munmap(at, b)),
        36 if call.is_apart() => answered(mm.mprotect(at, b, prot)),
        37 if call.is_apart() => {
            let advice = [Advice::DontNeed, Advice::Free, Advice::Remove][small as usize % 3];
            answered(thread.madvise(at, b, advice));
        }
        38 if call.is_apart() => answered(thread.store(at, b)),
        39 => answered(mm.fork()),
        // More would be memory for all of it, as long as there is some.
        40 => answered(file.allocate(a, b % (1 << 20))),
        35..=38 => {}
        _ => {
            let Ok(uffd) = mm.userfaultfd() else { return };
            answered(uffd.register(at, b, UffdMode::Missing));
            answered(uffd.copy(at, &[0; 64], WriteProtected::No, Wake::Yes));
            answered(uffd.zeropage(at, b, Wake::Yes));
            answered(uffd.writeprotect(at, b, WriteProtected::No, Wake::Yes));
            answered(uffd.wake(at, b));
            answered(uffd.unregister(at, b));
        }
    }
}
