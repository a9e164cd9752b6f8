//! One number for a set of simulated rows: the same on any host, debug or release.

use crate::choice::plain_eras;
use crate::error::{Error, failed, usage};
use crate::rows::{Place, record};
use crate::targets;
use minflt_report::run::hash_rows;
use minflt_workload::{Plan, Workload};

/// The number as committed. A change means that simulated figures changed: say why where it is
/// made.
const COMMITTED: &str = include_str!("../../../../../data/simulated.hash");

/// Simulates the rows, and compares.
pub(crate) fn check() -> Result<u64, Error> {
    let hash = compute()?;
    let committed = COMMITTED.trim();
    if format!("{hash:016x}") == committed {
        return Ok(hash);
    }
    Err(Error::Failed(format!(
        "simulated rows hash to {hash:016x}, not to {committed} as committed in data/simulated.hash"
    )))
}

/// Every era that differs where there are no files, on two machines, alone and with neighbours.
pub(crate) fn compute() -> Result<u64, Error> {
    let mut runs = Vec::new();
    for machine in ["altix32", "kvm16"] {
        let file = targets::machine("--machine", machine)?;
        for era in plain_eras() {
            for (name, options, threads) in [
                ("pft", ["-b", "1M"], 1),
                ("pft", ["-b", "2M"], 5),
                ("disturb", ["--size", "2M"], 3),
            ] {
                let options = options.map(String::from);
                let workload = Workload::parse(name, &options).map_err(|e| usage(e.to_string()))?;
                let target = targets::sim(&era, &file, 64 << 20)?;
                let plan = Plan::new(threads, threads);
                let outcome = targets::on(&target, &workload, &plan)?;
                let place = Place {
                    target: "sim",
                    machine,
                    era: &era.name,
                    threads,
                    cpus: threads,
                    scale: 1,
                };
                runs.push(record(&place, &outcome));
            }
        }
    }
    hash_rows(runs.iter()).map_err(|error| failed("simulated rows")(&error))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn simulated_rows_hash_to_the_committed_number() {
        check().expect("as committed");
    }
}
