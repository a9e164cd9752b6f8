//! The experiments behind published cells: which run of which workload stands for a row or column.
//!
//! Everything here is scaled down: fewer pages, less time. The factor is part of each record.

pub(crate) mod file;
pub(crate) mod hugetlb;
pub(crate) mod numa;

use crate::choice::{Named, era_list};
use crate::error::{Error, failed, usage};
use crate::rows::{Place, record};
use crate::targets;
use minflt_report::{Posting, PublishedTable, Run};
use minflt_sim::why::Why;
use minflt_sim::{Asked, MachineFile, SimTarget, Size as SimSize};
use minflt_workload::kernbench::LoadColumns;
use minflt_workload::{Outcome, Plan, Spaces, Workload};

/// Bytes that pft touches in a cell, scaled and in full; published were 32 GiB ten times.
pub(crate) const PFT_SCALED: u64 = 256 << 20;
const PFT_FULL: u64 = 32 << 30;
const PFT_PUBLISHED: u64 = 10 * (32 << 30);

/// How long a run of ebizzy takes in virtual time, on up to so many CPUs; the original's took 10 s.
const EBIZZY_NS: [(u32, u64); 2] = [(128, 100_000_000), (u32::MAX, 400_000_000)];
const EBIZZY_PUBLISHED_NS: u64 = 10_000_000_000;

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

/// The simulated machine used for the published one, with its fitted parameters.
pub(crate) fn machine(published: &PublishedTable) -> Result<MachineFile, Error> {
    let name = published.preset.as_deref();
    let name = name.ok_or_else(|| lacking(published, "names no machine"))?;
    targets::machine("--machine", name)
}

/// The era used for the kernel of a column.
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
    let plan = Plan::new(threads, threads);
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
    let plan = Plan::new(threads, threads);
    let options = ["-b", "32M", "--measure", "workers"];
    simulate(file, era, "pft", &options, &plan, 1)
}

/// One run of ebizzy with a table's options and generator, on all CPUs of the machine or on as many
/// as the table says; a smaller machine is extended then. Threads are two a CPU, as the original
/// starts them, unless the options give their number.
///
/// What is drawn changes nothing here (always 0, or which chunk is copied where none is), so every
/// run is the same, and one is made.
pub(crate) fn ebizzy(
    published: &PublishedTable,
    era: &Named,
    file: &MachineFile,
) -> Result<Ran, Error> {
    let cpus = match published.params.contains_key("cpus") {
        true => param(published, "cpus")?,
        false => file.cpus(),
    };
    let word = |name: &str| published.params.get(name).and_then(|value| value.as_str());
    let options = word("options").ok_or_else(|| lacking(published, "has no parameter options"))?;
    let mut options: Vec<String> = options.split_whitespace().map(String::from).collect();
    if let Some(generator) = word("generator") {
        options.extend(["--generator".to_owned(), generator.to_owned()]);
    }
    let ns = ebizzy_ns(cpus);
    options.extend(["-S".to_owned(), format!("{:.3}", ns as f64 / 1e9)]);
    let workload = Workload::parse("ebizzy", &options).map_err(|e| usage(e.to_string()))?;
    let plan = Plan::new(workload.threads().unwrap_or(2 * cpus), cpus);
    let target = targets::sim_sized(era, file, SimSize::extended(file, cpus))?;
    let outcome = targets::on(&target, &workload, &plan)?;
    Ok(ran(file, era, &plan, EBIZZY_PUBLISHED_NS / ns, outcome))
}

/// How long a run of ebizzy takes in virtual time on so many CPUs, in nanoseconds.
pub(crate) fn ebizzy_ns(cpus: u32) -> u64 {
    let fits = EBIZZY_NS.iter().find(|(most, _)| cpus <= *most);
    fits.map_or(EBIZZY_NS[0].1, |(_, ns)| *ns)
}

/// The records per second of a run of ebizzy.
pub(crate) fn ebizzy_rate(ran: &Ran) -> Option<f64> {
    ran.outcome.rates.get("records_per_second").copied()
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
        spaces: Spaces::Own,
        ..Plan::new(many, file.cpus())
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
    let plan = Plan::new(file.cpus(), file.cpus());
    simulate(file, era, "load", &[], &plan, 1)
}

fn simulate(
    file: &MachineFile,
    era: &Named,
    workload: &str,
    options: &[&str],
    plan: &Plan,
    scale: u64,
) -> Result<Ran, Error> {
    let target = whole(era, file)?;
    simulate_with(&target, file, era, workload, options, plan, scale)
}

/// The machine with all its memory.
fn whole(era: &Named, file: &MachineFile) -> Result<SimTarget, Error> {
    targets::sim(era, file, (file.shape.ram_mib.value as u64) << 20)
}

fn simulate_with(
    target: &SimTarget,
    file: &MachineFile,
    era: &Named,
    workload: &str,
    options: &[&str],
    plan: &Plan,
    scale: u64,
) -> Result<Ran, Error> {
    let options: Vec<String> = options.iter().map(ToString::to_string).collect();
    let workload = Workload::parse(workload, &options).map_err(|e| usage(e.to_string()))?;
    let outcome = targets::on(target, &workload, plan)?;
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

/// A simulated figure for the cell in row number `row` of `column`.
pub(crate) fn figure(
    published: &PublishedTable,
    row: usize,
    column: &str,
    file: &MachineFile,
) -> Result<f64, Error> {
    let found = match published.workload.as_str() {
        "pft" => {
            let outcome = pft(published, row, file, Size::Scaled)?.outcome;
            pft_figure(&outcome, column)
        }
        "ebizzy" if published.row_label(row) == "Average" => {
            ebizzy_rate(&ebizzy(published, &era(published, column)?, file)?)
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
    use super::{Ran, ebizzy, era, machine};
    use minflt_report::{PublishedTable, postings};

    fn table(id: &str) -> PublishedTable {
        let all = postings().expect("readable");
        let tables = all.into_iter().flat_map(|it| [it.tables, it.held_out]);
        let found = tables.flatten().find(|it| it.id == id);
        found.expect("there")
    }

    fn run(table: &PublishedTable, column: &str) -> Ran {
        let file = machine(table).expect("shipped");
        ebizzy(table, &era(table, column).expect("known"), &file).expect("runs")
    }

    fn faults_a_record(ran: &Ran) -> f64 {
        let records: u64 = ran.outcome.workers.iter().map(|it| it.ops).sum();
        ran.outcome.faults as f64 / records as f64
    }

    /// 0.87 to 0.97 as the covers count them.
    #[test]
    fn a_random_record_of_the_posting_is_one_page() {
        let mut table = table("2017/ebizzy-x86");
        let ran = run(&table, "4.13-rc3");
        assert_eq!((ran.run.threads, ran.run.cpus), (32, 16));
        assert_eq!(faults_a_record(&ran), 1.0);
        table.params.insert("generator".into(), "lcg".into());
        let faults = faults_a_record(&run(&table, "4.13-rc3"));
        assert!(faults > 40.0, "{faults}");
    }

    /// 126 and 114.5 as the covers count them.
    #[test]
    fn a_whole_record_is_a_chunk_by_so_many_threads_as_the_options_say() {
        let ran = run(&table("2017/held-out-whole-x86-24"), "Base");
        assert_eq!((ran.run.threads, ran.run.cpus), (24, 24));
        let faults = faults_a_record(&ran);
        assert!((120.0..=136.0).contains(&faults), "{faults}");
    }

    #[test]
    fn a_machine_with_fewer_cpus_than_the_table_is_extended() {
        let mut table = table("2017/ebizzy-x86");
        let mut set = |name: &str, to: serde_json::Value| table.params.insert(name.into(), to);
        set("cpus", 18.into());
        set("options", "-mTRpt 2".into());
        let ran = run(&table, "4.13-rc3");
        assert_eq!((ran.run.threads, ran.run.cpus), (2, 18));
        table.params.remove("options");
        let file = machine(&table).expect("shipped");
        let era = era(&table, "4.13-rc3").expect("known");
        let error = ebizzy(&table, &era, &file).expect_err("refused");
        assert!(
            error.to_string().contains("no parameter options"),
            "{error}"
        );
    }
}
