//! Copies of bytes where a user frame keeps one word.

use crate::{MachineFile, Sim, SimInstance, Size};
use minflt_addr::VirtAddr;
use minflt_mm::{CopyError, CopyStop, FileError, Place, Prot, System, era};
use minflt_pgtable::X86_64;

/// What does not fit is refused, and nothing is lost silently.
#[test]
fn bytes_of_one_word_are_copied_and_those_of_more_are_refused() {
    let file = MachineFile::shipped("explorer").unwrap();
    let size = Size {
        cpus: 1,
        ram_bytes: 4 << 20,
        max_tasks: 1,
    };
    let machine = SimInstance::new(&file, size).unwrap();
    let config = era("linux-6.15").unwrap().config;
    let sys = System::<Sim<X86_64>>::boot(machine, config).unwrap();
    let mm = sys.new_mm().unwrap();
    let page = mm.mmap(Place::Any, 4096, Prot::READ_WRITE).unwrap();
    let thread = mm.thread();
    let refused = Err(CopyError {
        done: 0,
        why: CopyStop::OneWord,
    });
    let plus = |bytes| VirtAddr(page.0 + bytes);
    assert_eq!(thread.store_bytes(plus(8), b"eight by"), Ok(()));
    assert_eq!(thread.store_bytes(plus(11), b"345"), Ok(()));
    assert_eq!(thread.store_bytes(plus(12), b"right"), refused);
    let mut found = [0; 9];
    assert_eq!(thread.load_bytes(plus(8), &mut found[..8]), Ok(()));
    assert_eq!(&found[..8], b"eig345by");
    assert_eq!(thread.load_bytes(plus(8), &mut found), refused);

    let file = sys.new_file(4096).unwrap();
    assert_eq!(file.write_bytes_at(2, b"file"), Ok(4));
    assert_eq!(file.write_bytes_at(6, b"file"), Err(FileError::Invalid));
    assert_eq!(file.read_bytes_at(0, &mut found[..8]), Ok(8));
    assert_eq!(&found[..8], b"\0\0file\0\0");
    assert_eq!(file.read_bytes_at(0, &mut found), Err(FileError::Invalid));
    drop(thread);
    drop(file);
    sys.check_ledger(&[&mm]).unwrap();
}
