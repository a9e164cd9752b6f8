//! First-touch faults with the door, without it, with a door that does something, and with fixes
//! that can be switched off: to count the instructions of.
//!
//! ```text
//! cargo build --release -p minflt-host --example door_faults
//! valgrind --tool=callgrind --toggle-collect='door_faults::faults*' \\
//!     target/release/examples/door_faults door 1000000
//! ```
//!
//! `door` is [`Host`], whose `before` is the empty default; `bare` is [`HostBare`], whose word
//! operations never call it; `busy` has a `before` that counts; `controls` asks of each fix whether
//! it is switched off. `tests/tests/door.rs` compares the four.

use core::cell::Cell;
use minflt_addr::VirtAddr;
use minflt_host::{Door, Host, HostBare, HostInstance, HostOptions, HostWith, Prefault};
use minflt_mm::{Event, Place, Prot, System, era};
use minflt_pgtable::{Mmu, Paging, X86_64};
use minflt_sync::Kind;

/// Pages mapped at once: the machine needs no more memory than these.
const PAGES: u64 = 8 << 10;

thread_local! {
    static PASSED: Cell<u64> = const { Cell::new(0) };
}

/// A door that does something.
#[derive(Clone, Copy, Debug)]
struct Busy;

impl Door for Busy {
    #[inline(always)]
    fn before(_at: *const u8, _len: usize, _kind: Kind) {
        PASSED.set(PASSED.get() + 1);
    }
}

/// A door that does nothing, of a machine whose fixes can be switched off.
#[derive(Clone, Copy, Debug)]
struct Asks;

impl Door for Asks {
    const CONTROLS: bool = true;

    #[inline(always)]
    fn before(_at: *const u8, _len: usize, _kind: Kind) {}
}

/// Takes `faults` faults in the era `name` on machine `M`, and says how many it took.
///
/// Every machine has this function, and what it calls, for itself. Nothing else differs, so this is
/// what is counted.
#[inline(never)]
fn faults<M: Mmu<Instance = HostInstance>>(name: &str, faults: u64) -> u64 {
    let options = HostOptions {
        cpus: 1,
        ram_bytes: (PAGES * M::Paging::page()) as usize + (8 << 20),
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).unwrap_or_else(|error| panic!("{error}"));
    let Some(era) = era(name) else {
        panic!("no era is called {name}")
    };
    let booted = System::<M>::boot(machine, era.config);
    let system = booted.unwrap_or_else(|error| panic!("{error}"));
    let _cpu = system.machine().enter(0);
    let mm = system.new_mm().unwrap_or_else(|_| panic!("no memory"));
    let thread = mm.thread();
    let mut left = faults;
    while left > 0 {
        let pages = left.min(PAGES);
        let len = pages * M::Paging::page();
        let base = mm.mmap(Place::Any, len, Prot::READ_WRITE);
        let base = base.unwrap_or_else(|error| panic!("{error:?}"));
        for page in 0..pages {
            let at = VirtAddr(base.0 + page * M::Paging::page());
            assert_eq!(thread.store(at, page), Ok(()));
        }
        assert_eq!(mm.munmap(base, len), Ok(()));
        left -= pages;
    }
    system.count_of(Event::AnonWrite)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |at: usize, default| args.get(at).map_or(default, String::as_str);
    let count: u64 = match arg(1, "1000000").parse() {
        Ok(count) => count,
        Err(error) => panic!("{}: {error}", arg(1, "")),
    };
    let era = arg(2, "best");
    let taken = match arg(0, "door") {
        "door" => faults::<Host<X86_64, false>>(era, count),
        "bare" => faults::<HostBare<X86_64>>(era, count),
        "busy" => faults::<HostWith<X86_64, Busy>>(era, count),
        "controls" => faults::<HostWith<X86_64, Asks>>(era, count),
        other => panic!("door, bare, busy or controls, not {other}"),
    };
    assert_eq!(taken, count, "each page is a fault");
    println!("{taken} faults, {} accesses seen", PASSED.get());
}
