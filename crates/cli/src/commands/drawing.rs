//! How timelines and paragraphs are laid out on this terminal.

use console::Term;
use minflt_races::Shown;
use minflt_report::table::folded;
use minflt_sim::{Colour, Look, Steps};

/// Characters of a line where there is no terminal, and of a paragraph at most.
pub(super) const WIDTH: usize = 100;

/// As wide as the terminal, and with colour if it has colours and `NO_COLOR` is not set.
pub(super) fn look(all_steps: bool) -> Look {
    let term = Term::stdout();
    let features = term.features();
    let width = term.size_checked().map(|(_, columns)| columns.into());
    Look {
        width: width.filter(|_| features.is_attended()).unwrap_or(WIDTH),
        colour: match features.is_attended() && features.colors_supported() {
            true => Colour::Ansi,
            false => Colour::Off,
        },
        steps: match all_steps {
            true => Steps::All,
            false => Steps::Folded,
        },
    }
}

/// A schedule's timeline, and how it ended.
pub(super) fn drawn(shown: &Shown, look: Look) -> String {
    let outcome = fill(&format!("=> {}", shown.report.outcome), look.width, 3);
    format!("{}\n{outcome}", shown.timeline.draw(look))
}

/// `text` in lines of at most `width` characters, of which all but the first are indented; no line
/// is longer than [`WIDTH`].
pub(super) fn fill(text: &str, width: usize, indent: usize) -> String {
    folded(text, width.min(WIDTH), 0, indent) + "\n"
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn paragraphs_are_filled_to_the_width() {
        assert_eq!(fill("one two three", 9, 2), "one two\n  three\n");
        assert_eq!(fill("one two three", 7, 0), "one two\nthree\n");
        assert_eq!(fill("incomprehensible", 5, 1), "incomprehensible\n");
    }
}
