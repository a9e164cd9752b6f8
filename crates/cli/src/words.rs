//! Words of the command line: what is meant by one that is unknown, and values with their units.

use crate::error::{Error, usage};
use core::num::NonZeroU32;
use core::time::Duration;

/// The end of a message about an unknown word: the known one that it resembles, if there is one.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let word = word.to_lowercase();
    // Another number is no slip: it is another thing.
    let digits = |text: &str| -> String { text.chars().filter(char::is_ascii_digit).collect() };
    let known = known
        .into_iter()
        .filter(|name| digits(name) == digits(&word));
    let far = |name: &str| strsim::damerau_levenshtein(&word, &name.to_lowercase());
    let nearest = known.map(|name| (far(name), name)).min();
    // One slip in five letters; in a short word, one.
    let most = (word.chars().count() / 5).max(1);
    match nearest {
        Some((slips, name)) if slips <= most && !word.is_empty() => {
            format!("; did you mean `{name}`?")
        }
        _ => String::new(),
    }
}

/// Refuses a list that has a word twice: its runs would be made twice, and shown as if they were
/// two.
pub(crate) fn distinct(option: &str, list: &str) -> Result<(), Error> {
    let words: Vec<_> = list.split(',').collect();
    let again = (1..words.len()).find(|at| words[..*at].contains(&words[*at]));
    match again.map(|at| words[at]) {
        Some(word) if !word.is_empty() => Err(usage(format!(
            "{option}: `{word}` is named twice; name it once, and use --rounds to repeat runs"
        ))),
        _ => Ok(()),
    }
}

/// How often something is repeated.
pub(crate) fn repeats(word: &str) -> Result<NonZeroU32, String> {
    let count = word.parse().ok().filter(|count| (1..=1000).contains(count));
    count
        .and_then(NonZeroU32::new)
        .ok_or_else(|| "expected an integer from 1 to 1000".into())
}

/// How many of something.
pub(crate) fn count(word: &str) -> Result<NonZeroU32, String> {
    word.parse()
        .map_err(|_| format!("expected an integer from 1 to {}", u32::MAX))
}

/// Any number that is no fraction and not below 0.
pub(crate) fn number(word: &str) -> Result<u64, String> {
    word.parse()
        .map_err(|_| format!("expected an integer from 0 to {}", u64::MAX))
}

/// A time with its unit, of which the program's clock can be that far ahead.
pub(crate) fn time(word: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(word).map_err(|error| error.to_string());
    let time = time.and_then(|time| match time.is_zero() {
        true => Err("nothing would be done in no time".into()),
        false => Ok(time),
    });
    time.map_err(|why| format!("{why}; expected a number and its unit, such as 60s or 5m"))
}

/// A time, of which a plain number is seconds.
pub(crate) fn seconds(word: &str) -> Result<Duration, String> {
    if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit()) {
        return time(&format!("{word}s"));
    }
    time(word)
}

#[cfg(test)]
mod tests {
    use super::{count, did_you_mean, number, repeats, seconds, time};

    #[test]
    fn what_is_meant_is_near() {
        let known = ["pft", "page-fault1", "page-fault2", "ebizzy"];
        let meant = |word| did_you_mean(word, known);
        assert_eq!(meant("pfft"), "; did you mean `pft`?");
        assert_eq!(meant("ebizyz"), "; did you mean `ebizzy`?");
        assert_eq!(meant("Page-Fault1"), "; did you mean `page-fault1`?");
        for far in ["frobnicate", "", "p", "moon", "page-fault3"] {
            assert_eq!(meant(far), "", "{far}");
        }
    }

    #[test]
    fn values_are_refused_with_what_is_expected() {
        for word in ["0", "-1", "1001", "x", "1.5", "", "NaN"] {
            let said = repeats(word).expect_err(word);
            assert_eq!(said, "expected an integer from 1 to 1000");
        }
        assert_eq!(seconds("90"), time("90s"));
        assert_eq!(seconds("2m"), time("2m"));
        assert!(seconds("0").is_err() && seconds("-1").is_err() && seconds("").is_err());
        assert_eq!(repeats("3").map(u32::from), Ok(3));
        assert!(count("0").is_err() && count("4294967296").is_err());
        assert!(number("-1").is_err() && number("18446744073709551616").is_err());
        for word in [
            "0s",
            "5",
            "",
            "soon",
            "-5s",
            "1e9s",
            "99999999999999999999y",
        ] {
            let said = time(word).expect_err(word);
            assert!(said.ends_with("such as 60s or 5m"), "{said}");
        }
        assert_eq!(time("1m").map(|it| it.as_secs()), Ok(60));
    }
}
