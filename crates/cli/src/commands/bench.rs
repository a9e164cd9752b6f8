//! `minflt bench`: one workload on targets, eras and thread counts.

mod shown;
pub(crate) mod vm;

use crate::args::Bench;
use crate::choice::{Named, counts, eras, size};
use crate::commands::beside::Beside;
use crate::commands::reproduce::proof;
use crate::commands::{why, why_files};
use crate::error::{Error, usage};
use crate::experiment::Ran;
use crate::files::writable;
use crate::machine;
use crate::out::{out, outln, table_text};
use crate::progress::{Deadline, Progress, left_out};
use crate::rows::{Place, record, to_save, write, write_json};
use crate::targets::{self, HOST_RAM, On};
use crate::words::did_you_mean;
use minflt_report::Run;
use minflt_sim::why::{Limit, Why};
use minflt_sim::{Asked, MAX_CPUS, Size};
use minflt_workload::{Clear, Outcome, Plan, Workload, list};
use shown::{median, originals, spread, table};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Samples of a profile, at most.
const SAMPLES: usize = 100_000;

/// Pages that a simulated loop touches by default, at most: some ten seconds of real time.
const SIMULATED_PAGES: u64 = 1 << 20;

/// Runs the command.
pub(crate) fn run(args: &Bench) -> Result<(), Error> {
    if args.proof {
        return proofs(args);
    }
    if let Some(subject) = vm::Subject::of(args) {
        return vm::run(args, subject);
    }
    if args.docs {
        return Err(usage(
            "--docs: only kernel-ops and kernel-rates write into the docs",
        ));
    }
    let job = Job::new(args)?;
    let cells = job.cells()?;
    let saved = check_outputs(args)?;
    let deadline = Deadline::after(args.budget);
    let rounds = args.rounds.get();
    let progress = Progress::new(args.quiet, cells.len() as u64 * u64::from(rounds));
    let mut done: Vec<Vec<Ran>> = cells.iter().map(|_| Vec::new()).collect();
    let mut accounts = Vec::new();
    for _ in 0..rounds {
        for (cell, done) in cells.iter().zip(&mut done) {
            if deadline.is_over() {
                break;
            }
            let (on, era, threads) = (cell.on.name(), &cell.era.name, cell.plan.threads);
            progress.says(&format!("{on} {era} x{threads}"));
            let (outcome, why) = job.measure(cell, args.why.free.as_deref())?;
            progress.step();
            let mut run = job.record(cell, &outcome);
            run.why = why.as_ref().map(|why| why::json(why, &outcome));
            accounts.extend(job.account(cell, &run, &outcome, why)?);
            done.push(Ran { outcome, run });
        }
    }
    progress.end();
    let medians: Vec<Ran> = done.iter().filter_map(|rounds| median(rounds)).collect();
    let mut shown = table(&medians);
    shown.footnotes.extend(job.extended(&medians));
    shown.footnotes.extend(job.shortened(&cells));
    if rounds > 1 {
        shown
            .footnotes
            .extend(done.iter().filter_map(|rounds| spread(rounds)));
    }
    out!("{}", table_text(&shown));
    originals(&medians, job.beside.as_ref());
    job.beside(&medians);
    accounts.iter().for_each(|account| out!("\n{account}"));
    let runs: Vec<_> = done.into_iter().flatten().map(|ran| ran.run).collect();
    let asked = cells.len() * rounds as usize;
    left_out(asked - runs.len(), asked, "runs");
    write("--save", saved.as_deref(), &runs)?;
    write_json(args.json.as_deref(), &runs)
}

/// Refuses files that cannot be written to, before the run; returns where rows are to be kept.
fn check_outputs(args: &Bench) -> Result<Option<PathBuf>, Error> {
    writable("--json", args.json.as_deref())?;
    writable("--flame", args.why.flame.as_deref())?;
    writable("--profile", args.why.profile.as_deref())?;
    to_save(args.save.as_deref())
}

/// What the proof rows of all postings are.
fn proofs(args: &Bench) -> Result<(), Error> {
    writable("--json", args.json.as_deref())?;
    let deadline = Deadline::after(args.budget);
    let progress = Progress::new(args.quiet, proof::STEPS);
    let mut runs = Vec::new();
    let jobs = proof::jobs(proof::ALL);
    let asked = jobs.len();
    let mut made = 0;
    for job in jobs.iter().take_while(|_| !deadline.is_over()) {
        made += 1;
        let part = job.measure(&progress)?;
        progress.suspend(|| outln!("{}", table_text(&part.table)));
        runs.extend(part.runs);
    }
    progress.end();
    left_out(asked - made, asked, "groups of rows");
    write_json(args.json.as_deref(), &runs)
}

/// What was asked for.
struct Job<'a> {
    args: &'a Bench,
    workload: Workload,
    machine: minflt_sim::MachineFile,
    ram: Option<u64>,
    /// Bytes of a swap device, 0 for none.
    swap: u64,
    /// The posting that ran this on the simulated machine.
    beside: Option<Beside>,
}

/// One run to make.
struct Variant {
    on: On,
    /// With fewer rounds than on other targets, where it would take too long.
    workload: Workload,
    /// The rounds that it would have, where it has fewer.
    rounds: Option<(u32, u32)>,
    era: Named,
    plan: Plan,
}

impl<'a> Job<'a> {
    fn new(args: &'a Bench) -> Result<Self, Error> {
        let nothing = || usage("bench: name a workload (see `minflt workloads`) or use --proof");
        let name = args.workload.as_deref().ok_or_else(nothing)?;
        if !list().iter().any(|info| info.name == name) {
            let known = list().iter().map(|info| info.name).chain(vm::SUBJECTS);
            let known: Vec<_> = known.collect();
            return Err(usage(format!(
                "unknown workload `{name}`; workloads are {}{}",
                known.join(", "),
                did_you_mean(name, known)
            )));
        }
        let mut workload =
            Workload::parse(name, &args.options).map_err(|error| usage(error.to_string()))?;
        if let Some(word) = &args.size {
            let refuse = |error| usage(format!("--size: {error}"));
            workload.set_size(size("--size", word)?).map_err(refuse)?;
        }
        let ram = args
            .ram
            .as_deref()
            .map(|word| size("--ram", word))
            .transpose()?;
        let swap = args.swap.as_deref().map(|word| size("--swap", word));
        let machine = args.machine.as_deref().unwrap_or("altix32");
        let machine = targets::machine("--machine", machine)?;
        let beside = match &workload {
            Workload::Pft(pft) if !args.clear_beforehand => Beside::of(pft, &machine)?,
            _ => None,
        };
        Ok(Self {
            args,
            workload,
            machine,
            ram,
            swap: swap.transpose()?.unwrap_or(0),
            beside,
        })
    }

    fn cells(&self) -> Result<Vec<Variant>, Error> {
        let threads = match (&self.args.threads, self.workload.threads()) {
            (Some(list), _) => counts("--threads", list)?,
            (None, Some(threads)) => vec![threads],
            (None, None) => self.workload.info().threads.to_vec(),
        };
        let cpus = self
            .args
            .cpus
            .as_deref()
            .map(|list| counts("--cpus", list))
            .transpose()?;
        let clear = if self.args.clear_beforehand {
            Clear::Beforehand
        } else {
            Clear::InFault
        };
        let eras = eras(&self.args.choices)?;
        let mut cells = Vec::new();
        let on = On::list(self.args.on.as_deref().unwrap_or("host"))?;
        self.check_targets(&on)?;
        let rounds = self.args.rounds.get() as usize;
        let runs = rounds * eras.len() * threads.len() * cpus.as_ref().map_or(1, Vec::len);
        self.check_files(runs)?;
        for on in on {
            let eras = match on {
                On::Linux => vec![Named {
                    name: machine::kernel(),
                    ..eras[0].clone()
                }],
                On::Host | On::Sim => eras.clone(),
            };
            for era in eras {
                for threads in &threads {
                    for cpus in cpus
                        .clone()
                        .unwrap_or_else(|| vec![self.cpus(on, *threads)])
                    {
                        let plan = Plan {
                            clear,
                            ..Plan::new(*threads, cpus)
                        };
                        self.check(on, &plan)?;
                        let (workload, rounds) = self.limited(on, *threads);
                        cells.push(Variant {
                            on,
                            workload,
                            rounds,
                            era: era.clone(),
                            plan,
                        });
                    }
                }
            }
        }
        Ok(cells)
    }

    /// The workload; simulated, with as many rounds as end within a minute, unless their number was
    /// given.
    fn limited(&self, on: On, threads: u32) -> (Workload, Option<(u32, u32)>) {
        let mut workload = self.workload.clone();
        // The loops have no other option that begins like this.
        let given = self.args.options.iter().any(|it| it.starts_with("-s"));
        let page = self.machine.shape.page_bytes.value as u64;
        let rounds = match on {
            On::Sim if !given => workload.limit_rounds(threads, page, SIMULATED_PAGES),
            _ => None,
        };
        (workload, rounds)
    }

    /// Which rows have fewer rounds than the workload's default.
    fn shortened(&self, cells: &[Variant]) -> Option<String> {
        let shorter = cells.iter().filter_map(|cell| {
            let (_, rounds) = cell.rounds?;
            Some((cell.plan.threads, rounds))
        });
        let shorter: BTreeSet<(u32, u32)> = shorter.collect();
        let (default, _) = cells.iter().find_map(|cell| cell.rounds)?;
        let rows = shorter
            .iter()
            .map(|(threads, rounds)| format!("{rounds} at {threads} threads"));
        let rows: Vec<_> = rows.collect();
        Some(format!(
            "rounds simulated: {} (default {default}, which would take long; -- -s N sets them)",
            rows.join(", ")
        ))
    }

    /// Refuses options that none, or not all, of the targets take.
    fn check_targets(&self, on: &[On]) -> Result<(), Error> {
        if self.args.machine.is_some() && !on.contains(&On::Sim) {
            return Err(usage(
                "--machine: only the sim target simulates a machine; add sim to --on",
            ));
        }
        if self.args.extend_machine && !on.contains(&On::Sim) {
            return Err(usage(
                "--extend-machine: only the sim target simulates a machine; add sim to --on",
            ));
        }
        if let Some(option) = self.args.why.option()
            && on.iter().any(|on| *on != On::Sim)
        {
            return Err(usage(format!(
                "{option}: only the sim target accounts time; use --on sim"
            )));
        }
        if self.ram.is_some() && on.iter().all(|on| *on == On::Linux) {
            return Err(usage(
                "--ram: the linux target uses the host's RAM; add host or sim to --on",
            ));
        }
        if self.swap != 0 && on.iter().all(|on| *on == On::Linux) {
            return Err(usage(
                "--swap: the linux target uses the host's swap; add host or sim to --on",
            ));
        }
        Ok(())
    }

    /// Refuses several runs for one file.
    fn check_files(&self, runs: usize) -> Result<(), Error> {
        let one = [
            (self.args.why.flame.is_some(), "--flame"),
            (self.args.why.profile.is_some(), "--profile"),
        ];
        match one.iter().find(|(given, _)| *given) {
            Some((_, option)) if runs > 1 => Err(usage(format!(
                "{option}: {runs} runs, but the file holds one; give one era and one number of threads"
            ))),
            _ => Ok(()),
        }
    }

    /// As many CPUs as threads, as far as the machine has them or is extended.
    fn cpus(&self, on: On, threads: u32) -> u32 {
        match on {
            On::Host => threads,
            On::Sim if self.args.extend_machine => threads,
            On::Sim => threads.min(self.machine.cpus()),
            On::Linux => threads.min(machine::cpus() as u32),
        }
    }

    /// What was asked for; else what the machine has, or of that as much less as the posting whose
    /// benchmark this is touched more.
    fn ram(&self, on: On, cpus: u32) -> u64 {
        self.ram.unwrap_or_else(|| match (on, &self.beside) {
            (On::Sim, Some(beside)) if cpus <= self.machine.cpus() => beside.ram(),
            (On::Sim, _) => Size::extended(&self.machine, cpus).ram_bytes,
            (On::Host | On::Linux, _) => HOST_RAM,
        })
    }

    /// The published tables, beside what was run of their rows.
    fn beside(&self, done: &[Ran]) {
        let Some(beside) = &self.beside else { return };
        for table in beside.tables(done, self.ram(On::Sim, 1)) {
            outln!("\n{}", table_text(&table));
        }
    }

    fn check(&self, on: On, plan: &Plan) -> Result<(), Error> {
        let page = match on {
            On::Sim => self.machine.shape.page_bytes.value as u64,
            On::Host | On::Linux => 4096,
        };
        if on == On::Linux && plan.threads > MAX_CPUS {
            return Err(usage(format!(
                "--threads {}: more threads than are supported; give at most {MAX_CPUS}",
                plan.threads
            )));
        }
        if on != On::Linux && plan.cpus > MAX_CPUS {
            let option = match self.args.cpus {
                Some(_) => "--cpus",
                None => "--threads",
            };
            let cpus = plan.cpus;
            return Err(usage(format!(
                "{option} {cpus}: more CPUs than are supported; give at most {MAX_CPUS}"
            )));
        }
        if on == On::Sim {
            self.check_cpus(plan.cpus)?;
        }
        match on {
            On::Linux => Ok(()),
            On::Host | On::Sim => {
                let ram = self.ram(on, plan.cpus);
                targets::fits(&self.workload, plan.threads, page, (ram, self.swap))
            }
        }
    }

    /// Refuses more CPUs than the machine has, unless it is extended.
    fn check_cpus(&self, cpus: u32) -> Result<(), Error> {
        let (name, has) = (&self.machine.name, self.machine.cpus());
        if cpus > has && !self.args.extend_machine {
            return Err(usage(format!(
                "--cpus {cpus}: {name} has {has} CPUs; give at most {has}, a larger --machine, or \
                 --extend-machine to repeat its topology"
            )));
        }
        Ok(())
    }

    /// Runs a cell; simulated, with the account that was asked for and the line of that name free.
    fn measure(&self, cell: &Variant, free: Option<&str>) -> Result<(Outcome, Option<Why>), Error> {
        let plan = &cell.plan;
        let ram = self.ram(cell.on, plan.cpus);
        match cell.on {
            On::Host => {
                let workers = cell.workload.most_workers(plan.threads, plan.cpus);
                let cpus = workers.max(plan.cpus).max(cell.workload.nodes());
                let target = targets::host(&cell.era, &cell.workload, cpus, ram, self.swap)?;
                Ok((targets::on(&target, &cell.workload, plan)?, None))
            }
            On::Sim => {
                let size = Size {
                    ram_bytes: ram,
                    ..Size::extended(&self.machine, plan.cpus)
                };
                let target = targets::sim_with_swap(&cell.era, &self.machine, size, self.swap)?;
                let why = &self.args.why;
                target.account(why.option().map(|_| Asked {
                    free: free.map(str::to_owned),
                    samples: if why.profile.is_some() { SAMPLES } else { 0 },
                }));
                let outcome = targets::on(&target, &cell.workload, plan)?;
                Ok((outcome, target.take_why()))
            }
            On::Linux => Ok((targets::linux(&cell.workload, plan)?, None)),
        }
    }

    /// What is said of a run that was accounted: its tables, and what limits it without the line
    /// that does. Files are written here.
    fn account(
        &self,
        cell: &Variant,
        run: &Run,
        outcome: &Outcome,
        why: Option<Why>,
    ) -> Result<Option<String>, Error> {
        let Some(why) = why else { return Ok(None) };
        let args = &self.args.why;
        if let Some(name) = &args.free
            && !why.freed
        {
            return Err(usage(format!(
                "--free: the run did not access `{name}`; the most expensive words are {}",
                why::names(&why)
            )));
        }
        let title = format!("{} {}, {} threads", run.workload, run.era, run.threads);
        if let Some(file) = &args.flame {
            why_files::flame(&why, &title, file)?;
        }
        if let Some(file) = &args.profile {
            why_files::profile(&why, &title, file)?;
        }
        let mut text = why::text(&why, &title, run, outcome);
        if args.free.is_none()
            && let Limit::Line(name, _) = why.limit()
            && let (without, Some(then)) = self.measure(cell, Some(&name))?
        {
            text += &why::gone(&name, run, &self.record(cell, &without), &then);
        }
        Ok(Some(text))
    }

    /// What is to be said of rows with more CPUs than the machine has.
    fn extended(&self, done: &[Ran]) -> Option<String> {
        let (name, has) = (&self.machine.name, self.machine.cpus());
        let is_more = |Ran { run, .. }: &Ran| run.simulated && run.cpus > has;
        done.iter().any(is_more).then(|| {
            format!("{name} has {has} CPUs: rows with more extend its topology by repetition")
        })
    }

    fn record(&self, cell: &Variant, outcome: &Outcome) -> Run {
        let (name, cpus) = (&self.machine.name, cell.plan.cpus);
        let machine = match cell.on {
            On::Sim if cpus > self.machine.cpus() => format!("{name} extended to {cpus} CPUs"),
            On::Sim => name.clone(),
            On::Host | On::Linux => machine::line(),
        };
        let place = Place {
            target: cell.on.name(),
            machine: &machine,
            era: &cell.era.name,
            threads: cell.plan.threads,
            cpus: cell.plan.cpus,
            scale: 1,
        };
        record(&place, outcome)
    }
}
