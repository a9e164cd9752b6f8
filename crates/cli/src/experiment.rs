//! The experiments behind published cells: which run of which workload stands for a row or column.
//!
//! Everything here is scaled down: fewer pages, less time. The factor is part of each record.

pub(crate) mod file;
pub(crate) mod hugetlb;
pub(crate) mod numa;

use crate::choice::{Named, era_list};
use crate::error::{Error, failed, usage};
use crate::parallel;
use crate::rows::{Place, record};
use crate::targets;
use minflt_report::{Posting, PublishedTable, Run};
use minflt_sim::why::Why;
use minflt_sim::{Asked, MachineFile, Placing};
use minflt_workload::kernbench::LoadColumns;
use minflt_workload::{Clear, Outcome, Plan, Spaces, Workload};

/// Bytes that pft touches in a cell, scaled and in full; published were 32 GiB ten times.
pub(crate) const PFT_SCALED: u64 = 256 << 20;
const PFT_FULL: u64 = 32 << 30;
const PFT_PUBLISHED: u64 = 10 * (32 << 30);

/// How long a run of ebizzy takes in virtual time; the original's took 10 s.
const EBIZZY_NS: u64 = 20_000_000;
const EBIZZY_PUBLISHED_NS: u64 = 10_000_000_000;
/// Runs of ebizzy that were published as one average.
pub(crate) const EBIZZY_RUNS: u32 = 100;

/// Runs of each load of kernbench; five were published, and simulated ones differ little.
const KERNBENCH_RUNS: u32 = 2;

/// How much is simulated of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// As little as shows the cell's figure.
    Scaled,
    /// As much as was published, where that is practical.
    Full,
}

/// A run and its record.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) run: Run,
}

fn lacking(published: &PublishedTable, what: &str) -> Error {
    failed(format!("published table {}", published.id))(&what)
}

/// The simulated machine that stands for the published one, with what was fitted.
pub(crate) fn machine(published: &PublishedTable) -> Result<MachineFile, Error> {
    let name = published.preset.as_deref();
    let name = name.ok_or_else(|| lacking(published, "names no machine"))?;
    targets::machine("--machine", name)
}

/// The era that stands for the kernel of a column.
pub(crate) fn era(published: &PublishedTable, column: &str) -> Result<Named, Error> {
    let name = published.era_of(column);
    let name = name.ok_or_else(|| lacking(published, "names no era"))?;
    Ok(era_list(name)?.remove(0))
}

fn param(published: &PublishedTable, name: &str) -> Result<u32, Error> {
    let value = published.params.get(name).and_then(|value| value.as_u64());
    let value = value.and_then(|value| u32::try_from(value).ok());
    value.ok_or_else(|| lacking(published, &format!("has no parameter {name}")))
}

/// What pft touches per cell, and how much less that is than was published.
pub(crate) const fn pft_scale(size: Size) -> (u64, u64) {
    let bytes = match size {
        Size::Scaled => PFT_SCALED,
        Size::Full => PFT_FULL,
    };
    (bytes, PFT_PUBLISHED / bytes)
}

/// Whether a posting's pft ran on what `file` stands for.
pub(crate) fn is_pft_machine(posting: &Posting, file: &MachineFile) -> bool {
    let mut tables = posting.tables.iter();
    tables.any(|it| it.workload == "pft" && it.preset.as_ref() == Some(&file.name))
}

/// The RAM in which `bytes` of pft are as scarce as the posting's were on its machine: what one
/// thread touches does not fit into its node. Of less than [`PFT_SCALED`] it is as for so much.
pub(crate) fn pft_ram(file: &MachineFile, bytes: u64) -> u64 {
    let ram = (file.shape.ram_mib.value as u64) << 20;
    let share = bytes.clamp(PFT_SCALED, PFT_FULL) as f64 / PFT_FULL as f64;
    (ram as f64 * share) as u64
}

/// A row of the 2004 tables.
pub(crate) fn pft(
    published: &PublishedTable,
    row: usize,
    file: &MachineFile,
    size: Size,
) -> Result<Ran, Error> {
    let threads = published
        .row_param(row, "threads")
        .and_then(|cell| cell.value);
    let threads = threads.ok_or_else(|| lacking(published, "has a row without threads"))? as u32;
    let (bytes, scale) = pft_scale(size);
    let plan = threads_on(threads, threads);
    let era = era(published, "fault/wsec")?;
    let mut small = file.clone();
    small.shape.ram_mib.value = (pft_ram(file, bytes) >> 20) as f64;
    simulate(
        &small,
        &era,
        "pft",
        &["-b", &bytes.to_string()],
        &plan,
        scale,
    )
}

/// Threads that touch memory, without mapping and teardown.
pub(crate) fn pft_workers(era: &Named, file: &MachineFile, threads: u32) -> Result<Ran, Error> {
    let plan = threads_on(threads, threads);
    let options = ["-b", "32M", "--measure", "workers"];
    simulate(file, era, "pft", &options, &plan, 1)
}

/// One run of ebizzy with the posting's options on all CPUs of the machine, two threads each.
pub(crate) fn ebizzy(era: &Named, file: &MachineFile, seed: u32) -> Result<Ran, Error> {
    let plan = threads_on(2 * file.cpus(), file.cpus());
    let time = format!("{:.3}", EBIZZY_NS as f64 / 1e9);
    let seed = seed.to_string();
    let options = ["-mTRp", "-S", &time, "--seed", &seed];
    let scale = EBIZZY_PUBLISHED_NS / EBIZZY_NS;
    simulate(file, era, "ebizzy", &options, &plan, scale)
}

/// Both loads of kernbench, with the jobs that the two tables name.
pub(crate) fn kernbench(
    half: &PublishedTable,
    optimal: &PublishedTable,
    era: &Named,
    file: &MachineFile,
) -> Result<Ran, Error> {
    let (few, many) = (param(half, "jobs")?, param(optimal, "jobs")?);
    let plan = Plan {
        threads: many,
        cpus: file.cpus(),
        clear: Clear::InFault,
        spaces: Spaces::Own,
        file: None,
        huge: None,
        inherited: None,
    };
    let (few, many, runs) = (
        few.to_string(),
        many.to_string(),
        KERNBENCH_RUNS.to_string(),
    );
    let options = ["--half", &few, "-o", &many, "-M", "-n", &runs];
    simulate(file, era, "kernbench", &options, &plan, 1)
}

/// Threads that populate one address space on all CPUs of the machine.
pub(crate) fn load(era: &Named, file: &MachineFile) -> Result<Ran, Error> {
    let plan = threads_on(file.cpus(), file.cpus());
    simulate(file, era, "load", &[], &plan, 1)
}

/// Threads of one address space, on the first CPUs.
const fn threads_on(threads: u32, cpus: u32) -> Plan {
    Plan {
        threads,
        cpus,
        clear: Clear::InFault,
        spaces: Spaces::Shared,
        file: None,
        huge: None,
        inherited: None,
    }
}

fn simulate(
    file: &MachineFile,
    era: &Named,
    workload: &str,
    options: &[&str],
    plan: &Plan,
    scale: u64,
) -> Result<Ran, Error> {
    simulate_placed(Placing::First, file, era, workload, options, plan, scale)
}

fn simulate_placed(
    placing: Placing,
    file: &MachineFile,
    era: &Named,
    workload: &str,
    options: &[&str],
    plan: &Plan,
    scale: u64,
) -> Result<Ran, Error> {
    let options: Vec<String> = options.iter().map(ToString::to_string).collect();
    let workload = Workload::parse(workload, &options).map_err(|e| usage(e.to_string()))?;
    let ram = (file.shape.ram_mib.value as u64) << 20;
    let target = targets::sim(era, file, ram)?;
    target.place(placing);
    let outcome = targets::on(&target, &workload, plan)?;
    Ok(ran(file, era, plan, scale, outcome))
}

fn ran(file: &MachineFile, era: &Named, plan: &Plan, scale: u64, outcome: Outcome) -> Ran {
    let place = Place {
        target: "sim",
        machine: &file.name,
        era: &era.name,
        threads: plan.threads,
        cpus: plan.cpus,
        scale,
    };
    let run = record(&place, &outcome);
    Ran { outcome, run }
}

/// A run on a machine with so much memory, and where its time went.
fn simulate_on(
    file: &MachineFile,
    ram: u64,
    era: &Named,
    workload: &Workload,
    plan: &Plan,
    scale: u64,
) -> Result<(Ran, Option<Why>), Error> {
    let target = targets::sim(era, file, ram)?;
    target.account(Some(Asked::default()));
    let outcome = targets::on(&target, workload, plan)?;
    Ok((ran(file, era, plan, scale, outcome), target.take_why()))
}

/// What a set of runs comes to: average, mean deviation from it, greatest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Spread {
    pub(crate) average: f64,
    pub(crate) deviation: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of `figures`, of which there is at least one.
    pub(crate) fn of(figures: &[f64]) -> Self {
        let count = figures.len().max(1) as f64;
        let average = figures.iter().sum::<f64>() / count;
        let apart = figures.iter().map(|figure| (figure - average).abs());
        Self {
            average,
            deviation: apart.sum::<f64>() / count,
            most: figures.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }

    /// The figure that a row of the ebizzy tables gives.
    pub(crate) fn of_row(&self, label: &str) -> Option<f64> {
        match label {
            "Average" => Some(self.average),
            "Mean deviation" => Some(self.deviation),
            "Max" => Some(self.most),
            _ => None,
        }
    }
}

/// Records per second of `runs` runs of ebizzy, each with random numbers of its own.
pub(crate) fn ebizzy_spread(
    era: &Named,
    file: &MachineFile,
    runs: u32,
) -> Result<(Spread, Vec<Run>), Error> {
    let seeds: Vec<u32> = (1..=runs).collect();
    let ran = parallel::map(&seeds, |seed| ebizzy(era, file, *seed))?;
    let rate = |ran: &Ran| ran.outcome.rates.get("records_per_second").copied();
    let figures: Vec<f64> = ran.iter().filter_map(rate).collect();
    let runs = ran.into_iter().map(|ran| ran.run).collect();
    Ok((Spread::of(&figures), runs))
}

/// A simulated figure for the cell in row number `row` of `column`.
pub(crate) fn figure(
    published: &PublishedTable,
    row: usize,
    column: &str,
    file: &MachineFile,
    runs: u32,
) -> Result<f64, Error> {
    let found = match published.workload.as_str() {
        "pft" => {
            let outcome = pft(published, row, file, Size::Scaled)?.outcome;
            pft_figure(&outcome, column)
        }
        "ebizzy" => {
            let (spread, _) = ebizzy_spread(&era(published, column)?, file, runs)?;
            spread.of_row(&published.row_label(row))
        }
        "file-seq" | "file-rand" | "file-sparse" => {
            Some(file::figure(published, row, column, file)?)
        }
        "numa-mem" => Some(numa::figure(published, row, column, file)?),
        "hugetlb-fault" | "hugetlb-fork" | "hugetlb-both" | "usemem" => {
            Some(hugetlb::figure(published, row, column, file)?)
        }
        _ => None,
    };
    found.ok_or_else(|| lacking(published, &format!("column {column} is not simulated")))
}

/// The figure that a column of the 2004 tables gives.
pub(crate) fn pft_figure(outcome: &Outcome, column: &str) -> Option<f64> {
    match column {
        "fault/wsec" => outcome.faults_per_second(),
        "flt/cpu/s" => outcome.faults_per_cpu_second(),
        _ => None,
    }
}

/// The figures of a load of kernbench by the names of the published rows.
pub(crate) fn kernbench_figure(load: &LoadColumns, row: &str) -> Option<f64> {
    let average = match row {
        "Elapsed Time" => load.elapsed_s,
        "User Time" => load.user_s,
        "System Time" => load.system_s,
        "Percent CPU" => load.percent_cpu,
        "Context Switches" => load.context_switches,
        "Sleeps" => load.sleeps,
        _ => return None,
    };
    Some(average.mean)
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn the_spread_of_three_runs() {
        let spread = Spread::of(&[1.0, 2.0, 6.0]);
        assert_eq!((spread.average, spread.most), (3.0, 6.0));
        assert_eq!(spread.deviation, 2.0);
        assert_eq!(spread.of_row("Max"), Some(6.0));
    }
}
