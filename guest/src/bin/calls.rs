//! Each system call that the kernel has, once at least, with what must come of it on Linux.
//!
//! `calls` checks all but huge pages, `calls huge` those, for which some must be set aside; exits
//! with 0, or panics with the first check that fails, and exits with 101.
#![no_std]
#![no_main]

use core::arch::asm;

use minflt_guest::{
    Args, Ended, Errno, Mapping, PAGE, Process, Raw, Sys, Word, program, say, together,
};

program!(main);

const READ: u64 = 0;
const WRITE: u64 = 1;
const CLOSE: u64 = 3;
const LSEEK: u64 = 8;
const MMAP: u64 = 9;
const MUNMAP: u64 = 11;
const BRK: u64 = 12;
const IOCTL: u64 = 16;
const PREAD: u64 = 17;
const PWRITE: u64 = 18;
const MREMAP: u64 = 25;
const MSYNC: u64 = 26;
const MINCORE: u64 = 27;
const SHMGET: u64 = 29;
const SHMAT: u64 = 30;
const SHMCTL: u64 = 31;
const DUP: u64 = 32;
const NANOSLEEP: u64 = 35;
const GETPID: u64 = 39;
const WAIT4: u64 = 61;
const SHMDT: u64 = 67;
const FTRUNCATE: u64 = 77;
const MLOCK: u64 = 149;
const MUNLOCK: u64 = 150;
const GETTID: u64 = 186;
const FUTEX: u64 = 202;
const SETAFFINITY: u64 = 203;
const GETAFFINITY: u64 = 204;
const CLOCK_GETTIME: u64 = 228;
const OPENAT: u64 = 257;
const FALLOCATE: u64 = 285;
const PRLIMIT: u64 = 302;
const MEMFD_CREATE: u64 = 319;

const PROT_READ_WRITE: u64 = 3;
const SHARED: u64 = 1;
const PRIVATE: u64 = 2;
const ANONYMOUS: u64 = 0x20;
const POPULATE: u64 = 0x8000;
const HUGETLB: u64 = 0x4_0000;

const EBADF: Errno = Errno(9);
const ECHILD: Errno = Errno(10);
const EAGAIN: Errno = Errno(11);
const ENOTTY: Errno = Errno(25);
const ETIMEDOUT: Errno = Errno(110);

fn main(args: Args) -> i32 {
    let scratch = match Mapping::new(4) {
        Ok(scratch) => scratch,
        Err(error) => panic!("mmap: {error:?}"),
    };
    let calls = Calls { scratch };
    if args.get(1) == Some("huge") {
        calls.huge_pages();
        say!("calls: huge pages are right");
        return 0;
    }
    calls.heap();
    calls.moving_and_locking();
    calls.files();
    calls.devices();
    calls.shared_memory();
    calls.segments();
    calls.processes();
    calls.limits();
    calls.time();
    calls.futexes();
    calls.cpus();
    say!("calls: all are right");
    0
}

/// What calls are made with: memory for their arguments.
struct Calls {
    scratch: Mapping,
}

/// Makes a call.
fn call(number: u64, args: &[u64]) -> Result<u64, Errno> {
    let mut all = [0; 6];
    all[..args.len()].copy_from_slice(args);
    // SAFETY: (1) all that the kernel stores to is in mappings of this program's own, where no
    // object lives.
    let result = unsafe { Raw::call(number, all) };
    match Errno::of(result) {
        None => Ok(result),
        Some(error) => Err(error),
    }
}

/// Makes one that must succeed.
fn done(what: &str, number: u64, args: &[u64]) -> u64 {
    match call(number, args) {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// Loads the word at `addr`, which a call has mapped.
fn load(addr: u64) -> u64 {
    let word;
    // SAFETY: (1) no object lives there; the load has no other effect.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) addr, options(nostack, readonly)) };
    word
}

/// Stores the word at `addr`, which a call has mapped.
fn store(addr: u64, word: u64) {
    // SAFETY: (1) no object lives there.
    unsafe { asm!("mov [{}], {}", in(reg) addr, in(reg) word, options(nostack)) };
}

impl Calls {
    fn heap(&self) {
        let start = done("brk", BRK, &[0]);
        assert_eq!(done("brk", BRK, &[start + 3 * PAGE]), start + 3 * PAGE);
        store(start + 2 * PAGE, 7);
        assert_eq!(load(start + 2 * PAGE), 7, "the heap");
        assert_eq!(done("brk", BRK, &[start]), start, "the heap shrinks");
        // It cannot go below its start: the break stays.
        assert_eq!(done("brk", BRK, &[start - PAGE]), start);
    }

    fn moving_and_locking(&self) {
        let flags = PRIVATE | ANONYMOUS | POPULATE;
        let at = done(
            "mmap",
            MMAP,
            &[0, 4 * PAGE, PROT_READ_WRITE, flags, u64::MAX, 0],
        );
        let told = self.scratch.addr(0);
        done("mincore", MINCORE, &[at, 4 * PAGE, told]);
        assert_eq!(load(told) as u32, 0x0101_0101, "populated pages are there");
        store(at + PAGE, 9);
        let to = done("mremap", MREMAP, &[at, 4 * PAGE, 8 * PAGE, 1]);
        assert_eq!(load(to + PAGE), 9, "moved contents");
        assert_eq!(load(to + 7 * PAGE), 0, "what was added");
        done("mlock", MLOCK, &[to, 8 * PAGE]);
        done("munlock", MUNLOCK, &[to, 8 * PAGE]);
        done("munmap", MUNMAP, &[to, 8 * PAGE]);
        assert_eq!(
            call(MREMAP, &[to, PAGE, PAGE, 8]),
            Err(Errno::EINVAL),
            "mremap's flags"
        );
        assert_eq!(
            call(MLOCK, &[to, PAGE]),
            Err(Errno::ENOMEM),
            "mlock of nothing"
        );
    }

    /// A file in memory without a name.
    fn file(&self, flags: u64) -> u64 {
        let name = self.scratch.addr(2 * PAGE);
        self.scratch
            .store(2 * PAGE, u64::from_le_bytes(*b"file\0\0\0\0"));
        done("memfd_create", MEMFD_CREATE, &[name, flags])
    }

    fn files(&self) {
        let fd = self.file(0);
        let buffer = self.scratch.addr(0);
        self.scratch.store(0, 0x1122_3344_5566_7788);
        assert_eq!(done("write", WRITE, &[fd, buffer, 8]), 8);
        assert_eq!(done("pwrite64", PWRITE, &[fd, buffer, 8, PAGE]), 8);
        assert_eq!(done("lseek", LSEEK, &[fd, 0, 2]), PAGE + 8, "the end");
        assert_eq!(done("lseek", LSEEK, &[fd, 0, 0]), 0, "the start");
        assert_eq!(done("read", READ, &[fd, buffer + 8, 8]), 8);
        assert_eq!(
            self.scratch.load(8),
            0x1122_3344_5566_7788,
            "what was written"
        );
        assert_eq!(done("read", READ, &[fd, buffer + 8, 8]), 8, "the hole");
        assert_eq!(self.scratch.load(8), 0, "the hole is zero");
        assert_eq!(
            done("pread64", PREAD, &[fd, buffer, 64, PAGE + 4]),
            4,
            "the end"
        );
        // One position for both numbers.
        let other = done("dup", DUP, &[fd]);
        done("lseek", LSEEK, &[other, 5, 0]);
        assert_eq!(
            done("lseek", LSEEK, &[fd, 0, 1]),
            5,
            "the position is shared"
        );
        done("close", CLOSE, &[other]);
        assert_eq!(call(CLOSE, &[other]), Err(EBADF), "closed twice");
        assert_eq!(
            call(READ, &[fd, u64::MAX - 4, 8]),
            Err(Errno::EFAULT),
            "a bad buffer"
        );

        let at = done("mmap", MMAP, &[0, 2 * PAGE, PROT_READ_WRITE, SHARED, fd, 0]);
        assert_eq!(
            load(at + PAGE),
            0x1122_3344_5566_7788,
            "the mapping has the file"
        );
        store(at + 16, 3);
        done("msync", MSYNC, &[at, 2 * PAGE, 4]);
        assert_eq!(done("pread64", PREAD, &[fd, buffer, 8, 16]), 8);
        assert_eq!(self.scratch.load(0), 3, "the file has what was stored");
        // A copy between the file and a mapping of the same page.
        assert_eq!(done("pread64", PREAD, &[fd, at + 24, 8, 16]), 8);
        assert_eq!(load(at + 24), 3, "the file into its own mapping");
        done("fallocate", FALLOCATE, &[fd, 3, 0, PAGE]);
        assert_eq!(load(at + 16), 0, "a hole was made");
        done("ftruncate", FTRUNCATE, &[fd, PAGE]);
        let killed = Process::child(|| load(at + PAGE) as i32);
        assert_eq!(killed, Ok(Ended::Signalled(7)), "SIGBUS behind the end");
        done("munmap", MUNMAP, &[at, 2 * PAGE]);
        done("close", CLOSE, &[fd]);
    }

    fn devices(&self) {
        const HERE: u64 = -100_i64 as u64;
        let open = |name: &[u8; 16]| {
            let [low, high] = [&name[..8], &name[8..]].map(|half| {
                let mut word = [0; 8];
                word.copy_from_slice(half);
                u64::from_le_bytes(word)
            });
            self.scratch.store(0, low);
            self.scratch.store(8, high);
            call(OPENAT, &[HERE, self.scratch.addr(0), 2])
        };
        let null = open(b"/dev/null\0\0\0\0\0\0\0").expect_file("/dev/null");
        assert_eq!(call(WRITE, &[null, self.scratch.addr(0), 8]), Ok(8));
        assert_eq!(call(READ, &[null, self.scratch.addr(0), 8]), Ok(0));
        assert_eq!(call(IOCTL, &[null, 0x5401, 0]), Err(ENOTTY), "no terminal");
        let zero = open(b"/dev/zero\0\0\0\0\0\0\0").expect_file("/dev/zero");
        self.scratch.store(16, 5);
        assert_eq!(call(READ, &[zero, self.scratch.addr(16), 8]), Ok(8));
        assert_eq!(self.scratch.load(16), 0);
        for fd in [null, zero] {
            done("close", CLOSE, &[fd]);
        }
        assert_eq!(open(b"/not/there\0\0\0\0\0\0"), Err(Errno(2)), "ENOENT");
        assert_eq!(call(LSEEK, &[u64::MAX, 0, 0]), Err(EBADF));
    }

    /// What a child stores is seen here, where memory is shared, and not where it is not.
    fn shared_memory(&self) {
        for (flags, seen) in [(SHARED, 5), (PRIVATE, 1)] {
            let at = done(
                "mmap",
                MMAP,
                &[0, PAGE, PROT_READ_WRITE, flags | ANONYMOUS, u64::MAX, 0],
            );
            store(at, 1);
            let ended = Process::child(|| {
                store(at, load(at) + 4);
                load(at) as i32
            });
            assert_eq!(ended, Ok(Ended::Exited(5)), "the child's own");
            assert_eq!(load(at), seen, "the parent's");
            done("munmap", MUNMAP, &[at, PAGE]);
        }
    }

    fn segments(&self) {
        let id = done("shmget", SHMGET, &[0, 3 * PAGE, 0o600]);
        let (one, two) = (
            done("shmat", SHMAT, &[id, 0, 0]),
            done("shmat", SHMAT, &[id, 0, 0]),
        );
        store(one + PAGE, 8);
        assert_eq!(load(two + PAGE), 8, "one segment at two places");
        done("shmctl", SHMCTL, &[id, 0, 0]);
        for at in [one, two] {
            done("shmdt", SHMDT, &[at]);
        }
        assert_eq!(call(SHMDT, &[one]), Err(Errno::EINVAL), "detached twice");
        assert_eq!(call(SHMAT, &[id, 0, 0]), Err(Errno::EINVAL), "removed");
    }

    fn processes(&self) {
        assert_eq!(done("getpid", GETPID, &[]), done("gettid", GETTID, &[]));
        assert_eq!(call(WAIT4, &[u64::MAX, 0, 0, 0]), Err(ECHILD), "no child");
        let me = done("getpid", GETPID, &[]);
        let parent = Process::child(|| i32::from(Sys::getppid() != Ok(me)));
        assert_eq!(parent, Ok(Ended::Exited(0)), "getppid");
        // A thread ends the process, and its status is the process's.
        let ended = Process::child(|| {
            let never = Word::new(0);
            let _ = together(3, &|index| {
                if index == 2 {
                    Sys::exit(42);
                }
                let _ = never.wait_while(0);
            });
            1
        });
        assert_eq!(ended, Ok(Ended::Exited(42)), "exit_group");
    }

    fn limits(&self) {
        const AS: u64 = 9;
        let ended = Process::child(|| {
            self.scratch.store(0, 64 << 20);
            self.scratch.store(8, u64::MAX);
            done("prlimit64", PRLIMIT, &[0, AS, self.scratch.addr(0), 0]);
            let flags = PRIVATE | ANONYMOUS;
            let large = call(MMAP, &[0, 128 << 20, PROT_READ_WRITE, flags, u64::MAX, 0]);
            i32::from(large != Err(Errno::ENOMEM))
        });
        assert_eq!(ended, Ok(Ended::Exited(0)), "RLIMIT_AS");
    }

    fn now(&self) -> u64 {
        done("clock_gettime", CLOCK_GETTIME, &[1, self.scratch.addr(0)]);
        self.scratch.load(0) * 1_000_000_000 + self.scratch.load(8)
    }

    fn time(&self) {
        const NS: u64 = 3_000_000;
        let start = self.now();
        self.scratch.store(16, 0);
        self.scratch.store(24, NS);
        done("nanosleep", NANOSLEEP, &[self.scratch.addr(16), 0]);
        assert!(self.now() - start >= NS, "it slept too short");
        self.scratch.store(24, 1_000_000_000);
        assert_eq!(
            call(NANOSLEEP, &[self.scratch.addr(16), 0]),
            Err(Errno::EINVAL)
        );
    }

    fn futexes(&self) {
        const WAIT: u64 = 128;
        const WAKE: u64 = 129;
        let word = self.scratch.addr(0);
        self.scratch.store(0, 1);
        self.scratch.store(16, 0);
        self.scratch.store(24, 2_000_000);
        assert_eq!(
            call(FUTEX, &[word, WAIT, 2, 0]),
            Err(EAGAIN),
            "another value"
        );
        let timed = call(FUTEX, &[word, WAIT, 1, self.scratch.addr(16)]);
        assert_eq!(timed, Err(ETIMEDOUT), "nobody wakes it");
        assert_eq!(call(FUTEX, &[word, WAKE, 9]), Ok(0), "nobody waits");
        assert_eq!(
            call(FUTEX, &[word + 1, WAIT, 0, 0]),
            Err(Errno::EINVAL),
            "not aligned"
        );
        // The word's page is not there when it is compared.
        let fresh = match Mapping::new(1) {
            Ok(fresh) => fresh,
            Err(error) => panic!("mmap: {error:?}"),
        };
        assert_eq!(call(FUTEX, &[fresh.addr(0), WAIT, 1, 0]), Err(EAGAIN));
        assert_eq!(fresh.unmap(0, 1), Ok(()));
        assert_eq!(
            call(FUTEX, &[fresh.addr(0), WAIT, 0, 0]),
            Err(Errno::EFAULT)
        );
    }

    /// A thread runs on each CPU that it is told to run on.
    fn cpus(&self) {
        let mask = self.scratch.addr(0);
        done("sched_getaffinity", GETAFFINITY, &[0, 8, mask]);
        let all = self.scratch.load(0);
        for cpu in (0..64).filter(|cpu| all >> cpu & 1 == 1) {
            self.scratch.store(0, 1 << cpu);
            done("sched_setaffinity", SETAFFINITY, &[0, 8, mask]);
            let at = self.scratch.addr(8);
            assert_eq!(self.scratch.kernel_store(8), Ok(()), "getcpu");
            assert_eq!(load(at) as u32, cpu, "the CPU");
        }
        self.scratch.store(0, all);
        done("sched_setaffinity", SETAFFINITY, &[0, 8, mask]);
        self.scratch.store(0, 0);
        assert_eq!(
            call(SETAFFINITY, &[0, 8, mask]),
            Err(Errno::EINVAL),
            "no CPU"
        );
    }

    fn huge_pages(&self) {
        const HUGE: u64 = 2 << 20;
        let flags = PRIVATE | ANONYMOUS | HUGETLB;
        let at = done(
            "mmap",
            MMAP,
            &[0, 2 * HUGE, PROT_READ_WRITE, flags, u64::MAX, 0],
        );
        assert_eq!(at % HUGE, 0, "aligned");
        store(at + HUGE + 8, 4);
        let ended = Process::child(|| {
            let found = load(at + HUGE + 8);
            store(at, 5);
            found as i32
        });
        assert_eq!(ended, Ok(Ended::Exited(4)), "the child's");
        assert_eq!(load(at), 0, "the parent's");
        done("munmap", MUNMAP, &[at, 2 * HUGE]);
        let fd = self.file(4);
        done("ftruncate", FTRUNCATE, &[fd, HUGE]);
        let at = done("mmap", MMAP, &[0, HUGE, PROT_READ_WRITE, SHARED, fd, 0]);
        store(at + PAGE, 6);
        assert_eq!(load(at + PAGE), 6, "a file of huge pages");
        done("munmap", MUNMAP, &[at, HUGE]);
        done("close", CLOSE, &[fd]);
    }
}

/// A file that must have been opened.
trait ExpectFile {
    fn expect_file(self, name: &str) -> u64;
}

impl ExpectFile for Result<u64, Errno> {
    fn expect_file(self, name: &str) -> u64 {
        match self {
            Ok(fd) => fd,
            Err(error) => panic!("{name}: {error:?}"),
        }
    }
}
