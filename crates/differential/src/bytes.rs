//! Steps out of any bytes: what a fuzzer changes, and what its corpus means.
//!
//! Each step takes a byte for its call and one or two for each argument it has, so that a change of
//! one byte changes one argument. Bytes that are no step are passed over; the end of the bytes is
//! the end of the case.

use crate::files::{self, HALF};
use crate::generate::Choice;
use crate::model::Running;
use crate::record::Record;
use crate::step::{Call, Kind, Step};
use crate::window::Window;
use crate::window::{HEAP, PAGE, PAGES, START};
use minflt_spec::{TASK_SIZE, abi};

/// The most steps of a case.
const STEPS_MAX: usize = 64;

/// The steps that the bytes stand for, of those that `choice` does not leave out, with what the
/// model says of each.
#[must_use]
pub fn case(bytes: &[u8], choice: &Choice) -> (Vec<Step>, Vec<Record>) {
    let mut bytes = bytes.iter().copied();
    let (mut steps, mut records) = (Vec::new(), Vec::new());
    let mut running = Running::of(Window::Small, choice);
    let mut stores = 0;
    let mut child = 0;
    let mut frees = None;
    while steps.len() < STEPS_MAX
        && let Some(first) = bytes.next()
    {
        // The last bytes are the calls that came last.
        let number = match u64::from(first) {
            first @ 0..240 => first % 24,
            last @ 240..250 => 24 + (last - 240) % 6,
            last => 30 + (last - 250) % 5,
        };
        let Some(call) = Call::from_number(number) else {
            continue;
        };
        let mut args = [0; crate::step::ARGS];
        for (arg, kind) in args.iter_mut().zip(call.kinds()) {
            *arg = argument(kind, &mut bytes);
        }
        let mut step = Step { call, args };
        tidy(&mut step, &mut stores);
        if call == Call::Fork && child > 0 {
            continue;
        }
        // Pages that were given away may go when others are paged out.
        if let Some(gives) = gives_away(&step)
            && *frees.get_or_insert(gives) != gives
        {
            continue;
        }
        let Some(record) = choice.step(&mut running, &step) else {
            continue;
        };
        child = match call {
            Call::Fork => step.args[0],
            _ => child.saturating_sub(1),
        };
        steps.push(step);
        records.push(record);
    }
    (steps, records)
}

/// The steps of [`case`].
#[must_use]
pub fn steps(bytes: &[u8], choice: &Choice) -> Vec<Step> {
    case(bytes, choice).0
}

/// Whether a step gives pages away or pages them out.
fn gives_away(step: &Step) -> Option<bool> {
    match (step.call, step.args[2]) {
        (Call::Madvise, abi::MADV_FREE) => Some(true),
        (Call::Madvise, abi::MADV_PAGEOUT) => Some(false),
        _ => None,
    }
}

fn argument(kind: &Kind, bytes: &mut impl Iterator<Item = u8>) -> u64 {
    let byte = u64::from(bytes.next().unwrap_or_default());
    match kind {
        Kind::Addr => match byte {
            0..240 => START + byte % PAGES * PAGE,
            240..248 => START + (byte - 240) * 5 * PAGE + 8,
            248 => TASK_SIZE,
            249 => u64::MAX - 4095,
            _ => 0,
        },
        Kind::Len => match byte {
            0..230 => (1 + byte % 12) * PAGE,
            230..240 => (byte - 230) * 1000,
            240..250 => 24 * PAGE,
            250 => u64::MAX,
            251 => TASK_SIZE,
            _ => 0,
        },
        Kind::Number => byte,
        Kind::Set(names) => {
            let high = u64::from(bytes.next().unwrap_or_default());
            let bits = byte | high << 8;
            let named = (0..).zip(names.names);
            named.fold(
                0,
                |set, (at, (_, bit))| if bits >> at & 1 != 0 { set | bit } else { set },
            )
        }
        Kind::One(names) => {
            let at = byte as usize % (names.names.len() + 1);
            names.names.get(at).map_or(99, |(_, value)| *value)
        }
    }
}

/// Makes the arguments such that most steps mean something.
fn tidy(step: &mut Step, stores: &mut u64) {
    let [first, second, third, fourth, fifth, sixth] = &mut step.args;
    match step.call {
        Call::Mmap => {
            shares(fourth);
            *fourth |= abi::MAP_ANONYMOUS;
        }
        Call::MmapFile => {
            shares(fourth);
            *fourth &= !abi::MAP_ANONYMOUS;
            *sixth %= 8 * PAGE;
        }
        Call::Ftruncate => *second %= files::PAGES * PAGE,
        Call::Fallocate => {
            *third %= files::PAGES * PAGE;
            *fourth = (*fourth).min(files::PAGES * PAGE - *third);
        }
        Call::Pread => *second = *second % 16 * HALF,
        Call::Pwrite => {
            *second = *second % 16 * HALF;
            *stores += 16;
            *third = *stores;
        }
        Call::Mbind if *fifth & abi::MPOL_MF_MOVE != 0 => {
            *fifth &= !abi::MPOL_MF_STRICT;
        }
        Call::Brk if *first != 0 => *first = HEAP + *first % (16 * PAGE),
        Call::Load | Call::ForcedRead => *first &= !(PAGE - 1),
        Call::Store | Call::ForcedWrite => {
            *first &= !(PAGE - 1);
            *stores += 16;
            *second = *stores;
        }
        Call::RemoteRead => {
            *first &= !(PAGE - 1);
            *second = (1 + *second / PAGE % 6) * PAGE;
        }
        Call::RemoteWrite => {
            *first &= !(PAGE - 1);
            *second = (1 + *second / PAGE % 6) * PAGE;
            *stores += 16;
            *third = *stores;
        }
        Call::Fork => *first = 1 + *first % 8,
        _ => {}
    }
}

/// Shared or private, not both or neither.
fn shares(flags: &mut u64) {
    if *flags & abi::MAP_SHARED != 0 {
        *flags &= !abi::MAP_PRIVATE;
    } else {
        *flags |= abi::MAP_PRIVATE;
    }
}
