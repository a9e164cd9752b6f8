//! Consistency checks of a machine file, with line numbers.
//!
//! Ranges and contradictions are rows of tables, so that each gives the same kind of message: what
//! stands there, what it contradicts and on which line, and what would be right.

use super::{Arbitration, MachineFile, Source, Sourced};
use minflt_sync::MAX_CPUS;
use toml::de::DeTable;

/// Line, from 1, and what is wrong there.
pub(super) type Wrong = (usize, String);

/// A table and a key in it; the table is empty for keys before the first one.
pub(super) type Key = (&'static str, &'static str);

/// Page sizes that some page-table format has.
pub(crate) const PAGE_BYTES: [u64; 3] = [4096, 16384, 65536];

/// Shape: the outer count must be a multiple of the inner one.
const WHOLE: &[(&str, &str)] = &[
    ("cpus_per_die", "cpus_per_core"),
    ("cpus_per_group", "cpus_per_die"),
    ("cpus_per_node", "cpus_per_core"),
];

/// Counts that `cpus` must be a multiple of, unless the file says why not.
const LEVELS: &[&str] = &[
    "cpus_per_core",
    "cpus_per_die",
    "cpus_per_group",
    "cpus_per_node",
];

/// The first must not be above the second.
const RISING: &[(Key, Key, &str)] = &[
    (("ns", "hit"), ("ns", "rmw_hit"), BESIDES),
    (("ns", "smt"), ("ns", "die"), FARTHER),
    (("ns", "hit"), ("ns", "llc"), FARTHER),
    (("ns", "llc"), ("ns", "die"), OWNED),
    (("ns", "die"), ("ns", "far1"), FARTHER),
    (("ns", "far1"), ("ns", "far2"), FARTHER),
    (("ns", "dram_local"), ("ns", "dram_far"), FARTHER),
    (("ns", "ipi_near"), ("ns", "ipi_far"), FARTHER),
    (("ns", "invalidate_page"), ("ns", "invalidate_all"), MORE),
    (
        ("bytes_per_us", "clear_far"),
        ("bytes_per_us", "clear_local"),
        NEARER,
    ),
    (
        ("bytes_per_us", "clear_local"),
        ("bytes_per_us", "node"),
        ALONE,
    ),
    (("reads", "far"), ("reads", "near"), NEARER),
    (("reads", "near"), ("reads", "node"), ALONE_READING),
];
const BESIDES: &str = "a read-modify-write cannot cost less than a load";
const FARTHER: &str = "a more distant access cannot cost less";
const OWNED: &str = "a transfer from the owner includes a lookup in the die's last-level cache";
const MORE: &str = "a full TLB flush cannot cost less than flushing one entry";
const NEARER: &str = "remote memory cannot be faster than local memory";
const ALONE_READING: &str = "one CPU cannot read faster than its node's memory";
const ALONE: &str = "one CPU cannot write faster than its node's memory";

/// Reads the text of a machine file.
pub(super) fn parse(text: &str) -> Result<MachineFile, Wrong> {
    let machine: MachineFile = toml::from_str(text).map_err(|error| grammar(text, &error))?;
    let at = |key| line_of(text, key);
    words(&machine).map_err(|(key, what)| (at(key), what))?;
    for (table, key, number) in machine.numbers() {
        if number.src == Source::Fitted {
            let what = format!(
                "{table}.{key}: `fitted` is for what `minflt calibrate` writes into data/fit; \
                 give measured, posting or guess"
            );
            return Err((at((table, key)), what));
        }
    }
    consistent(&machine, &at)?;
    Ok(machine)
}

/// Whether the numbers are possible, and none contradicts another; `at` is where each stands.
pub(super) fn consistent(machine: &MachineFile, at: &dyn Fn(Key) -> usize) -> Result<(), Wrong> {
    for (table, key, number) in machine.numbers() {
        range((table, key), number).map_err(|what| (at((table, key)), what))?;
    }
    shape(machine, at)?;
    arbitration(machine, at)?;
    order(machine, at)
}

/// What the TOML reader says, with the line and what a number looks like.
fn grammar(text: &str, error: &toml::de::Error) -> Wrong {
    let start = error.span().map_or(0, |span| span.start);
    let line = line_at(text, start);
    let said = error.message().replace('\n', "; ");
    let key = key_at(text, start);
    let remedy = if said.starts_with("missing field") {
        "; add it: every parameter is required, and a guess is allowed (`src = \"guess\"`)"
    } else if said.starts_with("invalid type") {
        "; expected `key = { value = 1, src = \"guess\", cite = \"the source\" }`"
    } else if said.contains("expected one of `value`, `src`, `cite`") {
        "; rename or remove it"
    } else if said.starts_with("unknown field") {
        "; remove it, or move it to its table: [shape], [ns], [bytes_per_us] or [reads]"
    } else if said.starts_with("unknown variant") {
        "; use one of these"
    } else {
        "; see the files in data/machines for examples"
    };
    (line, format!("{key}{said}{remedy}"))
}

/// The key, or the table, that the place `start` of the text is about, to begin a message with;
/// empty if it is about none: the beginning is that of the whole file.
pub(super) fn key_at(text: &str, start: usize) -> String {
    let line = text.lines().nth(line_at(text, start) - 1);
    let line = line.unwrap_or_default().trim();
    match line.split_once('=') {
        _ if start == 0 || line.starts_with('#') => String::new(),
        Some((key, _)) => format!("{}: ", key.trim()),
        None if line.starts_with('[') => format!("{line}: "),
        None => String::new(),
    }
}

/// Name, title and citations.
fn words(machine: &MachineFile) -> Result<(), (Key, String)> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if machine.name.is_empty() || !machine.name.chars().all(is_plain) {
        let what = format!(
            "name = {:?}: use only letters, digits, - and _, as the name appears in commands and rows",
            machine.name
        );
        return Err((("", "name"), what));
    }
    let texts = [
        ("title", Some(&machine.title)),
        ("uneven", machine.uneven.as_ref()),
        ("snoops", machine.snoops.as_ref()),
    ];
    for (key, text) in texts {
        if text.is_some_and(|text| text.trim().is_empty()) {
            return Err((
                ("", key),
                format!("{key} is empty: describe it in a few words"),
            ));
        }
    }
    for (table, key, number) in machine.numbers() {
        if number.cite.trim().is_empty() {
            let what = format!(
                "{table}.{key}: `cite` is empty: give the source, or the reason for the guess"
            );
            return Err(((table, key), what));
        }
    }
    Ok(())
}

/// The least and the most that a number can be.
fn limits((table, key): Key) -> (f64, f64) {
    match (table, key) {
        ("shape", "line_bytes") => (32.0, 4096.0),
        ("shape", "page_bytes") => (4096.0, 65536.0),
        ("shape", "ram_mib") => (1.0, 67_108_864.0),
        ("shape", "clock_mhz") => (1.0, 100_000.0),
        ("shape", "shared_core_permille") => (1.0, 1000.0),
        ("shape", "near_first_permille") => (0.0, 999.0),
        ("shape", _) => (1.0, f64::from(MAX_CPUS)),
        // What need not cost anything; a machine on which nothing takes time stands still.
        (
            "ns",
            "sharer" | "serve" | "home" | "contended" | "cold" | "spawn" | "spawn_alone" | "exit"
            | "broadcast",
        ) => (0.0, 1e9),
        ("ns", _) => (0.001, 1e9),
        _ => (1.0, 1e9),
    }
}

fn range(at: Key, number: &Sourced) -> Result<(), String> {
    let ((table, key), value) = (at, number.value);
    let (least, most) = limits(at);
    if !(least..=most).contains(&value) {
        return Err(format!(
            "{table}.{key} = {value}: expected a value from {least} to {most}"
        ));
    }
    if table != "shape" {
        return Ok(());
    }
    if value.fract() != 0.0 {
        return Err(format!("{table}.{key} = {value}: expected an integer"));
    }
    if key.ends_with("_bytes") && !(value as u64).is_power_of_two() {
        return Err(format!("{table}.{key} = {value}: expected a power of two"));
    }
    if key == "page_bytes" && !PAGE_BYTES.contains(&(value as u64)) {
        let [small, middle, large] = PAGE_BYTES;
        return Err(format!(
            "{table}.{key} = {value}: no page-table format has pages of this size; \
             expected {small}, {middle} or {large}"
        ));
    }
    Ok(())
}

/// The levels of the machine fit into each other, and into the machine.
fn shape(machine: &MachineFile, at: &dyn Fn(Key) -> usize) -> Result<(), Wrong> {
    let count = |key| value(machine, ("shape", key));
    let line = |key| at(("shape", key));
    let cpus = count("cpus");
    for key in LEVELS {
        let has = count(key);
        if has > cpus {
            let what = format!(
                "shape.{key} = {has} exceeds cpus = {cpus} (line {}); expected at most {cpus}",
                line("cpus")
            );
            return Err((line(key), what));
        }
        if cpus % has != 0.0 && machine.uneven.is_none() {
            let what = format!(
                "shape.{key} = {has} does not divide cpus = {cpus} (line {}); use a divisor, or \
                 add `uneven = \"...\"` below the title with the reason why the last one is smaller",
                line("cpus")
            );
            return Err((line(key), what));
        }
    }
    for (outer, inner) in WHOLE {
        if count(outer) % count(inner) != 0.0 {
            return Err((
                line(outer),
                not_whole(outer, count(outer), inner, count(inner), line(inner)),
            ));
        }
    }
    let (node, die) = (count("cpus_per_node"), count("cpus_per_die"));
    if node % die != 0.0 && die % node != 0.0 {
        let what = not_whole(
            "cpus_per_node",
            node,
            "cpus_per_die",
            die,
            line("cpus_per_die"),
        );
        return Err((line("cpus_per_node"), what));
    }
    Ok(())
}

fn not_whole(outer: &str, has: f64, inner: &str, of: f64, line: usize) -> String {
    format!("shape.{outer} = {has} is not a multiple of {inner} = {of} (line {line})")
}

/// Who gets a contended line is said once.
fn arbitration(machine: &MachineFile, at: &dyn Fn(Key) -> usize) -> Result<(), Wrong> {
    let key = ("shape", "near_first_permille");
    let (near, line) = (value(machine, key), at(("", "arbitration")));
    let what = match machine.arbitration {
        Arbitration::NearFirst if near == 0.0 => format!(
            "shape.near_first_permille = 0 with arbitration = \"near-first\" (line {line}): set \
             it from 1 to 999 (how often the nearest CPU goes first), or arbitration = \"fifo\""
        ),
        Arbitration::Fifo | Arbitration::Random if near != 0.0 => format!(
            "shape.near_first_permille = {near} needs arbitration = \"near-first\" (line {line}); \
             set that, or 0 here"
        ),
        _ => return Ok(()),
    };
    Err((at(key), what))
}

/// What is nearer is not dearer.
fn order(machine: &MachineFile, at: &dyn Fn(Key) -> usize) -> Result<(), Wrong> {
    for (low, high, why) in RISING {
        let (less, more) = (value(machine, *low), value(machine, *high));
        if less > more {
            let what = format!(
                "{}.{} = {more} is below {} = {less} (line {}): {why}; raise the first or lower the \
                 second",
                high.0,
                high.1,
                low.1,
                at(*low)
            );
            return Err((at(*high), what));
        }
    }
    Ok(())
}

fn value(machine: &MachineFile, at: Key) -> f64 {
    let mut numbers = machine.numbers();
    let found = numbers.find(|(table, key, _)| (*table, *key) == at);
    found.map_or(f64::NAN, |(_, _, number)| number.value)
}

/// The line on which a key stands, from 1.
pub(super) fn line_of(text: &str, (table, key): Key) -> usize {
    let start = DeTable::parse(text).ok().and_then(|root| {
        let mut within = root.get_ref();
        if !table.is_empty() {
            let (_, value) = within.iter().find(|(name, _)| name.get_ref() == table)?;
            within = value.get_ref().as_table()?;
        }
        let (name, _) = within.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(name.span().start)
    });
    line_at(text, start.unwrap_or(0))
}

pub(super) fn line_at(text: &str, start: usize) -> usize {
    let before = text.as_bytes().iter().take(start);
    1 + before.filter(|byte| **byte == b'\n').count()
}
