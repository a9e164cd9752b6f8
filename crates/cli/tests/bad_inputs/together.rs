//! Options of the workloads, and options that do not go together.

use crate::row::{Row, usage};

pub(crate) const ROWS: &[Row] = &[
    // Options of the workloads.
    usage(
        "no such option of the workload",
        "minflt bench pft -- -q",
        &["pft: unknown option `-q`", "options are -b, "],
    ),
    usage(
        "a workload's option without its value",
        "minflt bench pft -- -b",
        &["pft: -b requires a value", "-b SIZE"],
    ),
    usage(
        "a workload's count of nothing",
        "minflt bench pft -- -f 0",
        &["pft: -f", "an integer from 1"],
    ),
    usage(
        "a workload's word",
        "minflt bench pft -- --measure never",
        &["--measure must be process or workers", "`never`"],
    ),
    usage(
        "two numbers of threads",
        "minflt bench ebizzy --threads 4 -- -t 8",
        &["-t 8 and --threads 4 differ", "give one"],
    ),
    usage(
        "a size for what has none",
        "minflt bench brk1 --size 1M",
        &["--size: brk1", "it has no size"],
    ),
    // What would be ignored, and what does not go together.
    usage(
        "a machine for no simulation",
        "minflt bench pft --machine kvm16",
        &["--machine: only the sim target", "add sim to --on"],
    ),
    usage(
        "memory for linux",
        "minflt bench pft --on linux --ram 1G",
        &["--ram: the linux target", "add host or sim"],
    ),
    usage(
        "swap for linux",
        "minflt bench pft --on linux --swap 1G",
        &["--swap: the linux target", "add host or sim"],
    ),
    usage(
        "an account of real time",
        "minflt bench pft --why",
        &["--why: only the sim target", "use --on sim"],
    ),
    usage(
        "two runs in one file",
        "minflt bench pft --on sim --threads 1,2 --flame a",
        &["--flame: 2 runs", "give one era"],
    ),
    usage(
        "fewer CPUs than threads on host",
        "minflt bench pft --threads 2 --cpus 1",
        &["--cpus 1 with 2 threads", "use the same number"],
    ),
    usage(
        "an unsound mix",
        "minflt bench pft --era spf-2017 --reclamation immediate",
        &[
            "refused: fallback-order speculative",
            "use reclamation srcu or rcu",
        ],
    ),
    usage(
        "an order that may never end",
        "minflt bench pft --era linux-4.13 --fallback-order speculative",
        &["refused", "end the fallback order with"],
    ),
    usage(
        "the proof with options",
        "minflt bench --proof --threads 2",
        &["'--proof'", "'--threads <LIST>'"],
    ),
    usage(
        "a race and all of them",
        "minflt check P57 --all",
        &["'[SCENARIO]'", "'--all'"],
    ),
    usage(
        "a race and the list",
        "minflt check P57 --list",
        &["'[SCENARIO]'", "'--list'"],
    ),
    usage(
        "a schedule and a policy",
        "minflt check P57 --replay 1:0 --policy walk",
        &["'--replay <SCHEDULE>'", "'--policy <KIND>'"],
    ),
    usage(
        "a schedule and a seed",
        "minflt check P57 --replay 1:0 --seed 3",
        &["'--replay <SCHEDULE>'", "'--seed <N>'"],
    ),
    usage(
        "a schedule of all races",
        "minflt check --all --replay 1:0",
        &["--replay:", "name one race"],
    ),
    usage(
        "a schedule of two eras",
        "minflt check P57 --replay 1:0 --era linux-4.13,best",
        &["--replay: a schedule is of one era", "give one"],
    ),
    usage(
        "data of no timeline",
        "minflt races P30 --json",
        &["--show", "minflt races --help"],
    ),
    usage(
        "a timeline of no race",
        "minflt races --show",
        &["<RACE>", "minflt races --help"],
    ),
    usage(
        "a race that no posting has",
        "minflt races P30 --as-posted",
        &["P30 cannot be replayed", "only P10 and P11"],
    ),
    usage(
        "a table and a check of all",
        "minflt postings --show 2004/patched --verify",
        &["'--verify'", "'--show <ID>'"],
    ),
    usage(
        "two starting eras",
        "minflt advise pft --from best,linux-4.13",
        &["--from: give one era", "runs now"],
    ),
    usage(
        "full size of what is full",
        "minflt reproduce 2012 --full",
        &["--full: only the 2004 tables", "add 2004"],
    ),
    usage(
        "docs within a budget",
        "minflt reproduce --docs --budget 60s",
        &["--docs: needs all rows", "leave --budget out"],
    ),
    usage(
        "docs of one posting",
        "minflt reproduce 2012 --docs",
        &["--docs: needs the rows of all postings", "do not name one"],
    ),
    usage(
        "docs elsewhere",
        "minflt reproduce --docs",
        &["--docs: run from the repository's root", "docs/"],
    ),
    usage(
        "a table's docs elsewhere",
        "minflt sensitivity --docs",
        &[
            "--docs: run from the repository's root",
            "docs/validation.md",
        ],
    ),
    usage(
        "fits elsewhere",
        "minflt calibrate kvm16",
        &["run from the repository's root", "data/fit/"],
    ),
    usage(
        "this machine and another",
        "minflt calibrate --host kvm16",
        &["'--host'", "'[MACHINES]...'"],
    ),
    usage(
        "a file of no measurement",
        "minflt calibrate --out here.toml",
        &["--host", "minflt calibrate --help"],
    ),
    usage(
        "rows for benchstat from two files",
        "minflt compare a --benchstat --fail-over 5%",
        &["'--benchstat'", "'--fail-over <PERCENT>'"],
    ),
];
