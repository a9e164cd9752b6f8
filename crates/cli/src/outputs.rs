//! Files that a long command writes as it goes, so that an end before its end loses nothing.
//!
//! Outputs are opened before the run, so that a folder that cannot be written to costs no time. The
//! page and the parts are written beside and renamed, so that no file is ever half of one; rows are
//! appended a line at a time, under the same lock that the handler of Ctrl-C takes.
#![expect(
    clippy::disallowed_types,
    reason = "the lock between a run and the handler of a signal, which are on no machine of ours"
)]

use crate::error::{Error, failed};
use crate::files::replace;
use crate::out::complain;
use crate::scratch;
use console::Term;
use core::hash::Hasher;
use minflt_report::{Report, Run, Section, run::write_rows};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::hash::DefaultHasher;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is said when the run is interrupted. Held while something is written.
static KEPT: Mutex<String> = Mutex::new(String::new());

/// The exit status of a program that Ctrl-C ended.
pub(crate) const INTERRUPTED: i32 = 130;

fn kept() -> MutexGuard<'static, String> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on Ctrl-C ends the program with a line that says what is kept.
pub(crate) fn on_interrupt() -> Result<(), ctrlc::Error> {
    let handler = || {
        let kept = kept();
        let cleaned = scratch::clean();
        let kept = match kept.as_str() {
            "" if cleaned.had_some => "what it had started has ended, its files are removed",
            "" => "nothing was written",
            kept => kept,
        };
        // Below the bar, where there is one.
        let below = if Term::stderr().is_term() { "\n" } else { "" };
        complain(format_args!("{below}minflt: interrupted; {kept}"));
        process::exit(INTERRUPTED);
    };
    ctrlc::set_handler(handler)
}

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// It goes on, or was interrupted.
    Running,
    /// It ended, and its budget left something out.
    OverBudget,
    /// It ended, and a part failed.
    PartFailed,
    /// It ended with everything.
    Whole,
}

impl State {
    /// Why something is missing.
    const fn missing(self) -> Option<&'static str> {
        match self {
            Self::Running => Some("This run has not ended"),
            Self::OverBudget => Some("The budget of this run ended first"),
            Self::PartFailed => Some("A part of this run failed"),
            Self::Whole => None,
        }
    }
}

/// The outputs of a run.
pub(crate) struct Outputs {
    folder: PathBuf,
    rows: Option<(PathBuf, File)>,
    report: Report,
    /// What the page's lead is once all is there.
    lead: String,
    parts: Parts,
}

impl Outputs {
    /// Opens them: the page in `folder`, rows in `json`. Parts are looked for if `resume`.
    ///
    /// # Errors
    /// A place that cannot be written to.
    pub(crate) fn open(
        folder: &Path,
        json: Option<&Path>,
        report: Report,
        parts: Parts,
    ) -> Result<Self, Error> {
        let cannot = failed(format!("--out: cannot write into {}", folder.display()));
        fs::create_dir_all(folder).map_err(|error| cannot(&error))?;
        let rows = json.map(|path| {
            let cannot = failed(format!("--json: cannot write {}", path.display()));
            let file = File::create(path).map_err(|error| cannot(&error))?;
            Ok::<_, Error>((path.to_owned(), file))
        });
        let mut outputs = Self {
            folder: folder.to_owned(),
            rows: rows.transpose()?,
            lead: report.lead.clone(),
            report,
            parts,
        };
        outputs
            .write_page(State::Running)
            .map_err(|error| cannot(&error))?;
        Ok(outputs)
    }

    /// Where the page is.
    pub(crate) fn page(&self) -> PathBuf {
        self.folder.join("report.html")
    }

    /// Adds rows.
    pub(crate) fn rows<'a>(
        &mut self,
        runs: impl IntoIterator<Item = &'a Run>,
    ) -> Result<(), Error> {
        let Some((path, file)) = &mut self.rows else {
            return Ok(());
        };
        let _kept = kept();
        write_rows(file, runs)
            .map_err(|error| failed(format!("--json: cannot write {}", path.display()))(&error))
    }

    /// Adds a section to the page, or puts it in the place of the one with its heading.
    pub(crate) fn section(&mut self, section: Section) -> Result<(), Error> {
        let sections = &mut self.report.sections;
        match sections.iter_mut().find(|it| it.heading == section.heading) {
            Some(same) => *same = section,
            None => sections.push(section),
        }
        self.write(State::Running)
    }

    /// Puts a section before all others.
    pub(crate) fn first(&mut self, section: Section) -> Result<(), Error> {
        self.report.sections.insert(0, section);
        self.write(State::Running)
    }

    /// The run is over: the page says how. Parts are kept for a run that goes on, if any can.
    pub(crate) fn finish(&mut self, state: State) -> Result<(), Error> {
        self.write(state)?;
        if state == State::Whole {
            self.parts.remove();
        }
        Ok(())
    }

    fn write(&mut self, state: State) -> Result<(), Error> {
        let cannot = failed(format!("cannot write {}", self.page().display()));
        self.write_page(state).map_err(|error| cannot(&error))
    }

    fn write_page(&mut self, state: State) -> io::Result<()> {
        let mut kept = kept();
        self.report.lead = match state.missing() {
            None => self.lead.clone(),
            Some(why) => format!("{}\n\n{why}; sections are missing.", self.lead),
        };
        replace(&self.page(), self.report.to_html().as_bytes())?;
        let rows = self.rows.as_ref();
        let rows = rows.map_or(String::new(), |(path, _)| {
            format!(", rows in {}", path.display())
        });
        *kept = format!(
            "{} sections are in {}{rows}; --resume goes on from there",
            self.report.sections.len(),
            self.page().display()
        );
        Ok(())
    }

    /// Whether a run that this one goes on from has made a part.
    pub(crate) fn has_part(&self, name: &str) -> bool {
        self.parts.find::<IgnoredAny>(name).is_some()
    }

    /// A part that an interrupted run of the same program has made, or else makes it and keeps it.
    pub(crate) fn part<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(part) = self.parts.find(name) {
            return Ok(part);
        }
        let part = make()?;
        let _kept = kept();
        self.parts.keep(name, &part)?;
        Ok(part)
    }
}

/// Parts of a run that are kept for one that goes on.
pub(crate) struct Parts {
    folder: PathBuf,
    /// What decides their bytes: this program and its options.
    key: String,
    resume: bool,
}

#[derive(Serialize, Deserialize)]
struct Kept<T> {
    key: String,
    part: T,
}

impl Parts {
    /// Those of `folder`; found only if `resume`, and if they were made by this very program with
    /// the same `options`.
    pub(crate) fn of(folder: &Path, options: &str, resume: bool) -> Self {
        let mut hasher = DefaultHasher::new();
        let program = std::env::current_exe().and_then(fs::read);
        // A program that cannot read itself finds no part: keys of no bytes are not looked for.
        let known = program.map(|bytes| hasher.write(&bytes)).is_ok();
        Self {
            folder: folder.join("parts"),
            key: format!("{:016x} {options}", hasher.finish()),
            resume: resume && known,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.json"))
    }

    fn find<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let text = self.resume.then(|| fs::read(self.path(name)))?.ok()?;
        let kept: Kept<T> = serde_json::from_slice(&text).ok()?;
        (kept.key == self.key).then_some(kept.part)
    }

    fn keep<T: Serialize>(&self, name: &str, part: &T) -> Result<(), Error> {
        let cannot = failed(format!("cannot write {}", self.path(name).display()));
        let kept = Kept {
            key: self.key.clone(),
            part,
        };
        let text = serde_json::to_vec(&kept).map_err(|error| cannot(&error))?;
        fs::create_dir_all(&self.folder).map_err(|error| cannot(&error))?;
        replace(&self.path(name), &text).map_err(|error| cannot(&error))
    }

    fn remove(&self) {
        // What is left over costs space only: a key decides whether it is used.
        let _may_be_absent = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::{Outputs, Parts, State};
    use minflt_report::{Report, Section};

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("minflt-{name}-{}", std::process::id()));
        let _none_yet = std::fs::remove_dir_all(&folder);
        folder
    }

    fn open(folder: &std::path::Path, options: &str, resume: bool) -> Outputs {
        let parts = Parts::of(folder, options, resume);
        Outputs::open(folder, None, Report::default(), parts).expect("opened")
    }

    #[test]
    fn parts_are_taken_over_by_a_run_that_resumes_with_the_same_options() {
        let folder = folder("parts");
        let make = |outputs: &Outputs, what: u32| outputs.part("one", || Ok(what)).expect("made");
        assert_eq!(make(&open(&folder, "a", true), 1), 1);
        assert_eq!(make(&open(&folder, "a", true), 2), 1);
        assert_eq!(make(&open(&folder, "b", true), 3), 3);
        assert_eq!(make(&open(&folder, "b", false), 4), 4);
        let finish = |state| open(&folder, "b", true).finish(state).expect("finished");
        finish(State::OverBudget);
        let resumed = open(&folder, "b", true);
        assert!(resumed.has_part("one") && !resumed.has_part("two"));
        assert_eq!(make(&resumed, 5), 4);
        finish(State::Whole);
        assert_eq!(make(&open(&folder, "b", true), 5), 5);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_page_says_that_sections_are_missing_until_it_is_whole() {
        let folder = folder("page");
        let mut outputs = open(&folder, "", false);
        let page = |outputs: &Outputs| std::fs::read_to_string(outputs.page()).expect("a page");
        let section = Section {
            heading: "First".into(),
            ..Section::default()
        };
        outputs.section(section).expect("written");
        assert!(page(&outputs).contains("First") && page(&outputs).contains("has not ended"));
        outputs.finish(State::Whole).expect("finished");
        assert!(page(&outputs).contains("First") && !page(&outputs).contains("has not ended"));
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_is_named_before_the_run() {
        let parts = Parts::of("/dev/null".as_ref(), "", false);
        let error = Outputs::open("/dev/null".as_ref(), None, Report::default(), parts);
        let error = error.err().expect("no folder").to_string();
        assert!(
            error.contains("--out") && error.contains("/dev/null"),
            "{error}"
        );
    }
}
