//! The initial RAM disk: the program, and what a Linux needs to run it.

use super::cpio::{Cpio, TooLong};
use super::elf::{Linked, linked};
use super::{INIT, line};
use crate::error::{Error, failed, usage};
use std::fs;
use std::path::Path;

/// A program that goes into an initramfs.
pub(super) struct Packed {
    /// Where it is there.
    pub(super) path: String,
    bytes: Vec<u8>,
    pub(super) linked: Linked,
}

impl Packed {
    pub(super) fn read(program: &Path) -> Result<Self, Error> {
        let cannot = |why: &dyn core::fmt::Display| {
            usage(format!(
                "boot: {}: {why}; give a static x86-64 program",
                program.display()
            ))
        };
        let bytes = fs::read(program).map_err(|error| cannot(&error))?;
        let linked = linked(&bytes).map_err(|why| cannot(&why))?;
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

/// What is in a file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let cannot = failed(format!("boot: cannot read {}", path.display()));
    fs::read(path).map_err(|error| cannot(&error))
}

/// The archive: the program, files beside it; for Linux process 1, and devices that it opens.
pub(super) fn pack(
    program: &Packed,
    init: Option<&[u8]>,
    files: &[(&str, &[u8])],
) -> Result<Vec<u8>, TooLong> {
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
