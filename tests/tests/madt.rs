//! The kernel's reader of ACPI's list of CPUs: good tables, bad tables, any bytes.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

#[path = "../../kernel/src/acpi.rs"]
mod acpi;

use acpi::{AcpiError, MAX_CPUS, Madt, Physical};

/// Where the tables lie in [`Memory`].
const RSDP: u64 = 0x1000;
const ROOT: u64 = 0x1100;
const OTHER: u64 = 0x1200;
const MADT: u64 = 0x1300;
/// The physical address of the first byte of [`Memory`].
const BASE: u64 = 0x1000;

/// Some physical memory.
#[derive(Clone)]
struct Memory(Vec<u8>);

impl Physical for Memory {
    fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
        let from = at.checked_sub(BASE).and_then(|at| usize::try_from(at).ok());
        let bytes = from.and_then(|from| self.0.get(from..from.checked_add(to.len())?));
        bytes.map(|bytes| to.copy_from_slice(bytes)).is_some()
    }
}

impl Memory {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        let from = usize::try_from(at - BASE).expect("small");
        let end = from + bytes.len();
        self.0.resize(self.0.len().max(end), 0);
        self.0[from..end].copy_from_slice(bytes);
    }
}

/// A table with its length and its checksum.
fn table(signature: &[u8; 4], contents: &[u8]) -> Vec<u8> {
    let mut table = vec![0; 36];
    table[..4].copy_from_slice(signature);
    table.extend_from_slice(contents);
    let len = u32::try_from(table.len()).expect("small");
    table[4..8].copy_from_slice(&len.to_le_bytes());
    balance(&mut table, 9);
    table
}

/// Makes the bytes add up to zero by the one at `at`.
fn balance(bytes: &mut [u8], at: usize) {
    bytes[at] = 0;
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[at] = sum.wrapping_neg();
}

/// Memory with a root pointer of either revision, and a MADT of these entries behind another table.
fn memory(revision: u8, entries: &[Vec<u8>]) -> Memory {
    let mut pointer = [0; 36];
    pointer[..8].copy_from_slice(b"RSD PTR ");
    pointer[15] = revision;
    let root = if revision < 2 {
        pointer[16..20].copy_from_slice(&u32::try_from(ROOT).expect("small").to_le_bytes());
        let list = [OTHER, MADT].map(|at| u32::try_from(at).expect("small").to_le_bytes());
        table(b"RSDT", list.as_flattened())
    } else {
        pointer[20..24].copy_from_slice(&36_u32.to_le_bytes());
        pointer[24..32].copy_from_slice(&ROOT.to_le_bytes());
        table(b"XSDT", [OTHER, MADT].map(u64::to_le_bytes).as_flattened())
    };
    balance(&mut pointer[..20], 8);
    balance(&mut pointer, 32);
    let mut contents = 0xfee0_0000_u32.to_le_bytes().to_vec();
    contents.extend([0; 4]);
    contents.extend(entries.concat());
    let mut memory = Memory(Vec::new());
    memory.put(RSDP, &pointer);
    memory.put(ROOT, &root);
    memory.put(OTHER, &table(b"FACP", &[7; 20]));
    memory.put(MADT, &table(b"APIC", &contents));
    memory
}

/// An entry of a local APIC.
fn cpu(id: u8, flags: u32) -> Vec<u8> {
    [&[0, 8, id, id][..], &flags.to_le_bytes()].concat()
}

/// An entry of an I/O APIC, which is of no interest.
fn io_apic() -> Vec<u8> {
    vec![1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]
}

#[test]
fn enabled_cpus_are_listed() {
    let entries = [
        cpu(0, 1),
        io_apic(),
        cpu(3, 1),
        cpu(4, 0),
        cpu(5, 2),
        cpu(3, 1),
    ];
    for revision in [0, 2] {
        let madt = Madt::find(RSDP, &mut memory(revision, &entries)).expect("a good table");
        assert_eq!(madt.apic_ids(), [0, 3]);
        assert_eq!(madt.local_apic, 0xfee0_0000);
        assert_eq!(madt.left_out, 0);
    }
}

#[test]
fn what_cannot_be_used_is_counted() {
    let mut entries: Vec<_> = (0..100).map(|id| cpu(id, 1)).collect();
    // An x2APIC, enabled, and the address of the local APICs beyond 4 GiB.
    entries.push([&[9, 16, 0, 0, 0, 1, 0, 0, 1][..], &[0; 7]].concat());
    entries.push([&[5, 12, 0, 0][..], &0x1_fee0_0000_u64.to_le_bytes()].concat());
    let madt = Madt::find(RSDP, &mut memory(2, &entries)).expect("a good table");
    assert_eq!(madt.apic_ids().len(), MAX_CPUS);
    assert_eq!(madt.left_out, 37);
    assert_eq!(madt.local_apic, 0x1_fee0_0000);
}

#[test]
fn what_is_wrong_is_said() {
    let find = |memory: &mut Memory| Madt::find(RSDP, memory).expect_err("a bad table");
    let good = memory(2, &[cpu(0, 1)]);
    assert_eq!(Madt::find(0, &mut good.clone()), Err(AcpiError::NoRoot));
    assert_eq!(
        Madt::find(u64::MAX, &mut good.clone()),
        Err(AcpiError::Unreadable)
    );
    assert_eq!(
        Madt::find(ROOT, &mut good.clone()),
        Err(AcpiError::Signature)
    );
    let mut cut = good.clone();
    cut.0.truncate(cut.0.len() - 1);
    assert_eq!(find(&mut cut), AcpiError::Unreadable);
    let mut flipped = good.clone();
    flipped.put(MADT + 40, &[1]);
    assert_eq!(find(&mut flipped), AcpiError::Checksum);
    let mut none = good;
    none.put(MADT, b"HPET");
    assert_eq!(find(&mut none), AcpiError::NoMadt);
    for entry in [
        vec![0, 0],
        vec![0, 7, 0, 0, 1, 0, 0],
        vec![0, 9, 0, 0, 1, 0, 0, 0],
    ] {
        assert_eq!(find(&mut memory(0, &[entry])), AcpiError::Length);
    }
    // A table too short for what every MADT has.
    let mut short = memory(0, &[]);
    short.put(MADT, &table(b"APIC", &[0; 4]));
    assert_eq!(find(&mut short), AcpiError::Length);
}

/// Every byte as any of some values, with and without a checksum that suits: an answer, no panic.
#[test]
fn no_byte_makes_it_panic() {
    for revision in [0, 2] {
        let good = memory(revision, &[cpu(0, 1), io_apic(), cpu(1, 1)]);
        let tables = [(RSDP, 36), (ROOT, 52), (MADT, 72)];
        for at in 0..good.0.len() {
            for value in [0, 1, 2, 7, 0x24, 0x80, 0xff] {
                let mut bad = good.clone();
                bad.0[at] = value;
                let _any = Madt::find(RSDP, &mut bad);
                for (table, len) in tables {
                    let start = usize::try_from(table - BASE).expect("small");
                    let end = (start + len).min(bad.0.len());
                    let checksum = if table == RSDP { 8 } else { 9 };
                    balance(&mut bad.0[start..end], checksum);
                }
                let _any = Madt::find(RSDP, &mut bad);
            }
        }
    }
}
