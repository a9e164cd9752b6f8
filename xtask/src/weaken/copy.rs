//! The copy of `sync` in which each ordering can be weakened, and its models.

use super::sites::{self, Site};
use crate::tidy::{RustSource, rust_files};
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};

/// The module that the copy has more than `sync`.
const MODULE: &str = include_str!("in_copy.rs");
/// Tests that show a failure of a protocol written out in them, not of the crate.
const NOT_OF_THE_CRATE: [&str; 2] = ["control_", "the_copy_"];
/// How long all tests of a model may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A folder with the copy, built.
#[derive(Debug)]
pub(super) struct Copy {
    folder: PathBuf,
    pub(super) sites: Vec<Site>,
    models: Vec<Model>,
}

/// One `model_*.rs`.
#[derive(Debug)]
struct Model {
    name: String,
    program: PathBuf,
    /// The tests that execute each ordering.
    tests: BTreeMap<usize, BTreeSet<String>>,
}

/// What the models say of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// This model fails, in these tests.
    Noticed {
        model: String,
        tests: Vec<String>,
    },
    Survived,
    /// A model ran into a limit of time or steps, and none failed.
    TimedOut {
        model: String,
    },
    /// No test executes the ordering.
    NotReached,
}

/// How a run of some tests ended.
enum Ended {
    Passed,
    Failed(String),
    TimedOut,
}

impl Copy {
    /// Writes the copy below `target`, builds it, and looks which test executes which ordering.
    pub(super) fn make(root: &Path, target: &Path, preemptions: u32) -> io::Result<Self> {
        let folder = target.join("weaken").join("sync");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        let sites = write_sources(&root.join("crates/sync"), &folder)?;
        std::fs::write(folder.join("Cargo.toml"), manifest(root)?)?;
        std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        let models = build(&folder, target)?;
        let mut copy = Self {
            folder,
            sites,
            models,
        };
        copy.look_who_reaches_what(preemptions)?;
        Ok(copy)
    }

    fn look_who_reaches_what(&mut self, preemptions: u32) -> io::Result<()> {
        for model in &mut self.models {
            let log = self.folder.join(format!("{}.reached", model.name));
            let args = NOT_OF_THE_CRATE.iter().flat_map(|name| ["--skip", name]);
            let mut command = model.command(preemptions);
            command.args(args).env("MINFLT_WEAKEN_REACHED", &log);
            match run(&mut command)? {
                Ended::Passed => {}
                Ended::Failed(output) => {
                    return Err(io::Error::other(format!(
                        "{} fails with nothing weakened:\n{output}",
                        model.name
                    )));
                }
                Ended::TimedOut => {
                    return Err(io::Error::other(format!("{} takes too long", model.name)));
                }
            }
            // A model that executes none of them writes none.
            let reached = std::fs::read_to_string(&log).unwrap_or_default();
            for line in reached.lines() {
                if let Some((number, test)) = line.split_once(' ')
                    && let Ok(number) = number.parse()
                {
                    let tests = model.tests.entry(number).or_default();
                    tests.insert(test.to_owned());
                }
            }
        }
        Ok(())
    }

    /// What the models say when ordering `number` is `to`.
    pub(super) fn verdict(&self, number: usize, to: &str, preemptions: u32) -> io::Result<Verdict> {
        let stem = self.sites[number].file.trim_end_matches(".rs");
        let stem = stem.rsplit_once('/').map_or(stem, |(_, stem)| stem);
        let mut models: Vec<&Model> = self
            .models
            .iter()
            .filter(|model| model.tests.contains_key(&number))
            .collect();
        // The one that is about this file first.
        models.sort_by_key(|model| !model.name.ends_with(stem));
        if models.is_empty() {
            return Ok(Verdict::NotReached);
        }
        let mut verdict = Verdict::Survived;
        for model in models {
            let tests = model.tests[&number].iter();
            let mut command = model.command(preemptions);
            command
                .arg("--exact")
                .args(tests)
                .env("MINFLT_WEAKEN", format!("{number}={to}"));
            match run(&mut command)? {
                Ended::Passed => {}
                // A loop that looks at old values for ever says nothing about what they order.
                Ended::Failed(output) if only_too_long(&output) => {
                    verdict = Verdict::TimedOut {
                        model: model.name.clone(),
                    };
                }
                Ended::Failed(output) => {
                    return Ok(Verdict::Noticed {
                        model: model.name.clone(),
                        tests: failed_tests(&output),
                    });
                }
                Ended::TimedOut => {
                    verdict = Verdict::TimedOut {
                        model: model.name.clone(),
                    };
                }
            }
        }
        Ok(verdict)
    }
}

impl Model {
    fn command(&self, preemptions: u32) -> Command {
        let mut command = Command::new(&self.program);
        command
            // With one thread a test is the program's own, and has no name.
            .arg("--test-threads=2")
            .env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
        command
    }
}

/// Copies the crate, each ordering of a pair rewritten; returns them, by number.
fn write_sources(from: &Path, to: &Path) -> io::Result<Vec<Site>> {
    let mut all = Vec::new();
    for (path, text) in rust_files(from)? {
        let mut text = text;
        if let Some(file) = path.strip_prefix("src/") {
            let source = RustSource::new(path.clone(), text.clone());
            let sites = sites::find(&source, file);
            text = sites::rewrite(&text, &sites, all.len());
            if file == "lib.rs" {
                text.push_str("\npub(crate) mod weaken;\n");
            }
            all.extend(sites);
        }
        write(&to.join(path), &text)?;
    }
    write(&to.join("src/weaken.rs"), MODULE)?;
    Ok(all)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(path, text)
}

/// The crate's manifest as that of a workspace of its own, without lints.
fn manifest(root: &Path) -> io::Result<String> {
    let workspace = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let workspace: toml::Table = workspace.parse().map_err(io::Error::other)?;
    let inherited = |key: &str| workspace.get("workspace")?.get("package")?.get(key);
    let text = std::fs::read_to_string(root.join("crates/sync/Cargo.toml"))?;
    let mut out = String::new();
    for line in text.lines() {
        match line.split_once(".workspace = true") {
            Some((key, _)) => match inherited(key) {
                Some(toml::Value::String(value)) => {
                    out.push_str(&format!("{key} = \"{value}\"\n"));
                }
                Some(toml::Value::Boolean(value)) => out.push_str(&format!("{key} = {value}\n")),
                _ => {
                    return Err(io::Error::other(format!("Cargo.toml has no {key}")));
                }
            },
            None if line == "[lints]" || line == "workspace = true" => {}
            None => out.push_str(&format!("{line}\n")),
        }
    }
    // Of the same profile as the models of `cargo xtask loom`, and so with the same loom.
    out.push_str("[workspace]\n[profile.release]\ndebug = 1\n");
    Ok(out)
}

/// Builds the copy's models; they and `cargo xtask loom` share what they depend on.
fn build(folder: &Path, target: &Path) -> io::Result<Vec<Model>> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["test", "--release", "--no-run", "--offline", "--quiet"])
        .args(["--test", "model_*", "--message-format=json"])
        .current_dir(folder)
        .env("RUSTFLAGS", "--cfg loom --cap-lints allow")
        .env("CARGO_TARGET_DIR", target.join("loom"))
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other("the copy of crates/sync does not build"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut models: Vec<Model> = text.lines().filter_map(built).collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(models)
}

/// The model that a message of cargo says is built.
fn built(message: &str) -> Option<Model> {
    let after = |text: &str, key: &str| {
        let (_, rest) = text.split_once(key)?;
        Some(rest.split_once('"')?.0.to_owned())
    };
    let (_, target) = message.split_once("\"target\":")?;
    let name = after(target, "\"name\":\"")?;
    let program = after(message, "\"executable\":\"")?;
    name.starts_with("model_").then(|| Model {
        name,
        program: program.into(),
        tests: BTreeMap::new(),
    })
}

/// Runs a model, for [`LIMIT`] at most.
fn run(command: &mut Command) -> io::Result<Ended> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let Some(mut stdout) = child.stdout.take() else {
        return Err(io::Error::other("a model has no output"));
    };
    std::thread::scope(|scope| {
        let (send, receive) = channel();
        scope.spawn(move || {
            let mut output = Vec::new();
            // A program that is killed has written what it has written.
            let _read = stdout.read_to_end(&mut output);
            // Nobody listens to a run that took too long.
            let _sent = send.send(output);
        });
        match receive.recv_timeout(LIMIT) {
            Ok(output) => ended(&mut child, &output),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                child.kill()?;
                child.wait()?;
                Ok(Ended::TimedOut)
            }
        }
    })
}

fn ended(child: &mut Child, output: &[u8]) -> io::Result<Ended> {
    if child.wait()?.success() {
        return Ok(Ended::Passed);
    }
    Ok(Ended::Failed(String::from_utf8_lossy(output).into_owned()))
}

/// Whether every test that failed did so by exceeding loom's number of steps.
fn only_too_long(output: &str) -> bool {
    let count = |text: &str| output.matches(text).count();
    let panics = count("panicked at ");
    panics > 0 && panics == count("Model exceeded maximum number of branches")
}

/// The names of the tests that failed; none where the program was ended by a panic in a panic.
fn failed_tests(output: &str) -> Vec<String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("test "));
    let failed = lines.filter_map(|line| line.strip_suffix(" ... FAILED"));
    failed.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{built, failed_tests, manifest, only_too_long};
    use std::path::Path;

    #[test]
    fn a_message_of_cargo_names_model_and_program() {
        let message = "{\"reason\":\"compiler-artifact\",\"target\":{\"kind\":[\"test\"],\
                       \"name\":\"model_x\"},\"executable\":\"/a/model_x-1\",\"fresh\":true}";
        let model = built(message).unwrap();
        assert_eq!(model.name, "model_x");
        assert_eq!(model.program, Path::new("/a/model_x-1"));
        assert!(built("{\"reason\":\"build-finished\",\"success\":true}").is_none());
    }

    #[test]
    fn failed_tests_are_named() {
        let output = "running 2 tests\ntest a_b ... ok\ntest c_d ... FAILED\n\nfailures:\n";
        assert_eq!(failed_tests(output), ["c_d"]);
    }

    #[test]
    fn a_model_that_only_took_too_many_steps_noticed_nothing() {
        let long = "thread 'a' panicked at b:\nModel exceeded maximum number of branches. c\n";
        assert!(only_too_long(long));
        let both = format!("{long}thread 'd' panicked at e:\nCausality violation\n");
        assert!(!only_too_long(&both));
        assert!(!only_too_long(""));
    }

    #[test]
    fn the_manifest_of_the_copy_inherits_nothing() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let text = manifest(root).unwrap();
        assert!(!text.contains("workspace = true"), "{text}");
        let parsed: toml::Table = text.parse().unwrap();
        assert!(parsed["package"]["edition"].is_str());
        assert!(parsed.contains_key("target") && parsed.contains_key("workspace"));
    }
}
