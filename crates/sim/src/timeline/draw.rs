//! A timeline as text.

use super::{Row, Timeline};
use core::fmt::Write as _;

/// How a timeline is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Characters of a line; longer texts are cut.
    pub width: usize,
    /// Whether marks stand out.
    pub colour: Colour,
    /// Which steps are shown.
    pub steps: Steps,
}

/// Whether marks stand out by colour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colour {
    /// Plain text.
    Off,
    /// Escape sequences of terminals.
    Ansi,
}

/// Which steps are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Steps {
    /// Those that matter; of a run that is very long, its beginning and its end.
    Folded,
    /// All.
    All,
}

impl Default for Look {
    fn default() -> Self {
        Self {
            width: 100,
            colour: Colour::Off,
            steps: Steps::Folded,
        }
    }
}

/// Characters of a step's number, and of the blanks behind it.
const HEAD: usize = 8;
/// Rows shown at the beginning and at the end of a run that is very long.
const MOST: usize = 120;
/// Folds of fewer steps are not mentioned: the numbers of the steps show them.
const FEW: usize = 4;
/// The narrowest line: a step's number, lanes of some characters, a mark.
const NARROW: usize = 60;

const BOLD_RED: &str = "\u{1b}[1;31m";
const DIM: &str = "\u{1b}[2m";
const OFF: &str = "\u{1b}[0m";

/// A line before it is laid out.
enum Line<'a> {
    Row(&'a Row, usize),
    Fold { lane: usize, steps: usize },
    Gap(usize),
}

impl Timeline {
    /// The timeline as text, each row on a line.
    #[must_use]
    pub fn draw(&self, look: Look) -> String {
        let look = Look {
            width: look.width.max(NARROW),
            ..look
        };
        let mut out = self.heading(look);
        for line in self.lines(look.steps) {
            self.line(look, &line, &mut out);
        }
        out
    }

    /// What is shown, in order.
    fn lines(&self, steps: Steps) -> Vec<Line<'_>> {
        if steps == Steps::All {
            return self.rows.iter().map(|row| Line::Row(row, 1)).collect();
        }
        let mut times = vec![1; self.rows.len()];
        for first in self.rows.iter().filter_map(|row| row.repeats) {
            times[first] += 1;
        }
        let mut lines = Vec::new();
        let mut folded = (0, 0);
        let close = |lines: &mut Vec<Line<'_>>, (lane, steps): (usize, usize)| {
            if steps >= FEW {
                lines.push(Line::Fold { lane, steps });
            }
        };
        for (number, row) in self.rows.iter().enumerate() {
            if row.repeats.is_some() {
                continue;
            }
            if row.kept || row.lane != folded.0 {
                close(&mut lines, folded);
                folded = (row.lane, 0);
            }
            if row.kept {
                lines.push(Line::Row(row, times[number]));
            } else {
                folded.1 += 1;
            }
        }
        close(&mut lines, folded);
        if lines.len() <= 2 * MOST {
            return lines;
        }
        let last = lines.len() - MOST;
        let mut kept: Vec<Line<'_>> = Vec::new();
        for (number, line) in lines.into_iter().enumerate() {
            let marked = matches!(&line, Line::Row(row, _) if row.mark.is_some());
            match kept.last_mut() {
                _ if marked || number < MOST || number >= last => kept.push(line),
                Some(Line::Gap(rows)) => *rows += 1,
                _ => kept.push(Line::Gap(1)),
            }
        }
        kept
    }

    /// Where a lane begins. Texts may go on below the lanes to the right, so the last one gets as
    /// much again.
    fn column(&self, lane: usize, width: usize) -> usize {
        HEAD + lane * ((width - HEAD) / (self.lanes.len() + 1))
    }

    fn heading(&self, look: Look) -> String {
        let mut line = format!("{:>6}  ", "step");
        for (number, lane) in self.lanes.iter().enumerate() {
            let column = self.column(number, look.width);
            let next = match number + 1 == self.lanes.len() {
                true => look.width + 1,
                false => self.column(number + 1, look.width),
            };
            let cpu = format!(" (CPU {})", lane.cpu);
            let room = next - column - 1;
            let whole = format!("{}{cpu}", lane.name);
            let text = match whole.chars().count() <= room {
                true => whole,
                false => cut(&lane.name, room),
            };
            pad(&mut line, column);
            line += &text;
        }
        line + "\n"
    }

    fn line(&self, look: Look, line: &Line<'_>, out: &mut String) {
        let (lane, number, text, mark) = match line {
            Line::Row(row, times) => {
                let again = match times {
                    1 => String::new(),
                    times => format!(" ({times} times)"),
                };
                let number = row.step.to_string();
                let mark = row.mark.map(|mark| format!("<-- {}", mark.text()));
                (row.lane, number, (row.text.as_str(), again), mark)
            }
            Line::Fold { lane, steps } => {
                let name = &self.lanes[*lane].name;
                let text = format!("... {steps} steps of {name} on its own ...");
                return self.aside(look, *lane, &text, out);
            }
            Line::Gap(rows) => {
                let text = format!("... {rows} rows; --all-steps shows them ...");
                return self.aside(look, 0, &text, out);
            }
        };
        let mut plain = format!("{number:>6}  ");
        let column = self.column(lane, look.width);
        self.guides(&mut plain, lane, look.width);
        let tail = mark.as_ref().map_or(0, |mark| mark.len() + 1) + text.1.chars().count();
        let room = look.width.saturating_sub(column + tail);
        plain += &cut(text.0, room);
        plain += &text.1;
        out.push_str(&plain);
        let mut used = plain.chars().count();
        if let Some(mark) = mark {
            let _written = match look.colour {
                Colour::Off => write!(out, " {mark}"),
                Colour::Ansi => write!(out, " {BOLD_RED}{mark}{OFF}"),
            };
            used += mark.len() + 1;
        }
        // The other lanes go on where the text leaves room.
        for other in lane + 1..self.lanes.len() {
            let column = self.column(other, look.width);
            if used < column {
                out.extend(core::iter::repeat_n(' ', column - used));
                out.push('|');
                used = column + 1;
            }
        }
        out.push('\n');
    }

    /// A line that is no step.
    fn aside(&self, look: Look, lane: usize, text: &str, out: &mut String) {
        let mut plain = String::new();
        pad(&mut plain, HEAD);
        self.guides(&mut plain, lane, look.width);
        let room = look.width - self.column(lane, look.width);
        out.push_str(&plain);
        let text = cut(text, room);
        match look.colour {
            Colour::Off => out.push_str(&text),
            Colour::Ansi => {
                let _written = write!(out, "{DIM}{text}{OFF}");
            }
        }
        out.push('\n');
    }

    /// The lanes to the left of one.
    fn guides(&self, line: &mut String, lane: usize, width: usize) {
        for other in 0..lane {
            pad(line, self.column(other, width));
            line.push('|');
        }
        pad(line, self.column(lane, width));
    }
}

fn pad(line: &mut String, to: usize) {
    let used = line.chars().count();
    line.extend(core::iter::repeat_n(' ', to.saturating_sub(used)));
}

/// The text, or as much of it as there is room for.
fn cut(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars()
        .take(room.saturating_sub(1))
        .chain(['~'])
        .collect()
}
