//! The minflt kernel: boots by PVH, runs its programs on `minflt-mm`, says how they fared, and ends
//! the machine.
#![no_std]
#![no_main]

mod arch;
mod boot_cpu;
mod calls;
mod fault;
mod frames;
mod linux;
mod loader;
mod machine;
mod options;
mod process;
mod shared;
mod smoke;
mod space;
mod stack;
mod task;

use core::panic::PanicInfo;

use minflt_mm::{Era, Running, System};
use minflt_pgtable::{Facts, X86_64};
use minflt_sync::{Instance, Machine};
use x86_64::instructions::interrupts;

use arch::exit::{Verdict, exit};
use arch::pvh::BootInfo;
use arch::serial::{Serial, last_words, say};
use arch::{clock, kernel_map};
use machine::{CPUS, Kernel, Pc};
use options::Options;

/// The RAM handed on starts at a multiple of this, as `minflt_sync::Ram` asks.
const RAM_ALIGN: u64 = 64 << 10;

/// Where `boot.s` goes once the CPU is in long mode; `start_info` is a physical address.
#[unsafe(no_mangle)]
extern "C" fn kmain(start_info: u64) -> ! {
    Serial::init();
    arch::init();
    // SAFETY: (1) `boot.s` passes on what the loader gave it, and nothing was written since but
    // the kernel's own image.
    let boot = unsafe { BootInfo::read(start_info) };
    say!("minflt: command line \"{}\"", boot.command_line());
    let Some(options) = Options::parse(boot.command_line()) else {
        exit(Verdict::Failure)
    };

    frames::init(boot.ram());
    kernel_map::init(boot.ram());
    task::init();
    interrupts::enable();
    let sys = start_system(options.era);
    sys.set_overcommit(options.overcommit);
    print_machine(&sys, options.era);

    let good = smoke::run(&sys, options.canary);
    say!(
        "minflt: boot smoke {}, {} ms",
        if good { "passed" } else { "FAILED" },
        sys.machine().now_ns() / 1_000_000
    );
    exit(if good {
        Verdict::Success
    } else {
        Verdict::Failure
    })
}

/// Hands the RAM that is left to `minflt-mm`.
fn start_system(era: &Era) -> Running<Kernel> {
    let Some(counts_per_second) = clock::counts_per_second() else {
        panic!("the interval timer does not run");
    };
    let ram = frames::take_all(RAM_ALIGN);
    // SAFETY: (1) taken and zeroed by the line before, and mapped by `kernel_map`.
    let machine = unsafe { Pc::new(ram, counts_per_second) };
    match System::boot(machine, era.config) {
        Ok(sys) => sys,
        Err(error) => {
            say!("minflt: {error}");
            exit(Verdict::Failure)
        }
    }
}

fn print_machine(sys: &System<Kernel>, era: &Era) {
    let ram = sys.machine().ram();
    let s = if CPUS == 1 { "" } else { "s" };
    say!(
        "minflt: machine: {CPUS} CPU{s}, {} MiB of RAM from {:#x} on, {}{}",
        ram.bytes >> 20,
        sys.machine().ram_phys(),
        X86_64::NAME,
        if Kernel::CHECKED {
            ", locks checked"
        } else {
            ""
        }
    );
    say!("minflt: era {}: {}", era.name, era.idea);
}

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    last_words(format_args!("minflt: {info}"));
    exit(Verdict::Panic)
}
