//! `minflt efficiency`: what a thread on a full machine comes to, beside one that is alone.

use super::page::{first_large, status, with_block, write_page};
use super::work::{Kind, STEADY};
use super::{Job, Rates, at_once, cap, kinds, measure, spread};
use crate::args::Efficiency;
use crate::choice::{Named, asked_eras};
use crate::error::Error;
use crate::files::writable;
use crate::out::{grouped, outln, table_text};
use crate::parallel;
use crate::progress::Progress;
use crate::rows::write_json;
use crate::targets;
use minflt_report::{Cell, Column, Table};
use minflt_sim::MachineFile;

/// The block of docs/scaling.md.
const BLOCK: &str = "efficiency";
/// Bytes per microsecond that cost nothing.
const FREE: f64 = 1e9;
/// Nanoseconds of a broadcast, where it is tried: AMD's INVLPGB takes some half a microsecond.
const BROADCAST: f64 = 500.0;

/// What is changed of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Variant {
    /// Nothing.
    AsItIs,
    /// Clearing a page takes no time, and no memory's bandwidth.
    NoClear,
    /// The same, and invalidations are broadcast instead of interrupts.
    Broadcast,
}

impl Variant {
    const ALL: [Self; 3] = [Self::AsItIs, Self::NoClear, Self::Broadcast];

    const fn name(self) -> &'static str {
        match self {
            Self::AsItIs => "as it is",
            Self::NoClear => "without the clear",
            Self::Broadcast => "without the clear, broadcasts",
        }
    }

    fn of(self, machine: &MachineFile) -> MachineFile {
        let mut machine = machine.clone();
        if self != Self::AsItIs {
            let bytes = &mut machine.bytes_per_us;
            for rate in [
                &mut bytes.clear_local,
                &mut bytes.clear_far,
                &mut bytes.node,
            ] {
                rate.value = FREE;
            }
        }
        if self == Self::Broadcast {
            machine.ns.broadcast.value = BROADCAST;
        }
        machine
    }

    /// Whether it says anything of a workload.
    const fn tells(self, kind: &Kind) -> bool {
        match self {
            Self::AsItIs => true,
            Self::NoClear => kind.touches,
            Self::Broadcast => kind.touches && kind.unmaps > 0,
        }
    }
}

/// A row to measure.
struct Case {
    kind: &'static Kind,
    era: Named,
    variant: Variant,
    threads: u32,
}

/// Runs the command.
pub(crate) fn run(args: &Efficiency) -> Result<(), Error> {
    let kinds = kinds(&args.workloads, STEADY, "no efficiency of")?;
    let machine = targets::machine("--machine", &args.machine)?;
    let eras = asked_eras(&args.era)?;
    writable("--json", args.json.as_deref())?;
    if let Some(folder) = &args.out {
        super::page::folders(folder)?;
        with_block(&folder.join("scaling.md"), &block(&machine), "")?;
    }
    let cases = cases(&kinds, &eras, &machine);
    let jobs: Vec<(usize, Job)> = (0..cases.len())
        .flat_map(|at| {
            let (case, seeds) = (&cases[at], args.seeds.get());
            let counts = [1, case.threads];
            (1..=seeds).flat_map(move |seed| counts.map(|threads| (at, job(case, threads, seed))))
        })
        .collect();
    let progress = Progress::new(args.quiet, jobs.len() as u64);
    let done = parallel::map_at_most(at_once(), &jobs, |(at, job)| {
        let done = measure(job, &cases[*at].variant.of(&machine));
        progress.advance(1);
        done
    });
    progress.end();
    let done = done?;
    let mut table = empty(&machine, args);
    for (at, case) in cases.iter().enumerate() {
        let of = |threads| {
            let mine = jobs.iter().zip(&done);
            let mine = mine.filter(|((of, job), _)| *of == at && job.threads == threads);
            Rates::of(mine.map(|(_, done)| done.rate).collect())
        };
        let pages = jobs.iter().zip(&done).find(|((of, _), _)| *of == at);
        let pages = pages.map_or(1.0, |(_, done)| done.pages);
        if let (Some(one), Some(all)) = (of(1), of(case.threads)) {
            table.rows.push(row(case, &machine, pages, (&one, &all)));
        }
        let mut asked = jobs.iter().zip(&done).filter(|((of, _), _)| *of == at);
        if let Some(limit) = asked.find_map(|(_, done)| done.limit.as_ref()) {
            let (workload, machine) = (case.kind.name, case.variant.name());
            let (era, threads) = (&case.era.name, case.threads);
            let note = format!("{workload} {era}, {machine}, {threads} threads: {limit}");
            table.footnotes.push(note);
        }
    }
    outln!("{}", table_text(&table));
    if let Some(folder) = &args.out {
        let body = body(&table, &kinds, args, folder);
        write_page(folder, |page| with_block(page, &block(&machine), &body))?;
    }
    let runs: Vec<_> = done.into_iter().map(|done| done.run).collect();
    write_json(args.json.as_deref(), &runs)
}

/// The block of the page that a machine has.
fn block(machine: &MachineFile) -> String {
    format!("{BLOCK} {}", machine.name)
}

fn cases(kinds: &[&'static Kind], eras: &[Named], machine: &MachineFile) -> Vec<Case> {
    let all = machine.cpus();
    let cores = all / machine.shape.cpus_per_core.value as u32;
    let mut counts = vec![all];
    if cores < all {
        counts.push(cores);
    }
    let mut cases = Vec::new();
    for kind in kinds.iter().copied() {
        for variant in Variant::ALL.into_iter().filter(|it| it.tells(kind)) {
            for threads in &counts {
                cases.extend(eras.iter().map(|era| Case {
                    kind,
                    era: era.clone(),
                    variant,
                    threads: *threads,
                }));
            }
        }
    }
    cases
}

fn job(case: &Case, threads: u32, seed: u32) -> Job {
    Job {
        kind: case.kind,
        era: case.era.clone(),
        threads,
        seed,
        asked: seed == 1 && threads == case.threads,
    }
}

/// The sum of the speeds of the CPUs that so many threads run on, where one that is alone on its
/// core has 1.
fn speeds(machine: &MachineFile, threads: u32) -> f64 {
    let shape = spread(machine, threads).shape;
    let each = match shape.cpus_per_core.value > 1.0 {
        true => shape.shared_core_permille.value / 1000.0,
        false => 1.0,
    };
    f64::from(threads) * each
}

fn empty(machine: &MachineFile, args: &Efficiency) -> Table {
    let number = |name: &str| Column::number(name, "").with_status(status(machine));
    let columns = vec![
        Column::text("workload"),
        Column::text("era"),
        Column::text("machine"),
        Column::number("threads", ""),
        number("one thread"),
        number("all"),
        number("one x speeds"),
        number("memory bears"),
        number("efficiency"),
    ];
    let title = format!(
        "Efficiency on {}, operations/s, {} seeds",
        machine.name, args.seeds
    );
    let mut table = Table::new(&title, columns);
    table.footnotes.push(
        "efficiency: the rate of all threads, of the less of what one thread times the speeds of the \
         CPUs in use comes to and what memory bears; a core's second thread has the speed that the \
         machine file says"
            .into(),
    );
    table
}

fn row(case: &Case, machine: &MachineFile, pages: f64, (one, all): (&Rates, &Rates)) -> Vec<Cell> {
    let linear = one.median * speeds(machine, case.threads);
    let bears = (case.variant == Variant::AsItIs && case.kind.touches)
        .then(|| cap(&spread(machine, case.threads), case.threads, pages));
    let ideal = linear.min(bears.unwrap_or(f64::INFINITY));
    let cells = [
        case.kind.name.to_owned(),
        case.era.name.clone(),
        case.variant.name().to_owned(),
        case.threads.to_string(),
        grouped(one.median),
        super::page::range(all),
        grouped(linear),
        bears.map_or("-".to_owned(), grouped),
        format!("{:.2}", all.median / ideal),
    ];
    cells.into_iter().map(Cell::from).collect()
}

fn body(table: &Table, kinds: &[&Kind], args: &Efficiency, folder: &std::path::Path) -> String {
    let mut words = vec!["minflt efficiency".to_owned()];
    words.extend(args.workloads.iter().cloned());
    words.push(format!("--machine {} --era {}", args.machine, args.era));
    words.push(format!("--seeds {} --out {}", args.seeds, folder.display()));
    let mut body = format!(
        "```sh\n{}\n```\n\n{}\n",
        words.join(" "),
        table.to_markdown()
    );
    for kind in kinds {
        body += &format!("- {}: {}.\n", kind.name, first_large(kind.about));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::{STEADY, Variant, cases, speeds};
    use crate::choice::asked_eras;
    use minflt_sim::MachineFile;

    #[test]
    fn a_second_thread_of_a_core_is_slower() {
        let machine = MachineFile::shipped("next1024").expect("shipped");
        assert!((speeds(&machine, 512) - 512.0).abs() < 1e-9);
        assert!((speeds(&machine, 1024) - 614.4).abs() < 1e-9);
    }

    #[test]
    fn each_workload_is_measured_on_the_machines_that_tell_something() {
        let machine = MachineFile::shipped("spr224").expect("shipped");
        let eras = asked_eras("minflt").expect("an era");
        let kinds: Vec<_> = STEADY.iter().collect();
        let cases = cases(&kinds, &eras, &machine);
        let of = |name: &str| {
            let mine = cases.iter().filter(|case| case.kind.name == name);
            mine.map(|case| (case.variant, case.threads))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            of("mmap1"),
            [(Variant::AsItIs, 224), (Variant::AsItIs, 112)]
        );
        assert_eq!(of("pft").len(), 4);
        assert_eq!(of("ebizzy").len(), 6);
    }
}
