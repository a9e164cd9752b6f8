//! What the files of `/proc` and `/sys` say. Linux: fs/proc/, mm/vmstat.c.

use core::fmt::{self, Write};

use minflt_addr::VirtAddr;
use minflt_mm::{Errno, Event, FileHandle, FileNames, Force, Mm, MmHandle};

use super::super::path::{self, Buffer, Node};
use crate::arch::paging::PAGE;
use crate::linux::{EIO, ESRCH, NODE, RELEASE};
use crate::machine::{self, Kernel};
use crate::task::{self, State, Task};
use crate::user::exec::Running;
use crate::user::process::{self, Process};

/// A text that grows.
pub(super) struct Text {
    file: FileHandle<'static, Kernel>,
    buffer: Buffer,
    /// Bytes in the buffer, and in the file.
    len: usize,
    written: u64,
}

type Done = Result<(), Errno>;

impl Text {
    /// Nothing.
    pub(super) fn new() -> Result<Self, Errno> {
        let sys = crate::system().ok_or(Errno::ENOMEM)?;
        Ok(Self {
            file: sys.new_file(0)?,
            buffer: Buffer::new()?,
            len: 0,
            written: 0,
        })
    }

    fn flush(&mut self) -> Done {
        let len = self.len;
        self.file
            .write_bytes_at(self.written, &self.buffer.bytes()[..len])?;
        self.written += len as u64;
        self.len = 0;
        Ok(())
    }

    /// Adds bytes.
    fn bytes(&mut self, bytes: &[u8]) -> Done {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = self.buffer.bytes().len() - self.len;
            let (part, more) = rest.split_at(rest.len().min(room));
            let at = self.len;
            self.buffer.bytes()[at..at + part.len()].copy_from_slice(part);
            self.len += part.len();
            rest = more;
            if self.len == self.buffer.bytes().len() {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Adds a line.
    pub(super) fn line(&mut self, line: &str) -> Done {
        self.bytes(line.as_bytes())?;
        self.bytes(b"\n")
    }

    fn put(&mut self, text: fmt::Arguments<'_>) -> Done {
        self.write_fmt(text).map_err(|_| Errno::ENOMEM)
    }

    /// All of it.
    pub(super) fn finish(mut self) -> Result<FileHandle<'static, Kernel>, Errno> {
        self.flush()?;
        Ok(self.file)
    }
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Clock ticks that programs are told of, in a second.
const TICKS: u64 = 100;
const NS: u64 = 1_000_000_000;

fn ticks(ns: u64) -> u64 {
    ns / (NS / TICKS)
}

fn mm_of(task: &Task) -> Result<MmHandle<'static, Kernel>, Errno> {
    task.own.process().mm().ok_or(ESRCH)
}

pub(super) fn nothing(text: &mut Text, _: &'static Task) -> Done {
    text.bytes(b"0")
}

pub(super) fn kernel_line(text: &mut Text, _: &'static Task) -> Done {
    text.line(crate::command_line())
}

pub(super) fn cpuinfo(text: &mut Text, _: &'static Task) -> Done {
    for cpu in 0..machine::cpus() {
        text.put(format_args!(
            "processor\t: {cpu}\nvendor_id\t: {}\nmodel name\t: {}\n\n",
            "unknown", "x86-64"
        ))?;
    }
    Ok(())
}

pub(super) fn filesystems(text: &mut Text, _: &'static Task) -> Done {
    for name in ["tmpfs", "proc", "sysfs", "devtmpfs"] {
        text.put(format_args!("nodev\t{name}\n"))?;
    }
    Ok(())
}

fn runnable() -> usize {
    task::threads()
        .filter(|task| task.own.is_alive() && task.state() == State::Ready)
        .count()
}

pub(super) fn loadavg(text: &mut Text, _: &'static Task) -> Done {
    let threads = task::threads().filter(|task| task.own.is_alive()).count();
    let last = process::all().map(process::number).max().unwrap_or(0);
    let running = runnable();
    text.put(format_args!("0.00 0.00 0.00 {running}/{threads} {last}\n"))
}

/// Memory in KiB, as far as it is counted: of what is free, what CPUs keep is not, nor what could
/// be reclaimed.
pub(super) fn meminfo(text: &mut Text, _: &'static Task) -> Done {
    let sys = crate::system().ok_or(EIO)?;
    let kib = |pages: u64| pages * PAGE / 1024;
    let (all, free) = sys.memory_pages();
    let committed = sys.committed_pages();
    for (name, pages) in [
        ("MemTotal", all),
        ("MemFree", free),
        ("MemAvailable", free),
        ("CommitLimit", sys.commit_limit()),
        ("Committed_AS", committed),
    ] {
        let name = (name, ':');
        text.put(format_args!("{:<16}{:>8} kB\n", Joined(name), kib(pages)))?;
    }
    Ok(())
}

/// A name and what follows it at once, which are padded together.
struct Joined((&'static str, char));

impl fmt::Display for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, mark) = self.0;
        let len = name.len() + 1;
        write!(f, "{name}{mark}")?;
        for _ in len..f.width().unwrap_or(0) {
            f.write_char(' ')?;
        }
        Ok(())
    }
}

pub(super) fn stat(text: &mut Text, _: &'static Task) -> Done {
    let sys = crate::system().ok_or(EIO)?;
    text.put(format_args!("cpu  0 0 0 0 0 0 0 0 0 0\n"))?;
    for cpu in 0..machine::cpus() {
        text.put(format_args!("cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n"))?;
    }
    let began = machine::real_ns().saturating_sub(machine::now_ns()) / NS;
    text.put(format_args!(
        "ctxt 0\nbtime {began}\nprocesses {}\nprocs_running {}\nprocs_blocked 0\n",
        sys.count_of(Event::Fork),
        runnable()
    ))
}

pub(super) fn swaps(text: &mut Text, _: &'static Task) -> Done {
    text.line("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority")
}

pub(super) fn uptime(text: &mut Text, _: &'static Task) -> Done {
    let hundredths = machine::now_ns() / (NS / 100);
    text.put(format_args!(
        "{}.{:02} 0.00\n",
        hundredths / 100,
        hundredths % 100
    ))
}

pub(super) fn version(text: &mut Text, _: &'static Task) -> Done {
    text.put(format_args!(
        "Linux version {RELEASE} ({NODE}) {}\n",
        crate::linux::VERSION
    ))
}

/// By the names of `minflt-mm`, not by Linux's: they do not count the same.
pub(super) fn vmstat(text: &mut Text, _: &'static Task) -> Done {
    let sys = crate::system().ok_or(EIO)?;
    text.put(format_args!(
        "pgfault {}\n",
        sys.count_of(Event::PageFaults)
    ))?;
    for event in Event::ALL {
        text.put(format_args!("minflt-{event} {}\n", sys.count_of(*event)))?;
    }
    Ok(())
}

pub(super) fn pid_max(text: &mut Text, _: &'static Task) -> Done {
    text.put(format_args!("{}\n", task::threads().count()))
}

pub(super) fn max_map_count(text: &mut Text, _: &'static Task) -> Done {
    let sys = crate::system().ok_or(EIO)?;
    text.put(format_args!("{}\n", sys.max_map_count()))
}

pub(super) fn huge_pages(text: &mut Text, _: &'static Task) -> Done {
    let sys = crate::system().ok_or(EIO)?;
    text.put(format_args!("{}\n", sys.huge_pool().total))
}

pub(super) fn overcommit(text: &mut Text, _: &'static Task) -> Done {
    let sys = crate::system().ok_or(EIO)?;
    text.put(format_args!("{}\n", sys.overcommit() as u32))
}

pub(super) fn last_cpu(text: &mut Text, _: &'static Task) -> Done {
    text.put(format_args!("{}\n", machine::cpus() - 1))
}

pub(super) fn cpus(text: &mut Text, _: &'static Task) -> Done {
    match machine::cpus() - 1 {
        0 => text.line("0"),
        last => text.put(format_args!("0-{last}\n")),
    }
}

/// Copies a part of a process's memory.
fn memory(text: &mut Text, task: &Task, [start, end]: [u64; 2]) -> Done {
    let mm = mm_of(task)?;
    let mut buffer = Buffer::new()?;
    let mut at = start;
    while at < end {
        let part = (end - at).min(PAGE) as usize;
        let bytes = &mut buffer.bytes()[..part];
        let read = mm
            .remote_read(VirtAddr(at), bytes, Force::Yes)
            .map_err(|_| EIO)?;
        text.bytes(&bytes[..read])?;
        at += read as u64;
        if read == 0 {
            break;
        }
    }
    Ok(())
}

pub(super) fn arguments(text: &mut Text, task: &'static Task) -> Done {
    let process = task.own.process();
    if process.mm().is_none() {
        return Ok(());
    }
    memory(text, task, process.with_program(|it| it.arguments))
}

pub(super) fn environment(text: &mut Text, task: &'static Task) -> Done {
    memory(
        text,
        task,
        task.own.process().with_program(|it| it.environment),
    )
}

/// A thread's name, without the zeros behind.
fn name_of(task: &Task) -> ([u8; crate::user::NAME], usize) {
    let name = task.own.name();
    let len = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    (name, len)
}

pub(super) fn comm(text: &mut Text, task: &'static Task) -> Done {
    let (name, len) = name_of(task);
    text.bytes(&name[..len])?;
    text.bytes(b"\n")
}

/// As `getrlimit` says.
pub(super) fn limits(text: &mut Text, task: &'static Task) -> Done {
    let mm = mm_of(task)?;
    text.put(format_args!(
        "{:<26}{:<21}{:<21}{:<10}\n",
        "Limit", "Soft Limit", "Hard Limit", "Units"
    ))?;
    for (name, soft, unit) in [
        ("Max stack size", mm.limit_stack(), "bytes"),
        (
            "Max open files",
            super::super::numbers::MOST as u64,
            "files",
        ),
        ("Max locked memory", mm.limit_memlock(), "bytes"),
        ("Max address space", mm.limit_as(), "bytes"),
    ] {
        text.put(format_args!("{name:<26}"))?;
        if soft == u64::MAX {
            text.put(format_args!("{:<21}", "unlimited"))?;
        } else {
            text.put(format_args!("{soft:<21}"))?;
        }
        text.put(format_args!("{:<21}{unit:<10}\n", "unlimited"))?;
    }
    Ok(())
}

/// Names the one file that is known by its number: the program's.
struct Named {
    number: Option<u64>,
    node: Option<Node>,
}

impl Named {
    fn of(process: &Process) -> Self {
        let node = process.with_program(|program| program.file.as_ref().map(Running::node));
        let number = node
            .as_ref()
            .and_then(|node| match node.inode().ok()?.content() {
                super::super::inode::Content::File(file) => Some(file.number()),
                _ => None,
            });
        Self { number, node }
    }
}

impl FileNames for Named {
    fn path(&self, number: u64, out: &mut dyn Write) -> fmt::Result {
        let Some(node) = self.node.as_ref().filter(|_| self.number == Some(number)) else {
            return out.write_str("/memory");
        };
        let Ok(mut buffer) = Buffer::new() else {
            return Ok(());
        };
        match path::spell(node, buffer.bytes()) {
            Ok((path, _)) => out.write_str(core::str::from_utf8(path).unwrap_or("?")),
            Err(_) => Ok(()),
        }
    }
}

pub(super) fn maps(text: &mut Text, task: &'static Task) -> Done {
    let mm = mm_of(task)?;
    let names = Named::of(task.own.process());
    mm.maps_with(&names, text).map_err(|_| Errno::ENOMEM)
}

pub(super) fn smaps(text: &mut Text, task: &'static Task) -> Done {
    let mm = mm_of(task)?;
    let names = Named::of(task.own.process());
    mm.smaps_with(&names, text).map_err(|_| Errno::ENOMEM)
}

pub(super) fn mounts(text: &mut Text, _: &'static Task) -> Done {
    text.line("rootfs / rootfs rw 0 0")?;
    for (fs, name) in [(super::Fs::Proc, "proc"), (super::Fs::Sys, "sysfs")] {
        let Some(over) = super::mounted_over(super::root(fs)) else {
            continue;
        };
        let mut buffer = Buffer::new()?;
        let (path, _) = path::spell(&over, buffer.bytes())?;
        text.bytes(name.as_bytes())?;
        text.bytes(b" ")?;
        text.bytes(path)?;
        text.put(format_args!(" {name} rw,relatime 0 0\n"))?;
    }
    Ok(())
}

/// The thousandths of memory that it has.
pub(super) fn oom_score(text: &mut Text, task: &'static Task) -> Done {
    let sys = crate::system().ok_or(EIO)?;
    let (all, _) = sys.memory_pages();
    let (_, resident) = pages(task.own.process().mm().as_deref());
    text.put(format_args!("{}\n", resident * 1000 / all.max(1)))
}

/// A process's state, as a letter and a word.
fn state_of(task: &Task) -> (char, &'static str) {
    let process = task.own.process();
    if process.has_ended() {
        return ('Z', "zombie");
    }
    if process.is_stopped() {
        return ('T', "stopped");
    }
    match process.find_thread(|thread| thread.state() == State::Ready) {
        Some(_) => ('R', "running"),
        None => ('S', "sleeping"),
    }
}

fn pages(mm: Option<&Mm<Kernel>>) -> (u64, u64) {
    mm.map_or((0, 0), |mm| {
        let resident = mm.resident_pages_sum().max(0).unsigned_abs();
        (mm.mapped_bytes() / PAGE, resident)
    })
}

pub(super) fn stat_of(text: &mut Text, task: &'static Task) -> Done {
    let process = task.own.process();
    let (name, len) = name_of(task);
    let mm = process.mm();
    let (mapped, resident) = pages(mm.as_deref());
    let usage = process::usage_of(task);
    text.put(format_args!("{} (", process::number(task)))?;
    text.bytes(&name[..len])?;
    let (state, _) = state_of(task);
    // From the fourth field on: Linux, Documentation/filesystems/proc.rst.
    text.put(format_args!(
        ") {state} {} {} {} 0 -1 0 {} 0 0 0 {} 0 0 0 20 0 {} 0 {} {} {resident} {} ",
        process.parent_number(),
        process.group(),
        process.session(),
        usage.faults,
        ticks(usage.ns),
        process.threads(),
        ticks(process.began_ns()),
        mapped * PAGE,
        u64::MAX,
    ))?;
    text.line("0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0")
}

pub(super) fn statm(text: &mut Text, task: &'static Task) -> Done {
    let mm = task.own.process().mm();
    let (mapped, resident) = pages(mm.as_deref());
    text.put(format_args!("{mapped} {resident} 0 0 0 0 0\n"))
}

pub(super) fn status(text: &mut Text, task: &'static Task) -> Done {
    let process = task.own.process();
    let creds = process.creds();
    text.bytes(b"Name:\t")?;
    comm(text, task)?;
    let (letter, word) = state_of(task);
    text.put(format_args!(
        "Umask:\t{:04o}\nState:\t{letter} ({word})\nTgid:\t{pid}\nNgid:\t0\nPid:\t{pid}\nPPid:\t{}\n\
         TracerPid:\t0\nUid:\t{}\t{}\t{}\t{}\nGid:\t{}\t{}\t{}\t{}\nFDSize:\t64\n",
        process.umask(),
        process.parent_number(),
        creds.real_uid,
        creds.uid,
        creds.saved_uid,
        creds.uid,
        creds.real_gid,
        creds.gid,
        creds.saved_gid,
        creds.gid,
        pid = process::number(task),
    ))?;
    if let Some(mm) = process.mm() {
        mm.status(text).map_err(|_| Errno::ENOMEM)?;
    }
    let own = task.own.signals();
    text.put(format_args!(
        "Threads:\t{}\nSigBlk:\t{:016x}\n",
        process.threads(),
        own.mask().0
    ))
}
