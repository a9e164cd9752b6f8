//! What an embedder may do wrong, or at an odd place: handles dropped off a CPU, threads that block
//! in the host.

use super::{M, machine};
use core::panic::AssertUnwindSafe;
use minflt_addr::VirtAddr;
use minflt_mm::{
    FileHandle, MmHandle, Place, Prot, Running, Sharing, System, eras_without_migration,
};
use std::panic::catch_unwind;
use std::sync::mpsc;

/// A system of `cpus` CPUs in the era `name`.
fn boot(cpus: u32, name: &str) -> Running<M> {
    let config = minflt_mm::era(name).unwrap().config;
    System::boot(machine(cpus), config).unwrap()
}

/// An address space that has a page of its own, and one of a file; and the file. On a CPU.
fn used<'s>(sys: &'s System<M>) -> (MmHandle<'s, M>, FileHandle<'s, M>) {
    let mm = sys.new_mm().unwrap();
    let file = sys.new_file(2 * 4096).unwrap();
    let own = mm.mmap(Place::Any, 4096, Prot::READ_WRITE).unwrap();
    let request = minflt_mm::MapRequest::new(Place::Any, 2 * 4096, Prot::READ_WRITE);
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
