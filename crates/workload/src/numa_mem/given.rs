//! From the options of `numa-mem` to the test.

use super::{First, INFO, Memory, NumaMem, SECONDS, TouchedBy};
use crate::contents::WORD;
use crate::options::{Given, OptionError};
use crate::size::parse_size;
use crate::target::Use;

impl NumaMem {
    /// Reads the options that follow `--`.
    ///
    /// # Errors
    /// When one is unknown, not supported, its value is wrong, or two contradict each other.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let given = INFO.given(args)?;
        for (on, off) in [
            ("-R", "--no-data_reads"),
            ("-W", "--no-data_writes"),
            ("-B", "--no-data_backwards"),
            ("-r", "--no-data_rand_walk"),
            ("-z", "-I"),
        ] {
            given.not_both(on, off)?;
        }
        let has = |name| given.has(name);
        let test = Self {
            processes: given.count("-p")?,
            threads: given.count("-t")?,
            memory: Memory::given(&given)?,
            loops: given.count("-l")?,
            limit_ns: match (given.nanos("-s")?, has("-l")) {
                (None, false) => Some(SECONDS * 1_000_000_000),
                (limit, _) => limit,
            },
            how: how(&given)?,
            backwards: !has("--no-data_backwards"),
            random: !has("--no-data_rand_walk"),
            first: if has("-z") {
                First::Zeros
            } else {
                First::Words
            },
            touched_by: if has("-0") {
                TouchedBy::First
            } else {
                TouchedBy::Owner
            },
            details: has("-d"),
            quiet: has("-q"),
        };
        test.check(&given)?;
        Ok(test)
    }

    fn check(&self, given: &Given<'_>) -> Result<(), OptionError> {
        let several = self.processes.is_some_and(|count| count > 1);
        if several && self.threads.is_some_and(|count| count > 1) {
            return Err(
                given.error("-p and -t: several processes have one thread each; give -p 1 or -t 1")
            );
        }
        if several && self.touched_by == TouchedBy::First {
            return Err(given.error(
                "-0: the first thread can touch the memory of its own process only; give -p 1",
            ));
        }
        Ok(())
    }
}

impl Memory {
    fn given(given: &Given<'_>) -> Result<Self, OptionError> {
        let size = |name| megabytes(given, name);
        let [global, process, locked, thread] =
            [size("-G")?, size("-P")?, size("-L")?, size("-T")?];
        let memory = Self {
            global: match (global, process, thread) {
                (None, None, None) => 1 << 20,
                (global, ..) => global.unwrap_or(0),
            },
            process: process.unwrap_or(0),
            locked: locked.unwrap_or(0),
            thread: thread.unwrap_or(0),
        };
        if memory.locked > memory.process {
            return Err(given.error("-L is a part of -P; give no more than -P has"));
        }
        if memory.global == 0 && memory.process == 0 && memory.thread == 0 {
            return Err(given.error("no memory at all; give -T, -P or -G"));
        }
        Ok(memory)
    }
}

/// An option that counts megabytes (2^20 bytes), as the original's do, or has a suffix of sizes;
/// rounded up to words.
fn megabytes(given: &Given<'_>, name: &str) -> Result<Option<u64>, OptionError> {
    let Some(text) = given.text(name) else {
        return Ok(None);
    };
    let bytes = match text.parse::<f64>() {
        Ok(mb) if (0.0..=(1 << 27) as f64).contains(&mb) => Some((mb * 1_048_576.0).ceil() as u64),
        Ok(_) => None,
        Err(_) => parse_size(text).ok().filter(|bytes| *bytes <= 1 << 47),
    };
    match bytes {
        Some(bytes) => Ok(Some(bytes.next_multiple_of(WORD))),
        None => Err(given.error(&format!(
            "{name} must be megabytes, such as 32 or 0.5, or a size such as 64K, got `{text}`"
        ))),
    }
}

/// What is done with the words.
fn how(given: &Given<'_>) -> Result<Use, OptionError> {
    let loads = !given.has("--no-data_reads");
    let stores = !given.has("--no-data_writes");
    match (given.has("-Z"), loads, stores) {
        (true, _, false) => Err(given.error("-Z and --no-data_writes are mutually exclusive")),
        (true, _, true) | (false, false, true) => Ok(Use::Store),
        (false, true, false) => Ok(Use::Load),
        (false, true, true) => Ok(Use::Update),
        (false, false, false) => Err(given.error(
            "--no-data_reads and --no-data_writes leave nothing to do; leave one of them out",
        )),
    }
}
