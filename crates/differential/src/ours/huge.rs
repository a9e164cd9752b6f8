//! Cases of huge pages in `mm`.

use super::request::{PUNCH, request, shares};
use super::snapshot::lines;
use super::{Machine, fill, nothing, number, perform_on};
use crate::files;
use crate::record::{
    FileShot, HUGE_FILE, Outcome, Record, SHARED_ANONYMOUS, Snapshot, bits, smaps_flags,
};
use crate::step::{Call, Step};
use crate::window::{HOT, HUGE, HUGE_START, Window, hot};
use core::mem::ManuallyDrop;
use minflt_addr::VirtAddr;
use minflt_mm::{Errno, FileHandle, Mapped, Mm, MmapError, Prot, Running, Thread};
use minflt_pgtable::Paging;

type File<'s, P> = FileHandle<'s, Machine<P>>;

/// Runs a case.
pub(super) fn case<P: Paging>(
    system: &Running<Machine<P>>,
    steps: &[Step],
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let _cpu = system.machine().enter(0);
    let before = system.huge_pool();
    let no_memory = |_| "no memory for a case".to_owned();
    let mm = ManuallyDrop::new(system.new_mm().map_err(no_memory)?);
    fill(&mm, Window::Huge)?;
    let file = system.new_huge_file(files::HUGE_PAGES * HUGE);
    let file = ManuallyDrop::new(file.map_err(|error| format!("a file: {error:?}"))?);
    run(&mm, &file, steps, found)?;
    let ledger = |alive: &[&Mm<Machine<P>>], when| {
        let ledger = system.check_ledger(alive);
        ledger
            .map(drop)
            .map_err(|error| format!("ledger{when}: {error}"))
    };
    ledger(&[&mm], "")?;
    drop(ManuallyDrop::into_inner(mm));
    drop(ManuallyDrop::into_inner(file));
    ledger(&[], " afterwards")?;
    match system.huge_pool() {
        after if after == before => Ok(()),
        after => Err(format!("the pool is {after:?} afterwards")),
    }
}

fn run<P: Paging>(
    mm: &Mm<Machine<P>>,
    file: &File<'_, P>,
    steps: &[Step],
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let total = steps.len();
    let thread = mm.thread();
    let mut at = 0;
    while let Some(step) = steps.get(at) {
        record(&thread, file, step, total, found)?;
        at += 1;
        if step.call == Call::Fork && step.args[0] > 0 {
            let last = (at + step.args[0] as usize).min(steps.len());
            let child = mm.fork().map_err(|_| "no memory to fork".to_owned())?;
            let child = ManuallyDrop::new(child);
            {
                let thread = child.thread();
                for step in &steps[at..last] {
                    record(&thread, file, step, total, found)?;
                }
            }
            let system = mm.system();
            system
                .check_ledger(&[mm, &child])
                .map_err(|error| format!("ledger with a child: {error}"))?;
            drop(ManuallyDrop::into_inner(child));
            at = last;
        }
    }
    Ok(())
}

fn record<P: Paging>(
    thread: &Thread<'_, Machine<P>>,
    file: &File<'_, P>,
    step: &Step,
    total: usize,
    found: &mut Vec<Record>,
) -> Result<(), String> {
    let outcome = perform(thread, file, step);
    let after = snapshot(thread, file, found.len() + 1 == total)?;
    found.push(Record { outcome, after });
    Ok(())
}

fn perform<P: Paging>(thread: &Thread<'_, Machine<P>>, file: &File<'_, P>, step: &Step) -> Outcome {
    let [a, b, c, d, e, _] = step.args;
    let mm = thread.mm();
    let invalid = Outcome::Errno(Errno::EINVAL.0);
    let prot = Prot::from_bits((c & 7) as u32);
    match step.call {
        Call::HugeMmap | Call::HugeMmapFile => {
            let Some(sharing) = shares(d) else {
                return invalid;
            };
            let request = request(a, b, prot, d);
            let mapped: Result<VirtAddr, MmapError> = match step.call {
                Call::HugeMmap => mm.mmap_huge(&request, sharing),
                _ => thread.mmap_file(&request, file, e, sharing),
            };
            number(mapped.map(|at| at.0))
        }
        Call::HugeFtruncate if a > i64::MAX as u64 => invalid,
        Call::HugeFtruncate => nothing(file.truncate(a)),
        Call::HugeFallocate => {
            let most = i64::MAX as u64;
            if b > most || c > most || c == 0 {
                return invalid;
            }
            nothing(match a {
                PUNCH => file.punch_hole(b, c),
                _ => file.allocate(b, c),
            })
        }
        Call::HugePread => match file.read_word(a) {
            Ok(word) => {
                let bytes = file.bytes().saturating_sub(a).min(8);
                Outcome::Done(bytes, [word.unwrap_or_default(), 0])
            }
            Err(error) => Outcome::Errno(Errno::from(error).0),
        },
        _ => perform_on(thread, step),
    }
}

/// Nothing is faulted in by looking: only pages that an entry maps are read, and that may be.
fn snapshot<P: Paging>(
    thread: &Thread<'_, Machine<P>>,
    file: &File<'_, P>,
    last: bool,
) -> Result<Snapshot, String> {
    let mm = thread.mm();
    let mut text = String::new();
    mm.maps(&mut text).map_err(|error| error.to_string())?;
    let maps = lines(&text, Window::Huge, |of| match of == file.number() {
        true => HUGE_FILE,
        false => SHARED_ANONYMOUS,
    })?;
    let at = |bit: u64| HUGE_START + hot(bit) * HUGE;
    let kind = |bit: u64| {
        let mut found = [Mapped::Nothing];
        mm.pagemap(VirtAddr(at(bit)), &mut found);
        found[0]
    };
    let of = |wanted: Mapped| (0..HOT).filter(move |bit| kind(*bit) == wanted);
    let open = |bit: &u64| {
        let line = maps.iter().find(|line| line.end > at(*bit));
        line.is_some_and(|line| line.rights & 7 != 0)
    };
    let words = |wanted: Mapped| {
        let places = of(wanted)
            .filter(open)
            .flat_map(|bit| [2 * bit, 2 * bit + 1]);
        let word = |place: u64| {
            let at = VirtAddr(at(place / 2) + place % 2 * (HUGE / 2));
            let word = thread.load(at);
            let word = word.map_err(|why| format!("{at} is there, but not to read: {why:?}"))?;
            Ok::<_, String>((place, word))
        };
        places.map(word).collect::<Result<Vec<_>, _>>()
    };
    let mut own = words(Mapped::Private)?;
    own.retain(|(_, word)| *word != 0);
    let of_files = words(Mapped::OfFile)?;
    let pool = mm.system().huge_pool();
    Ok(Snapshot {
        present: Some(bits(of(Mapped::Private))),
        words: own,
        of_files,
        files: if last { Some(vec![shot(file)?]) } else { None },
        pool: Some([pool.free, pool.reserved]),
        flags: match last {
            true => {
                let mut text = String::new();
                mm.smaps(&mut text).map_err(|error| error.to_string())?;
                Some(smaps_flags(&text, Window::Huge))
            }
            false => None,
        },
        maps,
    })
}

fn shot<P: Paging>(file: &File<'_, P>) -> Result<FileShot, String> {
    let bytes = file.bytes();
    let word = |at: u64| {
        let word = file.read_word(at * (HUGE / 2));
        word.map(|word| word.unwrap_or_default())
    };
    let mut words = Vec::new();
    for place in 0..2 * bytes.div_ceil(HUGE) {
        match word(place) {
            Ok(0) => {}
            Ok(word) => words.extend([place, word]),
            Err(error) => return Err(format!("the file cannot be read: {error:?}")),
        }
    }
    Ok(FileShot { bytes, words })
}
