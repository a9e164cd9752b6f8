//! A picture of a workload's curves: both axes logarithmic, a line and a label for each era, and
//! the memory limit.

use super::Chart;
use crate::error::{Error, failed};
use plotters::coord::Shift;
use plotters::prelude::{
    ChartBuilder, Color, DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, IntoFont,
    IntoLogRange, LineSeries, PathElement, RGBColor, SVGBackend, Text, TextStyle, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 520;
/// Room for the labels at the right.
const LABELS: u32 = 190;
/// The least distance of two labels.
const APART: i32 = 16;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(51, 51, 51);
const FAINT: RGBColor = RGBColor(221, 221, 221);

/// Colours that also those can tell apart who see few (M. Okabe, K. Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(0, 114, 178),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 94, 60),
];

type Failed<'a> =
    DrawingAreaErrorKind<<SVGBackend<'a> as plotters::prelude::DrawingBackend>::ErrorType>;

/// The picture as text.
pub(super) fn draw(chart: &Chart, machine: &str) -> Result<String, Error> {
    let mut svg = String::new();
    let cannot = failed(format!("{}: cannot draw", chart.kind.name));
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)).into_drawing_area();
        on(&area, chart, machine).map_err(|error| cannot(&error))?;
    }
    Ok(svg)
}

fn on<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    chart: &Chart,
    machine: &str,
) -> Result<(), Failed<'a>> {
    area.fill(&WHITE)?;
    let (most, low, high) = bounds(chart);
    let title = format!(
        "{}: {} by threads, simulated on {machine}",
        chart.kind.name, chart.kind.unit
    );
    let mut plot = ChartBuilder::on(area)
        .caption(title, (FONT, 18).into_font().color(&INK))
        .margin(12)
        .margin_right(LABELS)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(
            (1.0..f64::from(most)).log_scale().base(2.0),
            (low..high).log_scale(),
        )?;
    plot.configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .x_labels(11)
        .y_labels(8)
        .x_desc("threads, each on a CPU of its own")
        .y_desc(chart.kind.unit)
        .x_label_formatter(&|threads| format!("{threads:.0}"))
        .y_label_formatter(&|rate| short(*rate))
        .label_style((FONT, 13).into_font().color(&INK))
        .draw()?;
    if !chart.cap.is_empty() {
        let cap = chart.cap.iter().map(|(at, rate)| (f64::from(*at), *rate));
        let cap: Vec<_> = cap.collect();
        for pair in cap.windows(2).step_by(1) {
            plot.draw_series([PathElement::new(
                pair.to_vec(),
                INK.mix(0.5).stroke_width(1),
            )])?;
        }
    }
    for (curve, colour) in chart.curves.iter().zip(COLOURS.iter().cycle()) {
        let points = curve
            .points
            .iter()
            .map(|(at, rates)| (f64::from(*at), rates.median));
        plot.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        // From the least to the most of a point's runs.
        let ranges = curve.points.iter().map(|(at, rates)| {
            let at = f64::from(*at);
            let ends = vec![(at, rates.least.max(1.0)), (at, rates.most.max(1.0))];
            PathElement::new(ends, colour.mix(0.6).stroke_width(5))
        });
        plot.draw_series(ranges)?;
    }
    let place = |threads: u32, rate: f64| plot.backend_coord(&(f64::from(threads), rate));
    let mut labels = Vec::new();
    for (curve, colour) in chart.curves.iter().zip(COLOURS.iter().cycle()) {
        labels.extend(curve.points.last().map(|(threads, rates)| {
            let (x, y) = place(*threads, rates.median);
            (y, x, curve.era.clone(), *colour)
        }));
    }
    labels.extend(chart.cap.last().map(|(threads, rate)| {
        let (x, y) = place(*threads, *rate);
        (y, x, "memory bandwidth".to_owned(), INK)
    }));
    for (y, x, text, colour) in spread(labels) {
        let style = TextStyle::from((FONT, 14).into_font())
            .color(&colour)
            .pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(text, (x + 8, y), style))?;
    }
    area.present()
}

/// The most threads, and the least and the highest rate of the axes.
fn bounds(chart: &Chart) -> (u32, f64, f64) {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let ends = points().flat_map(|(_, rates)| [rates.least, rates.most]);
    let rates = ends.chain(chart.cap.iter().map(|(_, rate)| *rate));
    let (low, high) = rates.fold((f64::MAX, 1.0_f64), |(low, high), rate| {
        (low.min(rate.max(1.0)), high.max(rate))
    });
    let most = points()
        .map(|(threads, _)| *threads)
        .max()
        .unwrap_or(2)
        .max(2);
    (most, low.min(high / 10.0) / 1.5, high * 1.5)
}

type Label = (i32, i32, String, RGBColor);

/// Moves labels down, and then up again from the lower edge, until none covers another.
fn spread(mut labels: Vec<Label>) -> Vec<Label> {
    labels.sort_by(|one, other| (one.0, &one.2).cmp(&(other.0, &other.2)));
    for at in 1..labels.len() {
        labels[at].0 = labels[at].0.max(labels[at - 1].0 + APART);
    }
    let mut below = HEIGHT as i32 - APART;
    for label in labels.iter_mut().rev() {
        label.0 = label.0.min(below);
        below = label.0 - APART;
    }
    labels
}

/// A rate in a few characters.
fn short(rate: f64) -> String {
    let (value, unit) = match rate {
        rate if rate >= 1e9 => (rate / 1e9, " G"),
        rate if rate >= 1e6 => (rate / 1e6, " M"),
        rate if rate >= 1e3 => (rate / 1e3, " k"),
        rate => (rate, ""),
    };
    let text = format!("{value:.1}");
    format!("{}{unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::{APART, INK, draw, short, spread};
    use crate::commands::curves::work::KINDS;
    use crate::commands::curves::{Chart, Curve, Rates};

    #[test]
    fn a_picture_names_each_era_and_is_the_same_bytes_twice() {
        let curve = |era: &str, factor: f64| Curve {
            era: era.into(),
            points: (0..11)
                .map(|e| {
                    let median = factor * f64::from(1 << e);
                    let (least, most) = (median * 0.9, median * 1.2);
                    let rates = Rates {
                        median,
                        least,
                        most,
                    };
                    (1 << e, rates)
                })
                .collect(),
            limit: String::new(),
        };
        let chart = Chart {
            kind: &KINDS[0],
            curves: vec![curve("linux-2.6.10", 1000.0), curve("spf-2017", 1100.0)],
            cap: vec![(1, 1e6), (1024, 2e6)],
        };
        let svg = draw(&chart, "next1024").expect("drawn");
        assert_eq!(svg, draw(&chart, "next1024").expect("drawn"));
        for word in [
            "linux-2.6.10",
            "spf-2017",
            "memory bandwidth",
            "1024",
            "next1024",
        ] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(svg.starts_with("<svg"), "{svg}");
    }

    #[test]
    fn labels_do_not_cover_each_other() {
        let labels = [400, 100, 101, 102, 515].map(|y| (y, 0, y.to_string(), INK));
        let spread = spread(labels.to_vec());
        assert!(spread.windows(2).all(|pair| pair[1].0 - pair[0].0 >= APART));
        assert!(spread[4].0 < 520);
    }

    #[test]
    fn rates_are_short() {
        let texts = [5.0, 1500.0, 2e6, 3.25e9].map(short);
        assert_eq!(texts, ["5", "1.5 k", "2 M", "3.2 G"]);
    }
}
