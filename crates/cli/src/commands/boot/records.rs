//! What a kernel writes to the second serial port: records of the program, and its log.
//!
//! `kernel/src/program.rs` and `guest/src/bin/init.rs` write them.

use core::fmt;

/// How a program ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// By itself, with a status.
    Exited(u8),
    /// By a signal, of this name.
    Signal(String),
    /// It was not started, for this reason.
    Failed(String),
}

/// Signals that end programs, and their numbers.
const SIGNALS: [(&str, u8); 13] = [
    ("SIGHUP", 1),
    ("SIGINT", 2),
    ("SIGQUIT", 3),
    ("SIGILL", 4),
    ("SIGTRAP", 5),
    ("SIGABRT", 6),
    ("SIGBUS", 7),
    ("SIGFPE", 8),
    ("SIGKILL", 9),
    ("SIGSEGV", 11),
    ("SIGPIPE", 13),
    ("SIGALRM", 14),
    ("SIGTERM", 15),
];

impl Ending {
    /// The exit status that a shell would show: 128 and the signal's number where one ended it.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Exited(status) => *status,
            Self::Signal(name) => {
                let known = SIGNALS.iter().find(|(known, _)| known == name);
                128 + known.map_or(0, |(_, number)| *number)
            }
            Self::Failed(_) => 127,
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exited with {status}"),
            Self::Signal(name) => write!(f, "ended by {name}"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// All that was written.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Records {
    /// How the program ended, unless nothing says so.
    pub(crate) ending: Option<Ending>,
    /// What was counted, by name.
    pub(crate) events: Vec<(String, u64)>,
    /// All other lines.
    pub(crate) log: Vec<String>,
}

impl Records {
    /// Reads them. What is no record belongs to the log.
    pub(crate) fn read(text: &str) -> Self {
        let mut records = Self::default();
        for line in text.lines() {
            let line = line.trim_end();
            let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
            let ending = match kind {
                "exit" => rest.parse().ok().map(Ending::Exited),
                "signal" => Some(Ending::Signal(rest.to_owned())),
                "failed" => Some(Ending::Failed(rest.to_owned())),
                _ => None,
            };
            let event = rest.split_once(' ').filter(|_| kind == "event");
            let event = event.and_then(|(name, count)| Some((name, count.parse().ok()?)));
            match (ending, event) {
                // The first counts: a program that was not started has a status, too.
                (Some(ending), _) => {
                    records.ending.get_or_insert(ending);
                }
                (None, Some((name, count))) => records.events.push((name.to_owned(), count)),
                (None, None) if line.is_empty() => {}
                (None, None) => records.log.push(line.to_owned()),
            }
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, Records};

    #[test]
    fn records_are_told_from_the_log() {
        let text = "minflt: era best\r\nexit 3\nevent page-faults 12\nevent odd\ncheck ledger 2\n";
        let records = Records::read(text);
        assert_eq!(records.ending, Some(Ending::Exited(3)));
        assert_eq!(records.events, [("page-faults".to_owned(), 12)]);
        assert_eq!(
            records.log,
            ["minflt: era best", "event odd", "check ledger 2"]
        );
    }

    #[test]
    fn the_first_ending_counts() {
        let of = |text: &str| Records::read(text).ending.map(|ending| ending.status());
        assert_eq!(of("failed /a cannot be executed\nexit 127\n"), Some(127));
        assert_eq!(of("signal SIGSEGV\nexit 0\n"), Some(139));
        assert_eq!(of("exit 256\nexit 4"), Some(4));
        assert_eq!(of("exit\nexit x\nsignals\n"), None);
    }
}
