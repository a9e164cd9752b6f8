//! `mm` on the machine of real threads, checked, as a subject: one for each era.

use crate::record::{ACCERR, MAPERR, MapLine, Outcome, Record, Snapshot, Subject, addr_of};
use crate::step::{Call, Step};
use crate::window::{END, HEAP, PAGE, START, range};
use core::mem::ManuallyDrop;
use core::panic::AssertUnwindSafe;
use minflt_addr::VirtAddr;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{
    Advice, Era, Errno, MapRequest, Mm, Place, Populate, Prot, Reserve, Running, Signal, System,
    Thread,
};
use minflt_pgtable::X86_64;
use minflt_spec::abi;
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

    fn run(&mut self, steps: &[Step], expected: &[Record]) -> Result<Vec<Record>, (String, usize)> {
        let mut found = Vec::with_capacity(steps.len());
        let system: &Running<Machine> = &self.system;
        let ran = catch_unwind(AssertUnwindSafe(|| {
            case(system, steps, expected, &mut found)
        }));
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

fn case(
    system: &Running<Machine>,
    steps: &[Step],
    expected: &[Record],
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let _cpu = system.machine().enter(0);
    let no_memory = |_| "no memory for a case".to_owned();
    let mm = ManuallyDrop::new(system.new_mm().map_err(no_memory)?);
    fill(&mm)?;
    mm.set_start_brk(VirtAddr(HEAP))
        .map_err(|error| format!("the heap: {error:?}"))?;
    run(&mm, steps, expected, found)?;
    system
        .check_ledger(&[&mm])
        .map_err(|error| format!("ledger: {error}"))?;
    drop(ManuallyDrop::into_inner(mm));
    let ledger = system.check_ledger(&[]);
    ledger
        .map(drop)
        .map_err(|error| format!("ledger afterwards: {error}"))
}

/// Maps everything outside the window without access.
fn fill(mm: &Mm<Machine>) -> Result<(), String> {
    let user = Mm::<Machine>::user_range();
    for (start, end) in [(user.start().0, START), (END, user.end().0)] {
        let request = MapRequest {
            reserve: Reserve::NoReserve,
            ..MapRequest::new(Place::Fixed(VirtAddr(start)), end - start, Prot::NONE)
        };
        let mapped = mm.thread().mmap(&request);
        mapped.map_err(|error| format!("outside the window: {error:?}"))?;
    }
    Ok(())
}

fn run(
    mm: &Mm<Machine>,
    steps: &[Step],
    expected: &[Record],
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let thread = mm.thread();
    let mut at = 0;
    while let (Some(step), Some(says)) = (steps.get(at), expected.get(at)) {
        let outcome = perform(&thread, step)?;
        let after = snapshot(&thread, &says.after);
        found.push(Record { outcome, after });
        at += 1;
        if step.call == Call::Fork && step.args[0] > 0 {
            let last = (at + step.args[0] as usize).min(steps.len());
            let child = mm.fork().map_err(|_| "no memory to fork".to_owned())?;
            let child = ManuallyDrop::new(child);
            run_child(&child, &steps[at..last], &expected[at..last], found)?;
            drop(ManuallyDrop::into_inner(child));
            at = last;
        }
    }
    Ok(())
}

/// As [`run`], where a fork is no step of its own.
fn run_child(
    mm: &Mm<Machine>,
    steps: &[Step],
    expected: &[Record],
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let thread = mm.thread();
    for (step, says) in steps.iter().zip(expected) {
        let outcome = perform(&thread, step)?;
        let after = snapshot(&thread, &says.after);
        found.push(Record { outcome, after });
    }
    Ok(())
}

/// Whether `mm` has the call with these flags at all: what it lacks stands in
/// `docs/linux-compat.md`.
#[must_use]
pub fn has(step: &Step) -> bool {
    let [_, _, third, fourth, _] = step.args;
    match step.call {
        Call::Mmap => {
            let known = abi::MAP_PRIVATE
                | abi::MAP_ANONYMOUS
                | abi::MAP_FIXED
                | abi::MAP_FIXED_NOREPLACE
                | abi::MAP_POPULATE
                | abi::MAP_NORESERVE;
            fourth & !known == 0 && fourth & abi::MAP_PRIVATE != 0
        }
        Call::Mprotect => third & !7 == 0,
        Call::Madvise => third == abi::MADV_DONTNEED,
        Call::Munmap | Call::Brk | Call::Load | Call::Store | Call::Fork | Call::LimitAs => true,
        _ => false,
    }
}

fn perform(thread: &Thread<'_, Machine>, step: &Step) -> Result<Outcome, String> {
    let [a, b, c, d, _] = step.args;
    let mm = thread.mm();
    let at = VirtAddr(a);
    let prot = |bits: u64| Prot::from_bits((bits & 7) as u32);
    Ok(match step.call {
        Call::Mmap => number(thread.mmap(&request(a, b, prot(c), d)).map(|at| at.0)),
        Call::Munmap => nothing(mm.munmap(at, b)),
        Call::Mprotect => nothing(mm.mprotect(at, b, prot(c))),
        Call::Madvise => nothing(mm.madvise(at, b, Advice::DontNeed)),
        Call::Brk => Outcome::done(mm.brk(Some(at)).0),
        Call::LimitAs => {
            let user = Mm::<Machine>::user_range();
            let outside = user.len() - (END - START);
            mm.set_limit_as(a.saturating_mul(PAGE).saturating_add(outside));
            Outcome::done(0)
        }
        Call::Load => signal(thread.load(at)),
        Call::Store => signal(thread.store(at, b).map(|()| 0)),
        Call::Fork => Outcome::done(0),
        other => return Err(format!("mm has no {}", other.name())),
    })
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
    MapRequest {
        populate,
        reserve,
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

/// Pages that shall be there are loaded, where the mapping allows it; they do not change by that.
fn snapshot(thread: &Thread<'_, Machine>, expected: &Snapshot) -> Snapshot {
    let mut maps = Vec::new();
    thread.mm().for_each_mapping(|found, prot| {
        let part = found.intersect(range());
        if !part.is_empty() {
            maps.push(MapLine {
                start: part.start().0,
                end: part.end().0,
                rights: u64::from(prot.bits()),
            });
        }
    });
    let readable = |page: u64| {
        let addr = addr_of(page);
        let mapping = maps
            .iter()
            .find(|line| (line.start..line.end).contains(&addr));
        mapping.is_some_and(|line| line.rights != 0)
    };
    let words = expected.words.iter().map(|(page, word)| {
        if !readable(*page) {
            return (*page, *word);
        }
        let loaded = thread.load(VirtAddr(addr_of(*page)));
        (*page, loaded.unwrap_or(u64::MAX))
    });
    let words = words.filter(|(_, word)| *word != 0).collect();
    Snapshot {
        maps,
        present: None,
        words,
        flags: None,
    }
}
