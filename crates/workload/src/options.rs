//! The options of a workload: one table is both the help and the parser.

use crate::size::parse_size;
use core::fmt;
use std::collections::BTreeMap;

/// The largest size an option takes, bytes: the user half of 48-bit addresses.
pub(crate) const SIZE_MAX: u64 = 1 << 47;

/// A workload as the registry lists it.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// The thread counts (or counts of processes) to run it with unless told.
    pub threads: &'static [u32],
    /// Its own options, given after `--`.
    pub options: &'static [Opt],
    /// Options of the original that are not supported, and what to do instead.
    pub refused: &'static [Refused],
}

/// An option of a workload.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// Its name with its dashes: `-g`, `--len`.
    pub name: &'static str,
    /// What its value is called; empty when it takes none.
    pub value: &'static str,
    /// The value in force when the option is left out, in words where there is none.
    pub default: &'static str,
    /// What it means, with the unit.
    pub help: &'static str,
}

/// An option of the original program that is not supported.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    /// Its name with its dash.
    pub name: &'static str,
    /// Why, and what to do instead.
    pub why: &'static str,
}

/// One clear line about a wrong option, or a wrong value of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptionError {
    words: String,
}

impl OptionError {
    /// An error that says `words`.
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
        }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl core::error::Error for OptionError {}

/// The options given, by name.
#[derive(Debug)]
pub(crate) struct Given<'a> {
    workload: &'static str,
    values: BTreeMap<&'static str, &'a str>,
}

impl Info {
    /// Takes `args` apart by the table. An option's value stands in the next argument, after `=`,
    /// or (where the name is one letter) right behind the name, as `getopt` has it; letters without
    /// a value may stand together, as in `-mTRp`.
    pub(crate) fn given<'a>(&self, args: &'a [String]) -> Result<Given<'a>, OptionError> {
        let mut values = BTreeMap::new();
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let (name, mut attached) = split(arg);
            let mut option = self.find(name)?;
            while let Some((next, behind)) = self.next_letter(option, attached)? {
                if values.insert(option.name, "").is_some() {
                    return Err(self.error(format!("{} is given twice", option.name)));
                }
                (option, attached) = (next, behind);
            }
            let name = option.name;
            let value = match (option.value, attached) {
                ("", None) => "",
                ("", Some(extra)) => {
                    return Err(self.error(format!("{name} takes no value, got `{extra}`")));
                }
                (_, Some(value)) => value,
                (value, None) => rest.next().map(String::as_str).ok_or_else(|| {
                    self.error(format!("{name} requires a value: {name} {value}"))
                })?,
            };
            if values.insert(option.name, value).is_some() {
                return Err(self.error(format!("{name} is given twice")));
            }
        }
        Ok(Given {
            workload: self.name,
            values,
        })
    }

    /// The option that stands in `attached` behind the letter of `option`, which takes no value,
    /// and what is attached to it in turn; `None` where that is no option.
    fn next_letter<'a>(
        &self,
        option: &Opt,
        attached: Option<&'a str>,
    ) -> Result<Option<(&Opt, Option<&'a str>)>, OptionError> {
        let letters = attached.filter(|_| option.value.is_empty() && option.name.len() == 2);
        let Some(letter) = letters.and_then(|letters| letters.chars().next()) else {
            return Ok(None);
        };
        let name = format!("-{letter}");
        let is = |known: &str| known == name;
        let known = self.options.iter().any(|option| is(option.name));
        if !known && !self.refused.iter().any(|refused| is(refused.name)) {
            return Ok(None);
        }
        let next = self.find(&name)?;
        let behind = letters.map(|letters| &letters[letter.len_utf8()..]);
        let behind = behind.filter(|behind| !behind.is_empty());
        Ok(Some((
            next,
            behind.map(|text| text.strip_prefix('=').unwrap_or(text)),
        )))
    }

    fn find(&self, name: &str) -> Result<&Opt, OptionError> {
        if let Some(option) = self.options.iter().find(|option| option.name == name) {
            return Ok(option);
        }
        if let Some(refused) = self.refused.iter().find(|refused| refused.name == name) {
            return Err(self.error(format!("{name} is not supported: {}", refused.why)));
        }
        let names: Vec<_> = self.options.iter().map(|option| option.name).collect();
        Err(self.error(format!(
            "unknown option `{name}`; options are {}",
            names.join(", ")
        )))
    }

    fn error(&self, words: String) -> OptionError {
        OptionError::new(format!("{}: {words}", self.name))
    }
}

/// The name of an argument, and the value attached to it.
fn split(arg: &str) -> (&str, Option<&str>) {
    if arg.starts_with("--") {
        return match arg.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (arg, None),
        };
    }
    match arg.char_indices().nth(2) {
        Some((at, _)) if arg.starts_with('-') => {
            let (name, value) = arg.split_at(at);
            (name, Some(value.strip_prefix('=').unwrap_or(value)))
        }
        _ => (arg, None),
    }
}

impl Given<'_> {
    /// Whether the option is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The option's text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).copied()
    }

    /// The option as a size in bytes, from 1 to [`SIZE_MAX`].
    pub(crate) fn size(&self, name: &str) -> Result<Option<u64>, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let bytes = parse_size(text).map_err(|error| self.error(&format!("{name}: {error}")))?;
        if !(1..=SIZE_MAX).contains(&bytes) {
            return Err(self.error(&format!("{name} must be from 1 byte to 128T, got `{text}`")));
        }
        Ok(Some(bytes))
    }

    /// The option as a count, at least 1.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u32>, OptionError> {
        self.count_from(1, name)
    }

    /// The option as an integer of at least `least`.
    pub(crate) fn count_from(&self, least: u32, name: &str) -> Result<Option<u32>, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(count) if count >= least => Ok(Some(count)),
            _ => Err(self.error(&format!(
                "{name} must be an integer from {least} to {}, got `{text}`",
                u32::MAX
            ))),
        }
    }

    /// The option as a time in seconds, in nanoseconds: more than 0, at most a million seconds.
    pub(crate) fn nanos(&self, name: &str) -> Result<Option<u64>, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let seconds = text
            .parse::<f64>()
            .ok()
            .filter(|s| (1e-9..=1e6).contains(s));
        match seconds {
            Some(seconds) => Ok(Some((seconds * 1e9) as u64)),
            None => Err(self.error(&format!(
                "{name} must be a time in seconds, such as 10 or 0.5, got `{text}`"
            ))),
        }
    }

    /// The option as one of `words`; the first of them where it is left out.
    pub(crate) fn one_of<T: Copy>(
        &self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, OptionError> {
        let Some(text) = self.text(name) else {
            return Ok(words.first().map(|(_, value)| *value));
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        Err(self.error(&format!(
            "{name} must be {}, got `{text}`",
            known.join(" or ")
        )))
    }

    /// Two options that exclude each other are not both given.
    pub(crate) fn not_both(&self, one: &str, other: &str) -> Result<(), OptionError> {
        if self.has(one) && self.has(other) {
            return Err(self.error(&format!("{one} and {other} are mutually exclusive")));
        }
        Ok(())
    }

    /// An error about these options.
    pub(crate) fn error(&self, words: &str) -> OptionError {
        OptionError::new(format!("{}: {words}", self.workload))
    }
}

#[cfg(test)]
mod tests {
    use super::{Info, Opt, OptionError, Refused};

    const INFO: Info = Info {
        name: "demo",
        about: "",
        threads: &[1],
        options: &[
            Opt {
                name: "-g",
                value: "N",
                default: "1",
                help: "",
            },
            Opt {
                name: "--len",
                value: "SIZE",
                default: "1M",
                help: "",
            },
            Opt {
                name: "-z",
                value: "",
                default: "off",
                help: "",
            },
            Opt {
                name: "-y",
                value: "",
                default: "off",
                help: "",
            },
        ],
        refused: &[Refused {
            name: "-s",
            why: "nothing sleeps here",
        }],
    };

    fn words(args: &[&str]) -> String {
        let args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        let look = || -> Result<(Option<u32>, Option<u64>), OptionError> {
            let given = INFO.given(&args)?;
            Ok((given.count("-g")?, given.size("--len")?))
        };
        match look() {
            Ok(values) => format!("{values:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn values_stand_behind_after_or_beyond_an_equals_sign() {
        assert_eq!(words(&["-g2", "--len=64K"]), "(Some(2), Some(65536))");
        assert_eq!(
            words(&["-g", "2", "--len", "64K", "-z"]),
            "(Some(2), Some(65536))"
        );
        assert_eq!(words(&["-g=2"]), "(Some(2), None)");
        assert_eq!(words(&["-zyg2"]), "(Some(2), None)");
        assert_eq!(words(&["-yzg", "2"]), "(Some(2), None)");
        assert_eq!(words(&[]), "(None, None)");
    }

    #[test]
    fn every_error_is_one_line_that_says_what_is_right() {
        for (args, says) in [
            (
                &["-q"][..],
                "demo: unknown option `-q`; options are -g, --len, -z, -y",
            ),
            (
                &["stray"],
                "demo: unknown option `stray`; options are -g, --len, -z, -y",
            ),
            (
                &["-s", "3"],
                "demo: -s is not supported: nothing sleeps here",
            ),
            (&["-s3"], "demo: -s is not supported: nothing sleeps here"),
            (&["-g"], "demo: -g requires a value: -g N"),
            (&["-g1", "-g2"], "demo: -g is given twice"),
            (&["-z1"], "demo: -z takes no value, got `1`"),
            (&["-yz1"], "demo: -z takes no value, got `1`"),
            (&["-yzz"], "demo: -z is given twice"),
            (&["-ys"], "demo: -s is not supported: nothing sleeps here"),
            (&["-yg"], "demo: -g requires a value: -g N"),
            (
                &["-g0"],
                "demo: -g must be an integer from 1 to 4294967295, got `0`",
            ),
            (
                &["-g", "two"],
                "demo: -g must be an integer from 1 to 4294967295, got `two`",
            ),
            (
                &["--len", "0"],
                "demo: --len must be from 1 byte to 128T, got `0`",
            ),
            (
                &["--len", "1X"],
                "demo: --len: invalid size `1X`: the suffix must be K, M, G or T",
            ),
        ] {
            assert_eq!(words(args), says);
        }
    }
}
