//! `minflt bench kernel-ops` and `kernel-rates`: one program on the minflt kernel and on Linux, in
//! machines of QEMU that differ in the kernel alone.

mod table;

use crate::args::Bench;
use crate::choice::{counts, era_list, eras_of_one_node};
use crate::commands::boot::lab::{self, Counts, Lab, Side, linux_images};
use crate::error::{Error, failed, usage};
use crate::out::{out, table_text};
use crate::progress::Progress;
use crate::words::{did_you_mean, distinct};
use core::time::Duration;
use minflt_report::{Table, replace_generated};
use std::fs;
use std::path::Path;
use table::Samples;

/// The names of the subjects.
pub(super) const SUBJECTS: [&str; 2] = ["kernel-ops", "kernel-rates"];

/// Where the tables are written.
const DOCS: &str = "docs/kernel.md";
/// CPUs of a machine whose rates are measured.
const CPUS: u32 = 2;
/// Milliseconds that each loop runs.
const MS: u32 = 2000;
/// The era that `reproduce` counts instructions in.
const ERA: &str = "linux-6.15";
/// Numbers of threads, unless they are given.
const THREADS: &str = "1,2";

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    /// Instructions an operation.
    Ops,
    /// Operations a second.
    Rates,
}

impl Subject {
    /// What the command line names, if it is one of these.
    pub(super) fn of(args: &Bench) -> Option<Self> {
        match args.workload.as_deref() {
            Some("kernel-ops") => Some(Self::Ops),
            Some("kernel-rates") => Some(Self::Rates),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ops => SUBJECTS[0],
            Self::Rates => SUBJECTS[1],
        }
    }

    const fn counts(self) -> Counts {
        match self {
            Self::Ops => Counts::Instructions,
            Self::Rates => Counts::Time(CPUS),
        }
    }

    /// The arguments of the guest program.
    fn arguments(self, threads: &[u32]) -> Vec<String> {
        match self {
            Self::Ops => vec!["ops".into()],
            Self::Rates => {
                let threads = threads.iter().map(u32::to_string);
                ["rates".into(), MS.to_string()]
                    .into_iter()
                    .chain(threads)
                    .collect()
            }
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &Bench, subject: Subject) -> Result<(), Error> {
    refuse(args, subject)?;
    let (sides, skipped) = sides(args)?;
    let threads = counts("--threads", args.threads.as_deref().unwrap_or(THREADS))?;
    if let Some(more) = threads.iter().find(|count| **count > 256) {
        return Err(usage(format!(
            "--threads {more}: too many; give at most 256"
        )));
    }
    if args.docs && !Path::new(DOCS).is_file() {
        return Err(usage(format!(
            "--docs: run from the repository's root, where {DOCS} is"
        )));
    }
    let arguments = subject.arguments(&threads);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let rounds = args.rounds.get();
    let progress = Progress::new(args.quiet, u64::from(rounds) * sides.len() as u64);
    progress.says("building");
    let lab = Lab::new(&sides, lab::TIMEOUT)?;
    let samples = measure(&lab, subject, &sides, &arguments, rounds, &progress)?;
    progress.end();
    let mut tables = table::tables(subject, &sides, &samples, rounds);
    if let Some(last) = tables.last_mut() {
        let command = command(args, subject);
        last.footnotes
            .extend(notes(command, subject, &sides, skipped));
    }
    let texts: Vec<_> = tables.iter().map(table_text).collect();
    out!("{}", texts.join("\n"));
    if args.docs {
        let tables: Vec<_> = tables.iter().map(Table::to_markdown).collect();
        write(subject.name(), &tables.join("\n"))?;
    }
    Ok(())
}

/// Runs the guest program on each side.
fn measure(
    lab: &Lab,
    subject: Subject,
    sides: &[Side],
    arguments: &[&str],
    rounds: u32,
    progress: &Progress,
) -> Result<Vec<Samples>, Error> {
    let mut samples: Vec<Samples> = sides.iter().map(|_| Samples::default()).collect();
    // In turn, so that what changes on this computer changes for all.
    for _ in 0..rounds {
        for (side, samples) in sides.iter().zip(&mut samples) {
            progress.says(&side.name);
            let printed = lab.run(side, subject.counts(), arguments)?;
            samples
                .add(&printed)
                .map_err(|error| failed(&side.name)(&error))?;
            progress.step();
        }
    }
    Ok(samples)
}

/// Instructions an operation in one era, with the Linux kernels that the environment names.
pub(crate) struct Ops {
    sides: Vec<Side>,
    /// Why there is no Linux, if so.
    skipped: Option<String>,
}

impl Ops {
    /// The kernels to compare. A Linux that cannot be read is left out.
    pub(crate) fn new() -> Self {
        let mut sides = vec![Side::minflt(ERA)];
        let paths = linux_images().map_err(|why| format!("Linux: skipped: {why}"));
        let linux = paths.and_then(|paths| {
            let linux = paths.iter().map(|path| Side::linux(path));
            let linux: Result<Vec<_>, _> = linux.collect();
            linux.map_err(|error| format!("Linux: skipped: {error}"))
        });
        let skipped = match linux {
            Ok(linux) => {
                sides.extend(linux);
                None
            }
            Err(why) => Some(why),
        };
        Self { sides, skipped }
    }

    /// Steps of progress: the build, and each kernel.
    pub(crate) const fn steps(&self) -> u64 {
        1 + self.sides.len() as u64
    }

    /// Builds, boots each kernel, and returns the tables. A machine is ended after `timeout`.
    pub(crate) fn measure(
        &self,
        progress: &Progress,
        timeout: Duration,
    ) -> Result<Vec<Table>, Error> {
        let (subject, sides) = (Subject::Ops, &self.sides);
        progress.says("building the kernel and its programs");
        let lab = Lab::new(sides, timeout)?;
        progress.step();
        let samples = measure(&lab, subject, sides, &["ops"], 1, progress)?;
        Ok(self.tables(&samples))
    }

    fn tables(&self, samples: &[Samples]) -> Vec<Table> {
        let (subject, sides) = (Subject::Ops, &self.sides);
        let command = format!("minflt bench {} --era {ERA}", subject.name());
        let mut tables = table::tables(subject, sides, samples, 1);
        for table in &mut tables {
            table.command.clone_from(&command);
        }
        if let Some(last) = tables.last_mut() {
            let skipped = self.skipped.clone();
            last.footnotes
                .extend(notes(command, subject, sides, skipped));
        }
        tables
    }

    /// The tables if the minflt kernel alone had printed this.
    #[cfg(test)]
    pub(crate) fn tables_of(mut self, printed: &str) -> Result<Vec<Table>, String> {
        self.sides.truncate(1);
        let mut samples = Samples::default();
        samples.add(printed)?;
        Ok(self.tables(&[samples]))
    }
}

/// Refuses options that mean nothing here.
fn refuse(args: &Bench, subject: Subject) -> Result<(), Error> {
    let choices = &args.choices;
    let given = [
        (
            args.threads.is_some() && subject == Subject::Ops,
            "--threads",
        ),
        (args.cpus.is_some(), "--cpus"),
        (args.size.is_some(), "--size"),
        (args.ram.is_some(), "--ram"),
        (args.swap.is_some(), "--swap"),
        (args.machine.is_some(), "--machine"),
        (args.extend_machine, "--extend-machine"),
        (args.clear_beforehand, "--clear-beforehand"),
        (args.save.is_some(), "--save"),
        (args.json.is_some(), "--json"),
        (args.budget.is_some(), "--budget"),
        (choices.fallback_order.is_some(), "--fallback-order"),
        (choices.protocol.is_some(), "--protocol"),
        (choices.linking.is_some(), "--linking"),
        (choices.exchange.is_some(), "--exchange"),
        (choices.reclamation.is_some(), "--reclamation"),
        (choices.rss.is_some(), "--rss"),
        (choices.sleeping_locks.is_some(), "--sleeping-locks"),
        (choices.unmap.is_some(), "--unmap"),
        (choices.fault_around_order.is_some(), "--fault-around-order"),
        (choices.fault_around_age.is_some(), "--fault-around-age"),
        (choices.anon_rmap.is_some(), "--anon-rmap"),
        (
            choices.anon_vma_preparation.is_some(),
            "--anon-vma-preparation",
        ),
        (choices.numa_balancing.is_some(), "--numa-balancing"),
        (choices.hugetlb.is_some(), "--hugetlb"),
        (choices.prefetch.is_some(), "--prefetch"),
        (choices.zones.is_some(), "--zones"),
        (!args.options.is_empty(), "--"),
    ];
    let option = given.into_iter().find_map(|(is, name)| is.then_some(name));
    let option = option.or(args.why.option());
    match option {
        Some(option) => Err(usage(format!(
            "{option}: {} does not take it; its options are --on, --era, --rounds, --docs, \
             --quiet{}",
            subject.name(),
            if subject == Subject::Rates {
                ", --threads"
            } else {
                ""
            }
        ))),
        None => Ok(()),
    }
}

/// The kernels to compare, and why some are not.
fn sides(args: &Bench) -> Result<(Vec<Side>, Option<String>), Error> {
    let on = args.on.as_deref().unwrap_or("kernel,linux-vm");
    distinct("--on", on)?;
    let mut sides = Vec::new();
    let mut skipped = None;
    for word in on.split(',') {
        match word.strip_prefix("linux-vm=") {
            Some(path) => sides.push(Side::linux(path.as_ref())?),
            None if word == "kernel" => sides.extend(eras(&args.choices.era)?),
            None if word == "linux-vm" => match linux_images() {
                Ok(paths) => {
                    for path in paths {
                        sides.push(Side::linux(&path)?);
                    }
                }
                Err(why) => skipped = Some(format!("skipped: {why}")),
            },
            None => {
                let known = ["kernel", "linux-vm"];
                return Err(usage(format!(
                    "--on: `{word}` does not run this; targets are kernel, linux-vm, \
                     linux-vm=VMLINUZ{}",
                    did_you_mean(word, known)
                )));
            }
        }
    }
    match (&skipped, sides.is_empty()) {
        (Some(why), true) => Err(usage(format!("--on {on}: {why}"))),
        _ => Ok((sides, skipped)),
    }
}

/// The eras of a list; `all` are those that differ in what this kernel does.
fn eras(list: &str) -> Result<Vec<Side>, Error> {
    let eras = match list {
        "all" => eras_of_one_node(),
        _ => {
            distinct("--era", list)?;
            era_list(list)?
        }
    };
    Ok(eras.iter().map(|era| Side::minflt(&era.name)).collect())
}

/// The command, as far as the tables depend on it.
fn command(args: &Bench, subject: Subject) -> String {
    let mut command = format!("minflt bench {} --era {}", subject.name(), args.choices.era);
    if let Some(on) = args.on.as_deref().filter(|on| !on.contains('=')) {
        command += &format!(" --on {on}");
    }
    if let Some(threads) = &args.threads {
        command += &format!(" --threads {threads}");
    }
    if args.rounds.get() > 1 {
        command += &format!(" --rounds {}", args.rounds);
    }
    command
}

/// Conditions, and the command.
fn notes(
    mut command: String,
    subject: Subject,
    sides: &[Side],
    skipped: Option<String>,
) -> Vec<String> {
    let mut notes = vec![
        format!("QEMU: {}", subject.counts().options()),
        "minflt's kernel: release build, lock order not checked; Linux: \
         transparent_hugepage=never, else its defaults"
            .into(),
    ];
    if sides.iter().any(Side::is_linux) {
        command += ", with the images in MINFLT_LINUX";
    }
    notes.push(format!("measured by: {command}"));
    notes.extend(skipped);
    notes
}

fn write(block: &str, body: &str) -> Result<(), Error> {
    let cannot = failed(format!("--docs: {DOCS}"));
    let text = fs::read_to_string(DOCS).map_err(|error| cannot(&error))?;
    let text = replace_generated(&text, block, body).map_err(|error| cannot(&error))?;
    fs::write(DOCS, text).map_err(|error| cannot(&error))
}
