//! The options of `minflt boot`.

use crate::words;
use core::num::NonZeroU32;
use core::time::Duration;
use std::path::PathBuf;

/// What boots, and on which machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Boot {
    /// Number of CPUs.
    #[arg(long, value_name = "N", default_value = "1", value_parser = words::count)]
    pub(crate) cpus: NonZeroU32,
    /// RAM of the machine.
    #[arg(long, value_name = "SIZE", default_value = "512M")]
    pub(crate) mem: String,
    /// The era that the minflt kernel boots in [default: the kernel's, spf-2017].
    #[arg(long, value_name = "ERA")]
    pub(crate) era: Option<String>,
    /// What executes instructions: tcg (QEMU's translator) or kvm.
    #[arg(long, value_name = "NAME", default_value = "tcg")]
    pub(crate) accel: String,
    /// A nanosecond an instruction: time and RDTSC count instructions (tcg).
    #[arg(long)]
    pub(crate) icount: bool,
    /// End the machine after so long: seconds, or a time such as 5m [default: 120, or never at a
    /// terminal].
    #[arg(long, value_name = "TIME", value_parser = words::seconds)]
    pub(crate) timeout: Option<Duration>,
    /// The kernel: minflt (built now), an image of it, or a Linux by linux=VMLINUZ; `linux` alone
    /// is the one that the environment variable MINFLT_LINUX names.
    #[arg(long, value_name = "KERNEL", default_value = "minflt")]
    pub(crate) kernel: String,
    /// Build the minflt kernel with its checks: lock order, and what walks find.
    #[arg(long)]
    pub(crate) checks: bool,
    /// A further word of the kernel's command line, such as swap=64; may be given several times.
    #[arg(long, value_name = "WORD")]
    pub(crate) append: Vec<String>,
    /// The folder that the machine has as its root: its files, links and rights.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// A file that the machine has besides, at its root by its own name, or at FILE=/PATH; may be
    /// given several times.
    #[arg(long, value_name = "FILE")]
    pub(crate) add: Vec<String>,
    /// Print the kernel's own lines at the end, on standard error.
    #[arg(long)]
    pub(crate) log: bool,
    /// The program, a static one, and its arguments, after `--`: a file, or with --root one of the
    /// machine's; without a slash it is looked for as by a shell. It gets this terminal as its
    /// own, if there is one, and else no standard input.
    #[arg(last = true, value_name = "PROGRAM ARGUMENTS")]
    pub(crate) program: Vec<String>,
}
