//! `mm` on the machine of real threads, checked, as a subject: one for each era.

mod policy;

use crate::files::HALF;
use crate::generate::Choice;
use crate::model::fold;
use crate::record::{
    ACCERR, MAPERR, MapLine, Outcome, Record, Snapshot, Subject, addr_of, bits, smaps_flags,
};
use crate::step::{ARGS, Call, Step};
use crate::window::{END, HEAP, PAGE, PAGES, START, page_of, range};
use core::mem::ManuallyDrop;
use core::panic::AssertUnwindSafe;
use minflt_addr::VirtAddr;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{
    Advice, Era, Errno, Force, Growth, Lock, LockAll, LockWhen, MapRequest, Mm, Place, Policy,
    Populate, Prot, Remap, RemapRequest, Reserve, Running, Signal, System, Thread,
};
use minflt_pgtable::X86_64;
use minflt_spec::{Flags, Space, Vma, abi};
use std::panic::catch_unwind;

/// The machine.
pub type Machine = Host<X86_64, true>;

/// Bytes of its memory: enough for any case.
const RAM: usize = 16 << 20;

/// An era's system.
#[derive(Debug)]
pub struct Ours {
    era: &'static Era,
    /// Left alone when its oracles have spoken: locks may be held for ever.
    system: ManuallyDrop<Running<Machine>>,
}

impl Ours {
    /// Starts a system.
    ///
    /// # Errors
    /// When there is no memory for it, in words.
    pub fn start(era: &'static Era) -> Result<Self, String> {
        let system = ManuallyDrop::new(boot(era)?);
        Ok(Self { era, system })
    }
}

fn boot(era: &Era) -> Result<Running<Machine>, String> {
    let options = HostOptions {
        cpus: 1,
        ram_bytes: RAM,
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).map_err(|error| error.to_string())?;
    System::boot(machine, era.config).map_err(|error| error.to_string())
}

impl Subject for Ours {
    fn name(&self) -> String {
        format!("mm ({})", self.era.name)
    }

    fn run(&mut self, steps: &[Step]) -> Result<Vec<Record>, (String, usize)> {
        let mut found = Vec::with_capacity(steps.len());
        let system: &Running<Machine> = &self.system;
        let ran = catch_unwind(AssertUnwindSafe(|| case(system, steps, &mut found)));
        let why = match ran {
            Ok(Ok(())) => return Ok(found),
            Ok(Err(why)) => why,
            Err(_) => {
                let failed = self.system.machine().failed();
                failed.unwrap_or_else(|| "a panic".to_owned())
            }
        };
        if let Ok(fresh) = boot(self.era) {
            self.system = ManuallyDrop::new(fresh);
        }
        Err((why, found.len()))
    }
}

fn case(system: &Running<Machine>, steps: &[Step], found: &mut Vec<Record>) -> Result<(), String> {
    let _cpu = system.machine().enter(0);
    let no_memory = |_| "no memory for a case".to_owned();
    let mm = ManuallyDrop::new(system.new_mm().map_err(no_memory)?);
    fill(&mm)?;
    mm.set_start_brk(VirtAddr(HEAP))
        .map_err(|error| format!("the heap: {error:?}"))?;
    run(&mm, steps, found)?;
    system
        .check_ledger(&[&mm])
        .map_err(|error| format!("ledger: {error}"))?;
    drop(ManuallyDrop::into_inner(mm));
    let ledger = system.check_ledger(&[]);
    ledger
        .map(drop)
        .map_err(|error| format!("ledger afterwards: {error}"))
}

/// Maps everything outside the window without access, and so that nothing in the window is alike
/// and would merge with it.
fn fill(mm: &Mm<Machine>) -> Result<(), String> {
    let user = Mm::<Machine>::user_range();
    let thread = mm.thread();
    let failed = |error| format!("outside the window: {error:?}");
    for (start, end) in [(user.start().0, START), (END, user.end().0)] {
        let (at, len) = (VirtAddr(start), end - start);
        let request = MapRequest {
            reserve: Reserve::NoReserve,
            ..MapRequest::new(Place::Fixed(at), len, Prot::NONE)
        };
        thread
            .mmap(&request)
            .map_err(|error| failed(Errno::from(error)))?;
        for advice in [
            Advice::Random,
            Advice::WipeOnFork,
            Advice::DontDump,
            Advice::NoHugePage,
        ] {
            let advised = thread.madvise(at, len, advice);
            advised.map_err(|error| failed(Errno::from(error)))?;
        }
    }
    Ok(())
}

fn run(mm: &Mm<Machine>, steps: &[Step], found: &mut Vec<Record>) -> Result<(), String> {
    let total = steps.len();
    let thread = mm.thread();
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        let outcome = perform(&thread, step);
        let after = snapshot(&thread, found.len() + 1 == total)?;
        found.push(Record { outcome, after });
        at += 1;
        if step.call == Call::Fork && step.args[0] > 0 {
            let last = (at + step.args[0] as usize).min(steps.len());
            let child = mm.fork().map_err(|_| "no memory to fork".to_owned())?;
            let child = ManuallyDrop::new(child);
            let policy = thread.get_mempolicy();
            run_child(&child, policy, &steps[at..last], total, found)?;
            drop(ManuallyDrop::into_inner(child));
            at = last;
        }
    }
    Ok(())
}

/// As [`run`], where a fork is no step of its own.
fn run_child(
    mm: &Mm<Machine>,
    policy: Policy,
    steps: &[Step],
    total: usize,
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let thread = mm.thread();
    let inherited = thread.set_mempolicy(policy);
    inherited.map_err(|error| format!("the policy of a child: {error:?}"))?;
    for step in steps {
        let outcome = perform(&thread, step);
        let after = snapshot(&thread, found.len() + 1 == total)?;
        found.push(Record { outcome, after });
    }
    Ok(())
}

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
            fourth & !known == 0 && fourth & abi::MAP_PRIVATE != 0
        }
        Call::Mprotect => third & !7 == 0,
        Call::Madvise => Advice::from_number(third as u32).is_some(),
        Call::Mbind => {
            let moves = abi::MPOL_MF_MOVE | abi::MPOL_MF_MOVE_ALL;
            plain_mode(third) && step.args[4] & moves == 0
        }
        Call::SetMempolicy => plain_mode(step.args[0]),
        // Whether a privilege or the lack of a limit lets all be locked shows where it wraps.
        Call::Mlock | Call::Mlock2 => step.args[1] < 1 << 50,
        Call::MmapFile
        | Call::Msync
        | Call::Ftruncate
        | Call::Fallocate
        | Call::Pread
        | Call::Pwrite => false,
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
/// - What a locked mapping leaves behind when its pages are moved away: Linux goes on counting it
///   as locked, though it is not.
fn differs(step: &Step, before: &Space, record: &Record) -> bool {
    let failed = matches!(record.outcome, Outcome::Errno(_));
    let looks = abi::MPOL_F_NODE | abi::MPOL_F_ADDR;
    let [addr, len, ..] = step.args;
    match step.call {
        Call::Mmap => {
            let was = before.vmas().iter().map(|vma| (vma.start, vma.end));
            let is = record.after.maps.iter().map(|line| (line.start, line.end));
            failed && !was.eq(is)
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
pub const CHOICE: Choice = Choice { has, differs };

fn perform(thread: &Thread<'_, Machine>, step: &Step) -> Outcome {
    let [a, b, c, d, ..] = step.args;
    let mm = thread.mm();
    let at = VirtAddr(a);
    let prot = |bits: u64| Prot::from_bits((bits & 7) as u32);
    match step.call {
        Call::Mmap => number(thread.mmap(&request(a, b, prot(c), d)).map(|at| at.0)),
        Call::Munmap => nothing(mm.munmap(at, b)),
        Call::Mprotect => nothing(mm.mprotect(at, b, prot(c))),
        Call::Madvise => match Advice::from_number(c as u32) {
            Some(advice) => nothing(thread.madvise(at, b, advice)),
            None => Outcome::Errno(Errno::EINVAL.0),
        },
        Call::Mlock => nothing(thread.mlock(at, b)),
        Call::Mlock2 => match c {
            0 => nothing(thread.mlock2(at, b, LockWhen::Now)),
            abi::MLOCK_ONFAULT => nothing(thread.mlock2(at, b, LockWhen::OnFault)),
            _ => Outcome::Errno(Errno::EINVAL.0),
        },
        Call::Munlock => nothing(thread.munlock(at, b)),
        Call::Mlockall => nothing(thread.mlockall(LockAll::from_bits(a as u32))),
        Call::Munlockall => {
            thread.munlockall();
            Outcome::done(0)
        }
        Call::Mincore => mincore(mm, a, b),
        Call::Brk => Outcome::done(mm.brk(Some(at)).0),
        Call::LimitMemlock => {
            mm.set_limit_memlock(a);
            Outcome::done(0)
        }
        Call::LimitAs => {
            let user = Mm::<Machine>::user_range();
            let outside = user.len() - (END - START);
            mm.set_limit_as(a.saturating_mul(PAGE).saturating_add(outside));
            Outcome::done(0)
        }
        Call::Load => signal(thread.load(at)),
        Call::Store => signal(thread.store(at, b).map(|()| 0)),
        Call::RemoteRead => remote_read(mm, at, b),
        Call::RemoteWrite => remote_write(mm, at, b, c),
        Call::ForcedRead => {
            let mut word = [0; 8];
            let read = mm.remote_read(at, &mut word, Force::Yes);
            forced(read.map(|_| u64::from_le_bytes(word)))
        }
        Call::ForcedWrite => {
            let written = mm.remote_write(at, &b.to_le_bytes(), Force::Yes);
            forced(written.map(|_| 0))
        }
        Call::Mremap => mremap(thread, step.args),
        Call::Mbind => policy::mbind(mm, step.args),
        Call::SetMempolicy => policy::set(thread, a, b),
        Call::GetMempolicy => policy::get(thread, a, b),
        Call::Fork => Outcome::done(0),
        Call::MmapFile
        | Call::Msync
        | Call::Ftruncate
        | Call::Fallocate
        | Call::Pread
        | Call::Pwrite => Outcome::Errno(Errno::EINVAL.0),
    }
}

fn mremap(thread: &Thread<'_, Machine>, args: [u64; ARGS]) -> Outcome {
    let [old, old_len, new_len, flags, to, _] = args;
    let to = VirtAddr(to);
    let (may, fixed) = (abi::MREMAP_MAYMOVE, abi::MREMAP_MAYMOVE | abi::MREMAP_FIXED);
    let how = match flags {
        0 => Remap::InPlace,
        flags if flags == may => Remap::MayMove,
        flags if flags == fixed => Remap::Fixed(to),
        flags if flags == may | abi::MREMAP_DONTUNMAP => Remap::DontUnmap(to),
        flags if flags == fixed | abi::MREMAP_DONTUNMAP => Remap::FixedDontUnmap(to),
        _ => return Outcome::Errno(Errno::EINVAL.0),
    };
    let request = RemapRequest {
        old: VirtAddr(old),
        old_len,
        new_len,
        how,
    };
    number(thread.mremap(&request).map(|at| at.0))
}

/// `/proc/PID/mem` says `EIO` for whatever went wrong.
fn forced<E>(result: Result<u64, E>) -> Outcome {
    const EIO: i32 = 5;
    result.map_or(Outcome::Errno(EIO), Outcome::done)
}

fn mincore(mm: &Mm<Machine>, addr: u64, len: u64) -> Outcome {
    let mut pages = [0; PAGES as usize];
    match mm.mincore(VirtAddr(addr), len, &mut pages) {
        Ok(()) => {
            let asked = len.div_ceil(PAGE);
            let present = (0..asked).filter(|page| pages[*page as usize] != 0);
            Outcome::Done(0, bits(present))
        }
        Err(error) => Outcome::Errno(Errno::from(error).0),
    }
}

fn remote_read(mm: &Mm<Machine>, at: VirtAddr, len: u64) -> Outcome {
    let mut bytes = vec![0; len as usize];
    match mm.remote_read(at, &mut bytes, Force::No) {
        Ok(read) => {
            let pages = bytes[..read].chunks(PAGE as usize);
            Outcome::Done(read as u64, [fold(pages.map(first_word)), 0])
        }
        Err(error) => Outcome::Errno(Errno::from(error).0),
    }
}

fn remote_write(mm: &Mm<Machine>, at: VirtAddr, len: u64, value: u64) -> Outcome {
    let mut bytes = vec![0; len as usize];
    for (page, word) in bytes.chunks_mut(PAGE as usize).zip(value..) {
        page[..8].copy_from_slice(&word.to_le_bytes());
    }
    number(
        mm.remote_write(at, &bytes, Force::No)
            .map(|written| written as u64),
    )
}

fn first_word(bytes: &[u8]) -> u64 {
    let word = bytes.first_chunk::<8>();
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

fn request(addr: u64, len: u64, prot: Prot, flags: u64) -> MapRequest {
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
    let populate = if has(abi::MAP_POPULATE) && !has(abi::MAP_NONBLOCK) {
        Populate::Now
    } else {
        Populate::OnTouch
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

fn number<E: Into<Errno>>(result: Result<u64, E>) -> Outcome {
    match result {
        Ok(value) => Outcome::done(value),
        Err(error) => Outcome::Errno(error.into().0),
    }
}

fn nothing<E: Into<Errno>>(result: Result<(), E>) -> Outcome {
    number(result.map(|()| 0))
}

fn signal(result: Result<u64, Signal>) -> Outcome {
    match result {
        Ok(value) => Outcome::done(value),
        Err(Signal::MapErr) => Outcome::Signal(MAPERR),
        Err(Signal::AccErr) => Outcome::Signal(ACCERR),
        Err(_) => Outcome::Signal(-1),
    }
}

/// Nothing is faulted in by looking: mincore says which pages are there, and those are read as a
/// debugger reads. `last`: whether the flags are asked for, too.
fn snapshot(thread: &Thread<'_, Machine>, last: bool) -> Result<Snapshot, String> {
    let mm = thread.mm();
    let mut maps = Vec::new();
    mm.for_each_mapping(|found, prot| {
        let part = found.intersect(range());
        if !part.is_empty() {
            maps.push(MapLine {
                start: part.start().0,
                end: part.end().0,
                rights: u64::from(prot.bits()),
                of: 0,
                offset: 0,
            });
        }
    });
    let mut present = Vec::new();
    let mut words = Vec::new();
    for line in &maps {
        let mut here = [0; PAGES as usize];
        let (start, len) = (VirtAddr(line.start), line.end - line.start);
        mm.mincore(start, len, &mut here)
            .map_err(|error| format!("mincore of a mapping: {error:?}"))?;
        let pages = (page_of(line.start)..page_of(line.end)).zip(here);
        for (page, _) in pages.filter(|(_, here)| *here != 0) {
            present.push(page);
            for half in 0..2 {
                let mut word = [0; 8];
                let at = VirtAddr(addr_of(page) + half * HALF);
                mm.remote_read(at, &mut word, Force::Yes)
                    .map_err(|error| format!("a page that is there cannot be read: {error:?}"))?;
                words.push((2 * page + half, u64::from_le_bytes(word)));
            }
        }
    }
    words.retain(|(_, word)| *word != 0);
    let mut text = String::new();
    if last {
        mm.smaps(&mut text).map_err(|error| error.to_string())?;
    }
    Ok(Snapshot {
        of_files: Vec::new(),
        files: None,
        maps,
        present: Some(bits(present)),
        words,
        flags: last.then(|| smaps_flags(&text)),
    })
}
