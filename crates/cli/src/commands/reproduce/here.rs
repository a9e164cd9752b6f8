//! Measures and simulates the host machine, to check the cost model.
//!
//! Nothing is fitted. What memory, lines and wake-ups cost here is measured apart, by
//! `minflt calibrate --host`, and the simulator is asked what pft would do on such a machine.

use super::proof::Proof;
use super::tables::Compared;
use crate::choice::era_list;
use crate::commands::calibrate::host;
use crate::error::Error;
use crate::experiment::pft_workers;
use minflt_report::published::Role;
use minflt_report::{Cell, Column, Run, Status, Table};

const ERAS: &str = "linux-2.6.10,atomic-pte-2004";
const PATCHED: &str = "atomic-pte-2004";

/// The name under which it is judged.
pub(super) const GROUP: &str = "pft on this machine";

/// What the page says of it.
pub(super) const INTRO: &str = "Costs of lines, memory and wake-ups are measured by `minflt calibrate --host`; \
     the rest of the machine file is guesses. Instructions cost what the accesses among them do, so \
     a path with much computing and few accesses comes out too fast.";

/// The rows of pft that `proof` measured on this machine's threads, beside simulated.
pub(super) fn simulate(
    proof: &Proof,
    runs: &mut Vec<Run>,
    compared: &mut Vec<Compared>,
) -> Result<Table, Error> {
    let file = host::preset()?;
    let columns = [
        Column::text("era"),
        Column::number("threads", ""),
        Column::number("measured", "pages/s").with_status(Status::Measured),
        Column::number("simulated", "pages/s").with_status(Status::Uncalibrated),
        Column::number("ratio", ""),
    ];
    let mut table = Table::new("pft on this machine, measured beside simulated", columns);
    for era in era_list(ERAS)? {
        for threads in 1..=2u32.min(file.cpus()) {
            let measured = median(proof.runs(), &era.name, threads);
            let ran = pft_workers(&era, &file, threads)?;
            let simulated = ran.outcome.faults_per_second();
            let text = |figure: Option<f64>| figure.map_or("-".into(), |it| format!("{it:.0}"));
            let ratio = measured
                .zip(simulated)
                .map(|(m, s)| format!("{:.2}", s / m));
            let timed = match proof.is_noisy(&era.name) {
                true => Cell::with_status(&text(measured), Status::TooNoisy),
                false => Cell::from(text(measured)),
            };
            if let (Some(published), Some(simulated), false) =
                (measured, simulated, proof.is_noisy(&era.name))
            {
                compared.push(Compared {
                    group: GROUP.into(),
                    role: match era.name == PATCHED {
                        true => Role::Patched,
                        false => Role::Unpatched,
                    },
                    row: threads.to_string(),
                    what: "pages/s".into(),
                    published,
                    simulated,
                    status: Status::Uncalibrated,
                });
            }
            table.rows.push(vec![
                era.name.as_str().into(),
                threads.to_string().into(),
                timed,
                text(simulated).into(),
                ratio.unwrap_or("-".into()).into(),
            ]);
            runs.push(ran.run);
        }
    }
    table.footnotes.push(format!(
        "measured and simulated on {}",
        crate::machine::line()
    ));
    table.footnotes.push(
        "such a machine file: minflt calibrate --host --out here.toml; then minflt bench pft --on \
         host,sim --machine here.toml --threads 1,2 -- -b 32M --measure workers"
            .into(),
    );
    Ok(table)
}

/// The median rate of the rounds that were measured.
fn median<'a>(runs: impl Iterator<Item = &'a Run>, era: &str, threads: u32) -> Option<f64> {
    let ours = runs.filter(|run| {
        run.workload == "pft" && run.target == "host" && run.era == era && run.threads == threads
    });
    let mut rates: Vec<f64> = ours.filter_map(|run| run.faults_per_second).collect();
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}
