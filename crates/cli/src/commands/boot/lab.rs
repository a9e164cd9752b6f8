//! The guest program `bench` on several kernels, in machines that differ in the kernel alone.

use super::images::{self, Locks};
use super::packed::{Besides, Packed};
use super::qemu::{self, Accel, Console, Machine, Time};
use super::{Ending, Kernel, LINUX, ended, image, init, initrd, line, no_linux};
use crate::error::{Error, failed};
use crate::scratch::Scratch;
use core::time::Duration;
use std::env;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// RAM of a machine.
const MEM: u64 = 512 << 20;
/// A machine that takes longer has hung, unless the command has less time.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(900);
/// The file that `bench` maps.
const DATA: usize = 4 << 20;

/// One of the kernels that are compared.
#[derive(Debug)]
pub(crate) struct Side {
    /// What its column is called.
    pub(crate) name: String,
    kernel: Kernel,
    era: Option<String>,
}

impl Side {
    /// The minflt kernel in an era.
    pub(crate) fn minflt(era: &str) -> Self {
        Self {
            name: era.to_owned(),
            kernel: Kernel::Minflt,
            era: Some(era.to_owned()),
        }
    }

    /// A Linux, by its image.
    pub(crate) fn linux(path: &Path) -> Result<Self, Error> {
        let kernel = Kernel::parse(&format!("linux={}", path.display()))?;
        let version = version(path).unwrap_or_else(|| path.display().to_string());
        Ok(Self {
            name: format!("Linux {version}"),
            kernel,
            era: None,
        })
    }

    /// Whether it is a Linux.
    pub(crate) const fn is_linux(&self) -> bool {
        self.kernel.is_linux()
    }
}

/// The images that the environment names; else how to name one.
pub(crate) fn linux_images() -> Result<Vec<PathBuf>, String> {
    match env::var_os(LINUX).filter(|paths| !paths.is_empty()) {
        Some(paths) => Ok(env::split_paths(&paths).collect()),
        None => Err(no_linux("linux-vm")),
    }
}

/// The version that a kernel image of Linux holds. Linux: arch/x86/boot/header.S `kernel_version`.
fn version(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let mut head = [0; 0x210];
    file.read_exact(&mut head).ok()?;
    if &head[0x202..0x206] != b"HdrS" {
        return None;
    }
    let at = u64::from(u16::from_le_bytes([head[0x20e], head[0x20f]])) + 0x200;
    let mut text = [0; 64];
    file.seek(SeekFrom::Start(at)).ok()?;
    file.read_exact(&mut text).ok()?;
    let text = text.split(|byte| *byte == b' ' || *byte == 0).next()?;
    let text = str::from_utf8(text).ok()?;
    Some(text.to_owned()).filter(|text| line::is_plain(text))
}

/// Why the minflt kernel can be neither built nor booted here, if so, and how to change that.
pub(crate) fn missing() -> Option<String> {
    qemu::missing().or_else(images::missing)
}

/// What a machine counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counts {
    /// Instructions, on one CPU.
    Instructions,
    /// Time, on so many CPUs.
    Time(u32),
}

impl Counts {
    const fn machine(self) -> Machine {
        let (cpus, time) = match self {
            Self::Instructions => (1, Time::Instructions),
            Self::Time(cpus) => (cpus, Time::Real),
        };
        Machine {
            cpus,
            mem: MEM,
            accel: Accel::Tcg,
            time,
        }
    }

    /// The options of QEMU.
    pub(crate) fn options(self) -> String {
        self.machine().options().join(" ")
    }
}

/// What is built once for all machines.
pub(crate) struct Lab {
    scratch: Scratch,
    bench: Packed,
    /// A machine is ended after so long.
    timeout: Duration,
    /// The minflt kernel, if it is wanted.
    image: Option<PathBuf>,
    /// Process 1 of a Linux, if one is wanted.
    init: Option<Vec<u8>>,
}

impl Lab {
    /// Builds what these sides need.
    pub(crate) fn new(sides: &[Side], timeout: Duration) -> Result<Self, Error> {
        let _is_there = qemu::program()?;
        let scratch = Scratch::new()?;
        let bench = Packed::read(&images::guest(&scratch, "bench")?)?;
        let ours = sides.iter().find(|side| !side.is_linux());
        let linux = sides.iter().find(|side| side.is_linux());
        let image = ours.map(|side| image(&scratch, &side.kernel, Locks::Unchecked));
        let init = linux.map(|side| init(&scratch, &side.kernel));
        Ok(Self {
            image: image.transpose()?,
            init: init.transpose()?.flatten(),
            scratch,
            bench,
            timeout,
        })
    }

    /// Boots a side and has it run `bench` with these arguments; returns what that printed.
    pub(crate) fn run(
        &self,
        side: &Side,
        counts: Counts,
        arguments: &[&str],
    ) -> Result<String, Error> {
        let machine = counts.machine();
        let data: Vec<u8> = (0..DATA).map(|at| (at >> 12) as u8 | 1).collect();
        let besides = Besides {
            root: None,
            files: vec![("data".into(), data, 0o755)],
        };
        let init = self.init.as_deref().filter(|_| side.is_linux());
        let image = match &side.kernel {
            Kernel::Image(path) | Kernel::Linux(path) => Some(path),
            Kernel::Minflt => self.image.as_ref(),
        };
        let image = image.ok_or_else(|| failed("bench")(&"the kernel was not built"))?;
        let boot = qemu::Boot {
            machine,
            image,
            initrd: &initrd(&self.scratch, &self.bench, init, &besides, machine.mem)?,
            command_line: &line::of(
                &side.kernel,
                side.era.as_deref(),
                &[],
                &self.bench.path,
                arguments,
            )?,
            timeout: Some(self.timeout),
        };
        let booted = qemu::boot(&self.scratch, &boot, Console::Kept)?;
        match ended(&self.bench.path, &booted)? {
            Ending::Exited(0) => Ok(booted.console),
            ending => Err(Error::Failed(format!(
                "{}: bench {ending}: {}",
                side.name,
                booted
                    .console
                    .lines()
                    .last()
                    .unwrap_or("it printed nothing")
            ))),
        }
    }
}
