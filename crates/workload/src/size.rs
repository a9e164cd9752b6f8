//! Sizes as the command line spells them: `64K`, `256M`, `32G`.

use core::fmt;

/// Why a text is not a size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizeError {
    text: String,
    why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Why {
    NoNumber,
    Suffix,
    TooLarge,
}

/// Bytes of `text`: a decimal number, and `K`, `M`, `G` or `T` (of either case) for the powers of
/// 1024, or nothing for bytes.
///
/// # Errors
/// When the text is anything else, or the size does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let fail = |why| SizeError {
        text: text.to_owned(),
        why,
    };
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    if digits.is_empty() {
        return Err(fail(Why::NoNumber));
    }
    let shift = match suffix {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(fail(Why::Suffix)),
    };
    let number: u64 = digits.parse().map_err(|_| fail(Why::TooLarge))?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| fail(Why::TooLarge))
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.text;
        match self.why {
            Why::NoNumber => write!(
                f,
                "invalid size `{text}`: expected a number with an optional suffix, such as 4096, 64K or 32G"
            ),
            Why::Suffix => write!(f, "invalid size `{text}`: the suffix must be K, M, G or T"),
            Why::TooLarge => write!(f, "size `{text}` exceeds 64 bits"),
        }
    }
}

impl core::error::Error for SizeError {}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn suffixes_are_powers_of_1024() {
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("16384"), Ok(16_384));
        assert_eq!(parse_size("64K"), Ok(65_536));
        assert_eq!(parse_size("256m"), Ok(268_435_456));
        assert_eq!(parse_size("32G"), Ok(34_359_738_368));
        assert_eq!(parse_size("1T"), Ok(1 << 40));
    }

    #[test]
    fn errors_name_the_text_and_what_is_right() {
        let told = |text: &str| parse_size(text).map_err(|error| error.to_string());
        for text in ["", "G", "-1", "x12"] {
            let words = told(text).unwrap_err();
            assert!(
                words.contains(&format!("`{text}`")) && words.contains("64K"),
                "{words}"
            );
        }
        for text in ["1KB", "1 G", "1.5G", "12x"] {
            let words = told(text).unwrap_err();
            assert!(
                words.contains(text) && words.contains("K, M, G or T"),
                "{words}"
            );
        }
        for text in ["18446744073709551616", "16777216T"] {
            assert!(told(text).unwrap_err().contains("64 bits"));
        }
    }
}
