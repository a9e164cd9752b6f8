//! System calls, by their Linux numbers.

mod files;
mod folders;
mod memory;
mod names;
mod paths;
mod poll;
mod processes;
mod shm;
mod signals;
mod stat;
mod threads;
mod time;

use linux_raw_sys::general as abi;
use minflt_mm::Errno;

use crate::arch::trap::UserContext;
use crate::linux::ENOSYS;
use crate::space::Space;
use crate::user::exec::Image;
use crate::user::process::Process;
use processes::Id;

/// What a system call does to its caller.
#[derive(Debug)]
pub(crate) enum Reply {
    /// It returns a word, or an error; or is made again after a signal.
    Return(Result<u64, Errno>),
    /// The program goes on where a signal has interrupted it.
    FromHandler,
    /// Another program runs instead.
    Execute(Image),
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

/// `AT_FDCWD`: relative paths begin where the process is.
const HERE: u64 = abi::AT_FDCWD as u64;
/// `O_CREAT | O_WRONLY | O_TRUNC`: what creat means.
const CREATE: u64 = (abi::O_CREAT | abi::O_WRONLY | abi::O_TRUNC) as u64;
/// `AT_SYMLINK_NOFOLLOW`, `AT_REMOVEDIR`.
const NO_FOLLOW: u64 = abi::AT_SYMLINK_NOFOLLOW as u64;
const FOLDER: u64 = abi::AT_REMOVEDIR as u64;

/// Serves the call `number`.
#[expect(clippy::too_many_lines, reason = "a table of all calls")]
pub(crate) fn call(caller: &Caller<'_, '_>, number: u64, args: [u64; 6]) -> Reply {
    let [a, b, c, d, e, _] = args;
    let space = caller.space;
    let files = caller.process.files();
    let Ok(number) = u32::try_from(number) else {
        return Reply::Return(Err(ENOSYS));
    };
    Reply::Return(match number {
        abi::__NR_read => files::read(files, a, b, c),
        abi::__NR_write => files::write(files, a, b, c),
        abi::__NR_open => paths::openat(caller, HERE, a, b, c),
        abi::__NR_close => files::close(files, a),
        abi::__NR_stat => stat::fstatat(caller, HERE, a, b, 0),
        abi::__NR_fstat => stat::fstat(caller, a, b),
        abi::__NR_lstat => stat::fstatat(caller, HERE, a, b, NO_FOLLOW),
        abi::__NR_poll => poll::poll(caller, a, b, c),
        abi::__NR_lseek => files::lseek(files, a, b, c),
        abi::__NR_mmap => memory::mmap(caller, args),
        abi::__NR_mprotect => memory::mprotect(space, a, b, c),
        abi::__NR_munmap => memory::munmap(space, a, b),
        abi::__NR_brk => memory::brk(space, a),
        abi::__NR_rt_sigaction => signals::sigaction(caller, a, b, c, d),
        abi::__NR_rt_sigprocmask => signals::sigprocmask(a, b, c, d),
        abi::__NR_rt_sigreturn => return Reply::FromHandler,
        abi::__NR_ioctl => files::ioctl(files, a, b, c),
        abi::__NR_pread64 => files::pread(files, args),
        abi::__NR_pwrite64 => files::pwrite(files, args),
        abi::__NR_readv => files::readv(files, a, b, c),
        abi::__NR_writev => files::writev(files, a, b, c),
        abi::__NR_access => stat::faccessat(caller, HERE, a, b, 0),
        abi::__NR_pipe => files::pipe(files, a, 0),
        abi::__NR_select => poll::select(caller, args),
        abi::__NR_sched_yield => threads::sched_yield(),
        abi::__NR_mremap => memory::mremap(space, args),
        abi::__NR_msync => memory::msync(space, a, b, c),
        abi::__NR_mincore => memory::mincore(caller, a, b, c),
        abi::__NR_madvise => memory::madvise(space, a, b, c),
        abi::__NR_shmget => shm::get(space, a, b, c),
        abi::__NR_shmat => shm::at(space, a, b, c),
        abi::__NR_shmctl => shm::ctl(space, a, b),
        abi::__NR_dup => files::dup(files, a),
        abi::__NR_dup2 => files::dup2(files, a, b),
        abi::__NR_pause => signals::pause(),
        abi::__NR_nanosleep => time::nanosleep(a, b),
        abi::__NR_getitimer => signals::getitimer(caller, a, b),
        abi::__NR_alarm => signals::alarm(caller, a),
        abi::__NR_setitimer => signals::setitimer(caller, a, b, c),
        abi::__NR_getpid => threads::getpid(),
        abi::__NR_sendfile => files::sendfile(files, args),
        abi::__NR_clone => threads::clone(caller, a, b, c, d, e),
        abi::__NR_fork => threads::fork(caller),
        abi::__NR_vfork => threads::vfork(caller),
        abi::__NR_execve => return execute(processes::execve(caller, HERE, a, b, c, 0)),
        // A status is the low 8 bits, as a parent would see it.
        abi::__NR_exit => return Reply::ExitThread((a & 0xff) as i32),
        abi::__NR_wait4 => processes::wait4(caller, a, b, c, d),
        abi::__NR_kill => signals::kill(caller, a, b),
        abi::__NR_uname => processes::uname(a),
        abi::__NR_shmdt => shm::dt(space, a),
        abi::__NR_fcntl => files::fcntl(files, a, b, c),
        abi::__NR_fsync | abi::__NR_fdatasync => files::fsync(files, a),
        abi::__NR_truncate => stat::truncate(caller, a, b),
        abi::__NR_ftruncate => files::ftruncate(files, a, b),
        abi::__NR_getcwd => folders::getcwd(caller, a, b),
        abi::__NR_chdir => folders::chdir(caller, a),
        abi::__NR_fchdir => folders::fchdir(caller, a),
        abi::__NR_rename => paths::renameat(caller, [HERE, a, HERE, b, 0, 0]),
        abi::__NR_mkdir => paths::mkdirat(caller, HERE, a, b),
        abi::__NR_rmdir => paths::unlinkat(caller, HERE, a, FOLDER),
        abi::__NR_creat => paths::openat(caller, HERE, a, CREATE, b),
        abi::__NR_link => paths::linkat(caller, [HERE, a, HERE, b, 0, 0]),
        abi::__NR_unlink => paths::unlinkat(caller, HERE, a, 0),
        abi::__NR_symlink => paths::symlinkat(caller, a, HERE, b),
        abi::__NR_readlink => paths::readlinkat(caller, HERE, a, b, c),
        abi::__NR_chmod => stat::fchmodat(caller, HERE, a, b),
        abi::__NR_fchmod => stat::fchmod(caller, a, b),
        abi::__NR_chown => stat::fchownat(caller, [HERE, a, b, c, 0, 0]),
        abi::__NR_fchown => stat::fchown(caller, a, b, c),
        abi::__NR_lchown => stat::fchownat(caller, [HERE, a, b, c, NO_FOLLOW, 0]),
        abi::__NR_umask => folders::umask(caller, a),
        abi::__NR_gettimeofday => time::gettimeofday(a, b),
        abi::__NR_getrlimit => memory::prlimit(caller, [0, a, 0, b, 0, 0]),
        abi::__NR_getrusage => threads::getrusage(a, b),
        abi::__NR_sysinfo => processes::sysinfo(a),
        abi::__NR_times => processes::times(a),
        abi::__NR_getuid => processes::get_id(caller, Id::User, false),
        abi::__NR_getgid => processes::get_id(caller, Id::Group, false),
        abi::__NR_setuid => processes::set_id(caller, Id::User, a),
        abi::__NR_setgid => processes::set_id(caller, Id::Group, a),
        abi::__NR_geteuid => processes::get_id(caller, Id::User, true),
        abi::__NR_getegid => processes::get_id(caller, Id::Group, true),
        abi::__NR_setpgid => processes::setpgid(a, b),
        abi::__NR_getppid => threads::getppid(),
        abi::__NR_getpgrp => processes::getpgid(0),
        abi::__NR_setsid => processes::setsid(caller),
        abi::__NR_setreuid => processes::set_both(caller, Id::User, a, b),
        abi::__NR_setregid => processes::set_both(caller, Id::Group, a, b),
        abi::__NR_getgroups => processes::getgroups(a, b),
        abi::__NR_setgroups => processes::setgroups(caller, a),
        abi::__NR_setresuid => processes::set_ids(caller, Id::User, [a, b, c]),
        abi::__NR_getresuid => processes::get_ids(caller, Id::User, [a, b, c]),
        abi::__NR_setresgid => processes::set_ids(caller, Id::Group, [a, b, c]),
        abi::__NR_getresgid => processes::get_ids(caller, Id::Group, [a, b, c]),
        abi::__NR_getpgid => processes::getpgid(a),
        abi::__NR_getsid => processes::getsid(a),
        abi::__NR_rt_sigpending => signals::sigpending(a, b),
        abi::__NR_rt_sigtimedwait => signals::sigtimedwait(a, b, c, d),
        abi::__NR_rt_sigqueueinfo => signals::sigqueueinfo(caller, a, b, c),
        abi::__NR_rt_sigsuspend => signals::sigsuspend(a, b),
        abi::__NR_sigaltstack => signals::sigaltstack(caller, a, b),
        abi::__NR_mknod => paths::mknodat(caller, HERE, a, b, c),
        abi::__NR_statfs => stat::statfs(caller, a, b),
        abi::__NR_fstatfs => stat::fstatfs(caller, a, b),
        abi::__NR_getpriority => processes::getpriority(),
        abi::__NR_setpriority => processes::setpriority(c),
        abi::__NR_mlock => memory::mlock(space, a, b, 0),
        abi::__NR_munlock => memory::munlock(space, a, b),
        abi::__NR_mlockall => memory::mlockall(space, a),
        abi::__NR_munlockall => memory::munlockall(space),
        abi::__NR_prctl => processes::prctl(a, b),
        abi::__NR_arch_prctl => threads::arch_prctl(a, b),
        abi::__NR_setrlimit => memory::prlimit(caller, [0, a, b, 0, 0, 0]),
        // All that is written is in memory, where it stays.
        abi::__NR_sync => Ok(0),
        abi::__NR_mount => folders::mount(caller, args),
        abi::__NR_umount2 => folders::umount(caller, a, b),
        abi::__NR_gettid => threads::gettid(),
        abi::__NR_tkill => signals::tkill(caller, a, b),
        abi::__NR_time => time::time(a),
        abi::__NR_futex => threads::futex(caller, args),
        abi::__NR_sched_setaffinity => threads::sched_setaffinity(a, b, c),
        abi::__NR_sched_getaffinity => threads::sched_getaffinity(a, b, c),
        abi::__NR_getdents64 => folders::getdents(caller, a, b, c),
        abi::__NR_set_tid_address => threads::set_tid_address(a),
        abi::__NR_restart_syscall => time::restart(),
        abi::__NR_fadvise64 => files::fadvise(files, a, d),
        abi::__NR_clock_gettime => time::clock_gettime(a, b),
        abi::__NR_clock_getres => time::clock_getres(a, b),
        abi::__NR_clock_nanosleep => time::clock_nanosleep(a, b, c, d),
        abi::__NR_exit_group => return Reply::Exit((a & 0xff) as i32),
        abi::__NR_tgkill => signals::tgkill(caller, a, b, c),
        abi::__NR_waitid => processes::waitid(caller, args),
        abi::__NR_openat => paths::openat(caller, a, b, c, d),
        abi::__NR_mkdirat => paths::mkdirat(caller, a, b, c),
        abi::__NR_mknodat => paths::mknodat(caller, a, b, c, d),
        abi::__NR_fchownat => stat::fchownat(caller, args),
        abi::__NR_newfstatat => stat::fstatat(caller, a, b, c, d),
        abi::__NR_unlinkat => paths::unlinkat(caller, a, b, c),
        abi::__NR_renameat => paths::renameat(caller, [a, b, c, d, 0, 0]),
        abi::__NR_linkat => paths::linkat(caller, args),
        abi::__NR_symlinkat => paths::symlinkat(caller, a, b, c),
        abi::__NR_readlinkat => paths::readlinkat(caller, a, b, c, d),
        abi::__NR_fchmodat => stat::fchmodat(caller, a, b, c),
        abi::__NR_faccessat => stat::faccessat(caller, a, b, c, 0),
        abi::__NR_pselect6 => poll::pselect(caller, args),
        abi::__NR_ppoll => poll::ppoll(caller, args),
        abi::__NR_set_robust_list => threads::set_robust_list(a, b),
        abi::__NR_utimensat => stat::utimensat(caller, a, b, c, d),
        abi::__NR_fallocate => files::fallocate(files, args),
        abi::__NR_dup3 => files::dup3(files, a, b, c),
        abi::__NR_pipe2 => files::pipe(files, a, b),
        abi::__NR_preadv => files::preadv(files, args),
        abi::__NR_pwritev => files::pwritev(files, args),
        abi::__NR_rt_tgsigqueueinfo => signals::tgsigqueueinfo(caller, args),
        abi::__NR_prlimit64 => memory::prlimit(caller, args),
        abi::__NR_getcpu => threads::getcpu(a, b),
        abi::__NR_renameat2 => paths::renameat(caller, args),
        abi::__NR_getrandom => processes::getrandom(a, b, c),
        abi::__NR_memfd_create => files::memfd_create(caller, a, b),
        abi::__NR_execveat => return execute(processes::execve(caller, a, b, c, d, e)),
        abi::__NR_mlock2 => memory::mlock(space, a, b, c),
        abi::__NR_statx => stat::statx(caller, args),
        abi::__NR_clone3 => threads::clone3(caller, a, b),
        abi::__NR_close_range => files::close_range(files, a, b, c),
        abi::__NR_faccessat2 => stat::faccessat(caller, a, b, c, d),
        number => {
            names::say_missing(number);
            Err(ENOSYS)
        }
    })
}

fn execute(image: Result<Image, Errno>) -> Reply {
    match image {
        Ok(image) => Reply::Execute(image),
        Err(error) => Reply::Return(Err(error)),
    }
}
