//! Files of the host under a system.

use super::boot;
use crate::HostFile;
use minflt_addr::VirtAddr;
use minflt_mm::{FileError, IoError, MapRequest, Place, Prot, Sharing, Signal};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const PAGE: u64 = 4096;
const BASE: u64 = 1 << 30;

/// A file without a name.
fn file(name: &str, bytes: &[u8]) -> File {
    let path = std::env::temp_dir().join(format!("minflt-{name}-{}", std::process::id()));
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true);
    let file = options.open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn leaked(file: &File) -> &'static HostFile {
    Box::leak(Box::new(HostFile::new(file.try_clone().unwrap()).unwrap()))
}

fn word_of(file: &File, offset: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, offset).unwrap();
    u64::from_ne_bytes(bytes)
}

fn place(page: u64) -> MapRequest {
    MapRequest::new(
        Place::Fixed(VirtAddr(BASE + page * PAGE)),
        4 * PAGE,
        Prot::READ_WRITE,
    )
}

#[test]
fn what_is_stored_reaches_the_file_and_what_it_has_is_loaded() {
    // Two pages and a half, of words that say where they are.
    let bytes: Vec<u8> = (0..PAGE * 5 / 16)
        .flat_map(|n| (n * 8).to_ne_bytes())
        .collect();
    let host = file("words", &bytes);
    let running = boot(1, "linux-6.15");
    let _cpu = running.machine().enter(0);
    let ops = leaked(&host);
    let open = running.open_file(ops, ops.bytes()).unwrap();
    let mm = running.new_mm().unwrap();
    let at = |page: u64, offset: u64| VirtAddr(BASE + page * PAGE + offset);
    mm.mmap_file(&place(0), &open, 0, Sharing::Shared).unwrap();
    mm.mmap_file(&place(8), &open, 0, Sharing::Private).unwrap();
    let thread = mm.thread();
    for (page, offset) in [(0, 0), (0, 8), (1, 4088), (2, 2040)] {
        assert_eq!(thread.load(at(page, offset)), Ok(page * PAGE + offset));
    }
    assert_eq!(thread.load(at(2, 2048)), Ok(0), "behind the end");
    assert_eq!(thread.load(at(3, 0)), Err(Signal::Bus));
    thread.store(at(1, 16), 77).unwrap();
    thread.store(at(2, 2048), 78).unwrap();
    thread.store(at(8, 24), 79).unwrap();
    assert_eq!(open.sync(), Ok(()));
    let found = [0, PAGE + 16, 24].map(|offset| word_of(&host, offset));
    assert_eq!(found, [0, 77, 24]);
    let len = host.metadata().unwrap().len();
    assert_eq!(
        len,
        PAGE * 5 / 2,
        "what is stored behind the end is not written"
    );

    open.truncate(PAGE + 8).unwrap();
    assert_eq!(host.metadata().unwrap().len(), PAGE + 8);
    assert_eq!(thread.load(at(1, 16)), Ok(0));
    open.truncate(4 * PAGE).unwrap();
    thread.store(at(3, 4088), 80).unwrap();
    assert_eq!(thread.load(at(2, 0)), Ok(0));
    drop(thread);
    drop(mm);
    // The last reference writes what is dirty.
    drop(open);
    assert_eq!(word_of(&host, 4 * PAGE - 8), 80);
    assert_eq!(word_of(&host, PAGE + 16), 0);
    running.check_ledger(&[]).unwrap();
}

#[test]
fn what_the_host_refuses_is_an_error() {
    let running = boot(1, "linux-6.15");
    let _cpu = running.machine().enter(0);
    // Writing there says that there is no room.
    let full = OpenOptions::new().read(true).write(true).open("/dev/full");
    let full: &HostFile = Box::leak(Box::new(HostFile::of(full.unwrap(), PAGE)));
    let open = running.open_file(full, PAGE).unwrap();
    open.write_word(8, 7).unwrap();
    assert_eq!(open.sync(), Err(IoError::NoSpace));
    assert_eq!(open.read_word(8), Ok(Some(7)), "and it is kept");
    // It cannot be flushed, which shows that a sync asks for that also if nothing is dirty.
    let unflushed = File::open("/dev/zero").unwrap();
    let unflushed: &HostFile = Box::leak(Box::new(HostFile::of(unflushed, PAGE)));
    let third = running.open_file(unflushed, PAGE).unwrap();
    assert_eq!(third.sync(), Err(IoError::Failed));
    // A folder can be opened, and not be read.
    let folder = File::open(PathBuf::from("/")).unwrap();
    let folder: &HostFile = Box::leak(Box::new(HostFile::of(folder, PAGE)));
    let other = running.open_file(folder, PAGE).unwrap();
    assert_eq!(other.read_word(0), Err(FileError::Io));
    assert_eq!(other.truncate(2 * PAGE), Err(FileError::Io));
    assert_eq!(other.bytes(), PAGE);
    assert!(HostFile::new(pipe()).is_err(), "a pipe has no length");
    drop((open, other, third));
    running.check_ledger(&[]).unwrap();
}

fn pipe() -> File {
    let (reader, _writer) = std::io::pipe().unwrap();
    File::from(std::os::fd::OwnedFd::from(reader))
}
