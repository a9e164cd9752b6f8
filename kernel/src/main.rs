//! The minflt kernel: boots by PVH, runs its programs, says how they fared, and ends the machine.
#![no_std]
#![no_main]

mod arch;
mod bringup;
mod calls;
mod fault;
mod frames;
mod linux;
mod loader;
mod one_cpu;
mod process;
mod smoke;
mod stack;

use core::panic::PanicInfo;

use arch::exit::{Verdict, exit};
use arch::pvh::BootInfo;
use arch::serial::{Serial, say};
use arch::{kernel_map, paging};

/// Where `boot.s` goes once the CPU is in long mode; `start_info` is a physical address.
#[unsafe(no_mangle)]
extern "C" fn kmain(start_info: u64) -> ! {
    Serial::init();
    arch::init();
    // SAFETY: (1) `boot.s` passes on what the loader gave it, and nothing was written since but
    // the kernel's own image.
    let boot = unsafe { BootInfo::read(start_info) };
    frames::init(boot.ram());
    kernel_map::init(boot.ram());

    let mib = (frames::left() * paging::PAGE) >> 20;
    say!("minflt: one CPU, {mib} MiB of RAM left");
    say!("minflt: command line \"{}\"", boot.command_line());

    let good = smoke::run(boot.command_line());
    bringup::print_counters();
    say!(
        "minflt: boot smoke {}",
        if good { "passed" } else { "FAILED" }
    );
    exit(if good {
        Verdict::Success
    } else {
        Verdict::Failure
    })
}

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    say!("minflt: {info}");
    exit(Verdict::Panic)
}
