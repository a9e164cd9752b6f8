//! The locks of `sync`, the interrupts and the memory, on real threads.

mod bytes;
mod embedding;
mod file;
mod file_copy;
mod grace;
mod holes;
mod interrupts;
mod kernel_pages;
mod linux;
mod locks;
mod memory;
mod order;
mod rcu;
mod slab;
mod spaces;
mod wait_table;

use crate::{Host, HostInstance, HostOptions, Prefault};
use core::panic::AssertUnwindSafe;
use core::ptr::NonNull;
use minflt_mm::{Running, System, era};
use minflt_pgtable::X86_64;
use minflt_sync::percpu::APART;
use minflt_sync::{Cx, Instance, Machine, PerCpu, Ram};
use std::panic::catch_unwind;
use std::sync::Barrier;

/// Rounds for an interpreter where threads do that many: it checks each access, and need not wait
/// for the rare one that goes wrong. A multiple of 8.
pub(crate) const fn rounds(of_threads: u64) -> u64 {
    match of_threads / 4000 {
        _ if !cfg!(miri) => of_threads,
        0..8 => 8,
        few => few & !7,
    }
}

/// The machine under test.
pub(crate) type M = Host<X86_64, true>;

pub(crate) fn machine(cpus: u32) -> HostInstance {
    let options = HostOptions {
        cpus,
        ram_bytes: 16 << 20,
        prefault: Prefault::OnTouch,
    };
    HostInstance::new(&options).unwrap()
}

/// A system of `cpus` CPUs in the era `name`.
pub(crate) fn boot(cpus: u32, name: &str) -> Running<M> {
    System::boot(machine(cpus), era(name).unwrap().config).unwrap()
}

/// Runs `body(cpu)` on every CPU of `at` at once and waits for all.
pub(crate) fn on_all_cpus(at: &HostInstance, body: impl Fn(u32) + Sync) {
    let start = Barrier::new(at.cpus() as usize);
    std::thread::scope(|scope| {
        for cpu in 0..at.cpus() {
            let (body, start) = (&body, &start);
            scope.spawn(move || {
                start.wait();
                let _cpu = at.enter(cpu);
                body(cpu);
            });
        }
    });
}

/// Areas of all CPUs, at byte `offset` of the machine's memory.
pub(crate) fn per_cpu<T>(
    at: &HostInstance,
    offset: usize,
    init: impl FnMut(u32) -> T,
) -> PerCpu<T, M> {
    let Ram { base, bytes } = at.ram();
    assert!(offset.is_multiple_of(APART) && offset + PerCpu::<T, M>::bytes(at.cpus()) <= bytes);
    // SAFETY: within the machine's memory.
    let area = unsafe { base.add(offset) };
    // SAFETY: 1: within the memory, aligned, and each test gives each offset away once.
    unsafe { PerCpu::build(NonNull::new(area).unwrap(), at.cpus(), init) }
}

pub(crate) fn me<'a>() -> &'a Cx {
    // SAFETY: duty 1 of `Machine`; the tests do not keep it.
    unsafe { &*M::cx() }
}

/// What `body` said when it panicked.
pub(crate) fn words_of(body: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().unwrap()).to_owned(),
    }
}
