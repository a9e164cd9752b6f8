//! System calls, by their Linux numbers.

mod files;
mod memory;
mod shm;
mod threads;
mod time;

use crate::arch::trap::UserContext;
use crate::linux::{self, ENOSYS};
use crate::sched;
use crate::space::Space;
use crate::user::process::Process;

/// What a system call does to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It returns a word: a value or a negated error number.
    Return(u64),
    /// It ends the thread, with a status that counts if it is the last one.
    ExitThread(i32),
    /// It ends the program.
    Exit(i32),
}

/// The calling thread.
#[derive(Debug)]
pub(crate) struct Caller<'c, 'm> {
    /// Its address space, loaded.
    pub(crate) space: &'c Space<'m>,
    /// Its process.
    pub(crate) process: &'c Process,
    /// Its registers.
    pub(crate) context: &'c UserContext,
}

impl Caller<'_, '_> {
    /// To be called now and then by a call that may take long, holding nothing: others get their
    /// turn. False if the process ends, and so should the call.
    fn may_go_on(&self) -> bool {
        if sched::turn_is_over() {
            sched::give_way();
        }
        !self.process.is_dying()
    }
}

/// Serves the call `number`.
pub(crate) fn call(caller: &Caller<'_, '_>, number: u64, args: [u64; 6]) -> Reply {
    let [a, b, c, d, ..] = args;
    let space = caller.space;
    let numbers = caller.process.files();
    let result = match number {
        0 => files::read(caller, a, b, c),
        1 => files::write(caller, a, b, c),
        2 => files::open(numbers, a, b),
        3 => files::close(numbers, a),
        8 => files::lseek(numbers, a, b, c),
        9 => memory::mmap(caller, args),
        10 => memory::mprotect(space, a, b, c),
        11 => memory::munmap(space, a, b),
        12 => memory::brk(space, a),
        16 => files::ioctl(numbers, a),
        17 => files::pread(caller, args),
        18 => files::pwrite(caller, args),
        24 => threads::sched_yield(),
        25 => memory::mremap(space, args),
        26 => memory::msync(space, a, b, c),
        27 => memory::mincore(caller, a, b, c),
        28 => memory::madvise(space, a, b, c),
        29 => shm::get(space, a, b, c),
        30 => shm::at(space, a, b, c),
        31 => shm::ctl(space, a, b),
        32 => files::dup(numbers, a),
        35 => time::nanosleep(caller, a, b),
        39 => threads::getpid(),
        56 => threads::clone(caller, a, b, c, d, args[4]),
        57 => threads::fork(caller),
        58 => threads::vfork(caller),
        // A status is the low 8 bits, as a parent would see it.
        60 => return Reply::ExitThread((a & 0xff) as i32),
        61 => threads::wait4(a, b, c, d),
        67 => shm::dt(space, a),
        74 => files::fsync(numbers, a),
        77 => files::ftruncate(numbers, a, b),
        98 => threads::getrusage(a, b),
        110 => threads::getppid(),
        149 => memory::mlock(space, a, b, 0),
        150 => memory::munlock(space, a, b),
        151 => memory::mlockall(space, a),
        152 => memory::munlockall(space),
        158 => threads::arch_prctl(a, b),
        186 => threads::gettid(),
        202 => threads::futex(caller, args),
        203 => threads::sched_setaffinity(a, b, c),
        204 => threads::sched_getaffinity(a, b, c),
        218 => threads::set_tid_address(a),
        228 => time::clock_gettime(a, b),
        229 => time::clock_getres(a, b),
        230 => time::clock_nanosleep(caller, a, b, c, d),
        231 => return Reply::Exit((a & 0xff) as i32),
        257 => files::openat(numbers, a, b, c),
        273 => threads::set_robust_list(a, b),
        285 => files::fallocate(numbers, args),
        302 => memory::prlimit(caller, args),
        309 => threads::getcpu(a, b),
        319 => files::memfd_create(numbers, a, b),
        325 => memory::mlock(space, a, b, c),
        _ => Err(ENOSYS),
    };
    Reply::Return(result.unwrap_or_else(linux::failed))
}
