//! Block in the host while the thread is a CPU: join a thread, wait for a channel.
//!
//! `cargo run -p minflt-host --example away`
//!
//! A thread that is a CPU takes interrupts where it looks for them: at user accesses, in calls, in
//! waits of the library. One that blocks in the host looks for none, so a munmap on another CPU
//! that has to invalidate its translations waits for it. Inside `CpuGuard::away` other CPUs serve
//! its interrupts. With the argument `blocks` this program leaves that out, and the watchdog says
//! which CPU keeps which one waiting.

use core::error::Error;
use core::time::Duration;
use minflt_addr::VirtAddr;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{Event, Mm, Place, Prot, System, era};
use minflt_pgtable::X86_64;
use std::sync::mpsc::{Receiver, channel};
use std::thread::scope;

type Machine = Host<X86_64, true>;

fn main() -> Result<(), Box<dyn Error>> {
    let blocks = std::env::args().any(|arg| arg == "blocks");
    // 1. A machine of two CPUs. As long as nothing is said its watchdog bites after 5 seconds and
    //    writes to the standard error; this one bites sooner, and its report lets the other go on.
    let options = HostOptions {
        cpus: 2,
        ram_bytes: 16 << 20,
        prefault: Prefault::OnTouch,
    };
    let (go_on, told) = channel();
    let reported = go_on.clone();
    let machine = HostInstance::new(&options)?;
    let machine = machine.with_watchdog(Duration::from_millis(100), move |unanswered| {
        println!("watchdog: {unanswered}");
        let _told = reported.send(());
    });
    let era = era("linux-6.15").ok_or("no such era")?;
    let system = System::<Machine>::boot(machine, era.config)?;

    // 2. CPU 0 maps a page that both CPUs use.
    let cpu = system.machine().enter(0);
    let mm = system.new_mm()?;
    let page = mm.mmap(Place::Any, 4096, Prot::READ_WRITE)?;
    mm.thread().store(page, 7)?;

    // 3. CPU 1 loads from it, so that it has the translation, and waits for a word of CPU 0's.
    let (loaded, is_loaded) = channel();
    scope(|scope| {
        let (system, mm) = (&system, &mm);
        let other = scope.spawn(move || {
            let cpu = system.machine().enter(1);
            let found = load(mm, page);
            let _told = loaded.send(());
            let wait = || wait_for(&told);
            if blocks {
                wait()
            } else {
                cpu.away(wait)
            }
            found
        });
        // 4. CPU 0 waits for the load (away, too: else it would answer nobody meanwhile) and unmaps
        //    the page. The call returns when CPU 1's translation is gone.
        cpu.away(|| wait_for(&is_loaded));
        mm.munmap(page, 4096)?;
        println!(
            "unmapped, with {} shootdown",
            system.count_of(Event::Shootdowns)
        );
        let _told = go_on.send(());
        let found = cpu.away(|| other.join()).map_err(|_| "CPU 1 panicked")?;
        println!("CPU 1 had loaded {found}");
        Ok::<(), Box<dyn Error>>(())
    })?;
    println!("{:?}", system.check_ledger(&[&mm])?);
    Ok(())
}

fn load(mm: &Mm<Machine>, at: VirtAddr) -> String {
    format!("{:?}", mm.thread().load(at))
}

fn wait_for(told: &Receiver<()>) {
    let _word = told.recv();
}
