//! `minflt machines`: the machines that sim models, and what their numbers rest on.

use crate::args::Machines;
use crate::error::{Error, failed};
use crate::files::{replace, writable};
use crate::out::{out, outln, table_text};
use crate::targets;
use minflt_report::{Column, Table};
use minflt_sim::machine_file::{SHIPPED, Sourced};
use minflt_sim::{MachineFile, Source};
use serde_json::{Value, json};
use std::path::Path;

/// Runs the command.
pub(crate) fn run(args: &Machines) -> Result<(), Error> {
    writable("--json", args.json.as_deref())?;
    let lines = match &args.show {
        Some(name) => {
            let machine = targets::machine("--show", name)?;
            show(&machine);
            number_lines(&machine)
        }
        None => {
            let machines = shipped()?;
            out!("{}", table_text(&machine_table(&machines)));
            outln!("\nminflt machines --show NAME prints each number with its source.");
            machines.iter().map(machine_line).collect()
        }
    };
    write_json(args.json.as_deref(), &lines)
}

/// Every machine that comes with the program.
pub(crate) fn shipped() -> Result<Vec<MachineFile>, Error> {
    let read = |(name, _): &(&str, _)| MachineFile::shipped(name);
    let all: Result<_, _> = SHIPPED.iter().map(read).collect();
    all.map_err(|error| failed("shipped machines")(&error))
}

/// The machines, and how many numbers of each rest on what.
pub(crate) fn machine_table(machines: &[MachineFile]) -> Table {
    let columns = [
        Column::text("machine"),
        Column::number("CPUs", ""),
        Column::text("shape"),
        Column::number("page", "KiB"),
        Column::number("measured", ""),
        Column::number("posting", ""),
        Column::number("guess", ""),
        Column::number("fitted", ""),
        Column::text("what"),
    ];
    let mut table = Table::new("Machines", columns);
    for machine in machines {
        let [measured, posting, guess, fitted] = Source::ALL.map(|source| machine.count(source));
        let row = [
            machine.name.clone(),
            machine.cpus().to_string(),
            shape(machine),
            (machine.shape.page_bytes.value as u64 >> 10).to_string(),
            measured.to_string(),
            posting.to_string(),
            guess.to_string(),
            fitted.to_string(),
            machine.title.clone(),
        ];
        table.rows.push(row.map(Into::into).into());
    }
    table
}

/// Nodes, dies, cores and threads; a level of one is left out.
fn shape(machine: &MachineFile) -> String {
    let count = |number: &Sourced| number.value as u32;
    let shape = &machine.shape;
    let (core, node) = (count(&shape.cpus_per_core), count(&shape.cpus_per_node));
    let die = count(&shape.cpus_per_die).min(node);
    let levels = [
        (machine.cpus().div_ceil(node), "node"),
        (node / die, "die"),
        (die / core, "core"),
        (core, "thread"),
    ];
    let words: Vec<_> = levels
        .iter()
        .filter(|(count, word)| *count > 1 || *word == "node")
        .map(|(count, word)| format!("{count} {word}{}", if *count > 1 { "s" } else { "" }))
        .collect();
    let uneven = machine.uneven.as_ref().map_or("", |_| ", uneven");
    words.join(" x ") + uneven
}

/// Prints every number of one machine.
fn show(machine: &MachineFile) {
    let [measured, posting, guess, fitted] = Source::ALL.map(|source| machine.count(source));
    outln!("{}: {}", machine.name, machine.title);
    outln!(
        "rests on {measured} measured numbers, {posting} from a posting, {guess} guesses, {fitted} \
         fitted"
    );
    if let Some(why) = &machine.uneven {
        outln!("uneven: {why}");
    }
    if let Some(why) = &machine.snoops {
        outln!("snoops: {why}");
    }
    outln!();
    let columns = [
        Column::text("number"),
        Column::number("value", ""),
        Column::text("source"),
        Column::text("who says so"),
    ];
    let mut table = Table::new("", columns);
    for (within, key, number) in machine.numbers() {
        let row = [
            format!("{within}.{key}"),
            number.value.to_string(),
            number.src.name().to_string(),
            number.cite.clone(),
        ];
        table.rows.push(row.map(Into::into).into());
    }
    out!("{}", table_text(&table));
}

fn machine_line(machine: &MachineFile) -> Value {
    let [measured, posting, guess, fitted] = Source::ALL.map(|source| machine.count(source));
    json!({
        "machine": machine.name,
        "title": machine.title,
        "cpus": machine.cpus(),
        "shape": shape(machine),
        "measured": measured,
        "posting": posting,
        "guess": guess,
        "fitted": fitted,
    })
}

fn number_lines(machine: &MachineFile) -> Vec<Value> {
    let line = |(table, key, number): (_, _, &Sourced)| {
        json!({
            "machine": machine.name,
            "table": table,
            "key": key,
            "value": number.value,
            "source": number.src.name(),
            "cite": number.cite,
        })
    };
    machine.numbers().map(line).collect()
}

fn write_json(file: Option<&Path>, lines: &[Value]) -> Result<(), Error> {
    let Some(path) = file else { return Ok(()) };
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let cannot = failed(format!("--json: cannot write {}", path.display()));
    replace(path, text.as_bytes()).map_err(|error| cannot(&error))
}

#[cfg(test)]
mod tests {
    use super::{shape, shipped};

    #[test]
    fn shapes_in_words() {
        let all = shipped().expect("readable");
        let words =
            |name: &str| shape(all.iter().find(|machine| machine.name == name).expect("it"));
        assert_eq!(words("altix32"), "16 nodes x 2 cores");
        assert_eq!(words("rome256"), "2 nodes x 16 dies x 4 cores x 2 threads");
        assert_eq!(words("kvm16"), "1 node x 8 cores x 2 threads");
        assert_eq!(
            words("power8-752"),
            "16 nodes x 6 cores x 8 threads, uneven"
        );
    }
}
