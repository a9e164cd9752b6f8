//! `minflt calibrate --host`: a machine file of the machine this program runs on.
//!
//! It models what the target `host` does here: threads on this machine's processors over a software
//! MMU. So faults, system calls and interrupts cost what a call costs, not what the processor's own
//! would. What a program without privileges can measure is measured ([`Probe`]); the rest is what
//! a machine of the age is guessed to need.

use crate::error::{Error, failed};
use crate::machine;
use minflt_host::Probe;
use minflt_sim::machine_file::{MachineFile, Source, Sourced};
use std::fs;

/// The name that results of it carry.
pub(crate) const NAME: &str = "this-host";

/// A shipped machine of the same kind, for what cannot be measured.
const LIKE: &str = "icx-vm48";

/// The machine file of this machine, as it is found to be now.
pub(crate) fn preset() -> Result<MachineFile, Error> {
    let probe = &Probe::take(machine::cpus() as u32);
    let mut file = MachineFile::unfitted(LIKE).map_err(|error| failed(LIKE)(&error))?;
    file.name = NAME.into();
    file.title = format!(
        "this machine, as the target host uses it: {}",
        machine::line()
    );
    file.uneven = None;
    file.snoops = None;
    let all: Vec<_> = file
        .numbers()
        .map(|(table, key, it)| (format!("{table}.{key}"), it.value))
        .collect();
    for (key, value) in all {
        guess(
            &mut file,
            &key,
            value,
            "not measured: as icx-vm48, a machine of the kind",
        );
    }
    count(&mut file);
    measured(&mut file, probe);
    guesses(&mut file);
    Ok(file)
}

/// What the operating system says.
fn count(file: &mut MachineFile) {
    let cpus = machine::cpus() as f64;
    let siblings = if cpus > 1.0 { siblings() } else { 1.0 };
    let counted = "counted by the operating system";
    set(file, "shape.cpus", cpus, counted);
    set(file, "shape.cpus_per_core", siblings, counted);
    for key in ["die", "group", "node"] {
        set(
            file,
            &format!("shape.cpus_per_{key}"),
            cpus,
            "taken as one die",
        );
    }
    set(
        file,
        "shape.ram_mib",
        1024.0,
        "what the target host takes if not told",
    );
}

fn measured(file: &mut MachineFile, probe: &Probe) {
    let mine = "measured by minflt calibrate --host";
    set(file, "ns.hit", probe.hit, mine);
    set(file, "ns.rmw_hit", probe.rmw_hit.max(probe.hit), mine);
    if let Some(transfer) = probe.transfer {
        for key in ["ns.smt", "ns.die", "ns.far1", "ns.far2"] {
            set(file, key, transfer, mine);
        }
    }
    set(file, "ns.dram_local", probe.memory, mine);
    set(file, "ns.dram_far", probe.memory, mine);
    set(file, "ns.cold", probe.memory, mine);
    if let Some(wake) = probe.wake {
        set(file, "ns.wake", wake, mine);
    }
    let overlap = (probe.memory / probe.independent).round().max(1.0);
    set(file, "shape.overlap", overlap, mine);
    set(file, "bytes_per_us.clear_local", probe.clear, mine);
    set(file, "bytes_per_us.clear_far", probe.clear, mine);
    set(file, "bytes_per_us.copy", probe.copy, mine);
    set(
        file,
        "bytes_per_us.node",
        probe.clear_together.max(probe.clear),
        mine,
    );
}

/// What a software MMU does in place of a processor.
fn guesses(file: &mut MachineFile) {
    let call = "a call: the software MMU calls the handler";
    for key in ["ns.trap", "ns.syscall", "ns.walk"] {
        guess(file, key, 5.0, call);
    }
    guess(
        file,
        "ns.invalidate_page",
        5.0,
        "a store into the software translation buffer",
    );
    guess(
        file,
        "ns.ipi_send",
        50.0,
        "a flag that the other thread polls",
    );
    for key in ["ns.ipi_near", "ns.ipi_far"] {
        guess(
            file,
            key,
            200.0,
            "a flag that the other thread polls at its next access",
        );
    }
    guess(file, "ns.ipi_handle", 20.0, "a call");
    guess(file, "ns.free_page", 20.0, "back to the list of the CPU");
}

fn set(file: &mut MachineFile, key: &str, value: f64, cite: &str) {
    put(file, key, value, Source::Measured, cite);
}

fn guess(file: &mut MachineFile, key: &str, value: f64, cite: &str) {
    put(file, key, value, Source::Guess, cite);
}

fn put(file: &mut MachineFile, key: &str, value: f64, src: Source, cite: &str) {
    if let Some(number) = file.number_mut(key) {
        let value = if key.starts_with("shape.") {
            value
        } else {
            (value * 100.0).round() / 100.0
        };
        *number = Sourced {
            value,
            src,
            cite: cite.into(),
        };
    }
}

/// CPUs that share CPU 0's core.
fn siblings() -> f64 {
    let path = "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list";
    let list = fs::read_to_string(path).unwrap_or_default();
    list.trim().split([',', '-']).count().max(1) as f64
}
