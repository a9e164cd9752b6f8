//! The command line.

mod boot;
mod curves;

pub(crate) use boot::Boot;
pub(crate) use curves::{Curves, Efficiency};

use crate::words;
use clap::{Parser, Subcommand};
use core::num::NonZeroU32;
use core::time::Duration;
use std::path::PathBuf;

/// Page faults that scale: the generations of Linux's page-fault synchronization, side by side.
#[derive(Debug, Parser)]
#[command(version, about)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure here, simulate the postings' tables, and write an HTML page of both.
    Reproduce(Reproduce),
    /// List the postings' 30 published tables: how each is reproduced, and by which command.
    Postings(Postings),
    /// Run one workload on given targets, eras and thread counts.
    Bench(Box<Bench>),
    /// Run a static Linux program on the minflt kernel, or on a Linux, under QEMU.
    Boot(Boot),
    /// Say which era would help a workload on a machine, by how much, and why (simulated).
    Advise(Advise),
    /// Compare two files of rows that --json or --save wrote: ratios with intervals.
    Compare(Compare),
    /// Simulate scaling curves: each era on 1 to 1024 CPUs, and the bottleneck of each.
    Curves(Curves),
    /// Simulate a full machine: how near each thread comes to one that is alone.
    Efficiency(Efficiency),
    /// Search thread schedules for known races.
    Check(Check),
    /// List the known races; draw one as a timeline, with and without its fix.
    Races(Races),
    /// List the eras, the choices that make up each, and the unsound combinations.
    Eras,
    /// List the page-table formats.
    Formats,
    /// List the workloads and their options.
    Workloads,
    /// List the simulated machines; print one with every number and its source.
    Machines(Machines),
    /// Fit the free parameters of simulated machines to the postings' unpatched rows.
    Calibrate(Calibrate),
    /// Vary each guessed machine parameter and list the conclusions that change.
    Sensitivity(Sensitivity),
    /// Print completions for a shell.
    Completions(Completions),
    /// Print the manual page, or write those of all commands.
    Man(Man),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Reproduce {
    /// Postings by year: 2004, 2012, 2014, 2017, 2022 [default: all].
    pub(crate) postings: Vec<String>,
    /// Simulate at the postings' full size instead of scaled down (2004 only).
    #[arg(long)]
    pub(crate) full: bool,
    /// Regenerate the tables in docs/ and README.md (run from the repository's root).
    #[arg(long)]
    pub(crate) docs: bool,
    /// Directory for the HTML page.
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    pub(crate) out: PathBuf,
    /// Write one JSON object per run to this file, one per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Print all tables; they are on the page in any case.
    #[arg(long)]
    pub(crate) tables: bool,
    /// Go on after a run that was interrupted, with what it kept.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Begin nothing after so long, such as 60s or 5m; what is left out is named.
    #[arg(long, value_name = "TIME", value_parser = words::time)]
    pub(crate) budget: Option<Duration>,
    /// Do not show progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Advise {
    /// The workload: pft, page-fault1, ebizzy or mmap1.
    pub(crate) workload: String,
    /// Machine to simulate: a name from `minflt machines`, or a machine file.
    #[arg(long, value_name = "NAME", default_value = "spr224")]
    pub(crate) machine: String,
    /// Number of threads, each on a CPU of its own [default: the machine's CPUs, at most 64].
    #[arg(long, value_name = "N", value_parser = words::count)]
    pub(crate) threads: Option<NonZeroU32>,
    /// The era of the kernel that runs now; `minflt eras` lists which kernels an era stands for.
    #[arg(long, value_name = "ERA", default_value = "linux-6.15")]
    pub(crate) from: String,
    /// Runs of each era, with different random seeds.
    #[arg(long, value_name = "N", default_value = "3", value_parser = words::repeats)]
    pub(crate) seeds: NonZeroU32,
    /// Do not show progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    /// A file of rows, or a name given to --save.
    pub(crate) first: String,
    /// What is compared with it.
    pub(crate) second: Option<String>,
    /// Exit with status 1 where a rate is lower by more than this, with all of its interval.
    #[arg(long, value_name = "PERCENT", conflicts_with = "benchstat")]
    pub(crate) fail_over: Option<String>,
    /// Compare rows measured on two machines all the same.
    #[arg(long, conflicts_with = "benchstat")]
    pub(crate) across: bool,
    /// Write the rows of one file as Go's benchmarks print them, for benchstat.
    #[arg(long)]
    pub(crate) benchstat: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Calibrate {
    /// Machines to fit [default: all that have rows marked for fitting in data/postings].
    #[arg(conflicts_with = "host")]
    pub(crate) machines: Vec<String>,
    /// Measure this computer instead, and write a machine file for `bench --machine`.
    #[arg(long)]
    pub(crate) host: bool,
    /// File that --host writes [default: standard output].
    #[arg(long, value_name = "FILE", requires = "host")]
    pub(crate) out: Option<PathBuf>,
    /// Begin nothing after so long, such as 60s or 5m; how much is left out is said.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, conflicts_with = "host")]
    pub(crate) budget: Option<Duration>,
    /// Do not show progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Sensitivity {
    /// Machines to vary [default: all that a conclusion depends on].
    pub(crate) machines: Vec<String>,
    /// Write the table into docs/validation.md (run from the repository's root).
    #[arg(long)]
    pub(crate) docs: bool,
    /// Begin nothing after so long, such as 60s or 5m; how much is left out is said.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) budget: Option<Duration>,
    /// Do not show progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Postings {
    /// Recompute the figures that the postings derive from others, and report mismatches.
    #[arg(long, conflicts_with = "show")]
    pub(crate) verify: bool,
    /// Print the table with this id in full.
    #[arg(long, value_name = "ID")]
    pub(crate) show: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Bench {
    /// The workload (see `minflt workloads`), or kernel-ops or kernel-rates: one program on the
    /// minflt kernel and on Linux, both under QEMU; omit with --proof.
    pub(crate) workload: Option<String>,
    /// Targets: host (real threads, software MMU), sim (virtual time), linux (real system calls);
    /// for kernel-ops and kernel-rates kernel (minflt's) and linux-vm[=VMLINUZ], both under QEMU;
    /// comma-separated [default: host; kernel,linux-vm].
    #[arg(long, value_name = "LIST")]
    pub(crate) on: Option<String>,
    /// Numbers of threads (processes, for multi-process workloads); comma-separated.
    #[arg(long, value_name = "LIST")]
    pub(crate) threads: Option<String>,
    /// Numbers of CPUs; comma-separated [default: one per thread, up to the machine's CPUs].
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Memory that the workload uses, such as 64K, 256M or 32G.
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,
    /// RAM on host or sim [default: 1G on host; the machine's on sim, scaled down with a posting's
    /// benchmark].
    #[arg(long, value_name = "SIZE")]
    pub(crate) ram: Option<String>,
    /// Size of an in-memory swap device on host or sim [default: none]. With swap the workload's
    /// memory may exceed RAM.
    #[arg(long, value_name = "SIZE")]
    pub(crate) swap: Option<String>,
    /// Machine to simulate: a name from `minflt machines`, or a machine file [default: altix32].
    #[arg(long, value_name = "NAME")]
    pub(crate) machine: Option<String>,
    /// Allow more CPUs than the simulated machine has, by repeating its topology.
    #[arg(long)]
    pub(crate) extend_machine: bool,
    /// Measure the before/after rows of the postings on real threads. Takes only --json, --budget,
    /// --quiet.
    #[arg(long, conflicts_with_all = [
        "workload", "on", "threads", "rounds", "docs", "save", "cpus", "size", "ram", "swap", "machine",
        "extend_machine", "clear_beforehand", "why", "free", "flame", "profile", "era", "fallback_order", "protocol",
        "exchange", "reclamation", "rss", "sleeping_locks", "unmap", "address_space", "cpu_masks", "fault_around_order", "fault_around_age", "anon_rmap",
        "anon_vma_preparation", "numa_balancing", "hugetlb", "prefetch", "zones", "linking", "options",
    ])]
    pub(crate) proof: bool,
    /// Run everything so often, the rows in turn; tables show the median round.
    #[arg(long, value_name = "N", default_value = "1", value_parser = words::repeats)]
    pub(crate) rounds: NonZeroU32,
    /// Write the table of kernel-ops or kernel-rates into docs/kernel.md (run from the repository's
    /// root).
    #[arg(long)]
    pub(crate) docs: bool,
    /// Keep the rows under this name, for `minflt compare`.
    #[arg(long, value_name = "NAME")]
    pub(crate) save: Option<String>,
    /// Zero free pages before the timed part instead of in each fault (host and sim).
    #[arg(long)]
    pub(crate) clear_beforehand: bool,
    #[command(flatten)]
    pub(crate) why: Why,
    #[command(flatten)]
    pub(crate) choices: Choices,
    /// Write one JSON object per run to this file, one per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Begin nothing after so long, such as 60s or 5m; how much is left out is said.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) budget: Option<Duration>,
    /// Do not show progress.
    #[arg(long)]
    pub(crate) quiet: bool,
    /// Options of the workload, spelled as in the original program, after `--`.
    #[arg(last = true)]
    pub(crate) options: Vec<String>,
}

/// Where simulated time went.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Why {
    /// Report where simulated time went, the limiting cache line, and the bottleneck without it.
    #[arg(long)]
    pub(crate) why: bool,
    /// Make this word's cache line free of cost (sim), such as mm.mmap_lock.count; implies --why.
    #[arg(long, value_name = "NAME")]
    pub(crate) free: Option<String>,
    /// Write a flame graph of simulated time (SVG); one run only.
    #[arg(long, value_name = "FILE")]
    pub(crate) flame: Option<PathBuf>,
    /// Write a profile for the Firefox Profiler (JSON); one run only.
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

/// An era, and overrides of single choices.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Choices {
    /// Eras (see `minflt eras`); comma-separated.
    #[arg(long, value_name = "LIST", default_value = "best")]
    pub(crate) era: String,
    /// Override the era's lock modes, in the order in which a fault falls back through them.
    #[arg(
        long,
        alias = "ladder", // the old name
        value_name = "CHOICE"
    )]
    pub(crate) fallback_order: Option<String>,
    /// Override how page-table entries are updated.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) protocol: Option<String>,
    /// Override the lock under which a new page table is linked in.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) linking: Option<String>,
    /// Override how compare-exchange of entries is done: native or emulated.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) exchange: Option<String>,
    /// Override the reclamation scheme: when unlinked VMAs and tables are freed.
    #[arg(
        long,
        alias = "lifetime", // the old name
        value_name = "CHOICE"
    )]
    pub(crate) reclamation: Option<String>,
    /// Override how the resident set size (RSS) is counted.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) rss: Option<String>,
    /// Override which waiter gets a released sleeping lock: hand-off, stealing, optimistic
    /// spinning.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) sleeping_locks: Option<String>,
    /// Override how munmap holds mmap_lock.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) unmap: Option<String>,
    /// Override whether an address space has one mmap_lock or one for each arena.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) address_space: Option<String>,
    /// Override which CPUs a TLB flush interrupts.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) cpu_masks: Option<String>,
    /// Override fault-around: a file fault maps up to 2^ORDER pages (0 to 9, or adaptive).
    #[arg(long, value_name = "CHOICE")]
    pub(crate) fault_around_order: Option<String>,
    /// Override whether fault-around PTEs are installed young or old.
    #[arg(
        long,
        alias = "neighbours", // the old name
        value_name = "CHOICE"
    )]
    pub(crate) fault_around_age: Option<String>,
    /// Override how anonymous reverse-map walks hold the anon_vma lock.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) anon_rmap: Option<String>,
    /// Override which of several first faults of a mapping allocates its anon_vma.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) anon_vma_preparation: Option<String>,
    /// Override NUMA balancing: whether pages migrate to the node of the threads that use them.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) numa_balancing: Option<String>,
    /// Override what keeps a hugetlb fault's shared page tables in place.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) hugetlb: Option<String>,
    /// Override what a first-touch fault prefetches.
    #[arg(
        long,
        alias = "ahead", // the old name
        value_name = "CHOICE"
    )]
    pub(crate) prefetch: Option<String>,
    /// Override into how many zones, each with a lock, a node's memory is split.
    #[arg(long, value_name = "CHOICE")]
    pub(crate) zones: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// A race by number (P57) or scenario name; see --list.
    pub(crate) scenario: Option<String>,
    /// Check every race.
    #[arg(long, conflicts_with = "scenario")]
    pub(crate) all: bool,
    /// List the races.
    #[arg(long, conflicts_with_all = ["scenario", "all", "era", "format", "negative_control", "replay"])]
    pub(crate) list: bool,
    /// Eras; comma-separated [default: every era].
    #[arg(long, value_name = "LIST")]
    pub(crate) era: Option<String>,
    /// Page-table format to run on (see `minflt formats`) [default: all that the race applies to].
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// Schedules to explore per era and format.
    #[arg(long, value_name = "N", default_value = "2000", value_parser = words::number)]
    pub(crate) schedules: u64,
    /// Random seed of the schedules [default: 1; with --negative-control, one that succeeds].
    #[arg(long, value_name = "N", value_parser = words::number)]
    pub(crate) seed: Option<u64>,
    /// How schedules are generated: walk (any CPU at each step), pct (random priorities with a few
    /// changes), samples (stops between reading an entry and using it), time (virtual time with
    /// randomized costs), or mixed (all in turn).
    #[arg(long, value_name = "KIND", default_value = "mixed")]
    pub(crate) policy: String,
    /// Memory model: sc (sequentially consistent), tso (store buffers, as on x86-64), or mixed
    /// (half of the schedules each).
    #[arg(long, value_name = "MODEL", default_value = "mixed")]
    pub(crate) memory: String,
    /// Negative control: switch the race's fix off; the search must find the race.
    #[arg(long, alias = "broken")] // the old name
    pub(crate) negative_control: bool,
    /// Replay one schedule, as a failure printed it, and draw its timeline. Excludes the
    /// options of a search, which the schedule determines.
    #[arg(long, value_name = "SCHEDULE", conflicts_with_all = [
        "policy", "memory", "schedules", "seed", "budget",
    ])]
    pub(crate) replay: Option<String>,
    /// Begin no search after so long, such as 60s or 5m; how many are left out is said.
    #[arg(long, value_name = "TIME", value_parser = words::time)]
    pub(crate) budget: Option<Duration>,
    /// Show all steps of a failing schedule, none folded.
    #[arg(long)]
    pub(crate) all_steps: bool,
    /// Do not show progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Races {
    /// A race by number, such as P57.
    pub(crate) race: Option<String>,
    /// Draw the failing schedule as a timeline, one lane per thread, then the same schedule with
    /// the fix. Steps that touch nothing another thread touches are folded.
    #[arg(long, requires = "race")]
    pub(crate) show: bool,
    /// Show all steps, none folded.
    #[arg(long, requires = "show")]
    pub(crate) all_steps: bool,
    /// Print both timelines as one JSON object: lanes, rows, marks, folds.
    #[arg(long, requires = "show", conflicts_with_all = ["all_steps", "as_posted"])]
    pub(crate) json: bool,
    /// Draw how the 2012 posting fails as posted, walking the reverse map without a lock: after
    /// a fork (P10), and during another thread's first fault (P11).
    #[arg(long, requires = "race")]
    pub(crate) as_posted: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Machines {
    /// Print one machine, by name or file: each number with its kind of source and its citation.
    #[arg(long, value_name = "NAME")]
    pub(crate) show: Option<String>,
    /// Write one JSON object per machine (with --show, per number) to this file, one per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// Directory for the pages, one a command [default: print that of the program].
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: Option<PathBuf>,
}
