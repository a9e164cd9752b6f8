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
mod fs;
mod initrd;
mod linux;
mod loader;
mod machine;
mod mmu;
mod options;
mod pool;
mod program;
mod roots;
mod sched;
mod shared;
mod smoke;
mod space;
mod stack;
mod task;
mod user;
mod watch;
mod words;

use core::panic::PanicInfo;

use minflt_mm::config::CpuMasks;
use minflt_mm::{Era, Running, Swap, System};
use minflt_pgtable::{Facts, X86_64};
use minflt_sync::Machine;
use x86_64::instructions::interrupts;

use arch::exit::{Verdict, exit};
use arch::pvh::BootInfo;
use arch::serial::{Serial, last_words, say};
use arch::{clock, date, kernel_map, protect, smp};
use frames::Ranges;
use fs::unpack::UnpackError;
use machine::{Kernel, Pc};
use options::{Options, Pcids, Run, has_program};
use shared::Once;

/// The RAM handed on starts at a multiple of this, as `minflt_sync::Ram` asks.
const RAM_ALIGN: u64 = 64 << 10;

/// What the loader said. Programs' arguments lie in it.
static BOOT: Once<BootInfo> = Once::new();

/// What programs run in: it lasts, as their threads have parts of it.
static SYSTEM: Once<Running<Kernel>> = Once::new();

/// Where `boot.s` goes once the CPU is in long mode; `start_info` is a physical address.
#[unsafe(no_mangle)]
extern "C" fn kmain(start_info: u64) -> ! {
    Serial::init();
    arch::init();
    // SAFETY: (1) `boot.s` passes on what the loader gave it, and nothing was written since but
    // the kernel's own image.
    let boot = BOOT.set(unsafe { BootInfo::read(start_info) });
    let Some(command_line) = boot.command_line() else {
        say!("minflt: the command line is too long, or not UTF-8");
        exit(Verdict::Failure)
    };
    if has_program(command_line) {
        Serial::log_apart();
    }
    say!("minflt: command line \"{command_line}\"");
    let Some(options) = Options::parse(command_line) else {
        exit(Verdict::Failure)
    };

    frames::init(boot.ram(), &boot.initrd());
    kernel_map::init(boot.ram());
    let Some(counts_per_second) = clock::counts_per_second() else {
        panic!("the interval timer does not run");
    };
    let bytes = boot.ram().iter().map(|range| range.end - range.start);
    task::init(smp::find(boot), bytes.sum());
    user::process::init();
    user::futex::init();
    machine::set_clock(counts_per_second);
    machine::set_date(date::since_1970_ns().saturating_sub(machine::now_ns()));
    if options.pcids == Pcids::Used {
        mmu::use_pcids();
    }
    mmu::init();
    interrupts::enable();
    let cpus = smp::start(boot, counts_per_second);
    machine::set_cpus(cpus);
    if options.era.config.cpu_masks == CpuMasks::Arenas {
        roots::make(cpus);
    }
    let ram = frames::take_all(RAM_ALIGN);
    print_machine(&ram, options.era);
    if let Some(control) = options.control {
        machine::break_promise(control);
    }

    let good = match options.run {
        Run::Smoke { canary } => {
            let sys = start_system(ram, &options);
            let whole = all_frames::check(sys);
            whole & files(&[], false) && smoke::run(sys, canary)
        }
        Run::Program { path, arguments } => {
            let sys = start_system(ram, &options);
            // SAFETY: (1) all RAM is mapped by now, and `frames` keeps off the RAM disk.
            let initrd = unsafe { boot.initrd_bytes() };
            files(initrd, options.attended) && program::run(sys, path, arguments)
        }
        Run::Conformance => {
            // SAFETY: (1) as above.
            unsafe { conformance::run(ram.as_slice()[0].clone(), options.era) }
        }
    };
    let what = match options.run {
        Run::Smoke { .. } => "boot smoke",
        Run::Conformance => "conformance",
        Run::Program { .. } => "program",
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

/// Makes the first files, of the initial RAM disk; false if that cannot be, which is said.
fn files(initrd: &'static [u8], attended: bool) -> bool {
    if attended {
        Serial::attend();
    }
    fs::tty::init(if attended {
        fs::tty::Mode::Cooked
    } else {
        fs::tty::Mode::Raw
    });
    match fs::init(initrd) {
        Ok(()) => true,
        Err(UnpackError::Archive(error)) => {
            say!("failed the initial RAM disk: {error}");
            false
        }
        Err(UnpackError::Memory(_)) => {
            say!("failed there is not enough memory for the files of the initial RAM disk");
            false
        }
    }
}

/// The kernel's command line.
fn command_line() -> &'static str {
    BOOT.get().and_then(BootInfo::command_line).unwrap_or("")
}

/// What programs run in, once it has begun.
fn system() -> Option<&'static System<Kernel>> {
    SYSTEM.get().map(|running| &**running)
}

/// Hands the machine with this RAM, all that is left, to `minflt-mm`.
fn start_system(ram: Ranges, options: &Options<'_>) -> &'static System<Kernel> {
    // SAFETY: (1) taken and zeroed by `take_all`, and mapped by `kernel_map`.
    let machine = unsafe { Pc::of(ram) };
    match System::boot_with_swap(
        machine,
        options.era.config,
        Swap::of_bytes(options.swap << 20),
    ) {
        Ok(sys) => {
            sys.set_overcommit(options.overcommit);
            let there = sys.resize_huge_pool(options.huge_pages);
            if there < options.huge_pages {
                say!("minflt: {there} huge pages, not {}", options.huge_pages);
            }
            SYSTEM.set(sys)
        }
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
        "minflt: machine: {cpus} CPU{s}, {} MiB of RAM from {:#x} on, {}{}{}{}",
        ram.bytes() >> 20,
        ram.span().start,
        X86_64::NAME,
        if protect::has_smap() { ", SMAP" } else { "" },
        if mmu::uses_pcids() { ", PCIDs" } else { "" },
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
