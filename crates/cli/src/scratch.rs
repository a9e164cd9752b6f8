//! Programs that a command starts, and the files they use: nothing is left behind, however the
//! command ends.
#![expect(
    clippy::disallowed_types,
    reason = "the lock between a run and the handler of a signal, which are on no machine of ours"
)]

use crate::error::{Error, failed};
use crate::progress::Deadline;
use core::time::Duration;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// How often a program is looked at.
const TICK: Duration = Duration::from_millis(5);

/// What is there now.
#[derive(Debug)]
struct All {
    folders: Vec<PathBuf>,
    children: Vec<Child>,
}

static ALL: Mutex<All> = Mutex::new(All {
    folders: Vec::new(),
    children: Vec::new(),
});

fn all() -> MutexGuard<'static, All> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all programs and removes all files, for a command that is about to be ended. Nothing is
/// started or written any more while the result lives.
pub(crate) fn clean() -> Cleaned {
    let mut all = all();
    let had_some = !all.folders.is_empty() || !all.children.is_empty();
    all.clean();
    Cleaned {
        had_some,
        _all: all,
    }
}

/// That nothing is there, and nothing comes.
#[derive(Debug)]
pub(crate) struct Cleaned {
    /// Whether there was something.
    pub(crate) had_some: bool,
    _all: MutexGuard<'static, All>,
}

impl All {
    fn clean(&mut self) {
        for mut child in self.children.drain(..) {
            // It may have ended by itself.
            let _ended = child.kill();
            let _status = child.wait();
        }
        for folder in self.folders.drain(..) {
            let _may_be_absent = fs::remove_dir_all(folder);
        }
    }
}

/// A folder of temporary files.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// A new one, which only this user can read.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new() -> Result<Self, Error> {
        let base = std::env::temp_dir();
        let mut all = all();
        for attempt in 0..1000 {
            let folder = base.join(format!("minflt-{}-{attempt}", process::id()));
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => {
                    all.folders.push(folder.clone());
                    return Ok(Self { folder });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    let cannot = failed(format!("cannot make {}", folder.display()));
                    return Err(cannot(&error));
                }
            }
        }
        let cannot = failed(format!("cannot make a folder in {}", base.display()));
        Err(cannot(&"too many are left there"))
    }

    /// A file in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, Error> {
        let path = self.path(name);
        let cannot = failed(format!("cannot write {}", path.display()));
        fs::write(&path, bytes).map_err(|error| cannot(&error))?;
        Ok(path)
    }

    /// What is in a file in it; empty if it is not there.
    pub(crate) fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Has a program write into a file in it.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(crate) fn output(&self, name: &str) -> Result<Stdio, Error> {
        let cannot = failed(format!("cannot write {}", self.path(name).display()));
        let file = File::create(self.path(name)).map_err(|error| cannot(&error))?;
        Ok(file.into())
    }

    /// Runs a program to its end, or until the time is over: then it is killed, and there is no
    /// status.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn run(
        &self,
        command: &mut Command,
        time: Option<Duration>,
    ) -> io::Result<Option<ExitStatus>> {
        self.run_with_input(command.stdin(Stdio::null()), time)
    }

    /// The same with the input that the command says.
    ///
    /// # Errors
    /// It cannot be started.
    #[expect(
        clippy::unused_self,
        reason = "the folder for what is written is the waiting program's"
    )]
    pub(crate) fn run_with_input(
        &self,
        command: &mut Command,
        time: Option<Duration>,
    ) -> io::Result<Option<ExitStatus>> {
        let id = {
            // Not in the middle of a clean-up.
            let mut all = all();
            let child = command.spawn()?;
            let id = child.id();
            all.children.push(child);
            id
        };
        let deadline = Deadline::after(time);
        loop {
            {
                let mut all = all();
                let Some(at) = all.children.iter().position(|child| child.id() == id) else {
                    return Ok(None);
                };
                let ended = all.children[at].try_wait()?;
                if ended.is_some() {
                    // It has ended, so there is nothing to wait for.
                    let _status = all.children.swap_remove(at).wait();
                    return Ok(ended);
                }
                if deadline.is_over() {
                    let mut child = all.children.swap_remove(at);
                    // It may have ended just now.
                    let _ended = child.kill();
                    let _status = child.wait();
                    return Ok(None);
                }
            }
            thread::sleep(TICK);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut all = all();
        all.folders.retain(|folder| *folder != self.folder);
        let _may_be_absent = fs::remove_dir_all(&self.folder);
    }
}

/// The path of a program, if it is to be found like the shell does.
pub(crate) fn find_program(name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return name.is_file().then(|| name.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::Scratch;
    use core::time::Duration;
    use std::process::Command;

    #[test]
    fn a_folder_is_gone_with_its_owner() {
        let scratch = Scratch::new().expect("made");
        let path = scratch.write("a", b"text").expect("written");
        assert!(path.is_file() && scratch.text("a") == "text");
        assert_eq!(scratch.text("b"), "");
        drop(scratch);
        assert!(!path.exists() && !path.parent().expect("a folder").exists());
    }

    #[test]
    fn a_program_is_killed_when_its_time_is_over() {
        let scratch = Scratch::new().expect("made");
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; exit 3"]);
        command.stdout(scratch.output("out").expect("made"));
        let ended = scratch.run(&mut command, None).expect("runs");
        assert_eq!(ended.and_then(|status| status.code()), Some(3));
        assert_eq!(scratch.text("out"), "out\n");
        let mut command = Command::new("sleep");
        command.arg("60");
        let time = Some(Duration::from_millis(20));
        assert!(scratch.run(&mut command, time).expect("runs").is_none());
    }
}
