//! Runs a row, and says what is not as it should be.

use crate::common::Folder;
use crate::row::{Given, Meanwhile, Row};
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;

const TICK: Duration = Duration::from_millis(5);
/// Ticks until a row counts as hanging: a minute.
const MOST: u64 = 12_000;

const ROW: &str = "{\"schema\":1,\"workload\":\"pft\",\"target\":\"host\",\"machine\":\"here\",\
    \"era\":\"linux-4.13\",\"threads\":2,\"cpus\":2,\"params\":{},\"scale\":1,\"seconds\":1.0,\
    \"cpu_seconds\":2.0,\"faults\":1000,\"faults_per_second\":1000.0,\
    \"faults_per_cpu_second\":1.0,\"rates\":{},\"events\":{},\"checks\":{},\"simulated\":false,\
    \"host\":{}}\n";

/// Runs a row.
///
/// # Errors
/// What differs from what the table says.
pub(crate) fn check(row: &Row) -> Result<(), String> {
    if let Some(program) = row.needs
        && Command::new(program).arg("--version").output().is_err()
    {
        eprintln!("skipped: {}: {program} is not there", row.name);
        return Ok(());
    }
    let name = row.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let folder = Folder::new(&format!("bad-{name}-{}", row.status));
    let (inside, outside) = (folder.0.join("in"), folder.0.join("out"));
    fs::create_dir_all(&inside).expect("a folder");
    fs::create_dir_all(&outside).expect("a folder");
    for (name, given) in row.given {
        make(&inside.join(name), *given);
    }
    let before = contents(&inside);
    let status = run(row, &inside, &outside)?;
    let text = |name: &str| {
        let bytes = fs::read(outside.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (printed, said) = (text("stdout"), text("stderr"));
    if status != row.status {
        return Err(format!("status {status}, and not {}: {said}", row.status));
    }
    line(row, &said)?;
    output(row, &printed)?;
    nothing_lost(row, &before, &contents(&inside))
}

/// One line, which begins with the program's name and contains what it should.
fn line(row: &Row, said: &str) -> Result<(), String> {
    if said.contains("panicked") {
        return Err(format!("panicked: {said}"));
    }
    if row.says.is_empty() {
        return match said {
            "" => Ok(()),
            _ => Err(format!("`{said}` is said, and nothing was expected")),
        };
    }
    let lines = said.lines().count();
    if lines != 1 || !said.ends_with('\n') {
        return Err(format!("{lines} lines: `{said}`"));
    }
    if !said.starts_with("minflt: ") {
        return Err(format!("`{said}` does not begin with the program's name"));
    }
    match row.says.iter().find(|words| !said.contains(**words)) {
        Some(words) => Err(format!("does not say `{words}`: `{said}`")),
        None => Ok(()),
    }
}

fn output(row: &Row, printed: &str) -> Result<(), String> {
    if row.prints.is_empty() && !printed.is_empty() {
        return Err(format!("`{printed}` is printed, and nothing was expected"));
    }
    match row.prints.iter().find(|words| !printed.contains(**words)) {
        Some(words) => Err(format!("does not print `{words}`: `{printed}`")),
        None => Ok(()),
    }
}

type Contents = BTreeMap<String, Vec<u8>>;

/// What was given is there as it was, and only what the row leaves is new.
fn nothing_lost(row: &Row, before: &Contents, after: &Contents) -> Result<(), String> {
    for (name, bytes) in before {
        match after.get(name) {
            None => return Err(format!("{name} is gone")),
            Some(now) if now != bytes => return Err(format!("{name} has changed")),
            Some(_) => {}
        }
    }
    let new = |name: &&String| !before.contains_key(*name) && !row.leaves.contains(&name.as_str());
    if let Some(name) = after.keys().find(new) {
        return Err(format!("{name} is new"));
    }
    let missing = |name: &&&str| after.get(**name).is_none_or(Vec::is_empty);
    match row.leaves.iter().find(missing) {
        Some(name) => Err(format!("{name} is not there, or empty")),
        None => Ok(()),
    }
}

/// All files below a folder.
fn contents(folder: &Path) -> Contents {
    let mut all = Contents::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path
                .strip_prefix(folder)
                .expect("within")
                .display()
                .to_string();
            all.insert(name, fs::read(&path).expect("readable"));
        }
    }
    all
}

fn make(path: &Path, given: Given) {
    let changed = |text: &str, old: &str, new: &str| {
        assert!(text.contains(old), "{old} is nowhere in {}", path.display());
        text.replacen(old, new, 1)
    };
    let bytes = match given {
        Given::Folder => return fs::create_dir(path).expect("a folder"),
        Given::Bytes(bytes) => bytes.to_owned(),
        Given::Zeros(count) => vec![b'\n'; count],
        Given::Rows(old, new) => changed(&ROW.repeat(4), old, new).into_bytes(),
        Given::Machine(old, new) => {
            let text = include_str!("../../../../data/machines/kvm16.toml");
            let text = text.replace("name = \"kvm16\"", "name = \"mine\"");
            changed(&text, old, new).into_bytes()
        }
    };
    fs::write(path, bytes).expect("written");
}

/// The exit status of the row's command line; its outputs are in files.
fn run(row: &Row, inside: &Path, outside: &Path) -> Result<i32, String> {
    let program = Path::new(env!("CARGO_BIN_EXE_minflt"));
    let path = program.parent().expect("a folder").display();
    let old = std::env::var("PATH").unwrap_or_default();
    let file = |name| File::create(outside.join(name)).expect("a file");
    let mut command = Command::new("sh");
    command.args(["-c", row.line]).current_dir(inside);
    command.env("PATH", format!("{path}:{old}"));
    command.stdin(Stdio::null()).stderr(file("stderr"));
    match row.meanwhile {
        Meanwhile::ReaderLeaves => command.stdout(Stdio::piped()),
        _ => command.stdout(file("stdout")),
    };
    let mut child = command.spawn().expect("a shell runs");
    drop(child.stdout.take());
    let mut signal = match row.meanwhile {
        Meanwhile::Signal(_) | Meanwhile::SignalAfter(..) => Some(row.meanwhile),
        Meanwhile::Nothing | Meanwhile::ReaderLeaves => None,
    };
    for tick in 0..MOST {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            let killed = status.signal().map(|signal| 128 + signal);
            return Ok(status.code().or(killed).unwrap_or(-1));
        }
        let due = match signal {
            Some(Meanwhile::Signal(name)) => {
                let printed = fs::metadata(outside.join("stdout")).is_ok_and(|it| it.len() > 0);
                printed.then_some(name)
            }
            Some(Meanwhile::SignalAfter(name, ms)) => {
                (tick >= ms / TICK.as_millis() as u64).then_some(name)
            }
            _ => None,
        };
        if let Some(name) = due {
            send(&child, name);
            signal = None;
        }
        sleep(TICK);
    }
    child.kill().expect("it is there");
    child.wait().expect("it ends");
    Err("still running after a minute".into())
}

fn send(child: &Child, name: &str) {
    // A shell has it built in; the program of that name is not on every machine.
    let line = format!("kill -{name} {}", child.id());
    let sent = Command::new("sh").args(["-c", &line]).status();
    assert!(sent.expect("a shell runs").success());
}
