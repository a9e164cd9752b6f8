//! The proof rows: before and after, measured on this machine's real threads, real Linux beside.
//!
//! Sides alternate within each round, so that a machine that slows down slows all of them; figures
//! are medians over the rounds.

mod around;

use crate::choice::{Named, era_list};
use crate::error::{Error, usage};
use crate::machine;
use crate::progress::Progress;
use crate::rows::{Place, checks, record};
use crate::targets;
use minflt_host::HostTarget;
use minflt_report::{Cell, Column, Run, Status, Table};
use minflt_workload::{Clear, Feature, Linux, Plan, Spaces, Target, Workload};

const MEASURED: Status = Status::Measured;
const ROUNDS: u64 = 7;
const RAM: u64 = 512 << 20;

/// Steps of progress.
pub(crate) const STEPS: u64 = (PAIRS.len() as u64 + 1) * ROUNDS;

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    pub(crate) tables: Vec<Table>,
    pub(crate) runs: Vec<Run>,
}

/// Eras, and what is done to them.
struct Pair {
    /// The posting it belongs to, as a place in what [`measure`] is asked for.
    posting: usize,
    title: &'static str,
    command: &'static str,
    workload: &'static str,
    options: &'static [&'static str],
    eras: &'static str,
    /// What one thread is, and what two are.
    columns: [&'static str; 2],
    /// The rate looked at: the workload's own, or faults; and its unit.
    rate: Option<&'static str>,
    unit: &'static str,
    ratio: &'static str,
    /// What the other thread does meanwhile, and the rate of it.
    beside: Option<(&'static str, &'static str)>,
    /// What two are, where that is another workload, of one thread of each kind.
    both: Option<&'static str>,
}

const PAIRS: [Pair; 6] = [
    Pair {
        posting: 0,
        title: "Two threads faulting in one address space (2004)",
        command: "minflt bench pft --on host,linux --threads 1,2 --era \
                  linux-2.6.10,atomic-pte-2004 -- -b 256M --measure workers",
        workload: "pft",
        options: &["-b", "256M", "--measure", "workers"],
        eras: "linux-2.6.10,atomic-pte-2004",
        columns: ["1 thread", "2 threads"],
        rate: None,
        unit: "pages/s",
        ratio: "2 threads / 1",
        beside: None,
        both: None,
    },
    Pair {
        posting: 1,
        title: "One thread faulting, one moving pages of the same mapping to and fro (2012)",
        command: "minflt bench move-pages --on host --threads 1,2 --era \
                  numa-balancing-2012,anon-vma-2012,linux-3.14,linux-6.15",
        workload: "move-pages",
        options: &[],
        eras: "numa-balancing-2012,anon-vma-2012,linux-3.14,linux-6.15",
        columns: ["alone", "beside"],
        rate: Some("pages_per_second"),
        unit: "pages/s",
        ratio: "beside / alone",
        beside: Some(("moves_per_second", "moved, pages/s")),
        both: None,
    },
    Pair {
        posting: 3,
        title: "One thread faulting, one looping {mmap 512 KiB, touch all, munmap}, their mappings \
                apart (2017)",
        command: "minflt bench disturb --on host,linux --threads 1,2 --era \
                  linux-4.13,spf-2017,linux-6.4,linux-6.15 -- --size 64M --apart",
        workload: "disturb",
        options: &["--size", "64M", "--apart"],
        eras: "linux-4.13,spf-2017,linux-6.4,linux-6.15",
        columns: ["alone", "disturbed"],
        rate: Some("pages_per_second"),
        unit: "pages/s",
        ratio: "disturbed / alone",
        beside: None,
        both: None,
    },
    Pair {
        posting: 3,
        title: "The same where each mmap merges with the mapping that is faulted in, and each munmap \
                cuts it (2017)",
        command: "minflt bench disturb --on host,linux --threads 1,2 --era \
                  linux-4.13,spf-2017,linux-6.4,linux-6.15 -- --size 64M",
        workload: "disturb",
        options: &["--size", "64M"],
        eras: "linux-4.13,spf-2017,linux-6.4,linux-6.15",
        columns: ["alone", "disturbed, merging"],
        rate: Some("pages_per_second"),
        unit: "pages/s",
        ratio: "merging / alone",
        beside: None,
        both: None,
    },
    Pair {
        posting: 3,
        title: "ebizzy -mTRp: every thread maps, touches and unmaps records of random size (2017)",
        command: "minflt bench ebizzy --on host,linux --threads 1,2 --era \
                  linux-4.13,spf-2017,linux-6.4,linux-6.15 -- -mTRp -S 0.05",
        workload: "ebizzy",
        options: &["-m", "-T", "-R", "-p", "-S", "0.05"],
        eras: "linux-4.13,spf-2017,linux-6.4,linux-6.15",
        columns: ["1 thread", "2 threads"],
        rate: Some("records_per_second"),
        unit: "records/s",
        ratio: "2 threads / 1",
        beside: None,
        both: None,
    },
    Pair {
        posting: 4,
        title: "One process faulting on a file of huge pages, one forking that maps it too (2022)",
        command: "minflt bench hugetlb-both --on host,linux --threads 1 --era \
                  linux-5.19,hugetlb-vma-lock-2022,linux-6.15 -- -S 0.05",
        workload: "hugetlb-fault",
        options: &["-S", "0.05"],
        eras: "linux-5.19,hugetlb-vma-lock-2022,linux-6.15",
        columns: ["alone", "beside"],
        rate: Some("faults_per_second_avg"),
        unit: "faults/s",
        ratio: "beside / alone",
        beside: Some(("forks_per_second_avg", "forks/s")),
        both: Some("hugetlb-both"),
    },
];

/// All the postings that something is measured of: 2004, 2012, 2014, 2017 and 2022.
pub(crate) const ALL: [bool; 5] = [true; 5];

/// Measures what belongs to the postings chosen, in their order.
pub(crate) fn measure(progress: &Progress, chosen: [bool; 5]) -> Result<Proof, Error> {
    let mut proof = Proof::default();
    for (posting, _) in chosen.iter().enumerate().filter(|(_, chosen)| **chosen) {
        for pair in PAIRS.iter().filter(|pair| pair.posting == posting) {
            pair.measure(progress, &mut proof)?;
        }
        if posting == around::POSTING {
            around::measure(progress, &mut proof)?;
        }
    }
    Ok(proof)
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

    fn run(&self, workload: &Workload, threads: u32) -> Result<Run, Error> {
        let plan = Plan {
            threads,
            cpus: threads,
            clear: Clear::InFault,
            spaces: Spaces::Shared,
            file: None,
            huge: None,
            inherited: None,
        };
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
        Ok(record(&place, &outcome))
    }
}

impl Pair {
    fn measure(&self, progress: &Progress, proof: &mut Proof) -> Result<(), Error> {
        let options: Vec<_> = self.options.iter().map(ToString::to_string).collect();
        let parse =
            |name| Workload::parse(name, &options).map_err(|error| usage(error.to_string()));
        let workload = parse(self.workload)?;
        // One thread, and two; or another workload, whose one thread is one of each kind.
        let cells = match self.both {
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
        let mut runs: Vec<[Vec<Run>; 2]> = sides.iter().map(|_| [vec![], vec![]]).collect();
        for _ in 0..ROUNDS {
            progress.says(self.title);
            for (side, runs) in sides.iter().zip(&mut runs) {
                for ((workload, threads), runs) in cells.iter().zip(runs) {
                    runs.push(side.run(workload, *threads)?);
                }
            }
            progress.step();
        }
        proof
            .tables
            .push(self.table(&sides, &runs, missing.as_deref()));
        proof.runs.extend(runs.into_iter().flatten().flatten());
        Ok(())
    }

    fn rate(&self, run: &Run) -> f64 {
        let rate = match self.rate {
            Some(name) => run.rates.get(name).copied(),
            None => run.faults_per_second,
        };
        rate.unwrap_or(0.0)
    }

    fn heading(&self, at: usize) -> String {
        format!("{}, {}", self.columns[at], self.unit)
    }

    fn table(&self, sides: &[Side], runs: &[[Vec<Run>; 2]], missing: Option<&str>) -> Table {
        let mut columns = vec![
            Column::text("era"),
            Column::number(&self.heading(0), "").with_status(MEASURED),
            Column::number(&self.heading(1), "").with_status(MEASURED),
            Column::number(self.ratio, "").with_status(MEASURED),
        ];
        if let Some((_, heading)) = self.beside {
            columns.push(Column::number(heading, "").with_status(MEASURED));
        }
        columns.push(Column::text("checks"));
        let mut table = Table::new(self.title, columns);
        for (side, runs) in sides.iter().zip(runs) {
            let rates = |at: usize| runs[at].iter().map(|run| self.rate(run)).collect();
            let pairs = runs[0].iter().zip(&runs[1]);
            let ratios = pairs
                .map(|(one, two)| self.rate(two) / self.rate(one))
                .collect();
            let last = runs[1].last().map_or(String::new(), checks);
            let mut cells = vec![
                side.named().name.clone(),
                format!("{:.0}", median(rates(0))),
                format!("{:.0}", median(rates(1))),
                format!("{:.2}", median(ratios)),
            ];
            if let Some((rate, _)) = self.beside {
                let other = |run: &Run| run.rates.get(rate).copied().unwrap_or(0.0);
                cells.push(format!(
                    "{:.0}",
                    median(runs[1].iter().map(other).collect())
                ));
            }
            cells.push(last);
            table
                .rows
                .push(cells.iter().map(|text| Cell::from(text.as_str())).collect());
        }
        table
            .footnotes
            .push(format!("measured on {}", machine::line()));
        table.footnotes.push(format!(
            "medians of {ROUNDS} alternated rounds; the ratio is the median of the rounds' ratios"
        ));
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

/// The middle value; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{PAIRS, median};
    use crate::args::{Args, Command};
    use clap::Parser;

    #[test]
    fn the_middle_is_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(vec![]).abs() < f64::EPSILON);
    }

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
