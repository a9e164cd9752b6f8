//! `minflt boot`: one static program on a kernel under QEMU.

// The kernel's readers of what is written here, for tests.
#[cfg(test)]
#[path = "../../../../../kernel/src/initrd.rs"]
mod kernel_initrd;
#[cfg(test)]
#[path = "../../../../../kernel/src/words.rs"]
mod kernel_words;

mod cpio;
mod elf;
mod images;
pub(crate) mod lab;
mod line;
mod packed;
mod qemu;
mod records;

use crate::args::Boot;
use crate::choice::{era_list, size, spell};
use crate::error::{Error, usage};
use crate::out::complain;
use crate::scratch::Scratch;
use core::time::Duration;
use images::Locks;
use packed::{Besides, Packed, added, pack, read};
use qemu::{Accel, Booted, CONTENT, Console, Machine, Time};
use records::Ending;
use std::env;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

/// The most CPUs that the minflt kernel starts.
const CPUS: u32 = 64;
/// The most RAM that the minflt kernel was tried with.
const MOST_MEM: u64 = 8 << 30;
/// The least RAM that a kernel comes up in, with room for the program.
const LEAST_MEM: u64 = 16 << 20;
/// The same for Debian's Linux kernel.
const LEAST_LINUX_MEM: u64 = 192 << 20;
/// The variable that names a Linux kernel.
const LINUX: &str = "MINFLT_LINUX";
/// The time limit of a boot without a terminal, unless `--timeout` sets one.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Where process 1 of a Linux is in its RAM disk.
const INIT: &str = "/minflt-init";

/// Which kernel boots.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    /// This repository's, built now.
    Minflt,
    /// An image of it.
    Image(PathBuf),
    /// A Linux.
    Linux(PathBuf),
}

impl Kernel {
    /// Reads `--kernel`.
    fn parse(word: &str) -> Result<Self, Error> {
        let readable = |path: PathBuf| match fs::File::open(&path).and_then(|file| file.metadata())
        {
            Ok(it) if it.is_file() => Ok(path),
            Ok(_) => Err(usage(format!(
                "--kernel: {} is no file; give minflt, linux=VMLINUZ or an image of the minflt \
                 kernel",
                path.display()
            ))),
            Err(error) => Err(usage(format!(
                "--kernel: cannot read {}: {error}; give minflt, linux=VMLINUZ or an image of the \
                 minflt kernel",
                path.display()
            ))),
        };
        match word {
            "minflt" => Ok(Self::Minflt),
            "linux" => {
                let path = env::var_os(LINUX).filter(|path| !path.is_empty());
                let path = path.ok_or_else(|| usage(no_linux("--kernel linux")))?;
                let paths: Vec<PathBuf> = env::split_paths(&path).collect();
                match &paths[..] {
                    [path] => readable(path.clone()).map(Self::Linux),
                    _ => Err(usage(format!(
                        "--kernel linux: {LINUX} names {} kernels; name one by linux=VMLINUZ",
                        paths.len()
                    ))),
                }
            }
            _ => match word.strip_prefix("linux=") {
                Some(path) => readable(path.into()).map(Self::Linux),
                None => readable(word.into()).map(Self::Image),
            },
        }
    }

    /// Whether it is a Linux.
    const fn is_linux(&self) -> bool {
        matches!(self, Self::Linux(_))
    }
}

/// How to name a Linux kernel, and how to get one.
fn no_linux(what: &str) -> String {
    format!(
        "{what}: name a Linux kernel by linux=VMLINUZ or in the environment variable {LINUX}; \
         docs/kernel.md says how to get one"
    )
}

/// Runs the command; returns the program's exit status.
pub(crate) fn run(args: &Boot) -> Result<u8, Error> {
    let kernel = Kernel::parse(&args.kernel)?;
    let machine = machine(args, &kernel)?;
    let era = match &args.era {
        Some(_) if kernel.is_linux() => {
            return Err(usage(
                "--era: a Linux kernel has no eras; use --kernel minflt",
            ));
        }
        Some(name) => Some(one_era(name)?),
        None => None,
    };
    let locks = locks(args, &kernel)?;
    let (program, arguments) = match args.program.split_first() {
        Some((program, arguments)) => (program.as_str(), arguments),
        None => {
            return Err(usage(
                "boot: name a static program after --, such as `minflt boot -- ./hello`",
            ));
        }
    };
    let packed = match &args.root {
        Some(root) => Packed::in_root(root, program)?,
        None => Packed::read(Path::new(program))?,
    };
    let files = args
        .add
        .iter()
        .map(|word| added(word))
        .collect::<Result<_, _>>()?;
    let besides = Besides {
        root: args.root.as_deref(),
        files,
    };
    let attended = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut append = args.append.clone();
    if attended && !kernel.is_linux() {
        append.push("console=attended".into());
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let command_line = line::of(&kernel, era.as_deref(), &append, &packed.path, &words)?;
    let _is_there = qemu::program()?;

    let scratch = Scratch::new()?;
    if io::stderr().is_terminal() && !matches!(kernel, Kernel::Image(_)) {
        complain(format_args!("minflt: building"));
    }
    let init = init(&scratch, &kernel)?;
    let boot = qemu::Boot {
        machine,
        image: &image(&scratch, &kernel, locks)?,
        initrd: &initrd(&scratch, &packed, init.as_deref(), &besides, machine.mem)?,
        command_line: &command_line,
        timeout: match args.timeout {
            None if attended => None,
            time => Some(time.unwrap_or(TIMEOUT)),
        },
    };
    let console = if attended {
        Console::Attended
    } else {
        Console::Shown
    };
    let booted = qemu::boot(&scratch, &boot, console)?;
    report(args, &packed.path, &booted)
}

/// Whether the kernel is to check the order of locks.
fn locks(args: &Boot, kernel: &Kernel) -> Result<Locks, Error> {
    match args.checks {
        true if *kernel != Kernel::Minflt => Err(usage(
            "--checks: only the minflt kernel that is built now has them; use --kernel minflt",
        )),
        true => Ok(Locks::Checked),
        false => Ok(Locks::Unchecked),
    }
}

/// The image of a kernel; this repository's is built now, and kept apart from later builds.
fn image(scratch: &Scratch, kernel: &Kernel, locks: Locks) -> Result<PathBuf, Error> {
    match kernel {
        Kernel::Minflt => {
            let bytes = read(&images::kernel(scratch, locks)?)?;
            scratch.write("kernel", &bytes)
        }
        Kernel::Image(path) | Kernel::Linux(path) => Ok(path.clone()),
    }
}

/// Process 1 of a Linux, built now.
fn init(scratch: &Scratch, kernel: &Kernel) -> Result<Option<Vec<u8>>, Error> {
    match kernel {
        Kernel::Linux(_) => read(&images::guest(scratch, "init")?).map(Some),
        Kernel::Minflt | Kernel::Image(_) => Ok(None),
    }
}

/// Writes the initial RAM disk of a machine with so much RAM.
fn initrd(
    scratch: &Scratch,
    program: &Packed,
    init: Option<&[u8]>,
    besides: &Besides<'_>,
    mem: u64,
) -> Result<PathBuf, Error> {
    let archive = pack(program, init, besides)?;
    if archive.len() as u64 > mem / 2 {
        return Err(usage(format!(
            "--mem: the program takes {} bytes, more than half of the machine's {}; give more",
            archive.len(),
            spell(mem)
        )));
    }
    scratch.write("initrd", &archive)
}

fn one_era(name: &str) -> Result<String, Error> {
    let eras = era_list(name)?;
    match &eras[..] {
        [era] => Ok(era.name.clone()),
        _ => Err(usage(format!(
            "--era {name}: a machine boots in one era; name one of `minflt eras`"
        ))),
    }
}

/// The machine that was asked for.
fn machine(args: &Boot, kernel: &Kernel) -> Result<Machine, Error> {
    let cpus = args.cpus.get();
    if cpus > CPUS {
        return Err(usage(format!(
            "--cpus {cpus}: more CPUs than are supported; give at most {CPUS}"
        )));
    }
    let mem = size("--mem", &args.mem)?;
    let least = if kernel.is_linux() {
        LEAST_LINUX_MEM
    } else {
        LEAST_MEM
    };
    if mem < least {
        return Err(usage(format!(
            "--mem {}: the kernel does not come up in so little; give at least {}",
            args.mem,
            spell(least)
        )));
    }
    if mem > MOST_MEM && !kernel.is_linux() {
        return Err(usage(format!(
            "--mem {}: more than the minflt kernel was tried with; give at most {}",
            args.mem,
            spell(MOST_MEM)
        )));
    }
    let accel = match args.accel.as_str() {
        "tcg" => Accel::Tcg,
        "kvm" => Accel::Kvm,
        word => {
            return Err(usage(format!(
                "--accel: unknown accelerator `{word}`; accelerators are tcg, kvm{}",
                crate::words::did_you_mean(word, ["tcg", "kvm"])
            )));
        }
    };
    if accel == Accel::Kvm {
        if args.icount {
            return Err(usage(
                "--icount: only QEMU's translator counts instructions; use --accel tcg",
            ));
        }
        qemu::check_kvm()?;
    }
    Ok(Machine {
        cpus,
        mem,
        accel,
        time: if args.icount {
            Time::Instructions
        } else {
            Time::Real
        },
    })
}

/// Prints what was counted, and returns the program's status.
fn report(args: &Boot, path: &str, booted: &Booted) -> Result<u8, Error> {
    let records = &booted.records;
    if args.log {
        for line in &records.log {
            complain(format_args!("{line}"));
        }
    }
    let ending = ended(path, booted)?;
    for (name, count) in &records.events {
        complain(format_args!("event {name} {count}"));
    }
    if let Ending::Signal(_) = ending {
        complain(format_args!("minflt: {path}: {ending}"));
    }
    Ok(ending.status())
}

/// How the program ended; an error if the kernel was not content, or nothing says so.
fn ended(path: &str, booted: &Booted) -> Result<Ending, Error> {
    let records = &booted.records;
    let last = records.log.last().map_or("nothing", String::as_str);
    let failed = records.log.iter().find(|line| line.contains("FAILED"));
    match &records.ending {
        Some(Ending::Failed(reason)) => Err(Error::Failed(format!("boot: {reason}"))),
        None => Err(Error::Failed(format!(
            "boot: the machine ended (QEMU: {}) before {path} did; the kernel's last line: {last}",
            booted.status.unwrap_or(-1)
        ))),
        // A Linux switches the machine off: 0.
        Some(_) if !matches!(booted.status, Some(0 | CONTENT)) => Err(Error::Failed(format!(
            "boot: {path} ended, but the kernel reports failure: {}",
            failed.map_or(last, String::as_str)
        ))),
        Some(ending) => Ok(ending.clone()),
    }
}
