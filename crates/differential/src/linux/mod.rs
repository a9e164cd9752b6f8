//! The kernel of the machine we run on, as a subject: a child process runs the steps.

mod answers;
#[expect(unsafe_code, reason = "memory shared with the child")]
mod area;
mod child;
mod files;
mod huge;
#[expect(unsafe_code, reason = "accesses that raise signals, and their handler")]
#[expect(
    clippy::disallowed_types,
    reason = "no machine of ours runs here, so there is no door"
)]
mod probe;
mod remote;
#[expect(unsafe_code, reason = "the system calls")]
mod sys;
mod userfault;

use crate::record::{FileShot, MapLine, Outcome, Record, Snapshot, Subject, smaps_flags};
use crate::step::Step;
use crate::window::Window;
use area::{Area, COUNT, DONE, RECORDS, STEP_WORDS, STEPS, STEPS_MAX, USED, WINDOW};
use files::Files;
use huge::Pool;

/// The kernel the model is of; older ones merge and move by other rules.
const SINCE: (u32, u32) = (6, 18);

/// Linux, in a child process.
#[derive(Debug)]
pub struct Linux {
    area: Area,
    _files: Files,
    pool: Option<Pool>,
    pid: i32,
    commands: i32,
    answers: i32,
    release: String,
}

impl Linux {
    /// Starts the child.
    ///
    /// # Errors
    /// Why this machine cannot be compared with, in words.
    pub fn start() -> Result<Self, String> {
        Self::start_with(None)
    }

    /// The same with huge pages: the machine's pool is this run's until it ends, and as it was
    /// then.
    ///
    /// # Errors
    /// As [`Self::start`], and where the pool cannot be had.
    pub fn start_with_huge_pages() -> Result<Self, String> {
        Self::start_with(Some(Pool::take()?))
    }

    fn start_with(pool: Option<Pool>) -> Result<Self, String> {
        let release = sys::release();
        if version(&release) < Some(SINCE) {
            let (major, minor) = SINCE;
            return Err(format!("Linux {release} is older than {major}.{minor}"));
        }
        let failed = |what: &'static str| move |errno| format!("{what}: errno {errno}");
        let area = Area::new().map_err(failed("mmap"))?;
        let files = Files::open().map_err(|error| format!("files: {error}"))?;
        let theirs = sys::pipe().map_err(failed("pipe"))?;
        let ours = sys::pipe().map_err(failed("pipe"))?;
        let pid = match sys::fork().map_err(failed("fork"))? {
            0 => {
                sys::close(theirs[1]);
                sys::close(ours[0]);
                let mut numbers = files.numbers();
                numbers.huge = pool.as_ref().map(Pool::numbers);
                child::nursery(area, numbers, theirs[0], ours[1])
            }
            pid => pid,
        };
        sys::close(theirs[0]);
        sys::close(ours[1]);
        let mut linux = Self {
            area,
            _files: files,
            pool,
            pid,
            commands: theirs[1],
            answers: ours[0],
            release,
        };
        match sys::receive(linux.answers) {
            Some(1) => Ok(linux),
            Some(_) => {
                let words = linux.area.words();
                let what = child::SETUP.get(words[COUNT] as usize).unwrap_or(&"set up");
                Err(format!("the child cannot {what}: errno {}", words[USED]))
            }
            None => Err("the child died while it was set up".to_owned()),
        }
    }

    /// The kernel's release.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        sys::close(self.commands);
        sys::close(self.answers);
        sys::kill(self.pid);
        let _status = sys::wait(self.pid);
    }
}

impl Subject for Linux {
    fn name(&self) -> String {
        format!("Linux {}", self.release)
    }

    fn run(&mut self, steps: &[Step]) -> Result<Vec<Record>, (String, usize)> {
        let steps = &steps[..steps.len().min(STEPS_MAX)];
        let window = Window::of(steps);
        if window == Window::Small {
            return self.run_in(steps, window);
        }
        let Some(pool) = &self.pool else {
            return Err(("there are no huge pages".to_owned(), 0));
        };
        if !pool.rests() {
            return Err(("others use huge pages".to_owned(), 0));
        }
        let ran = self.run_in(steps, window);
        match self.pool.as_ref().is_some_and(Pool::rests) {
            true => ran,
            false => Err(("huge pages were not given back".to_owned(), steps.len())),
        }
    }

    fn has_huge_pages(&self) -> bool {
        self.pool.is_some()
    }
}

impl Linux {
    fn run_in(&mut self, steps: &[Step], window: Window) -> Result<Vec<Record>, (String, usize)> {
        let words = self.area.words();
        words[COUNT] = steps.len() as u64;
        words[DONE] = 0;
        words[WINDOW] = u64::from(window == Window::Huge);
        for (step, place) in steps
            .iter()
            .zip(words[STEPS..].chunks_exact_mut(STEP_WORDS))
        {
            place[0] = step.call as u64;
            place[1..=step.args.len()].copy_from_slice(&step.args);
        }
        let answer = match sys::send(self.commands, 0) {
            Ok(()) => sys::receive(self.answers),
            Err(_) => None,
        };
        let words = self.area.words();
        let done = words[DONE] as usize;
        match answer {
            Some(0) => Ok(read_records(words, steps.len(), window)),
            Some(_) => Err(("the case's process died".to_owned(), done)),
            None => Err(("the nursery died".to_owned(), done)),
        }
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split('.').map(str::parse::<u32>);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

fn read_records(words: &[u64], count: usize, window: Window) -> Vec<Record> {
    let mut rest = words[RECORDS..].iter().copied();
    let mut next = || rest.next().unwrap_or_default();
    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        let [kind, value, low, high] = [(); 4].map(|()| next());
        let outcome = match kind {
            0 => Outcome::Done(value, [low, high]),
            1 => Outcome::Errno(value as i32),
            _ => Outcome::Signal(value as i32),
        };
        let pool = [(); 2].map(|()| next());
        let mappings = next();
        let maps = (0..mappings)
            .map(|_| MapLine {
                start: next(),
                end: next(),
                rights: next(),
                of: next(),
                offset: next(),
            })
            .collect();
        let present = Some([(); 2].map(|()| next()));
        let counted = next();
        let words = (0..counted).map(|_| (next(), next())).collect();
        let counted = next();
        let of_files = (0..counted).map(|_| (next(), next())).collect();
        let counted = next();
        let files = (counted > 0).then(|| (0..counted).map(|_| read_file(&mut next)).collect());
        let bytes = next() as usize;
        let text: Vec<u8> = (0..bytes.div_ceil(8))
            .flat_map(|_| next().to_le_bytes())
            .collect();
        let flags =
            (bytes > 0).then(|| smaps_flags(&String::from_utf8_lossy(&text[..bytes]), window));
        let after = Snapshot {
            maps,
            present,
            words,
            of_files,
            files,
            pool: (window == Window::Huge).then_some(pool),
            flags,
        };
        records.push(Record { outcome, after });
    }
    records
}

fn read_file(next: &mut impl FnMut() -> u64) -> FileShot {
    let bytes = next();
    let counted = next();
    let words = (0..counted).map(|_| next()).collect();
    FileShot { bytes, words }
}
