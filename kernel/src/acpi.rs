//! The CPUs that the firmware lists: ACPI's MADT.
//!
//! Layout: ACPI specification 6.5, 5.2.5 (RSDP, RSDT, XSDT) and 5.2.12 (MADT). Every length and
//! checksum is looked at, and every loop is bounded: what does not hold is an error, not a panic.
//! Memory is reached through [`Physical`] alone.

use core::fmt;

/// The most CPUs that are kept.
pub(crate) const MAX_CPUS: usize = 64;

/// The longest table that is believed.
const LONGEST: u32 = 1 << 20;
/// Bytes of a table before its own contents.
const HEADER: u32 = 36;
/// Bytes of the MADT before its first entry.
const ENTRIES: u64 = 44;
/// Flag of an entry: the CPU may be used.
const ENABLED: u32 = 1 << 0;

/// How physical memory is read.
pub(crate) trait Physical {
    /// Copies from physical address `at`; false if there is nothing.
    fn read(&mut self, at: u64, to: &mut [u8]) -> bool;
}

/// Why there is no list of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcpiError {
    /// The loader names no tables.
    NoRoot,
    /// A table is where no memory is, or is cut off.
    Unreadable,
    /// A table has another signature than it must have.
    Signature,
    /// A table or an entry of it has an impossible length.
    Length,
    /// The bytes of a table do not add up to zero.
    Checksum,
    /// There is no MADT.
    NoMadt,
}

impl fmt::Display for AcpiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoot => "the loader names no ACPI tables",
            Self::Unreadable => "an ACPI table cannot be read",
            Self::Signature => "an ACPI table has the wrong signature",
            Self::Length => "an ACPI table has an impossible length",
            Self::Checksum => "an ACPI table has the wrong checksum",
            Self::NoMadt => "ACPI has no MADT",
        })
    }
}

/// What the MADT says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Madt {
    /// The physical address of the local APICs' registers.
    pub(crate) local_apic: u64,
    /// Enabled CPUs that are not in [`Madt::apic_ids`]: there are too many, or their number needs
    /// an x2APIC.
    pub(crate) left_out: u32,
    ids: [u8; MAX_CPUS],
    len: usize,
}

impl Madt {
    /// Finds the MADT and reads it. `rsdp` is the physical address of the root pointer, 0 for none.
    pub(crate) fn find(rsdp: u64, memory: &mut impl Physical) -> Result<Self, AcpiError> {
        let (tables, width) = root(rsdp, memory)?;
        let len = table(tables, width.signature(), memory)?;
        let count = u64::from(len - HEADER) / width.bytes();
        for index in 0..count {
            let at = tables + u64::from(HEADER) + index * width.bytes();
            let address = match width {
                Width::Four => u64::from(u32::from_le_bytes(bytes(at, memory)?)),
                Width::Eight => u64::from_le_bytes(bytes(at, memory)?),
            };
            // Others may be broken: they are not ours.
            if bytes::<4>(address, memory) == Ok(*b"APIC") {
                let len = table(address, *b"APIC", memory)?;
                return Self::read(address, u64::from(len), memory);
            }
        }
        Err(AcpiError::NoMadt)
    }

    /// The numbers of the local APICs of enabled CPUs, as listed.
    pub(crate) fn apic_ids(&self) -> &[u8] {
        &self.ids[..self.len]
    }

    /// Reads the table at `at`, whose length and checksum are right.
    fn read(at: u64, len: u64, memory: &mut impl Physical) -> Result<Self, AcpiError> {
        const LOCAL_APIC: u8 = 0;
        const LOCAL_APIC_ADDRESS: u8 = 5;
        const LOCAL_X2APIC: u8 = 9;
        if len < ENTRIES {
            return Err(AcpiError::Length);
        }
        let address = u32::from_le_bytes(bytes(at + u64::from(HEADER), memory)?);
        let mut madt = Self {
            local_apic: u64::from(address),
            left_out: 0,
            ids: [0; MAX_CPUS],
            len: 0,
        };
        let mut offset = ENTRIES;
        while offset + 2 <= len {
            let entry = at + offset;
            let [kind, size] = bytes(entry, memory)?;
            let size = u64::from(size);
            let least = match kind {
                LOCAL_APIC => 8,
                LOCAL_APIC_ADDRESS => 12,
                LOCAL_X2APIC => 16,
                _ => 2,
            };
            if size < least || size > len - offset {
                return Err(AcpiError::Length);
            }
            match kind {
                LOCAL_APIC => {
                    let [_, id] = bytes(entry + 2, memory)?;
                    let flags = u32::from_le_bytes(bytes(entry + 4, memory)?);
                    madt.note(id, flags);
                }
                LOCAL_APIC_ADDRESS => {
                    madt.local_apic = u64::from_le_bytes(bytes(entry + 4, memory)?);
                }
                LOCAL_X2APIC => {
                    let flags = u32::from_le_bytes(bytes(entry + 8, memory)?);
                    madt.left_out += u32::from(flags & ENABLED != 0);
                }
                _ => {}
            }
            offset += size;
        }
        Ok(madt)
    }

    /// Keeps a CPU, unless it is disabled or there already.
    fn note(&mut self, id: u8, flags: u32) {
        if flags & ENABLED == 0 || self.apic_ids().contains(&id) {
            return;
        }
        match self.ids.get_mut(self.len) {
            Some(slot) => {
                *slot = id;
                self.len += 1;
            }
            None => self.left_out += 1,
        }
    }
}

/// How wide the addresses in the root table are.
#[derive(Clone, Copy, Debug)]
enum Width {
    Four,
    Eight,
}

impl Width {
    const fn bytes(self) -> u64 {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    const fn signature(self) -> [u8; 4] {
        match self {
            Self::Four => *b"RSDT",
            Self::Eight => *b"XSDT",
        }
    }
}

/// The root table that the root pointer at `rsdp` names.
fn root(rsdp: u64, memory: &mut impl Physical) -> Result<(u64, Width), AcpiError> {
    if rsdp == 0 {
        return Err(AcpiError::NoRoot);
    }
    let first: [u8; 20] = bytes(rsdp, memory)?;
    if !first.starts_with(b"RSD PTR ") {
        return Err(AcpiError::Signature);
    }
    if sum(&first) != 0 {
        return Err(AcpiError::Checksum);
    }
    let revision = first[15];
    if revision >= 2 {
        let all: [u8; 36] = bytes(rsdp, memory)?;
        if sum(&all) != 0 {
            return Err(AcpiError::Checksum);
        }
        let at = u64::from_le_bytes(bytes(rsdp + 24, memory)?);
        if at != 0 {
            return Ok((at, Width::Eight));
        }
    }
    let at = u32::from_le_bytes(bytes(rsdp + 16, memory)?);
    Ok((u64::from(at), Width::Four))
}

/// The length of the table at `at`, if it has this signature and its bytes add up to zero.
fn table(at: u64, signature: [u8; 4], memory: &mut impl Physical) -> Result<u32, AcpiError> {
    if bytes::<4>(at, memory)? != signature {
        return Err(AcpiError::Signature);
    }
    let len = u32::from_le_bytes(bytes(at.saturating_add(4), memory)?);
    let end = at.checked_add(u64::from(len));
    if !(HEADER..=LONGEST).contains(&len) || end.is_none() {
        return Err(AcpiError::Length);
    }
    let mut total = 0_u8;
    let mut piece = [0; 64];
    for offset in (0..len).step_by(piece.len()) {
        let rest = (len - offset).min(piece.len() as u32) as usize;
        let piece = &mut piece[..rest];
        if !memory.read(at + u64::from(offset), piece) {
            return Err(AcpiError::Unreadable);
        }
        total = total.wrapping_add(sum(piece));
    }
    if total == 0 {
        Ok(len)
    } else {
        Err(AcpiError::Checksum)
    }
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn bytes<const N: usize>(at: u64, memory: &mut impl Physical) -> Result<[u8; N], AcpiError> {
    let mut bytes = [0; N];
    if memory.read(at, &mut bytes) {
        Ok(bytes)
    } else {
        Err(AcpiError::Unreadable)
    }
}
