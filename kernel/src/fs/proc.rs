//! `/proc` and `/sys`: files that are made up when they are opened.
//!
//! What there is stands in tables: a name, and a folder's table or the function that writes the
//! file. A file's text is made when it is opened, and does not change while it is open.

mod text;

use linux_raw_sys::general as abi;
use minflt_mm::Errno;
use minflt_sync::SpinLock;
use minflt_sync::order::WaitLock;

use super::inode::{Content, right};
use super::open::{Kind, Open};
use super::path::{self, Leads, Node, Target};
use super::tree::{Dentry, Name};
use crate::linux::{EINVAL, ENOENT, ESRCH};
use crate::machine::Kernel;
use crate::pool::Ref;
use crate::shared::Once;
use crate::task::{self, Task};
use crate::user::creds::Creds;
use crate::user::exec::Running;
use crate::user::process;
use text::Text;

/// A file system of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fs {
    /// `/proc`.
    Proc = 0,
    /// `/sys`.
    Sys = 1,
}

/// Something in such a file system.
struct Item {
    name: &'static str,
    what: What,
}

/// What it is.
enum What {
    Folder(&'static [Item]),
    /// A file: what writes it. Of a process, that one is given.
    Text(fn(&mut Text, &'static Task) -> Result<(), Errno>),
    /// A link.
    Link(fn(Entry) -> Result<Leads, Errno>),
    /// A folder for each process, which its number names.
    Processes(&'static [Item]),
    /// A link for each open file of a process, which its number names.
    Numbers,
    /// A folder for each CPU.
    Cpus(&'static [Item]),
}

use What::{Cpus, Folder, Link, Numbers, Processes};

const fn item(name: &'static str, what: What) -> Item {
    Item { name, what }
}

const fn file(
    name: &'static str,
    write: fn(&mut Text, &'static Task) -> Result<(), Errno>,
) -> Item {
    Item {
        name,
        what: What::Text(write),
    }
}

/// `/proc`. Linux: fs/proc/root.c, base.c.
static PROC: [Item; 15] = [
    file("cmdline", text::kernel_line),
    file("cpuinfo", text::cpuinfo),
    file("filesystems", text::filesystems),
    file("loadavg", text::loadavg),
    file("meminfo", text::meminfo),
    file("stat", text::stat),
    file("swaps", text::swaps),
    file("uptime", text::uptime),
    file("version", text::version),
    file("vmstat", text::vmstat),
    item("mounts", Link(|_| said("self/mounts"))),
    item("self", Link(own_number)),
    item("thread-self", Link(own_thread)),
    item("sys", Folder(&SYSCTL)),
    item("", Processes(&OF_PROCESS)),
];

/// What there is of each process.
static OF_PROCESS: [Item; 17] = [
    file("cmdline", text::arguments),
    file("comm", text::comm),
    item("cwd", Link(folder)),
    file("environ", text::environment),
    item("exe", Link(program)),
    item("fd", Folder(&FDS)),
    file("limits", text::limits),
    file("maps", text::maps),
    file("mounts", text::mounts),
    file("oom_score", text::oom_score),
    file("oom_score_adj", |text, _| text.line("0")),
    item("root", Link(|_| Ok(Leads::To(Node::root())))),
    file("smaps", text::smaps),
    file("stat", text::stat_of),
    file("statm", text::statm),
    file("status", text::status),
    file("wchan", text::nothing),
];

/// Those of them that only its own user may look at.
const INSIDE: [&str; 4] = ["environ", "fd", "maps", "smaps"];

static FDS: [Item; 1] = [item("", Numbers)];

/// `/proc/sys`.
static SYSCTL: [Item; 2] = [
    item("kernel", Folder(&OF_KERNEL)),
    item("vm", Folder(&OF_VM)),
];

static OF_KERNEL: [Item; 7] = [
    file("core_pattern", |text, _| text.line("core")),
    file("hostname", |text, _| text.line(crate::linux::NODE)),
    file("ngroups_max", |text, _| text.line("65536")),
    file("osrelease", |text, _| text.line(crate::linux::RELEASE)),
    file("ostype", |text, _| text.line("Linux")),
    file("pid_max", text::pid_max),
    file("threads-max", text::pid_max),
];

static OF_VM: [Item; 4] = [
    file("max_map_count", text::max_map_count),
    file("nr_hugepages", text::huge_pages),
    file("overcommit_memory", text::overcommit),
    file("overcommit_ratio", |text, _| text.line("50")),
];

/// `/sys`.
static SYS: [Item; 2] = [
    item("devices", Folder(&DEVICES)),
    item("kernel", Folder(&SYS_KERNEL)),
];
static DEVICES: [Item; 1] = [item("system", Folder(&SYSTEM))];
static SYSTEM: [Item; 1] = [item("cpu", Folder(&CPU))];
static CPU: [Item; 6] = [
    file("kernel_max", text::last_cpu),
    file("offline", |text, _| text.line("")),
    file("online", text::cpus),
    file("possible", text::cpus),
    file("present", text::cpus),
    item("cpu", Cpus(&ONE_CPU)),
];
static ONE_CPU: [Item; 1] = [file("online", |text, _| text.line("1"))];
static SYS_KERNEL: [Item; 1] = [item("mm", Folder(&SYS_MM))];
static SYS_MM: [Item; 1] = [item("transparent_hugepage", Folder(&HUGE))];
static HUGE: [Item; 1] = [file("enabled", |text, _| {
    text.line("always madvise [never]")
})];

/// The most folders on the way to something.
const DEPTH: usize = 6;

/// Something that there is: the way to it through the tables, and the numbers on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    fs: Fs,
    way: [u8; DEPTH],
    depth: u8,
    /// The process, if it is of one.
    process: u32,
    /// The open file, or the CPU.
    number: u32,
}

/// A name in a folder, and where to go on behind it.
pub(crate) struct Listed {
    /// It.
    pub(crate) entry: Entry,
    /// The position behind it.
    pub(crate) next: u64,
}

/// Where each is mounted.
static MOUNTED: Once<[Over; 2]> = Once::new();

/// The folder that one is mounted over.
type Over = SpinLock<Option<Ref<Dentry>>, WaitLock, Kernel>;

/// Called once, before there are files.
pub(super) fn init() {
    MOUNTED.set([SpinLock::new(None), SpinLock::new(None)]);
}

/// The root of such a file system.
pub(crate) const fn root(fs: Fs) -> Entry {
    Entry {
        fs,
        way: [0; DEPTH],
        depth: 0,
        process: 0,
        number: 0,
    }
}

/// What its root is mounted over.
pub(crate) fn mounted_over(entry: Entry) -> Option<Node> {
    let mounted = MOUNTED.get()?[entry.fs as usize].lock();
    mounted.as_ref().map(|over| Node::Tree(over.share()))
}

fn said(text: &str) -> Result<Leads, Errno> {
    Ok(Leads::Along(Target::Said(Name::new(text.as_bytes())?)))
}

fn own_number(_: Entry) -> Result<Leads, Errno> {
    let mut digits = [0; 10];
    let number = process::process_number(task::current());
    said(decimal(number, &mut digits))
}

fn own_thread(entry: Entry) -> Result<Leads, Errno> {
    own_number(entry)
}

fn folder(entry: Entry) -> Result<Leads, Errno> {
    Ok(Leads::To(entry.task()?.own.process().folder()))
}

fn program(entry: Entry) -> Result<Leads, Errno> {
    let process = entry.task()?.own.process();
    let file = process.with_program(|program| program.file.as_ref().map(Running::node));
    Ok(Leads::To(file.ok_or(ENOENT)?))
}

/// Writes a number; returns its digits.
fn decimal(number: u32, digits: &mut [u8; 10]) -> &str {
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    core::str::from_utf8(&digits[at..]).unwrap_or("")
}

fn number_of(name: &[u8]) -> Option<u32> {
    let text = core::str::from_utf8(name).ok()?;
    let plain = text == "0" || !text.starts_with(['0', '+']);
    text.parse().ok().filter(|_| plain)
}

impl Entry {
    /// The table that it stands in, and its place there; none for a root.
    fn place(&self) -> Option<(&'static [Item], usize)> {
        let mut items: &'static [Item] = match self.fs {
            Fs::Proc => &PROC,
            Fs::Sys => &SYS,
        };
        let last = usize::from(self.depth).checked_sub(1)?;
        for index in 0..last {
            items = items_in(&items[usize::from(self.way[index])])?;
        }
        Some((items, usize::from(self.way[last])))
    }

    fn item(&self) -> Option<&'static Item> {
        let (items, index) = self.place()?;
        Some(&items[index])
    }

    /// What is in it, if it is a folder.
    fn items(&self) -> Option<&'static [Item]> {
        match (self.depth, self.fs) {
            (0, Fs::Proc) => Some(&PROC),
            (0, Fs::Sys) => Some(&SYS),
            _ => items_in(self.item()?),
        }
    }

    /// It is mounted over a folder, or no more.
    pub(super) fn set_mounted(&self, over: Option<Ref<Dentry>>) {
        let before = MOUNTED.get().map(|mounted| {
            let mut slot = mounted[self.fs as usize].lock();
            core::mem::replace(&mut *slot, over)
        });
        drop(before);
    }

    /// Whether it is a folder.
    pub(crate) fn is_folder(&self) -> bool {
        self.items().is_some()
    }

    /// The folder that it is in; none for a root.
    pub(crate) fn above(&self) -> Option<Self> {
        let depth = self.depth.checked_sub(1)?;
        let mut above = *self;
        above.depth = depth;
        above.way[usize::from(depth)] = 0;
        match self.item()?.what {
            Processes(_) => above.process = 0,
            Numbers | Cpus(_) => above.number = 0,
            _ => {}
        }
        Some(above)
    }

    fn below(&self, index: usize, number: u32) -> Self {
        let mut below = *self;
        below.way[usize::from(self.depth)] = index as u8;
        below.depth += 1;
        match self.items().map(|items| &items[index].what) {
            Some(Processes(_)) => below.process = number,
            Some(Numbers | Cpus(_)) => below.number = number,
            _ => {}
        }
        below
    }

    /// Its name.
    pub(crate) fn name(&self) -> Name {
        let mut digits = [0; 10];
        let item = self.item();
        let name = match item.map(|item| (&item.what, item.name)) {
            Some((Processes(_), _)) => Name::new(decimal(self.process, &mut digits).as_bytes()),
            Some((Numbers, _)) => Name::new(decimal(self.number, &mut digits).as_bytes()),
            Some((Cpus(_), prefix)) => {
                let number = decimal(self.number, &mut digits).as_bytes();
                let mut bytes = [0; 16];
                let len = prefix.len() + number.len();
                bytes[..prefix.len()].copy_from_slice(prefix.as_bytes());
                bytes[prefix.len()..len].copy_from_slice(number);
                Name::new(&bytes[..len])
            }
            Some((_, name)) => Name::new(name.as_bytes()),
            None => Name::new(b""),
        };
        match name {
            Ok(name) => name,
            Err(_) => panic!("a name in a table is too long"),
        }
    }

    /// The first task of the process that it is of; the caller's for what is of none.
    fn task(&self) -> Result<&'static Task, Errno> {
        match self.process {
            0 => Ok(task::current()),
            number => process::find(number).ok_or(ESRCH),
        }
    }

    /// The name in it.
    pub(crate) fn look_up(&self, name: &[u8]) -> Option<Self> {
        let items = self.items()?;
        if self.process != 0 {
            process::find(self.process)?;
        }
        for (index, item) in items.iter().enumerate() {
            let number = match item.what {
                Processes(_) => number_of(name).filter(|number| process::find(*number).is_some()),
                Numbers => number_of(name).filter(|number| self.has_open(*number)),
                Cpus(_) => name
                    .strip_prefix(item.name.as_bytes())
                    .and_then(number_of)
                    .filter(|number| *number < crate::machine::cpus()),
                _ => (item.name.as_bytes() == name).then_some(0),
            };
            if let Some(number) = number {
                return Some(self.below(index, number));
            }
        }
        None
    }

    fn has_open(&self, number: u32) -> bool {
        let task = self.task();
        task.is_ok_and(|task| task.own.process().files().get(u64::from(number)).is_ok())
    }

    /// What is in it from `position` on.
    pub(crate) fn list(&self, position: u64) -> Option<Listed> {
        /// Room for the numbers of one kind.
        const STRIDE: u64 = 1 << 32;
        let items = self.items()?;
        let mut index = (position / STRIDE) as usize;
        let mut from = (position % STRIDE) as u32;
        loop {
            let item = items.get(index)?;
            let number = match item.what {
                Processes(_) => process::all()
                    .map(process::number)
                    .find(|number| *number >= from),
                Numbers => self.task().ok().and_then(|task| {
                    let files = task.own.process().files();
                    files.next_used(u64::from(from)).map(|number| number as u32)
                }),
                Cpus(_) => (from < crate::machine::cpus()).then_some(from),
                _ => (from == 0).then_some(0),
            };
            if let Some(number) = number {
                return Some(Listed {
                    entry: self.below(index, number),
                    next: index as u64 * STRIDE + u64::from(number) + 1,
                });
            }
            (index, from) = (index + 1, 0);
        }
    }

    /// Its kind and rights.
    pub(crate) fn mode(&self) -> u32 {
        match self.item().map(|item| &item.what) {
            None | Some(Folder(_) | Processes(_) | Cpus(_)) => abi::S_IFDIR | 0o555,
            Some(What::Text(_)) => abi::S_IFREG | 0o444,
            Some(Link(_)) => abi::S_IFLNK | 0o777,
            Some(Numbers) => abi::S_IFLNK | 0o700,
        }
    }

    /// Whether a user has all of these rights.
    pub(crate) fn check(&self, creds: Creds, rights: u32) -> Result<(), Errno> {
        if rights & right::WRITE != 0 {
            return Err(Errno::EACCES);
        }
        let inside = self.item().is_some_and(|item| INSIDE.contains(&item.name));
        if inside && !creds.is_root() {
            self.check_inside()?;
        }
        Ok(())
    }

    /// Whether the caller may look inside of the process that it is of.
    fn check_inside(&self) -> Result<(), Errno> {
        if self.process == 0 {
            return Ok(());
        }
        let mine = process::of(task::current()).creds();
        let theirs = self.task()?.own.process().creds();
        if mine.is_root() || mine.uid == theirs.uid {
            Ok(())
        } else {
            Err(Errno::EACCES)
        }
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u64 {
        let way = self.way.iter().fold(u64::from(self.depth), |sum, step| {
            sum << 5 ^ u64::from(*step)
        });
        1 << 40
            | (way ^ u64::from(self.process) << 8 ^ u64::from(self.number) << 20) & 0xff_ffff_ffff
    }

    /// What is in it, when it is opened.
    pub(crate) fn content(&self) -> Result<Content, Errno> {
        match self.item().map(|item| &item.what) {
            None | Some(Folder(_) | Processes(_) | Cpus(_)) => Ok(Content::Folder),
            Some(What::Text(write)) => {
                let mut text = Text::new()?;
                write(&mut text, self.task()?)?;
                Ok(Content::File(text.finish()?))
            }
            Some(Link(_) | Numbers) => Err(EINVAL),
        }
    }

    /// Where it leads to, if it is a link.
    pub(crate) fn follow(&self) -> Result<Leads, Errno> {
        match self.item().map(|item| &item.what) {
            Some(Link(to)) => {
                self.check_inside()?;
                to(*self)
            }
            Some(Numbers) => {
                self.check_inside()?;
                match self.open()?.place() {
                    Some(node) => Ok(Leads::To(node)),
                    // It is opened by `open_file`.
                    None => Ok(Leads::To(Node::Proc(*self))),
                }
            }
            _ => Err(EINVAL),
        }
    }

    /// The open file that its number stands for.
    fn open(&self) -> Result<Ref<Open>, Errno> {
        let files = self.task()?.own.process().files();
        files.get(u64::from(self.number))
    }

    /// The open file that it stands for, if that has no name: it is opened again, as it is, if
    /// `flags` ask for no more.
    pub(crate) fn open_file(&self, flags: u32) -> Result<Option<Ref<Open>>, Errno> {
        if !matches!(self.item().map(|item| &item.what), Some(Numbers)) {
            return Ok(None);
        }
        let open = self.open()?;
        self.check_inside()?;
        if open.place().is_some() {
            return Ok(None);
        }
        let access = flags & abi::O_ACCMODE;
        if access != abi::O_WRONLY {
            open.check_readable().map_err(|_| Errno::EACCES)?;
        }
        if access != abi::O_RDONLY {
            open.check_writable().map_err(|_| Errno::EACCES)?;
        }
        Ok(Some(Open::make(open.kind(), None, open.flags())?))
    }

    /// What readlink says of it.
    pub(crate) fn link_text<'b>(&self, buffer: &'b mut [u8]) -> Result<&'b [u8], Errno> {
        match self.follow()? {
            Leads::Along(target) => {
                let len = target.read(buffer)?;
                Ok(&buffer[..len])
            }
            Leads::To(node) if node.is(&Node::Proc(*self)) => {
                let open = self.open()?;
                let (what, number) = match open.kind() {
                    Kind::Pipe(pipe, _) => ("pipe", pipe.address() as u32),
                    _ => ("memory", open.address() as u32),
                };
                let mut digits = [0; 10];
                let parts = [what, ":[", decimal(number, &mut digits), "]"];
                let mut len = 0;
                for part in parts {
                    buffer[len..len + part.len()].copy_from_slice(part.as_bytes());
                    len += part.len();
                }
                Ok(&buffer[..len])
            }
            Leads::To(node) => Ok(path::spell(&node, buffer)?.0),
        }
    }
}

fn items_in(item: &'static Item) -> Option<&'static [Item]> {
    match item.what {
        Folder(items) | Processes(items) | Cpus(items) => Some(items),
        What::Text(_) | Link(_) | Numbers => None,
    }
}
