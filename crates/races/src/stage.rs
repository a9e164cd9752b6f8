//! The stage: a small machine with one address space, set up, run and looked at.

use super::list::{Eras, script};
use super::names::StageNames;
use super::scenes::plays;
use super::{Race, hugetlb};
use core::mem::ManuallyDrop;
use minflt_addr::{VirtAddr, VirtRange};
use minflt_mm::config::ExchangeBy;
use minflt_mm::{Advice, Check, Config, Event, Mm, Place, Prot, Swap, System, Thread};
use minflt_pgtable::{AccessBits, Feature, Paging};
use minflt_sim::MachineFile;
use minflt_sim::Sim;
use minflt_sim::{Outcome, RunReport, Shape, Timeline};
use minflt_sim::{RunOptions, TaskSpec, run};
use minflt_sim::{SimInstance, Size};
use minflt_sync::Instance;

const CPUS: u32 = 3;
/// What old CPUs lack: those on which exchanges are emulated.
const OLD: &[Feature] = &[
    Feature::Cmpxchg,
    Feature::Cmpxchg8b,
    Feature::Hafdbs,
    Feature::Svadu,
];
const FRAMES: u64 = 192;
/// Where scenarios map: the same place on every format, in the middle of a table's reach.
const BASE: u64 = 0x4000_0000;

/// What is kept from one schedule to the next: the machine, with its memory to be zeroed.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    machine: Option<(SimInstance, usize)>,
    /// How often each oracle looked, in all schedules.
    pub(super) looks: [u64; Check::COUNT],
    /// Pages that tasks moved, in all schedules.
    pub(super) moved: u64,
}

/// A schedule, run and drawn.
#[derive(Clone, Debug)]
pub struct Shown {
    /// What it came to.
    pub report: RunReport,
    /// What happened, step by step.
    pub timeline: Timeline,
}

/// The machine that checks run on.
pub(super) type Checked<P> = Sim<P, true>;

/// A set-up machine: each task has a copy.
pub(super) struct Stage<'s, P: Paging> {
    pub(super) sys: &'s System<Checked<P>>,
    pub(super) mm: &'s Mm<Checked<P>>,
}

impl<P: Paging> Clone for Stage<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Paging> Copy for Stage<'_, P> {}

/// What is to happen on a stage, and what must be true afterwards.
pub(super) struct Script<'s> {
    pub(super) tasks: Vec<Box<dyn FnOnce() + 's>>,
    pub(super) at_end: Box<dyn FnOnce() -> Result<(), String> + 's>,
}

impl<'s, P: Paging> Stage<'s, P> {
    /// The address of page `n` of the stage.
    pub(super) fn page(&self, n: u64) -> VirtAddr {
        VirtAddr(BASE + n * P::page())
    }

    /// Pages `from..to`.
    pub(super) fn range(&self, from: u64, to: u64) -> VirtRange {
        VirtRange::new(self.page(from), self.page(to))
    }

    /// Maps pages `from..to`.
    pub(super) fn map(&self, from: u64, to: u64) {
        let len = (to - from) * P::page();
        let place = Place::FixedNoReplace(self.page(from));
        let mapped = self.mm.mmap(place, len, Prot::READ_WRITE);
        assert!(mapped.is_ok(), "the stage is free and small: {mapped:?}");
    }

    /// Stores `value` to page `n`, which is mapped.
    pub(super) fn touch(&self, n: u64, value: u64) {
        assert_eq!(self.thread().store(self.page(n), value), Ok(()), "mapped");
    }

    /// Unmaps `pages` pages from `n` on.
    pub(super) fn unmap(&self, n: u64, pages: u64) {
        let done = self.mm.munmap(self.page(n), pages * P::page());
        assert_eq!(done, Ok(()), "mapped");
    }

    /// Discards what is in `pages` pages from `n` on, which are mapped.
    pub(super) fn discard(&self, n: u64, pages: u64) {
        let at = self.page(n);
        let done = self.mm.madvise(at, pages * P::page(), Advice::DontNeed);
        assert_eq!(done, Ok(()), "mapped");
    }

    /// Protects `pages` pages from `n` on, which are mapped.
    pub(super) fn protect(&self, n: u64, pages: u64, prot: Prot) {
        let done = self.mm.mprotect(self.page(n), pages * P::page(), prot);
        assert_eq!(done, Ok(()), "mapped");
    }

    /// The calling task, as a thread.
    pub(super) fn thread(&self) -> Thread<'s, Checked<P>> {
        self.mm.thread()
    }
}

impl Scratch {
    /// Nothing kept yet.
    #[must_use]
    pub(super) fn new() -> Self {
        Self::default()
    }

    fn take(&mut self, cpus: u32, nodes: u32, ram_bytes: u64) -> SimInstance {
        let fits = |machine: &SimInstance| {
            let here = (machine.cpus(), machine.nodes());
            machine.ram().bytes as u64 == ram_bytes && here == (cpus, nodes)
        };
        match self.machine.take() {
            Some((machine, prefix)) if fits(&machine) => {
                // SAFETY: 1: the system on it ended. 2: what lies behind the system's own bytes is
                // reached by the verbs of `Mmu` only.
                unsafe { machine.reset(prefix) };
                machine
            }
            _ => {
                let file = MachineFile::shipped("explorer");
                let mut file = file.unwrap_or_else(|e| panic!("{e}"));
                if nodes > 1 {
                    file.shape.cpus_per_node.value = f64::from(cpus.div_ceil(nodes));
                }
                let size = Size {
                    cpus,
                    ram_bytes,
                    max_tasks: CPUS,
                };
                SimInstance::new(&file, size).unwrap_or_else(|e| panic!("a few MiB: {e}"))
            }
        }
    }
}

/// Sets the stage, runs the scene, looks, and clears up.
pub(super) fn perform<P: Paging>(
    scratch: &mut Scratch,
    race: &Race,
    config: Config,
    options: &RunOptions<'_>,
) -> (RunReport, Option<Timeline>) {
    let emulated = config.exchange == ExchangeBy::Emulated;
    // Beside a walker that writes entries an exchange can be emulated on one CPU only.
    let cpus = if emulated && P::caps().access_bits == AccessBits::Hardware {
        1
    } else {
        CPUS
    };
    let about = race.about;
    let nodes = about.nodes;
    let frames = match about.frames {
        Some(frames) if is_played::<P>(race) => frames,
        _ => FRAMES,
    };
    let frames = u64::from(nodes) * frames;
    let machine = scratch.take(cpus, nodes.min(cpus), frames * P::page());
    machine.set_lacking(if emulated { OLD } else { &[] });
    let swap = Swap::of_bytes(about.swap_pages * P::page());
    let running = match System::<Checked<P>>::boot_with_swap(machine, config, swap) {
        Ok(running) => running,
        Err(error) => panic!("the stage is large enough and the mix legal: {error}"),
    };
    let prefix = running.reserved_bytes() as usize;
    // After a failure locks may be held for ever, so the address space is not torn down then; its
    // memory goes with the machine's reset.
    let mm = running.new_mm().map(ManuallyDrop::new);
    let mut mm = mm.unwrap_or_else(|e| panic!("the stage is large enough: {e:?}"));
    let (mut report, timeline) = play(&running, &mm, race, (options, &mut scratch.moved));
    if report.outcome.is_ok() {
        // SAFETY: dropped here only.
        unsafe { ManuallyDrop::drop(&mut mm) };
        if let Err(error) = running.check_ledger(&[]) {
            report.outcome = Outcome::Violation(format!("ledger after exit: {error}"));
        }
    }
    for check in Check::ALL {
        scratch.looks[*check as usize] += running.looks_of(*check);
    }
    scratch.machine = Some((running.shutdown(), prefix));
    (report, timeline)
}

/// Whether the format has what the race is about.
fn is_played<P: Paging>(race: &Race) -> bool {
    race.about.eras != Eras::Huge || hugetlb::is_played::<P>()
}

/// Runs the scene and looks at what it left.
fn play<P: Paging>(
    sys: &System<Checked<P>>,
    mm: &Mm<Checked<P>>,
    race: &Race,
    (options, moved): (&RunOptions<'_>, &mut u64),
) -> (RunReport, Option<Timeline>) {
    let script = match is_played::<P>(race) {
        true => script(race.number, Stage { sys, mm }),
        false => plays(vec![Box::new(|| ())]),
    };
    let cpus = (0..sys.machine().cpus()).cycle();
    let tasks = script.tasks.into_iter().zip(cpus);
    let tasks = tasks.map(|(body, cpu)| TaskSpec { cpu, body }).collect();
    let names = |offset| sys.describe(offset).to_string();
    let options = RunOptions {
        describe: Some(&names),
        ..options.clone()
    };
    let shown = options.trace.then(|| StageNames::of(Stage { sys, mm }));
    let before = sys.count_of(Event::PagesMigrated);
    let mut report = run(sys.machine(), &options, tasks);
    *moved += sys.count_of(Event::PagesMigrated) - before;
    if report.outcome.is_ok() {
        let quiet = (script.at_end)().and_then(|()| {
            sys.check_ledger(&[mm])
                .map(drop)
                .map_err(|error| format!("ledger: {error}"))
        });
        if let Err(text) = quiet {
            report.outcome = Outcome::Violation(text);
        }
    }
    let timeline = shown.map(|shown| {
        let story = race.story();
        let (lanes, shape) = story.map_or((&[][..], Shape::StaleRead), |it| (it.lanes, it.shape));
        let steps = report.timeline.as_deref().unwrap_or_default();
        let shape = (!report.outcome.is_ok()).then_some(shape);
        Timeline::of(steps, lanes, &shown, shape)
    });
    (report, timeline)
}
