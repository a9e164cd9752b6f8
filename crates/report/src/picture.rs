//! Pictures as values: factors beside each other, and curves over numbers of CPUs.

use crate::steps::Run;
use core::fmt::Write as _;
use serde::Serialize;

/// A picture of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Picture {
    /// Factors by which a change is better, published beside ours.
    Factors(Factors),
    /// Curves that can be switched on and off.
    Curves(Curves),
    /// A race's failing run, to be stepped through.
    Run(Run),
    /// A drawing of another program's, as SVG, with a title.
    Drawing {
        /// What it shows.
        title: String,
        /// The drawing.
        svg: String,
        /// What is to be said of it.
        words: String,
    },
}

/// Factors of several claims on one logarithmic axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Factors {
    /// What they are of.
    pub title: String,
    /// One each claim.
    pub rows: Vec<FactorRow>,
}

/// The factors of a claim: what is above 1 is better.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FactorRow {
    /// The claim.
    pub label: String,
    /// What the simulated factor rests on; may be empty.
    pub rests: String,
    /// As published.
    pub published: f64,
    /// As simulated.
    pub simulated: Option<f64>,
    /// As measured here: median, least and most.
    pub here: Option<(f64, f64, f64)>,
}

/// Rates over numbers of CPUs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Curves {
    /// What they are of.
    pub title: String,
    /// The unit of the rates.
    pub unit: String,
    /// The numbers of CPUs.
    pub counts: Vec<f64>,
    /// A curve each.
    pub series: Vec<Series>,
}

/// A curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// A rate for each number of CPUs, where there is one.
    pub rates: Vec<Option<f64>>,
}

const WIDE: f64 = 860.0;
const LEFT: f64 = 20.0;
const RIGHT: f64 = 130.0;
const ROW: f64 = 100.0;
/// From the top of a row to its bars.
const BARS: f64 = 40.0;
const TOP: f64 = 14.0;
const FOOT: f64 = 34.0;

impl Factors {
    /// The picture as SVG, in the colours of the page's classes.
    #[must_use]
    pub fn to_svg(&self) -> String {
        let (least, most) = self.range();
        let at = |factor: f64| {
            let part = (factor.ln() - least.ln()) / (most.ln() - least.ln());
            LEFT + part * (WIDE - LEFT - RIGHT)
        };
        let bottom = TOP + ROW * self.rows.len() as f64;
        let high = bottom + FOOT;
        let mut svg = format!(
            "<svg class=\"factors\" viewBox=\"0 0 {WIDE} {high}\" role=\"img\" aria-label=\"{}\">\n",
            self.in_words()
        );
        let mut tick = least;
        while tick <= most * 1.001 {
            let (x, class) = (at(tick), if tick == 1.0 { "one" } else { "tick" });
            svg += &format!(
                "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
                 <text class=\"axis\" x=\"{x:.1}\" y=\"{:.1}\">x{tick}</text>\n",
                bottom + 18.0
            );
            tick *= 2.0;
        }
        for (row, number) in self.rows.iter().zip(0..) {
            svg += &row.marks(TOP + ROW * f64::from(number), at);
        }
        svg + "</svg>\n"
    }

    /// Powers of two around all factors.
    fn range(&self) -> (f64, f64) {
        let of = |row: &FactorRow| {
            let here = row.here.into_iter().flat_map(|(_, low, high)| [low, high]);
            let all = [Some(row.published), row.simulated].into_iter().flatten();
            all.chain(here).collect::<Vec<_>>()
        };
        let all: Vec<f64> = self.rows.iter().flat_map(of).chain([0.5, 4.0]).collect();
        let positive = || all.iter().copied().filter(|it| *it > 0.0 && it.is_finite());
        let (mut least, mut most) = (1.0, 2.0);
        while positive().any(|it| it < least) {
            least /= 2.0;
        }
        while positive().any(|it| it > most) {
            most *= 2.0;
        }
        (least, most)
    }

    /// The same for those who do not see it.
    fn in_words(&self) -> String {
        let mut words = String::new();
        for row in &self.rows {
            let of = |name: &str, factor: Option<f64>| {
                factor.map_or(String::new(), |it| format!(", {name} x{it:.2}"))
            };
            // Writing to a string can't fail.
            let _: core::fmt::Result = write!(
                words,
                "{}: published x{:.2}{}{}{}. ",
                row.label,
                row.published,
                of("simulated", row.simulated),
                match row.rests.is_empty() {
                    true => String::new(),
                    false => format!(" ({})", row.rests),
                },
                of("measured here", row.here.map(|it| it.0))
            );
        }
        escape(words.trim_end())
    }
}

impl FactorRow {
    fn marks(&self, top: f64, at: impl Fn(f64) -> f64) -> String {
        let mut out = format!(
            "<text class=\"claim\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>\n\
             <text class=\"rests\" x=\"{LEFT}\" y=\"{:.1}\">{}</text>\n",
            top + 16.0,
            escape(&self.label),
            top + 32.0,
            escape(&self.rests)
        );
        let one = at(1.0);
        let mut bar = |name: &str, factor: f64, line: f64| {
            let (y, to) = (top + BARS + 18.0 * line, at(factor));
            let (from, wide) = (one.min(to), (to - one).abs().max(1.5));
            out += &format!(
                "<rect class=\"{name}\" x=\"{from:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" \
                 height=\"12\"><title>{name}: x{factor:.2}</title></rect>\
                 <text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">x{factor:.2} {name}</text>\n",
                to.max(one) + 5.0,
                y + 10.5
            );
        };
        bar("published", self.published, 0.0);
        if let Some(simulated) = self.simulated {
            bar("simulated", simulated, 1.0);
        }
        if let Some((median, low, high)) = self.here {
            bar("here", median, 2.0);
            let y = top + BARS + 36.0 + 6.0;
            out += &format!(
                "<line class=\"interval\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\n",
                at(low),
                at(high)
            );
        }
        out
    }
}

/// Text that is safe within an element or an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{FactorRow, Factors};

    #[test]
    fn the_axis_holds_all_factors_and_words_say_them() {
        let row = |published, simulated, here| FactorRow {
            label: "a <claim>".into(),
            rests: "m1: 3 of 4 figures are guesses".into(),
            published,
            simulated: Some(simulated),
            here,
        };
        let factors = Factors {
            title: String::new(),
            rows: vec![row(30.6, 18.0, None), row(0.34, 0.8, Some((1.0, 0.9, 1.1)))],
        };
        assert_eq!(factors.range(), (0.25, 32.0));
        let svg = factors.to_svg();
        assert!(
            svg.contains("published x30.60, simulated x18.00 (m1: 3 of 4 figures are guesses). a &lt;claim&gt;"),
            "{svg}"
        );
        assert!(
            svg.contains("measured here x1.00") && !svg.contains("<claim>"),
            "{svg}"
        );
        assert_eq!(svg.matches("<rect").count(), 5);
    }
}
