//! Machine files: the topology and the costs of one machine, each number with its source.
//!
//! A simulated figure is a claim about these numbers, so each one says where it comes from, and a
//! report can print "this rests on 12 guesses".
//!
//! A file is TOML: `name`, `title`, `arbitration`, and the tables `[shape]`, `[ns]` and
//! `[bytes_per_us]`, in which every number reads
//! `key = { value = 1, src = "guess", cite = "who says so" }`. No key may be left out. A table
//! `[reads]` is for machines whose bandwidths of reading were measured. The levels
//! of the shape must divide each other and the number of CPUs; where the last one of a real machine
//! is smaller, `uneven` says why. Where requests for lines go to all sockets, `snoops` says who
//! says so. What the format cannot say stands in a comment of the file.

mod check;
mod fit;
mod shipped;

pub use fit::{FITS, Fit, Fitted};
pub use shipped::SHIPPED;

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
    /// Fitted to unpatched rows of a posting by this program; never in a machine file.
    Fitted,
}

impl Source {
    /// All of them, the firmest first.
    pub const ALL: [Self; 4] = [Self::Measured, Self::Posting, Self::Guess, Self::Fitted];

    /// The word that files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Posting => "posting",
            Self::Guess => "guess",
            Self::Fitted => "fitted",
        }
    }
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

            fn number_mut(&mut self, key: &str) -> Option<&mut Sourced> {
                match key {
                    $(stringify!($field) => Some(&mut self.$field),)+
                    _ => None,
                }
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
        /// With `arbitration = "near-first"`: how often the nearest goes first, in thousandths.
        near_first_permille,
        /// Misses of one CPU under way at once, if none needs what another brings.
        overlap,
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
        /// A line that the last cache of the CPU's die holds, for reading.
        llc,
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
        /// How long a die's last cache is busy with serving one of the die's CPUs.
        serve,
        /// How long a shared line is busy with serving a further die.
        home,
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
        /// Flushing all TLBs by one broadcast, which the next one waits for; 0
        /// where interrupts are sent instead.
        broadcast,
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
        /// Starting a thread or a process, on the CPU that starts it.
        spawn,
        /// What forking a process takes on top of that, on one CPU at a time.
        spawn_alone,
        /// Ending a thread, on its own CPU.
        exit,
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

numbers! {
    /// `[reads]`: bandwidths of loading word after word, in bytes per microsecond (MB/s). Where a
    /// file has none they are twice what `[bytes_per_us]` says of writing: to store to a line it is
    /// read before.
    Reads {
        /// One CPU reading memory of its own node.
        near,
        /// One CPU reading memory of another node.
        far,
        /// All CPUs together, reading the memory of one node.
        node,
    }
}

/// Which requester gets a line that several wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arbitration {
    /// The one that asked first.
    Fifo,
    /// The one nearest to who had it last, so often as the shape says; else the one that asked
    /// first.
    NearFirst,
    /// Any of them.
    Random,
}

impl Arbitration {
    /// The word that files use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::NearFirst => "near-first",
            Self::Random => "random",
        }
    }
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
    /// Why the last core, die, group or node has fewer CPUs than the others; else all are alike.
    #[serde(default)]
    pub uneven: Option<String>,
    /// Who says that a request which leaves its socket is sent to all of them and ends at the
    /// line's home; else a directory, or the home, knows whom to ask.
    #[serde(default)]
    pub snoops: Option<String>,
    /// Counts and sizes.
    pub shape: Shape,
    /// Times.
    pub ns: Times,
    /// Bandwidths.
    pub bytes_per_us: Bandwidths,
    /// Bandwidths of reading, where they were measured.
    #[serde(default)]
    pub reads: Option<Reads>,
}

/// A machine file that cannot be used: which file and line, what is wrong, and what would be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MachineFileError {
    /// The file.
    pub file: String,
    /// The line, from 1; none where the file could not be read at all.
    pub line: Option<usize>,
    /// What is wrong, and the remedy.
    pub what: String,
}

impl fmt::Display for MachineFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl core::error::Error for MachineFileError {}

impl MachineFile {
    /// Reads the text of a machine file called `file`.
    ///
    /// # Errors
    /// When it is no TOML, lacks a key, has one too many, a value is out of range, or two
    /// contradict each other.
    pub fn parse(file: &str, text: &str) -> Result<Self, MachineFileError> {
        check::parse(text).map_err(|(line, what)| MachineFileError {
            file: file.to_owned(),
            line: Some(line),
            what,
        })
    }

    /// Every number: table, key, value and source.
    pub fn numbers(&self) -> impl Iterator<Item = (&'static str, &'static str, &Sourced)> {
        let shape = self.shape.numbers().map(|(key, n)| ("shape", key, n));
        let ns = self.ns.numbers().map(|(key, n)| ("ns", key, n));
        let rates = self
            .bytes_per_us
            .numbers()
            .map(|(key, n)| ("bytes_per_us", key, n));
        let reads = self.reads.iter().flat_map(Reads::numbers);
        let reads = reads.map(|(key, n)| ("reads", key, n));
        shape.chain(ns).chain(rates).chain(reads)
    }

    /// The number called `key`, with its table: `ns.wake`.
    pub fn number_mut(&mut self, key: &str) -> Option<&mut Sourced> {
        match key.split_once('.')? {
            ("shape", key) => self.shape.number_mut(key),
            ("ns", key) => self.ns.number_mut(key),
            ("bytes_per_us", key) => self.bytes_per_us.number_mut(key),
            ("reads", key) => self.reads.as_mut()?.number_mut(key),
            _ => None,
        }
    }

    /// The text of its file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut text = format!(
            "name = {}\ntitle = {}\n",
            quoted(&self.name),
            quoted(&self.title)
        );
        text += &format!("arbitration = \"{}\"\n", self.arbitration.name());
        if let Some(why) = &self.uneven {
            text += &format!("uneven = {}\n", quoted(why));
        }
        if let Some(why) = &self.snoops {
            text += &format!("snoops = {}\n", quoted(why));
        }
        let mut within = "";
        for (table, key, number) in self.numbers() {
            if table != within {
                text += &format!("\n[{table}]\n");
                within = table;
            }
            let (value, src, cite) = (number.value, number.src.name(), quoted(&number.cite));
            text += &format!("{key} = {{ value = {value}, src = \"{src}\", cite = {cite} }}\n");
        }
        text
    }

    /// Whether any of its numbers were fitted.
    #[must_use]
    pub fn is_fitted(&self) -> bool {
        self.count(Source::Fitted) > 0
    }

    /// How many numbers rest on `source`.
    #[must_use]
    pub fn count(&self, source: Source) -> usize {
        self.numbers().filter(|(_, _, n)| n.src == source).count()
    }

    /// CPUs, that is hardware threads.
    #[must_use]
    pub const fn cpus(&self) -> u32 {
        self.shape.cpus.value as u32
    }
}
