//! Arguments of `minflt curves` and `minflt efficiency`.

use crate::words;
use core::num::NonZeroU32;
use core::time::Duration;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Curves {
    /// Workloads: pft, page-fault1, ebizzy, mmap1 [default: all of them].
    pub(crate) workloads: Vec<String>,
    /// Machine to simulate: a name from `minflt machines`, or a machine file.
    #[arg(long, value_name = "NAME", default_value = "next1024")]
    pub(crate) machine: String,
    /// Numbers of threads, each on a CPU of its own; comma-separated.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1,2,4,8,16,32,64,128,256,512,1024"
    )]
    pub(crate) threads: String,
    /// Eras; comma-separated [default: all that differ for anonymous memory].
    #[arg(long, value_name = "LIST")]
    pub(crate) era: Option<String>,
    /// Runs per point, with different random seeds.
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        value_parser = words::repeats
    )]
    pub(crate) seeds: NonZeroU32,
    /// Directory for the charts and scaling.md [default: print only].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Write one JSON object per run to this file, one per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Begin nothing after so long, such as 60s or 5m; how much is left out is said.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) budget: Option<Duration>,
    /// Do not show progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Efficiency {
    /// Workloads: pft, page-fault1, ebizzy, mmap1 [default: all of them].
    pub(crate) workloads: Vec<String>,
    /// Machine to simulate: a name from `minflt machines`, or a machine file.
    #[arg(long, value_name = "NAME", default_value = "next1024")]
    pub(crate) machine: String,
    /// Eras; comma-separated.
    #[arg(long, value_name = "LIST", default_value = "minflt")]
    pub(crate) era: String,
    /// Runs per figure, with different random seeds.
    #[arg(
        long,
        value_name = "N",
        default_value = "5",
        value_parser = words::repeats
    )]
    pub(crate) seeds: NonZeroU32,
    /// Directory of scaling.md, whose block of this machine is written [default: print only].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) out: Option<PathBuf>,
    /// Write one JSON object per run to this file, one per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Do not show progress.
    #[arg(long)]
    pub(crate) quiet: bool,
}
