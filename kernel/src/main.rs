//! The minflt kernel: boots by PVH, runs its programs on `minflt-mm`, says how they fared, and ends
//! the machine.
#![no_std]
#![no_main]

mod acpi;
mod all_frames;
mod arch;
mod boot_cpu;
mod calls;
mod conformance;
mod crew;
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
use minflt_sync::Machine;
use x86_64::instructions::interrupts;

use arch::exit::{Verdict, exit};
use arch::pvh::BootInfo;
use arch::serial::{Serial, last_words, say};
use arch::{clock, kernel_map, smp};
use frames::Ranges;
use machine::{Kernel, Pc};
use options::{Options, Run};

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
    let Some(counts_per_second) = clock::counts_per_second() else {
        panic!("the interval timer does not run");
    };
    task::init(smp::find(&boot));
    interrupts::enable();
    machine::set(smp::start(&boot, counts_per_second), counts_per_second);
    let ram = frames::take_all(RAM_ALIGN);
    print_machine(&ram, options.era);

    let good = match options.run {
        Run::Smoke { overcommit, canary } => {
            // SAFETY: (1) taken and zeroed above, and mapped by `kernel_map`.
            let machine = unsafe { Pc::of(ram) };
            let sys = start_system(machine, options.era);
            sys.set_overcommit(overcommit);
            all_frames::check(&sys) & smoke::run(&sys, canary)
        }
        Run::Conformance { control } => {
            // SAFETY: (1) as above.
            unsafe { conformance::run(ram.as_slice()[0].clone(), options.era, control) }
        }
    };
    let what = match options.run {
        Run::Smoke { .. } => "boot smoke",
        Run::Conformance { .. } => "conformance",
    };
    say!(
        "minflt: {what} {}, {} ms",
        if good { "passed" } else { "FAILED" },
        machine::now_ns() / 1_000_000
    );
    exit(if good {
        Verdict::Success
    } else {
        Verdict::Failure
    })
}

/// Hands the machine to `minflt-mm`.
fn start_system(machine: Pc, era: &Era) -> Running<Kernel> {
    match System::boot(machine, era.config) {
        Ok(sys) => sys,
        Err(error) => {
            say!("minflt: {error}");
            exit(Verdict::Failure)
        }
    }
}

fn print_machine(ram: &Ranges, era: &Era) {
    let cpus = machine::cpus();
    let s = if cpus == 1 { "" } else { "s" };
    say!(
        "minflt: machine: {cpus} CPU{s}, {} MiB of RAM from {:#x} on, {}{}",
        ram.bytes() >> 20,
        ram.span().start,
        X86_64::NAME,
        if Kernel::CHECKED {
            ", locks checked"
        } else {
            ""
        }
    );
    for hole in ram.as_slice().windows(2) {
        say!("minflt: hole: {:#x} to {:#x}", hole[0].end, hole[1].start);
    }
    say!("minflt: era {}: {}", era.name, era.idea);
}

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    last_words(format_args!("minflt: {info}"));
    exit(Verdict::Panic)
}
