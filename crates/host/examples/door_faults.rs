//! First-touch faults with the door, without it, and with a door that does something: to count
//! instructions of.
//!
//! ```text
//! cargo build --release -p minflt-host --example door_faults
//! valgrind --tool=callgrind target/release/examples/door_faults with 1000000
//! ```
//!
//! `with` is [`Host`], whose `before` is the empty default; `without` is [`HostBare`], whose word
//! operations never call it; `busy` is [`Busy`], whose `before` stores a byte.
//! `tests/tests/door.rs` compares the counts.

use minflt_addr::VirtAddr;
use minflt_host::{Host, HostBare, HostInstance, HostOptions, Prefault};
use minflt_mm::{Event, Place, Prot, System, era};
use minflt_pgtable::{Mmu, Paging, X86_64};

/// Pages mapped at once: enough that the faults are nearly all of the program.
const PAGES: u64 = 8 << 10;

/// Takes `faults` faults in era `name` on machine `M`, and says how many it took.
///
/// Each machine has this function, and what it calls, for itself; nothing else differs.
#[inline(never)]
fn faults<M: Mmu<Instance = HostInstance>>(name: &str, faults: u64) -> u64 {
    let options = HostOptions {
        cpus: 1,
        ram_bytes: (PAGES * M::Paging::PAGE) as usize + (8 << 20),
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).expect("memory");
    let config = era(name).expect("an era").config;
    let system = System::<M>::boot(machine, config).expect("boots");
    let _cpu = system.machine().enter(0);
    let mm = system.new_mm().expect("memory");
    let thread = mm.thread();
    let mut left = faults;
    while left > 0 {
        let pages = left.min(PAGES);
        let len = pages * M::Paging::PAGE;
        let base = mm.mmap(Place::Any, len, Prot::ReadWrite).expect("a hole");
        for page in 0..pages {
            let at = VirtAddr(base.0 + page * M::Paging::PAGE);
            thread.store(at, page).expect("mapped");
        }
        mm.munmap(base, len).expect("mapped");
        left -= pages;
    }
    system.count_of(Event::AnonWrite)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let machine = args.first().map_or("with", String::as_str);
    let count = args
        .get(1)
        .map_or(1_000_000, |it| it.parse().expect("a number of faults"));
    let era = args.get(2).map_or("best", String::as_str);
    let taken = match machine {
        "with" => faults::<Host<X86_64, false>>(era, count),
        "without" => faults::<HostBare<X86_64>>(era, count),

        _ => panic!("with, without or busy, not {machine}"),
    };
    assert_eq!(taken, count, "each page is a fault");
    println!("{taken} faults");
}
