//! execve: another program in place of the caller's. Linux: fs/exec.c, binfmt_elf.c,
//! binfmt_script.c.
//!
//! The new address space is made whole before the old one is given up: what fails, fails the call.

use linux_raw_sys::general::SS_DISABLE;
use minflt_mm::{Errno, FileHandle, Mm, MmHandle};

use super::creds::Creds;
use super::process::{self, Process, Program};
use crate::arch::fpu;
use crate::fs::inode::{Content, Use, right};
use crate::fs::path::{self, Buffer, Last, Node, Path};
use crate::linux::ELOOP;
use crate::loader::{self, LoadError};
use crate::machine::Kernel;
use crate::space::Space;
use crate::stack::{self, Args, Built, Strings};
use crate::task;

/// A program that is loaded, and where it begins.
#[derive(Debug)]
pub(crate) struct Image {
    /// Its address space.
    pub(crate) mm: MmHandle<'static, Kernel>,
    /// Its first instruction.
    pub(crate) entry: u64,
    /// Its stack pointer.
    pub(crate) stack: u64,
}

/// Bytes of a script's first line that count. Linux: `BINPRM_BUF_SIZE`.
const FIRST_LINE: usize = 256;

/// A running program's file, which cannot be opened for writing meanwhile.
#[derive(Debug)]
pub(crate) struct Running(Node);

impl Running {
    /// The file at `node`.
    ///
    /// # Errors
    /// `ETXTBSY` if it is open to be written.
    pub(crate) fn new(node: Node) -> Result<Self, Errno> {
        node.inode()?.begin(Use::Runs)?;
        Ok(Self(node))
    }

    /// Where it is.
    pub(crate) fn node(&self) -> Node {
        self.0.share()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(inode) = self.0.inode() {
            inode.end(Use::Runs);
        }
    }
}

/// The file at `node`, if the user may execute it.
fn file_of(node: &Node, creds: Creds) -> Result<FileHandle<'static, Kernel>, Errno> {
    let inode = node.inode().map_err(|_| Errno::EACCES)?;
    match inode.content() {
        Content::File(file) => {
            inode.check(creds, right::EXECUTE)?;
            Ok(file.read_only())
        }
        _ => Err(Errno::EACCES),
    }
}

/// The node that `path` leads to.
fn find(process: &Process, path: &mut Path) -> Result<Node, Errno> {
    let creds = process.creds();
    path::walk(process.folder(), path, Last::Followed, creds)?.there()
}

/// Loads the program of `args` into the address space of the caller's thread: the kernel's first.
/// Where it begins, and its stack pointer.
pub(crate) fn first(space: &Space<'_>, args: &Args) -> Result<(u64, u64), LoadError> {
    let me = task::current();
    let process = process::of(me);
    let mut path = Path::of(args.path().as_bytes()).map_err(LoadError::Memory)?;
    let node = find(process, &mut path).map_err(LoadError::Missing)?;
    let file = file_of(&node, process.creds()).map_err(LoadError::Missing)?;
    let running = Running::new(node).map_err(LoadError::Missing)?;
    let mut buffer = Buffer::new()?;
    let len = file.read_bytes_at(0, buffer.bytes())?;
    let loaded = loader::load(space.mm(), &file, &buffer.bytes()[..len])?;
    let (arguments, environment) = args.strings();
    let path = args.path().as_bytes();
    let built = stack::build(
        space.mm(),
        path,
        arguments,
        environment,
        loaded,
        process.creds(),
    )?;
    me.own.set_name(last_name(path));
    process.with_program(|program| {
        program.file = Some(running);
        program.arguments = built.arguments;
        program.environment = built.environment;
    });
    Ok((loaded.entry, built.pointer))
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// What a script's first line says: who interprets it, and the one argument that may be.
struct Line {
    bytes: [u8; FIRST_LINE],
    interpreter: core::ops::Range<usize>,
    argument: core::ops::Range<usize>,
}

impl Line {
    /// The line in the first bytes of a file, if it is a script's.
    fn of(first: &[u8]) -> Option<Self> {
        let rest = first.strip_prefix(b"#!")?;
        let rest = &rest[..rest.len().min(FIRST_LINE - 2)];
        let end = rest
            .iter()
            .position(|byte| *byte == b'\n')
            .unwrap_or(rest.len());
        let mut bytes = [0; FIRST_LINE];
        bytes[..end].copy_from_slice(&rest[..end]);
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let line = &bytes[..end];
        let start = line.iter().position(|byte| !blank(byte))?;
        let len = line[start..].iter().position(blank).unwrap_or(end - start);
        let behind = start + len;
        let more = line[behind..].iter().position(|byte| !blank(byte));
        let argument = match more {
            Some(skipped) => {
                let from = behind + skipped;
                let last = line.iter().rposition(|byte| !blank(byte)).unwrap_or(from);
                from..last + 1
            }
            None => end..end,
        };
        Some(Self {
            bytes,
            interpreter: start..behind,
            argument,
        })
    }

    fn interpreter(&self) -> &[u8] {
        &self.bytes[self.interpreter.clone()]
    }

    fn argument(&self) -> Option<&[u8]> {
        Some(&self.bytes[self.argument.clone()]).filter(|bytes| !bytes.is_empty())
    }
}

/// Runs the program at `path` instead of the caller's.
pub(crate) fn execute(
    space: &Space<'_>,
    start: Node,
    mut path: Path,
    arguments: u64,
    environment: u64,
) -> Result<Image, Errno> {
    let me = task::current();
    let process = process::of(me);
    let creds = process.creds();
    let mut spelled = Buffer::new()?;
    let len = path.rest().len();
    spelled.bytes()[..len].copy_from_slice(path.rest());

    let node = path::walk(start, &mut path, Last::Followed, creds)?.there()?;
    let mut node = node;
    let mut buffer = Buffer::new()?;
    // A script's interpreter runs with the script's path instead of its name. On Linux it may be
    // a script itself, up to five times.
    let mut line: Option<Line> = None;
    let (file, len_first) = loop {
        let file = file_of(&node, creds)?;
        let read = file.read_bytes_at(0, buffer.bytes())?;
        match Line::of(&buffer.bytes()[..read]) {
            None => break (file, read),
            Some(_) if line.is_some() => return Err(ELOOP),
            Some(found) => {
                let mut path = Path::of(found.interpreter())?;
                node = find(process, &mut path)?;
                line = Some(found);
            }
        }
    };
    let running = Running::new(node)?;
    let old = space.mm();
    let mm = crate::system().ok_or(Errno::ENOMEM)?.new_mm()?;
    mm.set_limit_stack(old.limit_stack());
    mm.set_limit_as(old.limit_as());
    mm.set_limit_memlock(old.limit_memlock());
    let loaded =
        loader::load(&mm, &file, &buffer.bytes()[..len_first]).map_err(LoadError::errno)?;
    drop(buffer);
    let path = &spelled.bytes()[..len];
    let built = match &line {
        None => {
            let arguments = Strings::Program(arguments);
            build(&mm, path, arguments, environment, loaded, creds)?
        }
        Some(line) => {
            let mut list: [&[u8]; 3] = [line.interpreter(), path, &[]];
            let list = match line.argument() {
                Some(argument) => {
                    list = [line.interpreter(), argument, path];
                    &list[..]
                }
                None => &list[..2],
            };
            let arguments = Strings::Script(list, arguments);
            build(&mm, path, arguments, environment, loaded, creds)?
        }
    };

    take_over(
        process,
        Program {
            mm: Some(mm.share()),
            file: Some(running),
            arguments: built.arguments,
            environment: built.environment,
        },
    )?;
    me.own.set_name(last_name(path));
    Ok(Image {
        mm,
        entry: loaded.entry,
        stack: built.pointer,
    })
}

/// The caller's process has another program: from here on there is no way back.
fn take_over(process: &Process, program: Program) -> Result<(), Errno> {
    process::end_others()?;
    let own = &task::current().own;
    own.clear_tid().set(0);
    own.robust_list().set(0);
    own.set_fs(0);
    own.signals().set_stack(0, 0, SS_DISABLE);
    fpu::reset_running();
    let mut creds = process.creds();
    (creds.saved_uid, creds.saved_gid) = (creds.uid, creds.gid);
    process.set_creds(creds);
    process.files().exec();
    process.signals().exec();
    drop(process.set_program(program));
    Ok(())
}

fn build(
    mm: &Mm<Kernel>,
    path: &[u8],
    arguments: Strings<'_>,
    environment: u64,
    loaded: loader::Loaded,
    creds: Creds,
) -> Result<Built, Errno> {
    stack::build(
        mm,
        path,
        arguments,
        Strings::Program(environment),
        loaded,
        creds,
    )
}
