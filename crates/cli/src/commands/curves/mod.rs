//! `minflt curves`: what workloads come to on 1 to 1024 simulated CPUs in every era, what limits
//! each at the end, and how it looks.

mod chart;
pub(crate) mod committed;
pub(crate) mod efficiency;
mod page;
mod shared;
mod usl;
mod work;

use crate::args::Curves;
use crate::choice::{Named, asked_eras, counts, plain_eras};
use crate::commands::why;
use crate::error::{Error, failed, usage};
use crate::files::{replace, writable};
use crate::machine::ram_kib;
use crate::out::{outln, table_text};
use crate::parallel;
use crate::progress::{Deadline, Progress, left_out};
use crate::rows::{Place, record, write_json};
use crate::targets;
use crate::words::did_you_mean;
use minflt_report::Run;
use minflt_sim::{Asked, MachineFile, Size};
use minflt_workload::Plan;
pub(super) use work::{KINDS, Kind};

/// Memory of a machine of few CPUs.
const LEAST_RAM: u64 = 4 << 30;
/// Memory set aside for each run, which holds a machine. A run of 1,024 threads takes 515 MiB at
/// most (`/usr/bin/time minflt curves page-fault1 --threads 1024 --era spf-2017 --seeds 1`), and
/// others need memory, too.
const KIB_A_RUN: u64 = 2 << 20;
/// Of a workload without a curve.
const NO_CURVE: &str = "no scaling curve for";
/// Runs at a time where the machine does not say how much memory it has.
const AT_ONCE: usize = 2;

/// One run to make.
#[derive(Clone)]
struct Job {
    kind: &'static Kind,
    era: Named,
    threads: u32,
    seed: u32,
    /// Whether it is asked what limits it.
    asked: bool,
}

/// What a run came to.
struct Done {
    run: Run,
    /// Operations per second.
    rate: f64,
    /// Pages that one operation makes the machine clear.
    pages: f64,
    limit: Option<String>,
}

/// What the runs of one point came to, operations per second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Rates {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Rates {
    /// Of some rates; of none, nothing.
    fn of(mut rates: Vec<f64>) -> Option<Self> {
        rates.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*rates.first()?, *rates.last()?);
        let (low, high) = (rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
        Some(Self {
            median: f64::midpoint(low, high),
            least,
            most,
        })
    }
}

/// An era on one workload.
pub(super) struct Curve {
    pub(super) era: String,
    /// Threads and rates.
    pub(super) points: Vec<(u32, Rates)>,
    /// What limits at the largest count.
    pub(super) limit: String,
}

/// A workload in all eras.
pub(super) struct Chart {
    pub(super) kind: &'static Kind,
    pub(super) curves: Vec<Curve>,
    /// Threads, and the rate at which the memory of their nodes is busy all the time.
    pub(super) cap: Vec<(u32, f64)>,
}

impl Chart {
    /// Whether any run was made of it.
    fn has_points(&self) -> bool {
        self.curves.iter().any(|curve| !curve.points.is_empty())
    }
}

/// Runs the command.
pub(crate) fn run(args: &Curves) -> Result<(), Error> {
    let kinds = kinds(&args.workloads, KINDS, NO_CURVE)?;
    let machine = targets::machine("--machine", &args.machine)?;
    let mut threads = counts("--threads", &args.threads)?;
    threads.sort_unstable();
    threads.dedup();
    let most = *threads.last().unwrap_or(&1);
    if most > machine.cpus() {
        return Err(usage(format!(
            "--threads {most}: {} has {} CPUs; give at most {}, or a larger --machine",
            machine.name,
            machine.cpus(),
            machine.cpus()
        )));
    }
    let eras = args
        .era
        .as_deref()
        .map_or_else(|| Ok(plain_eras()), asked_eras)?;
    writable("--json", args.json.as_deref())?;
    if let Some(folder) = &args.out {
        page::folders(folder)?;
    }
    let jobs = jobs(&kinds, &eras, &threads, args.seeds.get());
    let done = all(&jobs, &machine, Deadline::after(args.budget), args.quiet)?;
    let charts = kinds
        .iter()
        .map(|kind| chart(kind, &eras, &threads, &jobs, &done, &machine));
    let charts: Vec<_> = charts.filter(Chart::has_points).collect();
    for chart in &charts {
        outln!("{}", table_text(&page::table(chart, &machine)));
    }
    let runs: Vec<_> = done.into_iter().flatten().map(|done| done.run).collect();
    let left = jobs.len() - runs.len();
    left_out(left, jobs.len(), "runs");
    if let Some(folder) = &args.out {
        page::write_all(folder, &charts, &machine, args, left)?;
    }
    write_json(args.json.as_deref(), &runs)
}

/// The eras on one workload with one number of threads.
///
/// # Errors
/// A workload of which no curve is drawn; whatever a run says.
pub(super) fn simulate(
    workload: &str,
    eras: &[Named],
    threads: u32,
    seeds: u32,
    machine: &MachineFile,
    quiet: bool,
) -> Result<Chart, Error> {
    let kinds = kinds(&[workload.to_owned()], KINDS, NO_CURVE)?;
    let jobs = jobs(&kinds, eras, &[threads], seeds);
    let done = all(&jobs, machine, Deadline::after(None), quiet)?;
    Ok(chart(kinds[0], eras, &[threads], &jobs, &done, machine))
}

/// A run for each era, number of threads and seed; of the most threads it is asked what limits.
fn jobs(kinds: &[&'static Kind], eras: &[Named], threads: &[u32], seeds: u32) -> Vec<Job> {
    let most = threads.last().copied().unwrap_or(1);
    let mut jobs = Vec::new();
    for kind in kinds.iter().copied() {
        for era in eras {
            for seed in 1..=seeds {
                jobs.extend(threads.iter().map(|threads| Job {
                    kind,
                    era: era.clone(),
                    threads: *threads,
                    seed,
                    asked: *threads == most && seed == 1,
                }));
            }
        }
    }
    jobs
}

/// The workloads of `all` that are named; without names, all. `no` begins the refusal of others.
fn kinds(names: &[String], all: &'static [Kind], no: &str) -> Result<Vec<&'static Kind>, Error> {
    let one = |name: &String| {
        all.iter().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|kind| kind.name).collect();
            usage(format!(
                "{no} `{name}`; workloads are {}{}",
                known.join(", "),
                did_you_mean(name, known)
            ))
        })
    };
    if names.is_empty() {
        return Ok(all.iter().collect());
    }
    names.iter().map(one).collect()
}

/// Runs at a time, by the memory of this machine.
fn at_once() -> usize {
    let runs = |kib: u64| (kib / KIB_A_RUN).max(1) as usize;
    ram_kib().map_or(AT_ONCE, runs)
}

/// Makes all runs, a few at a time; in the order of the jobs, without those that begin after the
/// deadline. The largest come first, so that no processor is idle at the end; with a deadline the
/// smallest, so that there are more.
fn all(
    jobs: &[Job],
    machine: &MachineFile,
    deadline: Deadline,
    quiet: bool,
) -> Result<Vec<Option<Done>>, Error> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|at| (core::cmp::Reverse(jobs[*at].effort()), *at));
    if deadline.is_set() {
        order.reverse();
    }
    let progress = Progress::with_estimate(quiet, jobs.iter().map(Job::effort).sum());
    let done = parallel::map_at_most(at_once(), &order, |at| {
        if deadline.is_over() {
            return Ok((*at, None));
        }
        let job = &jobs[*at];
        let done = measure(job, machine)?;
        progress.advance(job.effort());
        progress.says(&job.name());
        Ok((*at, Some(done)))
    });
    progress.end();
    let mut done = done?;
    done.sort_unstable_by_key(|(at, _)| *at);
    Ok(done.into_iter().map(|(_, done)| done).collect())
}

impl Job {
    fn name(&self) -> String {
        let Self { threads, seed, .. } = self;
        format!(
            "{} {} x{threads}, seed {seed}",
            self.kind.name, self.era.name
        )
    }

    /// Estimated effort, without a unit: each unmapping flushes all CPUs' TLBs.
    fn effort(&self) -> u64 {
        let threads = u64::from(self.threads);
        let asked = if self.asked { 2 } else { 1 };
        asked * (threads * threads / 8 * u64::from(self.kind.unmaps) + threads * 64 + 500)
    }
}

fn measure(job: &Job, machine: &MachineFile) -> Result<Done, Error> {
    let size = share(machine, job.threads);
    let machine = &spread(machine, job.threads);
    let target = targets::sim_sized(&job.era, machine, size)?;
    target.seed(job.seed.into());
    target.account(job.asked.then(Asked::default));
    let page = machine.shape.page_bytes.value as u64;
    let workload = job.kind.workload(job.threads, page)?;
    targets::fits(&workload, job.threads, page, (size.ram_bytes, 0))?;
    let plan = Plan::new(job.threads, job.threads);
    let outcome = targets::on(&target, &workload, &plan)?;
    let place = Place {
        target: "sim",
        machine: &machine.name,
        era: &job.era.name,
        threads: job.threads,
        cpus: job.threads,
        scale: 1,
    };
    let mut run = record(&place, &outcome);
    run.params.insert("seed".into(), job.seed.into());
    let account = target.take_why();
    run.why = account.as_ref().map(|account| why::json(account, &outcome));
    let ops: u64 = outcome.workers.iter().map(|worker| worker.ops).sum();
    let faults: u64 = outcome.workers.iter().map(|worker| worker.faults).sum();
    Ok(Done {
        rate: ops as f64 * 1e9 / outcome.wall_ns.max(1) as f64,
        pages: faults as f64 / ops.max(1) as f64,
        limit: account.as_ref().map(why::limit_in_full),
        run,
    })
}

/// The machine with only the CPUs that so many threads run on, where a scheduler spreads them: over
/// all sockets and dies, and over cores before a core has two. CPUs that run nothing are left out:
/// ours report no grace period by being idle, as Linux's do, and would have to be interrupted.
fn spread(machine: &MachineFile, threads: u32) -> MachineFile {
    let mut spread = machine.clone();
    let share = f64::from(threads) / f64::from(machine.cpus());
    let shape = &mut spread.shape;
    for per in [
        &mut shape.cpus_per_core,
        &mut shape.cpus_per_die,
        &mut shape.cpus_per_group,
        &mut shape.cpus_per_node,
    ] {
        per.value = (per.value * share).ceil().max(1.0);
    }
    shape.cpus.value = f64::from(threads);
    spread
}

/// So many CPUs of the machine, with their share of its memory.
fn share(machine: &MachineFile, cpus: u32) -> Size {
    let whole = Size::of(machine);
    let ram = whole.ram_bytes / u64::from(whole.cpus) * u64::from(cpus);
    Size {
        cpus,
        ram_bytes: ram.max(LEAST_RAM).min(whole.ram_bytes),
        max_tasks: cpus,
    }
}

fn chart(
    kind: &'static Kind,
    eras: &[Named],
    threads: &[u32],
    jobs: &[Job],
    done: &[Option<Done>],
    machine: &MachineFile,
) -> Chart {
    let of = |era: &str, threads: u32| -> Vec<&Done> {
        let all = jobs.iter().zip(done);
        let mine = all.filter(|(job, _)| {
            job.kind.name == kind.name && job.era.name == era && job.threads == threads
        });
        mine.filter_map(|(_, done)| done.as_ref()).collect()
    };
    let curve = |era: &Named| {
        let rates = |threads: &u32| {
            let rates = of(&era.name, *threads)
                .iter()
                .map(|done| done.rate)
                .collect();
            Some((*threads, Rates::of(rates)?))
        };
        let last = threads.last().map(|threads| of(&era.name, *threads));
        let mut asked = last.into_iter().flatten();
        Curve {
            era: era.name.clone(),
            points: threads.iter().filter_map(rates).collect(),
            limit: asked
                .find_map(|done| done.limit.clone())
                .unwrap_or_default(),
        }
    };
    // Pages are the same in all eras, but for faults that were in vain.
    let cap_at = |threads: &u32| {
        let in_era = |era: &Named| of(&era.name, *threads).first().copied();
        let done = eras.iter().find_map(in_era)?;
        let spread = spread(machine, *threads);
        Some((*threads, cap(&spread, *threads, done.pages)))
    };
    let cap = if kind.touches {
        threads.iter().filter_map(cap_at).collect()
    } else {
        Vec::new()
    };
    Chart {
        kind,
        curves: eras.iter().map(curve).collect(),
        cap,
    }
}

/// Operations per second at which the memory of the nodes in use is never idle.
fn cap(machine: &MachineFile, threads: u32, pages: f64) -> f64 {
    let shape = &machine.shape;
    let nodes = threads.div_ceil(shape.cpus_per_node.value as u32);
    let bytes_per_second = machine.bytes_per_us.node.value * 1e6 * f64::from(nodes);
    bytes_per_second / shape.page_bytes.value / pages.max(f64::MIN_POSITIVE)
}

/// Writes a file of the output folder.
fn write(path: &std::path::Path, text: &str) -> Result<(), Error> {
    let cannot = failed(format!("--out: cannot write {}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| cannot(&error))?;
    }
    replace(path, text.as_bytes()).map_err(|error| cannot(&error))
}

#[cfg(test)]
mod tests {
    use super::{Rates, cap, spread};
    use minflt_sim::MachineFile;

    #[test]
    fn a_few_threads_have_a_socket_each_and_many_share_cores() {
        let machine = MachineFile::shipped("next1024").expect("shipped");
        let shape = |threads| {
            let shape = spread(&machine, threads).shape;
            let per = [
                shape.cpus_per_core,
                shape.cpus_per_die,
                shape.cpus_per_node,
                shape.cpus,
            ];
            per.map(|per| per.value as u32)
        };
        assert_eq!(shape(1), [1, 1, 1, 1]);
        assert_eq!(shape(2), [1, 1, 1, 2]);
        assert_eq!(shape(64), [1, 2, 32, 64]);
        assert_eq!(shape(512), [1, 16, 256, 512]);
        assert_eq!(shape(1024), [2, 32, 512, 1024]);
    }

    #[test]
    fn the_median_lies_between_the_least_and_the_most() {
        let rates = Rates::of(vec![3.0, 9.0, 1.0, 5.0]).expect("some");
        assert_eq!((rates.least, rates.median, rates.most), (1.0, 4.0, 9.0));
        assert_eq!(Rates::of(Vec::new()), None);
    }

    #[test]
    fn a_second_node_doubles_what_memory_bears() {
        let machine = MachineFile::shipped("altix32").expect("shipped");
        assert_eq!(cap(&machine, 1, 1.0), cap(&machine, 2, 1.0));
        assert_eq!(cap(&machine, 3, 1.0), 2.0 * cap(&machine, 2, 1.0));
        assert_eq!(cap(&machine, 1, 4.0), cap(&machine, 1, 1.0) / 4.0);
    }
}
