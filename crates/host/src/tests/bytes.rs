//! Bytes of user memory and of files: at odd addresses, over the ends of pages, of mappings and of
//! files.

use super::{M, boot};
use crate::HostFile;
use minflt_addr::VirtAddr;
use minflt_mm::{
    CopyError, CopyStop, Errno, Event, FileError, MapRequest, Place, Prot, Sharing, Signal, Thread,
    eras_without_migration,
};
use minflt_sync::Instance;
use std::io::Read;

const PAGE: usize = 4096;

/// Bytes that are all different enough to be told apart when they are moved.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + at / 251 + seed) as u8)
        .collect()
}

fn loaded(thread: &Thread<'_, M>, at: VirtAddr, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    thread.load_bytes(at, &mut bytes).unwrap();
    bytes
}

const fn plus(at: VirtAddr, bytes: usize) -> VirtAddr {
    VirtAddr(at.0 + bytes as u64)
}

const fn stopped(done: usize, signal: Signal) -> Result<(), CopyError> {
    let why = CopyStop::Signal(signal);
    Err(CopyError { done, why })
}

#[test]
fn bytes_at_any_address_are_stored_and_loaded_and_no_others() {
    for era in eras_without_migration() {
        let sys = boot(2, era.name);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().unwrap();
        let base = mm
            .mmap(Place::Any, 4 * PAGE as u64, Prot::READ_WRITE)
            .unwrap();
        let thread = mm.thread();
        let mut model = vec![0; 4 * PAGE];
        let lens = [
            0,
            1,
            3,
            7,
            8,
            9,
            16,
            63,
            PAGE - 1,
            PAGE,
            PAGE + 1,
            2 * PAGE + 13,
        ];
        let starts = [0, 1, 5, 8, PAGE - 9, PAGE - 8, PAGE - 1, PAGE, PAGE + 3];
        for (seed, (start, len)) in starts
            .iter()
            .flat_map(|start| lens.iter().map(move |len| (*start, *len)))
            .enumerate()
        {
            let bytes = pattern(len, seed);
            thread.store_bytes(plus(base, start), &bytes).unwrap();
            model[start..start + len].copy_from_slice(&bytes);
            assert_eq!(
                loaded(&thread, plus(base, start), len),
                bytes,
                "{start} {len}"
            );
            assert!(loaded(&thread, base, 4 * PAGE) == model, "{start} {len}");
        }
        // The words are those that loads and stores of words have.
        let word = u64::from_ne_bytes(model[PAGE..PAGE + 8].try_into().unwrap());
        assert_eq!(thread.load(plus(base, PAGE)), Ok(word));
        drop(thread);
        sys.check_ledger(&[&mm]).unwrap();
    }
}

#[test]
fn a_copy_ends_where_an_access_would_fault_and_says_how_far_it_came() {
    let sys = boot(2, "linux-6.15");
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let base = mm
        .mmap(Place::Any, 4 * PAGE as u64, Prot::READ_WRITE)
        .unwrap();
    let thread = mm.thread();
    let bytes = pattern(4 * PAGE, 3);
    thread.store_bytes(base, &bytes).unwrap();
    mm.mprotect(plus(base, 2 * PAGE), PAGE as u64, Prot::READ)
        .unwrap();
    mm.munmap(plus(base, 3 * PAGE), PAGE as u64).unwrap();
    let at = plus(base, 5);
    let other = pattern(4 * PAGE, 9);
    // Read-only: two pages less 5 bytes are stored, and none of the third.
    let done = 2 * PAGE - 5;
    assert_eq!(
        thread.store_bytes(at, &other),
        stopped(done, Signal::AccErr)
    );
    let mut expected = bytes.clone();
    expected[5..2 * PAGE].copy_from_slice(&other[..done]);
    assert!(loaded(&thread, base, 3 * PAGE) == expected[..3 * PAGE]);
    // A hole: it can be loaded as far as the third page's end.
    let mut found = vec![0xee; 4 * PAGE];
    assert_eq!(
        thread.load_bytes(at, &mut found),
        stopped(3 * PAGE - 5, Signal::MapErr)
    );
    assert!(found[..3 * PAGE - 5] == expected[5..3 * PAGE]);
    assert!(
        found[3 * PAGE - 5..].iter().all(|byte| *byte == 0xee),
        "loaded from a hole"
    );
    // From the first byte on; where addresses end; beyond user space.
    for at in [
        plus(base, 3 * PAGE),
        VirtAddr(u64::MAX - 3),
        VirtAddr(1 << 48 | base.0),
        VirtAddr(0),
    ] {
        assert_eq!(
            thread.load_bytes(at, &mut [0; 8]),
            stopped(0, Signal::MapErr),
            "{at}"
        );
        assert_eq!(
            thread.store_bytes(at, &[1; 8]),
            stopped(0, Signal::MapErr),
            "{at}"
        );
    }
    let error = thread.store_bytes(at, &other).unwrap_err();
    assert_eq!(Errno::from(error), Errno::EFAULT);
    assert!(
        error
            .to_string()
            .starts_with("8187 bytes copied, then SIGSEGV"),
        "{error}"
    );
    // Nothing to copy is no access.
    assert_eq!(thread.store_bytes(VirtAddr(3), &[]), Ok(()));
}

#[test]
fn a_copy_to_shared_pages_copies_them_first() {
    for era in eras_without_migration() {
        let sys = boot(2, era.name);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().unwrap();
        let base = mm
            .mmap(Place::Any, 2 * PAGE as u64, Prot::READ_WRITE)
            .unwrap();
        let bytes = pattern(2 * PAGE, 1);
        mm.thread().store_bytes(base, &bytes).unwrap();
        let child = mm.fork().unwrap();
        let copies = sys.count_of(Event::Cow);
        let at = plus(base, PAGE - 3);
        child.thread().store_bytes(at, b"child!").unwrap();
        assert_eq!(sys.count_of(Event::Cow), copies + 2, "{}", era.name);
        assert!(
            loaded(&mm.thread(), base, 2 * PAGE) == bytes,
            "{}",
            era.name
        );
        assert_eq!(loaded(&child.thread(), at, 6), b"child!");
        assert!(loaded(&child.thread(), base, PAGE - 3) == bytes[..PAGE - 3]);
        sys.check_ledger(&[&mm, &child]).unwrap();
    }
}

/// Two threads store to different bytes of the same words.
#[test]
fn bytes_of_one_word_that_two_threads_store_are_both_there() {
    let sys = boot(2, "spf-2017");
    let cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let base = mm.mmap(Place::Any, PAGE as u64, Prot::READ_WRITE).unwrap();
    drop(cpu);
    std::thread::scope(|scope| {
        for cpu in 0..sys.machine().cpus() {
            let (sys, mm) = (&sys, &mm);
            scope.spawn(move || {
                let _cpu = sys.machine().enter(cpu);
                let thread = mm.thread();
                for at in (0..PAGE).step_by(4) {
                    let byte = [cpu as u8 + 1; 2];
                    thread
                        .store_bytes(plus(base, at + 2 * cpu as usize), &byte)
                        .unwrap();
                }
            });
        }
    });
    let _cpu = sys.machine().enter(0);
    let thread = mm.thread();
    assert!(
        loaded(&thread, base, PAGE)
            .chunks(4)
            .all(|four| four == [1, 1, 2, 2])
    );
}

#[test]
fn a_file_is_read_and_written_by_bytes() {
    let sys = boot(2, "linux-6.15");
    let _cpu = sys.machine().enter(0);
    let file = sys.new_file(0).unwrap();
    let mut found = vec![0xee; 3 * PAGE];
    assert_eq!(file.read_bytes_at(0, &mut found), Ok(0));
    // Longer by a write behind a hole; what lies between is zeros.
    let bytes = pattern(PAGE + 10, 5);
    let start = PAGE + 4093;
    assert_eq!(file.write_bytes_at(start as u64, &bytes), Ok(bytes.len()));
    assert_eq!(file.bytes(), (start + bytes.len()) as u64);
    let mut model = vec![0; start];
    model.extend(&bytes);
    assert_eq!(file.read_bytes_at(0, &mut found), Ok(3 * PAGE));
    assert!(found == model[..3 * PAGE]);
    // Reading a hole has not filled it.
    assert_eq!(file.cached_pages(), 3);
    // The end of the file, over it, and behind it.
    let end = file.bytes();
    let mut tail = [0xee; 9];
    assert_eq!(file.read_bytes_at(end - 5, &mut tail), Ok(5));
    assert_eq!((&tail[..5], tail[5]), (&model[model.len() - 5..], 0xee));
    for at in [end, end + 1, u64::MAX - 2] {
        assert_eq!(file.read_bytes_at(at, &mut tail), Ok(0));
    }
    // Within, over the end of a page: the length stays.
    assert_eq!(file.write_bytes_at(PAGE as u64 - 2, b"four"), Ok(4));
    assert_eq!(file.bytes(), end);
    let mut four = [0; 6];
    assert_eq!(file.read_bytes_at(PAGE as u64 - 3, &mut four), Ok(6));
    assert_eq!(&four, b"\0four\0");
    assert_eq!(file.write_bytes_at(end + 100, &[]), Ok(0));
    assert_eq!(file.bytes(), end);
    // What is refused.
    assert_eq!(
        file.read_only().write_bytes_at(0, b"no"),
        Err(FileError::ReadOnly)
    );
    assert_eq!(
        file.write_bytes_at(1 << 62, b"no"),
        Err(FileError::TooLarge)
    );
    assert_eq!(
        file.write_bytes_at(u64::MAX, b"no"),
        Err(FileError::TooLarge)
    );
    // A shorter file and a longer one again: zeros, not what was there.
    file.truncate(PAGE as u64 - 1).unwrap();
    assert_eq!(file.write_bytes_at(PAGE as u64 + 1, b"x"), Ok(1));
    assert_eq!(file.read_bytes_at(PAGE as u64 - 3, &mut four), Ok(5));
    assert_eq!(&four[..5], b"\0f\0\0x");
}

/// One page for calls and mappings.
#[test]
fn a_file_written_by_bytes_is_what_its_mappings_have() {
    let sys = boot(2, "best");
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let file = sys.new_file(2 * PAGE as u64).unwrap();
    let request = MapRequest::new(Place::Any, 2 * PAGE as u64, Prot::READ_WRITE);
    let base = mm.mmap_file(&request, &file, 0, Sharing::Shared).unwrap();
    let thread = mm.thread();
    assert_eq!(file.write_bytes_at(PAGE as u64 - 3, b"by call"), Ok(7));
    assert_eq!(loaded(&thread, plus(base, PAGE - 3), 7), b"by call");
    thread
        .store_bytes(plus(base, PAGE - 1), b"a store")
        .unwrap();
    let mut found = [0; 9];
    assert_eq!(file.read_bytes_at(PAGE as u64 - 3, &mut found), Ok(9));
    assert_eq!(&found, b"bya store");
    // Behind the file's end a mapping raises a signal, in the middle of a copy.
    file.truncate(PAGE as u64).unwrap();
    assert_eq!(
        thread.store_bytes(plus(base, PAGE - 4), b"12345678"),
        stopped(4, Signal::Bus)
    );
}

/// Dirty: what was written by calls reaches what the file is on, and comes from there.
#[test]
fn bytes_written_to_a_file_of_the_host_reach_it() {
    let path = std::env::temp_dir().join(format!("minflt-bytes-{}", std::process::id()));
    std::fs::write(&path, pattern(PAGE + 100, 2)).unwrap();
    let open = || {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap()
    };
    let ops: &'static HostFile = Box::leak(Box::new(HostFile::new(open()).unwrap()));
    let sys = boot(2, "linux-6.15");
    let _cpu = sys.machine().enter(0);
    let file = sys.open_file(ops, ops.bytes()).unwrap();
    let mut found = vec![0; 300];
    assert_eq!(file.read_bytes_at(PAGE as u64 - 50, &mut found), Ok(150));
    assert!(found[..150] == pattern(PAGE + 100, 2)[PAGE - 50..]);
    let bytes = pattern(5000, 8);
    assert_eq!(file.write_bytes_at(PAGE as u64 + 90, &bytes), Ok(5000));
    file.sync().unwrap();
    let mut on_host = Vec::new();
    open().read_to_end(&mut on_host).unwrap();
    let mut model = pattern(PAGE + 100, 2);
    model.truncate(PAGE + 90);
    model.extend(&bytes);
    assert!(
        on_host == model,
        "{} bytes, not {}",
        on_host.len(),
        model.len()
    );
    drop(file);
    std::fs::remove_file(&path).unwrap();
}

/// No memory in the middle: what was written is told, and the file is no longer than that.
#[test]
fn a_write_that_runs_out_of_memory_is_short() {
    let sys = boot(2, "linux-6.15");
    let _cpu = sys.machine().enter(0);
    let file = sys.new_file(0).unwrap();
    let bytes = pattern(32 << 20, 4);
    let done = file.write_bytes_at(3, &bytes).unwrap();
    assert!(done > 8 << 20 && done < 16 << 20, "{done} bytes of 16 MiB");
    assert_eq!(file.bytes(), 3 + done as u64);
    let end = file.bytes().next_multiple_of(PAGE as u64);
    assert_eq!(file.write_bytes_at(end, b"more"), Err(FileError::NoMemory));
    assert_eq!(file.bytes(), 3 + done as u64);
    let mut found = vec![0; done + 10];
    assert_eq!(file.read_bytes_at(3, &mut found), Ok(done));
    assert!(found[..done] == bytes[..done]);
    file.truncate(0).unwrap();
    assert_eq!(file.write_bytes_at(0, &bytes[..4 << 20]), Ok(4 << 20));
}
