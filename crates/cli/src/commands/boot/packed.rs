//! The initial RAM disk: the program, and what a Linux needs to run it.

use super::cpio::{Cpio, TooLong};
use super::elf::check;
use super::{INIT, line};
use crate::error::{Error, failed, usage};
use crate::scratch::find_program;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A program that goes into an initramfs.
pub(super) struct Packed {
    /// Where it is there.
    pub(super) path: String,
    /// What is to be added for it; none if it is in the root already.
    bytes: Option<Vec<u8>>,
}

fn cannot(program: &Path, why: &dyn core::fmt::Display) -> Error {
    usage(format!(
        "boot: {}: {why}; give a static x86-64 program",
        program.display()
    ))
}

impl Packed {
    /// The program of that name: a file, or one of those on the search path.
    pub(super) fn read(program: &Path) -> Result<Self, Error> {
        let found = if program.exists() || program.components().count() > 1 {
            None
        } else {
            program
                .to_str()
                .and_then(|name| find_program(Path::new(name)))
        };
        let file = found.as_deref().unwrap_or(program);
        let bytes = fs::read(file).map_err(|error| cannot(program, &error))?;
        check(&bytes).map_err(|why| cannot(program, &why))?;
        let name = program.file_name().and_then(|name| name.to_str());
        let name = name.filter(|name| line::is_plain(name) && *name != &INIT[1..]);
        let name =
            name.ok_or_else(|| cannot(program, &"its name cannot stand in a command line"))?;
        Ok(Self {
            path: format!("/{name}"),
            bytes: Some(bytes),
        })
    }

    /// The program of that name in a folder that becomes the machine's root.
    pub(super) fn in_root(root: &Path, program: &str) -> Result<Self, Error> {
        let folders: &[&str] = if program.contains('/') {
            &[""]
        } else {
            &["sbin", "usr/sbin", "bin", "usr/bin", ""]
        };
        let paths = folders.iter().map(|folder| {
            let path = format!("{folder}/{program}");
            path.trim_start_matches('/').to_owned()
        });
        let found = paths.into_iter().find(|path| {
            // A link may be one of the root's own, which leads nowhere here.
            fs::symlink_metadata(root.join(path)).is_ok_and(|it| !it.is_dir())
        });
        let Some(path) = found.filter(|path| line::is_plain(path)) else {
            return Err(usage(format!(
                "boot: {} has no program {program}; name a file below it",
                root.display()
            )));
        };
        Ok(Self {
            path: format!("/{path}"),
            bytes: None,
        })
    }
}

/// What is in a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let cannot = failed(format!("boot: cannot read {}", path.display()));
    fs::read(path).map_err(|error| cannot(&error))
}

/// A file of `--add`, and where it goes.
pub(super) fn added(word: &str) -> Result<(String, Vec<u8>, u32), Error> {
    let (file, path) = match word.split_once("=/") {
        Some((file, path)) => (Path::new(file), Some(path.to_owned())),
        None => (Path::new(word), None),
    };
    let name = file.file_name().and_then(|name| name.to_str());
    let path = path
        .or_else(|| name.map(str::to_owned))
        .filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| {
        usage(format!(
            "--add {word}: it has no name; give a file, or FILE=/PATH"
        ))
    })?;
    let bytes = fs::read(file).map_err(|error| {
        usage(format!(
            "--add {word}: cannot read it: {error}; give a file"
        ))
    })?;
    let mode = fs::metadata(file).map_or(0o644, |it| it.permissions().mode());
    Ok((path, bytes, mode & 0o7777))
}

/// What else the machine has.
#[derive(Default)]
pub(super) struct Besides<'a> {
    /// A folder that becomes its root.
    pub(super) root: Option<&'a Path>,
    /// Files: their paths, contents and rights.
    pub(super) files: Vec<(String, Vec<u8>, u32)>,
}

/// The archive: the root, the program, files beside it; for Linux process 1, and devices that it
/// opens.
pub(super) fn pack(
    program: &Packed,
    init: Option<&[u8]>,
    besides: &Besides<'_>,
) -> Result<Vec<u8>, Error> {
    let too_long =
        |_: TooLong| usage("boot: a file of 4 GiB does not fit into an initramfs; give less");
    let mut cpio = Cpio::default();
    if let Some(root) = besides.root {
        folder(&mut cpio, root, "")?;
    }
    if let Some(init) = init {
        add_init(&mut cpio, init).map_err(too_long)?;
    }
    if let Some(bytes) = &program.bytes {
        cpio.file(&program.path[1..], bytes).map_err(too_long)?;
    }
    for (path, bytes, mode) in &besides.files {
        let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        for folder in folders.filter(|folder| !folder.is_empty()) {
            cpio.folder(folder).map_err(too_long)?;
        }
        cpio.file_of_mode(path, *mode, bytes).map_err(too_long)?;
    }
    cpio.finish().map_err(too_long)
}

fn add_init(cpio: &mut Cpio, init: &[u8]) -> Result<(), TooLong> {
    for folder in ["dev", "proc", "sys"] {
        cpio.folder(folder)?;
    }
    cpio.folder_of_mode("tmp", 0o1777)?;
    cpio.device("dev/console", 5, 1)?;
    cpio.device("dev/null", 1, 3)?;
    cpio.device("dev/ttyS0", 4, 64)?;
    cpio.device("dev/ttyS1", 4, 65)?;
    cpio.file(&INIT[1..], init)
}

/// Adds what is in a folder, in the order of names. Sockets, pipes and devices are left out.
fn folder(cpio: &mut Cpio, root: &Path, below: &str) -> Result<(), Error> {
    let at = root.join(below);
    let cannot = |error: io::Error| usage(format!("--root: cannot read {}: {error}", at.display()));
    let mut entries = fs::read_dir(&at)
        .map_err(cannot)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(cannot)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let Some(name) = name.to_str() else {
            return Err(usage(format!(
                "--root: the name of {} is not UTF-8; rename it",
                entry.path().display()
            )));
        };
        let path = if below.is_empty() {
            name.to_owned()
        } else {
            format!("{below}/{name}")
        };
        let found = fs::symlink_metadata(entry.path()).map_err(cannot)?;
        let mode = found.permissions().mode() & 0o7777;
        let too_long = |_: TooLong| {
            usage(format!(
                "--root: {path} has 4 GiB or more, which does not fit into an initramfs; remove it"
            ))
        };
        if found.is_dir() {
            cpio.folder_of_mode(&path, mode).map_err(too_long)?;
            folder(cpio, root, &path)?;
        } else if found.is_symlink() {
            let target = fs::read_link(entry.path()).map_err(cannot)?;
            cpio.link(&path, target.as_os_str().as_encoded_bytes())
                .map_err(too_long)?;
        } else if found.is_file() {
            let bytes = fs::read(entry.path()).map_err(cannot)?;
            cpio.file_of_mode(&path, mode, &bytes).map_err(too_long)?;
        }
    }
    Ok(())
}
