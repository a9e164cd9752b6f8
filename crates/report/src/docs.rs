//! Replaces generated blocks in hand-written markdown.

use core::error::Error;
use core::fmt;

/// Why a generated part could not be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkerError {
    /// The part's opening marker does not occur.
    Missing(String),
    /// The opening marker occurs more than once.
    Twice(String),
    /// No end marker follows the opening one before another part begins.
    Open(String),
}

impl fmt::Display for MarkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => write!(f, "missing marker `<!-- generated: {name} -->`"),
            Self::Twice(name) => write!(f, "duplicate marker `<!-- generated: {name} -->`"),
            Self::Open(name) => write!(f, "missing end marker `<!-- end generated: {name} -->`"),
        }
    }
}

impl Error for MarkerError {}

/// Replaces the text between `<!-- generated: NAME -->` and `<!-- end generated: NAME -->`.
///
/// The markers stay; `body` is set off from them by line ends. Replacing twice changes nothing.
///
/// # Errors
/// A marker is missing, or the opening one occurs twice.
pub fn replace_generated(text: &str, name: &str, body: &str) -> Result<String, MarkerError> {
    let (begin, end) = (
        format!("<!-- generated: {name} -->"),
        format!("<!-- end generated: {name} -->"),
    );
    let (before, rest) = text
        .split_once(&begin)
        .ok_or_else(|| MarkerError::Missing(name.to_owned()))?;
    if rest.contains(&begin) {
        return Err(MarkerError::Twice(name.to_owned()));
    }
    let (old, after) = rest
        .split_once(&end)
        .ok_or_else(|| MarkerError::Open(name.to_owned()))?;
    if old.contains("<!-- generated: ") {
        return Err(MarkerError::Open(name.to_owned()));
    }
    Ok(format!(
        "{before}{begin}\n\n{}\n\n{end}{after}",
        body.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::{MarkerError, replace_generated};

    const PAGE: &str = "Head\n<!-- generated: a -->\nold\n<!-- end generated: a -->\nmiddle\n\
                        <!-- generated: b --><!-- end generated: b -->\ntail\n";

    #[test]
    fn only_the_named_part_changes() {
        let once = replace_generated(PAGE, "a", "| new |\n").unwrap();
        assert_eq!(
            once,
            "Head\n<!-- generated: a -->\n\n| new |\n\n<!-- end generated: a -->\nmiddle\n\
             <!-- generated: b --><!-- end generated: b -->\ntail\n"
        );
        assert_eq!(replace_generated(&once, "a", "| new |").unwrap(), once);
        assert!(
            replace_generated(&once, "b", "x")
                .unwrap()
                .ends_with("generated: b -->\ntail\n")
        );
    }

    #[test]
    fn missing_markers_are_errors() {
        let name = |text: &str| text.to_owned();
        assert_eq!(
            replace_generated(PAGE, "c", ""),
            Err(MarkerError::Missing(name("c")))
        );
        let open = PAGE.replace("<!-- end generated: a -->", "");
        assert_eq!(
            replace_generated(&open, "a", ""),
            Err(MarkerError::Open(name("a")))
        );
        let crossed = "<!-- generated: a --><!-- generated: b --><!-- end generated: a -->";
        assert_eq!(
            replace_generated(crossed, "a", ""),
            Err(MarkerError::Open(name("a")))
        );
        let twice = format!("{PAGE}{PAGE}");
        assert_eq!(
            replace_generated(&twice, "a", ""),
            Err(MarkerError::Twice(name("a")))
        );
    }
}
