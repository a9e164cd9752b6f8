//! The proof rows: before and after, measured on this machine's real threads, real Linux beside.
//!
//! Sides alternate within each round, so that a machine that slows down slows all of them. A table
//! leads with the rates of all sides at the same number of threads; what a side gains over its own
//! single thread comes after. Which rounds are too noisy to be figures: [`rounds`].

mod around;
mod pairs;
mod part;
mod rounds;

use super::REPRODUCED;
use crate::choice::{Named, era_list};
use crate::error::{Error, usage};
use crate::machine;
use crate::out::grouped;
use crate::progress::Progress;
use crate::rows::{Place, checks};
use crate::targets;
use minflt_host::HostTarget;
use minflt_report::published::Here;
use minflt_report::{Cell, Column, Run, Status, Table};
use minflt_workload::{Feature, Linux, Plan, Target, Workload};
use pairs::{PAIRS, Pair};
pub(crate) use part::{Gain, Part, Proof};
pub(crate) use rounds::Figure;
use rounds::{MOST_STOLEN, Round, noise};
use serde_json::Value;

const MEASURED: Status = Status::Measured;
const ROUNDS: u64 = 7;
/// The column of a pair's table with the rates at the same number of threads.
const RATE: usize = 1;
/// How often rounds are measured at most, where they are too noisy.
const TRIES: u32 = 2;
const RAM: u64 = 512 << 20;

/// Steps of progress.
pub(crate) const STEPS: u64 = (PAIRS.len() as u64 + 1) * ROUNDS;

/// All the postings that something is measured of: 2004, 2012, 2014, 2017 and 2022.
pub(crate) const ALL: [bool; 5] = [true; 5];

/// Why nothing can be measured on this machine, if so: each row has two threads at once.
pub(crate) fn impossible() -> Option<String> {
    let cpus = machine::cpus();
    (cpus < 2)
        .then(|| format!("measured rows need two processors, and this process may use {cpus}"))
}

/// Something to measure.
#[derive(Clone, Copy)]
pub(crate) struct Job(What);

#[derive(Clone, Copy)]
enum What {
    Pair(&'static Pair),
    Around,
}

/// What there is to measure of the postings chosen, in their order.
pub(crate) fn jobs(chosen: [bool; 5]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (posting, _) in chosen.iter().enumerate().filter(|(_, chosen)| **chosen) {
        let pairs = PAIRS.iter().filter(|pair| pair.posting == posting);
        jobs.extend(pairs.map(|pair| Job(What::Pair(pair))));
        if posting == around::POSTING {
            jobs.push(Job(What::Around));
        }
    }
    jobs
}

impl Job {
    /// A name for it, of which there is only one.
    pub(crate) fn name(self) -> String {
        match self.0 {
            What::Pair(pair) => format!(
                "measured-{}-{}{}",
                REPRODUCED[pair.posting],
                pair.workload,
                pair.options
                    .iter()
                    .map(|it| it.trim_start_matches('-'))
                    .fold(String::new(), |all, it| format!("{all}-{it}"))
            ),
            What::Around => format!("measured-{}-file", REPRODUCED[around::POSTING]),
        }
    }

    /// What is measured, in a line.
    pub(crate) const fn title(self) -> &'static str {
        match self.0 {
            What::Pair(pair) => pair.title,
            What::Around => around::TITLE,
        }
    }

    /// Measures it.
    ///
    /// # Errors
    /// As [`impossible`] says; whatever a target says.
    pub(crate) fn measure(self, progress: &Progress) -> Result<Part, Error> {
        if let Some(why) = impossible() {
            return Err(usage(why));
        }
        match self.0 {
            What::Pair(pair) => pair.measure(progress),
            What::Around => around::measure(progress),
        }
    }
}

/// One side: an era on the host's threads, or real Linux.
enum Side {
    Host(Named, HostTarget<false>),
    Linux(Named),
}

impl Side {
    fn linux() -> Result<Self, Error> {
        Ok(Self::Linux(Named {
            name: format!("Linux {}", machine::kernel()),
            ..era_list("best")?.remove(0)
        }))
    }

    const fn named(&self) -> &Named {
        match self {
            Self::Host(named, _) | Self::Linux(named) => named,
        }
    }

    const fn is_linux(&self) -> bool {
        matches!(self, Self::Linux(_))
    }

    fn run(&self, workload: &Workload, threads: u32) -> Result<Round, Error> {
        let plan = Plan::new(threads, threads);
        let (target, outcome) = match self {
            Self::Host(_, target) => ("host", targets::on(target, workload, &plan)?),
            Self::Linux(_) => ("linux", targets::linux(workload, &plan)?),
        };
        let (machine, era) = (&machine::line(), &self.named().name);
        let place = Place {
            target,
            machine,
            era,
            threads,
            cpus: threads,
            scale: 1,
        };
        Ok(Round::new(&place, &outcome))
    }
}

/// What is run: a workload and its threads.
type Load = (Workload, u32);

/// What was measured of a side: the rounds of each [`Load`], and why they are no figures.
#[derive(Debug)]
struct Measured {
    cells: Vec<Vec<Round>>,
    noise: Option<String>,
}

impl Measured {
    fn runs(&self, at: usize) -> impl Iterator<Item = &Run> {
        self.cells[at].iter().map(|round| &round.run)
    }

    fn figure(&self, at: usize, value: impl Fn(&Run) -> f64) -> Figure {
        Figure::of(self.runs(at).map(value).collect())
    }

    /// Each row says which round it is, and how far the rounds of its figure spread.
    fn tell_rounds(&mut self, value: impl Fn(&Run) -> f64) {
        for rounds in &mut self.cells {
            let values = rounds.iter().map(|round| value(&round.run)).collect();
            let spread = Figure::of(values).spread();
            let count = rounds.len();
            for (at, round) in rounds.iter_mut().enumerate() {
                let Some(host) = &mut round.run.host else {
                    continue;
                };
                host.insert("round".into(), Value::from(at + 1));
                host.insert("rounds".into(), Value::from(count));
                host.insert("spread".into(), Value::from(spread));
            }
        }
    }

    /// A cell of its row: measured, or too noisy to say so.
    fn cell(&self, text: &str) -> Cell {
        match self.noise {
            None => Cell::from(text),
            Some(_) => Cell::with_status(text, Status::TooNoisy),
        }
    }
}

/// Measures all sides, round by round; again from the start where a side is too noisy, once.
fn alternate(
    progress: &Progress,
    title: &str,
    sides: &[Side],
    what: &[Load],
    value: impl Fn(&Run) -> f64,
) -> Result<Vec<Measured>, Error> {
    let mut tries = 0;
    loop {
        let mut all: Vec<Measured> = Vec::new();
        all.resize_with(sides.len(), || Measured {
            cells: what.iter().map(|_| Vec::new()).collect(),
            noise: None,
        });
        let before = machine::Ticks::now();
        for _ in 0..ROUNDS {
            progress.says(title);
            for (side, measured) in sides.iter().zip(&mut all) {
                for ((workload, threads), rounds) in what.iter().zip(&mut measured.cells) {
                    rounds.push(side.run(workload, *threads)?);
                }
            }
            if tries == 0 {
                progress.step();
            }
        }
        let stolen = before.zip(machine::Ticks::now()).and_then(|(before, now)| {
            let part = now.stolen_since(before);
            (part > MOST_STOLEN).then(|| format!("{:.0}% of the time stolen", 100.0 * part))
        });
        for measured in &mut all {
            let mut cells = measured.cells.iter();
            measured.noise = cells
                .find_map(|rounds| noise(rounds, &value))
                .or(stolen.clone());
            measured.tell_rounds(&value);
        }
        tries += 1;
        if tries == TRIES || all.iter().all(|measured| measured.noise.is_none()) {
            return Ok(all);
        }
    }
}

/// What is said of the sides that are too noisy.
fn noise_note(sides: &[Side], all: &[Measured]) -> Option<String> {
    let loud: Vec<_> = sides
        .iter()
        .zip(all)
        .filter_map(|(side, it)| Some(format!("{}: {}", side.named().name, it.noise.as_ref()?)))
        .collect();
    (!loud.is_empty()).then(|| format!("too noisy: {}", loud.join(", ")))
}

/// A rate of which each side has one.
struct Rate<'a> {
    unit: &'a str,
    /// Whether less of it is better.
    less: bool,
    /// In which of the cells it is.
    at: usize,
    of: &'a dyn Fn(&Run) -> f64,
}

/// A line for each side with its rates, and by which factor each era is better than the first. Our
/// sides differ in one thing; Linux, which differs in all, is compared with none.
fn gains(
    workload: &str,
    sides: &[Side],
    all: &[Measured],
    rates: &[Rate<'_>],
) -> (Vec<String>, Vec<Gain>) {
    let mut lines = Vec::new();
    let mut gains = Vec::new();
    let (Some(base), Some(first)) = (sides.first(), all.first()) else {
        return (lines, gains);
    };
    for (side, measured) in sides.iter().zip(all) {
        for rate in rates {
            let median = measured.figure(rate.at, rate.of).median;
            let mut line = format!(
                "{:<24}{:>12} {}",
                side.named().name,
                grouped(median),
                rate.unit
            );
            if !side.is_linux() && !core::ptr::eq(first, measured) {
                let pairs = measured.runs(rate.at).zip(first.runs(rate.at));
                let values = pairs.map(|(after, before)| (rate.of)(after) / (rate.of)(before));
                let factor = Figure::of(values.collect());
                let gain = Gain {
                    of: Here {
                        workload: workload.into(),
                        rate: rate.unit.into(),
                        before: base.named().name.clone(),
                        after: side.named().name.clone(),
                    },
                    factor: match rate.less {
                        true => factor.inverse(),
                        false => factor,
                    },
                    noise: measured.noise.clone().or_else(|| first.noise.clone()),
                };
                line = format!("{line:<50}  {}", gain.shown());
                gains.push(gain);
            } else if let Some(noise) = &measured.noise {
                line = format!("{line:<50}  too noisy ({noise})");
            }
            lines.push(line);
        }
    }
    (lines, gains)
}

impl Pair {
    fn measure(&self, progress: &Progress) -> Result<Part, Error> {
        let options: Vec<_> = self.options.iter().map(ToString::to_string).collect();
        let parse =
            |name| Workload::parse(name, &options).map_err(|error| usage(error.to_string()));
        let workload = parse(self.workload)?;
        // One thread, and two; or another workload, whose one thread is one of each kind.
        let what = match self.both {
            None => [(workload.clone(), 1), (workload.clone(), 2)],
            Some(both) => [(workload.clone(), 1), (parse(both)?, 1)],
        };
        let mut sides = Vec::new();
        for named in era_list(self.eras)? {
            let target = targets::host(&named, &workload, 2, RAM, 0)?;
            sides.push(Side::Host(named, target));
        }
        let missing = missing_on_linux(&workload);
        if missing.is_none() {
            sides.push(Side::linux()?);
        }
        let all = alternate(progress, self.title, &sides, &what, |run| self.rate(run))?;
        let table = self.table(&sides, &all, missing.as_deref());
        let (lines, gains) = self.gains(&sides, &all);
        let rounds = all.into_iter().flat_map(|it| it.cells).flatten();
        Ok(Part {
            posting: REPRODUCED[self.posting].into(),
            table,
            runs: rounds.map(|round| round.run).collect(),
            lines,
            gains,
        })
    }

    /// A line for each side, and what each gains over the first.
    fn gains(&self, sides: &[Side], all: &[Measured]) -> (Vec<String>, Vec<Gain>) {
        let own = |run: &Run| self.rate(run);
        let other = |run: &Run| {
            let rate = self
                .beside
                .and_then(|(rate, _)| run.rates.get(rate).copied());
            rate.unwrap_or(0.0)
        };
        let mut rates = vec![Rate {
            unit: self.unit,
            less: false,
            at: 1,
            of: &own,
        }];
        if let Some((_, unit)) = self.beside {
            rates.push(Rate {
                unit,
                less: false,
                at: 1,
                of: &other,
            });
        }
        gains(self.both.unwrap_or(self.workload), sides, all, &rates)
    }

    fn rate(&self, run: &Run) -> f64 {
        let rate = match self.rate {
            Some(name) => run.rates.get(name).copied(),
            None => run.faults_per_second,
        };
        rate.unwrap_or(0.0)
    }

    fn columns(&self, first: &str) -> Vec<Column> {
        let [one, two] = self.columns;
        let rate = |name: &str| Column::number(&format!("{name}, {}", self.unit), "");
        let ratio = |name: &str| Column::number(name, "");
        let mut numbers = vec![
            rate(two),
            ratio(&format!("{two}: by {first}'s")),
            rate(one),
            ratio(self.ratio),
        ];
        if let Some((_, heading)) = self.beside {
            numbers.push(Column::number(heading, ""));
        }
        let numbers = numbers.into_iter().map(|it| it.with_status(MEASURED));
        let texts = [Column::text("era"), Column::text("checks")];
        let [era, checks] = texts;
        core::iter::once(era)
            .chain(numbers)
            .chain([checks])
            .collect()
    }

    /// Our sides differ in one thing; Linux, which differs in all, is put beside none.
    fn table(&self, sides: &[Side], all: &[Measured], missing: Option<&str>) -> Table {
        let first = sides.first().map_or("", |side| &side.named().name);
        let mut table = Table::new(self.title, self.columns(first));
        table.command = self.command.into();
        for (side, measured) in sides.iter().zip(all) {
            let rates = |at: usize| measured.figure(at, |run| self.rate(run)).shown(0);
            let quotients = |above: &Measured, below: (&Measured, usize)| {
                let pairs = above.runs(1).zip(below.0.runs(below.1));
                let values = pairs.map(|(above, below)| self.rate(above) / self.rate(below));
                Figure::of(values.collect())
            };
            let by_first = match all.first() {
                Some(first) if !side.is_linux() && !core::ptr::eq(first, measured) => {
                    quotients(measured, (first, 1)).shown(2)
                }
                _ => "-".into(),
            };
            let own = quotients(measured, (measured, 0)).shown(2);
            let mut numbers = vec![rates(1), by_first, rates(0), own];
            if let Some((rate, _)) = self.beside {
                let other = |run: &Run| run.rates.get(rate).copied().unwrap_or(0.0);
                numbers.push(measured.figure(1, other).shown(0));
            }
            let mut row = vec![Cell::from(side.named().name.as_str())];
            row.extend(numbers.iter().map(|text| measured.cell(text)));
            row.push(measured.runs(1).last().map_or(String::new(), checks).into());
            table.rows.push(row);
        }
        table
            .footnotes
            .push(format!("measured on {}", machine::line()));
        table.footnotes.push(rounds::rule(ROUNDS));
        table.footnotes.extend(noise_note(sides, all));
        table.footnotes.push(match missing {
            None => {
                "our rows run on a software MMU in user space; Linux's include the processor's \
                     trap and everything else a real kernel does"
                    .into()
            }
            Some(why) => format!(
                "our rows run on a software MMU in user space, where memory nodes are \
                 bookkeeping; Linux has no row here: {why}"
            ),
        });
        table
            .footnotes
            .push(format!("one such run: {}", self.command));
        table
    }
}

/// Why real Linux cannot run the workload here.
fn missing_on_linux(workload: &Workload) -> Option<String> {
    if workload.nodes() > 1 {
        return Linux::new().lacks(Feature::Nodes).map(str::to_owned);
    }
    let pages = workload.huge_pages_needed(1, &Linux::new())?;
    Linux::new().too_few_huge_pages(pages)
}

#[cfg(test)]
mod tests {
    use super::PAIRS;
    use crate::args::{Args, Command};
    use clap::Parser;

    #[test]
    fn the_commands_in_the_footnotes_are_commands() {
        for pair in PAIRS {
            let args = Args::try_parse_from(pair.command.split_whitespace());
            assert!(matches!(
                args.expect(pair.command).command,
                Command::Bench(_)
            ));
        }
        for command in super::around::COMMANDS {
            let args = Args::try_parse_from(command.split_whitespace());
            assert!(matches!(args.expect(command).command, Command::Bench(_)));
        }
    }
}
