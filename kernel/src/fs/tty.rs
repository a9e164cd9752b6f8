//! The terminal: the first serial port, with a line discipline. Linux: drivers/tty/n_tty.c.
//!
//! # Problem
//! Keys come when they come; a line is edited before it is read, and some keys are signals to the
//! programs in front.
//!
//! # Idea
//! A task of the kernel's takes in what the port has, 50 times a second: the port has no interrupt
//! here. What is taken in goes through the discipline, as it is set then, into a buffer of what can
//! be read, with the marks of line ends; its readers are woken.
//!
//! # Cost
//! 50 looks at the port a second, if it has input; a key is seen up to 20 ms late.

use linux_raw_sys::general as abi;
use linux_raw_sys::ioctl;
use minflt_mm::Errno;
use minflt_sync::SpinLock;
use minflt_sync::order::WaitLock;

use super::transfer::Transfer;
use crate::arch::serial::Serial;
use crate::arch::uaccess;
use crate::linux::{EAGAIN, EFAULT, EINVAL, EIO, ENOTTY, RESTART_IF_ASKED};
use crate::machine::{self, Kernel};
use crate::shared::Once;
use crate::task;
use crate::user::process;
use crate::user::signal::{self, For, Info};
use crate::watch::{self, Ended, Watchers};

/// How long the port waits between two looks.
const LOOK_NS: u64 = 20_000_000;
/// Bytes that can wait to be read. Linux: `N_TTY_BUF_SIZE`.
const BUFFER: usize = 4096;

/// How the terminal is set: `struct termios`, of the kernel's form.
#[derive(Clone, Copy, Debug)]
struct Settings {
    input: u32,
    output: u32,
    control: u32,
    local: u32,
    line: u8,
    keys: [u8; KEYS],
}

/// Keys with a meaning. Linux: `NCCS`.
const KEYS: usize = abi::NCCS as usize;
/// Bytes of the settings.
const BYTES: usize = 36;

impl Settings {
    /// As the kernel's own programs find it: bytes come and go as they are.
    const RAW: Self = Self {
        input: 0,
        output: 0,
        control: abi::CS8 | abi::CREAD | abi::CLOCAL | abi::B115200,
        local: 0,
        line: 0,
        keys: Self::KEYS,
    };

    /// As a shell wants to find it.
    const COOKED: Self = Self {
        input: abi::ICRNL,
        output: abi::OPOST | abi::ONLCR,
        control: abi::CS8 | abi::CREAD | abi::CLOCAL | abi::B115200,
        local: abi::ISIG
            | abi::ICANON
            | abi::ECHO
            | abi::ECHOE
            | abi::ECHOK
            | abi::ECHOCTL
            | abi::ECHOKE
            | abi::IEXTEN,
        line: 0,
        keys: Self::KEYS,
    };

    /// Ctrl-C, Ctrl-\, delete, Ctrl-U, Ctrl-D, time 0, at least 1, -, Ctrl-Q, Ctrl-S, Ctrl-Z, -,
    /// Ctrl-R, Ctrl-O, Ctrl-W, Ctrl-V.
    const KEYS: [u8; KEYS] = [
        3, 28, 127, 21, 4, 0, 1, 0, 17, 19, 26, 0, 18, 15, 23, 22, 0, 0, 0,
    ];

    fn key(&self, which: u32) -> u8 {
        self.keys[which as usize]
    }

    fn is(&self, key: u8, which: u32) -> bool {
        key != 0 && key == self.key(which)
    }

    fn by_line(&self) -> bool {
        self.local & abi::ICANON != 0
    }

    fn to_bytes(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        for (room, word) in
            bytes
                .chunks_exact_mut(4)
                .zip([self.input, self.output, self.control, self.local])
        {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes[16] = self.line;
        bytes[17..17 + KEYS].copy_from_slice(&self.keys);
        bytes
    }

    fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut keys = [0; KEYS];
        keys.copy_from_slice(&bytes[17..17 + KEYS]);
        Self {
            input: word(0),
            output: word(4),
            control: word(8),
            local: word(12),
            line: bytes[16],
            keys,
        }
    }
}

/// The terminal.
#[derive(Debug)]
struct Terminal {
    settings: Settings,
    /// Bytes that were taken in: those before `whole` can be read by lines.
    buffer: [u8; BUFFER],
    len: usize,
    whole: usize,
    /// Ends of the file that were typed, at `whole`.
    ends: usize,
    /// Whether the next key is taken as it is.
    literal: bool,
    /// The foreground process group; 0 while there is none.
    group: u32,
    /// Rows and columns, as programs are told.
    size: [u16; 4],
}

/// Those that wait for something to read.
static WATCHERS: Once<Watchers> = Once::new();

static TERMINAL: Once<SpinLock<Terminal, WaitLock, Kernel>> = Once::new();

/// Whether keys are taken in as a shell wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Bytes come and go as they are.
    Raw,
    /// By lines, with echo and signals.
    Cooked,
}

/// Called once, before there are processes.
pub(crate) fn init(mode: Mode) {
    let settings = match mode {
        Mode::Raw => Settings::RAW,
        Mode::Cooked => Settings::COOKED,
    };
    WATCHERS.set(Watchers::new());
    TERMINAL.set(SpinLock::new(Terminal {
        settings,
        buffer: [0; BUFFER],
        len: 0,
        whole: 0,
        ends: 0,
        literal: false,
        group: 0,
        size: [0; 4],
    }));
}

fn with<R>(work: impl FnOnce(&mut Terminal) -> R) -> R {
    match TERMINAL.get() {
        Some(terminal) => work(&mut terminal.lock()),
        None => panic!("the terminal is used before there is one"),
    }
}

/// What a key makes of itself on the screen: at most four bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Echo {
    bytes: [u8; 4],
    len: usize,
}

impl Echo {
    fn of(bytes: &[u8]) -> Self {
        let mut echo = Self::default();
        echo.bytes[..bytes.len()].copy_from_slice(bytes);
        echo.len = bytes.len();
        echo
    }
}

impl Terminal {
    /// Takes in one byte; the signal that it is.
    fn take_in(&mut self, byte: u8) -> Option<u32> {
        let settings = self.settings;
        let mut byte = byte;
        match byte {
            b'\r' if settings.input & abi::IGNCR != 0 => return None,
            b'\r' if settings.input & abi::ICRNL != 0 => byte = b'\n',
            b'\n' if settings.input & abi::INLCR != 0 => byte = b'\r',
            _ => {}
        }
        let literal = core::mem::take(&mut self.literal);
        if settings.local & abi::ISIG != 0 && !literal {
            for (which, signal) in [
                (abi::VINTR, abi::SIGINT),
                (abi::VQUIT, abi::SIGQUIT),
                (abi::VSUSP, abi::SIGTSTP),
            ] {
                if settings.is(byte, which) {
                    if settings.local & abi::NOFLSH == 0 {
                        (self.len, self.whole, self.ends) = (0, 0, 0);
                    }
                    self.echo(byte);
                    return Some(signal);
                }
            }
        }
        if !settings.by_line() {
            self.echo(byte);
            self.push(byte);
            self.whole = self.len;
            return None;
        }
        match byte {
            _ if literal => {
                self.echo(byte);
                self.push(byte);
            }
            byte if settings.local & abi::IEXTEN != 0 && settings.is(byte, abi::VLNEXT) => {
                self.literal = true;
            }
            byte if settings.is(byte, abi::VERASE) => self.erase(1),
            byte if settings.is(byte, abi::VKILL) => self.erase(usize::MAX),
            byte if settings.local & abi::IEXTEN != 0 && settings.is(byte, abi::VWERASE) => {
                self.erase(self.word_bytes());
            }
            byte if settings.is(byte, abi::VEOF) => {
                if self.whole == self.len {
                    self.ends += 1;
                }
                self.whole = self.len;
            }
            byte => {
                self.echo(byte);
                self.push(byte);
                if byte == b'\n' || settings.is(byte, abi::VEOL) {
                    self.whole = self.len;
                }
            }
        }
        None
    }

    /// Bytes of the last word of the line, with the blanks behind it.
    fn word_bytes(&self) -> usize {
        let line = &self.buffer[self.whole..self.len];
        let blanks = line.iter().rev().take_while(|byte| **byte == b' ').count();
        let rest = &line[..line.len() - blanks];
        blanks + rest.iter().rev().take_while(|byte| **byte != b' ').count()
    }

    /// Takes bytes of the line back, at most that many.
    fn erase(&mut self, most: usize) {
        for _ in 0..most {
            if self.len == self.whole {
                return;
            }
            self.len -= 1;
            if self.settings.local & abi::ECHO == 0 {
                continue;
            }
            let width = if self.buffer[self.len] < 32 { 2 } else { 1 };
            for _ in 0..width {
                Serial::send(b"\x08 \x08");
            }
        }
    }

    /// Shows a key that was typed.
    fn echo(&self, byte: u8) {
        if self.settings.local & abi::ECHO == 0 {
            return;
        }
        let echo = match byte {
            b'\n' => Echo::of(b"\n"),
            b'\t' => Echo::of(b"\t"),
            0..32 if self.settings.local & abi::ECHOCTL != 0 => Echo::of(&[b'^', byte + 64]),
            127 if self.settings.local & abi::ECHOCTL != 0 => Echo::of(b"^?"),
            byte => Echo::of(&[byte]),
        };
        self.show(&echo.bytes[..echo.len]);
    }

    /// Sends bytes as the settings say.
    fn show(&self, bytes: &[u8]) {
        let plain =
            self.settings.output & abi::OPOST == 0 || self.settings.output & abi::ONLCR == 0;
        if plain {
            Serial::send(bytes);
            return;
        }
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            match line.split_last() {
                Some((b'\n', text)) => {
                    Serial::send(text);
                    Serial::send(b"\r\n");
                }
                _ => Serial::send(line),
            }
        }
    }

    /// What does not fit is lost.
    fn push(&mut self, byte: u8) {
        if self.len < BUFFER {
            self.buffer[self.len] = byte;
            self.len += 1;
        }
    }

    /// Takes out what can be read: a line, where it is read by lines. None if there is nothing.
    fn take(&mut self, to: &mut [u8]) -> Option<usize> {
        let there = &self.buffer[..self.whole];
        let mut len = there.len().min(to.len());
        if self.settings.by_line() {
            if let Some(end) = there.iter().position(|byte| *byte == b'\n') {
                len = len.min(end + 1);
            } else if self.ends > 0 && there.is_empty() {
                self.ends -= 1;
                return Some(0);
            }
        }
        if len == 0 {
            return None;
        }
        to[..len].copy_from_slice(&there[..len]);
        self.buffer.copy_within(len..self.len, 0);
        self.len -= len;
        self.whole -= len;
        Some(len)
    }

    fn has_something(&self) -> bool {
        self.whole > 0 || self.ends > 0
    }
}

/// Takes in what the port has, and wakes the terminal's readers. When the next look is to be, if
/// the console has input.
pub(crate) fn look() -> Option<u64> {
    if !Serial::can_receive() {
        return None;
    }
    take_all_in();
    if with(|terminal| terminal.has_something()) {
        watchers().wake();
    }
    Some(machine::now_ns() + LOOK_NS)
}

fn watchers() -> &'static Watchers {
    match WATCHERS.get() {
        Some(watchers) => watchers,
        None => panic!("the terminal is used before there is one"),
    }
}

/// The group in front from now on.
pub(crate) fn set_front(group: u32) {
    with(|terminal| terminal.group = group);
}

fn take_all_in() {
    loop {
        let signal = with(|terminal| {
            if terminal.len == BUFFER && terminal.whole > 0 {
                return None;
            }
            let byte = Serial::receive()?;
            Some((terminal.take_in(byte), terminal.group))
        });
        match signal {
            None => return,
            Some((Some(number), group)) => {
                let _any = process::each_of_group(group, |task| {
                    signal::send_at_once(For::Process(task), Info::plain(number));
                });
            }
            Some((None, _)) => {}
        }
    }
}

/// Checks that the caller's process is in the foreground, or that no foreground group is left.
///
/// # Errors
/// As a process in the background is treated: it is stopped, or reads nothing.
fn check_front(signal: u32) -> Result<(), Errno> {
    let me = task::current();
    let process = process::of(me);
    let group = with(|terminal| terminal.group);
    let front = group == 0 || process.group() == group;
    // All processes of the foreground group may have ended.
    if front || !process::each_of_group(group, |_| {}) {
        return Ok(());
    }
    let ignores = process.signals().action(signal).handler == 1;
    if ignores || me.own.signals().mask().has(signal) || process::is_orphaned(process) {
        return if signal == abi::SIGTTIN {
            Err(EIO)
        } else {
            Ok(())
        };
    }
    process::each_of_group(process.group(), |task| {
        signal::send_at_once(For::Process(task), Info::plain(signal));
    });
    Err(RESTART_IF_ASKED)
}

/// Reads what was typed: sleeps until there is something, unless `wait` is not set.
pub(crate) fn read(to: &mut Transfer<'_>, len: usize, wait: bool) -> Result<usize, Errno> {
    check_front(abi::SIGTTIN)?;
    if !Serial::can_receive() {
        return Ok(0);
    }
    if len == 0 {
        return Ok(0);
    }
    let mut bytes = [0; 256];
    let room = len.min(bytes.len());
    let (by_line, least, tenths) = with(|terminal| {
        let settings = terminal.settings;
        (
            settings.by_line(),
            settings.key(abi::VMIN),
            settings.key(abi::VTIME),
        )
    });
    let timed = !by_line && least == 0;
    let until = timed.then(|| machine::now_ns() + u64::from(tenths) * 100_000_000);
    let taken = watch::wait(until, || {
        watchers().watch();
        match with(|terminal| terminal.take(&mut bytes[..room])) {
            None if !wait => Some(Err(EAGAIN)),
            taken => taken.map(Ok),
        }
    });
    match taken {
        Ok(taken) => taken.map(|taken| to.give(&bytes[..taken])),
        Err(Ended::Late) => Ok(0),
        Err(Ended::Interrupted) => Err(RESTART_IF_ASKED),
    }
}

/// Writes bytes; how many.
pub(crate) fn write(bytes: &[u8]) -> usize {
    with(|terminal| terminal.show(bytes));
    bytes.len()
}

/// What poll says of it. The caller is woken when that changes.
pub(crate) fn poll() -> u32 {
    watchers().watch();
    let out = abi::POLLOUT | abi::POLLWRNORM;
    if !Serial::can_receive() || with(|terminal| terminal.has_something()) {
        out | abi::POLLIN | abi::POLLRDNORM
    } else {
        out
    }
}

/// A terminal's controls.
pub(crate) fn ioctl(what: u32, value: u64) -> Result<u64, Errno> {
    match what {
        ioctl::TCGETS => {
            let bytes = with(|terminal| terminal.settings.to_bytes());
            uaccess::copy_to_user(value, &bytes)?;
        }
        ioctl::TCSETS | ioctl::TCSETSW | ioctl::TCSETSF => {
            let mut bytes = [0; BYTES];
            uaccess::copy_from_user(&mut bytes, value)?;
            let settings = Settings::from_bytes(&bytes);
            with(|terminal| {
                terminal.settings = settings;
                if what == ioctl::TCSETSF {
                    (terminal.len, terminal.whole, terminal.ends) = (0, 0, 0);
                } else if !settings.by_line() {
                    (terminal.whole, terminal.ends) = (terminal.len, 0);
                }
            });
        }
        ioctl::TIOCGWINSZ => {
            let size = with(|terminal| terminal.size);
            let word = size
                .iter()
                .rev()
                .fold(0, |word, part| word << 16 | u64::from(*part));
            uaccess::store(value, word)?;
        }
        ioctl::TIOCSWINSZ => {
            let word = uaccess::load(value)?;
            let size = core::array::from_fn(|part| (word >> (16 * part)) as u16);
            with(|terminal| terminal.size = size);
        }
        ioctl::TIOCGPGRP => {
            let mine = process::of(task::current()).group();
            let group = with(|terminal| terminal.group);
            uaccess::store_u32(value, if group == 0 { mine } else { group })?;
        }
        ioctl::TIOCSPGRP => {
            let group = uaccess::load_u32(value)?;
            let session = process::of(task::current()).session();
            if group as i32 <= 0 {
                return Err(EINVAL);
            }
            let mut mine = false;
            process::each_of_group(group, |task| {
                mine |= task.own.process().session() == session
            });
            if !mine {
                return Err(Errno::EPERM);
            }
            with(|terminal| terminal.group = group);
        }
        ioctl::TIOCGSID => {
            uaccess::store_u32(value, process::of(task::current()).session())?;
        }
        // What is written is sent at once, and there is one terminal for all.
        ioctl::TIOCSCTTY | ioctl::TIOCNOTTY | ioctl::TCSBRK | ioctl::TCSBRKP => {}
        ioctl::TCFLSH => with(|terminal| (terminal.len, terminal.whole, terminal.ends) = (0, 0, 0)),
        ioctl::FIONREAD => {
            let len = with(|terminal| terminal.whole);
            uaccess::store_u32(value, u32::try_from(len).map_err(|_| EFAULT)?)?;
        }
        ioctl::TIOCOUTQ => uaccess::store_u32(value, 0)?,
        _ => return Err(ENOTTY),
    }
    Ok(0)
}
