//! What tests of the program share.

use std::fs;
use std::path::PathBuf;

/// A folder of a test's own, removed at its end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let at = std::env::temp_dir().join(format!("minflt-{name}-{}", std::process::id()));
        let _none_yet = fs::remove_dir_all(&at);
        fs::create_dir_all(&at).expect("a folder");
        Self(at)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _may_be_gone = fs::remove_dir_all(&self.0);
    }
}
