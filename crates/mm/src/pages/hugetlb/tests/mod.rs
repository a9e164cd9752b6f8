//! Pools and reservations on a machine of real threads.
extern crate std;

mod mappings;
mod moving;
mod pool;
mod reserve;

use crate::base::config::era;
use crate::boot::Running;
use crate::system::System;
use minflt_host::{Host, HostInstance, HostOptions, Prefault};
use minflt_pgtable::{Paging, X86_64};

type X86 = Host<X86_64, true>;

/// Four CPUs and 64 MiB on two nodes.
fn boot<P: Paging>() -> Running<Host<P, true>> {
    let options = HostOptions {
        cpus: 4,
        ram_bytes: 64 << 20,
        prefault: Prefault::OnTouch,
    };
    let machine = HostInstance::new(&options).expect("memory").with_nodes(2);
    let config = era("linux-6.4").expect("an era").config;
    System::boot(machine, config).expect("boots")
}
