//! `minflt advise`: which era would help a workload on a machine, by how much, and why.

use super::curves::{Chart, Curve, Rates, simulate};
use super::kernels::of_era;
use crate::args::Advise;
use crate::choice::{era_list, plain_eras};
use crate::error::{Error, usage};
use crate::out::outln;
use crate::targets;

/// Factors this near to one are no help.
const HELP: f64 = 1.05;

/// Runs the command.
pub(crate) fn run(args: &Advise) -> Result<(), Error> {
    let machine = targets::machine("--machine", &args.machine)?;
    let threads = args.threads.map(u32::from);
    let threads = threads.unwrap_or_else(|| machine.cpus().min(64));
    if threads > machine.cpus() {
        return Err(usage(format!(
            "--threads {threads}: {} has {} CPUs; give 1 to {}, or a larger --machine",
            machine.name,
            machine.cpus(),
            machine.cpus()
        )));
    }
    let from = &era_list(&args.from)?[..];
    let [from] = from else {
        return Err(usage(
            "--from: give one era, that of the kernel that runs now",
        ));
    };
    let mut eras = plain_eras();
    if eras.iter().all(|era| era.name != from.name) {
        eras.push(from.clone());
    }
    let chart = simulate(
        &args.workload,
        &eras,
        threads,
        args.seeds.get(),
        &machine,
        args.quiet,
    )?;
    let place = format!("{threads} threads on {} ({})", machine.name, machine.title);
    for line in lines(&chart, &from.name, &place) {
        outln!("{line}");
    }
    Ok(())
}

/// The rates of an era, which has one number of threads here.
fn rates(curve: &Curve) -> Option<&Rates> {
    curve.points.first().map(|(_, rates)| rates)
}

/// By which factor one is faster than the other: the medians, and the least and most that the seeds
/// allow.
fn factor(of: &Rates, from: &Rates) -> (f64, f64, f64) {
    (
        of.median / from.median,
        of.least / from.most,
        of.most / from.least,
    )
}

fn shown((median, least, most): (f64, f64, f64)) -> String {
    format!("x{median:.2} ({least:.2} to {most:.2})")
}

/// What is said: at most five lines.
fn lines(chart: &Chart, from: &str, place: &str) -> Vec<String> {
    let name = chart.kind.name;
    let found = |era: &str| chart.curves.iter().find(|curve| curve.era == era);
    let Some((now, base)) = found(from).and_then(|curve| Some((curve, rates(curve)?))) else {
        return vec![format!("{name}, {place}: nothing was simulated in {from}")];
    };
    let mut others: Vec<(&Curve, (f64, f64, f64))> = chart
        .curves
        .iter()
        .filter(|curve| curve.era != from)
        .filter_map(|curve| Some((curve, factor(rates(curve)?, base))))
        .collect();
    others.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0));
    let stands = |era: &str| match of_era(era) {
        releases if releases.is_empty() => String::new(),
        releases => format!(" (Linux {releases})"),
    };
    let mut lines = vec![format!("{name}, {place}, from {from}{}:", stands(from))];
    match others.first() {
        Some((best, gain)) if gain.1 > HELP => {
            lines.push(format!(
                "  {}{} would help: {} of its {}",
                best.era,
                stands(&best.era),
                shown(*gain),
                chart.kind.unit
            ));
            lines.push(format!(
                "  because {from} is limited by {}; {} by {}",
                now.limit, best.era, best.limit
            ));
        }
        _ => {
            lines
                .push("  no era would help: none is faster by more than 5% with every seed".into());
            lines.push(format!("  {from} is limited by {}", now.limit));
        }
    }
    let rest = others.iter().skip(1).take(4);
    let rest: Vec<_> = rest
        .map(|(it, gain)| format!("{} x{:.2}", it.era, gain.0))
        .collect();
    lines.push(format!("  others: {}", rest.join(", ")));
    lines.push(
        "  simulated: a claim about a cost model, not a measurement; ranges are those of its seeds \
         alone"
            .into(),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::lines;
    use crate::commands::curves::{Chart, Curve, KINDS, Rates};

    fn chart(rates: &[(&str, f64)]) -> Chart {
        let curve = |(era, rate): &(&str, f64)| Curve {
            era: (*era).into(),
            points: vec![(
                64,
                Rates {
                    median: *rate,
                    least: 0.9 * rate,
                    most: 1.1 * rate,
                },
            )],
            limit: format!("the line of {era}"),
        };
        Chart {
            kind: &KINDS[0],
            curves: rates.iter().map(curve).collect(),
            cap: Vec::new(),
        }
    }

    #[test]
    fn the_best_era_is_named_with_its_range_and_the_reason() {
        let chart = chart(&[
            ("linux-6.15", 100.0),
            ("spf-2017", 300.0),
            ("linux-4.13", 40.0),
        ]);
        let lines = lines(&chart, "linux-6.15", "64 threads on m");
        assert_eq!(lines.len(), 5, "{lines:?}");
        assert_eq!(
            lines[0],
            "pft, 64 threads on m, from linux-6.15 (Linux 6.18):"
        );
        assert_eq!(
            lines[1],
            "  spf-2017 would help: x3.00 (2.45 to 3.67) of its faults/s"
        );
        assert!(lines[2].contains("linux-6.15 is limited by the line of linux-6.15; spf-2017 by"));
        assert_eq!(lines[3], "  others: linux-4.13 x0.40");
    }

    #[test]
    fn a_gain_that_seeds_do_not_all_show_is_none() {
        let chart = chart(&[("linux-6.15", 100.0), ("spf-2017", 115.0)]);
        let lines = lines(&chart, "linux-6.15", "64 threads on m");
        assert!(lines[1].contains("no era would help"), "{lines:?}");
    }
}
