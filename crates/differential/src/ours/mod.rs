//! `mm` on the machine of real threads, checked, as a subject: one for each era.

mod choice;
mod files;
mod huge;
mod policy;
mod request;
mod snapshot;
mod userfault;

use crate::model::fold;
use crate::record::{ACCERR, ADRERR, MAPERR, Outcome, Record, Subject, bits};
use crate::step::{ARGS, Call, Step};
use crate::window::{END, HEAP, PAGE, PAGES, POOL, START, Window};
pub use choice::{CHOICE, CHOICE_EXECUTE_ONLY};
use core::mem::ManuallyDrop;
use core::panic::AssertUnwindSafe;
use files::{Disk, Files};
use minflt_addr::VirtAddr;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{
    Advice, Era, Errno, Force, LockAll, LockWhen, MapRequest, Mm, Msync, Place, Policy, Prot,
    Remap, RemapRequest, Reserve, Running, Signal, System, Thread, UffdFaults,
};
use minflt_pgtable::{Paging, X86_64};
use minflt_spec::abi;
use request::request;
use snapshot::snapshot;
use std::panic::catch_unwind;

/// The machine.
pub type Machine<P = X86_64> = Host<P, true>;

/// Bytes of its memory: enough for any case.
const RAM: usize = 16 << 20;
/// The same where there are huge pages.
const HUGE_RAM: usize = 64 << 20;

/// An era's system on x86-64.
pub type Ours = OursOn<X86_64>;

/// An era's system on page tables of format `P`, whose pages and user space are x86-64's.
#[derive(Debug)]
pub struct OursOn<P: Paging> {
    era: &'static Era,
    disk: Disk,
    /// Left alone when its oracles have spoken: locks may be held for ever.
    system: ManuallyDrop<Running<Machine<P>>>,
    /// The same with huge pages, once it is wanted.
    huge: Option<ManuallyDrop<Running<Machine<P>>>>,
}

impl<P: Paging> OursOn<P> {
    /// Starts a system.
    ///
    /// # Errors
    /// When there is no memory for it, in words.
    pub fn start(era: &'static Era) -> Result<Self, String> {
        let system = ManuallyDrop::new(boot(era, Window::Small)?);
        let disk = Disk::new().map_err(|error| format!("a file: {error}"))?;
        Ok(Self {
            era,
            disk,
            system,
            huge: None,
        })
    }
}

fn boot<P: Paging>(era: &Era, window: Window) -> Result<Running<Machine<P>>, String> {
    let options = HostOptions {
        cpus: 1,
        ram_bytes: match window {
            Window::Small => RAM,
            Window::Huge => HUGE_RAM,
        },
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).map_err(|error| error.to_string())?;
    let system = System::boot(machine, era.config).map_err(|error| error.to_string())?;
    if window == Window::Huge {
        let running: &Running<Machine<P>> = &system;
        let _cpu = running.machine().enter(0);
        let pages = system.resize_huge_pool(POOL);
        if pages != POOL {
            return Err(format!("{pages} huge pages instead of {POOL}"));
        }
    }
    Ok(system)
}

impl<P: Paging> Subject for OursOn<P> {
    fn name(&self) -> String {
        format!("mm ({})", self.era.name)
    }

    fn run(&mut self, steps: &[Step]) -> Result<Vec<Record>, (String, usize)> {
        let mut found = Vec::with_capacity(steps.len());
        let window = Window::of(steps);
        if window == Window::Huge && self.huge.is_none() {
            let booted = boot(self.era, window).map_err(|why| (why, 0))?;
            self.huge = Some(ManuallyDrop::new(booted));
        }
        let system: &Running<Machine<P>> = match (&self.huge, window) {
            (Some(huge), Window::Huge) => huge,
            _ => &self.system,
        };
        let disk = &self.disk;
        let ran = catch_unwind(AssertUnwindSafe(|| match window {
            Window::Small => case(system, disk, steps, &mut found),
            Window::Huge => huge::case(system, steps, &mut found),
        }));
        let why = match ran {
            Ok(Ok(())) => return Ok(found),
            Ok(Err(why)) => why,
            Err(_) => {
                let failed = system.machine().failed();
                failed.unwrap_or_else(|| "a panic".to_owned())
            }
        };
        if let Ok(fresh) = boot(self.era, window) {
            match window {
                Window::Small => self.system = ManuallyDrop::new(fresh),
                Window::Huge => self.huge = Some(ManuallyDrop::new(fresh)),
            }
        }
        Err((why, found.len()))
    }
}

fn case<P: Paging>(
    system: &Running<Machine<P>>,
    disk: &Disk,
    steps: &[Step],
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let _cpu = system.machine().enter(0);
    let no_memory = |_| "no memory for a case".to_owned();
    let mm = ManuallyDrop::new(system.new_mm().map_err(no_memory)?);
    fill(&mm, Window::Small)?;
    mm.set_start_brk(VirtAddr(HEAP))
        .map_err(|error| format!("the heap: {error:?}"))?;
    let files = ManuallyDrop::new(Files::open(system, disk)?);
    run(&mm, &files, steps, found)?;
    system
        .check_ledger(&[&mm])
        .map_err(|error| format!("ledger: {error}"))?;
    drop(ManuallyDrop::into_inner(mm));
    drop(ManuallyDrop::into_inner(files));
    let ledger = system.check_ledger(&[]);
    ledger
        .map(drop)
        .map_err(|error| format!("ledger afterwards: {error}"))
}

/// Maps everything outside the window without access, and so that nothing in the window is alike
/// and would merge with it.
fn fill<P: Paging>(mm: &Mm<Machine<P>>, window: Window) -> Result<(), String> {
    let inside = window.range();
    let user = Mm::<Machine<P>>::user_range();
    let thread = mm.thread();
    let failed = |error| format!("outside the window: {error:?}");
    for (start, end) in [
        (user.start().0, inside.start().0),
        (inside.end().0, user.end().0),
    ] {
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

fn run<P: Paging>(
    mm: &Mm<Machine<P>>,
    files: &Files<'_, P>,
    steps: &[Step],
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let total = steps.len();
    let thread = mm.thread();
    let uffd = mm.userfaultfd_with(UffdFaults::Signal);
    let uffd = ManuallyDrop::new(uffd.map_err(|_| "no memory for a userfaultfd".to_owned())?);
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        let outcome = match step.call {
            call if call.is_of_userfaultfd() => userfault::perform(&uffd, step),
            _ => perform(&thread, files, step),
        };
        let after = snapshot(mm, files, found.len() + 1 == total)?;
        found.push(Record { outcome, after });
        at += 1;
        if step.call == Call::Fork && step.args[0] > 0 {
            let last = (at + step.args[0] as usize).min(steps.len());
            let child = mm.fork().map_err(|_| "no memory to fork".to_owned())?;
            let child = ManuallyDrop::new(child);
            let policy = thread.get_mempolicy();
            run_child(&child, files, policy, &steps[at..last], total, found)?;
            drop(ManuallyDrop::into_inner(child));
            at = last;
        }
    }
    drop(ManuallyDrop::into_inner(uffd));
    Ok(())
}

/// As [`run`], where a fork is no step of its own.
fn run_child<P: Paging>(
    mm: &Mm<Machine<P>>,
    files: &Files<'_, P>,
    policy: Policy,
    steps: &[Step],
    total: usize,
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let thread = mm.thread();
    let inherited = thread.set_mempolicy(policy);
    inherited.map_err(|error| format!("the policy of a child: {error:?}"))?;
    for step in steps {
        let outcome = perform(&thread, files, step);
        let after = snapshot(mm, files, found.len() + 1 == total)?;
        found.push(Record { outcome, after });
    }
    Ok(())
}

fn perform<P: Paging>(
    thread: &Thread<'_, Machine<P>>,
    files: &Files<'_, P>,
    step: &Step,
) -> Outcome {
    let [a, b, c, d, e, f] = step.args;
    let mm = thread.mm();
    let at = VirtAddr(a);
    let prot = |bits: u64| Prot::from_bits((bits & 7) as u32);
    match step.call {
        Call::Mmap if d & abi::MAP_SHARED != 0 => {
            files::map_shared(thread, &request(a, b, prot(c), d), b)
        }
        Call::Mmap => number(thread.mmap(&request(a, b, prot(c), d)).map(|at| at.0)),
        Call::MmapFile => files.map(thread, &request(a, b, prot(c), d), [d, e, f]),
        Call::Mlock => nothing(thread.mlock(at, b)),
        Call::Mlock2 => match c {
            0 => nothing(thread.mlock2(at, b, LockWhen::Now)),
            abi::MLOCK_ONFAULT => nothing(thread.mlock2(at, b, LockWhen::OnFault)),
            _ => Outcome::Errno(Errno::EINVAL.0),
        },
        Call::Munlock => nothing(thread.mm().munlock(at, b)),
        Call::Mlockall => nothing(thread.mlockall(LockAll::from_bits(a as u32))),
        Call::Munlockall => {
            thread.mm().munlockall();
            Outcome::done(0)
        }
        Call::Mincore => mincore(mm, a, b),
        Call::Brk => Outcome::done(mm.brk(Some(at)).0),
        Call::LimitMemlock => {
            mm.set_limit_memlock(a);
            Outcome::done(0)
        }
        Call::LimitAs => {
            let user = Mm::<Machine<P>>::user_range();
            let outside = user.len() - (END - START);
            mm.set_limit_as(a.saturating_mul(PAGE).saturating_add(outside));
            Outcome::done(0)
        }
        Call::Mremap => mremap(thread, step.args),
        Call::Mbind => policy::mbind(mm, step.args),
        Call::SetMempolicy => policy::set(thread, a, b),
        Call::GetMempolicy => policy::get(thread, a, b),
        Call::Msync => match Msync::from_bits(c as u32) {
            Some(how) => nothing(mm.msync(at, b, how)),
            None => Outcome::Errno(Errno::EINVAL.0),
        },
        Call::Ftruncate => files.truncate(a, b),
        Call::Fallocate => files.allocate(a, b, c, d),
        Call::Pread => files.read(a, b),
        Call::Pwrite => files.write(a, b, c),
        _ => perform_on(thread, step),
    }
}

/// A step that no file is needed for.
fn perform_on<P: Paging>(thread: &Thread<'_, Machine<P>>, step: &Step) -> Outcome {
    let [a, b, c, ..] = step.args;
    let (mm, at) = (thread.mm(), VirtAddr(a));
    match step.call {
        Call::Munmap => nothing(mm.munmap(at, b)),
        Call::Mprotect => nothing(mm.mprotect(at, b, Prot::from_bits((c & 7) as u32))),
        Call::Madvise => match Advice::from_number(c as u32) {
            Some(advice) => nothing(thread.madvise(at, b, advice)),
            None => Outcome::Errno(Errno::EINVAL.0),
        },
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
        Call::Fork => Outcome::done(0),
        // The userfaultfd is the first process's; the others have none.
        _ => Outcome::Errno(Errno::EBADF.0),
    }
}

fn mremap<P: Paging>(thread: &Thread<'_, Machine<P>>, args: [u64; ARGS]) -> Outcome {
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

fn mincore<P: Paging>(mm: &Mm<Machine<P>>, addr: u64, len: u64) -> Outcome {
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

fn remote_read<P: Paging>(mm: &Mm<Machine<P>>, at: VirtAddr, len: u64) -> Outcome {
    let mut bytes = vec![0; len as usize];
    match mm.remote_read(at, &mut bytes, Force::No) {
        Ok(read) => {
            let pages = bytes[..read].chunks(PAGE as usize);
            Outcome::Done(read as u64, [fold(pages.map(first_word)), 0])
        }
        Err(error) => Outcome::Errno(Errno::from(error).0),
    }
}

fn remote_write<P: Paging>(mm: &Mm<Machine<P>>, at: VirtAddr, len: u64, value: u64) -> Outcome {
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
        Err(Signal::Bus) => Outcome::Signal(ADRERR),
        Err(_) => Outcome::Signal(-1),
    }
}
