//! Process 1 of a Linux that runs one program: `init PROGRAM ARGUMENTS...`.
//!
//! The program's standard streams are the first serial port, as it writes them. How it ended goes
//! to the second, in the records that the minflt kernel writes for its own program. Then the
//! machine is switched off.
#![no_std]
#![no_main]

use core::fmt::Write;
use minflt_guest::{Args, Errno, File, Forked, Mode, Process, Sys, program, say};

program!(main);

/// The status of a child whose program cannot be run, as shells have it.
const NOT_RUN: i32 = 127;

fn main(args: Args) -> i32 {
    if let Err(error) = run(args) {
        say!("init: {error:?}");
    }
    let error = Process::power_off();
    say!("init: cannot switch the machine off: {error:?}");
    1
}

/// What the minflt kernel has, too.
fn mount_all() -> Result<(), Errno> {
    Process::mount(c"proc", c"/proc")?;
    Process::mount(c"sysfs", c"/sys")?;
    Process::mount(c"devtmpfs", c"/dev")?;
    Process::make_folder(c"/dev/shm")?;
    Process::mount(c"tmpfs", c"/dev/shm")
}

fn run(args: Args) -> Result<(), Errno> {
    mount_all()?;
    let mut records = File::open(c"/dev/ttyS1", Mode::ReadWrite)?;
    records.set_raw()?;
    let console = File::open(c"/dev/ttyS0", Mode::ReadWrite)?;
    console.set_raw()?;
    console.become_standard()?;
    let program = match Process::fork()? {
        Forked::Child => {
            Process::begin_session()?;
            let error = Process::exec(args, 1);
            let path = args.get(1).unwrap_or("nothing");
            // `minflt boot`, which reads the records, reports that there are none.
            let _ = writeln!(records, "failed {path} cannot be executed: {error:?}");
            Sys::exit(NOT_RUN)
        }
        Forked::Parent(program) => program,
    };
    // What the program leaves behind becomes a child of process 1.
    let (ended, usage) = loop {
        let (child, ended, usage) = Process::wait(None)?;
        if child == program {
            break (ended, usage);
        }
    };
    console.drain()?;
    // As above.
    let _ = writeln!(records, "{ended}");
    for (name, count) in [
        ("minor-faults", usage.minor_faults),
        ("major-faults", usage.major_faults),
    ] {
        if count > 0 {
            let _ = writeln!(records, "event {name} {count}");
        }
    }
    records.drain()
}
