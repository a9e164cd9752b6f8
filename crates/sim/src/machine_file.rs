//! Machine files: the topology and the costs of one machine, each number with its source.
//!
//! A simulated figure is a claim about these numbers, so each one says where it comes from, and a
//! report can print "this rests on 12 guesses".

use core::fmt;
use serde::Deserialize;

/// Where a number comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Measured on such a machine and published.
    Measured,
    /// Derived from the unpatched rows of one of the postings.
    Posting,
    /// An engineer's guess.
    Guess,
}

/// A number and its source.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced {
    /// The number, in the unit of its table.
    pub value: f64,
    /// What it rests on.
    pub src: Source,
    /// Who says so, or why it was guessed so.
    pub cite: String,
}

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$field_doc])* pub $field: Sourced),+ }

        impl $name {
            /// Each number with its key, in the file's order.
            pub fn numbers(&self) -> impl Iterator<Item = (&'static str, &Sourced)> {
                [$((stringify!($field), &self.$field)),+].into_iter()
            }
        }
    };
}

numbers! {
    /// `[shape]`: counts and sizes.
    Shape {
        /// CPUs, that is hardware threads.
        cpus,
        /// CPUs that share a core.
        cpus_per_core,
        /// CPUs that share a die, a core complex or a bus.
        cpus_per_die,
        /// CPUs within the nearer class of far transfers.
        cpus_per_group,
        /// CPUs next to one memory node.
        cpus_per_node,
        /// Bytes per cache line.
        line_bytes,
        /// Bytes per page.
        page_bytes,
        /// Mebibytes of memory.
        ram_mib,
        /// Clock, in MHz.
        clock_mhz,
        /// Speed of a CPU whose core sibling runs too, in thousandths.
        shared_core_permille,
    }
}

numbers! {
    /// `[ns]`: times, in nanoseconds.
    Times {
        /// Load or store of a line that the CPU holds.
        hit,
        /// Read-modify-write of a line that the CPU owns.
        rmw_hit,
        /// Line transfer from the sibling in the same core.
        smt,
        /// Line transfer within a die.
        die,
        /// Line transfer within a group.
        far1,
        /// Line transfer beyond the group.
        far2,
        /// A line that no cache holds, from the CPU's own node.
        dram_local,
        /// A line that no cache holds, from another node.
        dram_far,
        /// What each further sharer adds to an invalidation.
        sharer,
        /// How long a shared line is busy with serving one more reader.
        serve,
        /// What a transfer costs beyond its distance when the line was busy.
        contended,
        /// Exception entry and exit.
        trap,
        /// System call entry and exit.
        syscall,
        /// A miss on a descriptor that was not touched for long.
        cold,
        /// A hardware page walk.
        walk,
        /// Invalidating one translation.
        invalidate_page,
        /// Invalidating all translations.
        invalidate_all,
        /// Returning one page to the allocator at teardown.
        free_page,
        /// Sending an interrupt to one CPU.
        ipi_send,
        /// From sending an interrupt until a CPU of the same die takes it.
        ipi_near,
        /// From sending an interrupt until any other CPU takes it.
        ipi_far,
        /// Entry and exit of an interrupt.
        ipi_handle,
        /// Switching a CPU from one task to another.
        switch,
        /// From waking a task until it can run.
        wake,
        /// A time slice.
        slice,
    }
}

numbers! {
    /// `[bytes_per_us]`: bandwidths, in bytes per microsecond (MB/s).
    Bandwidths {
        /// One CPU clearing memory of its own node.
        clear_local,
        /// One CPU clearing memory of another node.
        clear_far,
        /// One CPU copying.
        copy,
        /// All CPUs together, writing the memory of one node.
        node,
    }
}

/// Which requester gets a line that several wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// The one that asked first.
    Fifo,
}

/// One machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// The name that `--machine` takes.
    pub name: String,
    /// What machine it is, in a line.
    pub title: String,
    /// Who gets a contended line.
    pub arbitration: Arbitration,
    /// Counts and sizes.
    pub shape: Shape,
    /// Times.
    pub ns: Times,
    /// Bandwidths.
    pub bytes_per_us: Bandwidths,
}

/// A machine file that cannot be used: which file, and what is wrong with which key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineFileError {
    /// The file.
    pub file: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for MachineFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.what)
    }
}

impl core::error::Error for MachineFileError {}

/// The machines that come with the program: name and text of each file.
pub const SHIPPED: &[(&str, &str)] = &[
    (
        "altix32",
        include_str!("../../../data/machines/altix32.toml"),
    ),
    ("kvm16", include_str!("../../../data/machines/kvm16.toml")),
    (
        "explorer",
        include_str!("../../../data/machines/explorer.toml"),
    ),
];

impl MachineFile {
    /// Reads the text of a machine file called `file`.
    ///
    /// # Errors
    /// When it is no TOML, lacks a key, has one too many, or a value is out of range.
    pub fn parse(file: &str, text: &str) -> Result<Self, MachineFileError> {
        let wrong = |what| MachineFileError {
            file: file.to_owned(),
            what,
        };
        let machine: Self = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        machine.check().map_err(wrong)?;
        Ok(machine)
    }

    /// A shipped machine.
    ///
    /// # Errors
    /// When there is none of that name; the message lists those there are.
    pub fn shipped(name: &str) -> Result<Self, MachineFileError> {
        match SHIPPED.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Self::parse(&format!("{name}.toml"), text),
            None => {
                let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
                let what = format!("no such machine; there are {}", names.join(", "));
                Err(MachineFileError {
                    file: name.to_owned(),
                    what,
                })
            }
        }
    }

    /// Every number: table, key, value and source.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, &'static str, &Sourced)> {
        let shape = self.shape.numbers().map(|(key, n)| ("shape", key, n));
        let ns = self.ns.numbers().map(|(key, n)| ("ns", key, n));
        let rates = self
            .bytes_per_us
            .numbers()
            .map(|(key, n)| ("bytes_per_us", key, n));
        shape.chain(ns).chain(rates)
    }

    fn check(&self) -> Result<(), String> {
        for (table, key, number) in self.numbers() {
            let least = if table == "ns" { 0.0 } else { 1.0 };
            if !(least..=1e12).contains(&number.value) {
                let value = number.value;
                return Err(format!(
                    "{table}.{key} = {value}: from {least} to 1e12 is possible"
                ));
            }
            if table == "shape" && number.value.fract() != 0.0 {
                return Err(format!(
                    "{table}.{key} = {}: a whole number is needed",
                    number.value
                ));
            }
            if number.cite.trim().is_empty() {
                return Err(format!("{table}.{key}: `cite` is empty"));
            }
        }
        let shape = &self.shape;
        for (key, number) in [
            ("line_bytes", &shape.line_bytes),
            ("page_bytes", &shape.page_bytes),
        ] {
            if !(number.value as u64).is_power_of_two() {
                return Err(format!(
                    "shape.{key} = {}: a power of two is needed",
                    number.value
                ));
            }
        }
        if shape.line_bytes.value < 32.0 || shape.line_bytes.value > 4096.0 {
            return Err("shape.line_bytes: from 32 to 4096 is possible".to_owned());
        }
        if shape.cpus.value > f64::from(minflt_sync::MAX_CPUS) {
            return Err(format!(
                "shape.cpus: at most {} are possible",
                minflt_sync::MAX_CPUS
            ));
        }
        Ok(())
    }
}
