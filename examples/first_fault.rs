//! Embed the library and take one fault: a machine of real threads, a system, an address space.
//!
//! `cargo run -p minflt-host --example first_fault`

use core::error::Error;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_mm::{Event, Place, Prot, System, era};
use minflt_pgtable::X86_64;

fn main() -> Result<(), Box<dyn Error>> {
    // 1. A machine: one CPU, 16 MiB of RAM. An embedder brings a type of its own that implements
    //    `minflt_sync::Machine` (what locks need) and `minflt_pgtable::Mmu` (what tables need).
    let options = HostOptions {
        cpus: 1,
        ram_bytes: 16 << 20,
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options)?;

    // 2. A system on it, in one of the generations of Linux's fault synchronization.
    let era = era("spf-2017").ok_or("no such era")?;
    let system = System::<Host<X86_64, true>>::boot(machine, era.config)?;

    // 3. This thread becomes CPU 0, and a thread of a new address space.
    let _cpu = system.machine().enter(0);
    let mm = system.new_mm()?;
    let thread = mm.thread();

    // 4. Map a page and store to it: the first store faults, the second does not.
    let page = mm.mmap(Place::Any, 4096, Prot::READ_WRITE)?;
    for value in [1, 2] {
        thread.store(page, value)?;
        let faults = system.count_of(Event::PageFaults);
        println!("stored {value} at {page}: {faults} page fault so far");
    }
    println!("loaded {:?}", thread.load(page));

    // 5. What the fault was, by the events that were counted.
    for event in Event::ALL
        .iter()
        .filter(|event| system.count_of(**event) > 0)
    {
        println!("{:>28} {}", event.name(), system.count_of(*event));
    }

    // 6. All frames must be accounted for.
    drop(thread);
    println!("{:?}", system.check_ledger(&[&mm])?);
    Ok(())
}
