//! read and write between files and memory whose access may fault.

use super::{M, boot, machine, words_of};
use core::mem::ManuallyDrop;
use core::panic::AssertUnwindSafe;
use minflt_addr::VirtAddr;
use minflt_mm::{
    Event, FileError, FileHandle, FrameBytes, MapRequest, MmHandle, NegativeControl, Place, Prot,
    Sharing, Signal, System, Thread, era, eras_without_migration,
};
use minflt_sync::Instance;

const PAGE: usize = 4096;
const SIZE: u64 = PAGE as u64;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + at / 251 + seed) as u8)
        .collect()
}

const fn plus(at: VirtAddr, bytes: usize) -> VirtAddr {
    VirtAddr(at.0 + bytes as u64)
}

/// `copy_to_user`: how many bytes a store of them reaches; and the signal that ended it.
fn to_user(thread: &Thread<'_, M>, at: VirtAddr, bytes: &FrameBytes<'_, M>) -> usize {
    let mut buffer = vec![0; bytes.len()];
    bytes.copy_to(&mut buffer);
    match thread.store_bytes(at, &buffer) {
        Ok(()) => bytes.len(),
        Err(error) => error.done,
    }
}

/// `copy_from_user`.
fn from_user(thread: &Thread<'_, M>, at: VirtAddr, bytes: &mut [u8]) -> usize {
    match thread.load_bytes(at, bytes) {
        Ok(()) => bytes.len(),
        Err(error) => error.done,
    }
}

/// read(2).
fn read(
    file: &FileHandle<'_, M>,
    offset: u64,
    (thread, at, len): (&Thread<'_, M>, VirtAddr, usize),
) -> Result<usize, FileError> {
    let mut done = 0;
    file.read_at_with(offset, len, |bytes| {
        let copied = to_user(thread, plus(at, done), &bytes);
        done += copied;
        copied
    })
}

/// write(2).
fn write(
    file: &FileHandle<'_, M>,
    offset: u64,
    (thread, at, len): (&Thread<'_, M>, VirtAddr, usize),
) -> Result<usize, FileError> {
    let mut done = 0;
    file.write_at_with(offset, len, |bytes| {
        let copied = from_user(thread, plus(at, done), bytes);
        done += copied;
        copied
    })
}

fn map(mm: &MmHandle<'_, M>, pages: u64) -> VirtAddr {
    mm.mmap(Place::Any, pages * SIZE, Prot::READ_WRITE).unwrap()
}

#[test]
fn a_file_is_read_into_pages_that_fault() {
    for era in eras_without_migration() {
        let sys = boot(2, era.name);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().unwrap();
        let thread = mm.thread();
        let file = sys.new_file(0).unwrap();
        let bytes = pattern(3 * PAGE - 9, 3);
        // A hole first.
        file.write_bytes_at(SIZE, &bytes).unwrap();
        let mut model = vec![0; PAGE];
        model.extend(&bytes);
        let to = map(&mm, 6);
        let faults = sys.count_of(Event::PageFaults);
        let all = (&thread, plus(to, 11), 5 * PAGE);
        assert_eq!(read(&file, 5, all), Ok(model.len() - 5), "{}", era.name);
        assert!(sys.count_of(Event::PageFaults) >= faults + 4);
        let mut found = vec![0; model.len() - 5];
        thread.load_bytes(plus(to, 11), &mut found).unwrap();
        assert!(found == model[5..], "{}", era.name);
        // The hole is still one.
        assert_eq!(file.cached_pages(), 3);
        assert_eq!(read(&file, model.len() as u64, all), Ok(0));
        assert_eq!(read(&file, u64::MAX, all), Ok(0));
        drop(thread);
        sys.check_ledger(&[&mm]).unwrap();
    }
}

#[test]
fn a_file_is_written_from_pages_that_fault() {
    for era in eras_without_migration() {
        let sys = boot(2, era.name);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().unwrap();
        let thread = mm.thread();
        let from = map(&mm, 4);
        let bytes = pattern(2 * PAGE, 9);
        thread.store_bytes(plus(from, PAGE + 3), &bytes).unwrap();
        let file = sys.new_file(0).unwrap();
        // The first page was never touched.
        let all = (&thread, from, 3 * PAGE + 3);
        assert_eq!(write(&file, 100, all), Ok(3 * PAGE + 3), "{}", era.name);
        assert_eq!(file.bytes(), 100 + 3 * SIZE + 3);
        let mut model = vec![0; 100 + PAGE + 3];
        model.extend(&bytes);
        let mut found = vec![0xee; model.len()];
        assert_eq!(file.read_bytes_at(0, &mut found), Ok(model.len()));
        assert!(found == model, "{}", era.name);
        drop(thread);
        let ledger = sys.check_ledger(&[&mm]).unwrap();
        assert_eq!(ledger.kernel, 0, "the buffer is freed");
    }
}

/// The page that is read and written is the one that the buffer maps, and is not mapped yet.
#[test]
fn a_buffer_may_be_the_file_page_itself() {
    for era in eras_without_migration() {
        let sys = boot(2, era.name);
        let _cpu = sys.machine().enter(0);
        let mm = sys.new_mm().unwrap();
        let thread = mm.thread();
        let file = sys.new_file(4 * SIZE).unwrap();
        let bytes = pattern(4 * PAGE, 1);
        let request = MapRequest::new(Place::Any, 4 * SIZE, Prot::READ_WRITE);
        let fresh = || mm.mmap_file(&request, &file, 0, Sharing::Shared).unwrap();
        file.write_bytes_at(0, &bytes).unwrap();
        let same = (&thread, fresh(), 4 * PAGE);
        assert_eq!(read(&file, 0, same), Ok(4 * PAGE), "{}", era.name);
        let same = (&thread, fresh(), 4 * PAGE);
        assert_eq!(write(&file, 0, same), Ok(4 * PAGE), "{}", era.name);
        let mut found = vec![0; 4 * PAGE];
        assert_eq!(file.read_bytes_at(0, &mut found), Ok(4 * PAGE));
        assert!(found == bytes, "{}", era.name);
        drop(thread);
        sys.check_ledger(&[&mm]).unwrap();
    }
}

/// The control: with the page locked, the copy to a mapping of it would wait for itself.
#[test]
fn a_copy_with_the_page_locked_is_a_violation() {
    let mut config = era("linux-6.15").unwrap().config;
    config.negative_control = Some(NegativeControl::CopiesLocked);
    let sys = System::<M>::boot(machine(1), config).unwrap();
    // The machine fails: nothing of it is dropped.
    let _cpu = ManuallyDrop::new(sys.machine().enter(0));
    let mm = ManuallyDrop::new(sys.new_mm().unwrap());
    let thread = ManuallyDrop::new(mm.thread());
    let file = ManuallyDrop::new(sys.new_file(SIZE).unwrap());
    file.write_bytes_at(0, &[1]).unwrap();
    let request = MapRequest::new(Place::Any, SIZE, Prot::READ_WRITE);
    let at = mm.mmap_file(&request, &file, 0, Sharing::Shared).unwrap();
    let said = words_of(AssertUnwindSafe(|| {
        let _ended = read(&file, 0, (&thread, at, 1));
    }));
    assert!(said.contains("FolioLock"), "{said}");
}

/// EFAULT in the middle is a short count, and nothing that was not there is written.
#[test]
fn a_buffer_that_ends_ends_the_copy() {
    let sys = boot(2, "linux-6.15");
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let thread = mm.thread();
    let buffer = map(&mm, 4);
    mm.munmap(plus(buffer, 2 * PAGE), 2 * SIZE).unwrap();
    let bytes = pattern(2 * PAGE, 2);
    thread.store_bytes(buffer, &bytes).unwrap();
    let file = sys.new_file(0).unwrap();
    let over = (&thread, plus(buffer, PAGE - 7), 3 * PAGE);
    assert_eq!(write(&file, 50, over), Ok(PAGE + 7));
    assert_eq!(file.bytes(), 50 + SIZE + 7, "no longer than that");
    assert_eq!(write(&file, 1 << 20, (&thread, VirtAddr(0), 10)), Ok(0));
    assert_eq!(file.bytes(), 50 + SIZE + 7);
    let mut found = vec![0; PAGE + 7];
    assert_eq!(file.read_bytes_at(50, &mut found), Ok(PAGE + 7));
    assert!(found == bytes[PAGE - 7..]);
    file.truncate(3 * SIZE).unwrap();
    assert_eq!(read(&file, 0, over), Ok(PAGE + 7));
    assert_eq!(read(&file, 0, (&thread, VirtAddr(0), 10)), Ok(0));
    assert_eq!(thread.load(plus(buffer, 2 * PAGE)), Err(Signal::MapErr));
    // What cannot be written is not even asked for.
    let refused = file.read_only().write_at_with(0, 8, |_| panic!("asked"));
    assert_eq!(refused, Err(FileError::ReadOnly));
    let refused = file.write_at_with(1 << 62, 8, |to| to.len());
    assert_eq!(refused, Err(FileError::TooLarge));
    drop(thread);
    assert_eq!(sys.check_ledger(&[&mm]).unwrap().kernel, 0);
}

/// One CPU reads the file into its own mappings, one truncates it, others fault on it: no deadlock,
/// no page lost, and bytes are the file's or zeros.
#[test]
fn copies_race_with_truncation_and_faults() {
    let sys = boot(4, "linux-6.15");
    let cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let file = sys.new_file(8 * SIZE).unwrap();
    let request = MapRequest::new(Place::Any, 8 * SIZE, Prot::READ_WRITE);
    let mapped = mm.mmap_file(&request, &file, 0, Sharing::Shared).unwrap();
    let own = map(&mm, 8);
    drop(cpu);
    super::on_all_cpus(sys.machine(), |cpu| {
        let thread = mm.thread();
        for round in 0..super::rounds(4000) as usize / 8 {
            let offset = (round % 8 * PAGE) as u64;
            match cpu {
                0 => {
                    let _short = read(&file, offset, (&thread, mapped, 8 * PAGE));
                }
                1 => {
                    let len = [0, 3 * SIZE + 5, 8 * SIZE][round % 3];
                    file.truncate(len).unwrap();
                }
                2 => {
                    let _short = write(&file, offset, (&thread, mapped, 2 * PAGE));
                }
                _ => {
                    let got = read(&file, 0, (&thread, own, 8 * PAGE)).unwrap();
                    let mut bytes = vec![1; got];
                    thread.load_bytes(own, &mut bytes).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 0));
                    let _bus = thread.load(plus(mapped, round % 8 * PAGE));
                }
            }
        }
    });
    let _cpu = sys.machine().enter(0);
    assert_eq!(sys.check_ledger(&[&mm]).unwrap().kernel, 0);
    assert_eq!(sys.machine().cpus(), 4);
}
