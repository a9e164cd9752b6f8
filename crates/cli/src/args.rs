//! The command line.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Page faults that scale: the generations of Linux's page-fault synchronization, side by side.
#[derive(Debug, Parser)]
#[command(version, about, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The main job: figures measured here, then the postings' tables, then the page.
    Reproduce(Reproduce),
    /// The 30 published tables: status of each, and the command for it.
    Postings(Postings),
    /// One workload on one or more targets, eras and thread counts.
    Bench(Box<Bench>),
    /// Rates of workloads on 1 to 1024 simulated CPUs, era by era, and what limits each.
    Curves(Curves),
    /// Explore schedules for races.
    Check(Check),
    /// The known races; one drawn as a timeline, with and without the fix.
    Races(Races),
    /// The eras, the choices they are made of, and the mixes that are refused.
    Eras,
    /// The page-table formats.
    Formats,
    /// The workloads and their options.
    Workloads,
    /// The machines that sim models; one with every number and its source.
    Machines(Machines),
    /// Fit the free numbers of simulated machines to unpatched rows of the postings.
    Calibrate(Calibrate),
    /// Vary each guess of simulated machines and name the conclusions that flip.
    Sensitivity(Sensitivity),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Reproduce {
    /// Postings by year (2004, 2012, 2014, 2017, 2022); all if none is named.
    pub(crate) postings: Vec<String>,
    /// Simulated cells at the postings' full size instead of scaled down.
    #[arg(long)]
    pub(crate) full: bool,
    /// Write the postings' tables into the docs (run from the repository's root).
    #[arg(long)]
    pub(crate) docs: bool,
    /// The folder that the page is written to.
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    pub(crate) out: PathBuf,
    /// Write each run as a line of JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// No progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Calibrate {
    /// Machines; all for which the postings' data mark rows if none is named.
    #[arg(conflicts_with = "host")]
    pub(crate) machines: Vec<String>,
    /// Measure this machine and make a machine file of it instead, for `bench --machine`.
    #[arg(long)]
    pub(crate) host: bool,
    /// The file that --host writes [default: it is printed].
    #[arg(long, value_name = "FILE", requires = "host")]
    pub(crate) out: Option<PathBuf>,
    /// No progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Sensitivity {
    /// Machines; all that conclusions are drawn from if none is named.
    pub(crate) machines: Vec<String>,
    /// Write the table into docs/validation.md (run from the repository's root).
    #[arg(long)]
    pub(crate) docs: bool,
    /// No progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Postings {
    /// Do the postings' own arithmetic again and say where it does not hold.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print one table in full, by its id (as in the list).
    #[arg(long, value_name = "ID")]
    pub(crate) show: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// The workload; `minflt workloads` lists them. Not needed with --proof.
    pub(crate) workload: Option<String>,
    /// Where to run: host, sim, linux; several separated by commas.
    #[arg(long, value_name = "LIST", default_value = "host")]
    pub(crate) on: String,
    /// Threads, or processes of workloads made of them; several counts separated by commas.
    #[arg(long, value_name = "LIST")]
    pub(crate) threads: Option<String>,
    /// CPUs they run on; if not given as many as threads, and at most what the machine has.
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// The workload's memory, such as 64K, 256M, 32G.
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,
    /// RAM of a host or sim system [default: 1G on host, the machine's on sim; where a posting's
    /// benchmark is made smaller, as much less].
    #[arg(long, value_name = "SIZE")]
    pub(crate) ram: Option<String>,
    /// A swap device of memory beside the RAM of a host or sim system [default: none]. The
    /// workload's memory may be larger than RAM then.
    #[arg(long, value_name = "SIZE")]
    pub(crate) swap: Option<String>,
    /// The machine that sim models, by name or by its file [default: altix32].
    #[arg(long, value_name = "NAME")]
    pub(crate) machine: Option<String>,
    /// Give sim more CPUs than the machine has, by repeating its topology.
    #[arg(long)]
    pub(crate) extend_machine: bool,
    /// The before/after rows measured on this machine's real threads. Takes no other choice.
    #[arg(long, conflicts_with_all = [
        "workload", "on", "threads", "cpus", "size", "ram", "swap", "machine",
        "extend_machine", "clear_beforehand", "why", "free", "flame", "profile", "era", "ladder", "protocol",
        "exchange", "lifetime", "rss", "sleeping_locks", "unmap", "fault_around_order", "neighbours", "anon_rmap",
        "numa_balancing", "hugetlb", "ahead", "options",
    ])]
    pub(crate) proof: bool,
    /// Clear pages before the timed part (host and sim).
    #[arg(long)]
    pub(crate) clear_beforehand: bool,
    #[command(flatten)]
    pub(crate) why: Why,
    #[command(flatten)]
    pub(crate) choices: Choices,
    /// Write each run as a line of JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// No progress.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// The workload's own options, as the original spells them.
    #[arg(last = true)]
    pub(crate) options: Vec<String>,
}

/// Where simulated time went.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Why {
    /// Say where simulated time went, which line limits, and what limits without it.
    #[arg(long)]
    pub(crate) why: bool,
    /// Make the line that holds this word free (sim), such as mm.mmap_lock.count; implies --why.
    #[arg(long, value_name = "NAME")]
    pub(crate) free: Option<String>,
    /// Draw the simulated time of the one run as a flame graph (SVG).
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    /// Write the one run as a profile for the Firefox Profiler (JSON).
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
}

impl Why {
    /// The option that asks for an account, if any does.
    pub(crate) fn option(&self) -> Option<&'static str> {
        [
            (self.why, "--why"),
            (self.free.is_some(), "--free"),
            (self.flame.is_some(), "--flame"),
            (self.profile.is_some(), "--profile"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }
}

/// An era, and single choices in place of the era's.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Choices {
    /// Eras; several separated by commas. `minflt eras` lists them.
    #[arg(long, value_name = "LIST", default_value = "best")]
    pub(crate) era: String,
    /// The holds a fault tries, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) ladder: Option<String>,
    /// How entries are changed, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) protocol: Option<String>,
    /// The lock under which a new table is put in, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) linking: Option<String>,
    /// How entries are exchanged, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) exchange: Option<String>,
    /// When unlinked objects are freed, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) lifetime: Option<String>,
    /// How resident pages are counted, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) rss: Option<String>,
    /// Who has a sleeping lock next when it is released, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) sleeping_locks: Option<String>,
    /// How munmap holds `mmap_lock`, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) unmap: Option<String>,
    /// How many pages of a file a fault maps (2 to the power of this, or adaptive), in place of the
    /// era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) fault_around_order: Option<String>,
    /// How the pages look that a fault maps beside its own, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) neighbours: Option<String>,
    /// How walks of the anonymous reverse map hold its lock, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) anon_rmap: Option<String>,
    /// Whether pages follow the threads that use them to their nodes, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) numa_balancing: Option<String>,
    /// What keeps shared tables of huge pages while a fault uses them, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) hugetlb: Option<String>,
    /// What a first touch asks the caches for before it needs it, in place of the era's.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) ahead: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Curves {
    /// The workloads: pft, page-fault1, ebizzy, mmap1; all of them if none is named.
    pub(crate) workloads: Vec<String>,
    /// The machine that is simulated, by name or by its file.
    #[arg(long, value_name = "NAME", default_value = "next1024")]
    pub(crate) machine: String,
    /// Threads, each on a CPU of its own; several counts separated by commas.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1,2,4,8,16,32,64,128,256,512,1024"
    )]
    pub(crate) threads: String,
    /// Eras; several separated by commas; all that anonymous memory can tell apart if not given.
    #[arg(long, value_name = "LIST")]
    pub(crate) era: Option<String>,
    /// Runs of each point, which differ in what the simulator leaves to chance.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) seeds: u32,
    /// The folder that pictures and the page are written to; printed only, if not given.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Write each run as a line of JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// No progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// A race's number (P57) or a scenario's name; `--list` shows them.
    pub(crate) scenario: Option<String>,
    /// Every scenario.
    #[arg(long)]
    pub(crate) all: bool,
    /// The scenarios there are.
    #[arg(long)]
    pub(crate) list: bool,
    /// Eras; several separated by commas; every era if not given.
    #[arg(long, value_name = "LIST")]
    pub(crate) era: Option<String>,
    /// The page-table format to stage it on; all that the race is about if not given.
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// Schedules to explore in each era, on each format.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub(crate) schedules: u64,
    /// The seed that schedules are drawn from [default: 1; with --broken one that finds the race].
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How schedules are drawn: walk (any CPU at each step), pct (random priorities with a few
    /// changes), time (virtual time, each cost times 0.5 to 2), or mixed, all of them in turn.
    #[arg(long, value_name = "KIND", default_value = "mixed")]
    pub(crate) policy: String,
    /// When stores reach memory: sc (at once), tso (later, from buffers, as on x86-64), or mixed,
    /// half of each.
    #[arg(long, value_name = "MODEL", default_value = "mixed")]
    pub(crate) memory: String,
    /// Switch the fix off: the check has to find the race.
    #[arg(long)]
    pub(crate) broken: bool,
    /// Run one schedule, as a failure printed it, and draw it. It tells itself which stores are
    /// held back, so it goes with no --policy or --memory.
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = ["policy", "memory"])]
    pub(crate) replay: Option<String>,
    /// No progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Races {
    /// A race's number, such as P57.
    pub(crate) race: Option<String>,
    /// Draw the failing schedule, a column per CPU, and the same with the fix.
    #[arg(long, requires = "race")]
    pub(crate) show: bool,
    /// Draw how the posting of 2012 fails, which walked the reverse map without a lock: after a
    /// fork (P10), and beside a neighbour's first fault (P11).
    #[arg(long, requires = "race")]
    pub(crate) as_posted: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Machines {
    /// Print one in full, by its name or its file: each number, what it rests on, and who says so.
    #[arg(long, value_name = "NAME")]
    pub(crate) show: Option<String>,
    /// Write each machine, or each number of the one shown, as a line of JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}
