//! The list of races, by subject.

use super::drawing::{WIDTH, fill};
use minflt_mm::era;
use minflt_races::{FIVE, RACES, SUBJECTS, race};

/// The races in groups, sorted by number, and where to begin.
pub(super) fn list() -> String {
    debug_assert!(RACES.iter().all(|race| era(race.shows_in).is_some()));
    let widest = |of: fn(&minflt_races::Race) -> &str| {
        let widths = RACES.iter().map(|race| of(race).len());
        widths.max().unwrap_or(0)
    };
    let (number, name) = (widest(|race| race.number), widest(|race| race.name));
    let indent = 2 + number + 2 + name + 2;
    let mut out = String::from(
        "Races: number, scenario, and what must never happen. `minflt races NUMBER` tells more.\n",
    );
    for subject in SUBJECTS {
        out += &format!("\n{}\n", subject.name);
        let races = subject.stories.iter().filter_map(|story| race(story.race));
        for race in races {
            let head = format!("  {:number$}  {:name$}  ", race.number, race.name);
            let never = fill(race.never, WIDTH - indent, 0);
            for (line, text) in never.lines().enumerate() {
                match line {
                    0 => out += &head,
                    _ => out.extend(core::iter::repeat_n(' ', indent)),
                }
                out += text;
                out.push('\n');
            }
        }
    }
    out += "\nFive to learn speculative faults by:\n";
    for (place, (number, why)) in FIVE.iter().enumerate() {
        out += &format!("  {}. {number:4} {why}\n", place + 1);
    }
    out
}
