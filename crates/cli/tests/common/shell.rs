//! Command lines as people type them.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a command line as a shell does, in a folder that is its home.
pub(crate) fn shell(folder: &Path, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_minflt"));
    let path = program.parent().expect("a folder").display();
    let old = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder);
    command.env("HOME", folder);
    command.env("PATH", format!("{path}:{old}"));
    command.output().expect("a shell runs")
}

/// What a command line prints; it must succeed.
pub(crate) fn printed(folder: &Path, line: &str) -> String {
    let mut output = shell(folder, line);
    for _ in 0..5 {
        // What was measured while other tests run may contradict itself, and says so.
        if !String::from_utf8_lossy(&output.stderr).contains("measure again on an idle machine") {
            break;
        }
        output = shell(folder, line);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8(output.stdout).expect("text")
}
