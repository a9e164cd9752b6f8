//! Files that a command writes at its end: tried before the run, and replaced as a whole.

use crate::error::{Error, failed, usage};
use crate::out::go_on_without_reader;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Refuses a file that the command could not write when it has its results. What is there stays.
/// From now on the file is worth having without a reader of standard output.
///
/// # Errors
/// A directory, a place without one, or a file that may not be written to.
pub(crate) fn writable(option: &str, path: Option<&Path>) -> Result<(), Error> {
    let Some(path) = path else { return Ok(()) };
    go_on_without_reader();
    let cannot = failed(format!("{option}: cannot write {}", path.display()));
    try_to_open(path).map_err(|error| cannot(&error))
}

fn try_to_open(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(it) if it.is_dir() => Err(io::Error::other("it is a directory; name a file in it")),
        Ok(it) if it.is_file() => OpenOptions::new().write(true).open(path).map(drop),
        // A pipe may have no reader yet.
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            File::create_new(path)?;
            fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

/// Writes a file beside and renames it, so that it is never half of one, nor lost on a full disk.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(it) if !it.is_file() => return fs::write(path, bytes),
        Ok(_) => {}
        Err(_) => return beside(path, bytes),
    }
    // A link stays one.
    beside(&fs::canonicalize(path)?, bytes)
}

fn beside(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = path.with_extension("part");
    let mut file = match File::create(&part) {
        Ok(file) => file,
        // The file may be written to, if not its folder.
        Err(_) if path.is_file() && !part.exists() => return fs::write(path, bytes),
        Err(error) => return Err(error),
    };
    let written = file.write_all(bytes).and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        let _may_be_absent = fs::remove_file(&part);
    }
    written
}

/// Refuses a name that would be a path.
pub(crate) fn plain_name(option: &str, name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
        return Err(usage(format!(
            "{option}: invalid name `{name}`: expected letters, digits, - and _, such as before"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{replace, writable};
    use std::fs;

    #[test]
    fn trying_leaves_no_trace_and_a_failed_replacement_loses_nothing() {
        let folder = std::env::temp_dir().join(format!("minflt-files-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (file, link) = (folder.join("rows.json"), folder.join("link"));
        writable("--json", Some(&file)).expect("writable");
        assert!(!file.exists());
        replace(&file, b"old").expect("written");
        writable("--json", Some(&file)).expect("writable");
        assert_eq!(fs::read(&file).expect("there"), b"old");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        replace(&link, b"new").expect("written");
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).expect("there"), b"new");
        assert!(writable("--json", Some(&folder)).is_err());
        assert!(writable("--json", Some(&folder.join("no/rows"))).is_err());
        // What is beside cannot be written.
        fs::create_dir(folder.join("rows.part")).expect("in the way");
        assert!(replace(&file, b"lost").is_err());
        assert_eq!(fs::read(&file).expect("there"), b"new");
        fs::remove_dir_all(&folder).expect("removed");
    }
}
