//! `minflt boot`: one static program on a kernel under QEMU.

// The kernel's readers of what is written here, for tests.
#[cfg(test)]
#[expect(dead_code, reason = "the kernel prints errors")]
#[path = "../../../../../kernel/src/initrd.rs"]
mod kernel_initrd;
#[cfg(test)]
#[path = "../../../../../kernel/src/words.rs"]
mod kernel_words;

mod cpio;
mod elf;
mod images;
mod line;
mod qemu;
mod records;

use crate::args::Boot;
use crate::choice::{era_list, size, spell};
use crate::error::{Error, usage};
use crate::out::complain;
use crate::scratch::Scratch;
use cpio::Cpio;
use elf::Linked;
use images::Locks;
use qemu::{Accel, Booted, CONTENT, Console, Machine, Time};
use records::Ending;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// The most CPUs that the minflt kernel starts.
const CPUS: u32 = 64;
/// The most RAM that the minflt kernel uses, as QEMU lays it out.
const MOST_MEM: u64 = 2 << 30;
/// The least RAM that a kernel comes up in, with room for the program.
const LEAST_MEM: u64 = 16 << 20;
/// The same for Debian's Linux kernel.
const LEAST_LINUX_MEM: u64 = 192 << 20;
/// The variable that names a Linux kernel.
const LINUX: &str = "MINFLT_LINUX";
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
                readable(path.into()).map(Self::Linux)
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
         Debian: apt-get download linux-image-amd64's package and unpack it by dpkg -x"
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
    let (program, arguments) = match args.program.split_first() {
        Some((program, arguments)) => (Path::new(program), arguments),
        None => {
            return Err(usage(
                "boot: name a static program after --, such as `minflt boot -- ./hello`",
            ));
        }
    };
    let packed = Packed::read(program)?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let command_line = line::of(&kernel, era.as_deref(), &packed.path, &words)?;
    if kernel == Kernel::Minflt && packed.linked == Linked::Anywhere {
        return Err(usage(format!(
            "boot: {}: the minflt kernel runs programs that are linked at fixed addresses; link it \
             with -no-pie",
            program.display()
        )));
    }
    let _is_there = qemu::program()?;

    let scratch = Scratch::new()?;
    let booted = boot(
        &scratch,
        &kernel,
        &packed,
        &[],
        &qemu_boot(args, machine, &command_line),
    )?;
    report(args, &packed.path, &booted)
}

/// What is asked of QEMU, but for files that are still to be made.
struct Asked<'a> {
    machine: Machine,
    command_line: &'a str,
    timeout: core::time::Duration,
    console: Console,
    locks: Locks,
}

fn qemu_boot<'a>(args: &Boot, machine: Machine, command_line: &'a str) -> Asked<'a> {
    Asked {
        machine,
        command_line,
        timeout: args.timeout,
        console: Console::Shown,
        locks: Locks::Checked,
    }
}

/// Makes the files and boots.
fn boot(
    scratch: &Scratch,
    kernel: &Kernel,
    program: &Packed,
    files: &[(&str, &[u8])],
    asked: &Asked<'_>,
) -> Result<Booted, Error> {
    let image = match kernel {
        Kernel::Minflt => images::kernel(scratch, asked.locks)?,
        Kernel::Image(path) | Kernel::Linux(path) => path.clone(),
    };
    let init = match kernel {
        Kernel::Linux(_) => Some(read(&images::guest(scratch, "init")?)?),
        Kernel::Minflt | Kernel::Image(_) => None,
    };
    let archive = pack(program, init.as_deref(), files);
    let archive =
        archive.map_err(|_| usage("boot: a program of 4 GiB does not fit into an initramfs"))?;
    let room = asked.machine.mem / 2;
    if archive.len() as u64 > room {
        return Err(usage(format!(
            "--mem: the program takes {} bytes, more than half of the machine's {}; give more",
            archive.len(),
            spell(asked.machine.mem)
        )));
    }
    let initrd = scratch.write("initrd", &archive)?;
    let boot = qemu::Boot {
        machine: asked.machine,
        image: &image,
        initrd: &initrd,
        command_line: asked.command_line,
        timeout: asked.timeout,
    };
    qemu::boot(scratch, &boot, asked.console)
}

/// A program that goes into an initramfs.
struct Packed {
    /// Where it is there.
    path: String,
    bytes: Vec<u8>,
    linked: Linked,
}

impl Packed {
    fn read(program: &Path) -> Result<Self, Error> {
        let cannot = |why: &dyn core::fmt::Display| {
            usage(format!(
                "boot: {}: {why}; give a static x86-64 program",
                program.display()
            ))
        };
        let bytes = fs::read(program).map_err(|error| cannot(&error))?;
        let linked = elf::linked(&bytes).map_err(|why| cannot(&why))?;
        let name = program.file_name().and_then(|name| name.to_str());
        let name = name.filter(|name| line::is_plain(name) && *name != &INIT[1..]);
        let name = name.ok_or_else(|| cannot(&"its name cannot stand in a command line"))?;
        Ok(Self {
            path: format!("/{name}"),
            bytes,
            linked,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let cannot = crate::error::failed(format!("boot: cannot read {}", path.display()));
    fs::read(path).map_err(|error| cannot(&error))
}

/// The archive: the program, files beside it; for Linux process 1, and devices that it opens.
fn pack(
    program: &Packed,
    init: Option<&[u8]>,
    files: &[(&str, &[u8])],
) -> Result<Vec<u8>, cpio::TooLong> {
    let mut cpio = Cpio::default();
    if let Some(init) = init {
        cpio.folder("dev")?;
        cpio.device("dev/console", 5, 1)?;
        cpio.device("dev/null", 1, 3)?;
        cpio.device("dev/ttyS0", 4, 64)?;
        cpio.device("dev/ttyS1", 4, 65)?;
        cpio.file(&INIT[1..], init)?;
    }
    cpio.file(&program.path[1..], &program.bytes)?;
    for (path, bytes) in files {
        cpio.file(path, bytes)?;
    }
    cpio.finish()
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
    if mem > MOST_MEM {
        return Err(usage(format!(
            "--mem {}: the minflt kernel uses no RAM above 2 GiB; give at most {}",
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
