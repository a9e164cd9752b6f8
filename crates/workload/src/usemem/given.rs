//! From the options of `usemem` to the test.

use super::{INFO, MappedBy, Usemem};
use crate::contents::WORD;
use crate::options::OptionError;
use crate::target::{Pages, Populate, Spaces, Use};

impl Usemem {
    /// Reads the options that follow `--`. As in the original, the size may stand at their end
    /// without a name.
    ///
    /// # Errors
    /// When one is unknown, not supported, its value is wrong, or two contradict each other.
    pub fn parse(args: &[String]) -> Result<Self, OptionError> {
        let named = with_named_size(args);
        let given = INFO.given(&named)?;
        given.not_both("--prealloc", "-P")?;
        given.not_both("--prefault", "-F")?;
        let default = Self::default();
        let (processes, threads) = (given.count("-n")?, given.count("-t")?);
        if processes.is_some_and(|count| count > 1) && threads.is_some() {
            return Err(given.error("-n and -t: processes have one thread each; give one of them"));
        }
        let step = given.size("-j")?.unwrap_or(default.step);
        if !step.is_multiple_of(WORD) {
            return Err(given.error(&format!(
                "-j must be a multiple of {WORD} bytes, got {step}"
            )));
        }
        Ok(Self {
            bytes: given
                .size("--size")?
                .unwrap_or(default.bytes)
                .next_multiple_of(WORD),
            count: threads.or(processes),
            spaces: match threads {
                Some(_) => Spaces::Shared,
                None => Spaces::Own,
            },
            mapped_by: match given.has("--prealloc") || given.has("-P") {
                true => MappedBy::First,
                false => MappedBy::Workers,
            },
            populate: match given.has("--prefault") || given.has("-F") {
                true => Populate::Now,
                false => Populate::OnTouch,
            },
            pages: match given.has("-U") {
                true => Pages::Huge,
                false => Pages::Base,
            },
            how: match given.has("-o") {
                true => Use::Load,
                false => Use::Store,
            },
            step,
            rounds: given.count("-r")?.unwrap_or(default.rounds),
        })
    }
}

/// The arguments with `--size` before a last one that is a number and no option's value.
fn with_named_size(args: &[String]) -> Vec<String> {
    let mut named = args.to_vec();
    let takes_value = |name: &str| {
        let mut options = INFO.options.iter();
        options.any(|option| option.name == name && !option.value.is_empty())
    };
    if let [before @ .., last] = args
        && last.starts_with(|first: char| first.is_ascii_digit())
        && !before.last().is_some_and(|name| takes_value(name))
    {
        named.insert(before.len(), "--size".to_owned());
    }
    named
}
