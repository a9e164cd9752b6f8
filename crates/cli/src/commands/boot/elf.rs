//! Whether a file is a program that a kernel can run without others: a static one, for x86-64.

/// Where things are in an ELF header of 64 bits, and their values.
const MAGIC: &[u8] = b"\x7fELF\x02\x01";
const EXEC: u16 = 2;
const DYN: u16 = 3;
const X86_64: u16 = 62;
const INTERP: u32 = 3;

/// Why the program in `bytes` cannot be run, if so, and what can.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    let damaged = || "the ELF file is damaged".to_owned();
    if !bytes.starts_with(MAGIC) {
        return Err("no 64-bit ELF program; scripts and other formats are not supported".into());
    }
    let half = |at: usize| {
        let bytes = bytes.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(u16::from_le_bytes(bytes))
    };
    let kind = half(16).ok_or_else(damaged)?;
    let machine = half(18).ok_or_else(damaged)?;
    if machine != X86_64 {
        return Err("the program is not for x86-64".into());
    }
    if kind != EXEC && kind != DYN {
        return Err("the ELF file is no program".into());
    }
    let table = bytes.get(32..40).and_then(|it| it.try_into().ok());
    let table = table.map(u64::from_le_bytes).ok_or_else(damaged)?;
    let size = usize::from(half(54).ok_or_else(damaged)?);
    let count = usize::from(half(56).ok_or_else(damaged)?);
    for index in 0..count {
        let at = usize::try_from(table).ok();
        let at = at.and_then(|table| table.checked_add(index * size));
        let kind = at.and_then(|at| bytes.get(at..at.checked_add(4)?)?.try_into().ok());
        if kind.map(u32::from_le_bytes).ok_or_else(damaged)? == INTERP {
            return Err(
                "the program is linked dynamically; link it with -static, as nothing else is there"
                    .into(),
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    /// A header, and one program header of this type.
    fn sample(kind: u16, machine: u16, segment: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16..18].copy_from_slice(&kind.to_le_bytes());
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32..40].copy_from_slice(&64_u64.to_le_bytes());
        bytes[54..56].copy_from_slice(&56_u16.to_le_bytes());
        bytes[56..58].copy_from_slice(&1_u16.to_le_bytes());
        bytes[64..68].copy_from_slice(&segment.to_le_bytes());
        bytes
    }

    #[test]
    fn static_programs_are_taken() {
        assert_eq!(check(&sample(2, 62, 1)), Ok(()));
        assert_eq!(check(&sample(3, 62, 1)), Ok(()));
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        let said = |bytes: &[u8]| check(bytes).expect_err("refused");
        assert!(said(b"#!/bin/sh\n").contains("no 64-bit ELF program"));
        assert!(said(&sample(3, 62, 3)).contains("link it with -static"));
        assert!(said(&sample(2, 183, 1)).contains("not for x86-64"));
        assert!(said(&sample(1, 62, 1)).contains("is no program"));
    }

    #[test]
    fn cut_and_changed_files_are_read_within_bounds() {
        let whole = sample(2, 62, 1);
        for len in 0..68 {
            assert!(check(&whole[..len]).is_err(), "{len}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            // Any answer will do.
            let _answer = check(&bytes);
        }
    }
}
