//! What came out, in two lines a claim.
//!
//! The factor that a posting published is set beside the simulated one, and what this machine's own
//! threads gain by the same change. Published machines are larger than this one, so only the
//! simulated factor is judged: it *agrees* within [`NEAR`]; else it has the *direction only*, if
//! both factors lie on the same side of one by more than [`TIE`]; else it *misses*.

use super::proof::{Figure, Proof};
use crate::experiment::machine;
use crate::out::{grouped, outln};
use console::style;
use minflt_report::picture::{FactorRow, Factors};
use minflt_report::published::{Headline, Place};
use minflt_report::table::folded;
use minflt_report::{Cell, Column, Picture, Posting, PublishedTable, Status, Table};
use minflt_sim::Source;
use std::collections::BTreeMap;

/// How far the simulated factor of what agrees may be from the published one.
const NEAR: f64 = 1.25;
/// Factors this near to one are no change.
const TIE: f64 = 1.1;
/// Characters of a printed line.
const WIDE: usize = 100;

/// Our figures, by their place in what was published.
pub(super) type Cells = BTreeMap<Place, (f64, Status)>;

/// How a simulated factor stands to the published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stands {
    Agrees,
    DirectionOnly,
    Misses,
    NotSimulated,
}

impl Stands {
    fn of(published: f64, simulated: Option<f64>) -> Self {
        let Some(simulated) = simulated else {
            return Self::NotSimulated;
        };
        let side = |factor: f64| (factor > TIE, factor < 1.0 / TIE);
        let ratio = simulated / published;
        if (1.0 / NEAR..=NEAR).contains(&ratio) {
            Self::Agrees
        } else if side(simulated) == side(published) {
            Self::DirectionOnly
        } else {
            Self::Misses
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::DirectionOnly => "direction only",
            Self::Misses => "misses",
            Self::NotSimulated => "not simulated",
        }
    }

    /// The word, as wide as the widest, in a colour where there are some.
    fn shown(self) -> String {
        let word = style(format!("{:<14}", self.word()));
        match self {
            Self::Agrees => word.green(),
            Self::DirectionOnly => word.yellow(),
            Self::Misses => word.red(),
            Self::NotSimulated => word.dim(),
        }
        .to_string()
    }
}

/// A claim and what came of it.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    posting: String,
    claim: String,
    /// The figures that were published, and the factor between them.
    published: (f64, f64, f64),
    unit: String,
    /// The factor that is simulated, and what it claims to be.
    simulated: Option<(f64, Status)>,
    here: String,
    /// The factor measured here, with its interval, where it is a figure.
    measured: Option<Figure>,
    stands: Stands,
    /// The simulated machine and what its figures rest on; `None` where none of them decides the
    /// factor.
    rests: Option<Rests>,
}

/// What the figures of a simulated machine rest on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rests {
    machine: String,
    guesses: usize,
    fitted: usize,
    figures: usize,
}

impl Rests {
    /// The machine of a table. A count of faults rests on none.
    fn on(table: &PublishedTable, status: Status) -> Option<Self> {
        if status == Status::Counted {
            return None;
        }
        let file = machine(table).ok()?;
        let [guesses, fitted] = [Source::Guess, Source::Fitted].map(|source| file.count(source));
        Some(Self {
            figures: file.numbers().count(),
            machine: file.name,
            guesses,
            fitted,
        })
    }

    fn words(&self) -> String {
        let fitted = match self.fitted {
            0 => String::new(),
            fitted => format!(", {fitted} fitted"),
        };
        format!(
            "{}: {} of {} figures are guesses{fitted}",
            self.machine, self.guesses, self.figures
        )
    }
}

/// The verdict of every claim of `postings`.
pub(super) fn verdicts(postings: &[Posting], cells: &Cells, proof: &Proof) -> Vec<Verdict> {
    let claims = postings
        .iter()
        .flat_map(|posting| posting.headlines.iter().map(move |it| (posting, it)));
    claims
        .filter_map(|(posting, headline)| verdict(posting, headline, cells, proof))
        .collect()
}

fn verdict(
    posting: &Posting,
    headline: &Headline,
    cells: &Cells,
    proof: &Proof,
) -> Option<Verdict> {
    let published = |place| posting.at(place).and_then(|(_, cell)| cell.value);
    let (before, after) = (published(&headline.before)?, published(&headline.after)?);
    let factor = headline.factor(before, after);
    let ours = |place| cells.get(place).copied();
    let simulated = ours(&headline.before)
        .zip(ours(&headline.after))
        .map(|((before, _), (after, status))| (headline.factor(before, after), status));
    let (table, _) = posting.at(&headline.after)?;
    let row = table.row_labels().position(|it| it == headline.after.row)?;
    Some(Verdict {
        posting: posting.id.clone(),
        claim: headline.claim.clone(),
        published: (before, after, factor),
        unit: table
            .unit(row, &headline.after.column)
            .unwrap_or_default()
            .into(),
        simulated,
        here: here(headline, proof),
        measured: headline
            .here
            .as_ref()
            .and_then(|of| proof.gain(of))
            .filter(|gain| gain.noise.is_none())
            .map(|gain| gain.factor),
        stands: Stands::of(factor, simulated.map(|it| it.0)),
        rests: simulated.and_then(|(_, status)| Rests::on(table, status)),
    })
}

/// What was measured here of it.
fn here(headline: &Headline, proof: &Proof) -> String {
    let Some(of) = &headline.here else {
        return format!("not here: {}", headline.not_here);
    };
    match proof.gain(of) {
        None => "not measured here".into(),
        Some(gain) => match &gain.noise {
            Some(why) => format!("here too noisy: {why}"),
            None if gain.factor.shows_no_difference() => {
                let (low, high) = (gain.factor.low, gain.factor.high);
                format!("here no change ({low:.2} to {high:.2})")
            }
            None => format!("here x{}", gain.factor.shown(2)),
        },
    }
}

impl Verdict {
    fn factors(&self) -> String {
        let (.., published) = self.published;
        let simulated = self
            .simulated
            .map_or("not simulated".into(), |(factor, status)| {
                let part = factor / published;
                format!("simulated x{factor:.2} ({part:.2} of it, {status})")
            });
        format!("published x{published:.2}  {simulated}")
    }
}

/// Prints them.
pub(super) fn print(verdicts: &[Verdict]) {
    outln!("\n{}", style("What came out").bold());
    for it in verdicts {
        outln!("{}  {}  {}", it.posting, it.stands.shown(), it.claim);
        outln!("      {}  {}", it.factors(), it.here);
    }
    if let Some(guesses) = guesses(verdicts) {
        outln!("{guesses}");
    }
    outln!(
        "agrees: the simulated factor is within 25% of the published one; direction only: both say\n\
         better, or both say worse. Simulated on models of the postings' machines (docs/validation.md\n\
         says what misses and why). Here: this machine's threads, median (middle 5 of 7 rounds)."
    );
}

/// Each machine once: how many of its figures are guesses, and how many fitted.
fn guesses(verdicts: &[Verdict]) -> Option<String> {
    let mut machines: Vec<String> = Vec::new();
    for rests in verdicts.iter().filter_map(|it| it.rests.as_ref()) {
        let fitted = match rests.fitted {
            0 => String::new(),
            fitted => format!(" ({fitted} fitted)"),
        };
        let Rests {
            machine,
            guesses,
            figures,
            ..
        } = rests;
        let words = format!("{machine} {guesses} of {figures}{fitted}");
        if !machines.contains(&words) {
            machines.push(words);
        }
    }
    let text = format!("Guessed figures: {}.", machines.join(", "));
    (!machines.is_empty()).then(|| folded(&text, WIDE, 0, 2))
}

/// A picture for each posting.
pub(super) fn pictures(verdicts: &[Verdict]) -> Vec<Picture> {
    let mut pictures: Vec<Factors> = Vec::new();
    for it in verdicts {
        let title = format!("{}: factors by which the change is better", it.posting);
        let row = FactorRow {
            label: format!("{} ({})", it.claim, it.stands.word()),
            rests: it.rests.as_ref().map(Rests::words).unwrap_or_default(),
            published: it.published.2,
            simulated: it.simulated.map(|(factor, _)| factor),
            here: it.measured.map(|it| (it.median, it.low, it.high)),
        };
        match pictures.last_mut().filter(|last| last.title == title) {
            Some(last) => last.rows.push(row),
            None => pictures.push(Factors {
                title,
                rows: vec![row],
            }),
        }
    }
    pictures.into_iter().map(Picture::Factors).collect()
}

/// The same as a table, for the page and README.
pub(super) fn table(verdicts: &[Verdict], linked: bool) -> Table {
    let columns = [
        Column::text("posting"),
        Column::text("claim"),
        Column::number("published", ""),
        Column::number("simulated", ""),
        Column::text("verdict"),
        Column::text("measured here, 2 threads"),
    ];
    let mut table = Table::new("What came out", columns);
    for it in verdicts {
        let (before, after, factor) = it.published;
        let figure = |value: f64| match value < 1000.0 {
            true => format!("{value}"),
            false => grouped(value),
        };
        let (before, after) = (figure(before), figure(after));
        let id = &it.posting;
        let here = it.here.strip_prefix("here ").unwrap_or(&it.here);
        let row = [
            match linked {
                true => format!("[{id}](docs/postings/{id}.md)"),
                false => id.clone(),
            },
            it.claim.clone(),
            format!("x{factor:.2}: {before} -> {after} {}", it.unit),
            it.simulated.map_or("-".into(), |(factor, status)| {
                format!("x{factor:.2} [{status}]")
            }),
            match (&it.rests, linked) {
                (Some(rests), false) => format!("{} ({})", it.stands.word(), rests.words()),
                _ => it.stands.word().into(),
            },
            here.into(),
        ];
        table.rows.push(row.map(Cell::from).into());
    }
    table.footnotes.push(
        "agrees: the simulated factor is within 25% of the published one; direction only: both factors \
         say better, or both say worse. A factor above 1 is better; the last column is the same change \
         on this machine's threads (software MMU), median and the middle five of seven rounds"
            .into(),
    );
    table
}

#[cfg(test)]
mod tests {
    use super::{Cells, Stands, guesses, table, verdicts};
    use crate::commands::reproduce::proof::{Figure, Gain, Part, Proof};
    use minflt_report::published::Headline;
    use minflt_report::{Status, Table, postings};
    use minflt_sim::{MachineFile, Source};

    #[test]
    fn a_factor_agrees_or_has_the_direction_or_misses() {
        let of = |published, simulated| Stands::of(published, Some(simulated));
        assert_eq!(of(4.0, 4.9), Stands::Agrees);
        assert_eq!(of(4.0, 3.3), Stands::Agrees);
        assert_eq!(of(4.0, 12.0), Stands::DirectionOnly);
        assert_eq!(of(0.3, 0.6), Stands::DirectionOnly);
        assert_eq!(of(0.3, 2.0), Stands::Misses);
        assert_eq!(of(4.0, 1.05), Stands::Misses);
        assert_eq!(Stands::of(4.0, None), Stands::NotSimulated);
    }

    /// Everything simulated with the longest texts, and measured.
    fn everything(status: Status) -> (Vec<minflt_report::Posting>, Cells, Proof) {
        let all = postings().expect("built in");
        let claims = || all.iter().flat_map(|it| &it.headlines);
        let places = claims().flat_map(|it| [it.before.clone(), it.after.clone()]);
        let cells = places.map(|place| (place, (33_333.0, status))).collect();
        let gain = |it: &Headline| {
            Some(Gain {
                of: it.here.clone()?,
                factor: Figure {
                    median: 10.0,
                    low: 0.95,
                    high: 10.05,
                },
                noise: None,
            })
        };
        let part = Part {
            posting: "2004".into(),
            table: Table::default(),
            runs: Vec::new(),
            lines: Vec::new(),
            gains: claims().filter_map(gain).collect(),
        };
        (all, cells, Proof { parts: vec![part] })
    }

    #[test]
    fn each_posting_has_a_claim_and_no_line_is_wider_than_a_terminal() {
        let (all, cells, proof) = everything(Status::Uncalibrated);
        let found = verdicts(&all, &cells, &proof);
        assert!(
            all.iter()
                .all(|it| found.iter().any(|has| has.posting == it.id))
        );
        let wide = |text: String| assert!(text.chars().count() <= 100, "{text}");
        for it in &found {
            wide(format!("{}  {:14}  {}", it.posting, "", it.claim));
            wide(format!("      {}  {}", it.factors(), it.here));
        }
        let guesses = guesses(&found).expect("machines");
        guesses.lines().for_each(|line| wide(line.into()));
        // With an empty line, a heading and three lines of explanation.
        let lines = 2 * found.len() + guesses.lines().count() + 5;
        assert!(lines <= 25, "{lines} lines");
    }

    #[test]
    fn each_simulated_factor_says_how_many_figures_are_guesses() {
        let (all, cells, proof) = everything(Status::Predicted);
        let found = verdicts(&all, &cells, &proof);
        let shipped = MachineFile::shipped("icx-vm48").expect("shipped");
        let huge = found
            .last()
            .and_then(|it| it.rests.as_ref())
            .expect("rests");
        assert_eq!(huge.machine, shipped.name);
        assert_eq!(huge.guesses, shipped.count(Source::Guess));
        assert!(huge.fitted > 0 && huge.guesses + huge.fitted <= huge.figures);
        for it in &found {
            let rests = it.rests.as_ref().expect("simulated").words();
            assert!(rests.contains("figures are guesses"), "{rests}");
        }
        // The page has them in the verdict's cell, README does not.
        let verdict = |linked| table(&found, linked).rows[0][4].text.clone();
        assert!(verdict(false).contains("altix32: ") && !verdict(true).contains("altix32"));
    }

    #[test]
    fn what_is_counted_rests_on_no_figure_of_a_machine() {
        let (all, cells, proof) = everything(Status::Counted);
        let found = verdicts(&all, &cells, &proof);
        assert!(found.iter().all(|it| it.rests.is_none()));
        assert_eq!(guesses(&found), None);
    }

    #[test]
    fn what_is_measured_is_looked_for_by_names_that_are_measured() {
        use crate::commands::reproduce::proof::{ALL, jobs};
        let names: Vec<_> = jobs(ALL).iter().map(|job| job.name()).collect();
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len(), "{names:?}");
        let (all, cells, _) = everything(Status::Predicted);
        let none = verdicts(&all, &cells, &Proof::default());
        let table = table(&none, false);
        let here: Vec<_> = table.rows.iter().map(|row| row[5].text.as_str()).collect();
        assert!(here.contains(&"not measured here") && here.len() == none.len());
    }
}
