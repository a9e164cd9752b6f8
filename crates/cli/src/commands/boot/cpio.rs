//! A writer of initramfs archives: cpio in the "newc" format, which both kernels read.
//!
//! Format: Linux's Documentation/driver-api/early-userspace/buffer-format.rst.

/// What headers and contents begin at a multiple of.
const ALIGN: usize = 4;

/// An archive that grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cpio {
    bytes: Vec<u8>,
    /// Numbers of files so far: two that share one would be links of one file.
    files: u32,
}

impl Cpio {
    /// Adds a folder.
    pub(crate) fn folder(&mut self, path: &str) -> Result<(), TooLong> {
        self.folder_of_mode(path, 0o755)
    }

    /// Adds a folder with these rights.
    pub(crate) fn folder_of_mode(&mut self, path: &str, rights: u32) -> Result<(), TooLong> {
        self.entry(path, 0o40_000 | rights, (0, 0), &[])
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &[u8]) -> Result<(), TooLong> {
        self.entry(path, 0o120_777, (0, 0), target)
    }

    /// Adds a file that may be executed.
    pub(crate) fn file(&mut self, path: &str, bytes: &[u8]) -> Result<(), TooLong> {
        self.file_of_mode(path, 0o755, bytes)
    }

    /// Adds a file with these rights.
    pub(crate) fn file_of_mode(
        &mut self,
        path: &str,
        rights: u32,
        bytes: &[u8],
    ) -> Result<(), TooLong> {
        self.entry(path, 0o100_000 | rights, (0, 0), bytes)
    }

    /// Adds a character device.
    pub(crate) fn device(&mut self, path: &str, major: u32, minor: u32) -> Result<(), TooLong> {
        self.entry(path, 0o20_600, (major, minor), &[])
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, TooLong> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.bytes)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        (major, minor): (u32, u32),
        bytes: &[u8],
    ) -> Result<(), TooLong> {
        let len = u32::try_from(bytes.len()).map_err(|_| TooLong)?;
        let name_len = u32::try_from(path.len() + 1).map_err(|_| TooLong)?;
        self.files += 1;
        // Number, mode, user, group, links, time, length, the device that holds it, the device that
        // it is, length of the name, no checksum.
        let numbers = [
            self.files, mode, 0, 0, 1, 0, len, 0, 0, major, minor, name_len, 0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for number in numbers {
            self.bytes
                .extend_from_slice(format!("{number:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(bytes);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        let len = self.bytes.len().next_multiple_of(ALIGN);
        self.bytes.resize(len, 0);
    }
}

/// A file of 4 GiB or more, which the format cannot hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TooLong;

#[cfg(test)]
mod tests {
    use super::Cpio;
    use crate::commands::boot::kernel_initrd::{Archive, CpioError};

    /// The file of that path, or what is wrong with the archive in front of it.
    fn file<'a>(bytes: &'a [u8], path: &str) -> Result<Option<(&'a [u8], u32)>, CpioError> {
        for entry in Archive::new(bytes) {
            let entry = entry?;
            if entry.path == path {
                return Ok(Some((entry.bytes, entry.mode)));
            }
        }
        Ok(None)
    }

    fn sample() -> Vec<u8> {
        let mut cpio = Cpio::default();
        cpio.folder("dev").expect("short");
        cpio.device("dev/ttyS1", 4, 65).expect("short");
        // Lengths and names of every alignment.
        for len in 0..9_usize {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x5a).collect();
            cpio.file(&format!("f{}", "x".repeat(len)), &bytes)
                .expect("short");
        }
        cpio.finish().expect("short")
    }

    #[test]
    fn the_kernel_finds_what_was_packed() {
        let bytes = sample();
        let entries: Result<Vec<_>, _> = Archive::new(&bytes).collect();
        let entries = entries.expect("whole");
        assert_eq!(entries.len(), 11);
        for len in 0..9 {
            let path = format!("f{}", "x".repeat(len));
            let found = file(&bytes, &path).expect("whole").expect("there");
            let expected: Vec<u8> = (0..len).map(|at| at as u8 ^ 0x5a).collect();
            assert_eq!(found, (&expected[..], 0o100_755));
        }
        assert!(
            entries
                .iter()
                .any(|it| it.path == "dev/ttyS1" && (it.mode, it.device) == (0o20_600, (4, 65)))
        );
        // Two files of one number would be one.
        assert!(entries.iter().all(|it| it.links == 1 && it.owner == (0, 0)));
        let mut numbers: Vec<u32> = entries.iter().map(|it| it.number).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), entries.len());
    }

    #[test]
    fn a_cut_archive_is_an_error_wherever_it_is_cut() {
        let bytes = sample();
        // The padding behind the trailer's name may be missing.
        for len in 0..bytes.len() - 4 {
            let error = Archive::new(&bytes[..len]).find_map(Result::err);
            assert!(error.is_some(), "{len} of {}", bytes.len());
        }
    }

    #[test]
    fn a_damaged_archive_is_an_error_that_names_its_byte() {
        let bytes = sample();
        let read = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = bytes.clone();
            change(&mut bytes);
            Archive::new(&bytes).find_map(Result::err)
        };
        assert_eq!(read(&|_| {}), None);
        assert_eq!(read(&|it| it[5] = b'7'), Some(CpioError::Magic(0)));
        assert_eq!(read(&|it| it[5] = b'2'), None, "with checksums");
        assert_eq!(read(&|it| it[15] = b'g'), Some(CpioError::Number(0)));
        assert_eq!(read(&|it| it[110] = 0xff), Some(CpioError::Name(0)));
        assert_eq!(read(&|it| it[113] = b'/'), Some(CpioError::Name(0)));
        assert_eq!(
            read(&|it| it[54..62].copy_from_slice(b"ffffffff")),
            Some(CpioError::Truncated(0))
        );
        assert_eq!(
            read(&|it| it[94..102].copy_from_slice(b"00000000")),
            Some(CpioError::Name(0))
        );
        assert_eq!(file(&[], "a"), Err(CpioError::Truncated(0)));
    }

    #[test]
    fn any_byte_changed_to_any_is_read_within_bounds() {
        let bytes = sample();
        for at in 0..bytes.len() {
            for value in [0, b'0', b'9', b'f', 0x7f, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                // An entry is within the archive, and there are no more than fit.
                let entries = Archive::new(&bytes).count();
                assert!(entries <= bytes.len() / 110, "{at} {value}");
            }
        }
    }
}
