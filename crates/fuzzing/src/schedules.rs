//! Schedules, as `minflt check --replay` takes them.

use minflt_addr::VirtAddr;
use minflt_mm::{ERAS, Mm, Place, Prot, System};
use minflt_pgtable::{Paging, X86_64};
use minflt_sim::{
    MachineFile, Outcome, Policy, RunOptions, RunReport, Schedule, Sim, SimInstance, Size,
    TaskSpec, run,
};

type M = Sim<X86_64, true>;

const CPUS: u32 = 2;
const FRAMES: u64 = 192;
/// Where the scene maps.
const BASE: VirtAddr = VirtAddr(0x4000_0000);

/// Reads a schedule, writes it, and replays it on a small scene.
///
/// # Panics
/// If a schedule that can be read is not written as one that reads the same, if two replays of it
/// differ, if the scene fails in one (its oracles look at every access), or if what was chosen in
/// it does not replay the same run.
pub fn schedules(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else {
        return;
    };
    let Ok(schedule) = text.parse::<Schedule>() else {
        return;
    };
    let written = schedule.to_string();
    assert_eq!(written.parse(), Ok(schedule.clone()), "`{written}`");
    let first = replay(schedule.clone());
    assert_eq!(first.outcome, Outcome::Ok, "replay of `{written}`");
    assert_eq!(first, replay(schedule), "two replays of `{written}`");
    let chosen = first.schedule.clone();
    assert_eq!(first, replay(chosen), "what `{written}` came to");
}

/// One CPU faults two pages in, the other protects them and unmaps one.
fn replay(schedule: Schedule) -> RunReport {
    let failed = |why: &dyn core::fmt::Display| -> ! { panic!("the scene cannot be set: {why}") };
    let file = MachineFile::shipped("explorer").unwrap_or_else(|why| failed(&why));
    let size = Size {
        cpus: CPUS,
        ram_bytes: FRAMES * X86_64::page(),
        max_tasks: CPUS,
    };
    let machine = SimInstance::new(&file, size).unwrap_or_else(|why| failed(&why));
    let running = System::<M>::boot(machine, ERAS[ERAS.len() - 1].config);
    let running = running.unwrap_or_else(|why| failed(&why));
    let system: &System<M> = &running;
    let mm = system.new_mm().unwrap_or_else(|why| failed(&why));
    let mapped = mm.mmap(Place::Fixed(BASE), 2 * X86_64::page(), Prot::READ_WRITE);
    mapped.unwrap_or_else(|why| failed(&why));
    let mm: &Mm<M> = &mm;
    let second = VirtAddr(BASE.0 + X86_64::page());
    let tasks = vec![
        TaskSpec::new(0, || {
            let thread = mm.thread();
            for (at, word) in [(BASE, 1), (second, 2)] {
                if thread.store(at, word).is_ok() {
                    let found = thread.load(at);
                    assert!(found != Ok(0), "a store was lost");
                }
            }
        }),
        TaskSpec::new(1, || {
            let done = mm.mprotect(BASE, 2 * X86_64::page(), Prot::READ);
            let done = done.map_err(|why| why.to_string());
            let unmapped = mm.munmap(second, X86_64::page());
            let all = done.and(unmapped.map_err(|why| why.to_string()));
            assert_eq!(all, Ok(()));
        }),
    ];
    let options = RunOptions::explored(Policy::Replay(schedule));
    let report = run(system.machine(), &options, tasks);
    if report.outcome.is_ok() {
        let ledger = system.check_ledger(&[mm]);
        ledger.unwrap_or_else(|why| failed(&why));
    }
    report
}
