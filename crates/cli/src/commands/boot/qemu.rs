//! QEMU: a machine with a kernel, an initial RAM disk, a console and a second serial port.

use super::records::Records;
use crate::error::{Error, failed, usage};
use crate::scratch::{Scratch, find_program};
use core::time::Duration;
use std::env;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What executes the machine's instructions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Accel {
    /// QEMU's translator.
    Tcg,
    /// Linux's hypervisor.
    Kvm,
}

/// How virtual time passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Time {
    /// With that of the host.
    Real,
    /// By a nanosecond an instruction, which the time-stamp counter counts.
    Instructions,
}

/// The machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Machine {
    pub(crate) cpus: u32,
    /// Bytes of RAM.
    pub(crate) mem: u64,
    pub(crate) accel: Accel,
    pub(crate) time: Time,
}

impl Machine {
    /// The options of QEMU that say so.
    pub(crate) fn options(&self) -> Vec<String> {
        let accel = match (self.accel, self.time) {
            (Accel::Kvm, _) => "kvm",
            // A thread of the host for each CPU, so that they run at once.
            (Accel::Tcg, Time::Real) if self.cpus > 1 => "tcg,thread=multi",
            (Accel::Tcg, _) => "tcg",
        };
        let cpu = match self.accel {
            Accel::Kvm => "host",
            // A repeated store of bytes would count as one instruction a byte.
            Accel::Tcg => "max,-erms",
        };
        let mut options: Vec<String> = [
            "-machine", "q35", "-accel", accel, "-cpu", cpu, "-display", "none",
        ]
        .map(str::to_owned)
        .into();
        options.extend(["-m".into(), format!("{}K", self.mem >> 10)]);
        options.extend(["-smp".into(), self.cpus.to_string()]);
        if self.time == Time::Instructions {
            options.extend(["-icount".into(), "shift=0".into()]);
        }
        options
    }
}

/// What a machine boots.
#[derive(Debug)]
pub(crate) struct Boot<'a> {
    pub(crate) machine: Machine,
    pub(crate) image: &'a Path,
    pub(crate) initrd: &'a Path,
    pub(crate) command_line: &'a str,
    /// It is ended after so long.
    pub(crate) timeout: Option<Duration>,
}

/// Where the console goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Console {
    /// To this program's standard output.
    Shown,
    /// To and from this program's terminal. Ctrl-A x ends the machine.
    Attended,
    /// To [`Booted::console`].
    Kept,
}

/// What became of it.
#[derive(Debug)]
pub(crate) struct Booted {
    /// QEMU's exit status.
    pub(crate) status: Option<i32>,
    pub(crate) records: Records,
    /// What the program printed, if it was kept.
    pub(crate) console: String,
}

/// QEMU's exit status if the minflt kernel was content, see `kernel/src/arch/exit.rs`.
pub(crate) const CONTENT: i32 = 33;

/// The program.
pub(crate) fn program() -> Result<PathBuf, Error> {
    find_program(&name()).ok_or_else(|| usage(format!("boot: {}", how_to_get("is not there"))))
}

/// Why there is no QEMU, if so, and how to get one.
pub(crate) fn missing() -> Option<String> {
    let Some(program) = find_program(&name()) else {
        return Some(how_to_get("is not there"));
    };
    let asked = Command::new(program).arg("--version").output();
    let runs = asked.is_ok_and(|answer| answer.status.success());
    (!runs).then(|| how_to_get("does not run"))
}

fn name() -> PathBuf {
    let name = env::var_os("QEMU").unwrap_or_else(|| "qemu-system-x86_64".into());
    name.into()
}

fn how_to_get(what: &str) -> String {
    format!(
        "{} {what}; install QEMU (Debian: apt install qemu-system-x86), or name it in the \
         environment variable QEMU",
        name().display()
    )
}

/// Refuses KVM where it cannot be used.
pub(crate) fn check_kvm() -> Result<(), Error> {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/kvm");
    opened.map(drop).map_err(|error| {
        usage(format!(
            "--accel kvm: cannot open /dev/kvm: {error}; use --accel tcg, which needs nothing"
        ))
    })
}

/// Boots, and waits for the end.
pub(crate) fn boot(scratch: &Scratch, boot: &Boot<'_>, console: Console) -> Result<Booted, Error> {
    let mut qemu = Command::new(program()?);
    let records = scratch.path("records").display().to_string();
    // A comma in an option's value is written as two.
    let records = records.replace(',', ",,");
    qemu.args(boot.machine.options());
    qemu.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
    match console {
        // Keys that are signals are the machine's.
        Console::Attended => qemu.args([
            "-chardev",
            "stdio,id=console,mux=on,signal=off",
            "-serial",
            "chardev:console",
        ]),
        Console::Shown | Console::Kept => qemu.args(["-serial", "stdio"]),
    };
    qemu.args(["-chardev", &format!("file,id=records,path={records}")]);
    qemu.args(["-serial", "chardev:records"]);
    qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
    qemu.arg("-kernel").arg(boot.image);
    qemu.arg("-initrd").arg(boot.initrd);
    qemu.args(["-append", boot.command_line]);
    qemu.stdout(match console {
        Console::Shown | Console::Attended => Stdio::inherit(),
        Console::Kept => scratch.output("console")?,
    });
    qemu.stderr(scratch.output("errors")?);
    qemu.stdin(match console {
        Console::Attended => Stdio::inherit(),
        Console::Shown | Console::Kept => Stdio::null(),
    });
    let ended = scratch.run_with_input(&mut qemu, boot.timeout);
    let ended = ended.map_err(|error| failed("boot: cannot run QEMU")(&error))?;
    let records = Records::read(&scratch.text("records"));
    let Some(status) = ended else {
        return Err(late(boot.timeout.unwrap_or_default(), &records));
    };
    let errors = scratch.text("errors");
    if records == Records::default()
        && let Some(line) = errors.lines().find(|line| !line.contains("warning:"))
    {
        return Err(Error::Failed(format!("boot: {line}")));
    }
    Ok(Booted {
        status: status.code(),
        records,
        console: scratch.text("console"),
    })
}

fn late(timeout: Duration, records: &Records) -> Error {
    let last = match records.log.last() {
        Some(line) => format!("; the kernel's last line: {line}"),
        None => String::new(),
    };
    Error::Failed(format!(
        "boot: no end after {} s, give more by --timeout{last}",
        timeout.as_secs_f64()
    ))
}

#[cfg(test)]
mod tests {
    use super::{Accel, Machine, Time};

    #[test]
    fn a_machine_is_spelled_out() {
        let machine = Machine {
            cpus: 2,
            mem: 512 << 20,
            accel: Accel::Tcg,
            time: Time::Real,
        };
        let text = |machine: Machine| machine.options().join(" ");
        assert_eq!(
            text(machine),
            "-machine q35 -accel tcg,thread=multi -cpu max,-erms -display none -m 524288K -smp 2"
        );
        let counted = Machine {
            cpus: 1,
            time: Time::Instructions,
            ..machine
        };
        assert!(text(counted).contains("-accel tcg -cpu"), "{counted:?}");
        assert!(text(counted).ends_with("-smp 1 -icount shift=0"));
        let kvm = Machine {
            accel: Accel::Kvm,
            ..machine
        };
        assert!(text(kvm).contains("-accel kvm -cpu host"));
    }
}
