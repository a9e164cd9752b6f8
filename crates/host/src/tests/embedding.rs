//! What an embedder may do wrong, or at an odd place: handles dropped off a CPU, threads that block
//! in the host.

use super::{M, boot, machine, words_of};
use crate::{CpuGuard, Host, Unanswered};
use core::error::Error;
use core::panic::AssertUnwindSafe;
use core::time::Duration;
use minflt_addr::VirtAddr;
use minflt_mm::{
    Advice, BootError, FileHandle, LockAll, LockWhen, MapRequest, MmHandle, NegativeControl, Place,
    Populate, Prot, Remap, RemapRequest, Running, Sharing, System, eras_without_migration,
};
use minflt_pgtable::X86_64;
use std::panic::catch_unwind;
use std::sync::{Mutex, mpsc};

/// An address space that has a page of its own, and one of a file; and the file. On a CPU.
fn used<'s>(sys: &'s System<M>) -> (MmHandle<'s, M>, FileHandle<'s, M>) {
    let mm = sys.new_mm().unwrap();
    let file = sys.new_file(2 * 4096).unwrap();
    let own = mm.mmap(Place::Any, 4096, Prot::READ_WRITE).unwrap();
    let request = MapRequest::new(Place::Any, 2 * 4096, Prot::READ_WRITE);
    let shared = mm.mmap_file(&request, &file, 0, Sharing::Shared).unwrap();
    let thread = mm.thread();
    for at in [own, shared, VirtAddr(shared.0 + 4096)] {
        thread.store(at, 7).unwrap();
    }
    drop(thread);
    (mm, file)
}

/// Every frame is free or the system's own. On a CPU.
fn balanced(sys: &System<M>) {
    let ledger = sys.check_ledger(&[]).unwrap();
    assert_eq!(
        (ledger.anon, ledger.file, ledger.tables),
        (0, 0, 0),
        "{ledger:?}"
    );
}

#[test]
fn handles_may_be_dropped_by_a_thread_that_is_no_cpu() {
    for era in eras_without_migration() {
        let sys = boot(2, era.name);
        let cpu = sys.machine().enter(0);
        let (mm, file) = used(&sys);
        let child = mm.fork().unwrap();
        drop(cpu);
        drop((mm, child, file));
        // Done already, and not only when somebody asks.
        assert_eq!(sys.machine().jobs_waiting(), 0);
        let _cpu = sys.machine().enter(0);
        balanced(&sys);
    }
}

/// There is no CPU for a teardown: it waits until one is left, or the ledger is asked for.
#[test]
fn a_teardown_waits_while_every_cpu_is_taken() {
    let sys = boot(1, "linux-6.15");
    let (send, receive) = mpsc::channel();
    let (dropped, was_dropped) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let handles: Vec<(MmHandle<'_, M>, FileHandle<'_, M>)> = receive.recv().unwrap();
            drop(handles);
            dropped.send(()).unwrap();
        });
        let cpu = sys.machine().enter(0);
        let kept = used(&sys);
        send.send(vec![used(&sys), used(&sys)]).unwrap();
        was_dropped.recv().unwrap();
        assert_ne!(sys.machine().jobs_waiting(), 0);
        drop(kept);
        balanced(&sys);
        assert_eq!(sys.machine().jobs_waiting(), 0);
        let (mm, file) = used(&sys);
        std::thread::scope(|inner| {
            inner.spawn(move || drop((mm, file)));
        });
        assert_ne!(sys.machine().jobs_waiting(), 0);
        drop(cpu);
        assert_eq!(sys.machine().jobs_waiting(), 0);
    });
    let _cpu = sys.machine().enter(0);
    balanced(&sys);
}

#[test]
fn a_handle_may_be_dropped_while_its_thread_unwinds() {
    let sys = boot(1, "spf-2017");
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let cpu = sys.machine().enter(0);
        let _handles = used(&sys);
        drop(cpu);
        panic!("the embedder's own");
    }));
    assert!(unwound.is_err());
    assert_eq!(sys.machine().jobs_waiting(), 0);
    let _cpu = sys.machine().enter(0);
    balanced(&sys);
}

/// A CPU of one machine is none of another: nobody may use an area that is not its own.
#[test]
fn a_cpu_of_another_machine_is_no_cpu_of_this() {
    let (sys, other) = (boot(1, "best"), machine(1));
    let cpu = sys.machine().enter(0);
    let handles = used(&sys);
    std::thread::scope(|scope| {
        let (sys, other) = (&sys, &other);
        scope.spawn(move || {
            let _cpu = other.enter(0);
            drop(handles);
            assert_ne!(sys.machine().jobs_waiting(), 0);
        });
    });
    drop(cpu);
    let _cpu = sys.machine().enter(0);
    balanced(&sys);
}

/// CPU 1 has loaded from a page, and then its thread rests as `rest` has it until it is told to go
/// on. CPU 0 unmaps the page, which has to wait for CPU 1's translation to go. `told`, on a third
/// thread, says when CPU 1 goes on.
fn unmaps_beside(
    sys: &System<M>,
    rest: impl Fn(&CpuGuard<'_>, &dyn Fn()) + Sync,
    told: impl FnOnce(mpsc::Sender<()>, mpsc::Receiver<()>) + Send,
) {
    let (go_on, may_go_on) = mpsc::channel();
    let (resting, rests) = mpsc::channel();
    let (unmapped, is_unmapped) = mpsc::channel();
    let cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let page = mm.mmap(Place::Any, 4096, Prot::READ_WRITE).unwrap();
    mm.thread().store(page, 7).unwrap();
    std::thread::scope(|scope| {
        let (mm, rest) = (&mm, &rest);
        scope.spawn(move || told(go_on, is_unmapped));
        scope.spawn(move || {
            let cpu = sys.machine().enter(1);
            let thread = mm.thread();
            assert_eq!(thread.load(page), Ok(7));
            rest(&cpu, &|| {
                resting.send(()).unwrap();
                may_go_on.recv().unwrap();
            });
            // Its own again, and the page is gone.
            assert!(thread.load(page).is_err());
        });
        rests.recv().unwrap();
        mm.munmap(page, 4096).unwrap();
        unmapped.send(()).unwrap();
    });
    drop((mm, cpu));
    assert_eq!(sys.machine().failed(), None);
}

/// A machine of two CPUs whose watchdog bites at once, and what it reports.
fn watched() -> (Running<M>, mpsc::Receiver<Unanswered>) {
    let (report, reports) = mpsc::channel();
    let told = move |unanswered: &Unanswered| {
        let _listened = report.send(unanswered.clone());
    };
    let machine = machine(2).with_watchdog(Duration::ZERO, told);
    let config = minflt_mm::era("linux-6.15").unwrap().config;
    (System::boot(machine, config).unwrap(), reports)
}

#[test]
fn who_waits_for_a_thread_that_blocks_says_so_once_and_goes_on_waiting() {
    let (sys, reports) = watched();
    let seen = &Mutex::new(None);
    let rest = |_: &CpuGuard<'_>, until_told: &dyn Fn()| until_told();
    unmaps_beside(&sys, rest, move |go_on, is_unmapped| {
        let report = reports.recv().unwrap();
        // It waits: the thread that it waits for has not been told yet.
        assert!(is_unmapped.try_recv().is_err());
        go_on.send(()).unwrap();
        is_unmapped.recv().unwrap();
        assert!(reports.try_recv().is_err(), "told twice");
        *seen.lock().unwrap() = Some(report);
    });
    let report = seen.lock().unwrap().take().unwrap();
    assert_eq!((report.waiting, &*report.silent), (0, &[1][..]));
    let text = report.to_string();
    assert!(text.starts_with("CPU 0 has waited"), "{text}");
    assert!(text.contains("for CPU 1: "), "{text}");
}

#[test]
fn a_thread_that_is_away_keeps_nobody_waiting() {
    let (sys, reports) = watched();
    let rest = |cpu: &CpuGuard<'_>, until_told: &dyn Fn()| cpu.away(until_told);
    unmaps_beside(&sys, rest, |go_on, is_unmapped| {
        is_unmapped.recv().unwrap();
        go_on.send(()).unwrap();
    });
    assert!(reports.try_recv().is_err());
}

/// Others use the CPU's translation buffer meanwhile.
#[test]
fn a_thread_that_is_away_cannot_load_or_store() {
    let sys = boot(1, "best");
    let cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let page = mm.mmap(Place::Any, 4096, Prot::READ_WRITE).unwrap();
    let thread = mm.thread();
    thread.store(page, 7).unwrap();
    let words = words_of(|| assert_eq!(cpu.away(|| thread.load(page)), Ok(7)));
    assert!(words.contains("no CPU now"), "{words}");
    assert_eq!(thread.load(page), Ok(7));
    // And what is another CPU when it comes back is told so.
    let other = machine(1);
    let words = words_of(|| drop(cpu.away(|| other.enter(0))));
    assert!(words.contains("became another one"), "{words}");
    assert_eq!(thread.load(page), Ok(7));
}

/// Whatever a call or an access returns for an error can go up as a `Box<dyn Error>`.
#[test]
fn every_error_is_an_error_in_words() {
    fn in_words(errors: &[&dyn Error]) {
        for error in errors {
            let words = error.to_string();
            assert!(
                words.len() > 3 && !words.ends_with('.'),
                "{error:?}: {words}"
            );
        }
    }
    in_words(&[
        &BootError::TooManyNodes(9),
        &minflt_mm::Errno::EAGAIN,
        &minflt_mm::FileError::Io,
        &minflt_mm::HeapError::Used,
        &minflt_mm::IoError::NoSpace,
        &minflt_mm::MadviseError::Again,
        &minflt_mm::MempolicyError::Fault,
        &minflt_mm::MincoreError::Fault,
        &minflt_mm::MlockError::Again,
        &minflt_mm::MmapError::Exists,
        &minflt_mm::MovePageError::Busy,
        &minflt_mm::MprotectError::Access,
        &minflt_mm::MremapError::Limit,
        &minflt_mm::MsyncError::Io,
        &minflt_mm::MunmapError::Invalid,
        &minflt_mm::NoMemory,
        &minflt_mm::RemoteError::Fault,
        &minflt_mm::ShmatError::Invalid,
        &minflt_mm::ShmctlError::Invalid,
        &minflt_mm::ShmdtError::Invalid,
        &minflt_mm::ShmgetError::Invalid,
        &minflt_mm::UffdError::Partial(4096),
    ]);
    use minflt_mm::Signal;
    in_words(&[&Signal::MapErr, &Signal::AccErr, &Signal::Bus]);
    in_words(&[&Signal::Misaligned, &Signal::OutOfMemory]);
}

/// What changes an address space is called on it, and on a thread where pages may be faulted in.
#[test]
fn every_call_with_an_address_is_a_call_of_the_address_space() {
    let sys = boot(1, "linux-6.15");
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().unwrap();
    let request = MapRequest {
        populate: Populate::Now,
        ..MapRequest::new(Place::Any, 4 * 4096, Prot::READ_WRITE)
    };
    let at = mm.mmap_as(&request).unwrap();
    assert_eq!(mm.resident_pages_sum(), 4);
    mm.mlock(at, 4096).unwrap();
    mm.mlock2(VirtAddr(at.0 + 4096), 4096, LockWhen::OnFault)
        .unwrap();
    assert_eq!(mm.locked_bytes(), 2 * 4096);
    mm.munlock(at, 2 * 4096).unwrap();
    mm.mlockall(LockAll::CURRENT).unwrap();
    assert_eq!(mm.locked_bytes(), 4 * 4096);
    mm.munlockall();
    let shrink = RemapRequest {
        old: at,
        old_len: 4 * 4096,
        new_len: 2 * 4096,
        how: Remap::InPlace,
    };
    assert_eq!(mm.mremap(&shrink), Ok(at));
    mm.madvise(at, 4096, Advice::DontNeed).unwrap();
    // Counted at once, with no thread to add anything later.
    assert_eq!((mm.resident_pages_sum(), mm.locked_bytes()), (1, 0));
    sys.check_ledger(&[&mm]).unwrap();
}

/// A machine whose fixes are compiled in for good says so, and starts nothing that is not what it
/// was asked for.
#[test]
fn a_machine_without_controls_switches_no_fix_off() {
    let config = minflt_mm::era("linux-4.13").unwrap().config;
    let lacking = config.with_negative_control(Some(NegativeControl::NoGracePeriod));
    let refused = System::<Host<X86_64, false>>::boot(machine(1), lacking).err();
    assert_eq!(
        refused,
        Some(BootError::NoControls(NegativeControl::NoGracePeriod)),
        "it starts, and has the fix"
    );
    assert!(refused.is_some_and(|it| it.to_string().contains("no-grace-period")));
    assert!(System::<M>::boot(machine(1), lacking).is_ok());
}
